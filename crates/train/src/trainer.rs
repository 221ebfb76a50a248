//! The one training loop.

mod saving;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use burn::tensor::Device;
use parallel::Sharding;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::batch::{Cursor, Feed};
use crate::checkpoint::{self, Checkpoints, Found, PartWriter, Reading, Skipped};
use crate::draws::Draws;
use crate::error::{ELSEWHERE, Error, Result};
use crate::event::{Callback, Event};
use crate::method::{Method, Pass};
use crate::ranks::Ranks;
use crate::report::{Outcome, RoleReport, StepReport, Tally};
use crate::role::Trained;
use crate::state::StateDict;

/// How long and how a run goes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoopConfig {
    /// The last step.
    #[schemars(range(min = 1))]
    pub steps: u64,
    /// Micro-batches per step.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub accumulation: u64,
    /// What every draw is keyed by.
    #[serde(default)]
    pub seed: u64,
    /// The largest norm of the gradients of a clipped role; `null` leaves gradients as they are.
    #[serde(default = "unit_norm")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub clip: Option<f64>,
}

fn one() -> u64 {
    1
}

/// What FastVideo, LTX-2 and their users clip to.
fn unit_norm() -> Option<f64> {
    Some(1.0)
}

impl LoopConfig {
    /// # Errors
    /// No steps, no micro-batches, a clipping norm that is not positive.
    pub fn check(&self) -> Result<()> {
        for (key, value) in [("steps", self.steps), ("accumulation", self.accumulation)] {
            if value == 0 {
                return Err(Error::setting(format!("loop.{key}"), 0, "it is at least 1"));
            }
        }
        match self.clip.filter(|clip| !(clip.is_finite() && *clip > 0.0)) {
            None => Ok(()),
            Some(clip) => {
                let want = "it is a number above 0; write `null` to clip nothing";
                Err(Error::setting("loop.clip", clip, want))
            }
        }
    }
}

/// Everything a run is made of.
pub struct Parts {
    /// What is learnt, and by whom.
    pub method: Box<dyn Method>,
    /// Where batches come from.
    pub feed: Box<dyn Feed>,
    /// Who listens.
    pub callbacks: Vec<Box<dyn Callback>>,
    /// Where checkpoints go, if anywhere.
    pub checkpoints: Option<Checkpoints>,
}

/// Where a run went on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// The step that was over.
    pub step: u64,
    /// The checkpoint.
    pub path: PathBuf,
    /// Newer checkpoints that could not be used.
    pub skipped: Vec<Skipped>,
}

/// Runs a method over data until it is over or asked to stop.
pub struct Trainer {
    config: LoopConfig,
    parts: Parts,
    ranks: Ranks,
    /// What this rank was told and made from, by what it is, as parts of hashes.
    told: Vec<(String, u64)>,
    step: u64,
    /// Whether a checkpoint was due while updates had to be skipped.
    is_owed: bool,
    /// The step of a checkpoint that several ranks are writing.
    writing: Option<u64>,
    /// What writes this rank's parts of them, if it is not the first.
    part: Option<PartWriter>,
    stop: Arc<AtomicBool>,
}

