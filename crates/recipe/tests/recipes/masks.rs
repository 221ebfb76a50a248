//! A dataset with masks: what they say is given is given, to the token, and can be trained on.

use std::path::Path;

use burn::tensor::{Device, TensorData};
use data::store::{Dataset, LATENTS, MASK, Writer};
use diffusion::TimestepSampler;
use nn::Tracks;
use recipe::{Model, Recipe};
use strategies::Flexible;
use train::{Draws, Field, STUDENT, Strategy};

use crate::building::{WAN, build, dataset, encoders, folder, read, small};

/// Frames, rows and columns of latents.
const SIZE: [usize; 3] = [2, 4, 6];
/// A latent is to be generated where its first channel is above this.
const BRIGHT: f32 = 0.8;

/// Random samples with a mask that can be told from their latents; the last ones have none.
fn masked(path: &Path, without: usize) {
    let plain = path.with_extension("plain");
    dataset(&plain, "wan-tiny", SIZE, WAN, false);
    let plain = Dataset::open(&plain).unwrap();
    let mut writer = Writer::open(path, &encoders("wan-tiny"), 1 << 20).unwrap();
    writer.put_null_text(&plain.null_text().unwrap()).unwrap();
    for index in 0..plain.len() {
        let mut sample = plain.read(index).unwrap();
        if index + without < plain.len() {
            let latents: Vec<f32> = sample.tensors[LATENTS].try_to_vec().unwrap();
            let first = latents[..SIZE.iter().product()].iter();
            let mask: Vec<f32> = first.map(|it| if *it > BRIGHT { 1.0 } else { 0.0 }).collect();
            sample.tensors.insert(MASK.to_owned(), TensorData::new(mask, SIZE));
        }
        writer.push(sample).unwrap();
    }
    writer.flush().unwrap();
}

fn inpainting(data: &Path) -> Recipe {
    let mut overrides = small("wan-tiny", data, &[STUDENT]);
    overrides.push("data.batch=2".to_owned());
    overrides.push(
        "strategy={name: flexible, video: {generated: true, source: latents, conditions: \
         [{type: mask, source: mask}]}}"
            .to_owned(),
    );
    read("wan-full.yaml", &overrides)
}

/// The law of polarity: a store says 1 for what is generated, a batch 1 for what is given. A token, of
/// two by two latents, is given only if all of them are.
#[test]
fn given_is_what_the_mask_does_not_mark() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    masked(&data, 0);
    let recipe = inpainting(&data);
    let device = Device::flex();
    let student = Model::open(Path::new(&folder("wan-tiny")), &device).unwrap();
    assert_eq!(student.description.geometry.patch, [1, 2, 2]);
    let sampler = TimestepSampler::uniform(0.0, 1.0).unwrap();
    let samplers = Tracks::video(sampler);
    let strategy = Flexible::new(&recipe.strategy, student.description.geometry, samplers).unwrap();
    let mut feed = recipe.feed(&student, device).unwrap();
    let (mut given, mut all) = (0, 0);
    for step in 0..4 {
        let batch = feed.next().unwrap();
        let Field::Video(latents) = &batch.fields[LATENTS] else { panic!("no latents") };
        let values: Vec<f32> = latents.values.to_data().try_to_vec().unwrap();
        let [samples, channels, frames, height, width] = latents.values.dims();
        let Field::Mask(mask) = &batch.fields[MASK] else { panic!("no mask") };
        let mask: Vec<f32> = mask.to_data().try_to_vec().unwrap();
        let scene = strategy.scene(&batch, &Draws::new(3, step, 0, samples)).unwrap();
        for sample in 0..samples {
            let own = &values[sample * channels * frames * height * width..];
            let marked = |at: [usize; 3]| own[(at[0] * height + at[1]) * width + at[2]] > BRIGHT;
            let tokens = (0..frames * height * width / 4).map(|token| {
                let (frame, row, column) = (token / 6, token / 3 % 2 * 2, token % 3 * 2);
                let block = [(0, 0), (0, 1), (1, 0), (1, 1)];
                !block.iter().any(|(down, right)| marked([frame, row + down, column + right]))
            });
            let expected: Vec<bool> = tokens.collect();
            let own = &mask[sample * expected.len()..][..expected.len()];
            let ones: Vec<f32> = expected.iter().map(|it| if *it { 1.0 } else { 0.0 }).collect();
            assert_eq!(own, ones, "a mask over tokens is 1 where they are given");
            assert_eq!(
                scene.video.as_ref().unwrap().fixed(sample),
                expected,
                "what is given is fixed"
            );
            given += expected.iter().filter(|it| **it).count();
            all += expected.len();
        }
    }
    assert!(given > all / 5 && given < all * 4 / 5, "{given} of {all} tokens tell nothing");
}

#[test]
fn masks_are_trained_on_if_every_sample_has_one() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    masked(&data, 0);
    let mut trainer = build(&inpainting(&data), None).unwrap().trainer;
    assert_eq!(trainer.run().unwrap(), 2);
    assert_eq!(trainer.method().role(STUDENT).unwrap().updates(), 2);

    let some = temporary.path().join("some");
    masked(&some, 2);
    let message = build(&inpainting(&some), None).err().unwrap().to_string();
    let expected = "the strategy `flexible` needs `mask`, but 2 of 5 samples have none, the first is \
                    `clip 3` (it has latents, text)";
    assert!(message.contains(expected), "{message}");
    let none = temporary.path().join("none");
    masked(&none, 5);
    let message = build(&inpainting(&none), None).err().unwrap().to_string();
    assert!(message.contains("the strategy `flexible` needs `mask`"), "{message}");
}
