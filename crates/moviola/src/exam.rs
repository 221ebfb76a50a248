//! `moviola exam`: what a model of the shapes world can do, in percent.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::Device;
use data::aside::Existing;
use data::world::{Colour, MovingShape, Tone, WorldOptions};
use engine::{Pipeline, Progress, Request, Setup, Solving};
use recipe::{Answer, Exam, Score, ShapesConfig, Task};
use serde_json::json;

use crate::bars::Bars;
use crate::clock::Clock;
use crate::failure::{Failure, Outcome};
use crate::inputs::InputFiles;
use crate::job::Job;
use crate::layout::LayoutArguments;
use crate::ranked::Unseen;
use crate::voice::Voice;
use crate::{hardware, launch, output, places, questions, ranked, signals};

/// Score a model of the shapes world: all scenes twice, from fixed seeds.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Examples:\n  moviola exam --model quickstart/model\n  \
                        moviola exam --model student --timesteps 1000,500 --guidance 1")]
pub(crate) struct Arguments {
    /// A folder that `moviola quickstart` or `moviola export` wrote
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// What a question gives beside its caption: text (nothing), first-frame, picture (the same, as
    /// models of image to video take it), recolour (the same clip in another colour), inpaint (the left
    /// half), with-sound (nothing; the tone is made too) or sound-of-video (the clip and no caption; the
    /// tone is made)
    #[arg(long, value_name = "TASK", default_value = "text", value_parser = task)]
    task: Task,
    /// Answer with what is given and black for the rest, instead of asking the model
    #[arg(long, conflicts_with_all = ["steps", "timesteps", "guidance"])]
    without_model: bool,
    /// Colours to ask for; repeat it for several [default: the four of training]
    #[arg(long, value_name = "WORD", value_parser = colour)]
    colour: Vec<String>,
    /// Frames of a clip
    #[arg(long, value_name = "N", default_value_t = WorldOptions::default().frames)]
    frames: usize,
    /// How many times as high and wide as 32 pixels the world is, all in it included
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=32))]
    enlarged: u16,
    #[command(flatten)]
    sampling: Sampling,
    /// Write everything as JSON
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace that file if it is there
    #[arg(long, requires = "output")]
    overwrite: bool,
    /// Leave a folder for each question: what it gives, the answer, and the command that makes it
    #[arg(long, value_name = "DIR", conflicts_with = "without_model")]
    questions: Option<PathBuf>,
    /// Threads [default: one per core, divided by the ranks]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    #[command(flatten)]
    layout: LayoutArguments,
}

/// How clips are made.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Sampling {
    /// Denoising steps [default: 16, or the timesteps that a distilled model's folder records]
    #[arg(long, value_name = "N")]
    pub(crate) steps: Option<usize>,
    /// Falling timesteps of a distilled model, instead of steps
    #[arg(long, value_name = "T,..", value_delimiter = ',', conflicts_with = "steps")]
    pub(crate) timesteps: Option<Vec<f64>>,
    /// Guidance scale [default: 2, or 1 for a distilled model]
    #[arg(long, value_name = "G")]
    pub(crate) guidance: Option<f64>,
}

/// A task by its name.
fn task(name: &str) -> Result<Task, String> {
    let found = Task::ALL.into_iter().find(|(known, _)| *known == name);
    found.map(|(_, task)| task).ok_or_else(|| {
        let names = Task::ALL.map(|(name, _)| name).join(", ");
        format!("there is no such task; there are {names}")
    })
}

/// A colour that the world knows.
fn colour(word: &str) -> Result<String, String> {
    let known = Colour::KNOWN.map(Colour::word);
    match known.contains(&word) {
        true => Ok(word.to_owned()),
        false => Err(format!("there is no such colour; there are {}", known.join(", "))),
    }
}

/// Runs an exam and prints the marks.
///
/// # Errors
/// The folder is no model of the shapes world, or the user interrupted.
pub(crate) fn run(arguments: &Arguments, voice: Voice, clock: &Clock) -> Outcome {
    let timeout = arguments.layout.timeout();
    Job::run(arguments.threads, timeout, |job| examine(arguments, job, (voice, clock)))
}

