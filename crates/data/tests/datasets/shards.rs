//! The store: what is written is read, a crash costs nothing that was safe, and damage is named.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use burn::tensor::TensorData;
use data::store::{Dataset, Fingerprint, LATENTS, REF_LATENTS, Sample, TEXT, Writer};

use crate::{assert_same, encoders, sample};

/// Small enough that two samples fill a shard.
const SHARD_BYTES: usize = 900;

fn samples() -> Vec<Sample> {
    let shapes = [[2, 2, 5, 6], [2, 2, 6, 5], [2, 2, 5, 6], [2, 1, 3, 3], [2, 2, 5, 6]];
    let named = shapes.into_iter().enumerate();
    named.map(|(at, shape)| sample(&format!("clips/{at}.mp4"), shape, at + 1)).collect()
}

fn write(root: &Path, samples: &[Sample]) {
    let mut writer = Writer::open(root, &encoders(), SHARD_BYTES).unwrap();
    samples.iter().for_each(|sample| writer.push(sample.clone()).unwrap());
    writer.flush().unwrap();
}

fn shards(root: &Path) -> Vec<String> {
    let files = fs::read_dir(root.join("shards")).unwrap();
    let mut names: Vec<_> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn assert_holds(root: &Path, expected: &[Sample]) {
    let dataset = Dataset::open(root).unwrap();
    assert_eq!(dataset.len(), expected.len());
    for (index, expected) in expected.iter().enumerate() {
        assert_same(&dataset.read(index).unwrap(), expected);
        assert_eq!(*dataset.origin(index), expected.origin);
    }
    dataset.verify().unwrap();
}

#[test]
fn what_is_written_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut samples = samples();
    let half = samples[2].tensors[LATENTS].clone().convert::<burn::tensor::bf16>();
    samples[2].tensors.insert(LATENTS.to_owned(), half);
    samples[2].tensors.insert("mask".to_owned(), TensorData::new(vec![1u8, 0, 1], [3]));
    write(folder.path(), &samples);
    assert_holds(folder.path(), &samples);
    assert_eq!(shards(folder.path()).len(), 2);
}

#[test]
fn samples_come_in_the_order_of_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let mut reversed = samples();
    reversed.reverse();
    write(folder.path(), &reversed);
    assert_holds(folder.path(), &samples());
}

/// Whatever was on disk when a run died, the next one goes on from the samples that were safe.
#[test]
fn a_crash_costs_only_what_was_not_safe() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let samples = samples();
    write(root, &samples[..2]);
    // A shard without its line, a file written aside, and a line without its end.
    fs::write(root.join("shards/00001.safetensors"), b"half a sha").unwrap();
    fs::write(root.join("shards/00002.part"), b"x").unwrap();
    let whole = fs::read(root.join("index.jsonl")).unwrap();
    let mut torn = whole.clone();
    torn.extend(&whole[..whole.len() / 2]);
    fs::write(root.join("index.jsonl"), torn).unwrap();

    assert_holds(root, &samples[..2]);
    let mut writer = Writer::open(root, &encoders(), SHARD_BYTES).unwrap();
    assert_eq!((writer.len(), shards(root)), (2, vec!["00000.safetensors".to_owned()]));
    assert_eq!(fs::read(root.join("index.jsonl")).unwrap(), whole);
    for sample in &samples {
        if !writer.has(&sample.origin.id, &sample.origin.source_hash) {
            writer.push(sample.clone()).unwrap();
        }
    }
    writer.flush().unwrap();
    assert_holds(root, &samples);
}

/// What was pushed but is in no shard yet is not there, and `has` does not claim it.
#[test]
fn a_sample_counts_once_it_is_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let first = &samples()[0];
    let mut writer = Writer::open(folder.path(), &encoders(), SHARD_BYTES).unwrap();
    writer.push(first.clone()).unwrap();
    assert!(writer.is_empty() && !writer.has(&first.origin.id, &first.origin.source_hash));
    drop(writer);
    let message = Dataset::open(folder.path()).unwrap_err().to_string();
    assert!(message.contains("has no samples"), "{message}");
    write(folder.path(), &samples()[..1]);
    let writer = Writer::open(folder.path(), &encoders(), SHARD_BYTES).unwrap();
    assert!(writer.has(&first.origin.id, &first.origin.source_hash));
    assert!(!writer.has(&first.origin.id, "another hash"));
    assert!(!writer.has("another", &first.origin.source_hash));
}

#[test]
fn a_changed_source_replaces_its_sample() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let mut samples = samples();
    write(root, &samples);
    let mut changed = sample("changed", [2, 2, 6, 5], 4);
    changed.origin = samples[1].origin.clone();
    changed.origin.source_hash = "new".to_owned();
    write(root, &[changed.clone()]);
    samples[1] = changed;
    assert_holds(root, &samples);
    // Once nothing of the first shard counts, it goes.
    let mut first = sample("changed too", [2, 2, 5, 6], 2);
    first.origin = samples[0].origin.clone();
    write(root, &[first.clone()]);
    samples[0] = first;
    drop(Writer::open(root, &encoders(), SHARD_BYTES).unwrap());
    assert!(!shards(root).contains(&"00000.safetensors".to_owned()));
    assert_holds(root, &samples);
    write(root, &[]);
    assert_holds(root, &samples);
}

