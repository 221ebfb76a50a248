//! Checkpoints: resuming to the bit, damage, other recipes, full disks, what stays.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use burn::tensor::Device;
use serde_json::json;
use train::checkpoint::{find, list};

use crate::run::{Run, Setup, error_of, fingerprint};

fn resumed(setup: &Setup, folder: &Path) -> Run {
    let mut run = setup.build(Some(folder)).unwrap();
    run.trainer.resume(&["loop.steps"], &Device::flex()).unwrap().expect("a checkpoint");
    run
}

fn steps(folder: &Path) -> Vec<u64> {
    list(folder).unwrap().into_iter().map(|(step, _)| step).collect()
}

/// A long run is a short one that goes on: weights, optimizer, schedule, average, cursor, losses.
#[test]
fn a_resumed_run_is_the_run_that_never_stopped() {
    for stop in [1, 2, 3] {
        let folder = tempfile::tempdir().unwrap();
        let whole = Setup { steps: 5, accumulation: 2, ..Setup::default() };
        let straight = whole.run();
        let mut first = Setup { steps: stop, ..whole.clone() }.build(Some(folder.path())).unwrap();
        assert_eq!(first.trainer.run().unwrap(), stop);
        let begun = first.numbers();
        drop(first);
        let mut second = resumed(&whole, folder.path());
        assert_eq!(second.trainer.step(), stop);
        second.trainer.run().unwrap();
        assert_eq!(
            fingerprint(&second.trainer.state()),
            fingerprint(&straight.trainer.state()),
            "stopped after {stop}"
        );
        let joined = [begun, second.numbers()].concat();
        assert_eq!(joined, straight.numbers());
        assert_eq!(second.average.updates(), 5);
    }
}

#[test]
fn the_keys_are_those_of_the_design() {
    let state = Setup::default().build(None).unwrap().trainer.state();
    let names: Vec<String> = state.iter().map(|(name, _)| name.to_owned()).collect();
    for key in [
        "roles.student.transformer.blocks.0.own.qkv.weight",
        "roles.critic.transformer.head.bias",
        "optimizers.student.blocks.0.own.qkv.weight.exp_avg",
        "optimizers.student.blocks.0.own.qkv.weight.exp_avg_sq",
        "optimizers.critic.head.bias.step",
        "schedulers.student.updates",
        "random_state.seed",
        "random_state.step",
        "random_state.epoch",
        "random_state.cursor",
        "callbacks.ema.updates",
    ] {
        assert!(names.iter().any(|name| name == key), "{key} is missing");
    }
    let known = ["roles.", "optimizers.", "schedulers.", "random_state.", "callbacks."];
    assert!(names.iter().all(|name| known.iter().any(|start| name.starts_with(start))));
}

type Damage = fn(&Path);

#[test]
fn a_damaged_checkpoint_is_passed_over_and_named() {
    let damages: [(&str, Damage); 4] = [
        ("hash differs", |folder| {
            let path = folder.join("state.safetensors");
            let mut bytes = fs::read(&path).unwrap();
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            fs::write(path, bytes).unwrap();
        }),
        ("bytes, but", |folder| {
            let path = folder.join("state.safetensors");
            let bytes = fs::read(&path).unwrap();
            fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
        }),
        ("manifest.json", |folder| fs::remove_file(folder.join("manifest.json")).unwrap()),
        ("version", |folder| {
            let path = folder.join("manifest.json");
            let text = fs::read_to_string(&path).unwrap();
            fs::write(path, text.replace("\"version\": 1", "\"version\": 99")).unwrap();
        }),
    ];
    for (reason, damage) in damages {
        let folder = tempfile::tempdir().unwrap();
        let setup = Setup { steps: 4, ..Setup::default() };
        setup.build(Some(folder.path())).unwrap().trainer.run().unwrap();
        assert_eq!(steps(folder.path()), [2, 4]);
        damage(&folder.path().join("checkpoint-00000004"));
        let mut run = setup.build(Some(folder.path())).unwrap();
        let resumed = run.trainer.resume(&[], &Device::flex()).unwrap().unwrap();
        assert_eq!(resumed.step, 2);
        assert_eq!(resumed.skipped.len(), 1);
        assert!(resumed.skipped[0].reason.contains(reason), "{:?}", resumed.skipped);
        // The damaged one is out of the way, so that its step can be saved again.
        run.trainer.run().unwrap();
        assert_eq!(steps(folder.path()), [2, 4]);
        assert_eq!(find(folder.path(), &Device::flex()).unwrap().manifest.step, 4);
        assert_eq!(fingerprint(&run.trainer.state()), fingerprint(&setup.run().trainer.state()));
    }
}

