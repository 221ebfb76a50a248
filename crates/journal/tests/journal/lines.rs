//! What a line says, and what is read back from it.

use std::fs;
use std::path::Path;

use journal::{Error, Journal, Peak, Series, history};
use serde_json::{Value, json};
use train::{Callback, Event, StepReport};

use crate::run::{Idle, report, tell};

fn lines(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn series(name: &str, points: &[(u64, f64)]) -> Series {
    Series { name: name.to_owned(), points: points.to_vec() }
}

#[test]
fn a_line_is_the_report_as_it_is_and_the_speed() {
    let folder = tempfile::tempdir().unwrap();
    let peak = Peak { flops_per_token: 2e6, flops_per_second: 1e10 };
    let mut journal = Journal::new(folder.path()).with_peak(peak).unwrap();
    tell(&mut journal, &[report(1)]);
    let mut want = serde_json::to_value(report(1)).unwrap();
    want["samples_per_second"] = json!(12.0);
    want["tokens_per_second"] = json!(1200.0);
    want["share_of_peak"] = json!(1200.0 * 2e6 / 1e10);
    assert_eq!(lines(folder.path()), [want]);
}

#[test]
fn the_share_of_the_peak_is_there_only_if_it_is_known() {
    let folder = tempfile::tempdir().unwrap();
    tell(&mut Journal::new(folder.path()), &[report(1)]);
    assert_eq!(lines(folder.path())[0].get("share_of_peak"), None);
    for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let peak = Peak { flops_per_token: wrong, flops_per_second: 1.0 };
        let error = Journal::new(folder.path()).with_peak(peak).unwrap_err();
        assert!(error.to_string().contains("operations per token"), "{error}");
        let peak = Peak { flops_per_token: 1.0, flops_per_second: wrong };
        let error = Journal::new(folder.path()).with_peak(peak).unwrap_err();
        assert!(error.to_string().contains("the machine's peak"), "{error}");
    }
}

#[test]
fn a_line_is_there_as_soon_as_its_step_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::new(folder.path());
    for step in 1..4 {
        if step == 1 {
            journal.on(&Event::Started { step: 0 }, &Idle).unwrap();
        }
        journal.on(&Event::Stepped { report: &report(step) }, &Idle).unwrap();
        assert_eq!(lines(folder.path()).len() as u64, step);
    }
}

#[test]
fn others_record_numbers_on_lines_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::new(folder.path());
    tell(&mut journal, &[report(1)]);
    journal.clone().record(1, &[("validation/score", 0.5), ("heldout/loss", 0.25)]).unwrap();
    journal.record(1, &[("validation/score", 0.75), ("extra", 1.0)]).unwrap();
    journal.record(1, &[("validation/score", 0.75)]).unwrap();
    journal.record(2, &[("validation/score", 0.875)]).unwrap();
    let want = [
        json!({ "step": 1, "scalars": { "heldout/loss": 0.25, "validation/score": 0.5 } }),
        json!({ "step": 1, "scalars": { "extra": 1.0 } }),
        json!({ "step": 2, "scalars": { "validation/score": 0.875 } }),
    ];
    assert_eq!(lines(folder.path())[1..], want);
}

#[test]
fn what_is_out_of_order_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::new(folder.path());
    assert!(matches!(journal.record(0, &[("a", 1.0)]), Err(Error::NotStarted)));
    let error = journal.on(&Event::Stepped { report: &report(1) }, &Idle).unwrap_err();
    assert!(error.to_string().starts_with("callback `journal`: nothing can be"), "{error}");
    tell(&mut journal, &[report(1), report(2)]);
    let error = journal.record(1, &[("a", 1.0)]).unwrap_err();
    assert!(error.to_string().starts_with("step 1 cannot be recorded after step 2"), "{error}");
    assert_eq!(lines(folder.path()).len(), 2);
}

#[test]
fn a_run_that_is_over_can_be_added_to() {
    let folder = tempfile::tempdir().unwrap();
    tell(&mut Journal::new(folder.path()), &[report(1), report(2)]);
    for _ in 0..2 {
        let journal = Journal::new(folder.path());
        journal.start(2).unwrap();
        journal.record(2, &[("score", 0.5)]).unwrap();
    }
    assert_eq!(lines(folder.path()).len(), 3);
}

#[test]
fn a_history_is_what_was_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::new(folder.path());
    let second = StepReport { losses: [("video".to_owned(), f64::NAN)].into(), ..report(2) };
    tell(&mut journal, &[report(1), second]);
    journal.record(2, &[("validation/score", 0.5), ("lost", f64::INFINITY)]).unwrap();

    let found = history(folder.path()).unwrap();
    assert_eq!(found.steps.len(), 2);
    assert_eq!(found.steps[0].roles[1].outcome, "gradient-not-finite");
    let losses = found.losses();
    assert_eq!(losses[0], series("audio", &[(1, 0.75)]));
    assert_eq!((losses[1].name.as_str(), losses[1].points[0]), ("video", (1, 0.25)));
    assert!(losses[1].points[1].1.is_nan());
    let by_level = [
        series("video/0.00-0.25", &[(1, 0.125), (2, 0.125)]),
        series("video/0.75-1.00", &[(1, 0.375), (2, 0.375)]),
    ];
    assert_eq!(found.losses_by_level(), by_level);
    let rates =
        [series("critic", &[(1, 2e-3), (2, 2e-3)]), series("student", &[(1, 1e-3), (2, 1e-3)])];
    assert_eq!(found.rates(), rates);
    assert_eq!(found.gradient_norms()[0], series("critic", &[(1, 1.5), (2, 1.5)]));
    assert_eq!(found.speeds()[0], series("samples_per_second", &[(1, 12.0), (2, 12.0)]));
    assert_eq!(found.recorded()[1], series("validation/score", &[(2, 0.5)]));
    assert!(found.recorded()[0].points[0].1.is_nan());
}

#[test]
fn a_folder_without_a_log_has_no_history() {
    let folder = tempfile::tempdir().unwrap();
    let error = history(folder.path()).unwrap_err().to_string();
    assert!(error.starts_with("cannot read ") && error.contains("metrics.jsonl"), "{error}");
}
