//! A tiny family of two streams that look at each other: joint sound, and each from the other.

use std::sync::Arc;

use burn::tensor::Tensor;
use diffusion::Process;
use kernels::silu;
use methods::{Finetune, FinetuneConfig};
use nn::{Bag, Dit, Entry, Forward, Inputs, Modality, Packed, Prediction, Result, Sizes, Weights};
use serde_json::{Value, json};
use testkit::numbers::tensor;
use train::{Batch, Field, LoopConfig, Method, Parts, Trainer, VideoLatents};

use crate::setting::{Clips, accumulate, store, strategy, trained};

/// Width of both streams.
const WIDTH: usize = 12;

/// Two streams, each of which sees its own tokens, its text and the mean of the other.
#[derive(Clone, Copy)]
struct Duet;

struct Nothing;

struct Streams([Tensor<3>; 2]);

impl Bag for Nothing {
    fn pack(self) -> Packed {
        Packed::default()
    }

    fn unpack(packed: Packed) -> Result<Nothing> {
        packed.finish().map(|()| Nothing)
    }
}

impl Bag for Streams {
    fn pack(self) -> Packed {
        let [video, audio] = self.0.map(Entry::tensor);
        Packed::of([("video", video), ("audio", audio)])
    }

    fn unpack(mut packed: Packed) -> Result<Streams> {
        let streams = Streams([packed.tensor("video")?, packed.tensor("audio")?]);
        packed.finish().map(|()| streams)
    }
}

const NAMES: [(&str, usize); 2] = [("video", 3), ("audio", 8)];

fn enter(weights: &Weights<'_>, index: usize, modality: &Modality) -> Result<Tensor<3>> {
    let (name, channels) = NAMES[index];
    let weights = weights.at(name);
    let tokens = weights.linear("embed", channels, WIDTH)?.apply(modality.tokens.clone())?;
    let level = modality.sigma.clone().reshape([modality.sigma.dims()[0], 1, 1]);
    let time = weights.table("time", [WIDTH])?.reshape([1, 1, WIDTH]);
    Ok(tokens + train::beside(&time, level) * time)
}

impl Dit for Duet {
    type Shared = Nothing;
    type Stream = Streams;

    fn sizes(&self) -> Sizes {
        Sizes { depth: 2, heads: 1 }
    }

    fn declare(&self, weights: &Weights<'_>) -> Result<()> {
        for (name, channels) in NAMES {
            let weights = weights.at(name);
            weights.linear("embed", channels, WIDTH)?;
            weights.table("time", [WIDTH])?;
            for block in 0..self.sizes().depth {
                weights.linear(&format!("{block}.mix"), WIDTH, WIDTH)?;
                weights.linear(&format!("{block}.other"), WIDTH, WIDTH)?;
            }
            weights.linear("head", WIDTH, channels)?;
        }
        Ok(())
    }

    fn shared(&self, _: &Weights<'_>, _: &Inputs) -> Result<Nothing> {
        Ok(Nothing)
    }

    fn embed(&self, weights: &Weights<'_>, inputs: &Inputs, _: &Nothing) -> Result<Streams> {
        let audio = inputs.audio.as_ref().expect("a duet has two voices");
        Ok(Streams([enter(weights, 0, inputs.video.as_ref().unwrap())?, enter(weights, 1, audio)?]))
    }

    fn block(&self, index: usize, own: Streams, pass: Forward<'_, Nothing>) -> Result<Streams> {
        let (Streams(streams), weights) = (own, pass.weights);
        let next = |own: usize| -> Result<Tensor<3>> {
            let weights = weights.at(NAMES[own].0);
            let mix = weights.linear(&format!("{index}.mix"), WIDTH, WIDTH)?;
            let other = weights.linear(&format!("{index}.other"), WIDTH, WIDTH)?;
            let heard = other.apply(streams[1 - own].clone().mean_dim(1))?;
            Ok(streams[own].clone() + silu(mix.apply(streams[own].clone())? + heard))
        };
        Ok(Streams([next(0)?, next(1)?]))
    }

    fn head(&self, weights: &Weights<'_>, streams: Streams, _: &Nothing) -> Result<Prediction> {
        let [video, audio] = streams.0;
        let leave = |index: usize, x| -> Result<Tensor<3>> {
            let (name, channels) = NAMES[index];
            weights.at(name).linear("head", WIDTH, channels)?.apply(x)
        };
        Ok(Prediction { video: Some(leave(0, video)?), audio: Some(leave(1, audio)?) })
    }
}

