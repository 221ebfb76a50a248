//! What exams ask, `generate` makes: the same clip from the same files, frame by frame.

use std::fs;
use std::path::Path;

use crate::folder::run;
use crate::training::{recipe, words};

/// A tiny Duet that has taken some steps, so that no layer is zero, as an exported folder.
pub(crate) fn model(folder: &Path, recipe_name: &str, sound: &str) -> String {
    trained(folder, recipe_name, sound, &[])
}

/// The same with more settings of its recipe.
pub(crate) fn trained(folder: &Path, recipe_name: &str, sound: &str, more: &[&str]) -> String {
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let new = format!(
        "models.student.new={{family: duet, video_channels: 384, text_width: 64, heads: 2, \
         head_width: 8, depth: 1{sound}}}"
    );
    let sets = [
        new.as_str(),
        "data.batch=2",
        "data.source.clips=40",
        "loop.steps=4",
        "models.student.rate.warmup=2",
    ];
    let (run_path, model, recipe) = (path("run"), path("model"), recipe(recipe_name));
    let mut train = vec!["train", &recipe, "--run", &run_path];
    sets.iter().chain(more).for_each(|set| train.extend(["--set", set]));
    let output = run(&train);
    assert!(output.status.success(), "{}", words(&output));
    let output = run(&["export", &run_path, "--output", &model]);
    assert!(output.status.success(), "{}", words(&output));
    model
}

fn frames(folder: &Path) -> Vec<Vec<u8>> {
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

/// Sits an exam and makes some of its answers again by the command that it leaves.
fn exam_equals_generate(model: &str, folder: &Path, task: &str) {
    let questions = folder.join(task);
    let asked = questions.to_str().unwrap();
    let sitting = ["exam", "--model", model, "--task", task, "--steps", "2", "--questions", asked];
    let output = run(&sitting);
    assert!(output.status.success(), "{}", words(&output));
    for at in [0, 17, 95] {
        let own = questions.join(format!("{at:03}"));
        let command = fs::read_to_string(own.join("command.json")).unwrap();
        let mut command: Vec<String> = serde_json::from_str(&command).unwrap();
        let again = own.join("again");
        command.extend(["--output".to_owned(), again.to_str().unwrap().to_owned()]);
        let output = run(&command.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(output.status.success(), "{task} {at}: {}", words(&output));
        assert_eq!(frames(&again), frames(&own.join("answer")), "{task} {at}");
        let [sound, wanted] = ["again.wav", "answer.wav"].map(|name| fs::read(own.join(name)).ok());
        assert_eq!(sound, wanted, "{task} {at}");
        assert_eq!(sound.is_some(), task.contains("sound"), "{task} {at}");
    }
}

#[test]
fn what_exams_ask_generate_makes() {
    let folder = tempfile::tempdir().unwrap();
    let silent = folder.path().join("silent");
    fs::create_dir(&silent).unwrap();
    let own = model(&silent, "quickstart.yaml", "");
    for task in ["text", "first-frame", "recolour", "inpaint"] {
        exam_equals_generate(&own, &silent, task);
    }
    let heard = folder.path().join("heard");
    fs::create_dir(&heard).unwrap();
    let own = model(&heard, "learn/sound.yaml", ", audio_channels: 250");
    for task in ["with-sound", "sound-of-video"] {
        exam_equals_generate(&own, &heard, task);
    }
    refuses_to_overwrite(&own, &heard.join("with-sound/000"));
    exams_name_their_arguments(&own);
    exams_sit_on_ranks(&own, &heard);
}

/// An exam on several ranks has the marks of one; patches that flow may have others, and say so by the same
/// flags as `generate`.
fn exams_sit_on_ranks(model: &str, folder: &Path) {
    let marks = |name: &str, layout: &[&str]| {
        let path = folder.join(name);
        let words_of =
            ["exam", "--model", model, "--task", "first-frame", "--steps", "3", "--output"];
        let output = run(&[&words_of[..], &[path.to_str().unwrap()], layout].concat());
        assert!(output.status.success(), "{layout:?}: {}", words(&output));
        let mut value: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        value.as_object_mut().unwrap().remove("seconds");
        value
    };
    let one = marks("one.json", &[]);
    let two: [&[&str]; 2] = [&["--ulysses", "2", "--cfg", "2"], &["--ranks", "2"]];
    for (at, layout) in two.into_iter().enumerate() {
        assert_eq!(marks(&format!("{at}.json"), layout), one, "{layout:?}");
    }
    let stale = marks("stale.json", &["--pipefusion", "1", "--patches", "4"]);
    assert_ne!(stale, one);
    for (more, reason) in [
        (&["--ulysses", "9"][..], "--ulysses: 2 heads"),
        (&["--ulysses", "2", "--without-model"], "--without-model: nothing runs"),
        (&["--ulysses", "2", "--questions", "q"], "--questions: they are answered again by one"),
    ] {
        let output = run(&[&["exam", "--model", model][..], more].concat());
        assert!(words(&output).contains(reason), "{more:?}: {}", words(&output));
        assert_eq!(output.status.code(), Some(2));
    }
}

/// What is wrong with an exam is told with the argument it is about.
fn exams_name_their_arguments(model: &str) {
    let index = Path::new(model).join("model_index.json");
    let before = fs::read(&index).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let marks = folder.path().join("marks.json");
    fs::write(&marks, "mine").unwrap();
    let (marks_of, place) = (marks.to_str().unwrap(), folder.path().to_str().unwrap());
    for (more, wanted) in [
        (&["--steps", "0"][..], "error: --steps: "),
        (&["--guidance", "NaN"], "error: --guidance: "),
        (&["--timesteps", "20,500"], "error: --timesteps: "),
        (&["--colour", "mauve"], "for '--colour <WORD>'"),
        (&["--without-model", "--steps", "2"], "'--without-model' cannot be used with '--steps"),
        (&["--output", index.to_str().unwrap()], "is an input of this run"),
        (&["--output", marks_of], "marks.json exists; add --overwrite"),
        (&["--questions", place], "is there already; choose another name"),
        (&["--overwrite"], "--output"),
    ] {
        let output = run(&[&["exam", "--model", model], more].concat());
        let message = words(&output);
        assert_eq!(output.status.code(), Some(2), "{more:?}: {message}");
        assert!(message.contains(wanted), "{more:?}: {message}");
    }
    assert_eq!(fs::read(&index).unwrap(), before);
    assert_eq!(fs::read(&marks).unwrap(), b"mine");
    // A file is named once.
    let picture = crate::folder::goldens().join("pictures/photo.png").display().to_string();
    let to = Path::new(model).with_extension("gif").display().to_string();
    let given = ["--prompt", "x", "--output", &to, "--audio", &picture];
    let message = words(&run(&[&["generate", "--model", model], &given[..]].concat()));
    assert!(message.starts_with("error: --audio: cannot read"), "{message}");
    assert_eq!(message.matches("photo.png").count(), 1, "{message}");
    let message = words(&run(&["export", model, "--output", &to]));
    assert!(message.contains("is neither a run, which has"), "{message}");
}

/// No output is an input: neither the clip, nor the sound beside it.
fn refuses_to_overwrite(model: &str, folder: &Path) {
    let sound = folder.join("answer.wav");
    let before = fs::read(&sound).unwrap();
    let clip = folder.join("answer.gif");
    let words = ["--model", model, "--prompt", "a red circle moves left", "--steps", "1"];
    let files = ["--audio", sound.to_str().unwrap(), "--output", clip.to_str().unwrap()];
    let output = run(&[&["generate"], &words[..], &files].concat());
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("answer.wav is an input of this run"), "{message}");
    assert_eq!(fs::read(&sound).unwrap(), before);
    assert!(!clip.exists());
    let output = run(&[
        &["generate"],
        &words[..],
        &["--first-sample", "18446744073709551615"],
        &["--output", clip.to_str().unwrap()],
    ]
    .concat());
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("--first-sample: it is 18446744073709551615"), "{message}");
}

