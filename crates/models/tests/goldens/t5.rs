//! The T5 encoder against transformers, and the laws it must keep.

use burn::tensor::{DType, Tensor};
use models::text::t5::{T5Config, T5Encoder};
use nn::{Error, Parameter, Store, Weights};

use crate::reader::{Golden, check, values};

const BOUND: f64 = 1e-5;

fn open() -> (Golden, T5Encoder, Store) {
    open_file("t5")
}

fn open_file(name: &str) -> (Golden, T5Encoder, Store) {
    let golden = Golden::open(name);
    let config = T5Config::from_json(&golden.config().to_string()).expect("a supported config");
    let store = golden.store("weights");
    (golden, T5Encoder::new(config), store)
}

fn encode(golden: &Golden, encoder: &T5Encoder, store: &Store) -> Tensor<3> {
    let tokens = golden.integers::<2>("inputs.input_ids");
    let mask = golden.integers::<2>("inputs.attention_mask").float();
    encoder.encode(&Weights::new(store), tokens, mask).expect("the golden fits the model")
}

#[test]
fn the_encoder_equals_transformers() {
    for name in ["t5", "t5_relu", "umt5"] {
        let (golden, encoder, store) = open_file(name);
        store.agree(&[], |weights| encoder.declare(weights)).expect("model and weights agree");
        check(name, &encode(&golden, &encoder, &store), &golden.tensor("output"), BOUND);
    }
}

#[test]
fn a_caption_does_not_depend_on_its_batch() {
    let (golden, encoder, store) = open();
    let together = encode(&golden, &encoder, &store);
    let tokens = golden.integers::<2>("inputs.input_ids");
    let mask = golden.integers::<2>("inputs.attention_mask").float();
    for row in 0..tokens.dims()[0] {
        let (tokens, mask) = (tokens.clone().narrow(0, row, 1), mask.clone().narrow(0, row, 1));
        let alone = encoder.encode(&Weights::new(&store), tokens, mask).expect("a caption");
        assert_eq!(values(&alone), values(&together.clone().narrow(0, row, 1)), "caption {row}");
    }
}

#[test]
fn padding_does_not_reach_the_text() {
    let (golden, encoder, store) = open();
    let padded = encode(&golden, &encoder, &store);
    let length = 67;
    let tokens = golden.integers::<2>("inputs.input_ids").narrow(0, 1, 1).narrow(1, 0, length);
    let mask = Tensor::ones([1, length], &tokens.device());
    let cut = encoder.encode(&Weights::new(&store), tokens, mask).expect("a caption");
    check("text", &padded.narrow(0, 1, 1).narrow(1, 0, length), &cut, 1e-6);
}

/// The weights in another type: f32 sums make it the same as rounding them beforehand.
#[test]
fn narrow_weights_are_only_rounded() {
    let (golden, encoder, store) = open();
    for dtype in [DType::BF16, DType::F16] {
        let (mut narrow, mut rounded) = (Store::new("narrow"), Store::new("rounded"));
        for (name, parameter) in store.iter() {
            let shape = parameter.shape.clone();
            let values = parameter.values.clone().cast(dtype);
            let wide = Parameter { values: values.clone().cast(DType::F32), shape: shape.clone() };
            narrow.insert(name, Parameter { values, shape });
            rounded.insert(name, wide);
        }
        let narrow = encode(&golden, &encoder, &narrow);
        assert_eq!(narrow.dtype(), DType::F32);
        check("rounded", &narrow, &encode(&golden, &encoder, &rounded), 1e-6);
    }
}

#[test]
fn the_repeated_embedding_table_of_old_files_is_accepted() {
    let (_, encoder, mut store) = open();
    let table = store.get("shared.weight").expect("a table").clone();
    store.insert("encoder.embed_tokens.weight", table);
    store.agree(&T5Encoder::IGNORED, |weights| encoder.declare(weights)).expect("it is accepted");
    let error = store.agree(&[], |weights| encoder.declare(weights)).expect_err("strict");
    assert!(matches!(error, Error::Unused { .. }), "{error}");
}

#[test]
fn a_file_with_the_repeated_table_only_is_read_from_there() {
    let (golden, encoder, mut store) = open_file("umt5");
    let expected = values(&encode(&golden, &encoder, &store));
    let table = store.remove("shared.weight").expect("a table");
    store.insert("encoder.embed_tokens.weight", table);
    store.agree(&T5Encoder::IGNORED, |weights| encoder.declare(weights)).expect("it is accepted");
    assert_eq!(values(&encode(&golden, &encoder, &store)), expected);
}

#[test]
fn every_parameter_is_asked_for() {
    for file in ["t5", "umt5"] {
        let (_, encoder, store) = open_file(file);
        let names = store.iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
        for name in names {
            let mut without = store.clone();
            without.remove(&name);
            let error = without.agree(&[], |weights| encoder.declare(weights)).expect_err(&name);
            assert!(error.to_string().contains(&name), "{error}");
        }
    }
}

#[test]
fn inputs_that_do_not_fit_are_refused() {
    let (golden, encoder, store) = open();
    let tokens = golden.integers::<2>("inputs.input_ids");
    let mask = golden.integers::<2>("inputs.attention_mask").float();
    let weights = Weights::new(&store);
    let short = mask.clone().narrow(1, 0, 7);
    let error = encoder.encode(&weights, tokens.clone(), short).expect_err("a short mask");
    assert!(error.to_string().contains("[3, 7]"), "{error}");
    let error = encoder.encode(&weights, tokens + 61, mask).expect_err("unknown ids");
    assert!(error.to_string().contains("61 ids"), "{error}");
}
