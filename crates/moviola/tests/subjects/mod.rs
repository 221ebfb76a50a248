//! What is asked for on several ranks, as threads and as processes: every folder that diffusers saved, a model of the
//! quickstart's kind with a first frame, a reference and a sound, and a LoRA.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};

const MOVIOLA: &str = env!("CARGO_BIN_EXE_moviola");

/// How far the latents of another order of sums may be off, of their norm.
const ROUNDING: f64 = 1e-5;

/// Something to make, by one sample or several.
pub(crate) struct Subject {
    pub(crate) name: String,
    /// What `moviola` is given but for outputs and ranks.
    pub(crate) words: Vec<String>,
}

fn repository() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Runs the command alone.
fn done(words: &[String]) {
    let output = Command::new(MOVIOLA).args(words).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words:?}: {message}");
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// All of them; what must be made for them is left in a folder.
pub(crate) fn all(folder: &Path) -> Vec<Subject> {
    let mut subjects = folders();
    subjects.push(with_lora(folder));
    subjects.extend(of_the_world(folder));
    assert!(subjects.len() >= 13, "{}", subjects.len());
    subjects
}

/// Every golden folder of a pipeline.
fn folders() -> Vec<Subject> {
    let goldens = repository().join("goldens");
    let entries = fs::read_dir(goldens).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> =
        entries.filter(|it| it.join("model_index.json").is_file()).collect();
    paths.sort();
    paths.iter().map(|path| of_folder(path)).collect()
}

fn of_folder(path: &Path) -> Subject {
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    let mut words = owned(&["generate", "--model", &text(path), "--prompt", "a red fox"]);
    words.extend(owned(&["--steps", "3", "--seed", "5", "--max-tokens", "16"]));
    words.extend(owned(&["--height", "64", "--width", "32"]));
    if !name.starts_with("pixart") {
        words.extend(owned(&["--frames", "9"]));
    }
    if name.starts_with("ltx2") {
        // Their models skip blocks that these folders do not have.
        words.extend(owned(&["--stg-blocks", "0"]));
    }
    if name.ends_with("i2v") {
        words
            .extend(["--image".to_owned(), text(&repository().join("goldens/pictures/photo.png"))]);
    }
    Subject { name, words }
}

/// Writes a LoRA for `wan-tiny` that changes one layer so much, by the names of diffusers.
pub(crate) fn lora(path: &Path, strength: f32) {
    let value = |at: usize| strength * ((at % 7) as f32 * 0.1 - 0.3);
    let bytes: Vec<u8> = (0..48).flat_map(|at| value(at).to_le_bytes()).collect();
    let layer = "transformer.blocks.0.attn1.to_q";
    let tensors = [("A", vec![2, 24]), ("B", vec![24, 2])].map(|(part, shape)| {
        let view = TensorView::new(Dtype::F32, shape, &bytes).unwrap();
        (format!("{layer}.lora_{part}.weight"), view)
    });
    fs::write(path, safetensors::serialize(tensors, None).unwrap()).unwrap();
}

/// A folder with a LoRA.
fn with_lora(folder: &Path) -> Subject {
    let path = folder.join("lora.safetensors");
    lora(&path, 1.0);
    let mut own = of_folder(&repository().join("goldens/wan-tiny"));
    own.words.extend(["--lora".to_owned(), text(&path)]);
    Subject { name: "wan-tiny with a LoRA".to_owned(), ..own }
}

/// A small model of the quickstart's kind, and what its exams ask: a caption, a first frame, another clip to recolour,
/// and a tone.
fn of_the_world(folder: &Path) -> Vec<Subject> {
    let (run, model) = (folder.join("run"), folder.join("model"));
    let mut train = owned(&["train", &text(&repository().join("recipes/learn/sound.yaml"))]);
    train.extend(owned(&["--run", &text(&run), "--threads", "2"]));
    for set in [
        "models.student.new={family: duet, video_channels: 384, text_width: 64, heads: 4, head_width: 8, \
         depth: 2, audio_channels: 250}",
        "data.batch=2",
        "data.source.clips=40",
        "loop.steps=4",
        "models.student.rate.warmup=2",
    ] {
        train.extend(owned(&["--set", set]));
    }
    done(&train);
    done(&owned(&["export", &text(&run), "--output", &text(&model)]));
    let asked = |task: &str| {
        let questions = folder.join(task);
        let exam =
            ["exam", "--model", &text(&model), "--task", task, "--steps", "2", "--questions"];
        done(&[owned(&exam), vec![text(&questions)]].concat());
        let command = fs::read_to_string(questions.join("017/command.json")).unwrap();
        let words: Vec<String> = serde_json::from_str(&command).unwrap();
        Subject { name: format!("the world's {task}"), words }
    };
    ["text", "first-frame", "recolour", "with-sound"].into_iter().map(asked).collect()
}

