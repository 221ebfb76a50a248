//! A run that was killed and resumed leaves the log of one that was not.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use journal::{Error, Journal, history};
use serde_json::Value;

use crate::run::run;

/// The log without what a clock had a say in.
fn timeless(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    assert!(text.ends_with('\n'));
    let parse = |line| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        for key in ["seconds", "samples_per_second", "tokens_per_second"] {
            line.as_object_mut().unwrap().remove(key);
        }
        line
    };
    text.lines().map(parse).collect()
}

fn append(folder: &Path, text: &[u8]) {
    let file = File::options().append(true).open(folder.join("metrics.jsonl"));
    file.unwrap().write_all(text).unwrap();
}

/// Forgets the checkpoints after a step, as if they had not been committed.
fn lose_checkpoints_after(folder: &Path, step: u64) {
    for (own, path) in train::checkpoint::list(&folder.join("checkpoints")).unwrap() {
        if own > step {
            fs::remove_dir_all(path).unwrap();
        }
    }
}

/// Runs to `killed`, loses what came after `saved`, spoils the log and runs to the end.
#[track_caller]
fn check(killed: u64, saved: u64, spoil: impl Fn(&Path)) {
    let (whole, broken) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    run(whole.path(), 9);
    run(broken.path(), killed);
    lose_checkpoints_after(broken.path(), saved);
    spoil(broken.path());
    run(broken.path(), 9);
    let want = timeless(whole.path());
    assert_eq!(want.len(), 9 + 5);
    assert_eq!(timeless(broken.path()), want);
}

#[test]
fn lines_after_the_checkpoint_are_told_anew() {
    check(7, 4, |_| {});
    check(7, 6, |_| {});
    check(5, 5, |_| {});
}

#[test]
fn a_run_without_a_checkpoint_begins_anew() {
    check(3, 0, |_| {});
}

#[test]
fn a_run_that_begins_anew_forgets_what_was_before_its_first_step() {
    let folder = tempfile::tempdir().unwrap();
    for score in [0.25, 0.5] {
        let journal = Journal::new(folder.path());
        journal.start(0).unwrap();
        journal.record(0, &[("validation/score", score)]).unwrap();
    }
    let found = history(folder.path()).unwrap().recorded();
    assert_eq!(found[0].points, [(0, 0.5)]);
}

#[test]
fn half_a_line_at_the_end_is_dropped() {
    check(6, 6, |folder| append(folder, b"{\"step\":7,\"losses\":{\"vid"));
    check(6, 4, |folder| append(folder, b"{\"step\":7,\"losses\":{\"vid"));
    // A whole line but for its end, and what a file system makes of a lost block.
    check(6, 6, |folder| append(folder, b"{\"step\":6,\"scalars\":{\"a\":1}}"));
    check(6, 6, |folder| append(folder, b"\0\0\0\0\0\n\0\0\0"));
}

#[test]
fn what_was_recorded_is_dropped_or_kept_like_a_step() {
    // The look at step 6 comes after its checkpoint, so a run can be killed in between.
    let without_last_look = |folder: &Path| {
        let path = folder.join("metrics.jsonl");
        let text = fs::read_to_string(&path).unwrap();
        let last = text.trim_end().rfind('\n').unwrap();
        assert!(text[last..].contains("heldout/loss"));
        fs::write(path, &text[..=last]).unwrap();
    };
    check(6, 6, without_last_look);
}

#[test]
fn a_line_damaged_in_the_midst_is_named() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), 2);
    let lines = fs::read_to_string(folder.path().join("metrics.jsonl")).unwrap().lines().count();
    append(folder.path(), b"{\"step\":3}\n{\"step\":3,\"scalars\":{}}\n");
    let journal = Journal::new(folder.path());
    for error in [journal.start(3).unwrap_err(), history(folder.path()).unwrap_err()] {
        assert!(matches!(&error, Error::Damaged { line, .. } if *line == lines + 1), "{error}");
        assert!(error.to_string().contains("missing field `losses`"), "{error}");
    }
}

#[test]
fn a_log_under_way_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), 3);
    append(folder.path(), b"{\"step\":4,");
    assert_eq!(history(folder.path()).unwrap().steps.len(), 3);
}
