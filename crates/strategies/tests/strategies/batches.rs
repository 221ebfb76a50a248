//! Small batches and strategies on them.

use burn::tensor::{Tensor, TensorData};
use diffusion::{Coordinates, Geometry, Time, TimestepSampler};
use nn::Context;
use nn::Tracks;
use serde_json::Value;
use strategies::{Flexible, StrategyConfig};
use testkit::numbers::tensor;
use train::{Batch, Draws, Field, ModelInputs, Result, Strategy, VideoLatents};

pub(crate) const CHANNELS: usize = 3;

/// LTX-2's places.
pub(crate) fn geometry() -> Geometry {
    let coordinates =
        Coordinates { time: Time::CausalSeconds, scale: [8.0, 32.0, 32.0], span: None };
    Geometry { factors: [8, 32, 32], coordinates, ..Geometry::indices([1, 1, 1]) }
}

pub(crate) fn samplers() -> Tracks<TimestepSampler> {
    let uniform = TimestepSampler::uniform(0.2, 0.9).unwrap();
    Tracks { video: Some(uniform), audio: Some(uniform) }
}

pub(crate) fn strategy(config: Value) -> Result<Flexible> {
    let config: StrategyConfig = serde_json::from_value(config).unwrap();
    Flexible::new(&config, geometry(), samplers())
}

pub(crate) fn video(name: &str, samples: usize, [f, h, w]: [usize; 3], rate: f64) -> Field {
    let values = tensor(name, [samples, CHANNELS, f, h, w]);
    Field::Video(VideoLatents { values, rates: vec![rate; samples] })
}

/// A batch of videos with text, sounds, references and masks.
pub(crate) fn batch(samples: usize, grid: [usize; 3]) -> Batch {
    let [f, h, w] = grid;
    let text = Context { tokens: tensor("text", [samples, 2, 4]), mask: None, image: None };
    let mask: Vec<f32> = (0..samples * f * h * w).map(|at| (at % 5 < 2) as u8 as f32).collect();
    let mask = Tensor::from_data(
        TensorData::new(mask, [samples, f * h * w]),
        &burn::tensor::Device::flex(),
    );
    let fields = [
        ("latents", video("latents", samples, grid, 24.0)),
        ("ref_latents", video("reference", samples, [f, h / 2, w / 2], 24.0)),
        ("audio_latents", Field::Audio(tensor("sound", [samples, 2, 5, 4]))),
        ("text", Field::Text(text)),
        ("masks", Field::Mask(mask)),
    ];
    Batch {
        samples,
        fields: fields.map(|(name, field)| (name.to_owned(), field)).into(),
        beside: None,
    }
}

pub(crate) fn prepare(config: Value, batch: &Batch, step: u64) -> ModelInputs {
    let draws = Draws::new(5, step, 0, batch.samples);
    let process = diffusion::Process::Flow;
    strategy(config).unwrap().prepare(&process, batch, &draws).unwrap()
}

/// The level of every token that the network sees, sample by sample, from 0 to 1.
pub(crate) fn seen_levels(modality: &nn::Modality) -> Vec<Vec<f32>> {
    let [samples, tokens, _] = modality.tokens.dims();
    let [_, count] = modality.levels.distinct.dims();
    let distinct: Vec<f32> = modality.levels.distinct.to_data().iter::<f32>().collect();
    let index: Vec<i64> = match &modality.levels.index {
        Some(index) => index.to_data().iter::<i64>().collect(),
        None => vec![0; samples * tokens],
    };
    let level = |sample: usize, token: usize| {
        distinct[sample * count + index[sample * tokens + token] as usize] / 1000.0
    };
    (0..samples).map(|sample| (0..tokens).map(|token| level(sample, token)).collect()).collect()
}

/// Which tokens of the loss count, sample by sample.
pub(crate) fn counted(inputs: &ModelInputs) -> Vec<Vec<bool>> {
    let mask = &inputs.targets.video.as_ref().unwrap().mask;
    let [_, tokens] = mask.dims();
    let values: Vec<bool> = mask.to_data().iter::<f32>().map(|value| value == 1.0).collect();
    values.chunks(tokens).map(<[bool]>::to_vec).collect()
}
