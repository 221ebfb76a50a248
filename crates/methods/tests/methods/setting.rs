//! Roles, batches and strategies for the tests.

use std::sync::Arc;

use diffusion::{Geometry, TimestepSampler};
use nn::Tracks;
use nn::{Context, Network, OneDevice, Store};
use serde_json::Value;
use strategies::{Flexible, StrategyConfig};
use testkit::numbers::{parameter, tensor};
use train::{
    Batch, Cursor, Draws, Feed, Field, Frozen, LearningRateSchedule, Learns, Method, MethodReport,
    OptimizerConfig, Pass, Result, Share, Trained, Training, VideoLatents,
};

use crate::tiny::Tiny;

pub(crate) const TINY: Tiny = Tiny { channels: 3, text: 4, width: 5 };

pub(crate) fn store(network: &dyn Network, name: &str) -> Store {
    let fill = |own: &str, shape: &[usize]| parameter(&format!("{name} {own}"), shape);
    Store::declared(|weights| network.declare(weights), fill).unwrap()
}

pub(crate) fn trained(name: &'static str, network: Arc<dyn Network>, store: Store) -> Trained {
    run_by(Arc::new(OneDevice::default()), name, network, store)
}

/// A role that never learns, on one device.
pub(crate) fn frozen(network: Arc<dyn Network>, store: Store) -> Frozen {
    Frozen::new(network, store, Arc::new(OneDevice::default())).unwrap()
}

/// A role whose network a schedule of the test's own runs.
pub(crate) fn run_by(
    layout: Arc<dyn nn::Schedule>,
    name: &'static str,
    network: Arc<dyn Network>,
    store: Store,
) -> Trained {
    let training = Training {
        learns: Learns::All,
        optimizer: OptimizerConfig::default(),
        learning_rate: LearningRateSchedule::constant(0.01).unwrap(),
        layout,
        sharding: None,
    };
    Trained::new(name, network, store, training).unwrap()
}

pub(crate) fn strategy(config: Value) -> Box<Flexible> {
    let config: StrategyConfig = serde_json::from_value(config).unwrap();
    let uniform = TimestepSampler::uniform(0.1, 0.95).unwrap();
    let samplers = Tracks { video: Some(uniform), audio: Some(uniform) };
    Box::new(Flexible::new(&config, Geometry::indices([1, 1, 1]), samplers).unwrap())
}

/// `samples` clips of `[frames, 1, 2]` latents from number `first` on, with text.
pub(crate) fn batch(first: usize, samples: usize, frames: usize) -> Batch {
    let numbers = first..first + samples;
    let clips = numbers.clone().map(|at| tensor(&format!("clip {at}"), [1, 3, frames, 1, 2]));
    let texts = numbers.map(|at| tensor(&format!("text {at}"), [1, 3, 4]));
    let values = burn::tensor::Tensor::cat(clips.collect(), 0);
    let text =
        Context { tokens: burn::tensor::Tensor::cat(texts.collect(), 0), mask: None, image: None };
    let latents = VideoLatents { values, rates: vec![24.0; samples] };
    let fields = [("latents", Field::Video(latents)), ("text", Field::Text(text))];
    Batch {
        samples,
        fields: fields.map(|(name, field)| (name.to_owned(), field)).into(),
        beside: None,
    }
}

/// One micro-batch through a method.
pub(crate) fn accumulate(
    method: &mut dyn Method,
    batch: &Batch,
    (iteration, first, share): (u64, u64, f64),
) -> Result<MethodReport> {
    let draws = Draws::new(11, iteration, first, batch.samples);
    method.accumulate(batch, &Pass { iteration, draws, share, is_last: true })
}

/// The same clips again and again.
pub(crate) struct Clips(pub(crate) Box<dyn Fn() -> Batch>);

impl Feed for Clips {
    fn next(&mut self) -> Result<Batch> {
        Ok((self.0)())
    }

    fn ahead(&mut self, batches: u64) -> Result<Vec<Share>> {
        Ok(vec![Share { first: 0, whole: (self.0)().samples as u64 }; batches as usize])
    }

    fn cursor(&self) -> Cursor {
        Cursor::default()
    }

    fn seek(&mut self, _: Cursor) -> Result<()> {
        Ok(())
    }
}

/// The largest distance between gradients of two ways, relative to the norm of all.
pub(crate) fn gradient_distance(one: &Trained, other: &Trained) -> f64 {
    use testkit::numbers::values;
    let mut square = 0.0;
    assert_eq!(one.gradients().len(), other.gradients().len());
    for (name, gradient) in one.gradients() {
        let pairs = values(gradient).into_iter().zip(values(&other.gradients()[name]));
        square += pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
    }
    square.sqrt() / one.gradient_norm()
}
