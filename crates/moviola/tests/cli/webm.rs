//! A program of the system writes WebM: what it makes stands where everything does that is not finished.

#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use crate::folder::Copy;
use crate::training::words;

/// The first thing that a program in the place of ffmpeg does.
const LAST: &str = r#"[ "$1" = -version ] && exit 0; for last; do :; done; last="${last#file:}""#;

/// A copy with a program of this text in the place of ffmpeg, which is given its output as `$last`.
fn with_program(text: &str) -> Copy {
    let copy = Copy::of("wan-tiny");
    let tools = copy.path("given-tools");
    fs::create_dir(&tools).unwrap();
    fs::write(tools.join("ffmpeg"), format!("#!/bin/sh\n{LAST}\n{text}\n")).unwrap();
    fs::set_permissions(tools.join("ffmpeg"), fs::Permissions::from_mode(0o755)).unwrap();
    copy
}

fn generate(copy: &Copy, output: &str, more: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("moviola"));
    command.args(["generate", "--prompt", "a fox", "--steps", "1", "--frames", "5"]);
    command.args(["--height", "16", "--width", "16", "--max-tokens", "8", "--model"]);
    command.arg(copy.path("model")).args(["--output", output]).args(more);
    let path = format!("{}:/usr/bin:/bin", copy.path("given-tools").display());
    command.env("PATH", path).stdin(Stdio::null());
    command
}

/// What is not finished.
fn parts(copy: &Copy) -> Vec<String> {
    copy.written().into_iter().filter(|name| name.ends_with(".part")).collect()
}

#[test]
fn what_a_kill_left_of_a_webm_is_cleared() {
    let copy = with_program("echo half > \"$last\"; sleep 5; echo over > \"$last\"");
    let output = copy.path("out.webm");
    let output = output.to_str().unwrap();
    let mut child = generate(&copy, output, &["--quiet"]).spawn().unwrap();
    let begun = Instant::now();
    let is_half = |name: &String| fs::read(copy.path(name)).is_ok_and(|text| text == b"half\n");
    while !parts(&copy).iter().any(is_half) {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing is written beside the output");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let left = parts(&copy);
    assert!(left.iter().all(|name| name.starts_with(".out.webm.")), "{left:?}");
    assert!(left.iter().any(is_half), "{left:?}");
    for name in &left {
        let file = fs::File::options().write(true).open(copy.path(name)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
    }
    fs::write(copy.path("given-tools/ffmpeg"), format!("#!/bin/sh\n{LAST}\ncat > \"$last\"\n"))
        .unwrap();
    let again = generate(&copy, output, &[]).output().unwrap();
    assert!(again.status.success(), "{}", words(&again));
    assert_eq!(copy.written(), ["out.webm", "out.webm.json"]);
}

/// The folder for what is temporary is asked for where nothing else is there, and before the work.
#[test]
fn a_webm_needs_no_other_folder() {
    let copy = with_program("cat > \"$last\"");
    let output = copy.path("out.webm");
    let mut beside = generate(&copy, output.to_str().unwrap(), &[]);
    let beside = beside.env("TMPDIR", "/nonexistent").output().unwrap();
    assert!(beside.status.success(), "{}", words(&beside));
    assert_eq!(fs::read(&output).unwrap().len(), 5 * 16 * 16 * 3);
    let mut piped = generate(&copy, "-", &["--format", "webm", "--log-every", "0"]);
    let piped = piped.env("TMPDIR", "/nonexistent").output().unwrap();
    let said = words(&piped);
    assert_eq!(piped.status.code(), Some(2), "{said}");
    assert!(said.contains("/nonexistent") && said.contains("TMPDIR"), "{said}");
    assert!(!said.contains("denoise"), "{said}");
    let temporary = copy.path("given-temporary");
    fs::create_dir(&temporary).unwrap();
    let mut piped = generate(&copy, "-", &["--format", "webm"]);
    let piped = piped.env("TMPDIR", &temporary).output().unwrap();
    assert_eq!(piped.stdout.len(), 5 * 16 * 16 * 3, "{}", words(&piped));
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
}
