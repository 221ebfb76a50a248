//! Layouts of networks whose operands are rounded to bf16.
//!
//! The last bit of a sum may decide how an operand is rounded, so sums of another order are as far from those of one rank
//! as bf16 itself is from f32. Whoever adds in the same order makes the same bits.

use burn::tensor::Device;
use engine::{Pipeline, Request, Setup};
use nn::Precision;

use crate::asked::{Model, models, requests};
use crate::cases::{self, Case, Law, layout};
use crate::runs::{STEPS, apart, check_request, latents};

/// Layouts that add in another order.
const OTHER_SUMS: [Case; 3] = [
    ([2, 1, 1, 1, 1, 1], None, None, Law::Rounding),
    ([1, 1, 2, 1, 1, 1], None, None, Law::Rounding),
    ([2, 1, 2, 1, 1, 1], None, None, Law::Rounding),
];

/// So many times the distance of bf16 from f32, on one rank, may a layout be from one rank.
const TIMES: f64 = 3.0;

fn rounded(model: &Model) -> Model {
    let (kept, path) = model.folder.clone().unwrap();
    let setup = Setup { precision: Precision::Bf16, ..Setup::new(&Device::flex()) };
    let mut pipeline = Pipeline::open(&path, &setup).unwrap();
    pipeline.open_all().unwrap();
    let (description, store) = (model.description.clone(), model.store.clone());
    let name = format!("{} in bf16", model.name);
    Model { name, description, store, pipeline, folder: Some((kept, path)) }
}

#[test]
fn bf16_is_as_far_on_ranks_as_it_is_from_f32() {
    let mut seen = 0;
    let alone = layout(([1; 6], None, None, Law::Bits));
    for model in models().iter().filter(|own| own.folder.is_some()) {
        let (what, request) = requests(&model.description).swap_remove(0);
        let request = Request { steps: Some(STEPS), ..request };
        let full = latents(model, &request, &alone);
        let model = rounded(model);
        let one = latents(&model, &request, &alone);
        let own = apart(&one, &full);
        assert!(own > 1e-5, "{}: nothing is rounded", model.name);
        for case in OTHER_SUMS {
            let off = apart(&latents(&model, &request, &layout(case)), &one);
            assert!(off <= TIMES * own, "{} by {case:?}: {off:e}, {own:e} of f32", model.name);
        }
        check_request((&model, what), &request, &cases::ALONE[..2]);
        check_request((&model, what), &request, &cases::REPLICAS_AND_BRANCHES[2..]);
        seen += 1;
    }
    assert!(seen >= 6, "{seen} folders");
}
