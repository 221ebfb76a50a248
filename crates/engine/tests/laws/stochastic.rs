//! Solvers that put noise back at every step: it belongs to the element of the latents, so layouts and patches draw the
//! same. No golden folder has such a solver.

use burn::tensor::Device;
use engine::{Pipeline, Request, Setup};
use folder::ModelFolder;
use nn::Parameter;

use crate::asked::{Model, models, requests};
use crate::cases::{self, Case, Law, layout};
use crate::runs::{check_request, latents};

const STEPS: usize = 4;

/// Golden folders, and solvers for them in the place of their own.
const SOLVERS: [(&str, &str); 3] = [
    (
        "pixart-tiny",
        r#"{"_class_name": "DPMSolverMultistepScheduler", "algorithm_type": "sde-dpmsolver++"}"#,
    ),
    ("pixart-tiny", r#"{"_class_name": "DDPMScheduler"}"#),
    (
        "ltx2-tiny",
        r#"{"_class_name": "FlowMatchEulerDiscreteScheduler", "stochastic_sampling": true}"#,
    ),
];

/// A model whose folder says another solver.
fn solved(model: &Model, solver: &str) -> Model {
    let (kept, path) = model.folder.clone().unwrap();
    std::fs::write(path.join("scheduler").join("scheduler_config.json"), solver).unwrap();
    let description = families::describe(&ModelFolder::open(&path).unwrap()).unwrap();
    let mut pipeline = Pipeline::open(&path, &Setup::new(&Device::flex())).unwrap();
    pipeline.open_all().unwrap();
    let name = format!("{} by {solver}", model.name);
    Model { name, description, store: model.store.clone(), pipeline, folder: Some((kept, path)) }
}

#[test]
fn noise_belongs_to_the_element() {
    let models = models();
    for (name, solver) in SOLVERS {
        let model = models.iter().find(|own| own.name == name).unwrap();
        let (what, request) = requests(&model.description).pop().unwrap();
        let request = Request { steps: Some(STEPS), ..request };
        let alone = layout(([1; 6], None, None, Law::Bits));
        let plain = latents(model, &request, &alone);
        let model = solved(model, solver);
        assert_ne!(plain, latents(&model, &request, &alone), "{}: its own solver", model.name);
        check_request((&model, what), &request, &cases::REPLICAS_AND_BRANCHES);
        check_request((&model, what), &request, &cases::ALONE[..2]);
        check_request((&model, what), &request, &cases::WHOLE_SEQUENCES);
        check_request((&model, what), &request, &cases::PATCHES);
        check_request((&model, what), &request, &cases::PATCHES_AND_ELSE);
    }
}

/// The same model whose tokens do not look at each other, but at their text: what attentions find is multiplied by zero.
fn without_mixing(model: &Model) -> Model {
    let mut store = model.store.clone();
    let is_text = |name: &str| name.contains("attn2.");
    let zeroed: Vec<(String, Parameter)> = store
        .iter()
        .filter(|(name, _)| name.ends_with("to_out.0.weight") && !is_text(name))
        .map(|(name, own)| {
            let values = own.values.zeros_like();
            (name.to_owned(), Parameter { values, shape: own.shape.clone() })
        })
        .collect();
    assert!(zeroed.len() >= 3, "{}: {} attentions", model.name, zeroed.len());
    zeroed.into_iter().for_each(|(name, own)| store.insert(name, own));
    let mut pipeline = model.pipeline.clone();
    for expert in 0..model.description.transformers.len() {
        pipeline.replace_transformer(expert, store.clone()).unwrap();
    }
    let (description, folder) = (model.description.clone(), model.folder.clone());
    Model { name: format!("{} without mixing", model.name), description, store, pipeline, folder }
}

/// Where tokens do not look at each other no key is stale, so patches make what the whole sequence makes, to the bit: each
/// draws the noise of its own region and goes on from the solver's memory of it. One rank with the same patches runs the same
/// code, and could not tell another region from its own.
#[test]
fn patches_know_their_region() {
    let fresh = |(degrees, patches, warmup, law): Case| {
        let law = if matches!(law, Law::StaleBits) { Law::Bits } else { Law::Rounding };
        (degrees, patches, warmup, law)
    };
    let cases = [&cases::PATCHES[..], &cases::PATCHES_AND_ELSE].concat();
    let cases: Vec<Case> = cases.into_iter().map(fresh).collect();
    let models = models();
    let own: Vec<&Model> = models.iter().filter(|model| model.folder.is_some()).collect();
    let check = |model: &Model| {
        for (what, request) in requests(&model.description) {
            let request = Request { steps: Some(STEPS), ..request };
            check_request((model, what), &request, &cases);
        }
    };
    own.iter().for_each(|model| check(&without_mixing(model)));
    for (name, solver) in SOLVERS {
        let model = own.iter().find(|own| own.name == name).unwrap();
        check(&without_mixing(&solved(model, solver)));
    }
}
