//! Where tokens are: the golden values of `ltx2.md`, §13.

use burn::tensor::Device;
use diffusion::{AudioClock, Coordinates, Time};
use serde_json::json;
use testkit::numbers::{tensor, values};
use train::{Field, VideoLatents};

use crate::batches::{CHANNELS, batch, geometry, prepare};

fn near(got: &[f32], want: &[f64]) {
    let off = got.iter().zip(want).any(|(got, want)| (f64::from(*got) - want).abs() > 1e-6);
    assert!(!off && got.len() == want.len(), "{got:?} instead of {want:?}");
}

#[test]
fn a_causal_video_begins_with_a_single_picture() {
    let places = geometry().coordinates.positions([4, 2, 3], &[24.0], &Device::flex());
    assert_eq!(places.dims(), [1, 3, 24, 2]);
    let at = |axis: usize, token: usize| {
        values(&places.clone().slice([0..1, axis..axis + 1, token..token + 1, 0..2]))
    };
    // Pictures [0, 1), [1, 9), [9, 17), [17, 25), in seconds.
    for (frame, [from, to]) in
        [[0.0, 1.0], [1.0, 9.0], [9.0, 17.0], [17.0, 25.0]].iter().enumerate()
    {
        near(&at(0, frame * 6 + 5), &[from / 24.0, to / 24.0]);
    }
    near(&at(1, 6 + 3), &[32.0, 64.0]);
    near(&at(2, 6 + 5), &[64.0, 96.0]);
}

#[test]
fn a_causal_sound_begins_with_a_single_spectrum() {
    let places = AudioClock::usual().positions(4, 2, &Device::flex());
    assert_eq!(places.dims(), [2, 1, 4, 2]);
    let want = [0.0, 0.01, 0.01, 0.05, 0.05, 0.09, 0.09, 0.13];
    near(&values(&places.narrow(0, 1, 1)), &want);
    // 89 frames at 24 a second.
    assert_eq!((89.0 / 24.0 * AudioClock::usual().latents_per_second()).round(), 93.0);
}

/// LTX-2 takes the rate of the first sample for all.
#[test]
fn every_sample_plays_at_its_own_rate() {
    let places = geometry().coordinates.positions([3, 1, 1], &[24.0, 12.0], &Device::flex());
    let time = |sample: usize| values(&places.clone().slice([sample..sample + 1, 0..1, 2..3]));
    near(&time(0), &[9.0 / 24.0, 17.0 / 24.0]);
    near(&time(1), &[9.0 / 12.0, 17.0 / 12.0]);
}

#[test]
fn other_families_count_tokens_or_know_no_time() {
    let counted = Coordinates::indices().positions([2, 1, 2], &[30.0], &Device::flex());
    near(&values(&counted.slice([0..1, 0..1])), &[0.0, 1.0, 0.0, 1.0, 1.0, 2.0, 1.0, 2.0]);
    let plane = Coordinates { time: Time::Absent, scale: [1.0, 0.5, 2.0], span: None };
    let places = plane.positions([1, 2, 2], &[1.0], &Device::flex());
    assert_eq!(places.dims(), [1, 2, 4, 2]);
    near(&values(&places.slice([0..1, 1..2])), &[0.0, 2.0, 2.0, 4.0, 0.0, 2.0, 2.0, 4.0]);
}

/// The same through a strategy: no sample is told the rate of another.
#[test]
fn a_batch_keeps_the_rate_of_every_sample() {
    let mut mixed = batch(2, [3, 1, 1]);
    let values_of = tensor("latents", [2, CHANNELS, 3, 1, 1]);
    let latents = VideoLatents { values: values_of, rates: vec![24.0, 12.0] };
    mixed.fields.insert("latents".to_owned(), Field::Video(latents));
    let inputs = prepare(json!({ "name": "text_to_video" }), &mixed, 1);
    let places = inputs.seen.inputs.video.as_ref().unwrap().positions.values();
    let time = |sample: usize| values(&places.clone().slice([sample..sample + 1, 0..1, 2..3]));
    near(&time(0), &[9.0 / 24.0, 17.0 / 24.0]);
    near(&time(1), &[9.0 / 12.0, 17.0 / 12.0]);
}
