//! The page of a run, and the recipe that it keeps.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::folder::run;
use crate::training::{arguments, train, words};

const LOOK: &str = "callbacks.validation={every: 2, steps: 1, prompts: [a red circle moves left, \
                    a blue square moves up]}";

/// How often a text holds another.
fn count(text: &str, part: &str) -> usize {
    text.matches(part).count()
}

/// Clips are on the page and in TensorBoard, and the page says what was trained on what.
#[test]
fn a_page_shows_what_validation_made() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("run");
    let out = train(&folder, 4, &[LOOK]);
    assert!(out.status.success(), "{}", words(&out));
    let page = fs::read_to_string(folder.join("report.html")).unwrap();
    assert!(page.contains("Validation after step 4"), "no clips");
    // Two of the last look, and the first of each of the three looks.
    assert_eq!(count(&page, "src=\"data:image/gif;base64,"), 5);
    for fact in
        ["base model", "a new duet", "dataset", "the shapes world", "quickstart.yaml", "4 of 4"]
    {
        assert!(page.contains(fact), "no `{fact}`");
    }
    assert!(page.contains("<dt>date</dt><dd>20") && page.contains(" UTC</dd>"));
    let events = fs::read_dir(folder.join("tensorboard")).unwrap().next().unwrap().unwrap().path();
    let events = fs::read(events).unwrap();
    let has = |part: &[u8]| events.windows(part.len()).filter(|own| *own == part).count();
    assert_eq!(has(b"validation/001 a blue square moves up"), 3);
    let clip = fs::read(folder.join("validation/00000004/001.gif")).unwrap();
    assert_eq!(has(&clip), 1, "the clip itself is shown");
    // A run that is over says so, and its page is left alone.
    fs::write(folder.join("report.html"), "mine").unwrap();
    let before = fs::read_dir(folder.join("tensorboard")).unwrap().count();
    let out = train(&folder, 4, &[LOOK]);
    assert!(out.status.success() && words(&out).contains("the run is finished"), "{}", words(&out));
    assert_eq!(fs::read_to_string(folder.join("report.html")).unwrap(), "mine");
    assert_eq!(fs::read_dir(folder.join("tensorboard")).unwrap().count(), before);
    fs::remove_file(folder.join("report.html")).unwrap();
    assert!(train(&folder, 4, &[LOOK]).status.success());
    assert!(fs::read_to_string(folder.join("report.html")).unwrap().contains("Validation after"));
}

/// The page is there long before the end.
#[test]
fn a_page_grows_with_its_run() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("run");
    let words = arguments(&folder, 1_000_000, &[LOOK, "checkpoint={every: 1000000}"]);
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_moviola"))
        .args(words)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let (begun, mut seen) = (Instant::now(), false);
    while !seen && begun.elapsed() < Duration::from_secs(60) {
        let page = fs::read_to_string(folder.join("report.html")).unwrap_or_default();
        seen = page.contains("Validation after step 4") && page.contains("of 1000000");
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(seen, "no page came");
}

/// A run goes on with the recipe that it keeps, to the same bits.
#[test]
fn a_run_keeps_its_recipe() {
    let temporary = tempfile::tempdir().unwrap();
    let path = |name: &str| temporary.path().join(name);
    let state = |folder: &Path| {
        fs::read(folder.join("checkpoints/checkpoint-00000006/state.safetensors")).unwrap()
    };
    assert!(train(&path("whole"), 6, &[]).status.success());
    assert!(train(&path("parts"), 2, &[]).status.success());
    let parts = path("parts");
    let parts = parts.to_str().unwrap();
    let out = run(&["train", "--run", parts, "--set", "loop.steps=6"]);
    assert!(
        out.status.success() && words(&out).contains("going on after step 2"),
        "{}",
        words(&out)
    );
    assert_eq!(state(&path("whole")), state(&path("parts")));
    let out = run(&["train", "--run", parts]);
    assert!(words(&out).contains("all of its 6 steps are over"), "{}", words(&out));
    let nowhere = path("nowhere");
    let out = run(&["train", "--run", nowhere.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(2));
    assert!(words(&out).contains("no recipe is given") && !nowhere.exists(), "{}", words(&out));
}
