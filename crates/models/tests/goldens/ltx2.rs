//! LTX-2's transformer: predictions, gradients; and what holds for any of its inputs.

use burn::tensor::{Device, Int, Tensor, TensorData};
use models::dit::ltx2::{CrossLevels, Ltx2, Ltx2Config};
use nn::{
    Backward, Context, Inputs, Levels, Modality, OneDevice, Parameters, Plain, Prediction,
    Recompute, Schedule, Tracks, Weights,
};
use serde_json::{Value, json};

use crate::reader::{Golden, check, check_norm, sketch, values};

const CASES: [&str; 2] = ["v20", "v23"];

type Case = crate::case::Case<Ltx2>;

impl Case {
    fn open(name: &'static str, cross_levels: CrossLevels) -> Case {
        let model =
            |config: &str| Ok(Ltx2 { config: Ltx2Config::from_json(config)?, cross_levels });
        Case::of("ltx2_transformer", name, model)
    }

    fn modality(&self, prefix: &str, coordinates: &str) -> Modality {
        let key = |name: &str| format!("inputs.{prefix}{name}");
        let mask = key("encoder_attention_mask");
        let mask = self.golden.has(&self.key(&mask)).then(|| self.tensor(&mask));
        let per_token = self.name == "v23" && prefix.is_empty();
        Modality {
            tokens: self.tensor(&key("hidden_states")),
            levels: match per_token {
                true => frames(&self.tensor(&key("timestep"))),
                false => Levels::per_sample(self.tensor(&key("timestep"))),
            },
            sigma: self.tensor::<1>(&key("sigma")) / 1000.0,
            positions: self.tensor::<4>(&format!("inputs.{coordinates}")).into(),
            context: Context::text(self.tensor(&key("encoder_hidden_states")), mask),
            size: None,
            enabled: true,
            skipped: Vec::new(),
        }
    }

    fn inputs(&self) -> Inputs {
        Tracks {
            video: Some(self.modality("", "video_coords")),
            audio: Some(self.modality("audio_", "audio_coords")),
        }
    }

    fn run(&self, inputs: &Inputs) -> Prediction {
        nn::forward(&self.model, &Weights::new(&self.store), inputs, &mut Plain).unwrap()
    }

    #[track_caller]
    fn check(&self, what: &str, found: &Prediction) {
        let keys = Tracks { video: Some("output"), audio: Some("audio_output") };
        for (found, key) in found.as_ref().zip(keys) {
            let golden = self.tensor(&format!("{key}.{what}"));
            check(&format!("{} {key} {what}", self.name), found, &golden, 1e-5);
        }
    }

    /// Gradients of the sum of both predictions times the golden's cotangents.
    fn slope(&self, recompute: Recompute, inputs: &Inputs) -> Backward {
        let cotangents =
            ["cotangent", "audio_cotangent"].map(|key| Tensor::<3>::from_inner(self.tensor(key)));
        let mut loss = |prediction: &Prediction| {
            let tracks = prediction.clone().into_iter().zip(cotangents.clone());
            let sums = tracks.map(|(own, cotangent)| kernels::sum(own * cotangent));
            Ok(sums.reduce(|all, one| all + one).unwrap())
        };
        let parameters = Parameters { provider: &self.store, trainable: &|_| true };
        OneDevice { recompute }.backward(&self.model, parameters, inputs, &mut loss).unwrap()
    }
}

/// Timesteps `[B, T]` of which the first token's is one level and the last's the other.
fn frames(timesteps: &Tensor<2>) -> Levels {
    let [batch, tokens] = timesteps.dims();
    let ends = [0, tokens - 1].map(|at| timesteps.clone().narrow(1, at, 1));
    let all = values(timesteps);
    let later =
        all.chunks(tokens).flat_map(|own| own.iter().map(|level| i64::from(*level != own[0])));
    let index = TensorData::new(later.collect::<Vec<_>>(), [batch, tokens]);
    Levels {
        distinct: Tensor::cat(ends.to_vec(), 1),
        index: Some(Tensor::from_data(index, &Device::flex())),
    }
}

#[test]
fn the_store_and_the_model_agree() {
    CASES.iter().for_each(|name| Case::open(name, CrossLevels::Original).agrees());
}

