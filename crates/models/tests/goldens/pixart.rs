//! PixArt-alpha: block, whole transformer, gradients; and the laws of block-wise backward.

use burn::tensor::{Device, Tensor};
use models::dit::pixart::{Pixart, PixartConfig};
use nn::{
    Backward, Conditioning, Context, Dit, Forward, Inputs, Levels, Modality, Plain, Recompute,
    SizeCondition, Trainable, Weights,
};

use crate::case::checked_tokens;
use crate::reader::{check, sketch, values};

const CASES: [&str; 2] = ["plain", "conditions"];

type Case = crate::case::Case<Pixart>;

impl Case {
    fn open(name: &'static str) -> Case {
        let pixart = |config: &str| Ok(Pixart { config: PixartConfig::from_json(config)? });
        Case::of("pixart_transformer", name, pixart)
    }

    fn tokens(&self, key: &str) -> Tensor<3> {
        let patch = self.model.config.patch;
        nn::patchify(self.tensor::<4>(key).unsqueeze_dim::<5>(2), [1, patch, patch])
    }

    fn grid(&self) -> [usize; 2] {
        let [_, _, height, width] = self.tensor::<4>("inputs.hidden_states").dims();
        [height, width].map(|side| side / self.model.config.patch)
    }

    fn inputs(&self) -> Inputs {
        let key = |name: &str| format!("{}.inputs.{name}", self.name);
        let timestep = self.golden.integers::<1>(&key("timestep")).float();
        let size = self.golden.has(&key("resolution")).then(|| SizeCondition {
            resolution: self.tensor("inputs.resolution"),
            aspect_ratio: self.tensor("inputs.aspect_ratio"),
        });
        let video = Modality {
            tokens: self.tokens("inputs.hidden_states"),
            levels: Levels::per_sample(timestep.clone()),
            sigma: timestep,
            positions: self.model.positions(self.grid(), 3, &Device::flex()),
            context: Context::text(
                self.tensor("inputs.encoder_hidden_states"),
                Some(self.golden.integers::<2>(&key("encoder_attention_mask")).float()),
            ),
            size,
            enabled: true,
            skipped: Vec::new(),
        };
        Inputs::video(video)
    }

    /// Gradients of the sum of the prediction times the golden's cotangent.
    fn slope(&self, recompute: Recompute, inputs: &Inputs) -> Backward {
        self.slope_of(&|_| true, recompute, inputs)
    }

    /// The same for some of the parameters.
    fn slope_of(
        &self,
        trainable: Trainable<'_>,
        recompute: Recompute,
        inputs: &Inputs,
    ) -> Backward {
        self.gradients(self.tokens("cotangent"), trainable, recompute, inputs)
    }
}

#[test]
fn the_store_and_the_model_agree() {
    CASES.iter().for_each(|name| Case::open(name).agrees());
}

#[test]
fn one_block_equals_diffusers() {
    for name in CASES {
        let case = Case::open(name);
        let index = case.golden.config()[name]["block"].as_u64().unwrap() as usize;
        let at = |key: &str| format!("block.{index}.{key}");
        let modulation = case.tensor::<2>(&at("timestep"));
        let [batch, wide] = modulation.dims();
        let bias = case.tensor::<3>(&at("encoder_attention_bias"));
        let length = bias.dims()[2];
        let shared = Conditioning {
            modulation: modulation.reshape([batch, 1, wide]),
            embedded: Tensor::zeros([batch, 1, wide / 6], &Device::flex()),
            text: case.tensor(&at("encoder_hidden_states")),
            text_mask: Some(bias.reshape([batch, 1, 1, length])),
            index: None,
        };
        let stream = case.tensor::<3>(&at("hidden_states"));
        let weights = Weights::new(&case.store);
        let out = case
            .model
            .block(
                index,
                stream,
                Forward { weights: &weights, shared: &shared, attention: &mut Plain },
            )
            .unwrap();
        check(&format!("{name}: block {index}"), &out, &case.tensor(&at("output")), 1e-5);
    }
}

#[test]
fn the_transformer_equals_diffusers() {
    for name in CASES {
        let case = Case::open(name);
        let weights = Weights::new(&case.store);
        let prediction = nn::forward(&case.model, &weights, &case.inputs(), &mut Plain).unwrap();
        check(name, prediction.video.as_ref().unwrap(), &case.tokens("output"), 1e-5);
    }
}

#[test]
fn gradients_equal_pytorch() {
    for case in CASES.map(Case::open) {
        let (name, inputs) = (case.name, case.inputs());
        let found = case.slope(Recompute::PerBlock, &inputs);
        let found = checked_tokens(name, found, &case.tokens("input_gradient"));
        let want = case.golden.store(&format!("{name}.gradients"));
        assert_eq!(found.parameters.len(), want.iter().count(), "{name}: parameters");
        for (parameter, gradient) in &found.parameters {
            let golden = want.get(parameter).expect("a gradient of that name").values.clone();
            // Softmax cannot see the bias of keys: its gradient is rounding only, on both sides.
            let scale = match parameter.strip_suffix("to_k.bias") {
                Some(layer) => want.get(&format!("{layer}to_q.bias")).unwrap().values.clone(),
                None => golden.clone(),
            };
            let shape = &case.store.get(parameter).expect("a weight of that name").shape;
            let off = norm(&(sketch(gradient, shape) - golden)) / norm(&scale);
            assert!(off < 1e-4, "{name}: {parameter} is off by {off:.2e}");
        }
    }
}

