//! Wan: block, whole transformer, gradients; and what holds for any of its inputs.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use models::dit::wan::{Shared, Wan, WanConfig};
use nn::{
    Backward, Conditioning, Context, Dit, Forward, Inputs, Levels, Modality, Plain, Precision,
    Recompute, Store, Weights,
};

use crate::case::checked_tokens;
use crate::reader::{check, check_norm, sketch, values};

const CASES: [&str; 4] = ["t2v", "i2v", "flf2v", "ti2v"];

/// The reference takes the last 512 tokens for the text where it sees a picture.
const TEXT_WITH_PICTURE: usize = 512;

type Case = crate::case::Case<Wan>;

impl Case {
    fn open(name: &'static str) -> Case {
        let wan = |config: &str| Ok(Wan { config: WanConfig::from_json(config)? });
        let mut case = Case::of("wan_transformer", name, wan);
        if name == "flf2v" {
            // All but the embedding of places are those of `i2v`.
            for (key, parameter) in case.golden.store("i2v.weights").iter() {
                case.store.insert(key, parameter.clone());
            }
        }
        case
    }

    fn tokens(&self, key: &str) -> Tensor<3> {
        nn::patchify(self.tensor::<5>(key), self.model.config.patch)
    }

    fn grid(&self) -> [usize; 3] {
        let [_, _, frames, height, width] = self.tensor::<5>("inputs.hidden_states").dims();
        let [t, h, w] = self.model.config.patch;
        [frames / t, height / h, width / w]
    }

    fn levels(&self) -> Levels {
        match self.name {
            "ti2v" => distinct(&self.tensor("inputs.timestep")),
            _ => Levels::per_sample(self.tensor("inputs.timestep")),
        }
    }

    fn context(&self) -> Context {
        let text: Tensor<3> = self.tensor("inputs.encoder_hidden_states");
        if !self.golden.has(&self.key("inputs.encoder_hidden_states_image")) {
            return Context::text(text, None);
        }
        let [_, length, _] = text.dims();
        let image: Tensor<3> = self.tensor("inputs.encoder_hidden_states_image");
        let [pictures, tokens, width] = image.dims();
        Context {
            tokens: text.repeat_dim(1, TEXT_WITH_PICTURE / length),
            mask: None,
            // Two pictures of one sample lie one after the other.
            image: Some(image.reshape([2, pictures / 2 * tokens, width])),
        }
    }

    fn inputs(&self) -> Inputs {
        let levels = self.levels();
        let video = Modality {
            tokens: self.tokens("inputs.hidden_states"),
            sigma: levels.distinct.clone().slice_dim(1, 0..1).reshape([2]),
            levels,
            positions: self.model.positions(self.grid(), 2, &Device::flex()),
            context: self.context(),
            size: None,
            enabled: true,
            skipped: Vec::new(),
        };
        Inputs::video(video)
    }

    /// Gradients of the sum of the prediction times the golden's cotangent.
    fn slope(&self, recompute: Recompute, inputs: &Inputs) -> Backward {
        self.gradients(self.tokens("cotangent"), &|_| true, recompute, inputs)
    }
}

/// Timesteps `[B, T]` as few levels with an index.
fn distinct(timesteps: &Tensor<2>) -> Levels {
    let [batch, tokens] = timesteps.dims();
    let all = values(timesteps);
    let levels: Vec<Vec<f32>> = all
        .chunks(tokens)
        .map(|sample| {
            let mut levels = sample.to_vec();
            levels.sort_by(f32::total_cmp);
            levels.dedup();
            levels
        })
        .collect();
    let count = levels.iter().map(Vec::len).max().unwrap();
    let place = |at: usize| {
        let own = &levels[at / tokens];
        own.iter().position(|level| *level == all[at]).unwrap() as i64
    };
    let index: Vec<i64> = (0..all.len()).map(place).collect();
    let padded: Vec<f32> = levels
        .iter()
        .flat_map(|own| (0..count).map(|at| own.get(at).copied().unwrap_or(123.0)))
        .collect();
    let device = Device::flex();
    Levels {
        distinct: Tensor::from_data(TensorData::new(padded, [batch, count]), &device),
        index: Some(Tensor::from_data(TensorData::new(index, [batch, tokens]), &device)),
    }
}

#[test]
fn the_store_and_the_model_agree() {
    CASES.iter().for_each(|name| Case::open(name).agrees());
}

