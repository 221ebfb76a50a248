//! The loader: the order is a function of seed and epoch, whoever reads and wherever it begins.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use burn::tensor::{Device, TensorData};
use data::loader::{Cursor, LoadedBatch, Loader, LoaderOptions, Partial, Plan, Replica, Samples};
use data::store::{AUDIO_LATENTS, LATENTS, Sample, TEXT};
use data::world::{Rendered, Tone, World, WorldOptions};

use crate::sample;

/// 23 samples of three sizes, with texts of one to four tokens.
fn samples() -> Vec<Sample> {
    let shapes = [[2, 1, 3, 2], [2, 2, 2, 3], [2, 1, 2, 2]];
    let shape = |at: usize| shapes[[0, 0, 1, 0, 1, 2, 0][at % 7]];
    (0..23).map(|at| sample(&format!("{at:02}"), shape(at), at % 4 + 1)).collect()
}

fn null() -> BTreeMap<String, TensorData> {
    BTreeMap::from([(TEXT.to_owned(), TensorData::new(vec![9.0f32; 6], [2, 3]))])
}

fn options() -> LoaderOptions {
    LoaderOptions {
        batch: 4,
        seed: 5,
        caption_dropout: 0.3,
        prefetch: 3,
        ..LoaderOptions::default()
    }
}

fn loader(options: LoaderOptions, part: Replica, cursor: Cursor) -> data::Result<Loader> {
    Loader::new(Arc::new(samples()), null(), options, part, cursor)
}

fn take(loader: &mut Loader, count: usize) -> Vec<LoadedBatch> {
    (0..count).map(|_| loader.next_batch().unwrap()).collect()
}

/// All of a batch that can be compared.
fn contents(batch: &LoadedBatch) -> impl PartialEq + std::fmt::Debug {
    let tensors = batch.data().iter();
    let tensors: Vec<_> =
        tensors.map(|(key, it)| (key.clone(), it.shape().to_vec(), it.bytes().to_vec())).collect();
    (batch.cursor, batch.places.clone(), batch.global, batch.drawn.clone(), tensors)
}

fn indices(batches: &[LoadedBatch]) -> Vec<Vec<usize>> {
    let indices = |batch: &LoadedBatch| batch.drawn.iter().map(|drawn| drawn.index).collect();
    batches.iter().map(indices).collect()
}

#[test]
fn resuming_anywhere_is_as_if_nothing_had_happened() {
    let mut whole = loader(options(), Replica::ONLY, Cursor::default()).unwrap();
    let mut cursors = Vec::new();
    let batches: Vec<_> = (0..25)
        .map(|_| {
            cursors.push(whole.cursor());
            whole.next_batch().unwrap()
        })
        .collect();
    assert!(cursors.iter().map(|it| it.epoch).max() > Some(2));
    for (at, cursor) in cursors.into_iter().enumerate() {
        assert_eq!(batches[at].cursor, cursor);
        let text = serde_json::to_string(&cursor).unwrap();
        let cursor = serde_json::from_str(&text).unwrap();
        let mut resumed = loader(options(), Replica::ONLY, cursor).unwrap();
        let count = 3.min(batches.len() - at);
        for (resumed, batch) in take(&mut resumed, count).iter().zip(&batches[at..]) {
            assert_eq!(contents(resumed), contents(batch));
        }
    }
}

#[test]
fn the_global_batches_are_the_same_at_every_world_size() {
    let options = LoaderOptions { batch: 5, partial: Partial::Drop, ..options() };
    let mut whole = loader(options, Replica::ONLY, Cursor::default()).unwrap();
    let whole = take(&mut whole, 12);
    for world in [2, 3, 5] {
        let parts: Vec<_> = (0..world)
            .map(|rank| {
                let mut loader =
                    loader(options, Replica { rank, world }, Cursor::default()).unwrap();
                take(&mut loader, 12)
            })
            .collect();
        for (at, expected) in whole.iter().enumerate() {
            let joined: Vec<_> = parts.iter().flat_map(|part| part[at].drawn.clone()).collect();
            assert_eq!(joined, expected.drawn);
            let places: Vec<_> = parts.iter().flat_map(|part| part[at].places.clone()).collect();
            assert_eq!(places, (0..5).collect::<Vec<_>>());
            assert!(parts.iter().all(|part| part[at].global == 5 && !part[at].is_empty()));
        }
    }
}

#[test]
fn each_sample_is_seen_once_per_epoch() {
    let mut loader = loader(options(), Replica::ONLY, Cursor::default()).unwrap();
    let per_epoch = loader.plan().batches_per_epoch() as usize;
    let mut orders = BTreeSet::new();
    for epoch in 0..4 {
        let batches = take(&mut loader, per_epoch);
        assert!(batches.iter().all(|batch| batch.cursor.epoch == epoch && batch.len() <= 4));
        let mut seen: Vec<usize> = indices(&batches).concat();
        orders.insert(seen.clone());
        seen.sort_unstable();
        assert_eq!(seen, (0..23).collect::<Vec<_>>());
    }
    assert_eq!(orders.len(), 4, "epochs are shuffled anew");
    assert_eq!(loader.cursor(), Cursor { epoch: 4, position: 0 });
}