/// A sound is learnt from text alone, looked at, exported and made by the command, without a video.
#[test]
fn a_sound_alone_is_trained_and_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let text_to_audio = [
        "strategy={name: text_to_audio}",
        "callbacks.validation={every: 4, prompts: [a red circle moves left], steps: 2}",
    ];
    let own = trained(folder.path(), "learn/sound.yaml", ", audio_channels: 250", &text_to_audio);
    let looks = folder.path().join("run/validation/00000004");
    let names: Vec<_> =
        fs::read_dir(&looks).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(names, ["000.wav"]);
    let made = path("tone.wav");
    let words_of = |model: &str, output: &str| {
        run(&[
            "generate",
            "--model",
            model,
            "--prompt",
            "a red circle moves left",
            "--steps",
            "2",
            "--output",
            output,
        ])
    };
    let output = words_of(&own, &made);
    assert!(output.status.success(), "{}", words(&output));
    let samples = data::media::Waveform::read(Path::new(&made)).unwrap().samples.len();
    assert_eq!(samples, 8000 / 2, "half a second");
    assert!(Path::new(&path("tone.wav.json")).exists());
    let silent = concat!(env!("CARGO_MANIFEST_DIR"), "/../../goldens/wan-tiny");
    let output = words_of(silent, &path("no.wav"));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("--output: this model makes no sound"), "{message}");
    assert_eq!(output.status.code(), Some(2));
}

/// What an exam gives, its task says: there is no argument of the exam for it.
#[test]
fn a_task_that_a_model_cannot_do_is_refused_by_its_name() {
    let model = crate::folder::goldens().join("wan-tiny");
    let model = model.to_str().unwrap();
    let out = crate::folder::run(&[
        "exam", "--model", model, "--task", "picture", "--frames", "9", "--steps", "1",
    ]);
    let said = crate::training::words(&out);
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(said.contains("--task: ") && !said.contains("--image"), "{said}");
}
