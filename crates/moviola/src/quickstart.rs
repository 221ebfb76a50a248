//! `moviola quickstart`: a model learns the shapes world before your eyes.

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use data::media::FrameRate;
use engine::{Pipeline, Setup};
use folder::ModelFolder;
use journal::Page;
use recipe::{Recipe, Score, ShapesConfig, SourceConfig, Student, Task, Which};
use serde_json::{Value, json};

use crate::bars::Bars;
use crate::clock::Clock;
use crate::exam::{self, Sampling};
use crate::failure::{Failure, Outcome};
use crate::report::Told;
use crate::session::{self, Going, Learnt};
use crate::voice::Voice;
use crate::{hub, output, report, signals, threads};

/// How the clips are made.
const SAMPLING: Sampling = Sampling { steps: Some(16), timesteps: None, guidance: Some(2.0) };

/// The recipe, so that the binary needs no other file.
const RECIPE: &str = include_str!("../../../recipes/quickstart.yaml");

/// Where everything is in numbers.
const SUMMARY: &str = "summary.json";

/// What it is called among others.
const BUILT_IN: &str = "recipes/quickstart.yaml";

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
pub(crate) fn run(arguments: &Arguments, voice: Voice, clock: &Clock) -> Outcome {
    let recipe = match &arguments.recipe {
        Some(path) => Recipe::read(path, &arguments.set)?,
        None => Recipe::parse(RECIPE, Path::new(BUILT_IN), &arguments.set)?,
    };
    let shapes = shapes(&recipe)?;
    threads::within(arguments.threads, || show(arguments, (&recipe, shapes), voice, clock))
}

fn show(
    arguments: &Arguments,
    (recipe, shapes): (&Recipe, &ShapesConfig),
    voice: Voice,
    clock: &Clock,
) -> Outcome {
    let stop = signals::watch(voice)?;
    let (device, folder) = (Device::flex(), &arguments.run);
    let model = folder.join("model");
    let earlier = is_ours(&model)?;
    session::spare(folder, &["model", "clips", SUMMARY])?;
    let name = match &arguments.recipe {
        Some(path) => path.display().to_string(),
        None => BUILT_IN.to_owned(),
    };
    let alone = (&Going::default(), train::Ranks::alone());
    let learnt = session::learn(recipe, folder, &stop, &device, (&name, voice), alone)?;
    if earlier {
        // It may be of a shorter run.
        std::fs::remove_dir_all(&model).map_err(|err| {
            Failure::Refused(format!("cannot replace {}: {err}", model.display()))
        })?;
    }
    let which = if recipe.callbacks.ema.is_some() { Which::Average } else { Which::Live };
    Student::open(folder, which, &device, &hub::from_environment(voice))?.write_folder(&model)?;
    let mut bars = Bars::new(voice, clock, stop);
    let mut pipeline = Pipeline::open(&model, &Setup::new(&device))?;
    let answers = exam::sit(&mut pipeline, Task::Text, shapes, &SAMPLING, &mut bars)?;
    bars.finish();
    let score = Score::new(&answers, &shapes.withheld);
    let mut summary = score.value(&answers);
    summary["steps"] = json!(recipe.run.steps);
    summary["seconds"] = json!(clock.seconds());
    write_summary(folder, summary, &learnt)?;
    let page = Page::new("Shapes that move as they are told");
    let rate = FrameRate::from_number(pipeline.description().defaults.frame_rate)?;
    let page = report::with_exam(page, &score, &answers, shapes, (folder, rate))?;
    let told = Told { recipe, name: &name, learnt: &learnt, folder };
    let page = report::with_run(page, &told)?;
    report::write(page, folder)?;
    crate::say(format_args!(
        "model    {}\nreport   {}\nsummary  {}\n{}\n",
        model.display(),
        folder.join(report::FILE).display(),
        folder.join(SUMMARY).display(),
        exam::lines(&score)
    ))?;
    Ok(())
}

/// Whether an earlier part of this run left its model there.
///
/// # Errors
/// Something else is there, which will not be removed.
fn is_ours(model: &Path) -> Outcome<bool> {
    if !model.exists() {
        return Ok(false);
    }
    let described = ModelFolder::open(model).ok().and_then(|own| families::describe(&own).ok());
    match described {
        // Only a family that can begin anew is made here, and the files of an export are in folders but for its index.
        Some(described) if described.family.scratch.is_some() => {
            let others = std::fs::read_dir(model).into_iter().flatten().flatten();
            let other = others
                .map(|entry| entry.path())
                .find(|path| !path.is_dir() && !path.ends_with("model_index.json"));
            other.map_or(Ok(true), |path| {
                Err(Failure::Refused(format!(
                    "{} is in the folder that quickstart replaces; move it away, or choose another folder with --run",
                    path.display()
                )))
            })
        }
        _ => Err(Failure::Refused(format!(
            "{} is not a model that quickstart made; move it away, or choose another folder with --run",
            model.display()
        ))),
    }
}

/// The world that a recipe is about.
fn shapes(recipe: &Recipe) -> Outcome<&ShapesConfig> {
    match &recipe.data.source {
        SourceConfig::Shapes(shapes) => Ok(shapes),
        SourceConfig::Store(_) | SourceConfig::Mix(_) => Err(Failure::Refused(
            "quickstart is about the shapes world; run other recipes with `moviola train`"
                .to_owned(),
        )),
    }
}

/// Everything in numbers.
fn write_summary(folder: &Path, mut summary: Value, learnt: &Learnt) -> Outcome {
    summary["resumed_after"] = json!(learnt.from);
    summary["parameters"] = json!(learnt.facts.parameters);
    summary["training_seconds"] = json!(learnt.seconds);
    summary["denoising_steps"] = json!(SAMPLING.steps);
    summary["guidance"] = json!(SAMPLING.guidance);
    let text = serde_json::to_string_pretty(&summary).expect("a summary is JSON");
    Ok(output::write(&folder.join(SUMMARY), (text + "\n").as_bytes())?)
}
