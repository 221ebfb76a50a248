//! What LTX-2 reads of captions: Gemma's hidden states, and the connectors.

use burn::tensor::{Tensor, TensorData};
use models::text::connectors::{Connectors, ConnectorsConfig};
use models::text::gemma::{GemmaConfig, GemmaEncoder};
use nn::{Error, Store, Weights};
use serde_json::{Value, json};

use crate::reader::{Golden, check, values};

const BOUND: f64 = 1e-5;

/// The numbers of tokens of the captions, which end at the eighth.
const LENGTHS: [usize; 3] = [8, 3, 5];

fn gemma() -> (Golden, GemmaEncoder, Store) {
    let golden = Golden::open("gemma3");
    let config = GemmaConfig::from_json(&golden.config().to_string()).unwrap();
    let store = golden.store("weights").renamed(GemmaEncoder::own_name);
    (golden, GemmaEncoder { config }, store)
}

/// The text of a caption of `[B, L, D]`.
fn text(x: &Tensor<3>, caption: usize) -> Tensor<3> {
    let length = LENGTHS[caption];
    x.clone().narrow(0, caption, 1).narrow(1, 8 - length, length)
}

#[test]
fn every_hidden_state_equals_transformers() {
    let (golden, encoder, store) = gemma();
    store.agree(&[], |weights| encoder.declare(weights)).unwrap();
    let mask = golden.integers::<2>("inputs.attention_mask").float();
    let tokens = golden.integers::<2>("inputs.input_ids");
    let states = encoder.hidden_states(&Weights::new(&store), tokens, &mask).unwrap();
    let all: Tensor<4> = golden.tensor("hidden_states");
    assert_eq!(states.len(), all.dims()[0]);
    for (index, state) in states.iter().enumerate() {
        let golden: Tensor<3> = all.clone().narrow(0, index, 1).squeeze_dim(0);
        for caption in 0..3 {
            let what = format!("state {index} of caption {caption}");
            check(&what, &text(state, caption), &text(&golden, caption), BOUND);
        }
    }
}

/// Padding is not seen, wherever it stands and however much there is.
#[test]
fn padding_does_not_reach_the_text() {
    let (golden, encoder, store) = gemma();
    let tokens = golden.integers::<2>("inputs.input_ids");
    let run = |tokens, mask: Tensor<2>| {
        encoder.hidden_states(&Weights::new(&store), tokens, &mask).unwrap().pop().unwrap()
    };
    let padded = run(tokens.clone(), golden.integers::<2>("inputs.attention_mask").float());
    let own = tokens.narrow(0, 1, 1).narrow(1, 5, 3);
    let alone = run(own.clone(), Tensor::ones([1, 3], &own.device()));
    check("before", &text(&padded, 1), &alone, 1e-5);
    let after = Tensor::cat(vec![own.clone(), own.clone()], 1);
    let mask = Tensor::from_data(
        TensorData::new(vec![1f32, 1.0, 1.0, 0.0, 0.0, 0.0], [1, 6]),
        &own.device(),
    );
    check("after", &run(after, mask).narrow(1, 0, 3), &alone, 1e-5);
}

#[test]
fn names_of_files_are_known() {
    for name in
        ["model.language_model.norm.weight", "language_model.model.norm.weight", "norm.weight"]
    {
        assert_eq!(GemmaEncoder::own_name(name).as_deref(), Some("norm.weight"));
    }
    for name in ["model.vision_tower.layers.0.weight", "lm_head.weight", "vision_tower.norm.weight"]
    {
        assert_eq!(GemmaEncoder::own_name(name), None, "{name}");
    }
}

