//! Pipes that nobody writes to and devices without end, wherever a command is given a file: refused at once.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::place::{Place, golden};
use crate::process::{Run, text};
use crate::training::train;

/// What each argument is given in turn: `@` stands for it, and its name is part of the message.
const LINES: [(&str, &str); 19] = [
    ("generate --model STILL --prompts @ SMALL", "given"),
    ("generate --model STILL --prompts @.jsonl SMALL", "given.jsonl"),
    ("generate --model STILL --prompt-embeds @.safetensors SMALL", "given.safetensors"),
    ("generate --model TI2V --prompt fox --image @.jpg SMALL", "given.jpg"),
    ("generate --model LTX --prompt fox --audio @.wav SMALL", "given.wav"),
    ("generate --model LTX --prompt fox --video-prefix @.gif SMALL", "given.gif"),
    ("generate --replay @.json", "given.json"),
    ("train @.yaml --run RUN", "given.yaml"),
    ("train @.yaml --dry-run", "given.yaml"),
    ("doctor --data @.csv --bucket 32x32x1", "given.csv"),
    ("doctor --data @.jsonl --bucket 32x32x1", "given.jsonl"),
    ("preprocess --model STILL --data @.json --bucket 32x32x1 --output RUN", "given.json"),
    ("inspect @.gguf", "given.gguf"),
    ("inspect @.safetensors", "given.safetensors"),
    ("inspect @.json", "given.json"),
    ("plan @.yaml", "given.yaml"),
    ("plan STILL --hardware @.yaml", "given.yaml"),
    ("convert-recipe @.yaml", "given.yaml"),
    ("serve --model STILL --keys @.txt --listen 127.0.0.1:0 --jobs RUN", "given.txt"),
];

/// A pipe or a link to a device stands at the path.
fn stand(path: &Path, device: Option<&str>) {
    // It may not have been there.
    let _ = fs::remove_file(path);
    match device {
        Some(device) => symlink(device, path).unwrap(),
        None => assert!(Command::new("mkfifo").arg(path).status().unwrap().success()),
    }
}

#[test]
fn what_is_no_file_is_refused_wherever_a_file_is_given() {
    let [still, ti2v, ltx] = ["pixart-tiny", "wan-tiny-ti2v", "ltx2-tiny"].map(golden);
    for device in [None, Some("/dev/zero"), Some("/dev/random")] {
        for (line, name) in LINES {
            let place = Place::new();
            for ending in ["", ".jsonl", ".json", ".csv", ".yaml", ".txt", ".gguf"] {
                stand(&place.path(&format!("given{ending}")), device);
            }
            for ending in [".safetensors", ".jpg", ".wav", ".png", ".gif"] {
                stand(&place.path(&format!("given{ending}")), device);
            }
            let before = place.names("");
            let line = line.replace('@', &place.text("given")).replace("RUN", &place.text("run"));
            let line = line.replace("STILL", text(&still)).replace("LTX", text(&ltx));
            let line = line.replace("TI2V", text(&ti2v));
            let line = line.replace("SMALL", &format!("--output {}", place.text("out.gif")));
            let ended = Run::of(line.split(' ')).ended();
            ended.refused(&[name]);
            ended.within(20);
            let left = place.names("");
            assert!(
                left.iter().all(|name| before.contains(name) || name.starts_with("run/")),
                "{left:?}"
            );
        }
    }
}

/// Files of a model, a dataset and a run that are no files. What of a run is not needed any more may be passed over.
#[test]
fn what_is_no_file_is_refused_within_folders() {
    let place = Place::new();
    let model = place.model("pixart-tiny", "model");
    let names = place.names("model");
    let output = place.text("out.png");
    for name in names.iter().filter(|name| !name.contains("generation_config")) {
        for device in [None, Some("/dev/zero")] {
            let path = model.join(name);
            let own = fs::read(&path).unwrap();
            stand(&path, device);
            let words = ["generate", "--model", text(&model), "--prompt", "fox", "--output"];
            let ended = Run::of([&words[..], &[&output, "--steps", "1"]].concat()).ended();
            ended.refused(&[]);
            ended.within(20);
            fs::remove_file(&path).unwrap();
            fs::write(&path, own).unwrap();
        }
    }
    assert!(!place.path("out.png").exists());
}

#[test]
fn what_is_no_file_is_refused_within_runs() {
    let place = Place::new();
    train(&place, &["loop.steps=1"]).ended().ended_with(0, &[]);
    for name in ["metrics.jsonl", "recipe.yaml", "changes.jsonl", "report.html"] {
        let path = place.path("run").join(name);
        let own = fs::read(&path).ok();
        for device in [None, Some("/dev/zero")] {
            stand(&path, device);
            let ended = match name {
                "recipe.yaml" => Run::of(["train", "--run", &place.text("run")]).ended(),
                _ => train(&place, &["loop.steps=2"]).ended(),
            };
            ended.refused(&[name]);
            ended.within(20);
            Run::of(["inspect", &place.text("run")]).ended().within(20);
            fs::remove_file(&path).unwrap();
        }
        if let Some(own) = own {
            fs::write(&path, own).unwrap();
        }
    }
    train(&place, &["loop.steps=2"]).ended().ended_with(0, &[]);
}

/// Marks are not kept back by a pipe that nobody reads.
#[test]
fn an_exam_does_not_wait_for_a_reader() {
    let place = Place::new();
    train(&place, &["loop.steps=1"]).ended().ended_with(0, &[]);
    Run::of(["export", &place.text("run"), "--output", &place.text("model")])
        .ended()
        .ended_with(0, &[]);
    stand(&place.path("marks.json"), None);
    let words = [
        "exam",
        "--model",
        &place.text("model"),
        "--steps",
        "1",
        "--output",
        &place.text("marks.json"),
    ];
    let ended = Run::of(words).ended();
    ended.refused(&["--output", "is a pipe"]);
    ended.within(20);
}

/// One line without an end.
#[test]
fn texts_of_megabytes_on_one_line_are_refused() {
    let place = Place::new();
    let model = golden("pixart-tiny");
    let long = "fox ".repeat(10 << 18);
    for (name, text) in
        [("prompts.txt", long.clone()), ("prompts.jsonl", format!("{{\"prompt\": \"{long}\"}}"))]
    {
        let given = place.write(name, text);
        let words = ["generate", "--model", model.to_str().unwrap(), "--output"];
        let more = [&place.text("out.png"), "--prompts", given.to_str().unwrap()];
        let ended = Run::of([&words[..], &more].concat()).ended();
        ended.refused(&["65536"]);
        ended.within(20);
        fs::remove_file(given).unwrap();
    }
    for (name, line) in [
        ("made.json", "generate --replay"),
        ("plan.yaml", "plan"),
        ("recipe.yaml", "train --dry-run"),
        ("config.yaml", "convert-recipe"),
    ] {
        let given = place.write(name, &long);
        let ended = Run::of(line.split(' ').chain([text(&given)])).ended();
        ended.refused(&[name]);
        ended.within(20);
    }
}
