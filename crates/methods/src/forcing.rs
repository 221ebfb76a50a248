//! Diffusion forcing (Chen et al. 2024): every chunk of frames has a noise level of its own, so that a
//! causal model can later continue from clean ones.

use std::collections::BTreeMap;

use diffusion::{NoiseLevels, Process, Track, shifted_level, unshifted_level};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use train::{
    Batch, Draws, Error, Form, Method, MethodReport, Pass, Result, STUDENT, Strategy, Trained,
    noise_for,
};

use crate::finetune::learn;

/// The levels that can be drawn.
const STEPS: usize = 1000;

/// Settings of diffusion forcing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DiffusionForcingConfig {
    /// Frames that share a level.
    pub chunk: usize,
    /// The lowest and the highest place on the grid of levels, from 0 (pure noise) to 1.
    pub range: [f64; 2],
    /// Moves the grid towards noise: the one shift there is.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub shift: f64,
    /// Which quantity the loss compares.
    pub form: Form,
}

impl Default for DiffusionForcingConfig {
    fn default() -> DiffusionForcingConfig {
        DiffusionForcingConfig { chunk: 3, range: [0.0, 1.0], shift: 3.0, form: Form::Prediction }
    }
}

/// One role; the strategy's levels are replaced.
pub struct DiffusionForcing {
    /// The network that learns.
    pub student: Trained,
    strategy: Box<dyn Strategy>,
    process: Process,
    config: DiffusionForcingConfig,
    /// How much each place on the grid weighs.
    weights: Vec<f32>,
}

impl DiffusionForcingConfig {
    /// # Errors
    /// An empty chunk, a range that is none, a shift that is not positive.
    pub fn check(&self) -> Result<()> {
        if self.chunk == 0 {
            return Err(Error::setting("method.chunk", 0, "it is at least 1"));
        }
        let [low, high] = self.range;
        if !(0.0 <= low && low < high && high <= 1.0) {
            let found = format!("{:?}", self.range);
            return Err(Error::setting("method.range", found, "it rises, between 0 and 1"));
        }
        if !(self.shift.is_finite() && self.shift > 0.0) {
            return Err(Error::setting("method.shift", self.shift, "it is above 0"));
        }
        Ok(())
    }
}

impl DiffusionForcing {
    /// A student that learns `strategy` with one level per chunk of frames.
    ///
    /// # Errors
    /// An empty chunk, a range that is none, a shift that is not positive.
    pub fn new(
        student: Trained,
        strategy: Box<dyn Strategy>,
        process: Process,
        config: DiffusionForcingConfig,
    ) -> Result<DiffusionForcing> {
        config.check()?;
        Ok(DiffusionForcing { student, strategy, process, config, weights: bell() })
    }

    /// One level per sample and chunk of frames.
    pub fn levels(&self, video: &Track, draws: &Draws) -> NoiseLevels {
        let [frames, rows, columns] = video.grid;
        let chunks = frames.div_ceil(self.config.chunk);
        let [low, high] = self.config.range.map(|share| (share * STEPS as f64) as usize);
        let high = high.min(STEPS - 1) + 1;
        let level = |unit: f32| {
            let place = low + (f64::from(unit) * (high - low) as f64) as usize;
            let even = 1.0 - place.min(high - 1) as f64 / STEPS as f64;
            shifted_level(even, self.config.shift) as f32
        };
        let distinct = (0..video.samples()).map(|sample| {
            let units = draws.sample("level.chunks", sample).uniform(0..chunks);
            units.into_iter().map(level).collect()
        });
        let chunk = |token: usize| token / (rows * columns) / self.config.chunk;
        NoiseLevels::per_group(
            distinct.collect(),
            (0..frames * rows * columns).map(chunk).collect(),
        )
    }

    /// The weight of a level: that of its place on the grid.
    fn weight(&self, level: f32) -> f32 {
        let even = unshifted_level(f64::from(level), self.config.shift);
        let place = ((1.0 - even) * STEPS as f64).round() as usize;
        self.weights[place.min(STEPS - 1)]
    }
}

/// A bell over the grid with its lowest value at 0 and a mean of 1.
fn bell() -> Vec<f32> {
    let count = STEPS as f64;
    let height = |place: usize| (-2.0 * ((place as f64 - count / 2.0) / count).powi(2)).exp();
    let lowest = (0..STEPS).map(height).fold(f64::INFINITY, f64::min);
    let sum: f64 = (0..STEPS).map(|place| height(place) - lowest).sum();
    (0..STEPS).map(|place| ((height(place) - lowest) * count / sum) as f32).collect()
}

impl Method for DiffusionForcing {
    fn name(&self) -> &'static str {
        "diffusion_forcing"
    }

    fn accumulate(&mut self, batch: &Batch, pass: &Pass) -> Result<MethodReport> {
        let scene = self.strategy.scene(batch, &pass.draws)?;
        let mut levels = self.strategy.levels(&scene, &pass.draws)?;
        let video = scene.video.as_ref().ok_or_else(|| Error::Shape {
            what: "the scene".to_owned(),
            got: "a sound alone".to_owned(),
            want: "diffusion forcing gives levels to chunks of frames; add a video".to_owned(),
        })?;
        levels.video = Some(self.levels(video, &pass.draws));
        let noise = noise_for(&scene, &pass.draws, "noise");
        let mut inputs = self.strategy.inputs(&self.process, &scene, &levels, &noise);
        inputs.form = self.config.form;
        inputs.weigh_video(|level| self.weight(level));
        learn(&mut self.student, &*self.strategy, &inputs, pass)
    }

    fn updates(&self, _: u64) -> Vec<&'static str> {
        vec![STUDENT]
    }

    fn metadata(&self) -> BTreeMap<String, String> {
        self.strategy.metadata()
    }

    fn trained(&self) -> Vec<&Trained> {
        vec![&self.student]
    }

    fn trained_mut(&mut self) -> Vec<&mut Trained> {
        vec![&mut self.student]
    }
}
