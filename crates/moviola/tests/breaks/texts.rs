//! Texts of every kind that are too long, too many, or no texts.

use std::fmt::Write;
use std::fs;

use crate::place::{Place, golden};
use crate::process::{Run, text};

fn generate<'a>(model: &'a str, output: &'a str, more: &[&'a str]) -> Run {
    let words = ["generate", "--model", model, "--steps", "1", "--output", output];
    Run::of([&words[..], &["--height", "32", "--width", "32"], more].concat())
}

#[test]
fn recipes_of_very_many_keys() {
    let place = Place::new();
    let mut recipe = String::new();
    for key in 0..100_000 {
        writeln!(recipe, "key-{key}: {key}").unwrap();
    }
    let path = place.write("many.yaml", &recipe);
    let ended = Run::of(["train", text(&path), "--dry-run"]).ended();
    ended.refused(&["unknown key `key-0`"]);
    ended.within(20);
    let mut nested = String::from("models: {student: {new: {");
    for key in 0..100_000 {
        write!(nested, "key-{key}: {key}, ").unwrap();
    }
    let path = place.write("nested.yaml", nested + "}}}");
    let ended = Run::of(["train", text(&path), "--dry-run"]).ended();
    ended.refused(&[]);
    ended.within(20);
    let path = place.write("long.yaml", format!("a: {}", "b".repeat(5 << 20)));
    Run::of(["train", text(&path), "--dry-run"]).ended().refused(&["more than 4194304 bytes"]);
    let path = place.write("wide.yaml", format!("{}: 1", "k".repeat(1 << 20)));
    Run::of(["train", text(&path), "--dry-run"]).ended().refused(&["wide.yaml"]);
    let path = place.write("deep.yaml", "[".repeat(100_000));
    Run::of(["train", text(&path), "--dry-run"]).ended().refused(&["deep.yaml"]);
    let twice = place.write("twice.yaml", "loop: {}\nloop: {}\n");
    Run::of(["train", text(&twice), "--dry-run"]).ended().refused(&["loop"]);
}

/// Forty megabytes of rows; the limit of the process says how much memory they may take.
#[test]
fn tables_of_very_many_rows() {
    let place = Place::new();
    place.picture("a.png", [32, 32], 1);
    let mut table = String::from("path,caption,a,b,c\na.png,a fox,1,2,3\n");
    while table.len() < 40 << 20 {
        table.push_str("b.png,x,1,2,3\n");
    }
    let path = place.write("table.csv", table);
    let arguments = ["doctor", "--data", text(&path), "--bucket", "32x32x1"];
    let ended = Run::of(arguments).within_memory(2 << 20).ended();
    ended.ended_with(1, &["1 of ", "skipped b.png: there is no such file"]);
    ended.within(60);
    let path = place.write("wide.csv", format!("path,caption{}\n", ",x".repeat(5 << 20)));
    let arguments = ["doctor", "--data", text(&path), "--bucket", "32x32x1"];
    Run::of(arguments).within_memory(2 << 20).ended().refused(&["there are no clips"]);
}

#[test]
fn captions_that_are_no_text() {
    let place = Place::new();
    place.picture("a.png", [32, 32], 1);
    let rows = [
        (r#"{"path": "a.png", "caption": 42}"#, "`caption` is no text"),
        (r#"{"path": "a.png", "caption": ["a fox"]}"#, "`caption` is no text"),
        (r#"{"path": "a.png", "text": {"en": "a fox"}}"#, "`text` is no text"),
        (r#"{"path": true, "caption": "a fox"}"#, "`path` is no text"),
        (r#"{"path": "a.png", "caption": "a fox", "mask": 1}"#, "`mask` is no text"),
    ];
    for (row, words) in rows {
        for (name, table, at) in
            [("t.jsonl", row.to_owned(), "line 1"), ("t.json", format!("[{row}]"), "entry 1")]
        {
            let path = place.write(name, table);
            let arguments = ["doctor", "--data", text(&path), "--bucket", "32x32x1"];
            Run::of(arguments).ended().refused(&[at, words]);
        }
    }
    let row = r#"{"path": "a.png", "caption": "a fox", "rating": 5, "mask": null}"#;
    let path = place.write("t.jsonl", row);
    let arguments = ["doctor", "--data", text(&path), "--bucket", "32x32x1"];
    Run::of(arguments).ended().ended_with(0, &["1 of 1"]);
    // A caption of megabytes is none.
    fs::create_dir(place.path("clips")).unwrap();
    place.picture("clips/a.png", [32, 32], 1);
    place.write("clips/a.txt", "word ".repeat(1 << 20));
    let clips = place.text("clips");
    let arguments = ["doctor", "--data", &clips, "--bucket", "32x32x1"];
    Run::of(arguments).ended().ended_with(1, &["skipped a.png", "caption"]);
}

#[test]
fn prompts_of_megabytes() {
    let place = Place::new();
    let output = place.text("out.png");
    let prompts = place.write("prompts.txt", "fox ".repeat(10 << 18));
    for name in ["pixart-tiny", "wan-tiny"] {
        let model = golden(name);
        let ended = generate(text(&model), &output, &["--prompts", text(&prompts)]).ended();
        ended.refused(&["--prompt", "65536"]);
        ended.within(20);
    }
    assert_eq!(place.names(""), ["prompts.txt"]);
}

#[test]
fn loras_without_tensors() {
    let place = Place::new();
    let (model, output) = (golden("pixart-tiny"), place.text("out.png"));
    let header = b"{}      ";
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header].concat();
    let lora = place.write("empty.safetensors", bytes);
    let more = ["--prompt", "a fox", "--lora", text(&lora)];
    generate(text(&model), &output, &more).ended().refused(&["empty.safetensors", "no tensors"]);
    assert_eq!(place.names(""), ["empty.safetensors"]);
}

/// Nobody is asked: the address answers to nobody, and asking it would say so.
#[test]
fn the_hub_is_not_asked() {
    let place = Place::new();
    let output = place.text("out.png");
    let ask = |model: &str, offline: &str| {
        generate(model, &output, &["--prompt", "a fox"])
            .with("HF_ENDPOINT", "http://127.0.0.1:9")
            .with("HF_HOME", place.path("hub"))
            .with("HF_HUB_OFFLINE", offline)
            .ended()
    };
    ask("org/name", "1").refused(&["HF_HUB_OFFLINE"]);
    ask("org/name", "0").refused(&["127.0.0.1:9"]);
    for revision in ["../../etc", "/etc", "..", "a/../../b", ""] {
        let ended = ask(&format!("org/name@{revision}"), "0");
        ended.refused(&["there is no folder"]);
        assert!(!ended.complained.contains("127.0.0.1"), "{ended:?}");
    }
    assert!(!place.path("etc").exists() && !place.path("hub").exists());
}