#[test]
fn with_drop_every_batch_is_full_and_who_waits_changes() {
    let options = LoaderOptions { partial: Partial::Drop, ..options() };
    let mut loader = loader(options, Replica::ONLY, Cursor::default()).unwrap();
    let groups: BTreeMap<_, _> =
        loader.plan().groups().map(|(name, count)| (name.to_owned(), count)).collect();
    assert_eq!(groups.values().copied().collect::<BTreeSet<_>>(), BTreeSet::from([3, 6, 14]));
    let per_epoch = loader.plan().batches_per_epoch() as usize;
    assert_eq!(per_epoch, 14 / 4 + 6 / 4);
    let mut seen = BTreeSet::new();
    for _ in 0..8 {
        let batches = take(&mut loader, per_epoch);
        assert!(batches.iter().all(|batch| batch.len() == 4));
        seen.extend(indices(&batches).concat());
    }
    assert_eq!(seen.len(), 20, "all but the group that never fills a batch");
}

/// A batch holds one size; texts are padded behind their end, and the mask says where.
#[test]
fn batches_stack_what_the_samples_hold() {
    let device = Device::flex();
    let samples = samples();
    let options = LoaderOptions { caption_dropout: 0.0, ..options() };
    let mut loader = loader(options, Replica::ONLY, Cursor::default()).unwrap();
    for batch in take(&mut loader, 16) {
        let latents = batch.tensor::<5>(LATENTS, &device).unwrap().into_data();
        let expected: Vec<f32> = batch
            .drawn
            .iter()
            .flat_map(|it| samples[it.index].tensors[LATENTS].try_to_vec::<f32>().unwrap())
            .collect();
        assert_eq!(latents.try_to_vec::<f32>().unwrap(), expected);
        let (texts, mask) = batch.text(TEXT, &device).unwrap();
        let [count, longest, width] = texts.dims();
        let (texts, mask) = (texts.into_data(), mask.into_data());
        let (texts, mask) = (texts.try_to_vec::<f32>().unwrap(), mask.try_to_vec::<f32>().unwrap());
        assert_eq!((count, mask.len()), (batch.len(), count * longest));
        for (at, drawn) in batch.drawn.iter().enumerate() {
            let own = samples[drawn.index].tensors[TEXT].try_to_vec::<f32>().unwrap();
            let row = &texts[at * longest * width..][..longest * width];
            assert_eq!(row[..own.len()], own);
            assert!(row[own.len()..].iter().all(|value| *value == 0.0));
            let counted: Vec<bool> = (0..longest).map(|token| token * width < own.len()).collect();
            let mask = &mask[at * longest..][..longest];
            assert_eq!(mask.iter().map(|it| *it == 1.0).collect::<Vec<_>>(), counted);
            assert_eq!(batch.origins[at], samples[drawn.index].origin);
        }
        assert!(batch.tensor::<4>(LATENTS, &device).is_err());
        assert!(batch.get::<5>("ref_latents", &device).unwrap().is_none());
        let message = batch.tensor::<5>("ref_latents", &device).unwrap_err().to_string();
        assert!(message.contains("no `ref_latents`; they have latents, text"), "{message}");
    }
}

#[test]
fn captions_are_dropped_by_seed_epoch_and_sample() {
    let device = Device::flex();
    let drops = |options: LoaderOptions, part: Replica| {
        let mut loader = loader(options, part, Cursor::default()).unwrap();
        let per_epoch = loader.plan().batches_per_epoch() as usize;
        let mut drops = BTreeMap::new();
        for batch in take(&mut loader, 40 * per_epoch) {
            let (texts, _) = batch.text(TEXT, &device).unwrap();
            for (at, drawn) in batch.drawn.iter().enumerate() {
                let first = texts.clone().slice([at..at + 1, 0..1, 0..1]).into_scalar::<f32>();
                assert_eq!(first == 9.0, drawn.dropped);
                drops.insert((batch.cursor.epoch, drawn.index), drawn.dropped);
            }
        }
        drops
    };
    let first = drops(options(), Replica::ONLY);
    let count = first.values().filter(|it| **it).count() as f64;
    assert!((count / first.len() as f64 - 0.3).abs() < 0.05, "{count} of {}", first.len());
    // Each sample is dropped in some epochs and not in others.
    for index in 0..23 {
        let own: BTreeSet<bool> = (0..40).map(|epoch| first[&(epoch, index)]).collect();
        assert_eq!(own.len(), 2);
    }
    // Neither the batch size nor another seed's order decides it.
    assert_eq!(drops(LoaderOptions { batch: 7, ..options() }, Replica::ONLY), first);
    assert_ne!(drops(LoaderOptions { seed: 6, ..options() }, Replica::ONLY), first);
}

