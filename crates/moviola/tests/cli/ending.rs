//! Progress without a terminal, and signals that end a command.

#![cfg(unix)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::folder::{Copy, run};
use crate::training::{arguments, words};

/// Starts the command; what it says can be read.
fn spawn(words: &[&str]) -> Child {
    Command::new(assert_cmd::cargo::cargo_bin!("moviola"))
        .args(words)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn signal(child: &Child, name: &str) {
    let told = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
    assert!(told.unwrap().success());
}

/// Waits until a line of what it says has `part`, and returns all lines from there to its end after a
/// signal.
fn said_after(child: &mut Child, part: &str, name: &str) -> (Option<i32>, Vec<String>) {
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let found = lines.by_ref().map(Result::unwrap).find(|line| line.contains(part));
    assert!(found.is_some(), "it never said `{part}`");
    signal(child, name);
    let rest = lines.map(Result::unwrap).collect();
    (child.wait().unwrap().code(), rest)
}

const LONG: [&str; 12] = [
    "--prompt",
    "a fox",
    "--steps",
    "900",
    "--frames",
    "5",
    "--height",
    "64",
    "--width",
    "64",
    "--max-tokens",
    "8",
];

/// Nothing half-written stays, and what is said of what was written is true.
#[test]
fn a_signal_ends_generate() {
    for name in ["TERM", "INT", "HUP"] {
        let copy = Copy::of("wan-tiny");
        let (model, output) = (copy.path("model"), copy.path("out.mp4"));
        let common =
            ["generate", "--model", model.to_str().unwrap(), "--output", output.to_str().unwrap()];
        let mut child = spawn(&[&common[..], &LONG].concat());
        let (code, said) = said_after(&mut child, "denoise", name);
        assert_eq!(code, Some(130), "{name}");
        assert_eq!(said.last().unwrap(), "error: interrupted; nothing was written", "{said:?}");
        assert_eq!(copy.written(), Vec::<String>::new(), "{name}");
    }
    // Ranks of every kind stop together: those that wait for each other, and replicas that do not.
    for layout in [&["--ulysses", "2"][..], &["--cfg", "2"], &["--data", "2", "--count", "2"]] {
        let copy = Copy::of("wan-tiny");
        let (model, output) = (copy.path("model"), copy.path("out.mp4"));
        let common =
            ["generate", "--model", model.to_str().unwrap(), "--output", output.to_str().unwrap()];
        let mut child = spawn(&[&common[..], &LONG, layout].concat());
        let (code, said) = said_after(&mut child, "denoise", "INT");
        assert_eq!(code, Some(130), "{layout:?}: {said:?}");
        assert_eq!(said.last().unwrap(), "error: interrupted; nothing was written", "{said:?}");
        assert_eq!(copy.written(), Vec::<String>::new(), "{layout:?}");
    }
    // Of several samples, those that are there are named.
    let copy = Copy::of("wan-tiny");
    let model = copy.path("model");
    let lines: Vec<String> = (0..2)
        .map(|at| format!(r#"{{"prompt": "a fox", "seed": {at}, "steps": {}}}"#, [1, 900][at]))
        .collect();
    fs::write(copy.path("given.jsonl"), lines.join("\n")).unwrap();
    let (output, prompts) = (copy.path("out.gif"), copy.path("given.jsonl"));
    let mut child = spawn(&[
        "generate",
        "--model",
        model.to_str().unwrap(),
        "--output",
        output.to_str().unwrap(),
        "--prompts",
        prompts.to_str().unwrap(),
        "--frames",
        "5",
        "--height",
        "64",
        "--width",
        "64",
        "--max-tokens",
        "8",
    ]);
    let begun = Instant::now();
    while !copy.path("out-000.gif.json").exists() {
        assert!(begun.elapsed() < Duration::from_secs(60), "no sample came");
        std::thread::sleep(Duration::from_millis(5));
    }
    let (code, said) = said_after(&mut child, "denoise", "TERM");
    assert_eq!(code, Some(130));
    let last = said.last().unwrap();
    assert!(last.contains("out-000.gif was written before"), "{last}");
    assert_eq!(copy.written(), ["out-000.gif", "out-000.gif.json"]);
}

/// A run that SLURM ends has a checkpoint and says how to go on.
#[test]
fn a_signal_ends_a_run_with_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["TERM", "INT", "HUP"] {
        let path = folder.path().join(name);
        let words = arguments(&path, 100_000, &["checkpoint={every: 100000}"]);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut child = spawn(&[&words[..], &["--log-every", "0"]].concat());
        let (code, said) = said_after(&mut child, "loss", name);
        assert_eq!(code, Some(130), "{name}");
        let last = said.last().unwrap();
        assert!(last.contains("stopped after step") && last.contains("moviola train "), "{last}");
        assert!(last.contains("--set"), "{last}");
        let kept = fs::read_dir(path.join("checkpoints")).unwrap().count();
        assert!(kept > 0, "{name}: there is no checkpoint");
        assert!(path.join("report.html").is_file(), "{name}: there is no report");
    }
}

/// Nobody reads what is said any more, as behind `| tee` that Ctrl-C ended first: the command ends all the same.
#[test]
fn a_signal_ends_what_nobody_hears() {
    let copy = Copy::of("wan-tiny");
    let (model, output) = (copy.path("model"), copy.path("out.mp4"));
    let large = ["--prompt", "a fox", "--steps", "900", "--frames", "81", "--height", "256"];
    let common =
        ["generate", "--model", model.to_str().unwrap(), "--output", output.to_str().unwrap()];
    let run = copy.path("run");
    let train = arguments(&run, 100_000, &["checkpoint={every: 100000}"]);
    let train: Vec<&str> = train.iter().map(String::as_str).collect();
    let common = [&common[..], &large, &["--width", "256", "--max-tokens", "8"]].concat();
    for (command, part, signals) in
        [(common, "denoise", 1), ([&train[..], &["--log-every", "0"]].concat(), "loss", 2)]
    {
        let mut child = spawn(&command);
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(lines.by_ref().map(Result::unwrap).any(|line| line.contains(part)));
        // From here on a line that is written has no reader.
        drop(lines);
        let begun = Instant::now();
        for _ in 0..signals {
            signal(&child, "INT");
            std::thread::sleep(Duration::from_millis(300));
        }
        while child.try_wait().unwrap().is_none() {
            if begun.elapsed() > Duration::from_secs(30) {
                child.kill().unwrap();
                panic!("{part}: it goes on");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(child.wait().unwrap().code(), Some(130), "{part}");
    }
    assert_eq!(copy.written(), ["run"]);
}

/// A run that was told by SIGUSR1 that its time is nearly up, and then to end, has a checkpoint all the same.
#[test]
fn one_signal_after_usr1_is_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let slow = ["checkpoint={every: 100000}", "data.batch=600", "data.source.clips=700"];
    let words = arguments(&path, 100_000, &slow);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut child = spawn(&[&words[..], &["--log-every", "0"]].concat());
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.by_ref().map(Result::unwrap).any(|line| line.contains("loss")));
    signal(&child, "USR1");
    std::thread::sleep(Duration::from_millis(20));
    signal(&child, "TERM");
    let said: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said:?}");
    assert!(said.iter().any(|line| line.contains("stopped after step")), "{said:?}");
    let names = fs::read_dir(path.join("checkpoints")).unwrap().flatten();
    let names: Vec<_> = names.map(|entry| entry.file_name()).collect();
    assert!(
        names.iter().any(|name| name.to_string_lossy().starts_with("checkpoint-")),
        "{names:?}"
    );
}

/// What is said of a signal has the form, and the loudness, of everything else.
#[test]
fn what_is_said_of_a_signal_is_said_as_asked() {
    let folder = tempfile::tempdir().unwrap();
    let words = arguments(&folder.path().join("json"), 100_000, &["checkpoint={every: 100000}"]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut child = spawn(&[&words[..], &["--log-every", "0", "--log-format", "json"]].concat());
    let (_, said) = said_after(&mut child, "loss", "TERM");
    for line in &said {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|err| panic!("{line}: {err}"));
        assert!(line["level"].is_string());
    }
    assert!(said.iter().any(|line| line.contains("stopping after this step")), "{said:?}");
}

/// Lines at intervals, as text or as JSON, or nothing at all.
#[test]
fn progress_without_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let train = |name: &str, more: &[&str]| {
        let words_of = arguments(&folder.path().join(name), 6, &[]);
        let words_of: Vec<&str> = words_of.iter().map(String::as_str).collect();
        let out = run(&[&words_of[..], more].concat());
        assert!(out.status.success(), "{}", words(&out));
        words(&out)
    };
    let text = train("text", &["--log-every", "0"]);
    for step in 1..=6 {
        let line = text.lines().find(|line| line.starts_with(&format!("train     {step}/6  ")));
        let line = line.unwrap_or_else(|| panic!("no line of step {step}: {text}"));
        assert!(line.contains("loss") && line.contains(" left") && line.contains("step"), "{line}");
    }
    // By default, a short run says little and a long one more.
    let text = train("few", &[]);
    assert!(text.contains("train     0/6") && !text.contains("train     1/6"), "{text}");
    let json = train("json", &["--log-every", "0", "--log-format", "json"]);
    let lines: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let steps = lines.iter().filter(|line| line["stage"] == "train").map(|line| &line["step"]);
    assert_eq!(steps.collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6]);
    assert!(lines.iter().all(|line| line["time"].is_f64() && line["level"].is_string()));
    assert_eq!(train("quiet", &["--quiet"]), "");
    let copy = Copy::of("wan-tiny");
    let small = ["--steps", "2", "--frames", "1", "--height", "16", "--width", "16", "-p", "a fox"];
    let said = words(&copy.generate(&[&small[..], &["--log-every", "0"]].concat()));
    for part in ["encode", "denoise   1/2", "denoise   2/2", "decode"] {
        assert!(said.contains(part), "no `{part}` in: {said}");
    }
    assert_eq!(words(&copy.generate(&[&small[..], &["--quiet"]].concat())), "");
    // An error is an object too.
    let out = copy.generate(&["--steps", "0", "-p", "a fox", "--log-format", "json"]);
    let error: Value = serde_json::from_str(words(&out).trim()).unwrap();
    assert_eq!((&error["level"], &error["code"]), (&"error".into(), &2.into()));
}