/// Under both rules of diffusers and the original's for where the streams meet.
#[test]
fn the_transformer_equals_diffusers() {
    for name in CASES {
        for (rule, levels) in [
            ("original", CrossLevels::Original),
            ("own", CrossLevels::Own),
            ("other", CrossLevels::Other),
        ] {
            let case = Case::open(name, levels);
            case.check(rule, &case.run(&case.inputs()));
        }
    }
}

/// A stream alone is what it is beside another that it does not hear.
#[test]
fn one_stream_alone_equals_diffusers() {
    for name in CASES {
        let case = Case::open(name, CrossLevels::Original);
        let Tracks { video, audio } = case.inputs();
        let found = case.run(&Tracks { video, audio: None });
        assert!(found.audio.is_none());
        case.check("apart", &found);
        case.check("apart", &case.run(&Tracks { video: None, audio: audio.clone() }));
        let mut dark = case.inputs();
        dark.video.as_mut().unwrap().enabled = false;
        case.check("apart", &case.run(&dark));
    }
}

#[test]
fn gradients_equal_pytorch() {
    for name in CASES {
        let case = Case::open(name, CrossLevels::Original);
        let found = case.slope(Recompute::PerBlock, &case.inputs());
        for (tokens, key) in
            found.tokens.into_iter().zip(["input_gradient", "audio_input_gradient"])
        {
            check_norm(&format!("{name}: {key}"), &tokens, &case.tensor(key), 1e-4);
        }
        assert_eq!(found.parameters.len(), case.store.iter().count(), "{name}: parameters");
        for (parameter, golden) in case.golden.store(&format!("{name}.gradients")).iter() {
            let shape = &case.store.get(parameter).expect("a weight of that name").shape;
            let gradient = sketch(&found.parameters[parameter], shape);
            check_norm(&format!("{name}: {parameter}"), &gradient, &golden.values, 1e-4);
        }
    }
}

/// The law: going back block by block is going back through the whole graph, to the bit.
#[test]
fn blockwise_backward_equals_the_whole_graph() {
    for name in CASES {
        let case = Case::open(name, CrossLevels::Original);
        let inputs = case.inputs();
        let blockwise = case.slope(Recompute::PerBlock, &inputs);
        let whole = case.slope(Recompute::Never, &inputs);
        assert_eq!(blockwise.parameters.len(), whole.parameters.len());
        for (parameter, gradient) in &whole.parameters {
            let own = values(&blockwise.parameters[parameter]);
            assert_eq!(own, values(gradient), "{name}: {parameter}");
        }
        for (own, whole) in blockwise.tokens.zip(whole.tokens) {
            assert_eq!(values(&own), values(&whole), "{name}: tokens");
        }
    }
}

/// The given samples of a modality.
fn sample(own: &Modality, at: usize) -> Modality {
    Modality {
        tokens: own.tokens.clone().narrow(0, at, 1),
        levels: Levels {
            distinct: own.levels.distinct.clone().narrow(0, at, 1),
            index: own.levels.index.clone().map(|index| index.narrow(0, at, 1)),
        },
        sigma: own.sigma.clone().narrow(0, at, 1),
        positions: own.positions.values().clone().narrow(0, at, 1).into(),
        context: Context {
            tokens: own.context.tokens.clone().narrow(0, at, 1),
            mask: own.context.mask.clone().map(|mask| mask.narrow(0, at, 1)),
            image: None,
        },
        ..own.clone()
    }
}

/// Rows do not see each other: a batch equals its samples, to the bit.
#[test]
fn a_batch_equals_its_samples() {
    for name in CASES {
        let case = Case::open(name, CrossLevels::Original);
        let inputs = case.inputs();
        let whole = case.run(&inputs);
        for at in 0..2 {
            let alone = case.run(&inputs.as_ref().map(|own| sample(own, at)));
            for (alone, whole) in alone.zip(whole.clone()) {
                assert_eq!(values(&alone), values(&whole.narrow(0, at, 1)), "{name}: sample {at}");
            }
        }
    }
}

