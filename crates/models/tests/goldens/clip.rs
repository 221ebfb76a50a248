//! The CLIP vision encoder against transformers.

use burn::tensor::Tensor;
use models::vision::clip::{ClipVision, ClipVisionConfig};
use nn::{Store, Weights};

use crate::reader::{Golden, check, values};

const BOUND: f64 = 1e-5;

struct Case {
    encoder: ClipVision,
    store: Store,
    pixels: Tensor<4>,
    states: Tensor<3>,
}

impl Case {
    fn open(name: &str) -> Case {
        let golden = Golden::open("clip");
        let config = ClipVisionConfig::from_json(&golden.config()[name].to_string()).unwrap();
        Case {
            encoder: ClipVision::new(config),
            store: golden.store(&format!("{name}.weights")),
            pixels: golden.tensor(&format!("{name}.pixels")),
            states: golden.tensor(&format!("{name}.states")),
        }
    }

    fn encode(&self, pixels: Tensor<4>) -> Tensor<3> {
        self.encoder.encode(&Weights::new(&self.store), pixels).unwrap()
    }
}

#[test]
fn the_states_before_the_last_block_equal_transformers() {
    for name in ["gelu", "quick"] {
        let case = Case::open(name);
        case.store.agree(&[], |weights| case.encoder.declare(weights)).unwrap();
        check(name, &case.encode(case.pixels.clone()), &case.states, BOUND);
    }
}

#[test]
fn newer_files_have_no_prefix() {
    let mut case = Case::open("quick");
    let expected = values(&case.encode(case.pixels.clone()));
    case.store =
        case.store.renamed(|name| Some(name.strip_prefix("vision_model.").unwrap().to_owned()));
    case.store.agree(&[], |weights| case.encoder.declare(weights)).unwrap();
    assert_eq!(values(&case.encode(case.pixels.clone())), expected);
}

#[test]
fn a_picture_does_not_depend_on_its_batch() {
    let case = Case::open("gelu");
    let together = case.encode(case.pixels.clone());
    for row in 0..2 {
        let alone = case.encode(case.pixels.clone().narrow(0, row, 1));
        assert_eq!(values(&alone), values(&together.clone().narrow(0, row, 1)), "picture {row}");
    }
}

#[test]
fn every_parameter_is_asked_for() {
    let case = Case::open("quick");
    let names = case.store.iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
    // Without its first name a file counts as one without the prefix.
    for name in names.iter().filter(|name| !name.ends_with("class_embedding")) {
        let mut without = case.store.clone();
        without.remove(name);
        let error = without.agree(&[], |weights| case.encoder.declare(weights)).expect_err(name);
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn pictures_of_another_size_are_refused() {
    let case = Case::open("gelu");
    let small = case.pixels.clone().narrow(2, 0, 12);
    let error = case.encoder.encode(&Weights::new(&case.store), small).expect_err("too small");
    assert!(error.to_string().contains("[B, 3, 14, 14]"), "{error}");
}
