//! `moviola train --ranks`: a run on several ranks leaves what a run on one does.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::folder::run;
use crate::preprocess::Workplace;
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

/// Every byte of the state after a step, which ranks that hold parameters together write in parts.
fn state(folder: &Path, step: usize) -> Vec<u8> {
    let place = folder.join(format!("checkpoints/checkpoint-{step:08}"));
    let entries = fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().path());
    let is_part = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "safetensors");
    let mut parts: Vec<PathBuf> = entries.filter(is_part).collect();
    parts.sort();
    parts.iter().flat_map(|path| fs::read(path).unwrap()).collect()
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

/// Every file of a folder and of those in it, with its bytes.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let (path, name) = (entry.path(), PathBuf::from(entry.file_name()));
        match path.is_dir() {
            true => all.extend(files(&path).into_iter().map(|(own, it)| (name.join(own), it))),
            false => all.push((name, fs::read(path).unwrap())),
        }
    }
    all.sort();
    all
}

/// Prompts of a validation are shared by the ranks, whatever else they share: the clips are those of one rank.
#[test]
fn ranks_make_the_clips_of_one() {
    let temporary = tempfile::tempdir().unwrap();
    let at = |name: &str| temporary.path().join(name);
    let look = "callbacks.validation={every: 30, steps: 2, prompts: [a red circle moves right, \
                a blue square moves up, a green circle moves left]}";
    trained(&at("one"), 30, &[look], &[]);
    let want = files(&at("one").join("validation/00000030"));
    assert!(want.len() > 3, "{}", want.len());
    // A network that has learnt nothing makes one clip of every prompt, and says nothing of who made which.
    let clips: Vec<_> =
        want.iter().filter(|(name, _)| name.extension().is_some_and(|own| own == "gif")).collect();
    assert!(clips.windows(2).all(|pair| pair[0].1 != pair[1].1), "two prompts have one clip");
    let layouts: [&[&str]; 5] = [
        &["--ranks", "2"],
        &["--ranks", "4", "--shard", "1"],
        &["--ulysses", "2"],
        &["--ring", "2", "--data", "2"],
        &["--tensor", "2"],
    ];
    for layout in layouts {
        let folder = at(&layout.concat());
        trained(&folder, 30, &[look], layout);
        let got = files(&folder.join("validation/00000030"));
        assert!(got == want, "{layout:?} makes other clips");
    }
}

/// Ranks that encode together leave the bytes of one, and so do those that go on.
#[test]
fn ranks_encode_the_dataset_of_one() {
    let made = |ranks: &[&str]| {
        let place = Workplace::new();
        for (at, size) in [[32, 32], [64, 32], [32, 32], [40, 36]].into_iter().enumerate() {
            place.picture(&format!("{at}.png"), size, at as u32, &format!("picture {at}"));
        }
        let sizes = ["--bucket", "32x32x1", "--bucket", "64x32x1"];
        let encode = |more: &[&str]| {
            place.encoded("pixart-tiny", "clips", &[&sizes[..], ranks, more].concat())
        };
        let mut told = encode(&[]);
        for at in 4..9 {
            place.picture(&format!("{at}.png"), [32, 32], at, &format!("picture {at}"));
        }
        // Neither a picture that is gone nor one that changes may put the others out of step.
        fs::remove_file(place.path("clips/1.png")).unwrap();
        place.picture("2.png", [32, 32], 99, "another picture");
        fs::write(place.path("clips/3.png"), "no picture").unwrap();
        told += &encode(&[]);
        let told = told.replace(&place.text(""), "");
        (told, files(&place.path("dataset")))
    };
    let (told, want) = made(&[]);
    assert!(told.contains("4 encoded now") && told.contains("6 encoded now"), "{told}");
    for ranks in ["2", "3", "8"] {
        let got = made(&["--ranks", ranks]);
        assert!(got.0 == told, "{ranks} ranks say: {} {told}", got.0);
        assert!(got.1 == want, "{ranks} ranks make another dataset");
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
    // Networks of a method may differ in size: each must have a head for every rank.
    let (small, teacher) = (temporary.path().join("small"), temporary.path().join("teacher"));
    trained(&small, 2, &[], &[]);
    let exported = run(&["export", small.to_str().unwrap(), "--output", teacher.to_str().unwrap()]);
    assert!(exported.status.success(), "{}", words(&exported));
    let own = "models.student={new: {family: duet, video_channels: 384, text_width: 64, heads: 4, head_width: 8, \
               depth: 1}, rate: {peak: 0.001}}";
    let [taught, critic] = ["teacher", "critic"]
        .map(|role| format!("models.{role}.from={}", teacher.to_str().unwrap()));
    let recipe = crate::training::recipe("learn/dmd2.yaml");
    let sets = [own, &taught, &critic, "models.critic.rate.warmup=0", "loop.steps=4"];
    let sets: Vec<&str> = sets.into_iter().flat_map(|set| ["--set", set]).collect();
    let base = ["train", recipe.as_str(), "--run", folder.to_str().unwrap()];
    for degree in ["--tensor", "--ulysses"] {
        let refused = run(&[&base[..], &sets, &[degree, "4"]].concat());
        assert_eq!(refused.status.code(), Some(2), "{degree}: {}", words(&refused));
        let said = words(&refused);
        assert!(said.contains("the teacher: ") && said.contains(&degree[2..]), "{said}");
        assert!(!folder.exists(), "{degree}: something was written");
    }
    let told =
        train(&folder, 2, &["checkpoint={every: 1, keep_last: 1}"], &["--ranks", "2", "--dry-run"]);
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.status.success() && text.contains("# of each of 2 ranks"), "{text}");
}