fn examine(arguments: &Arguments, job: &Job, (voice, clock): (Voice, &Clock)) -> Outcome {
    let task = arguments.task;
    if let Some(path) = &arguments.output {
        InputFiles::of_model(&arguments.model).spare(path)?;
        let existing = if arguments.overwrite { Existing::Replace } else { Existing::Refuse };
        places::spare_existing(path, existing, "--output")?;
        if data::aside::is_pipe(path) {
            let reason = format!(
                "--output: {} is a pipe; give a file, or - for the standard output",
                path.display()
            );
            return Err(Failure::Refused(reason));
        }
    }
    if let Some(folder) = &arguments.questions {
        questions::spare(folder)?;
    }
    if arguments.layout.is_given() && arguments.questions.is_some() {
        let reason = "--questions: they are answered again by one rank; leave the ranks out";
        return Err(Failure::refused(reason));
    }
    let tone = task.sounds().then(Tone::default);
    let usual = WorldOptions::default().enlarged(usize::from(arguments.enlarged));
    let world = WorldOptions { tone, frames: arguments.frames, ..usual };
    let shapes =
        ShapesConfig { world, colours: arguments.colour.clone(), ..ShapesConfig::default() };
    let mut bars = Bars::new(voice, clock, signals::watch(voice)?);
    let mut silenced = false;
    let answers = match arguments.without_model {
        true if arguments.layout.is_given() => {
            let reason = "--without-model: nothing runs, so ranks would do nothing; leave them out";
            return Err(Failure::refused(reason));
        }
        true => Exam::new(task, shapes.world()?, &shapes.scenes()?).without_a_model()?,
        false => {
            let mut model = Pipeline::open(&arguments.model, &Setup::new(&Device::flex()))?;
            silenced = model.description().sound.is_some() && !task.sounds();
            match arguments.layout.is_given() {
                true => sit_together(arguments, job, (&mut model, &shapes), &mut bars)?,
                false => sit(&mut model, task, &shapes, &arguments.sampling, &mut bars)?,
            }
        }
    };
    bars.finish();
    if !launch::is_first() {
        return Ok(());
    }
    if let Some(folder) = &arguments.questions {
        let sampling = arguments.sampling.for_exams();
        let exam = Exam::new(task, shapes.world()?, &shapes.scenes()?);
        let request = Request { without_audio: silenced, ..exam.request(&sampling)? };
        questions::write(folder, &arguments.model, &request, &answers)?;
    }
    let score = Score::new(&answers, &[]);
    if let Some(path) = &arguments.output {
        let mut value = score.value(&answers);
        value["seconds"] = json!(clock.seconds());
        let text = serde_json::to_string_pretty(&value).expect("a score is JSON");
        output::write(path, (text + "\n").as_bytes())?;
    }
    match arguments.output.as_deref().is_some_and(data::aside::is_stdout) {
        // The standard output has the score for programs.
        true => voice.say(&lines(&score)),
        false => crate::say(format_args!("{}\n", lines(&score)))?,
    }
    Ok(())
}

/// Has a model answer on several ranks; the first gets the answers, and shows how far it is.
fn sit_together(
    arguments: &Arguments,
    job: &Job,
    (model, shapes): (&mut Pipeline, &ShapesConfig),
    bars: &mut Bars<'_>,
) -> Outcome<Vec<Answer>> {
    let Arguments { task, layout, sampling, threads, .. } = arguments;
    let exam = exam(*task, shapes)?;
    let request = exam.request_to(model, &sampling.for_exams()).map_err(of_arguments)?;
    let work = model.work(&request)?;
    let plan = layout.plan(&work, &hardware::here(&work, job)?)?;
    if matches!(job, Job::Alone) {
        model.open_all()?;
    }
    let interrupted = bars.flag();
    let bars = Mutex::new(bars);
    ranked::on_ranks(job, (layout, &plan), model, *threads, |rank, own| match rank {
        0 => {
            let mut bars = bars.lock().unwrap_or_else(PoisonError::into_inner);
            sit(own, *task, shapes, sampling, &mut **bars)
        }
        _ => sit(own, *task, shapes, sampling, &mut Unseen(Arc::clone(&interrupted))),
    })
}

/// Has a model answer every question about a world.
///
/// # Errors
/// The model does not fit the world, or the user interrupted.
pub(crate) fn sit(
    model: &mut Pipeline,
    task: Task,
    shapes: &ShapesConfig,
    sampling: &Sampling,
    progress: &mut dyn Progress,
) -> Outcome<Vec<Answer>> {
    let answers = exam(task, shapes)?.sit(model, &sampling.for_exams(), progress);
    answers.map_err(of_arguments)
}

/// The questions about a world, those included that a training withholds.
fn exam(task: Task, shapes: &ShapesConfig) -> Outcome<Exam> {
    let scenes: Vec<MovingShape> =
        ShapesConfig { withheld: Vec::new(), ..shapes.clone() }.scenes()?;
    Ok(Exam::new(task, shapes.world()?, &scenes))
}

/// What is asked for comes from arguments here, not from a recipe.
fn of_arguments(error: recipe::Error) -> Failure {
    match error {
        recipe::Error::Engine(engine::Error::Request { field, reason }) if field.is_given() => {
            let given = field.name().replace('_', " ");
            Failure::Refused(format!("--task: its questions give the model a {given}: {reason}"))
        }
        recipe::Error::Engine(error) => error.into(),
        error => error.into(),
    }
}

impl Sampling {
    fn for_exams(&self) -> recipe::Sampling {
        recipe::Sampling {
            steps: self.steps,
            solving: self.timesteps.clone().map_or(Solving::Recorded, Solving::Renoise),
            guidance: self.guidance,
        }
    }
}

/// The marks in a few lines; the last one is the score.
pub(crate) fn lines(score: &Score) -> String {
    let [shape, colour, direction] = score.attributes;
    let mut text = format!("shape {shape}, colour {colour}, direction {direction}");
    if let Some(tone) = score.tone {
        text += &format!(", tone {tone}");
    }
    if let Some(kept) = score.kept {
        text += &format!("; what was given is kept at {kept:.1} dB or more");
    }
    if score.withheld.of > 0 {
        text += &format!("; scenes never seen: {}", score.withheld);
    }
    format!("{text}\nscore {:.1} % ({})", score.all.percent(), score.all)
}