/// The latents that a command leaves, all tracks one after another.
pub(crate) fn latents(
    subject: &Subject,
    run: impl Fn(&[&str]) -> Output,
    layout: &[&str],
) -> Vec<f32> {
    let folder = tempfile::tempdir().unwrap();
    let files = ["clip.gif", "latents.safetensors"].map(|name| text(&folder.path().join(name)));
    let ending = if subject.name.starts_with("pixart") { "png" } else { "gif" };
    let clip = Path::new(&files[0]).with_extension(ending);
    let mut words: Vec<&str> = subject.words.iter().map(String::as_str).collect();
    let clip = text(&clip);
    words.extend(["--output", &clip, "--save-latents", &files[1], "--timeout", "60"]);
    let output = run(&[&words[..], layout].concat());
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{} at {layout:?}: {message}", subject.name);
    let bytes = fs::read(&files[1]).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut names = file.names();
    names.sort();
    let data = names.iter().flat_map(|name| file.tensor(name).unwrap().data().to_vec());
    let data: Vec<u8> = data.collect();
    data.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
}

/// Fails unless two results are one, but for the order of sums.
#[track_caller]
pub(crate) fn compare(name: &str, got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len(), "{name}");
    let norm = |values: &mut dyn Iterator<Item = f32>| {
        values.map(|value| f64::from(value).powi(2)).sum::<f64>().sqrt()
    };
    let size = norm(&mut want.iter().copied());
    let off = norm(&mut got.iter().zip(want).map(|(a, b)| a - b)) / size;
    assert!(size > 0.0 && off <= ROUNDING, "{name}: off by {off:e} of {size}");
}

/// Layouts of two ranks, one of them with keys that are a step old.
pub(crate) const LAYOUTS: [&[&str]; 4] = [
    &["--ulysses", "2"],
    &["--cfg", "2"],
    &["--data", "2"],
    &["--pipefusion", "2", "--patches", "2"],
];

/// Steps and guidance of the prompts below.
const OF_ALL: [&str; 4] = ["--steps", "4", "--guidance", "3"];

/// A file of prompts of two sizes and step counts, the first once more at the end, and how many samples it asks for.
pub(crate) fn prompts(file: &Path) -> (Vec<String>, usize) {
    let lines = [
        r#"{"prompt": "a fox", "height": 32, "width": 48, "seed": 5}"#,
        r#"{"prompt": "an owl", "height": 64, "width": 32, "seed": 5}"#,
        r#"{"prompt": "an owl", "height": 64, "width": 32, "steps": 3, "seed": 6}"#,
        r#"{"prompt": "a fox", "height": 32, "width": 48, "seed": 5}"#,
    ];
    fs::write(file, lines.join("\n")).unwrap();
    let path = text(file);
    let words = [&OF_ALL[..], &["--prompts", &path, "--timeout", "60"]].concat();
    (owned(&words), lines.len())
}

/// The same prompts as they are typed one by one.
pub(crate) fn alone() -> Vec<Vec<&'static str>> {
    let one = |prompt, height, width, steps, seed| {
        let sizes = ["--prompt", prompt, "--height", height, "--width", width];
        [&sizes[..], &["--steps", steps, "--guidance", "3", "--seed", seed]].concat()
    };
    let fox = one("a fox", "32", "48", "4", "5");
    vec![fox.clone(), one("an owl", "64", "32", "4", "5"), one("an owl", "64", "32", "3", "6"), fox]
}
