//! Whole requests by processes: every folder, and several requests one after another in a job.

use std::fs;
use std::process::Output;

use serde_json::Value;

use crate::subjects::{LAYOUTS, Subject, all, alone, compare, latents, prompts};
use crate::{golden, moviola, told};

fn by(processes: usize) -> impl Fn(&[&str]) -> Output {
    move |words| moviola(processes, words).output().unwrap()
}

#[test]
fn every_folder_by_processes() {
    let folder = tempfile::tempdir().unwrap();
    for subject in all(folder.path()) {
        let want = latents(&subject, by(1), &[]);
        for processes in [2, 4] {
            let got = latents(&subject, by(processes), &["--threads", "1"]);
            compare(&format!("{} by {processes} processes", subject.name), &got, &want);
        }
    }
}

/// Prompts of several sizes and step counts in one job: each is a plan of its own, and what it is alone on threads.
#[test]
fn prompts_with_settings_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let model = golden("pixart-tiny");
    let (words, count) = prompts(&folder.path().join("given.jsonl"));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let make = |processes: usize, name: &str, words: &[&str], layout: &[&str]| {
        let output = path(name);
        let first = ["generate", "--model", &model, "--overwrite", "--output", &output];
        let made = moviola(processes, &[&first[..], words, layout].concat()).output().unwrap();
        assert!(made.status.success(), "{layout:?}: {}", told(&made));
    };
    for layout in LAYOUTS {
        make(2, "out.png", &words, layout);
        for (at, alone) in alone().into_iter().enumerate() {
            let got = fs::read(path(&format!("out-{at:03}.png"))).unwrap();
            make(1, "alone.png", &alone, layout);
            assert!(got == fs::read(path("alone.png")).unwrap(), "{layout:?}, line {at}");
        }
        assert!(fs::metadata(path(&format!("out-{count:03}.png"))).is_err());
    }
}

/// A seed that is to be drawn is drawn once: the record's seed makes the same latents in one process.
#[test]
fn a_drawn_seed_is_one_for_all_processes() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let model = golden("wan-tiny");
    let words =
        ["generate", "--model", &model, "--prompt", "a fox", "--frames", "5", "--steps", "2"];
    let sizes = ["--height", "32", "--width", "32"];
    let subject = |seed: &str| {
        let words = [&words[..], &sizes, &["--seed", seed]].concat();
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Subject { name: format!("seed {seed}"), words }
    };
    for layout in [&["--ulysses", "2"][..], &["--cfg", "2"]] {
        let (output, latents_file) = (path("clip.gif"), path("latents.safetensors"));
        let files = ["--output", &output, "--save-latents", &latents_file, "--overwrite"];
        let random = [&words[..], &sizes, &["--seed", "random"], &files, layout].concat();
        let made = moviola(2, &random).output().unwrap();
        assert!(made.status.success(), "{layout:?}: {}", told(&made));
        let record: Value =
            serde_json::from_slice(&fs::read(path("clip.gif.json")).unwrap()).unwrap();
        let seed = record["seed"].to_string();
        assert_eq!(told(&made).matches(&format!("seed {seed}")).count(), 2, "{}", told(&made));
        let want = latents(&subject(&seed), by(1), &[]);
        let bytes = fs::read(&latents_file).unwrap();
        let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let data = file.tensor("latents").unwrap().data().to_vec();
        let got: Vec<f32> =
            data.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect();
        assert!(got == want, "{layout:?}: not the latents of seed {seed}");
    }
}

/// An exam by processes has the marks of one.
#[test]
fn an_exam_by_processes() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    drop(all(folder.path()));
    let marks = |processes: usize, name: &str, layout: &[&str]| {
        let (model, output) = (path("model"), path(name));
        let words =
            ["exam", "--model", &model, "--steps", "2", "--output", &output, "--threads", "1"];
        let made = moviola(processes, &[&words[..], layout].concat()).output().unwrap();
        assert!(made.status.success(), "{layout:?}: {}", told(&made));
        let mut value: Value = serde_json::from_slice(&fs::read(&output).unwrap()).unwrap();
        value.as_object_mut().unwrap().remove("seconds");
        value
    };
    let one = marks(1, "one.json", &[]);
    assert_eq!(marks(2, "two.json", &["--ulysses", "2"]), one);
    assert_eq!(marks(4, "four.json", &["--cfg", "2", "--data", "2"]), one);
}