#[test]
fn one_block_equals_diffusers() {
    let case = Case::open("t2v");
    let at = |key: &str| format!("block.1.{key}");
    let modulation: Tensor<3> = case.tensor(&at("timestep"));
    let [batch, _, width] = modulation.dims();
    // The reference holds every angle twice.
    let angles = |key: &str| -> Tensor<3> {
        let table: Tensor<4> = case.tensor(&at(key));
        let [_, tokens, _, head_width] = table.dims();
        let pairs: Tensor<3> = table.reshape([tokens, head_width / 2, 2]);
        pairs.slice_dim(2, 0..1).reshape([1, tokens, head_width / 2])
    };
    let rope = nn::Rope { cosine: angles("cosine"), sine: angles("sine") };
    let own = case.inputs().video.unwrap().positions.rope(&case.model.config.pairs(), 1.0);
    assert_eq!(values(&own.cosine), values(&rope.cosine));
    assert_eq!(values(&own.sine), values(&rope.sine));
    let conditioning = Conditioning {
        modulation: modulation.reshape([batch, 1, 6 * width]),
        embedded: Tensor::zeros([batch, 1, width], &Device::flex()),
        index: None,
        text: case.tensor(&at("encoder_hidden_states")),
        text_mask: None,
    };
    let shared = Shared { conditioning, picture: None, rope };
    let stream = case.tensor::<3>(&at("hidden_states"));
    let weights = Weights::new(&case.store);
    let out = case
        .model
        .block(1, stream, Forward { weights: &weights, shared: &shared, attention: &mut Plain })
        .unwrap();
    check("block 1", &out, &case.tensor(&at("output")), 1e-5);
}

#[test]
fn the_transformer_equals_diffusers() {
    for name in CASES {
        let case = Case::open(name);
        let latents =
            nn::unpatchify(case.predict(&case.inputs()), case.grid(), case.model.config.patch);
        check(name, &latents, &case.tensor("output"), 1e-5);
    }
}

#[test]
fn gradients_equal_pytorch() {
    for name in CASES {
        let case = Case::open(name);
        let found = case.slope(Recompute::PerBlock, &case.inputs());
        let found = checked_tokens(name, found, &case.tokens("input_gradient"));
        assert_eq!(found.parameters.len(), case.store.iter().count(), "{name}: parameters");
        let want = case.golden.store(&format!("{name}.gradients"));
        for (parameter, golden) in want.iter() {
            let shape = &case.store.get(parameter).expect("a weight of that name").shape;
            let gradient = sketch(&found.parameters[parameter], shape);
            check_norm(&format!("{name}: {parameter}"), &gradient, &golden.values, 1e-4);
        }
        // A single text token is chosen whatever asks for it, so what asks has no gradient.
        let blind = found.parameters.keys().filter(|key| want.get(key).is_none());
        let scale = norm(&found.parameters["blocks.0.attn2.to_v.weight"]);
        for parameter in blind.filter(|_| name == "ti2v") {
            assert!(norm(&found.parameters[parameter]) < 1e-6 * scale, "{name}: {parameter}");
        }
    }
}

fn norm(tensor: &Tensor<1>) -> f64 {
    values(tensor).into_iter().map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt()
}

/// The law: going back block by block is going back through the whole graph, to the bit.
#[test]
fn blockwise_backward_equals_the_whole_graph() {
    let every = ["time_embedder.linear_1.weight", "time_proj.bias", "text_embedder.linear_2.bias"];
    let picture = ["image_embedder.norm1.weight", "image_embedder.ff.net.0.proj.weight"];
    for name in CASES {
        let case = Case::open(name);
        let inputs = case.inputs();
        let blockwise = case.slope(Recompute::PerBlock, &inputs);
        let whole = case.slope(Recompute::Never, &inputs);
        let pictures =
            picture.iter().filter(|_| inputs.video.as_ref().unwrap().context.image.is_some());
        for must in every.iter().chain(pictures) {
            let must = format!("condition_embedder.{must}");
            assert!(blockwise.parameters.contains_key(&must), "{must} has a gradient");
        }
        assert_eq!(blockwise.parameters.len(), whole.parameters.len());
        for (parameter, gradient) in &whole.parameters {
            let own = values(&blockwise.parameters[parameter]);
            assert_eq!(own, values(gradient), "{name}: {parameter}");
        }
        let tokens = [blockwise.tokens, whole.tokens].map(|tokens| values(&tokens.video.unwrap()));
        assert_eq!(tokens[0], tokens[1], "{name}: tokens");
    }
}

