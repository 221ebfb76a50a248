//! Folders of strangers: pipes that nobody writes to, and links that lead to what is not theirs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::place::{Place, golden};
use crate::process::{Ended, Run, text};
use crate::training::train;

/// Puts a pipe in the place of what is there.
fn pipe(path: &Path) {
    // It may not have been there.
    let _ = fs::remove_file(path);
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// A small run of `generate`.
fn generate(model: &Path, output: &str, more: &[&str]) -> Ended {
    let words = ["generate", "--model", text(model), "--steps", "1", "--height", "32"];
    let usual = ["--width", "32", "--prompt", "a fox", "--output", output];
    Run::of([&words[..], &usual, more].concat()).ended()
}

fn preprocess(place: &Place, dataset: &str) -> Ended {
    let (model, clips) = (golden("pixart-tiny"), place.text("clips"));
    let words = ["preprocess", "--bucket", "32x32x1", "--model", text(&model)];
    let dataset = place.text(dataset);
    Run::of([&words[..], &["--data", &clips, "--output", &dataset]].concat()).ended()
}

/// Where a file is needed, a pipe is not waited for.
#[test]
fn a_pipe_is_no_caption_picture_or_weights() {
    let place = Place::new();
    place.picture("clips/good.png", [32, 32], 1);
    pipe(&place.picture("clips/mute.png", [32, 32], 2).with_extension("txt"));
    let ended = preprocess(&place, "dataset");
    ended.ended_with(0, &["1 samples", "skipped mute.png", "caption"]);
    ended.within(20);

    let (still, clips) = (golden("pixart-tiny"), golden("wan-tiny-i2v"));
    let output = place.text("out.gif");
    for (model, flag, name) in [
        (&still, "--lora", "a.safetensors"),
        (&still, "--noise", "a.safetensors"),
        (&still, "--transformer", "a.safetensors"),
        (&clips, "--image", "a.png"),
        (&clips, "--image", "a.mp4"),
    ] {
        let given = place.path(name);
        pipe(&given);
        let ended = generate(model, &output, &[flag, text(&given)]);
        ended.refused(&[flag, name]);
        ended.within(20);
    }
    let weights = place.model("pixart-tiny", "model").join("transformer");
    pipe(&weights.join("diffusion_pytorch_model.safetensors"));
    generate(&place.path("model"), &output, &[]).refused(&[]);
    assert!(!place.path("out.gif").exists());
}

/// The same in a checkpoint: the one before it serves.
#[test]
fn a_pipe_is_no_checkpoint() {
    let place = Place::new();
    let run = |steps| train(&place, &[steps, "checkpoint={every: 1, keep_last: 9}"]).ended();
    run("loop.steps=3").ended_with(0, &[]);
    pipe(&place.path("run/checkpoints/checkpoint-00000003/manifest.json"));
    pipe(&place.path("run/checkpoints/checkpoint-00000002/state.safetensors"));
    run("loop.steps=3").ended_with(0, &["passing over", "going on after step 1"]);
    // A state that is longer than was written is not read: this one would not fit.
    let newest = place.path("run/checkpoints/checkpoint-00000003/state.safetensors");
    fs::File::options().write(true).open(newest).unwrap().set_len(1 << 40).unwrap();
    place.write("run/checkpoints/.checkpoint-00000009.4711.abcdef.part", "no folder");
    run("loop.steps=3").ended_with(0, &["passing over", "going on after step 2"]);
    pipe(&place.path("run/checkpoints/lock"));
    run("loop.steps=3").refused(&["lock"]);
}

/// What a dataset or a run writes in place is not written through a link.
#[test]
fn links_in_datasets_and_runs_are_not_written_through() {
    let place = Place::new();
    place.picture("clips/good.png", [32, 32], 1);
    let victim = place.write("victim", "precious\n");
    place.write("weights/precious.safetensors", "precious");
    train(&place, &["loop.steps=1"]).ended().ended_with(0, &[]);
    for name in ["writer.lock", "index.jsonl", "shards"] {
        let dataset = format!("dataset-{name}");
        preprocess(&place, &dataset).ended_with(0, &["1 samples"]);
        let link = place.path(&dataset).join(name);
        if name == "shards" {
            fs::remove_dir_all(&link).unwrap();
            symlink(place.path("weights"), &link).unwrap();
        } else {
            fs::remove_file(&link).unwrap();
            symlink(&victim, &link).unwrap();
        }
        preprocess(&place, &dataset).refused(&[name]);
    }
    for name in ["metrics.jsonl", "checkpoints/lock"] {
        let link = place.path("run").join(name);
        let own = fs::read(&link).unwrap();
        fs::remove_file(&link).unwrap();
        symlink(&victim, &link).unwrap();
        train(&place, &["loop.steps=2"]).ended().refused(&[name, "link"]);
        fs::remove_file(&link).unwrap();
        fs::write(&link, own).unwrap();
    }
    assert_eq!(fs::read(&victim).unwrap(), b"precious\n");
    assert_eq!(place.names("weights"), ["precious.safetensors"]);
    train(&place, &["loop.steps=2"]).ended().ended_with(0, &[]);
}

/// A model whose folders lead in circles is exported with a LoRA merged into it, and ends.
#[test]
fn a_model_with_links_in_circles_is_exported() {
    let place = Place::new();
    train(&place, &["loop.steps=1"]).ended().ended_with(0, &[]);
    let (run, model) = (place.text("run"), place.path("model"));
    Run::of(["export", &run, "--output", text(&model)]).ended().ended_with(0, &[]);
    let student = format!(
        "models.student={{from: '{}', learns: {{kind: lora, rank: 2, targets: [to_q]}}, rate: {{peak: 0.001}}}}",
        text(&model)
    );
    let (lora, merged) = (place.text("lora"), place.text("merged"));
    let recipe = golden("../recipes/quickstart.yaml");
    let mut words = vec!["train", text(&recipe), "--run", &lora];
    for set in [&student, "data.batch=2", "data.source.clips=40", "loop.steps=1", "callbacks={}"] {
        words.extend(["--set", set]);
    }
    Run::of(words).ended().ended_with(0, &[]);
    symlink(".", model.join("x")).unwrap();
    symlink("../../model", model.join("transformer/y")).unwrap();
    symlink("..", model.join("transformer/z")).unwrap();
    let ended = Run::of(["export", &lora, "--as", "folder", "--output", &merged]).ended();
    ended.ended_with(0, &["merged"]);
    ended.within(20);
    assert!(place.names("merged").len() < 20, "{:?}", place.names("merged"));
    fs::remove_dir_all(&merged).unwrap();
    pipe(&model.join("notes.txt"));
    Run::of(["export", &lora, "--as", "folder", "--output", &merged])
        .ended()
        .refused(&["notes.txt"]);
    assert!(!Path::new(&merged).exists());
}