#[test]
fn a_folder_of_damage_is_an_error_and_an_empty_one_a_beginning() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::default();
    let mut run = setup.build(Some(folder.path())).unwrap();
    assert_eq!(run.trainer.resume(&[], &Device::flex()).unwrap(), None);
    run.trainer.run().unwrap();
    drop(run);
    for (_, path) in list(folder.path()).unwrap() {
        fs::write(path.join("state.safetensors"), "nothing").unwrap();
    }
    let mut run = setup.build(Some(folder.path())).unwrap();
    let message = error_of(run.trainer.resume(&[], &Device::flex()).map(drop));
    assert!(message.contains("no checkpoint in") && message.contains("bytes"), "{message}");
}

#[test]
fn another_recipe_is_refused_with_the_keys_that_differ() {
    let folder = tempfile::tempdir().unwrap();
    let recipe = json!({ "loop": { "steps": 2 }, "optimizer": { "rate": 0.1 } });
    let setup = Setup { steps: 2, recipe, ..Setup::default() };
    setup.build(Some(folder.path())).unwrap().trainer.run().unwrap();
    let recipe = json!({ "loop": { "steps": 9 }, "optimizer": { "rate": 0.2 }, "new": 1 });
    let other = Setup { recipe, ..setup };
    let mut run = other.build(Some(folder.path())).unwrap();
    let message = error_of(run.trainer.resume(&["loop.steps"], &Device::flex()).map(drop));
    assert!(
        message.contains(
            "these keys differ: new (was nothing, is 1), optimizer.rate (was 0.1, is 0.2);"
        ),
        "{message}"
    );
}

#[test]
fn a_checkpoint_of_another_shape_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    Setup::default().build(Some(folder.path())).unwrap().trainer.run().unwrap();
    let learns = train::Learns::Only(vec!["head".to_owned()]);
    let mut run = Setup { learns, ..Setup::default() }.build(Some(folder.path())).unwrap();
    let message = error_of(run.trainer.resume(&[], &Device::flex()).map(drop));
    assert!(message.contains("holds an unknown"), "{message}");
}

#[test]
fn only_the_newest_stay_and_the_last_step_is_saved_once() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup { steps: 7, every: 1, ..Setup::default() };
    setup.build(Some(folder.path())).unwrap().trainer.run().unwrap();
    assert_eq!(steps(folder.path()), [6, 7]);
    // The same step again: nothing is written or deleted.
    let before = fs::metadata(folder.path().join("checkpoint-00000007/manifest.json")).unwrap();
    resumed(&setup, folder.path()).trainer.run().unwrap();
    let after = fs::metadata(folder.path().join("checkpoint-00000007/manifest.json")).unwrap();
    assert_eq!(before.modified().unwrap(), after.modified().unwrap());
    assert_eq!(steps(folder.path()), [6, 7]);
}

#[test]
fn what_was_never_committed_is_swept() {
    let folder = tempfile::tempdir().unwrap();
    Setup::default().build(Some(folder.path())).unwrap().trainer.run().unwrap();
    // As this version calls it, and as the one before did.
    let names = [".checkpoint-00000009.Xy12kQ.part", ".partial-checkpoint-00000009"];
    let partial = names.map(|name| folder.path().join(name));
    for partial in &partial {
        fs::create_dir(partial).unwrap();
        fs::write(partial.join("state.safetensors"), "half").unwrap();
    }
    assert_eq!(steps(folder.path()), [2, 4]);
    drop(Setup::default().build(Some(folder.path())).unwrap());
    assert!(partial.iter().all(|partial| !partial.exists()));
}

