//! The loss of every sample: masked means, both forms, both kinds of process.

use burn::tensor::Tensor;
use diffusion::{Process, VpPrediction};
use nn::{Prediction, Tracks};
use serde_json::json;
use testkit::numbers::{tensor, values};
use train::{Draws, Form, ModelInputs, Strategy};

use crate::batches::{batch, strategy};

/// Both tracks count alike.
const EVEN: Tracks<f64> = Tracks { video: Some(1.0), audio: Some(1.0) };

fn vp(prediction: VpPrediction) -> Process {
    let alphas_cumprod = (0..50).map(|at| (1.0 - at as f32 / 60.0).powi(2)).collect();
    Process::Vp { alphas_cumprod, prediction }
}

fn prepared(process: &Process, conditions: serde_json::Value) -> ModelInputs {
    let video = json!({ "generated": true, "source": "latents", "conditions": conditions });
    let own = strategy(json!({ "name": "flexible", "video": video })).unwrap();
    own.prepare(process, &batch(3, [3, 2, 2]), &Draws::new(9, 1, 0, 3)).unwrap()
}

fn of(video: Tensor<3>) -> Prediction {
    Prediction::video(video)
}

#[test]
fn the_right_answer_costs_nothing_in_either_form() {
    for process in [
        Process::Flow,
        Process::FlowClean,
        vp(VpPrediction::Epsilon),
        vp(VpPrediction::Velocity),
        vp(VpPrediction::Sample),
    ] {
        let mut inputs = prepared(&process, json!([{ "type": "first_frame" }]));
        let right = of(inputs.targets.video.as_ref().unwrap().value.clone());
        assert!(values(&inputs.losses(&right, EVEN).total()).iter().all(|loss| *loss == 0.0));
        // The clean tokens that it implies are the clean tokens.
        let clean = values(inputs.seen.clean(&right).video.as_ref().unwrap());
        let want = values(&inputs.seen.scene().video.as_ref().unwrap().clean);
        assert!(
            clean.iter().zip(&want).all(|(got, want)| (got - want).abs() < 2e-5),
            "{process:?}"
        );
        inputs.form = Form::Clean;
        let losses = values(&inputs.losses(&right, EVEN).total());
        assert!(losses.iter().all(|loss| *loss < 1e-8), "{process:?}: {losses:?}");
        let wrong = of(inputs.targets.video.as_ref().unwrap().value.clone() + 1.0);
        let losses = values(&inputs.losses(&wrong, EVEN).total());
        assert!(losses.iter().all(|loss| *loss > 1e-4), "{process:?}: {losses:?}");
    }
}

/// The mean is over the tokens that count: fixing some of them does not make the loss smaller.
#[test]
fn the_mean_is_over_the_tokens_that_count() {
    let inputs = prepared(&Process::Flow, json!([{ "type": "mask", "source": "masks" }]));
    let answer: Tensor<3> = tensor("answer", [3, 12, 3]);
    let got = values(&inputs.losses(&of(answer.clone()), EVEN).total());
    let (answer, wanted) = (values(&answer), values(&inputs.targets.video.as_ref().unwrap().value));
    for (sample, got) in got.into_iter().enumerate() {
        let free: Vec<usize> = (0..12)
            .filter(|token| !inputs.seen.scene().video.as_ref().unwrap().fixed(sample)[*token])
            .collect();
        let square = |at: usize| f64::from(answer[at] - wanted[at]).powi(2);
        let sum: f64 = free
            .iter()
            .flat_map(|token| (0..3).map(move |channel| (sample * 12 + token) * 3 + channel))
            .map(square)
            .sum();
        let want = sum / (free.len() * 3) as f64;
        assert!((f64::from(got) - want).abs() < 1e-5 * want, "{got} instead of {want}");
    }
    // What stands at fixed tokens does not matter.
    let mask = inputs.targets.video.as_ref().unwrap().mask.clone().reshape([3, 12, 1]);
    let noise: Tensor<3> = tensor("elsewhere", [3, 12, 3]);
    let moved = tensor("answer", [3, 12, 3]) + noise * (-mask + 1.0) * 100.0;
    let same = values(&inputs.losses(&of(moved), EVEN).total());
    let before = values(&inputs.losses(&of(tensor("answer", [3, 12, 3])), EVEN).total());
    assert!(same.iter().zip(before).all(|(a, b)| (a - b).abs() < 1e-5));
}

#[test]
fn a_velocity_is_noise_minus_clean_and_the_clean_form_is_smaller_by_the_level() {
    let mut inputs = prepared(&Process::Flow, json!([]));
    let answer = of(tensor("answer", [3, 12, 3]));
    let velocity = values(&inputs.losses(&answer, EVEN).total());
    inputs.form = Form::Clean;
    let clean = values(&inputs.losses(&answer, EVEN).total());
    let sigma = inputs.targets.video.as_ref().unwrap().sigma.clone();
    for sample in 0..3 {
        // x0 - x0' = sigma (v' - v), so its square is sigma^2 of the other.
        let want = velocity[sample] * sigma[sample].powi(2);
        assert!((clean[sample] - want).abs() < 1e-5 * want, "{} and {want}", clean[sample]);
    }
    let (noisy, value) = (
        values(inputs.seen.tokens.video.as_ref().unwrap()),
        values(&inputs.targets.video.as_ref().unwrap().value),
    );
    let start = values(&inputs.seen.scene().video.as_ref().unwrap().clean);
    // noisy = (1 - s) clean + s noise, velocity = noise - clean.
    for at in [0, 17, 60, 107] {
        let sigma = sigma[at / 36];
        let noise = value[at] + start[at];
        assert!((noisy[at] - ((1.0 - sigma) * start[at] + sigma * noise)).abs() < 1e-5);
    }
}

#[test]
fn weights_are_by_the_level_of_a_token() {
    let mut inputs = prepared(&Process::Flow, json!([{ "type": "first_frame" }]));
    let answer = of(tensor("answer", [3, 12, 3]));
    let plain = values(&inputs.losses(&answer, EVEN).total());
    inputs.weigh(|level| 1.0 / level.max(0.25).powi(2));
    let weighed = values(&inputs.losses(&answer, EVEN).total());
    for sample in 0..3 {
        let want =
            plain[sample] / inputs.targets.video.as_ref().unwrap().sigma[sample].max(0.25).powi(2);
        assert!((weighed[sample] - want).abs() < 1e-4 * want);
    }
}