/// A token is where and when its position says, whatever its place in the sequence.
#[test]
fn the_order_of_tokens_does_not_matter() {
    let case = Case::open("v23", CrossLevels::Original);
    let inputs = case.inputs();
    let order = |own: &Modality| {
        let tokens = own.tokens.dims()[1] as i64;
        let order: Vec<i64> = (0..tokens).map(|at| (at * 5 + 2) % tokens).collect();
        Tensor::<1, Int>::from_ints(&order[..], &Device::flex())
    };
    let shuffled = inputs.as_ref().map(|own| {
        let order = order(own);
        Modality {
            tokens: own.tokens.clone().select(1, order.clone()),
            positions: own.positions.values().clone().select(2, order.clone()).into(),
            levels: Levels {
                distinct: own.levels.distinct.clone(),
                index: own.levels.index.clone().map(|index| index.select(1, order)),
            },
            ..own.clone()
        }
    });
    let want =
        case.run(&inputs).zip(inputs.as_ref()).map(|(found, own)| found.select(1, order(own)));
    for (found, want) in case.run(&shuffled).zip(want) {
        check("shuffled", &found, &want, 1e-5);
    }
}

#[test]
fn configs_are_checked() {
    let golden = Golden::open("ltx2_transformer");
    let refused = |key: &str, value: Value| {
        let mut config = golden.network("v23");
        config[key] = value;
        Ltx2Config::from_json(&config.to_string()).unwrap_err().to_string()
    };
    for (key, value, part) in [
        ("ff_bias", json!(false), "a part of LTX-2.5"),
        ("audio_ff_bias", json!(false), "a part of LTX-2.5"),
        ("use_prompt_adaln_single", json!(false), "a part of LTX-2.5"),
        ("use_keyframes_abs_pos_embedding", json!(true), "a part of LTX-2.5"),
        ("audio_num_attention_heads", json!(4), "2, the video's num_attention_heads"),
        ("cross_attention_dim", json!(12), "16, the width of the stream"),
        ("audio_cross_attention_dim", json!(12), "8, the width of the stream"),
        ("attention_head_dim", json!(7), "an even number"),
        ("rope_type", json!("polar"), "interleaved"),
        ("rope_double_precision", json!(false), "true"),
        ("patch_size", json!(2), "1"),
        ("vae_scale_factors", json!([8, 32]), "three numbers"),
        ("novelty", json!(1), "novelty"),
    ] {
        let message = refused(key, value);
        assert!(message.contains(key) && message.contains(part), "{key}: {message}");
    }
    let defaults = Ltx2Config::from_json("{}").unwrap();
    assert_eq!((defaults.heads, defaults.depth, defaults.captions), (32, 48, Some(3840)));
    assert_eq!((defaults.width(&defaults.video), defaults.width(&defaults.audio)), (4096, 2048));
    assert_eq!((defaults.factors, defaults.clock), ([8, 32, 32], [16_000, 160, 4]));
}

#[test]
fn inputs_that_do_not_fit_are_refused_by_name() {
    let refused = |name: &'static str, spoil: &dyn Fn(&mut Modality)| {
        let case = Case::open(name, CrossLevels::Original);
        let mut inputs = case.inputs();
        spoil(inputs.video.as_mut().unwrap());
        let weights = Weights::new(&case.store);
        nn::forward(&case.model, &weights, &inputs, &mut Plain).unwrap_err().to_string()
    };
    type Spoil<'a> = &'a dyn Fn(&mut Modality);
    let cases: [(&str, Spoil<'_>, &str); 5] = [
        ("v20", &|v| v.tokens = v.tokens.clone().narrow(2, 0, 4), "takes 5 values per token"),
        (
            "v20",
            &|v| v.context.tokens = v.context.tokens.clone().narrow(2, 0, 5),
            "a caption is 7 wide for this stream",
        ),
        (
            "v23",
            &|v| v.context.tokens = v.context.tokens.clone().narrow(2, 0, 8),
            "a caption is 16 wide for this stream",
        ),
        (
            "v23",
            &|v| v.positions = v.positions.values().clone().narrow(1, 0, 1).into(),
            "lie on 3 axes",
        ),
        ("v23", &|v| v.levels.index = None, "several levels an index"),
    ];
    for (name, spoil, part) in cases {
        let message = refused(name, spoil);
        assert!(message.contains(part), "{name}: {message}");
    }
    let case = Case::open("v20", CrossLevels::Original);
    let weights = Weights::new(&case.store);
    let nothing = nn::forward(&case.model, &weights, &Inputs::default(), &mut Plain);
    assert!(nothing.unwrap_err().to_string().contains("a video, a sound or both"));
}