#[test]
fn gemma_configs_are_checked() {
    let golden = Golden::open("gemma3");
    let refused = |key: &str, value: Value| {
        let mut config = golden.config().clone();
        config["text_config"][key] = value;
        GemmaConfig::from_json(&config.to_string()).unwrap_err().to_string()
    };
    for (key, value) in [
        ("hidden_activation", json!("silu")),
        ("attention_bias", json!(true)),
        ("attn_logit_softcapping", json!(50.0)),
        ("use_bidirectional_attention", json!(true)),
        ("num_key_value_heads", json!(3)),
        ("layer_types", json!(["full_attention"])),
        ("rope_parameters", json!({ "full_attention": { "rope_type": "yarn", "factor": 2.0 } })),
        ("novelty", json!(1)),
    ] {
        let message = refused(key, value);
        assert!(message.contains(key), "{key}: {message}");
    }
    // As version 4 wrote Gemma-3-12B's.
    let old = GemmaConfig::from_json(
        r#"{ "model_type": "gemma3", "text_config": { "hidden_size": 3840, "num_hidden_layers": 48,
        "sliding_window": 1024, "rope_scaling": { "factor": 8.0, "rope_type": "linear" } } }"#,
    );
    let old = old.unwrap();
    assert_eq!((old.layers.len(), old.stretch, old.theta), (48, 8.0, 1e6));
    let far = old.layers.iter().filter(|sight| **sight == models::text::gemma::Sight::All).count();
    assert_eq!((far, old.window, old.local_theta), (8, 1024, 1e4));
}

type Case = crate::case::Case<Connectors>;

fn connectors(name: &'static str) -> Case {
    Case::of("ltx2_connectors", name, |config| {
        Ok(Connectors { config: ConnectorsConfig::from_json(config)? })
    })
}

impl Case {
    fn connected(&self, states: usize) -> nn::Result<nn::Tracks<Tensor<3>>> {
        let all: Tensor<4> = self.tensor("inputs.hidden_states");
        let state = |index| all.clone().narrow(0, index, 1).squeeze_dim(0);
        let states: Vec<Tensor<3>> = (0..states).map(state).collect();
        let mask = self.golden.integers::<2>(&self.key("inputs.attention_mask")).float();
        self.model.apply(&Weights::new(&self.store), &states, &mask)
    }
}

#[test]
fn connectors_equal_diffusers() {
    for name in ["v20", "v23"] {
        let case = connectors(name);
        case.store.agree(&[], |weights| case.model.declare(weights)).unwrap();
        let found = case.connected(case.model.config.states).unwrap();
        check(&format!("{name} video"), &found.video.unwrap(), &case.tensor("video"), BOUND);
        check(&format!("{name} audio"), &found.audio.unwrap(), &case.tensor("audio"), BOUND);
    }
}

#[test]
fn captions_that_do_not_fit_the_connectors_are_refused() {
    let case = connectors("v23");
    let message = case.connected(3).unwrap_err().to_string();
    assert!(message.contains("text_proj_in_factor is 4"), "{message}");
    let states = vec![Tensor::<3>::zeros([1, 6, 5], &burn::tensor::Device::flex()); 4];
    let mask = Tensor::<2>::ones([1, 6], &burn::tensor::Device::flex());
    let refusal = case.model.apply(&Weights::new(&case.store), &states, &mask);
    assert!(matches!(refusal, Err(Error::Shape { what: "the length of a caption", .. })));
    let golden = Golden::open("ltx2_connectors");
    let mut config = golden.network("v23");
    config["video_hidden_dim"] = json!(12);
    let message = ConnectorsConfig::from_json(&config.to_string()).unwrap_err().to_string();
    assert!(message.contains("12 wide together"), "{message}");
}

/// What is not text counts for nothing, whatever it holds.
#[test]
fn padding_does_not_reach_the_connectors() {
    for name in ["v20", "v23"] {
        let case = connectors(name);
        let all: Tensor<4> = case.tensor("inputs.hidden_states");
        let mask = case.golden.integers::<2>(&case.key("inputs.attention_mask")).float();
        let hidden: Tensor<3> = (mask.clone() * -1.0 + 1.0).unsqueeze_dim(2);
        let run = |noise: f64| {
            let state =
                |index| all.clone().narrow(0, index, 1).squeeze_dim(0) + hidden.clone() * noise;
            let states: Vec<Tensor<3>> = (0..case.model.config.states).map(state).collect();
            case.model.apply(&Weights::new(&case.store), &states, &mask).unwrap().video.unwrap()
        };
        assert_eq!(values(&run(0.0)), values(&run(50.0)), "{name}");
    }
}
