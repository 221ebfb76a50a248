//! A training run from its recipe to its last step: what `train` and `quickstart` share.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use burn::tensor::Device;
use comm::{Axis, MeshShape};
use data::aside;
use folder::Hub;
use journal::{Journal, Peak};
use nn::Context;
use recipe::{Environment, FREE, Facts, Look, Recipe, Recorder, Run, SeenClip};
use train::{Callback, Ranks, Resumed, Trainer};

use crate::changes::Changes;
use crate::failure::{Failure, Outcome};
use crate::looking::Looking;
use crate::reporter::Reporter;
use crate::voice::Voice;
use crate::watch::{Goal, Watch};
use crate::{hub, report};

/// A training that is over.
pub(crate) struct Learnt {
    /// What it was about.
    pub(crate) facts: Facts,
    /// How long it took in this process.
    pub(crate) seconds: f64,
    /// The step it began after.
    pub(crate) from: u64,
    /// The step it has come to.
    pub(crate) step: u64,
}

impl Learnt {
    /// Whether there was nothing left to learn.
    pub(crate) fn was_over(&self) -> bool {
        self.from == self.step
    }
}

/// How a run goes on, where the user says so.
#[derive(Default)]
pub(crate) struct Going {
    /// The checkpoint, instead of the newest.
    pub(crate) resume: Option<PathBuf>,
    /// What is done in another way from there on.
    pub(crate) changes: Changes,
}

impl Going {
    /// Lets a run go on where it should, and returns the step that was over.
    fn resume(
        &self,
        trainer: &mut Trainer,
        (recipe, folder): (&Recipe, &Path),
        device: &Device,
        (voice, is_first): (Voice, bool),
    ) -> Outcome<u64> {
        let changeable = self.changes.keys_of(folder)?;
        let free: Vec<&str> =
            FREE.into_iter().chain(changeable.iter().map(String::as_str)).collect();
        self.changes.check(self.resume.as_deref().unwrap_or(folder), recipe)?;
        let resumed = match &self.resume {
            Some(path) => Some(trainer.resume_from(path, &free, device)?),
            None => trainer.resume(&free, device)?,
        };
        if is_first {
            self.changes.record(folder, resumed.as_ref(), recipe, voice)?;
            if self.changes.are_asked() {
                // A run that is over keeps them too, for when it is asked for more steps.
                keep_recipe(recipe, folder)?;
            }
        }
        let from = resumed.as_ref().map_or(0, |resumed| resumed.step);
        tell(resumed, voice);
        Ok(from)
    }

    /// What to type for a run that was stopped to go on from there.
    fn again(&self, folder: &Path) -> String {
        match &self.resume {
            // The same line would begin at that checkpoint again.
            Some(_) => format!("moviola train --run {}", crate::quoted(folder.as_os_str())),
            None => crate::command_line(),
        }
    }
}

/// A recipe as a run keeps it.
pub(crate) const RECIPE: &str = "recipe.yaml";

/// How a recipe begins that a run keeps.
const KEPT: &str = "# What this run was told, with every default.\n";

/// What a run writes into its folder, its checkpoints aside.
const WRITTEN: [&str; 3] = [RECIPE, report::FILE, "metrics.jsonl"];

/// Refuses a folder whose files would be replaced though no run wrote them.
///
/// # Errors
/// There are some of these names, and no run was there.
pub(crate) fn spare(folder: &Path, written: &[&str]) -> Outcome {
    let refuse = |name: &str| {
        Err(Failure::Refused(format!(
            "--run: {} is there, which no run wrote and this one would replace; move it away, or choose another folder",
            folder.join(name).display()
        )))
    };
    let recipe = folder.join(RECIPE);
    let is_kept = !aside::is_special(&recipe)
        && std::fs::read(&recipe).is_ok_and(|text| text.starts_with(KEPT.as_bytes()));
    if recipe.is_file() && !is_kept {
        return refuse(RECIPE);
    }
    if is_kept || folder.join("checkpoints").is_dir() {
        return Ok(());
    }
    match written.iter().find(|name| folder.join(name).exists()) {
        Some(name) => refuse(name),
        None => Ok(()),
    }
}

