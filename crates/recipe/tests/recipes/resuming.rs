//! A run goes on with the data and the weights that it began with, or not at all.

use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use data::store::Writer;
use recipe::{FREE, Recipe};
use train::STUDENT;
use train::checkpoint::read_manifest;

use crate::building::{WAN, build, dataset, encoders, folder, read, small, tiny};

/// A copy of a folder that may be changed.
fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copied(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), &target).unwrap()),
        }
    }
}

/// What `resume` says of a run of this recipe.
fn resume(recipe: &Recipe, run: &Path) -> Result<u64, String> {
    let mut trainer = build(recipe, Some(run)).unwrap().trainer;
    let resumed = trainer.resume(&FREE, &Device::flex()).map_err(|err| err.to_string())?;
    Ok(resumed.expect("there is a checkpoint").step)
}

/// The last checkpoint of a run.
fn last(run: &Path) -> PathBuf {
    let all = train::checkpoint::list(&run.join("checkpoints")).unwrap();
    all.last().expect("there is a checkpoint").1.clone()
}

#[test]
fn a_run_on_other_data_or_weights_is_refused_and_says_what_differs() {
    let temporary = tempfile::tempdir().unwrap();
    let path = |name: &str| temporary.path().join(name);
    dataset(&path("data"), "wan-tiny", [2, 4, 6], WAN, false);
    copied(Path::new(&folder("wan-tiny")), &path("model"));
    let mut overrides = small("wan-tiny", &path("data"), &[STUDENT]);
    overrides.push(format!("models.student.from={}", path("model").display()));
    overrides.push("callbacks={}".to_owned());
    let recipe = read("wan-lora.yaml", &overrides);
    build(&recipe, Some(&path("run"))).unwrap().trainer.run().unwrap();
    let origins = read_manifest(&last(&path("run"))).unwrap().origins;
    let known: Vec<&str> = origins.keys().map(String::as_str).collect();
    assert_eq!(known, ["the dataset", "the weights of the student"]);
    assert_eq!(resume(&recipe, &path("run")), Ok(2));

    // One sample is gone: the recipe is the same, what it learns from is not.
    let mut writer = Writer::open(&path("data"), &encoders("wan-tiny"), 1 << 20).unwrap();
    let kept = (0..4).map(|index| format!("clip {index}")).collect();
    assert_eq!(writer.retain(&kept).unwrap(), 1);
    drop(writer);
    let message = resume(&recipe, &path("run")).unwrap_err();
    assert!(message.contains("the dataset (was "), "{message}");
    assert!(!message.contains("weights"), "{message}");

    // One weight of the model that the LoRA stands beside.
    let weights = path("model").join("transformer/diffusion_pytorch_model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, bytes).unwrap();
    let message = resume(&recipe, &path("run")).unwrap_err();
    assert!(message.contains("the weights of the student (was "), "{message}");

    // A checkpoint of the version before says nothing about either.
    let manifest = last(&path("run")).join("manifest.json");
    let mut old: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&manifest).unwrap()).unwrap();
    for key in ["origins", "seal"] {
        old.as_object_mut().unwrap().remove(key).unwrap();
    }
    fs::write(&manifest, old.to_string()).unwrap();
    assert_eq!(resume(&recipe, &path("run")), Ok(2));
}

/// What is the same elsewhere is the same: folders may be moved, and a dataset that lost a sample and
/// got it back differs only in its history.
#[test]
fn the_identity_of_data_is_what_they_hold() {
    let temporary = tempfile::tempdir().unwrap();
    let path = |name: &str| temporary.path().join(name);
    let identity = |at: &Path| data::store::Dataset::open(at).unwrap().identity().unwrap();
    dataset(&path("one"), "wan-tiny", [2, 4, 6], WAN, false);
    copied(&path("one"), &path("two"));
    assert_eq!(identity(&path("one")), identity(&path("two")));
    dataset(&path("other"), "wan-tiny", [2, 4, 6], WAN, true);
    assert_ne!(identity(&path("one")), identity(&path("other")));
    // What stands for a dropped caption is learnt from too.
    let null = path("two").join("null.safetensors");
    let mut bytes = fs::read(&null).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&null, bytes).unwrap();
    assert_ne!(identity(&path("one")), identity(&path("two")));
}

#[test]
fn the_shapes_world_and_new_networks_are_recorded_too() {
    let temporary = tempfile::tempdir().unwrap();
    let recipe = read("quickstart.yaml", &tiny());
    build(&recipe, Some(temporary.path())).unwrap().trainer.run().unwrap();
    let origins = read_manifest(&last(temporary.path())).unwrap().origins;
    assert_eq!(origins.len(), 2);
    assert!(origins.values().all(|hash| hash.len() == 64), "{origins:?}");
}
