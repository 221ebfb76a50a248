//! `moviola train --ranks`: a run on several ranks leaves what a run on one does.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::folder::run;
use crate::training::{arguments, words};

/// Trains on so many ranks.
fn train(folder: &Path, steps: usize, sets: &[&str], more: &[&str]) -> std::process::Output {
    let all = arguments(folder, steps, &[&["data.batch=4"], sets].concat());
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    run(&[&all[..], more].concat())
}

fn trained(folder: &Path, steps: usize, sets: &[&str], more: &[&str]) -> String {
    let output = train(folder, steps, sets, more);
    assert!(output.status.success(), "{more:?}: {}", words(&output));
    words(&output)
}

fn state(folder: &Path, step: usize) -> Vec<u8> {
    fs::read(folder.join(format!("checkpoints/checkpoint-{step:08}/state.safetensors"))).unwrap()
}

/// Every line of the log, without what depends on the clock.
fn log(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    let line = |line: &str| {
        let mut value: Value = serde_json::from_str(line).unwrap();
        let fields = value.as_object_mut().unwrap();
        fields.retain(|key, _| !key.contains("second") && !key.contains("peak"));
        value
    };
    text.lines().map(line).collect()
}

fn losses(folder: &Path) -> Vec<f64> {
    log(folder).iter().filter_map(|line| line["losses"]["loss"].as_f64()).collect()
}

#[test]
fn ranks_log_the_losses_of_one_and_leave_one_run() {
    let temporary = tempfile::tempdir().unwrap();
    let at = |name: &str| temporary.path().join(name);
    let look = "callbacks.validation={every: 4, steps: 1, prompts: [a red circle moves right]}";
    trained(&at("one"), 8, &[look], &[]);
    let want = losses(&at("one"));
    assert_eq!(want.len(), 8);
    for ranks in ["2", "4"] {
        let told = trained(&at(ranks), 8, &[look], &["--ranks", ranks]);
        assert!(
            told.contains(&format!("{ranks} ranks: {ranks} replicas, each with 1/{ranks}")),
            "{told}"
        );
        let got = losses(&at(ranks));
        assert_eq!(got.len(), want.len(), "each step is logged once");
        for (got, want) in got.iter().zip(&want) {
            assert!((got - want).abs() <= 1e-4 * want, "{ranks} ranks: {got} {want}");
        }
        // What is kept is kept once, and it is what one rank keeps.
        let names = |folder: &Path| {
            let entries = fs::read_dir(folder).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        for folder in ["", "checkpoints", "validation/00000004"] {
            assert_eq!(names(&at(ranks).join(folder)), names(&at("one").join(folder)), "{folder}");
        }
    }
}

#[test]
fn a_run_on_ranks_goes_on_to_the_bit_and_on_other_numbers_of_ranks() {
    let temporary = tempfile::tempdir().unwrap();
    let at = |name: &str| temporary.path().join(name);
    trained(&at("whole"), 8, &[], &["--ranks", "2"]);
    trained(&at("parts"), 8, &[], &["--ranks", "2"]);
    fs::remove_dir_all(at("parts").join("checkpoints/checkpoint-00000008")).unwrap();
    // The recipe may say it as well; how many ranks there are may change within a run.
    let told = trained(&at("parts"), 8, &["parallel={data: 2}"], &[]);
    assert!(told.contains("going on after step 6"), "{told}");
    assert!(state(&at("parts"), 8) == state(&at("whole"), 8), "the states differ");
    assert_eq!(log(&at("parts")), log(&at("whole")));
    trained(&at("parts"), 10, &[], &["--ranks", "4"]);
    trained(&at("parts"), 12, &[], &[]);
    assert_eq!(losses(&at("parts")).len(), 12);
}

#[test]
fn layouts_of_training_that_cannot_be_are_refused() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("run");
    for (sets, more, expected) in [
        (&[][..], &["--ranks", "3"][..], "data.batch is 4, of which 3 replicas"),
        (&[], &["--ranks", "0"], "--ranks: it is 0; choose 1 to 256"),
        (&[], &["--ranks", "9999"], "--ranks: it is 9999"),
        (&["parallel={data: 2}"], &["--ranks", "4"], "parallel.data is 2, but there are 4 ranks"),
        (&["parallel={replicas: 2}"], &[], "replicas"),
    ] {
        let refused = train(&folder, 2, sets, more);
        assert_eq!(refused.status.code(), Some(2), "{more:?}: {}", words(&refused));
        assert!(words(&refused).contains(expected), "{more:?}: {}", words(&refused));
        assert!(!folder.exists(), "{more:?}: something was written");
    }
    let told =
        train(&folder, 2, &["checkpoint={every: 1, keep_last: 1}"], &["--ranks", "2", "--dry-run"]);
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.status.success() && text.contains("# of each of 2 ranks"), "{text}");
}