#[test]
fn what_cannot_be_loaded_is_refused() {
    let message = |made: data::Result<Loader>| made.err().unwrap().to_string();
    let refuse = |options: LoaderOptions, part: Replica, cursor: Cursor, expected: &str| {
        let message = message(loader(options, part, cursor));
        assert!(message.contains(expected), "{message}");
    };
    let start = Cursor::default();
    let three = Replica { rank: 1, world: 3 };
    refuse(
        LoaderOptions { batch: 0, ..options() },
        Replica::ONLY,
        start,
        "set batch to at least 1",
    );
    refuse(LoaderOptions { batch: 2, ..options() }, three, start, "cannot be cut into 3 parts");
    refuse(options(), Replica { rank: 3, world: 3 }, start, "rank 3 is not one of 3");
    refuse(options(), three, start, "has 2 samples, too few for 3 parts");
    let drop = LoaderOptions { partial: Partial::Drop, ..options() };
    refuse(LoaderOptions { batch: 15, ..drop }, Replica::ONLY, start, "the most are 14");
    refuse(options(), Replica::ONLY, Cursor { epoch: 0, position: 7 }, "an epoch has 7");
    refuse(
        LoaderOptions { caption_dropout: 1.5, ..options() },
        Replica::ONLY,
        start,
        "not a share",
    );
    let none = Loader::new(Arc::new(samples()), BTreeMap::new(), options(), Replica::ONLY, start);
    assert!(message(none).contains("needs the null text of `text`"));
    let empty = Loader::new(Arc::new(Vec::new()), null(), options(), Replica::ONLY, start);
    assert!(message(empty).contains("there are no samples"));
}

/// The shapes world needs no disk: its batches decode to its clips and tones.
#[test]
fn the_shapes_world_comes_in_batches() {
    let device = Device::flex();
    let tone = Some(Tone::default());
    let world = World::new(WorldOptions { tone, ..WorldOptions::default() }, 9).unwrap();
    let rendered = Rendered::new(world.clone(), 30).unwrap();
    let options = LoaderOptions { batch: 6, caption_dropout: 0.2, ..LoaderOptions::default() };
    let (null, samples) = (rendered.null(), Arc::new(rendered.clone()));
    let mut loader = Loader::new(samples, null, options, Replica::ONLY, Cursor::default()).unwrap();
    let batch = loader.next_batch().unwrap();
    let clips = rendered.codec.decode(batch.tensor(LATENTS, &device).unwrap()).unwrap();
    let tones = rendered.sound.decode(batch.tensor(AUDIO_LATENTS, &device).unwrap()).unwrap();
    let (texts, _) = batch.text(TEXT, &device).unwrap();
    for (at, drawn) in batch.drawn.iter().enumerate() {
        let shown = world.show(drawn.index as u64);
        assert_eq!((&clips[at], Some(&tones[at])), (&shown.clip, shown.tone.as_ref()));
        assert_eq!(batch.origins[at].caption, shown.caption());
        let expected = match drawn.dropped {
            true => rendered.words.null(&device),
            false => rendered.words.embed(&shown.caption(), &device).unwrap(),
        };
        let text = texts.clone().slice_dim(0, at..at + 1).squeeze_dim::<2>(0);
        text.into_data().assert_eq(&expected.into_data(), true);
    }
    assert!(Rendered::new(world, 0).is_err());
    let odd = World::new(WorldOptions { width: 33, ..WorldOptions::default() }, 9).unwrap();
    let message = Rendered::new(odd, 3).unwrap_err().to_string();
    assert!(message.contains("width 33 is not a multiple of 8"), "{message}");
}

/// Samples of which one cannot be read.
struct Broken(Vec<Sample>);

impl Samples for Broken {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn group(&self, index: usize) -> String {
        self.0.group(index)
    }

    fn read(&self, index: usize) -> data::Result<Sample> {
        match index {
            8 => Err(data::Error::Values { reason: "sample 8 is broken".to_owned() }),
            _ => self.0.read(index),
        }
    }
}

/// The error comes at the batch it belongs to, not earlier, and the cursor stays before it.
#[test]
fn an_error_comes_in_its_turn() {
    let samples: Arc<dyn Samples> = Arc::new(Broken(samples()));
    let plan = Plan::new(&*samples, options(), Replica::ONLY).unwrap();
    let turn = plan.epoch(0).iter().position(|batch| batch.contains(&8)).unwrap();
    let mut loader =
        Loader::new(samples, null(), options(), Replica::ONLY, Cursor::default()).unwrap();
    take(&mut loader, turn);
    let message = loader.next_batch().unwrap_err().to_string();
    assert!(message.contains("sample 8 is broken"), "{message}");
    assert_eq!(loader.cursor(), Cursor { epoch: 0, position: turn as u64 });
    assert!(loader.next_batch().is_err());
}