/// The given samples of the inputs.
fn samples(inputs: &Inputs, rows: std::ops::Range<usize>) -> Inputs {
    let video = inputs.video.as_ref().unwrap();
    let index = video.levels.index.clone();
    let video = Modality {
        tokens: video.tokens.clone().slice_dim(0, rows.clone()),
        levels: Levels {
            distinct: video.levels.distinct.clone().slice_dim(0, rows.clone()),
            index: index.map(|index| index.slice_dim(0, rows.clone())),
        },
        sigma: video.sigma.clone().slice_dim(0, rows.clone()),
        positions: video.positions.values().clone().slice_dim(0, rows.clone()).into(),
        context: Context {
            tokens: video.context.tokens.clone().slice_dim(0, rows.clone()),
            mask: video.context.mask.clone().map(|mask| mask.slice_dim(0, rows.clone())),
            image: video.context.image.clone().map(|image| image.slice_dim(0, rows.clone())),
        },
        size: None,
        enabled: true,
        skipped: Vec::new(),
    };
    Inputs::video(video)
}

/// Rows do not see each other: a batch equals its samples, to the bit.
#[test]
fn a_batch_equals_its_samples() {
    for name in CASES {
        let case = Case::open(name);
        let inputs = case.inputs();
        let whole = case.predict(&inputs);
        for sample in 0..2 {
            let rows = sample..sample + 1;
            let alone = case.predict(&samples(&inputs, rows.clone()));
            let want = values(&whole.clone().slice_dim(0, rows));
            assert_eq!(values(&alone), want, "{name}: sample {sample}");
        }
    }
}

/// The given tokens of the inputs, in the given order.
fn picked(inputs: &Inputs, order: &Tensor<1, Int>) -> Inputs {
    let video = inputs.video.as_ref().unwrap().clone();
    let Levels { distinct, index } = video.levels;
    let index = index.map(|index| index.select(1, order.clone()));
    let video = Modality {
        tokens: video.tokens.select(1, order.clone()),
        positions: video.positions.values().clone().select(2, order.clone()).into(),
        levels: Levels { distinct, index },
        ..video
    };
    Inputs::video(video)
}

/// A token is where its position says, whatever its place in the sequence; positions may differ
/// from sample to sample.
#[test]
fn the_order_of_tokens_does_not_matter() {
    let case = Case::open("ti2v");
    let inputs = case.inputs();
    let [_, tokens, _] = inputs.video.as_ref().unwrap().tokens.dims();
    let order: Vec<i64> = (0..tokens as i64).map(|at| (at * 7 + 3) % tokens as i64).collect();
    let order = Tensor::<1, Int>::from_data(TensorData::new(order, [tokens]), &Device::flex());
    let want = case.predict(&inputs).select(1, order.clone());
    let shuffled = picked(&inputs, &order);
    check("shuffled", &case.predict(&shuffled), &want, 1e-5);

    let mut mixed = inputs.clone();
    let positions = [(&inputs, 0), (&shuffled, 1)].map(|(inputs, sample)| {
        inputs.video.as_ref().unwrap().positions.values().clone().narrow(0, sample, 1)
    });
    mixed.video.as_mut().unwrap().positions = Tensor::cat(positions.to_vec(), 0).into();
    let whole = case.predict(&mixed);
    for sample in 0..2 {
        let rows = sample..sample + 1;
        let alone = case.predict(&samples(&mixed, rows.clone()));
        assert_eq!(values(&alone), values(&whole.clone().slice_dim(0, rows)), "sample {sample}");
    }
    assert_ne!(values(&whole), values(&case.predict(&inputs)), "positions count");
}

/// Many levels of which every token has the same are one level, to the bit.
#[test]
fn a_level_per_token_is_a_level_per_sample_where_all_are_equal() {
    let case = Case::open("t2v");
    let plain = case.inputs();
    let [batch, tokens, _] = plain.video.as_ref().unwrap().tokens.dims();
    let device = Device::flex();
    let mut indexed = plain.clone();
    let own: Tensor<2> = plain.video.as_ref().unwrap().levels.distinct.clone();
    indexed.video.as_mut().unwrap().levels = Levels {
        distinct: Tensor::cat(vec![own.clone() * 0.5, own], 1),
        index: Some(Tensor::ones([batch, tokens], &device)),
    };
    assert_eq!(values(&case.predict(&indexed)), values(&case.predict(&plain)));
}