/// Clips whose sound is one of two tones, and whose picture says which.
fn batch(samples: usize) -> Batch {
    let device = burn::tensor::Device::flex();
    let tones: Vec<f32> = (0..samples).map(|at| if at % 2 == 0 { 1.0 } else { -1.0 }).collect();
    let tone = Tensor::<1>::from_floats(tones.as_slice(), &device);
    let values = tensor("picture", [1, 3, 1, 1, 2]).expand([samples, 3, 1, 1, 2])
        * tone.clone().reshape([samples, 1, 1, 1, 1]);
    let sound =
        tensor("sound", [1, 2, 3, 4]).expand([samples, 2, 3, 4]) * tone.reshape([samples, 1, 1, 1]);
    let text = nn::Context { tokens: tensor("text", [samples, 1, 4]), mask: None, image: None };
    let latents = VideoLatents { values, rates: vec![8.0; samples] };
    let fields = [
        ("latents", Field::Video(latents)),
        ("audio_latents", Field::Audio(sound)),
        ("text", Field::Text(text)),
    ];
    Batch {
        samples,
        fields: fields.map(|(name, field)| (name.to_owned(), field)).into(),
        beside: None,
    }
}

fn mode(video: bool, audio: bool) -> Value {
    json!({
        "name": "flexible",
        "video": { "generated": video, "source": "latents" },
        "audio": { "generated": audio, "source": "audio_latents" },
    })
}

fn method(config: Value) -> Finetune {
    let student = trained("student", Arc::new(Duet), store(&Duet, "duet"));
    let process = Process::FlowClean;
    Finetune::new(student, strategy(config), process, FinetuneConfig::default()).unwrap()
}

/// Trains, and returns the losses of a fixed draw before and after, by name.
fn learn(config: Value) -> Vec<(&'static str, f32, f32)> {
    let parts = Parts {
        method: Box::new(method(config.clone())),
        feed: Box::new(Clips(Box::new(|| batch(8)))),
        callbacks: vec![],
        checkpoints: None,
    };
    let settings = LoopConfig { steps: 150, accumulation: 1, seed: 1, clip: Some(1.0) };
    let mut trainer = Trainer::new(settings, parts).unwrap();
    let probe = |trainer: &Trainer| {
        let student = trainer.method().role("student").unwrap();
        let mut probe = method(config.clone());
        probe.student = trained("student", Arc::new(Duet), student.store().clone());
        let report = accumulate(&mut probe, &batch(8), (999, 0, 1.0)).unwrap();
        let mean = |values: &[f32]| values.iter().sum::<f32>() / values.len() as f32;
        report.losses.iter().map(|loss| (loss.name, mean(&loss.values))).collect::<Vec<_>>()
    };
    let before = probe(&trainer);
    trainer.run().unwrap();
    let after = probe(&trainer);
    before
        .into_iter()
        .zip(after)
        .map(|((name, before), (_, after))| (name, before, after))
        .collect()
}

#[test]
fn both_voices_are_learnt_together() {
    let losses = learn(mode(true, true));
    let names: Vec<&str> = losses.iter().map(|(name, _, _)| *name).collect();
    assert_eq!(names, ["loss", "loss.video", "loss.audio"]);
    for (name, before, after) in losses {
        assert!(after < 0.4 * before, "{name}: {before} to {after}");
    }
}

/// With the other voice given clean, which of two it is is no guess: near nothing is left to learn.
#[test]
fn each_voice_is_learnt_from_the_other() {
    for (video, audio) in [(true, false), (false, true)] {
        let losses = learn(mode(video, audio));
        assert_eq!(losses.len(), 1);
        let (name, before, after) = losses[0];
        assert_eq!(name, "loss");
        assert!(after < 0.2 * before, "{before} to {after}");
    }
}

#[test]
fn each_loss_stands_by_the_level_of_its_own_track() {
    let mut both = method(mode(true, true));
    let report = accumulate(&mut both, &batch(4), (1, 0, 1.0)).unwrap();
    let sigmas = |name: &str| {
        let loss = report.losses.iter().find(|loss| loss.name == name).unwrap();
        loss.sigmas.clone()
    };
    assert!(sigmas("loss").is_none());
    assert_ne!(sigmas("loss.video").unwrap(), sigmas("loss.audio").unwrap());
    // From video to audio: the level is the sound's, not the 0 of the video.
    let mut heard = method(mode(false, true));
    let report = accumulate(&mut heard, &batch(4), (1, 0, 1.0)).unwrap();
    let sigmas = report.losses[0].sigmas.as_ref().unwrap();
    assert!(sigmas.iter().all(|sigma| *sigma >= 0.1));
    assert_eq!(report.tokens, 4 * (2 + 3));
    assert_eq!(heard.trained().len(), 1);
}