/// The law: going back block by block is going back through the whole graph, to the bit.
#[test]
fn blockwise_backward_equals_the_whole_graph() {
    for name in CASES {
        let case = Case::open(name);
        let inputs = case.inputs();
        let blockwise = case.slope(Recompute::PerBlock, &inputs);
        let whole = case.slope(Recompute::Never, &inputs);
        for must in [
            "adaln_single.emb.timestep_embedder.linear_1.weight",
            "caption_projection.linear_2.bias",
        ] {
            assert!(blockwise.parameters.contains_key(must), "{must} has a gradient");
        }
        assert_eq!(blockwise.parameters.len(), whole.parameters.len());
        for (parameter, gradient) in &whole.parameters {
            assert_eq!(
                values(&blockwise.parameters[parameter]),
                values(gradient),
                "{name}: {parameter}"
            );
        }
        assert_eq!(
            values(&blockwise.tokens.video.unwrap()),
            values(&whole.tokens.video.unwrap()),
            "{name}: tokens"
        );
    }
}

/// A frozen parameter gets no gradient, and the others do not change.
#[test]
fn frozen_parameters_get_no_gradient() {
    let case = Case::open("plain");
    let inputs = case.inputs();
    let trainable = |name: &str| name.contains("attn1");
    let some = case.slope_of(&trainable, Recompute::PerBlock, &inputs);
    let all = case.slope(Recompute::PerBlock, &inputs);
    assert!(!some.parameters.is_empty() && some.parameters.keys().all(|name| trainable(name)));
    for (name, gradient) in &some.parameters {
        assert_eq!(values(gradient), values(&all.parameters[name]), "{name}");
    }
}

/// Rows do not see each other: a batch equals its samples, and any tokens equal themselves.
#[test]
fn a_batch_equals_its_samples() {
    let case = Case::open("conditions");
    let weights = Weights::new(&case.store);
    let inputs = case.inputs();
    let whole = nn::forward(&case.model, &weights, &inputs, &mut Plain).unwrap().video.unwrap();
    for sample in 0..3 {
        let rows = sample..sample + 1;
        let video = inputs.video.as_ref().unwrap();
        let sigma = video.sigma.clone().slice_dim(0, rows.clone());
        let alone = Inputs::video(Modality {
            tokens: video.tokens.clone().slice_dim(0, rows.clone()),
            levels: Levels::per_sample(sigma.clone()),
            sigma,
            positions: video.positions.values().clone().slice_dim(0, rows.clone()).into(),
            context: Context::text(
                video.context.tokens.clone().slice_dim(0, rows.clone()),
                video.context.mask.clone().map(|mask| mask.slice_dim(0, rows.clone())),
            ),
            size: video.size.clone().map(|size| SizeCondition {
                resolution: size.resolution.slice_dim(0, rows.clone()),
                aspect_ratio: size.aspect_ratio.slice_dim(0, rows.clone()),
            }),
            enabled: true,
            skipped: Vec::new(),
        });
        let alone = nn::forward(&case.model, &weights, &alone, &mut Plain).unwrap().video.unwrap();
        assert_eq!(values(&alone), values(&whole.clone().slice_dim(0, rows)), "sample {sample}");
    }
}

#[test]
fn the_older_config_is_the_same_model() {
    for folder in ["pixart-tiny", "pixart-tiny-conditions"] {
        let read =
            |path: String| std::fs::read_to_string(crate::reader::folder().join(path)).unwrap();
        let today =
            PixartConfig::from_json(&read(format!("{folder}/transformer/config.json"))).unwrap();
        let older = read(format!("configs/{folder}.legacy_transformer.json"));
        assert_eq!(PixartConfig::from_json(&older).unwrap(), today);
    }
}

fn norm(tensor: &Tensor<1>) -> f64 {
    values(tensor).into_iter().map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt()
}

/// The number of threads changes no bit of a whole forward and backward pass.
#[test]
fn threads_change_nothing() {
    for name in CASES {
        let case = Case::open(name);
        let inputs = case.inputs();
        let on = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| case.slope(Recompute::PerBlock, &inputs))
        };
        let one = on(1);
        for threads in [2, 3] {
            let several = on(threads);
            assert_eq!(values(&several.loss.unwrap()), values(&one.loss.clone().unwrap()));
            assert_eq!(
                values(&several.tokens.video.unwrap()),
                values(&one.tokens.clone().video.unwrap())
            );
            for (parameter, gradient) in &one.parameters {
                let other = values(&several.parameters[parameter]);
                assert_eq!(other, values(gradient), "{name}: {parameter} on {threads} threads");
            }
        }
    }
}
