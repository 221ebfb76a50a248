//! Training that comes to nothing.

use std::fs;

use crate::place::{Place, golden};
use crate::process::Run;

/// A tiny run of the quickstart in `run`, with more settings.
pub(crate) fn train(place: &Place, more: &[&str]) -> Run {
    let recipe = golden("../recipes/quickstart.yaml");
    let mut words = vec!["train".to_owned(), recipe.to_str().unwrap().to_owned()];
    words.extend(["--run".to_owned(), place.text("run")]);
    let new = "models.student.new={family: duet, video_channels: 384, text_width: 64, heads: 2, \
               head_width: 8, depth: 1}";
    let usual = [
        new,
        "data.batch=2",
        "data.source.clips=40",
        "models.student.rate.warmup=0",
        "models.student.rate.decay={kind: constant}",
        "callbacks={}",
        "checkpoint={every: 1, keep_last: 1}",
    ];
    for set in usual.iter().chain(more) {
        words.extend(["--set".to_owned(), (*set).to_owned()]);
    }
    Run::of(words)
}

#[test]
fn a_run_that_diverges_is_an_error_and_keeps_its_last_good_checkpoint() {
    let place = Place::new();
    let good = ["loop.steps=3", "models.student.rate.peak=0.001"];
    train(&place, &good).ended().ended_with(0, &[]);
    let before = place.files("run/checkpoints");
    assert_eq!(place.names("run/checkpoints").len(), 3, "{:?}", place.names("run/checkpoints"));

    // No weights bear this rate.
    let wild = ["loop.steps=9", "models.student.rate.peak=1e300"];
    let fresh = Place::new();
    let ended = train(&fresh, &wild).ended();
    ended.refused(&["diverged at step 1", "not finite", "models.student.rate"]);
    let none = fresh.names("run/checkpoints");
    assert!(none.iter().all(|name| !name.contains("checkpoint-")), "{none:?}");
    Run::of(["export", &fresh.text("run"), "--output", &fresh.text("model")]).ended().refused(&[]);
    assert!(!fresh.path("model").exists());

    // A state of another version that is not finite is passed over for the one before it.
    let newest = place.path("run/checkpoints/checkpoint-00000003");
    let broken = place.path("run/checkpoints/checkpoint-00000004");
    poison(&newest, &broken);
    let model = place.text("model");
    Run::of(["export", broken.to_str().unwrap(), "--output", &model])
        .ended()
        .refused(&["diverged"]);
    assert!(!place.path("model").exists());
    Run::of(["export", &place.text("run"), "--output", &model]).ended().ended_with(0, &[]);
    let longer = ["loop.steps=4", "models.student.rate.peak=0.001"];
    train(&place, &longer).ended().ended_with(0, &["passing over", "going on after step 3"]);
    let after = place.files("run/checkpoints");
    assert!(before != after);
}

/// While updates have to be skipped, nothing takes the place of the checkpoint before them, and a run that
/// ends so is no success.
#[test]
fn a_run_that_no_longer_learns_keeps_its_last_sound_checkpoint() {
    // Both rates leave weights that are finite, and a loss that is not.
    let place = Place::new();
    let ended = train(&place, &["loop.steps=300", "models.student.rate.peak=1e10"]).ended();
    ended.refused(&["diverged at step", "20 times in a row", "nothing of it was saved"]);
    let short = Place::new();
    let ended = train(&short, &["loop.steps=9", "models.student.rate.peak=1e10"]).ended();
    ended.refused(&["ended at step 9 without learning", "updates of the student were skipped"]);
    let steps = |place: &Place| -> Vec<u64> {
        let names = place.names("run/checkpoints").into_iter();
        let mut steps: Vec<u64> =
            names.filter_map(|name| name.split(['-', '/']).nth(1)?.parse().ok()).collect();
        steps.dedup();
        steps
    };
    let [sound] = steps(&place)[..] else { panic!("{:?}", place.names("run/checkpoints")) };
    assert!(sound < 9, "{sound}");
    assert_eq!(steps(&short), [sound, 9]);
}

/// A copy of a checkpoint with one weight that is not a number, and hashes that say that all is well.
fn poison(from: &std::path::Path, to: &std::path::Path) {
    fs::create_dir(to).unwrap();
    let mut state = fs::read(from.join("state.safetensors")).unwrap();
    let manifest = fs::read_to_string(from.join("manifest.json")).unwrap();
    let old = blake3::hash(&state).to_hex().to_string();
    let end = state.len();
    state[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    assert!(manifest.contains(&old));
    let manifest = manifest.replace(&old, blake3::hash(&state).to_hex().as_str());
    let manifest = manifest.replace("\"step\": 3", "\"step\": 4");
    // As earlier versions wrote it: without a seal.
    let lines = manifest.lines().filter(|line| !line.contains("\"seal\""));
    let manifest = lines.collect::<Vec<_>>().join("\n");
    fs::write(to.join("state.safetensors"), state).unwrap();
    fs::write(to.join("manifest.json"), manifest).unwrap();
}