/// What a process that was killed left is cleared by the next that makes the same file, and by no other.
#[test]
fn what_was_left_behind_is_cleared() {
    let copy = Copy::of("wan-tiny");
    let left = copy.path(".out.png.99999.abc123.part");
    let others = [".other.png.99999.abc123.part", ".out.png.part", ".out.png.mine.abc123.part"];
    for name in others.iter().copied().chain([".out.png.99999.abc123.part"]) {
        fs::write(copy.path(name), "half").unwrap();
        age(&copy.path(name));
    }
    let small = ["--steps", "1", "--frames", "1", "--height", "16", "--width", "16", "-p", "a fox"];
    assert!(copy.generate(&small).status.success());
    assert!(!left.exists(), "it is still there");
    for name in others {
        assert!(copy.path(name).exists(), "{name} is no file of ours");
    }
}

/// Makes a file a minute older.
fn age(path: &Path) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(std::time::SystemTime::now() - Duration::from_secs(60)).unwrap();
}

/// A look that would take hours ends with the run, says meanwhile how far it is, and is taken when the run goes on.
#[test]
fn a_signal_ends_a_look() {
    let folder = tempfile::tempdir().unwrap();
    let look_every =
        |every, steps| format!("callbacks.validation={{every: {every}, steps: {steps}}}");
    let look = |steps: u32| look_every(2, steps);
    for (name, ranks, steps) in [("TERM", "1", 0), ("INT", "2", 2)] {
        let path = folder.path().join(format!("my run {name}"));
        // The first look, before the first step, or that of a run which goes on.
        if steps > 0 {
            let words = arguments(&path, steps, &[&look_every(100, 1)]);
            assert!(run(&words.iter().map(String::as_str).collect::<Vec<_>>()).status.success());
        }
        let words = arguments(&path, 100_000, &[&look(100_000)]);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let begun = Instant::now();
        let mut child = spawn(&[&words[..], &["--log-every", "0", "--ranks", ranks]].concat());
        let (code, said) = said_after(&mut child, "look: denoise", name);
        assert_eq!(code, Some(130), "{name}: {said:?}");
        assert!(begun.elapsed() < Duration::from_secs(60), "{name}: {:?}", begun.elapsed());
        let last = said.last().unwrap();
        assert!(last.contains(&format!("stopped after step {steps}")), "{last}");
        assert!(last.contains("'") && last.contains(path.to_str().unwrap()), "{last}");
        assert!(path.join("report.html").is_file(), "{name}: there is no report");
        let half = path.join(format!("validation/{steps:08}"));
        assert!(!half.exists(), "{name}: half a look stays");
        let words = arguments(&path, 3, &[&look(1)]);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let out = run(&[&words[..], &["--ranks", ranks]].concat());
        assert!(out.status.success(), "{}", crate::training::words(&out));
        assert!(half.join("clips.json").is_file(), "{name}: the look was not taken up again");
    }
}