/// Builds a run by a recipe of some name, goes on where it stopped, and trains to the end. Every rank does; the first
/// one tells and keeps what there is.
///
/// # Errors
/// Something is wrong with the recipe, a model, the data or the disk, or the user interrupted.
pub(crate) fn learn(
    recipe: &Recipe,
    folder: &Path,
    stop: &Arc<AtomicBool>,
    device: &Device,
    (name, voice): (&str, Voice),
    (going, ranks): (&Going, Ranks),
) -> Outcome<Learnt> {
    let begun = Instant::now();
    let hub = &hub::from_environment(voice);
    let size = ranks.world().size();
    if size > 1 {
        voice.say(&told(ranks.mesh().shape(), recipe.shard(size)?));
    }
    report::check(folder)?;
    spare(folder, &WRITTEN)?;
    let opening = ranks.busy("opening models and data");
    let negative = negative(recipe, device, hub, voice)?;
    let listeners = ranks.is_first().then(|| Listeners::new(recipe, name, folder));
    let environment = Environment {
        folder: Some(folder),
        device: device.clone(),
        ranks,
        hub,
        negative,
        callbacks: listeners.as_ref().map_or_else(Vec::new, |own| own.callbacks(recipe, voice)),
        record: match &listeners {
            Some(own) => own.record(),
            None => Box::new(|_: &Look<'_>| Ok(())),
        },
        watched: Box::new(Looking::new(voice, Arc::clone(stop))),
    };
    let Run { trainer, facts, .. } = recipe.build(environment)?;
    for note in facts.notes.iter().filter(|_| listeners.is_some()) {
        voice.warn(note);
    }
    if let Some(own) = &listeners {
        own.measure(&facts, size)?;
    }
    let mut trainer = trainer.stopping_at(Arc::clone(stop));
    let is_first = listeners.is_some();
    let from = going.resume(&mut trainer, (recipe, folder), device, (voice, is_first))?;
    drop(opening);
    if from >= recipe.run.steps {
        voice.say(&format!(
            "the run is finished: all of its {} steps are over; to go on, add --set loop.steps=N",
            recipe.run.steps
        ));
        return Ok(Learnt { facts, seconds: 0.0, from, step: from });
    }
    if let Some(own) = &listeners {
        keep_recipe(recipe, folder)?;
        own.reporter.built(facts.clone(), from);
    }
    let step = trainer.run()?;
    voice.say(&format!("peak memory: {}", memory("VmHWM:")));
    if step < recipe.run.steps {
        let again = going.again(folder);
        let text = format!("stopped after step {step}; this goes on from there: {again}");
        return Err(Failure::Interrupted(text));
    }
    Ok(Learnt { facts, seconds: begun.elapsed().as_secs_f64(), from, step })
}

/// Who does what, in words.
fn told(mesh: MeshShape, shard: usize) -> String {
    let degree = |axis| mesh.degree(axis);
    let (replicas, sequence) = (degree(Axis::Data), degree(Axis::Ulysses) * degree(Axis::Ring));
    let mut words = format!("{} ranks:", mesh.size().unwrap_or(0));
    if replicas > 1 {
        words += &format!(" {replicas} replicas, each with 1/{replicas} of every batch");
    }
    if sequence > 1 {
        let and = if replicas > 1 { ", of which" } else { "" };
        words += &format!("{and} {sequence} ranks share the tokens of every sample");
        words += &format!(" (ulysses {}, ring {})", degree(Axis::Ulysses), degree(Axis::Ring));
    }
    if degree(Axis::Tensor) > 1 {
        words += &format!("; {} ranks share the matrices", degree(Axis::Tensor));
    }
    words += &match shard {
        1 => "; each holds whole networks".to_owned(),
        _ => format!("; {shard} hold the parameters of every network together"),
    };
    words
}

/// The negative prompt, if the method looks at one. Every rank encodes it for itself, so that no exchange depends on
/// who has an encoder.
fn negative(recipe: &Recipe, device: &Device, hub: &Hub, voice: Voice) -> Outcome<Option<Context>> {
    let negative = recipe.negative(device, hub)?;
    if negative.is_some() {
        let [most, now] = ["VmHWM:", "VmRSS:"].map(memory);
        voice.say(&format!(
            "the negative prompt is encoded and its encoder freed; memory in use: {now}, with the \
             encoder {most}"
        ));
    }
    Ok(negative)
}

/// Who listens to a run and keeps what there is to see of it.
struct Listeners {
    journal: Journal,
    reporter: Reporter,
    goal: Goal,
}

impl Listeners {
    fn new(recipe: &Recipe, name: &str, folder: &Path) -> Listeners {
        let reporter = Reporter::new(recipe, name, folder.to_owned());
        Listeners { journal: Journal::new(folder), reporter, goal: Goal::default() }
    }

    fn callbacks(&self, recipe: &Recipe, voice: Voice) -> Vec<Box<dyn Callback>> {
        let watch = Watch::new(recipe.run.steps, voice).with_goal(self.goal.clone());
        vec![Box::new(watch), Box::new(self.journal.clone()), Box::new(self.reporter.clone())]
    }

    /// Whoever keeps the numbers of validation.
    fn record(&self) -> Recorder {
        let (journal, page) = (self.journal.clone(), self.reporter.clone());
        Box::new(move |look| {
            keep(&journal, look).map_err(|err| train::Error::Callback {
                name: "journal".to_owned(),
                reason: err.to_string(),
            })?;
            page.tell(look.step)
        })
    }

    /// Measures what speed is compared with: the peak of this rank's threads, times the ranks.
    fn measure(&self, facts: &Facts, ranks: usize) -> Outcome {
        let own = kernels::measure_fma_peak(rayon::current_num_threads());
        let flops_per_second = own * ranks as f64;
        let peak = Peak { flops_per_token: facts.flops_per_token, flops_per_second };
        self.goal.set(peak.flops_per_second / peak.flops_per_token);
        let journal = self.journal.clone().with_peak(peak);
        journal.map(drop).map_err(|err| Failure::Refused(err.to_string()))
    }
}

/// Keeps what a look at the student found.
fn keep(journal: &Journal, look: &Look<'_>) -> Outcome {
    let fault = |err: journal::Error| Failure::Refused(err.to_string());
    journal.record(look.step, look.numbers).map_err(fault)?;
    let picture = |(at, clip): (usize, &SeenClip)| -> Outcome<(String, Vec<u8>)> {
        Ok((format!("validation/{at:03} {}", clip.caption), clip.shown()?))
    };
    let pictures = look.clips.iter().enumerate().map(picture).collect::<Outcome<Vec<_>>>()?;
    journal.show(look.step, &pictures).map_err(fault)
}

/// Leaves the recipe in the run, with all that was set and changed, so that the run goes on without another, from any
/// folder.
fn keep_recipe(recipe: &Recipe, folder: &Path) -> Outcome {
    let mut text = KEPT.to_owned();
    if !crate::changes::told(folder)?.is_empty() {
        text += "# Some of it was changed on the way: changes.jsonl says what it was, and after which step.\n";
    }
    text += &recipe.to_yaml()?;
    crate::output::write(&folder.join(RECIPE), text.as_bytes())?;
    let here = std::env::current_dir().unwrap_or_default();
    Ok(recipe.keep_working_folder(folder, &here)?)
}

/// Says where a run goes on.
fn tell(resumed: Option<Resumed>, voice: Voice) {
    let Some(resumed) = resumed else { return };
    for skipped in &resumed.skipped {
        voice.warn(&format!("passing over {}: {}", skipped.path.display(), skipped.reason));
    }
    voice.say(&format!("going on after step {} from {}", resumed.step, resumed.path.display()));
    let recorded = train::checkpoint::read_manifest(&resumed.path);
    if recorded.is_ok_and(|manifest| manifest.origins.is_empty()) {
        voice.warn(
            "that checkpoint is of a version that did not record its dataset and base weights; whether \
             they are the same was not checked",
        );
    }
}

/// A figure of this process's memory, where the system tells.
fn memory(key: &str) -> String {
    let figure = || {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()
    };
    figure().map_or("unknown".to_owned(), |kibibytes| format!("{} MiB", kibibytes / 1024))
}
