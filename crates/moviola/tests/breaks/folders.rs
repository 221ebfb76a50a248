//! Folders with links in circles, names that are no text, and damaged checkpoints.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use crate::place::{Place, golden};
use crate::process::{Run, text};
use crate::training::train;

#[test]
fn links_in_circles_are_followed_once() {
    let place = Place::new();
    place.picture("clips/a.png", [32, 32], 1);
    place.picture("other/b.png", [32, 32], 2);
    place.picture("clips/deep/c.png", [32, 32], 3);
    let clips = place.path("clips");
    symlink(".", clips.join("x")).unwrap();
    symlink(".", clips.join("y")).unwrap();
    symlink("../clips", clips.join("deep/z")).unwrap();
    symlink(place.path("other"), clips.join("linked")).unwrap();
    symlink("nowhere", clips.join("broken")).unwrap();
    let ended = Run::of(["doctor", "--data", text(&clips), "--bucket", "32x32x1"]).ended();
    ended.ended_with(0, &["3 of 3 clips would be encoded"]);
    ended.within(20);
}

#[test]
fn names_that_are_no_text_stay_apart() {
    let place = Place::new();
    let names: [&[u8]; 4] =
        [b"caf\xe9", b"caf\xe8", r"caf\xe9".as_bytes(), "caf\u{fffd}".as_bytes()];
    for (at, name) in names.into_iter().enumerate() {
        let picture = place.picture("seed.png", [32, 32], at as u32);
        let mut path = place.path("clips").join(OsStr::from_bytes(name)).into_os_string();
        fs::create_dir_all(place.path("clips")).unwrap();
        path.push(".png");
        fs::rename(&picture, &path).unwrap();
        let caption = std::path::PathBuf::from(path).with_extension("txt");
        fs::rename(picture.with_extension("txt"), caption).unwrap();
    }
    let (model, clips, dataset) =
        (golden("pixart-tiny"), place.text("clips"), place.text("dataset"));
    let run = || {
        let words = ["preprocess", "--bucket", "32x32x1", "--model", text(&model)];
        Run::of([&words[..], &["--data", &clips, "--output", &dataset]].concat()).ended()
    };
    run().ended_with(0, &["4 samples (4 encoded now"]);
    run().ended_with(0, &["4 samples (0 encoded now, 4 kept"]);
}

/// A flipped bit anywhere in a checkpoint is a damaged checkpoint, and the one before it serves.
#[test]
fn a_flipped_bit_falls_back_to_the_checkpoint_before() {
    let place = Place::new();
    let steps = |steps: &str| [steps.to_owned(), "checkpoint={every: 1, keep_last: 9}".to_owned()];
    let run = |count: &str| {
        let sets = steps(count);
        train(&place, &sets.each_ref().map(String::as_str)).ended()
    };
    run("loop.steps=2").ended_with(0, &[]);
    let newest = place.path("run/checkpoints/checkpoint-00000002");
    let manifest = fs::read(newest.join("manifest.json")).unwrap();
    // Digits of the recipe become others, which is still JSON.
    let text = String::from_utf8(manifest.clone()).unwrap();
    for word in ["\"clips\": 40", "\"batch\": 2", "\"step\": 2", "\"peak\": 0.003"] {
        let at = text.find(word).unwrap_or_else(|| panic!("no {word} in {text}")) + word.len() - 1;
        let mut flipped = manifest.clone();
        flipped[at] ^= 1;
        fs::write(newest.join("manifest.json"), flipped).unwrap();
        run("loop.steps=2").ended_with(0, &["passing over", "going on after step 1"]);
        let aside = fs::read_dir(place.path("run/checkpoints")).unwrap().flatten();
        for own in aside.filter(|own| own.file_name().to_string_lossy().starts_with("abandoned")) {
            fs::remove_dir_all(own.path()).unwrap();
        }
    }
}

#[test]
fn folders_that_are_called_like_checkpoints_are_left_alone() {
    let place = Place::new();
    let sets = |steps: &'static str| [steps, "checkpoint={every: 1, keep_last: 1}"];
    train(&place, &sets("loop.steps=2")).ended().ended_with(0, &[]);
    place.write("run/checkpoints/checkpoint-7/thesis.txt", "precious");
    place.write("run/checkpoints/checkpoint-00000009", "no folder");
    train(&place, &sets("loop.steps=8")).ended().ended_with(0, &["going on after step 2"]);
    let names = place.names("run/checkpoints");
    assert!(names.iter().any(|name| name == "checkpoint-7/thesis.txt"), "{names:?}");
    let (run, model) = (place.text("run"), place.text("model"));
    Run::of(["export", &run, "--output", &model]).ended().ended_with(0, &[]);
}
