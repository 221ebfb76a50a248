//! Finetuning: both forms, all processes, what is reported.

use std::sync::Arc;

use diffusion::{Process, VpPrediction};
use methods::{Finetune, FinetuneConfig, Weighting};
use serde_json::json;
use train::{Form, LoopConfig, Method, Parts, Trainer};

use crate::setting::{Clips, TINY, accumulate, batch, gradient_distance, store, strategy, trained};

fn method(process: Process, config: FinetuneConfig) -> Finetune {
    let student = trained("student", Arc::new(TINY), store(&TINY, "student"));
    let own = strategy(json!({ "name": "text_to_video", "first_frame_probability": 0.5 }));
    Finetune::new(student, own, process, config).unwrap()
}

fn vp(prediction: VpPrediction) -> Process {
    let alphas_cumprod = (0..100).map(|at| (1.0 - at as f32 / 120.0).powi(2)).collect();
    Process::Vp { alphas_cumprod, prediction }
}

#[test]
fn every_process_is_learnt_in_either_form() {
    for process in [
        Process::Flow,
        Process::FlowClean,
        vp(VpPrediction::Epsilon),
        vp(VpPrediction::Velocity),
        vp(VpPrediction::Sample),
    ] {
        for form in [Form::Prediction, Form::Clean] {
            let config = FinetuneConfig { form, ..FinetuneConfig::default() };
            let parts = Parts {
                method: Box::new(method(process.clone(), config)),
                feed: Box::new(Clips(Box::new(|| batch(0, 8, 2)))),
                callbacks: vec![],
                checkpoints: None,
            };
            let config = LoopConfig { steps: 80, accumulation: 1, seed: 1, clip: Some(1.0) };
            let mut trainer = Trainer::new(config, parts).unwrap();
            // The same draws before and after.
            let held_out = |trainer: &Trainer| {
                let student = trainer.method().role("student").unwrap();
                let copy =
                    trained("student", Arc::clone(student.network()), student.store().clone());
                let own = strategy(json!({ "name": "text_to_video" }));
                let config = FinetuneConfig { form, ..FinetuneConfig::default() };
                let mut probe = Finetune::new(copy, own, process.clone(), config).unwrap();
                let report = accumulate(&mut probe, &batch(0, 8, 2), (999, 0, 1.0)).unwrap();
                report.losses[0].values.iter().sum::<f32>()
            };
            let before = held_out(&trainer);
            trainer.run().unwrap();
            let after = held_out(&trainer);
            assert!(after < 0.8 * before, "{process:?} {form:?}: {before} to {after}");
        }
    }
}

#[test]
fn a_step_cut_into_micro_batches_is_the_same_step() {
    let config =
        FinetuneConfig { form: Form::Clean, weight: Weighting::InverseSquare { floor: 0.25 } };
    let (mut whole, mut parts) = (method(Process::Flow, config), method(Process::Flow, config));
    accumulate(&mut whole, &batch(0, 4, 3), (2, 0, 1.0)).unwrap();
    for part in 0..4 {
        accumulate(&mut parts, &batch(part, 1, 3), (2, part as u64, 0.25)).unwrap();
    }
    let off = gradient_distance(&whole.student, &parts.student);
    assert!(off < 1e-6, "{off:e}");
}

/// The clean form weighed by the inverse square of the level is the velocity form.
#[test]
fn forms_and_weights_agree_with_each_other() {
    let clean =
        FinetuneConfig { form: Form::Clean, weight: Weighting::InverseSquare { floor: 1e-3 } };
    let mut clean = method(Process::Flow, clean);
    let mut velocity = method(Process::Flow, FinetuneConfig::default());
    let one = accumulate(&mut clean, &batch(0, 4, 3), (2, 0, 1.0)).unwrap();
    let other = accumulate(&mut velocity, &batch(0, 4, 3), (2, 0, 1.0)).unwrap();
    for (one, other) in one.losses[0].values.iter().zip(&other.losses[0].values) {
        assert!((one - other).abs() < 1e-4 * other, "{one} and {other}");
    }
    assert!(gradient_distance(&clean.student, &velocity.student) < 1e-4);
}

#[test]
fn a_report_has_one_loss_per_sample_with_its_level() {
    let mut method = method(Process::Flow, FinetuneConfig::default());
    let report = accumulate(&mut method, &batch(0, 3, 2), (1, 0, 1.0)).unwrap();
    assert_eq!(report.losses.len(), 1);
    let loss = &report.losses[0];
    assert_eq!((loss.role, loss.name, loss.values.len()), ("student", "loss", 3));
    let sigmas = loss.sigmas.as_ref().unwrap();
    assert!(sigmas.iter().all(|sigma| (0.1..=0.95).contains(sigma)));
    assert_eq!(report.tokens, 3 * 4);
    assert_eq!(method.clipped(1), ["student"]);
}

#[test]
fn a_floor_of_nought_is_refused() {
    let student = trained("student", Arc::new(TINY), store(&TINY, "student"));
    let weight = Weighting::InverseSquare { floor: 0.0 };
    let config = FinetuneConfig { weight, ..FinetuneConfig::default() };
    let own = strategy(json!({ "name": "text_to_video" }));
    let made = Finetune::new(student, own, Process::Flow, config);
    assert!(made.map(drop).unwrap_err().to_string().contains("method.weight.floor is 0"));
}
