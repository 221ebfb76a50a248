//! Files that somebody cuts short while they are mapped: it is said which, and nothing is left behind.
#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::place::{Place, golden};
use crate::process::{Ended, Run, text};

/// Waits until the process has mapped a file and is as far as `ready` says, and cuts the file short.
fn shrink(run: Run, file: &Path, ready: impl Fn() -> bool) -> Ended {
    let running = run.begin();
    let maps = format!("/proc/{}/maps", running.id());
    let began = Instant::now();
    let is_mapped = || fs::read_to_string(&maps).is_ok_and(|found| found.contains(text(file)));
    while !(is_mapped() && ready()) {
        assert!(began.elapsed() < Duration::from_secs(60), "{} is not mapped", file.display());
        thread::sleep(Duration::from_millis(5));
    }
    // What is being opened is checked as it is; what is used is not.
    thread::sleep(Duration::from_millis(500));
    File::options().write(true).open(file).unwrap().set_len(0).unwrap();
    running.ended()
}

#[test]
fn weights_that_shrink_are_named() {
    let place = Place::new();
    let model = place.model("wan-tiny", "model");
    let weights = model.join("transformer/diffusion_pytorch_model.safetensors");
    let whole = fs::read(&weights).unwrap();
    let output = place.text("out.gif");
    let words = ["generate", "--model", text(&model), "--prompt", "a fox", "--frames", "5"];
    let more = ["--height", "64", "--width", "64", "--steps", "900", "--count", "200"];
    let generate =
        |own: &[&str]| Run::of([&words[..], &more, &["--output", &output], own].concat());
    let ended = shrink(generate(&[]), &weights, || true);
    ended.refused(&[text(&weights), "became shorter", "put the whole file back"]);
    fs::write(&weights, &whole).unwrap();
    let ended = shrink(generate(&["--log-format", "json"]), &weights, || true);
    ended.ended_with(2, &[]);
    let last: serde_json::Value =
        serde_json::from_str(ended.complained.lines().last().unwrap()).unwrap();
    assert_eq!(last["level"], "error", "{last}");
    assert_eq!(last["code"], 2, "{last}");
    assert!(last["message"].as_str().unwrap().contains(text(&weights)), "{last}");
    let left = place.names("");
    assert!(left.iter().all(|name| name.starts_with("model/")), "{left:?}");
}

/// A shard of a dataset, while a run trains from it. Once it is whole again the run goes on.
#[test]
fn a_shard_that_shrinks_is_named() {
    let place = Place::new();
    place.picture("clips/a.png", [32, 32], 1);
    place.picture("clips/b.png", [32, 32], 2);
    let (model, dataset, run) = (golden("wan-tiny"), place.text("dataset"), place.text("run"));
    let (model, clips) = (text(&model), place.text("clips"));
    let words = ["preprocess", "--model", model, "--data", &clips, "--output", &dataset];
    let encoded = Run::of([&words[..], &["--bucket", "32x32x1"]].concat()).ended();
    encoded.ended_with(0, &["2 samples"]);
    let shards = fs::read_dir(place.path("dataset/shards")).unwrap();
    let shard = shards.map(|found| found.unwrap().path()).next().unwrap();
    let whole = fs::read(&shard).unwrap();
    let recipe = golden("../recipes/wan-lora.yaml");
    let train = |steps: &str| {
        let sets = [
            format!("models.student.from={model}"),
            "models.student.learns={kind: lora, rank: 2, targets: [attn1.to_q]}".to_owned(),
            format!("data.source.path={dataset}"),
            format!("loop={{steps: {steps}, seed: 1}}"),
            "models.student.rate={peak: 0.001, warmup: 0, decay: {kind: constant}}".to_owned(),
            "checkpoint={every: 1, keep_last: 1}".to_owned(),
            "callbacks={}".to_owned(),
        ];
        let begin = ["train", text(&recipe), "--run", &run].map(str::to_owned);
        Run::of(begin.into_iter().chain(sets.into_iter().flat_map(|set| ["--set".to_owned(), set])))
    };
    // The newest checkpoint that is whole; what is being written has another name.
    let reached = || {
        let found = fs::read_dir(place.path("run/checkpoints")).into_iter().flatten().flatten();
        let step = |name: &str| name.strip_prefix("checkpoint-")?.parse::<u64>().ok();
        found.filter_map(|found| step(found.file_name().to_str()?)).max()
    };
    let ended = shrink(train("5000"), &shard, || reached().is_some());
    ended.refused(&[text(&shard), "became shorter"]);
    train("5000").ended().refused(&[]);
    fs::write(&shard, &whole).unwrap();
    let reached = reached().unwrap();
    let ended = train(&(reached + 1).to_string()).ended();
    ended.ended_with(0, &[&format!("going on after step {reached}")]);
}
