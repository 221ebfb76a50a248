//! The smallest run that has something to tell: losses that are functions of the step.

use std::path::Path;

use burn::tensor::Device;
use journal::Journal;
use serde_json::json;
use train::checkpoint::{CheckpointConfig, Checkpoints, Recipe};
use train::{
    Batch, BucketReport, Callback, Cursor, Event, Feed, LoopConfig, LossReport, Method,
    MethodReport, Outcome, Parts, Pass, Result, RoleReport, Share, StepReport, Trained, Trainer,
};

/// Learns nothing.
pub(crate) struct Idle;

impl Method for Idle {
    fn name(&self) -> &'static str {
        "idle"
    }

    fn accumulate(&mut self, _: &Batch, pass: &Pass) -> Result<MethodReport> {
        let step = pass.iteration as f32;
        let loss = |name, scale: f32| LossReport {
            role: "student",
            name,
            values: vec![scale / step, 2.0 * scale / step],
            sigmas: Some(vec![0.1, 0.9]),
        };
        Ok(MethodReport { losses: vec![loss("video", 1.0), loss("audio", 0.1)], tokens: 12 })
    }

    fn updates(&self, _: u64) -> Vec<&'static str> {
        Vec::new()
    }

    fn trained(&self) -> Vec<&Trained> {
        Vec::new()
    }

    fn trained_mut(&mut self) -> Vec<&mut Trained> {
        Vec::new()
    }
}

struct Nothing(u64);

impl Feed for Nothing {
    fn next(&mut self) -> Result<Batch> {
        self.0 += 2;
        Ok(Batch { samples: 2, ..Batch::default() })
    }

    fn ahead(&mut self, batches: u64) -> Result<Vec<Share>> {
        Ok(vec![Share { first: 0, whole: 2 }; batches as usize])
    }

    fn cursor(&self) -> Cursor {
        Cursor { epoch: 0, position: self.0 }
    }

    fn seek(&mut self, cursor: Cursor) -> Result<()> {
        self.0 = cursor.position;
        Ok(())
    }
}

/// Looks at the model at every second rest, like a validation.
struct Look(Journal);

impl Callback for Look {
    fn name(&self) -> &str {
        "look"
    }

    fn on(&mut self, event: &Event<'_>, _: &dyn Method) -> Result<()> {
        match event {
            Event::Resting { step } if step.is_multiple_of(2) => {
                let scalars = [("validation/score", *step as f64 / 8.0), ("heldout/loss", 0.5)];
                Ok(self.0.record(*step, &scalars)?)
            }
            _ => Ok(()),
        }
    }
}

/// Runs to `steps` in a folder, from its newest checkpoint if it has one.
pub(crate) fn run(folder: &Path, steps: u64) {
    let journal = Journal::new(folder);
    let config = CheckpointConfig { every: 2, keep_last: 9, keep_every: 0 };
    let recipe = Recipe(json!({}));
    let checkpoints = Checkpoints::new(folder.join("checkpoints"), config, recipe).unwrap();
    let parts = Parts {
        method: Box::new(Idle),
        feed: Box::new(Nothing(0)),
        callbacks: vec![Box::new(journal.clone()), Box::new(Look(journal))],
        checkpoints: Some(checkpoints),
    };
    let config = LoopConfig { steps, accumulation: 1, seed: 7, clip: None };
    let mut trainer = Trainer::new(config, parts).unwrap();
    trainer.resume(&[], &Device::flex()).unwrap();
    trainer.run().unwrap();
}

/// A report in which every field says something else.
pub(crate) fn report(step: u64) -> StepReport {
    let bucket = |from, to, mean| BucketReport { loss: "video".into(), from, to, mean, samples: 3 };
    let role = |role, rate| RoleReport {
        role,
        rate,
        gradient_norm: 1.5,
        clip: 0.625,
        outcome: Outcome::GradientNotFinite,
        skipped: 2,
    };
    StepReport {
        step,
        losses: [("video".to_owned(), 0.25), ("audio".to_owned(), 0.75)].into(),
        buckets: vec![bucket(0.0, 0.25, 0.125), bucket(0.75, 1.0, 0.375)],
        roles: vec![role("student", 1e-3), role("critic", 2e-3)],
        samples: 6,
        tokens: 600,
        seconds: 0.5,
    }
}

/// Tells a journal about steps as the trainer would.
pub(crate) fn tell(journal: &mut Journal, reports: &[StepReport]) {
    journal.on(&Event::Started { step: 0 }, &Idle).unwrap();
    for report in reports {
        journal.on(&Event::Stepped { report }, &Idle).unwrap();
    }
}
