//! Numbers that no machine has room for.

use std::fs;
use std::path::PathBuf;

use crate::place::{Place, golden};
use crate::process::{Run, text};
use crate::training::train;

fn recipe(name: &str) -> String {
    golden("../recipes").join(name).to_str().unwrap().to_owned()
}

/// Sets keys of a JSON file.
fn set(path: PathBuf, keys: &[(&str, &str)]) {
    let mut value: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for (key, number) in keys {
        value[*key] = serde_json::from_str(number).unwrap();
    }
    fs::write(path, value.to_string()).unwrap();
}

/// What a recipe says is refused when it is read, in a dry run as in a run.
#[test]
fn recipes_beyond_all_bounds() {
    let place = Place::new();
    let (run, quickstart) = (place.text("run"), recipe("quickstart.yaml"));
    let huge = "1000000000000000";
    let sets = [
        ("data.source.clips=1000000000", "data.source.clips"),
        ("data.source.world.height=100000000", "data.source.world.height"),
        ("data.source.world={frames: 4000, height: 4000, width: 4000}", "data.source.world"),
        ("data.prefetch=1000000000000000000", "data.prefetch"),
        ("data.batch=1000000000000000000", "data.batch"),
        ("models.student.new.heads=2048", "heads"),
        ("models.student.new.depth=65536", "depth"),
        ("models.student.new.video_channels=65536", "video_channels"),
        ("models.student.learns={kind: lora, rank: 1000000000000000, targets: ['*']}", huge),
        ("callbacks.validation={every: 10, size: [1000000000000000, 32, 32]}", huge),
        ("loop.accumulation=18446744073709551615", "loop.accumulation"),
    ];
    for (set, word) in sets {
        for way in [&["--dry-run"][..], &["--run", &run]] {
            let ended = Run::of([&["train", &quickstart, "--set", set], way].concat()).ended();
            ended.refused(&[word]);
            ended.within(20);
        }
    }
    assert!(
        place.names("run").iter().all(|name| name.ends_with("lock")),
        "{:?}",
        place.names("run")
    );
}

/// However many micro-batches a step has, one is in memory.
#[test]
fn many_micro_batches_are_read_one_by_one() {
    let place = Place::new();
    let (run, quickstart) = (place.text("run"), recipe("quickstart.yaml"));
    let new = "models.student.new={family: duet, video_channels: 384, text_width: 64, heads: 1, \
               head_width: 6, depth: 1}";
    // Every thread reserves memory of its own.
    let mut words = vec!["train", &quickstart, "--run", &run, "--threads", "2"];
    // 64 batches of 64 clips of 98 kB would be 400 MB, beside the 400 MB that one batch needs.
    for set in [
        new,
        "data.batch=64",
        "data.source.clips=512",
        "loop.steps=1",
        "loop.accumulation=64",
        "models.student.rate.warmup=0",
        "callbacks={}",
    ] {
        words.extend(["--set", set]);
    }
    Run::of(words).within_memory(5 << 17).ended().ended_with(0, &[]);
}

#[test]
fn configs_beyond_all_bounds() {
    let place = Place::new();
    let output = place.text("out.gif");
    let picture = place.picture("given.png", [32, 32], 1);
    let cases: [(&str, &str, &str, &[&str]); 6] = [
        ("wan-tiny", "transformer/config.json", "num_layers", &["2147483648", "1048576"]),
        ("wan-tiny", "transformer/config.json", "attention_head_dim", &["1048576"]),
        ("wan-tiny", "transformer/config.json", "ffn_dim", &["1048576"]),
        (
            "wan-tiny-i2v",
            "image_processor/preprocessor_config.json",
            "size",
            &["4294967324", "65536"],
        ),
        ("wan-tiny-i2v", "image_processor/preprocessor_config.json", "crop_size", &["4294967324"]),
        ("pixart-tiny", "transformer/config.json", "num_layers", &["2147483648", "1048576"]),
    ];
    for (at, (name, file, key, numbers)) in cases.into_iter().enumerate() {
        for number in numbers {
            let model = place.model(name, &format!("model-{at}"));
            set(model.join(file), &[(key, number)]);
            let mut words = vec!["generate", "--model", text(&model), "--prompt", "a fox"];
            words.extend(["--steps", "1", "--output", &output, "--height", "32", "--width", "32"]);
            if name.ends_with("i2v") {
                words.extend(["--image", text(&picture)]);
            }
            let ended = Run::of(words).ended();
            ended.refused(&[]);
            ended.within(20);
        }
    }
    assert!(!place.path("out.gif").exists());
}

/// Sizes that are each legal, and together beyond everything.
#[test]
fn requests_beyond_all_bounds() {
    let place = Place::new();
    train(&place, &["loop.steps=1"]).ended().ended_with(0, &[]);
    let (run, model) = (place.text("run"), place.text("model"));
    Run::of(["export", &run, "--output", &model]).ended().ended_with(0, &[]);
    let (own, other) = (("a red circle moves left", model), golden("wan-tiny"));
    let models = [own, ("a fox", other.to_str().unwrap().to_owned())];
    let sizes: [(&[&str], &str); 5] = [
        (&["--frames", "9000000000000000"], "--frames"),
        (&["--frames", "65536", "--height", "16384", "--width", "16384"], "--"),
        (&["--height", "16384", "--width", "16384"], "--height"),
        (&["--height", "1000000000"], "--height"),
        (&["--steps", "1000000000000"], "--steps"),
    ];
    let output = place.text("out.gif");
    for (prompt, model) in &models {
        for (size, word) in sizes {
            let usual = ["generate", "--model", model, "--prompt", prompt, "--output", &output];
            let ended = Run::of([&usual[..], size].concat()).ended();
            ended.refused(&[word]);
            ended.within(20);
        }
    }
    assert!(!place.path("out.gif").exists());
}
