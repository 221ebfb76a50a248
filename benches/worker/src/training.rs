//! A training step of the size that people finetune: noise, forward, backward, AdamW.

use std::collections::BTreeMap;
use std::sync::Arc;

use burn::tensor::{DType, Device};
use diffusion::{Geometry, Process, TimestepSampler};
use methods::{Finetune, FinetuneConfig};
use models::dit::wan::{Wan, WanConfig};
use nn::{Context, Dit, OneDevice, Recompute, Tracks};
use strategies::{Flexible, StrategyConfig, TextToVideoConfig};
use train::{
    AdamWConfig, Batch, Cursor, Feed, Field, LearningRateSchedule, Learns, LoopConfig,
    OptimizerConfig, Parts, STUDENT, Share, Trained, Trainer, Training, VideoLatents,
};

use crate::networks::{normal, parameters};

/// The same sample again and again.
struct Same(Batch);

impl Feed for Same {
    fn next(&mut self) -> train::Result<Batch> {
        Ok(self.0.clone())
    }

    fn ahead(&mut self, batches: u64) -> train::Result<Vec<Share>> {
        Ok((0..batches).map(|_| Share { first: 0, whole: self.0.samples as u64 }).collect())
    }

    fn cursor(&self) -> Cursor {
        Cursor::default()
    }

    fn seek(&mut self, _: Cursor) -> train::Result<()> {
        Ok(())
    }
}

/// One step of Wan-1.3B with `layers` of its 30 layers: one video of 5 x 15 x 26 patches. Also the bytes
/// of its weights, their gradients and the two moments of AdamW, all in f32.
pub(crate) fn wan(layers: usize, recompute: Recompute) -> (impl FnMut() -> f64, u64) {
    let mut trainer = trainer(layers, recompute).expect("the parts fit each other");
    let student = trainer.method().role(STUDENT).expect("there is a student");
    let elements: u64 = student.learnt().map(|(_, own)| own.values.dims()[0] as u64).sum();
    let step = move || {
        let report = trainer.advance().expect("a step can be taken");
        report.losses.values().sum()
    };
    (step, elements * 4 * 4)
}

/// Wan-1.3B with so many of its 30 layers.
fn network(layers: usize) -> Wan {
    Wan { config: WanConfig { depth: layers, ..WanConfig::t2v_1_3b() } }
}

fn trainer(layers: usize, recompute: Recompute) -> train::Result<Trainer> {
    let device = Device::flex();
    let network = network(layers);
    let store = parameters(DType::F32, &[], |weights| network.declare(weights));
    let training = Training {
        learns: Learns::All,
        optimizer: OptimizerConfig::AdamW(AdamWConfig::default()),
        learning_rate: LearningRateSchedule::constant(1e-5)?,
        layout: Arc::new(OneDevice { recompute }),
        sharding: None,
    };
    let geometry = Geometry::indices(network.config.patch);
    let student = Trained::new(STUDENT, Arc::new(network), store, training)?;
    let sampler = TimestepSampler::logit_normal(0.0, 1.0)?;
    let config = StrategyConfig::TextToVideo(TextToVideoConfig::default());
    let strategy = Flexible::new(&config, geometry, Tracks::video(sampler))?;
    let config = FinetuneConfig::default();
    let method = Finetune::new(student, Box::new(strategy), Process::Flow, config)?;
    let latents = VideoLatents { values: normal([1, 16, 5, 30, 52], &device), rates: vec![16.0] };
    let text = Context::text(normal([1, 512, 4096], &device), None);
    let fields = BTreeMap::from([
        ("latents".to_owned(), Field::Video(latents)),
        ("text".to_owned(), Field::Text(text)),
    ]);
    let parts = Parts {
        method: Box::new(method),
        feed: Box::new(Same(Batch { samples: 1, fields, beside: None })),
        callbacks: Vec::new(),
        checkpoints: None,
    };
    Trainer::new(LoopConfig { steps: u64::MAX, accumulation: 1, seed: 1, clip: None }, parts)
}
