//! `cargo xtask learn`: what models of the shapes world learn, in percent, each through the binary.
//!
//! A lesson trains by a recipe and has the result examined. Most start from the model of another,
//! which runs before them: `base`, or `sound`. The answers of a lesson's first exam are made again by
//! `moviola generate`, question by question, and compared by their bytes: equal answers have equal
//! marks. Results go to benches/LEARNING.md.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process::{self, command};
use crate::wan_i2v;

/// What the table says of a goal that was missed.
const MISSED: &str = "not reached";

/// Where results are written.
const RESULTS: &str = "benches/LEARNING.md";

/// Which lessons to run.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Lessons by name; all if none is named
    names: Vec<String>,
    /// A trained model of the shapes world to start from, instead of the lesson `base`
    #[arg(long, value_name = "DIR")]
    base: Option<PathBuf>,
    /// For `wan-i2v`: this interpreter, which has tools/goldens/requirements.txt installed, instead of
    /// making target/venv-goldens
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Write the results to benches/LEARNING.md
    #[arg(long)]
    record: bool,
}

/// A recipe and what is asked of its result.
struct Lesson {
    name: &'static str,
    recipe: &'static str,
    /// The lesson whose model it starts from, and the roles that do.
    from: (&'static str, &'static [&'static str]),
    exams: &'static [Question],
}

/// One exam.
struct Question {
    about: &'static str,
    arguments: &'static str,
    /// Where the percentage stands in the exam's output.
    mark: &'static str,
    /// At least so many percent.
    goal: f64,
}

const fn ask(
    about: &'static str,
    arguments: &'static str,
    mark: &'static str,
    goal: f64,
) -> Question {
    Question { about, arguments, mark, goal }
}

const SCORE: &str = "/score/percent";
const ALONE: &str = "--task inpaint --without-model";
/// Without a caption there is nothing to be guided by.
const SOUND_OF_VIDEO: &str = "--task sound-of-video --guidance 1";
const TONE: &str = "/tone/percent";
const KEPT: &str = "/kept_decibels";

const PICTURE: &str = "--task picture --frames 9 --enlarged 2 --steps 16 --guidance 2";

const LESSONS: [Lesson; 9] = [
    Lesson {
        name: "base",
        recipe: "recipes/reference.yaml",
        from: ("base", &[]),
        exams: &[
            ask("text to video, 16 steps", "", SCORE, 95.0),
            ask("text to video, 32 steps", "--steps 32", SCORE, 95.0),
            ask("two steps, no guidance (for comparison)", "--steps 2 --guidance 1", SCORE, 0.0),
            ask("one step, no guidance (for comparison)", "--steps 1 --guidance 1", SCORE, 0.0),
        ],
    },
    Lesson {
        name: "first-frame",
        recipe: "recipes/learn/first-frame.yaml",
        from: ("base", &["student"]),
        exams: &[
            ask("first frame given, caption obeyed", "--task first-frame", SCORE, 85.0),
            ask(
                "first frame kept before it is put back, dB at worst",
                "--task first-frame",
                KEPT,
                20.0,
            ),
        ],
    },
    Lesson {
        name: "wan-i2v",
        recipe: "recipes/learn/wan-i2v.yaml",
        // The folder that it starts from is made for it.
        from: ("wan-i2v", &[]),
        exams: &[
            ask("first picture given to a Wan, caption obeyed", PICTURE, SCORE, 85.0),
            ask("first picture kept, dB at worst", PICTURE, KEPT, 20.0),
        ],
    },
    Lesson {
        name: "recolour",
        recipe: "recipes/learn/recolour.yaml",
        from: ("base", &["student"]),
        exams: &[ask("recoloured as the caption says", "--task recolour", SCORE, 85.0)],
    },
    Lesson {
        name: "inpaint",
        recipe: "recipes/learn/inpaint.yaml",
        from: ("base", &["student"]),
        exams: &[
            ask("left half given", "--task inpaint", SCORE, 85.0),
            ask("the left half alone (for comparison)", ALONE, SCORE, 0.0),
        ],
    },
    Lesson {
        name: "sound",
        recipe: "recipes/learn/sound.yaml",
        from: ("base", &[]),
        exams: &[
            ask("pitch of the tone made with the clip", "--task with-sound", TONE, 85.0),
            ask("pitch and clip", "--task with-sound", SCORE, 0.0),
        ],
    },
    Lesson {
        name: "sound-of-video",
        recipe: "recipes/learn/sound-of-video.yaml",
        from: ("sound", &["student"]),
        exams: &[ask("pitch of the tone made for a clip", SOUND_OF_VIDEO, TONE, 85.0)],
    },
    Lesson {
        name: "lora",
        recipe: "recipes/learn/lora.yaml",
        from: ("base", &["student"]),
        exams: &[
            ask("a colour never seen before", "--colour magenta", SCORE, 85.0),
            ask("the old colours (90 % of before)", "", SCORE, 85.5),
        ],
    },
    Lesson {
        name: "dmd2",
        recipe: "recipes/learn/dmd2.yaml",
        from: ("base", &["student", "teacher", "critic"]),
        exams: &[
            // Eight points below the teacher, which has 100 % at 32 steps.
            ask("two steps, no guidance", "--timesteps 1000,600 --guidance 1", SCORE, 92.0),
            ask("one step, no guidance", "--timesteps 1000 --guidance 1", SCORE, 60.0),
        ],
    },
];

/// Runs lessons in order and prints a table.
///
/// # Errors
/// A lesson has another name, or a command fails.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let known: Vec<&str> = LESSONS.iter().map(|lesson| lesson.name).collect();
    if let Some(name) = options.names.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("there is no lesson `{name}`; there are {}", known.join(", "));
    }
    process::run(&mut command("cargo", "build --release", root))?;
    let mut rows = Vec::new();
    for lesson in &LESSONS {
        if options.names.is_empty() || options.names.iter().any(|name| name == lesson.name) {
            rows.extend(lesson.run(root, options)?);
        }
    }
    let table = format!(
        "| lesson | exam | result | goal | | the same through `generate` | training, s |\n\
         |---|---|--:|--:|---|--:|--:|\n{}",
        rows.concat()
    );
    println!("{table}");
    if options.record {
        let names = options.names.join(" ");
        let text = format!("`cargo xtask learn {names}`\n\n{table}\n");
        let path = root.join(RESULTS);
        let before = fs::read_to_string(&path).unwrap_or_default();
        fs::write(&path, format!("{before}\n{text}"))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    match table.contains(MISSED) {
        false => Ok(()),
        true => bail!("a goal was not reached; the table above says which"),
    }
}

/// The folder of a lesson.
fn folder(root: &Path, name: &str) -> PathBuf {
    root.join("target/learn").join(name)
}

impl Lesson {
    /// Trains and examines; returns a row of the table for each exam.
    fn run(&self, root: &Path, options: &Options) -> Result<Vec<String>> {
        let own = folder(root, self.name);
        fs::create_dir_all(&own).with_context(|| format!("cannot make {}", own.display()))?;
        let given = options.base.as_deref();
        let sets = match self.name {
            "wan-i2v" => wan_i2v::make(root, &own, options.python.as_deref())?,
            _ => Vec::new(),
        };
        let begun = Instant::now();
        let mut train = moviola(root);
        train.arg("train").arg(self.recipe).arg("--run").arg(own.join("run"));
        let (lesson, roles) = self.from;
        let trained = folder(root, lesson).join("model");
        let base = given.filter(|_| lesson == "base").map_or(trained, Path::to_path_buf);
        for role in roles {
            train.arg("--set").arg(format!("models.{role}.from={}", base.display()));
        }
        for set in &sets {
            train.arg("--set").arg(set);
        }
        process::run(&mut train)?;
        let seconds = begun.elapsed().as_secs_f64();
        let model = own.join("model");
        if model.exists() {
            fs::remove_dir_all(&model)?;
        }
        let mut export = moviola(root);
        export.arg("export").arg(own.join("run")).arg("--output").arg(&model);
        export.args(["--as", "folder"]);
        if fs::read_to_string(root.join(self.recipe))?.contains("ema:") {
            export.arg("--ema");
        }
        process::run(&mut export)?;
        let exams = self.exams.iter().enumerate();
        exams.map(|(at, exam)| exam.row(root, self.name, seconds, at == 0)).collect()
    }
}

impl Question {
    /// Sits the exam; `again` has its answers made by `generate` as well.
    fn row(&self, root: &Path, lesson: &str, seconds: f64, again: bool) -> Result<String> {
        let own = folder(root, lesson);
        let (output, questions) = (own.join("exam.json"), own.join("questions"));
        if questions.exists() {
            fs::remove_dir_all(&questions)?;
        }
        let mut exam = moviola(root);
        exam.arg("exam").arg("--model").arg(own.join("model"));
        exam.arg("--output").arg(&output).arg("--overwrite");
        exam.args(self.arguments.split_whitespace());
        if again {
            exam.arg("--questions").arg(&questions);
        }
        process::run(&mut exam)?;
        let value: Value = serde_json::from_str(&fs::read_to_string(&output)?)?;
        let mark = value.pointer(self.mark).and_then(Value::as_f64);
        let mark = mark.with_context(|| format!("the exam has no {}", self.mark))?;
        let met = match self.goal {
            0.0 => "",
            goal if mark >= goal => "met",
            _ => MISSED,
        };
        let same = if again { made_again(root, &questions)? } else { String::new() };
        let (about, goal) = (self.about, self.goal);
        Ok(format!("| {lesson} | {about} | {mark:.1} | {goal} | {met} | {same} | {seconds:.0} |\n"))
    }
}

/// Has `generate` answer every question by the command that the exam left, and counts the answers
/// whose frames and sound are the same bytes.
fn made_again(root: &Path, questions: &Path) -> Result<String> {
    let folders = sorted(questions)?;
    let mut same = 0;
    for own in &folders {
        let text = fs::read_to_string(own.join("command.json"))?;
        let words: Vec<String> = serde_json::from_str(&text)?;
        let mut generate = moviola(root);
        generate.args(words).arg("--output").arg(own.join("again"));
        process::output(&mut generate)?;
        let frames = |name: &str| -> Result<Vec<Vec<u8>>> {
            sorted(&own.join(name))?.iter().map(|file| Ok(fs::read(file)?)).collect()
        };
        let sounds = ["answer.wav", "again.wav"].map(|name| fs::read(own.join(name)).ok());
        same += usize::from(frames("answer")? == frames("again")? && sounds[0] == sounds[1]);
    }
    Ok(format!("{same} of {}", folders.len()))
}

/// What is in a folder, by name.
fn sorted(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

pub(crate) fn moviola(root: &Path) -> Command {
    let mut command = Command::new(root.join("target/release/moviola"));
    command.current_dir(root);
    command
}