impl Trainer {
    /// A run that begins before its first step.
    ///
    /// # Errors
    /// No steps, no micro-batches, a clipping norm that is not positive, two callbacks of one name.
    pub fn new(config: LoopConfig, parts: Parts) -> Result<Trainer> {
        config.check()?;
        let names: Vec<_> = parts.callbacks.iter().map(|callback| callback.name()).collect();
        let twice = (1..names.len()).find(|index| names[..*index].contains(&names[*index]));
        if let Some(index) = twice {
            let want = "another callback has that name too, and checkpoints know them by it";
            return Err(Error::setting("callback", names[index], want));
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (ranks, step, is_owed) = (Ranks::alone(), 0, false);
        let (writing, part, told) = (None, None, Vec::new());
        Ok(Trainer { config, parts, ranks, told, step, is_owed, writing, part, stop })
    }

    /// The same run as one of several ranks. The feed gives this rank's part of every batch; the first rank keeps
    /// checkpoints, and the others go on from the one it finds.
    pub fn with_ranks(mut self, ranks: Ranks) -> Trainer {
        self.ranks = ranks;
        self
    }

    /// The same run, which begins only if all ranks were told and made from the same, each thing by a name.
    pub fn made_from(mut self, told: Vec<(String, u64)>) -> Trainer {
        self.told = told;
        self
    }

    /// The same run, which ends with a checkpoint after the step in which `flag` is set.
    pub fn stopping_at(mut self, flag: Arc<AtomicBool>) -> Trainer {
        self.stop = flag;
        self
    }

    /// Set it and the run ends, with a checkpoint, after the step it is in.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// The last step that is over.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The method, with its roles.
    pub fn method(&self) -> &dyn Method {
        &*self.parts.method
    }

    /// Goes on from the newest checkpoint that can be used, if there is one; says which it is and which
    /// had to be passed over. Keys of the recipe below `free` may have changed since.
    ///
    /// # Errors
    /// No checkpoint can be used, or it does not fit this run.
    pub fn resume(&mut self, free: &[&str], device: &Device) -> Result<Option<Resumed>> {
        let Parts { method, checkpoints, .. } = &mut self.parts;
        let wanted = |key: &str| is_of_another(&**method, key) != Some(true);
        let reading = Reading { device, wanted: &wanted };
        let found = match checkpoints {
            Some(checkpoints) => checkpoints.resume(free, reading)?,
            None => None,
        };
        let found = self.found_by_first(found, device)?;
        let resumed = found.map(|found| self.go_on(found)).transpose()?;
        self.agree()?;
        Ok(resumed)
    }

    /// What the first rank goes on from, on every rank.
    fn found_by_first(&self, own: Option<Found>, device: &Device) -> Result<Option<Found>> {
        let path = own.as_ref().map(|found| found.path.to_string_lossy().into_owned());
        let told = self.ranks.told_by_first("where to go on from", path.as_deref())?;
        match (self.ranks.is_first(), told) {
            (true, _) => Ok(own),
            (false, Some(path)) => {
                let wanted = |key: &str| self.is_of_another(key) != Some(true);
                let reading = Reading { device, wanted: &wanted };
                checkpoint::read_wanted(Path::new(&path), reading).map(Some)
            }
            (false, None) => Ok(None),
        }
    }

    /// Refuses ranks that are at different steps or hold different weights.
    fn agree(&self) -> Result<()> {
        if self.ranks.world().size() == 1 {
            return Ok(());
        }
        let LoopConfig { steps, accumulation, seed, clip } = self.config;
        let clip = clip.map_or(0, f64::to_bits);
        // Of parameters that are spread each rank holds others.
        let roles = self.parts.method.trained().into_iter().filter(|own| own.sharding().is_none());
        let weights = roles.fold(0, |sum: u64, role| {
            let squares = role.learnt().map(|(_, own)| kernels::sum_squares(own.values.clone()));
            squares.fold(sum, |sum, square| sum.rotate_left(1) ^ square.to_bits())
        });
        let own = [
            ("the step", self.step),
            ("loop.steps", steps),
            ("loop.accumulation", accumulation),
            ("loop.seed", seed),
            ("loop.clip", clip),
            ("the weights", weights),
        ];
        let told = self.told.iter().map(|(name, hash)| (name.as_str(), *hash));
        self.ranks.agree(&own.into_iter().chain(told).collect::<Vec<_>>())
    }

    /// Goes on from one checkpoint, of this run or, where this one has none yet, of another.
    ///
    /// # Errors
    /// It cannot be used, or does not fit this run.
    pub fn resume_from(&mut self, path: &Path, free: &[&str], device: &Device) -> Result<Resumed> {
        let Parts { method, checkpoints, .. } = &mut self.parts;
        let wanted = |key: &str| is_of_another(&**method, key) != Some(true);
        let reading = Reading { device, wanted: &wanted };
        let found = match checkpoints {
            Some(checkpoints) => Some(checkpoints.resume_from(path, free, reading)?),
            None => None,
        };
        let Some(found) = self.found_by_first(found, device)? else {
            let reason = "this run keeps no checkpoints".to_owned();
            return Err(Error::NothingToResume { path: path.to_owned(), reason });
        };
        let resumed = self.go_on(found)?;
        self.agree()?;
        Ok(resumed)
    }

    fn go_on(&mut self, found: Found) -> Result<Resumed> {
        let Found { path, manifest, state, skipped } = found;
        self.restore(state)?;
        Ok(Resumed { step: manifest.step, path, skipped })
    }

    /// Runs to the last step and returns the step it ended after.
    ///
    /// # Errors
    /// Whatever a part reports; the last committed checkpoint stays valid, and one that was being written
    /// is finished.
    pub fn run(&mut self) -> Result<u64> {
        let ended = self.run_steps();
        if let Err(error) = &ended {
            // What was sound when it was taken still is; why the run ended is what counts.
            let _ = self.save_what_was_begun(error);
        }
        ended
    }

    fn run_steps(&mut self) -> Result<u64> {
        self.tell(&Event::Started { step: self.step })?;
        self.tell(&Event::Resting { step: self.step })?;
        while self.step < self.config.steps && !self.is_stopped()? {
            let report = self.advance()?;
            self.tell(&Event::Stepped { report: &report })?;
            self.save_if_due()?;
            self.tell(&Event::Resting { step: self.step })?;
        }
        self.save_last()?;
        self.tell(&Event::Finished { step: self.step })?;
        self.check_learning()?;
        Ok(self.step)
    }

    /// Whether the run is asked to stop: ranks that are asked at different moments stop after the same step.
    fn is_stopped(&self) -> Result<bool> {
        self.ranks.any("whether to stop", self.stop.load(Ordering::Relaxed))
    }

    /// One step by itself: micro-batches, reduce, finiteness, clip, update. No event of the step is sent
    /// and no checkpoint made; [`Trainer::run`] does both.
    ///
    /// # Errors
    /// The data, the method or an exchange between ranks failed.
    pub fn advance(&mut self) -> Result<StepReport> {
        let (begun, step) = (Instant::now(), self.step + 1);
        let shares = self.parts.feed.ahead(self.config.accumulation)?;
        let whole: u64 = shares.iter().map(|share| share.whole).sum();

        let mut tally = Tally::default();
        let mut before = 0;
        let count = shares.len();
        for (at, share) in shares.into_iter().enumerate() {
            // One at a time: however many there are, one is in memory.
            let batch = &self.parts.feed.next()?;
            // A sample is known by its place in the whole step, whoever works on it.
            let first = before + share.first;
            let draws = Draws::new(self.config.seed, step, first, batch.samples);
            let pass = Pass {
                iteration: step,
                draws: draws.of_whole(whole),
                share: batch.samples as f64 / whole as f64,
                is_last: at + 1 == count,
            };
            tally.add(&self.parts.method.accumulate(batch, &pass)?, batch.samples);
            before += share.whole;
        }
        tally.expect(&self.ranks.texts("the losses there are", &tally.kinds())?);
        let mut numbers = tally.numbers();
        self.ranks.sum("the losses of a step", &mut numbers)?;
        tally.set_numbers(&numbers);

        let roles = self.update_roles(step, &tally)?;
        self.step = step;
        Ok(StepReport {
            step,
            losses: tally.means(),
            buckets: tally.buckets(),
            roles,
            samples: tally.samples,
            tokens: tally.tokens,
            seconds: begun.elapsed().as_secs_f64(),
        })
    }

    /// Updates the roles that are due and forgets the gradients of all others.
    fn update_roles(&mut self, step: u64, tally: &Tally) -> Result<Vec<RoleReport>> {
        let method = &mut self.parts.method;
        let (due, clipped) = (method.updates(step), method.clipped(step));
        let mut reports = Vec::new();
        for role in method.trained_mut() {
            if !due.contains(&role.name()) {
                role.forget();
                continue;
            }
            self.ranks.gradients(role)?;
            let norm = self.ranks.norm(role)?;
            let clip = self.config.clip.filter(|_| clipped.contains(&role.name()));
            let report = update_role(role, (norm, clip), tally.is_finite(role.name()));
            let is_sound = check_sound(role, &report, step);
            // What one rank finds in its part of the weights ends all of them.
            if role.sharding().is_some() && self.ranks.any(SOUND, is_sound.is_err())? {
                is_sound?;
                let what = ELSEWHERE[0].to_owned();
                return Err(Error::Diverged { step, what, role: role.name(), rate: report.rate });
            }
            is_sound?;
            reports.push(report);
        }
        for report in &reports {
            if report.outcome == Outcome::Updated {
                self.tell(&Event::Updated { step, role: report.role })?;
            }
        }
        Ok(reports)
    }

    fn tell(&mut self, event: &Event<'_>) -> Result<()> {
        // Listeners of the first rank make clips and write files, for which the others wait.
        let _busy = match event {
            Event::Started { .. } | Event::Resting { .. } => {
                self.ranks.busy("looking at the model")
            }
            _ => None,
        };
        let Parts { method, callbacks, .. } = &mut self.parts;
        callbacks.iter_mut().try_for_each(|callback| callback.on(event, &**method))
    }

    /// How many updates a role had to skip since the last one that it made; of all roles the most.
    fn most_skipped(&self) -> u64 {
        let roles = self.parts.method.trained();
        roles.iter().map(|role| role.skipped_in_a_row()).max().unwrap_or(0)
    }

    /// Refuses to call it a success when a run came to its last step and had stopped learning before.
    fn check_learning(&self) -> Result<()> {
        let roles = self.parts.method.trained();
        let idle = roles.iter().find(|role| role.skipped_in_a_row() > 1);
        match idle.filter(|_| self.step == self.config.steps) {
            None => Ok(()),
            Some(role) => Err(Error::Unlearnt {
                step: self.step,
                skipped: role.skipped_in_a_row(),
                role: role.name(),
                rate: role.rate(),
            }),
        }
    }

    /// Who holds parameters together, if any role's are spread.
    fn sharding(&self) -> Option<&Sharding> {
        self.parts.method.trained().into_iter().find_map(Trained::sharding)
    }

    /// Whether another rank keeps what a checkpoint calls `key`. None if all ranks have it.
    fn is_of_another(&self, key: &str) -> Option<bool> {
        is_of_another(&*self.parts.method, key)
    }

    /// Everything that must be the same for the run to go on as if nothing had happened; of what ranks hold together
    /// this rank's part.
    pub fn state(&self) -> StateDict {
        let mut state = StateDict::new();
        self.parts.method.trained().iter().for_each(|role| role.save(&mut state));
        let Cursor { epoch, position } = self.parts.feed.cursor();
        state.number("random_state.seed", self.config.seed);
        state.number("random_state.step", self.step);
        state.number("random_state.epoch", epoch);
        state.number("random_state.cursor", position);
        for callback in &self.parts.callbacks {
            state.nest(&format!("callbacks.{}", callback.name()), callback.state());
        }
        state
    }

    /// Goes on from what [`Trainer::state`] said, of whose parts this rank takes its own.
    ///
    /// # Errors
    /// Something is missing, misshapen or left over, or the seed is another.
    pub fn restore(&mut self, mut state: StateDict) -> Result<()> {
        if self.sharding().is_some() {
            state.retain(|key| self.is_of_another(key) != Some(true));
        }
        for role in self.parts.method.trained_mut() {
            role.restore(&mut state)?;
        }
        let mut random = state.take("random_state");
        let seed = random.take_number("seed")?;
        if seed != self.config.seed {
            let want = format!("the checkpoint was made with {seed}");
            return Err(Error::setting("loop.seed", self.config.seed, want));
        }
        self.step = random.take_number("step")?;
        let (epoch, position) = (random.take_number("epoch")?, random.take_number("cursor")?);
        random.finish()?;
        self.parts.feed.seek(Cursor { epoch, position })?;
        for callback in &mut self.parts.callbacks {
            callback.restore(state.take(&format!("callbacks.{}", callback.name())))?;
        }
        state.finish()
    }
}

/// Whether another rank keeps what a checkpoint calls `key`. None if all ranks have it.
fn is_of_another(method: &dyn Method, key: &str) -> Option<bool> {
    method.trained().into_iter().find_map(|role| role.is_of_another(key))
}

/// What ranks agree on after an update of parameters that they hold together.
const SOUND: &str = "whether weights are finite";

/// So many updates in a row that had to be skipped are no spike.
const MOST_SKIPPED: u64 = 20;

/// Refuses to go on with weights that are not finite, or with a role that no longer learns.
fn check_sound(role: &Trained, report: &RoleReport, step: u64) -> Result<()> {
    let what = match report.outcome {
        Outcome::Updated => role.not_finite(),
        Outcome::LossNotFinite if role.skipped_in_a_row() >= MOST_SKIPPED => {
            Some(format!("the loss was not finite {MOST_SKIPPED} times in a row"))
        }
        Outcome::GradientNotFinite if role.skipped_in_a_row() >= MOST_SKIPPED => {
            Some(format!("gradients were not finite {MOST_SKIPPED} times in a row"))
        }
        Outcome::LossNotFinite | Outcome::GradientNotFinite => None,
    };
    let (role, rate) = (role.name(), report.rate);
    what.map_or(Ok(()), |what| Err(Error::Diverged { step, what, role, rate }))
}

/// Clips and updates one role, or skips it if something is not finite.
fn update_role(
    role: &mut Trained,
    (gradient_norm, clip): (f64, Option<f64>),
    finite_loss: bool,
) -> RoleReport {
    let rate = role.rate();
    let outcome = match (finite_loss, gradient_norm.is_finite()) {
        (true, true) => Outcome::Updated,
        (false, _) => Outcome::LossNotFinite,
        (true, false) => Outcome::GradientNotFinite,
    };
    let scale = clip.map_or(1.0, |limit| (limit / (gradient_norm + 1e-6)).min(1.0));
    match outcome {
        Outcome::Updated => role.update(scale),
        Outcome::LossNotFinite | Outcome::GradientNotFinite => role.skip(),
    }
    let skipped = role.skipped();
    RoleReport { role: role.name(), rate, gradient_norm, clip: scale, outcome, skipped }
}