/// bf16 rounds every matrix of the blocks and none around them.
#[test]
fn in_bf16_what_is_around_the_blocks_stays_as_it_is_stored() {
    let case = Case::open("t2v");
    let file = crate::reader::folder().join("wan_transformer.safetensors");
    let store = Store::open_keeping(&[file], Precision::Bf16, &Wan::KEPT, &Device::flex())
        .unwrap()
        .renamed(|name| name.strip_prefix("t2v.weights.").map(str::to_owned));
    for (name, parameter) in store.iter() {
        let matrix = name.ends_with(".weight") && parameter.shape.len() > 1;
        let kept = name.split('.').any(|module| Wan::KEPT.contains(&module));
        let rounded = matrix && !kept;
        let want = if rounded { DType::BF16 } else { DType::F32 };
        assert_eq!(parameter.values.dtype(), want, "{name}");
    }
    let case = Case { store, ..case };
    check("bf16", &case.predict(&case.inputs()), &case.tokens("output"), 3e-2);
}

/// Masked text is text that is not there.
#[test]
fn a_mask_hides_text() {
    let case = Case::open("t2v");
    let whole = case.inputs();
    let mut masked = whole.clone();
    let mask: Tensor<2> = Tensor::ones([2, 7], &Device::flex());
    masked.video.as_mut().unwrap().context.mask = Some(mask.clone().slice_fill([0..2, 4..7], 0.0));
    let mut cut = whole.clone();
    cut.video.as_mut().unwrap().context.tokens =
        whole.video.as_ref().unwrap().context.tokens.clone().narrow(1, 0, 4);
    check("masked", &case.predict(&masked), &case.predict(&cut), 1e-5);
    masked.video.as_mut().unwrap().context.mask = Some(mask);
    check("unmasked", &case.predict(&masked), &case.predict(&whole), 1e-6);
}

/// The number of threads changes no bit of a whole forward and backward pass.
#[test]
fn threads_change_nothing() {
    for name in ["i2v", "ti2v"] {
        let case = Case::open(name);
        let inputs = case.inputs();
        let on = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| case.slope(Recompute::PerBlock, &inputs))
        };
        let (one, several) = (on(1), on(3));
        assert_eq!(values(&several.loss.unwrap()), values(&one.loss.unwrap()));
        for (parameter, gradient) in &one.parameters {
            let other = values(&several.parameters[parameter]);
            assert_eq!(other, values(gradient), "{name}: {parameter}");
        }
    }
}

#[test]
fn inputs_that_do_not_fit_are_refused_by_name() {
    let refused = |name: &'static str, spoil: &dyn Fn(&mut Modality)| {
        let case = Case::open(name);
        let mut inputs = case.inputs();
        spoil(inputs.video.as_mut().unwrap());
        let weights = Weights::new(&case.store);
        nn::forward(&case.model, &weights, &inputs, &mut Plain).unwrap_err().to_string()
    };
    let image = |tokens, width| Some(Tensor::<3>::zeros([2, tokens, width], &Device::flex()));
    for (name, spoil, part) in [
        (
            "t2v",
            &(|v: &mut Modality| v.context.image = image(4, 7)) as &dyn Fn(&mut Modality),
            "image_dim is null",
        ),
        ("i2v", &|v| v.context.image = None, "the image embedding is missing"),
        ("i2v", &|v| v.context.image = image(4, 6), "image_dim is 7"),
        ("flf2v", &|v| v.context.image = image(3, 7), "pos_embed_seq_len is 6"),
        ("t2v", &|v| v.tokens = v.tokens.clone().narrow(2, 0, 11), "takes 12 values per token"),
        (
            "t2v",
            &|v| v.positions = v.positions.values().clone().narrow(1, 0, 2).into(),
            "three axes",
        ),
        ("t2v", &|v| v.context.tokens = v.context.tokens.clone().narrow(2, 0, 8), "text_dim is 9"),
        ("ti2v", &|v| v.levels.index = None, "several levels an index"),
    ] {
        let message = refused(name, spoil);
        assert!(message.contains(part), "{name}: {message}");
    }
}
