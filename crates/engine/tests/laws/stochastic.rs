//! Solvers that put noise back at every step: it belongs to the element of the latents, so layouts and patches draw the
//! same. No golden folder has such a solver.

use burn::tensor::Device;
use engine::{Pipeline, Request, Setup};
use folder::ModelFolder;

use crate::asked::{Model, models, requests};
use crate::cases::{self, Law, layout};
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