#[test]
fn samples_that_are_no_longer_wanted_go() {
    let folder = tempfile::tempdir().unwrap();
    let samples = samples();
    write(folder.path(), &samples);
    let mut writer = Writer::open(folder.path(), &encoders(), SHARD_BYTES).unwrap();
    let wanted: BTreeSet<String> =
        [1, 3].map(|at: usize| samples[at].origin.id.clone()).into_iter().collect();
    assert_eq!(writer.retain(&wanted).unwrap(), 3);
    assert_eq!(writer.retain(&wanted).unwrap(), 0);
    assert_holds(folder.path(), &[samples[1].clone(), samples[3].clone()]);
}

#[test]
fn damage_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(root, &samples());
    let shard = root.join("shards/00001.safetensors");
    let whole = fs::read(&shard).unwrap();
    let refused = |expected: &str| {
        let message = Dataset::open(root).unwrap_err().to_string();
        assert!(message.contains("00001.safetensors") && message.contains(expected), "{message}");
    };
    fs::write(&shard, &whole[..whole.len() - 7]).unwrap();
    refused("were written; copy or preprocess it again");
    let mut garbled = whole.clone();
    garbled[..8].copy_from_slice(&[255; 8]);
    fs::write(&shard, garbled).unwrap();
    refused("not a readable safetensors file");
    fs::remove_file(&shard).unwrap();
    refused("cannot read");
    // A changed value is found by its hash alone.
    let mut changed = whole;
    *changed.last_mut().unwrap() ^= 1;
    fs::write(&shard, changed).unwrap();
    let message = Dataset::open(root).unwrap().verify().unwrap_err().to_string();
    assert!(message.contains("have changed since it was written"), "{message}");

    let index = fs::read_to_string(root.join("index.jsonl")).unwrap();
    fs::write(root.join("index.jsonl"), index.replacen("[2,2,5,6]", "[2,2,6,5]", 1)).unwrap();
    let message = Dataset::open(root).unwrap_err().to_string();
    assert!(message.contains("but the index says F32 [2, 2, 6, 5]"), "{message}");
    fs::write(root.join("index.jsonl"), index.replacen("shard", "shred", 1)).unwrap();
    let message = Dataset::open(root).unwrap_err().to_string();
    assert!(message.contains("line 1 is not readable"), "{message}");
}

#[test]
fn what_was_asked_for_is_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let message = Dataset::open(root).unwrap_err().to_string();
    assert!(message.contains("make the dataset with `moviola preprocess`"), "{message}");
    let mut samples = samples();
    let reference = samples[0].tensors[LATENTS].clone();
    samples[0].tensors.insert(REF_LATENTS.to_owned(), reference);
    write(root, &samples);
    let dataset = Dataset::open(root).unwrap();
    dataset.require(&[LATENTS, TEXT], "text-to-video").unwrap();
    let message =
        dataset.require(&[LATENTS, REF_LATENTS], "video-to-video").unwrap_err().to_string();
    let expected = "video-to-video needs `ref_latents`, but 4 of 5 samples have none, the first is \
                    `clips/1.mp4` (it has latents, text)";
    assert!(message.contains(expected), "{message}");

    dataset.check_encoders(&encoders()).unwrap();
    let other = Fingerprint::new([("video", "vae two".into()), ("text", "t5 one".into())]);
    let message = dataset.check_encoders(&other).unwrap_err().to_string();
    let expected = "another video encoder: it has `vae one`, but `vae two` is asked for";
    assert!(message.contains(expected), "{message}");
    let message = Writer::open(root, &other, SHARD_BYTES).unwrap_err().to_string();
    assert!(message.contains(expected), "{message}");
    let fewer = Fingerprint::new([("video", "vae one".into())]);
    let message = dataset.check_encoders(&fewer).unwrap_err().to_string();
    assert!(message.contains("it has `t5 one`, but `none` is asked for"), "{message}");
}

#[test]
fn one_process_writes_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let writer = Writer::open(folder.path(), &encoders(), SHARD_BYTES).unwrap();
    let message = Writer::open(folder.path(), &encoders(), SHARD_BYTES).unwrap_err().to_string();
    assert!(message.contains("another process is writing this dataset"), "{message}");
    drop(writer);
    assert!(Writer::open(folder.path(), &encoders(), SHARD_BYTES).is_ok());
}

#[test]
fn the_null_text_is_kept_with_the_dataset() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(folder.path(), &encoders(), 1).unwrap();
    assert!(!writer.has_null_text());
    let null = sample("null", [1, 1, 1, 1], 4).tensors.remove(TEXT).unwrap();
    let texts = BTreeMap::from([("text".to_owned(), null.clone()), ("text_2".to_owned(), null)]);
    writer.push(sample("a", [1, 1, 1, 1], 2)).unwrap();
    assert!(Dataset::open(folder.path()).unwrap().null_text().unwrap().is_empty());
    writer.put_null_text(&texts).unwrap();
    assert!(writer.has_null_text());
    assert_eq!(Dataset::open(folder.path()).unwrap().null_text().unwrap(), texts);
    drop(writer);
    assert!(Writer::open(folder.path(), &encoders(), 1).unwrap().has_null_text());

    let path = folder.path().join("null.safetensors");
    fs::write(&path, "nothing").unwrap();
    let message = Dataset::open(folder.path()).unwrap().null_text().unwrap_err().to_string();
    assert!(message.contains("null.safetensors is damaged"), "{message}");
}