/// A writer that cannot write stops the run; what was committed stays.
#[test]
fn a_failed_write_stops_the_run_and_the_last_good_checkpoint_stays() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup { steps: 2, ..Setup::default() };
    setup.build(Some(folder.path())).unwrap().trainer.run().unwrap();
    let longer = Setup { steps: 9, ..Setup::default() };
    let mut run = resumed(&longer, folder.path());
    // The folder is gone while the run goes on: the system refuses, as it does on a full disk.
    let elsewhere = folder.path().with_extension("elsewhere");
    fs::rename(folder.path(), &elsewhere).unwrap();
    let message = error_of(run.trainer.run().map(drop));
    fs::rename(&elsewhere, folder.path()).unwrap();
    assert!(message.contains("cannot") && message.contains("checkpoint-00000004"), "{message}");
    assert_eq!(find(folder.path(), &Device::flex()).unwrap().manifest.step, 2);
}

/// A file system of its own, which a test can fill; none where the user may not mount one.
struct Disk {
    // Dropped after it is unmounted.
    folder: tempfile::TempDir,
}

impl Disk {
    fn mount(size: &str) -> Option<Disk> {
        let folder = tempfile::tempdir().unwrap();
        let size = format!("size={size}");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder.path());
        match mount.output() {
            Ok(answer) if answer.status.success() => Some(Disk { folder }),
            refused => {
                eprintln!("skipped: a file system to fill cannot be mounted here: {refused:?}");
                None
            }
        }
    }

    /// Writes until nothing more goes in, and says into which file.
    fn fill(&self) -> PathBuf {
        let path = self.folder.path().join("filler");
        let mut file = fs::File::create(&path).unwrap();
        // Ever smaller pieces find the last page.
        for piece in [1 << 16, 1 << 12, 1] {
            let full =
                std::iter::repeat_with(|| file.write_all(&vec![7; piece])).find_map(Result::err);
            assert_eq!(full.unwrap().kind(), ErrorKind::StorageFull);
        }
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A lazy unmount also succeeds while a failing test holds files open.
        let _ = Command::new("umount").arg("-l").arg(self.folder.path()).status();
    }
}

#[test]
fn a_full_disk_stops_the_run_and_with_room_again_it_goes_on_to_the_same_bits() {
    let Some(disk) = Disk::mount("8m") else { return };
    let folder = disk.folder.path().join("checkpoints");
    let whole = Setup { steps: 6, ..Setup::default() };
    Setup { steps: 2, ..whole.clone() }.build(Some(&folder)).unwrap().trainer.run().unwrap();
    let filler = disk.fill();
    let mut run = resumed(&whole, &folder);
    let message = error_of(run.trainer.run().map(drop));
    assert!(message.contains("checkpoint-00000004"), "{message}");
    assert!(message.contains("No space left on device"), "{message}");
    drop(run);
    assert_eq!(steps(&folder), [2], "no half of a checkpoint");
    assert_eq!(find(&folder, &Device::flex()).unwrap().manifest.step, 2);
    fs::remove_file(filler).unwrap();
    let mut run = resumed(&whole, &folder);
    run.trainer.run().unwrap();
    assert_eq!(fingerprint(&run.trainer.state()), fingerprint(&whole.run().trainer.state()));
}

#[test]
fn a_run_that_is_asked_to_stop_saves_and_can_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup { steps: 6, every: 100, ..Setup::default() };
    let mut run = setup.build(Some(folder.path())).unwrap();
    run.trainer.stop_flag().store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(run.trainer.run().unwrap(), 0);
    assert!(steps(folder.path()).is_empty());
    let message = error_of(setup.build(Some(folder.path())).map(drop));
    assert!(message.contains("another process trains in"), "{message}");
    drop(run);
    let mut run = Setup { steps: 3, ..setup.clone() }.build(Some(folder.path())).unwrap();
    run.trainer.run().unwrap();
    assert_eq!(steps(folder.path()), [3]);
    drop(run);
    let mut run = resumed(&setup, folder.path());
    run.trainer.run().unwrap();
    assert_eq!(fingerprint(&run.trainer.state()), fingerprint(&setup.run().trainer.state()));
}
