//! Numbers that no run has. Beyond them products of sizes would no longer be numbers, and what a run needs
//! could not even be counted.

use std::path::PathBuf;

use folder::{Hub, ModelFolder};

use crate::idle::Idle;
use crate::schema::{LearnsConfig, Recipe, SourceConfig, TrainedConfig};

/// No micro-batch has more samples.
const MOST_SAMPLES: usize = 1 << 16;

/// No step has more micro-batches.
const MOST_ROUNDS: usize = 1 << 20;

/// No run reads more batches ahead.
const MOST_PREFETCH: usize = 1 << 10;

/// No source renders more different clips.
const MOST_CLIPS: usize = 1_000_000;

/// No clip of the shapes world has more frames, nor longer sides.
const LONGEST: usize = 1 << 12;

/// No clip of the shapes world has more pixels.
const MOST_PIXELS: usize = 1 << 26;

/// No adapter has a higher rank.
const HIGHEST_RANK: usize = 1 << 12;

/// No clip that is made along the way has more frames, or longer sides.
const LARGEST_LOOK: [usize; 3] = [1 << 16, 1 << 14, 1 << 14];

impl Recipe {
    /// The first number that is too large.
    pub(crate) fn beyond(&self) -> Option<Idle> {
        let data = &self.data;
        let rounds = usize::try_from(self.run.accumulation).unwrap_or(usize::MAX);
        let mut numbers = vec![
            ("data.batch".to_owned(), data.batch, MOST_SAMPLES),
            ("data.prefetch".to_owned(), data.prefetch, MOST_PREFETCH),
            ("loop.accumulation".to_owned(), rounds, MOST_ROUNDS),
        ];
        if let SourceConfig::Shapes(own) = &data.source {
            let world = &own.world;
            let pixels = world.frames.saturating_mul(world.height).saturating_mul(world.width);
            let named = [
                ("clips", own.clips, MOST_CLIPS),
                ("world.frames", world.frames, LONGEST),
                ("world.height", world.height, LONGEST),
                ("world.width", world.width, LONGEST),
                ("world", pixels, MOST_PIXELS),
            ];
            numbers.extend(
                named.map(|(key, value, most)| (format!("data.source.{key}"), value, most)),
            );
        }
        let critic = self.models.critic.as_ref();
        let roles = [("student", Some(&self.models.student)), ("critic", critic)];
        for (role, config) in roles.into_iter().filter_map(|(role, own)| Some((role, own?))) {
            numbers.extend(
                rank(config).map(|rank| (format!("models.{role}.learns.rank"), rank, HIGHEST_RANK)),
            );
        }
        if let Some(size) = self.callbacks.validation.as_ref().and_then(|look| look.size) {
            let sides = size.into_iter().zip(LARGEST_LOOK).enumerate();
            numbers.extend(
                sides.map(|(at, (side, most))| {
                    (format!("callbacks.validation.size.{at}"), side, most)
                }),
            );
        }
        let (key, value, most) = numbers.into_iter().find(|(_, value, most)| value > most)?;
        let reason = match key.as_str() {
            "data.source.world" => {
                format!("a clip of `{key}` has {value} pixels; it has at most {most}")
            }
            _ => format!("`{key}` is {value}; it is at most {most}"),
        };
        Some(Idle { key, reason })
    }
}

impl Recipe {
    /// That the student makes no clips of the size that validation asks for. A student that is not on this machine yet
    /// is asked when it is opened.
    pub(crate) fn size_of_looks(&self, hub: Option<&Hub>) -> Option<Idle> {
        let (size, student) = (self.callbacks.validation.as_ref()?.size?, &self.models.student);
        let description = match (&student.new, &student.from) {
            (Some(new), _) => new.make().ok()?.0.description,
            (None, from) => {
                let from = from.as_ref()?;
                let found = hub.and_then(|hub| folder::locate(from, hub).ok());
                let folder = found.unwrap_or_else(|| PathBuf::from(from));
                families::describe(&ModelFolder::open(&folder).ok()?).ok()?
            }
        };
        let refusal = description.geometry.latents(size).err()?;
        let key = "callbacks.validation.size".to_owned();
        Some(Idle { reason: format!("{key}: {refusal}"), key })
    }
}

fn rank(config: &TrainedConfig) -> Option<usize> {
    match &config.learns {
        LearnsConfig::Lora(lora) => Some(lora.rank),
        LearnsConfig::All | LearnsConfig::Only { .. } => None,
    }
}
