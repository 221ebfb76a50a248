//! `moviola quickstart`: a model learns the shapes world before your eyes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use burn::tensor::Device;
use recipe::{
    Answer, FREE, Facts, Model, Recipe, Run, Score, ShapesConfig, Site, SourceConfig, Student,
    Task, Texts, Which,
};
use serde_json::json;

use crate::bars::Bars;
use crate::clock::Clock;
use crate::exam::{self, Sampling};
use crate::failure::{Failure, Outcome};
use crate::watch::Watch;
use crate::{output, signals, threads, train as command};

/// How the clips are made.
const SAMPLING: Sampling = Sampling { steps: 16, timesteps: None, guidance: 2.0 };

/// The recipe, so that the binary needs no other file.
const RECIPE: &str = include_str!("../../../recipes/quickstart.yaml");

/// Train a tiny text-to-video model on the shapes world, and score it.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Examples:\n  moviola quickstart\n  moviola quickstart --run elsewhere")]
pub(crate) struct Arguments {
    /// The folder of the run; a run that is there goes on
    #[arg(long, value_name = "DIR", default_value = "quickstart")]
    run: PathBuf,
    /// Another recipe for the shapes world than the built-in one
    #[arg(long, value_name = "FILE")]
    recipe: Option<PathBuf>,
    /// Replace a value of the recipe; repeat it for several
    #[arg(long, value_name = "KEY.KEY=VALUE")]
    set: Vec<String>,
    /// Threads [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

/// Trains, makes clips, judges them, writes everything, and says where.
///
/// # Errors
/// The recipe is not for the shapes world, the disk is full, or the user interrupted.
pub(crate) fn run(arguments: &Arguments, clock: &Clock) -> Outcome {
    let recipe = match &arguments.recipe {
        Some(path) => Recipe::read(path, &arguments.set)?,
        None => Recipe::parse(RECIPE, Path::new("recipes/quickstart.yaml"), &arguments.set)?,
    };
    let shapes = shapes(&recipe)?;
    threads::within(arguments.threads, || show(arguments, (&recipe, shapes), clock))
}

fn show(
    arguments: &Arguments,
    (recipe, shapes): (&Recipe, &ShapesConfig),
    clock: &Clock,
) -> Outcome {
    let stop = signals::watch()?;
    let (device, folder) = (Device::flex(), &arguments.run);
    let learnt = learn(recipe, folder, &stop, &device)?;
    let model = folder.join("model");
    if !model.exists() {
        let which = if recipe.callbacks.ema.is_some() { Which::Average } else { Which::Live };
        Student::open(folder, which, &device)?.write_folder(&model)?;
    }
    let mut bars = Bars::new(clock, stop);
    let answers =
        exam::sit(&Model::open(&model, &device)?, (Task::Text, shapes), &SAMPLING, &mut bars)?;
    bars.finish();
    let score = Score::new(&answers, &shapes.withheld);
    write_summary(folder, recipe, (&score, &answers), (&learnt, clock))?;
    crate::say(format_args!(
        "model    {}\nsummary  {}\n{}\n",
        model.display(),
        folder.join("summary.json").display(),
        exam::lines(&score)
    ))?;
    Ok(())
}

/// The world that a recipe is about.
fn shapes(recipe: &Recipe) -> Outcome<&ShapesConfig> {
    match &recipe.data.source {
        SourceConfig::Shapes(shapes) => Ok(shapes),
        SourceConfig::Store(_) => Err(Failure::Refused(
            "quickstart is about the shapes world; run other recipes with `moviola train`"
                .to_owned(),
        )),
    }
}

/// A training that is over.
struct Learnt {
    facts: Facts,
    /// How long it took in this process.
    seconds: f64,
    /// The step it began after.
    from: u64,
}

fn learn(
    recipe: &Recipe,
    folder: &Path,
    stop: &Arc<AtomicBool>,
    device: &Device,
) -> Outcome<Learnt> {
    let begun = Instant::now();
    let callbacks: Vec<Box<dyn train::Callback>> = vec![Box::new(Watch::new(recipe.run.steps))];
    let texts = Texts::default();
    let record: recipe::Recorder = Box::new(|_, _| Ok(()));
    let site = Site { folder: Some(folder), device: device.clone(), texts, callbacks, record };
    let Run { trainer, facts, .. } = recipe.build(site)?;
    let mut trainer = trainer.stopping_at(Arc::clone(stop));
    let resumed = trainer.resume(&FREE, device)?;
    let from = resumed.as_ref().map_or(0, |resumed| resumed.step);
    command::tell(resumed);
    let step = trainer.run()?;
    if step < recipe.run.steps {
        let text = format!("stopped after step {step}; `moviola quickstart` goes on from there");
        return Err(Failure::Interrupted(text));
    }
    Ok(Learnt { facts, seconds: begun.elapsed().as_secs_f64(), from })
}

/// Everything in numbers.
fn write_summary(
    folder: &Path,
    recipe: &Recipe,
    (score, answers): (&Score, &[Answer]),
    (learnt, clock): (&Learnt, &Clock),
) -> Outcome {
    let mut summary = score.value(answers);
    summary["steps"] = json!(recipe.run.steps);
    summary["resumed_after"] = json!(learnt.from);
    summary["parameters"] = json!(learnt.facts.parameters);
    summary["training_seconds"] = json!(learnt.seconds);
    summary["seconds"] = json!(clock.seconds());
    summary["denoising_steps"] = json!(SAMPLING.steps);
    summary["guidance"] = json!(SAMPLING.guidance);
    let text = serde_json::to_string_pretty(&summary).expect("a summary is JSON");
    Ok(output::write(&folder.join("summary.json"), (text + "\n").as_bytes())?)
}