/// What programs read is JSON whatever names hold, arguments that cannot be understood included; in what people read no
/// name begins a line of ours.
#[test]
fn every_line_of_json_is_json() {
    let json = ["--log-format", "json"];
    for words in [
        &["generate", "--model", "x\u{7f}\u{85}y", "-p", "a", "-o", "o.gif"][..],
        &["generate", "--bogus\u{9b}"],
        &["inspect", "no\nsuch\u{1b}file"],
    ] {
        let out = run(&[words, &json].concat());
        assert_eq!(out.status.code(), Some(2), "{words:?}");
        let said = String::from_utf8(out.stderr).unwrap();
        for line in said.lines() {
            let told: Value = serde_json::from_str(line).expect(line);
            assert_eq!(told["level"], "error", "{line}");
        }
    }
    let out = run(&["inspect", "no\nerror: such\nfile"]);
    let said = String::from_utf8(out.stderr).unwrap();
    assert_eq!(said.lines().filter(|line| line.starts_with("error:")).count(), 1, "{said}");
    for odd in ["nan", "-1", "inf", "1e400"] {
        let out = run(&["inspect", "x", "--log-every", odd]);
        let said = crate::training::words(&out);
        assert!(
            out.status.code() == Some(2) && said.contains("number of seconds"),
            "{odd}: {said}"
        );
    }
}
