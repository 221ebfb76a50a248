//! First frames, prefixes, suffixes, keyframes, rectangles, masks: what is fixed enters clean, at level
//! 0, and does not count.

use serde_json::{Value, json};
use testkit::numbers::{bits, values};
use train::{Batch, Draws, ModelInputs, Strategy};

use crate::batches::{batch, counted, prepare, seen_levels, strategy, video};

fn flexible(conditions: Value) -> Value {
    let video = json!({ "generated": true, "source": "latents", "conditions": conditions });
    json!({ "name": "flexible", "video": video })
}

/// Everything the network and the loss are told agrees with `given`, the fixed tokens of each sample.
#[track_caller]
fn check(inputs: &ModelInputs, given: &[Vec<bool>]) {
    let seen = seen_levels(inputs.seen.inputs.video.as_ref().unwrap());
    let sigma = values(&inputs.seen.inputs.video.as_ref().unwrap().sigma);
    let scene = inputs.seen.scene();
    let [_, tokens, channels] = scene.video.as_ref().unwrap().clean.dims();
    let (clean, noisy) = (
        values(&scene.video.as_ref().unwrap().clean),
        values(&inputs.seen.inputs.video.as_ref().unwrap().tokens),
    );
    for (sample, given) in given.iter().enumerate() {
        assert_eq!(&scene.video.as_ref().unwrap().fixed(sample), given, "sample {sample}");
        for (token, given) in given.iter().enumerate() {
            let level = if *given { 0.0 } else { sigma[sample] };
            assert!((seen[sample][token] - level).abs() < 1e-6, "level of {sample}, {token}");
            let at = (sample * tokens + token) * channels;
            let same = clean[at..at + channels] == noisy[at..at + channels];
            assert_eq!(same, *given, "tokens of {sample}, {token}");
            assert_eq!(counted(inputs)[sample][token], !given, "loss of {sample}, {token}");
        }
        assert!(sigma[sample] > 0.1, "the sample is noisy");
    }
}

fn rows(pattern: &[usize], tokens: usize) -> Vec<bool> {
    (0..tokens).map(|token| pattern.contains(&token)).collect()
}

#[test]
fn regions_are_the_tokens_they_say() {
    let batch = batch(2, [3, 2, 2]);
    let cases = [
        (json!({ "type": "first_frame" }), rows(&[0, 1, 2, 3], 12)),
        (json!({ "type": "prefix", "frames": 2 }), rows(&[0, 1, 2, 3, 4, 5, 6, 7], 12)),
        (json!({ "type": "suffix", "frames": 1 }), rows(&[8, 9, 10, 11], 12)),
        (json!({ "type": "keyframes", "frames": [0, 2] }), rows(&[0, 1, 2, 3, 8, 9, 10, 11], 12)),
        (
            json!({ "type": "rectangle", "rows": [32, 64], "columns": [0, 63] }),
            rows(&[2, 6, 10], 12),
        ),
        (json!({ "type": "mask", "source": "masks" }), rows(&[0, 1, 5, 6, 10, 11], 12)),
    ];
    for (condition, want) in cases {
        let inputs = prepare(flexible(json!([condition])), &batch, 1);
        let want = match condition["type"] == "mask" {
            // The mask of the second sample goes on counting where the first one's ended.
            true => vec![want, rows(&[3, 4, 8, 9], 12)],
            false => vec![want.clone(), want],
        };
        check(&inputs, &want);
    }
}

#[test]
fn conditions_compose() {
    let both = json!([{ "type": "first_frame" }, { "type": "suffix", "frames": 1 }]);
    let inputs = prepare(flexible(both), &batch(1, [3, 1, 2]), 1);
    check(&inputs, &[rows(&[0, 1, 4, 5], 6)]);
}

#[test]
fn without_conditions_there_is_one_level_and_no_index() {
    let inputs = prepare(flexible(json!([])), &batch(2, [3, 2, 2]), 1);
    assert!(inputs.seen.inputs.video.as_ref().unwrap().levels.index.is_none());
    check(&inputs, &vec![vec![false; 12]; 2]);
}

/// The draw is the sample's own and depends on nothing but step and sample.
#[test]
fn a_first_frame_is_drawn_for_every_sample() {
    let config = json!({ "name": "text_to_video", "first_frame_probability": 0.4 });
    let own = strategy(config).unwrap();
    let mut shares = [0; 8];
    let mut mixed = 0;
    for step in 0..100 {
        let batch = batch(8, [2, 1, 1]);
        let scene = own.scene(&batch, &Draws::new(5, step, 0, 8)).unwrap();
        let given: Vec<bool> =
            (0..8).map(|sample| scene.video.as_ref().unwrap().fixed(sample)[0]).collect();
        given.iter().enumerate().for_each(|(sample, given)| shares[sample] += usize::from(*given));
        mixed += usize::from(given.contains(&true) && given.contains(&false));
        // The same samples in two micro-batches.
        let half = |first: u64| {
            let draws = Draws::new(5, step, first, 4);
            let scene = own.scene(&crate::batches::batch(4, [2, 1, 1]), &draws).unwrap();
            (0..4).map(|sample| scene.video.as_ref().unwrap().fixed(sample)[0]).collect::<Vec<_>>()
        };
        assert_eq!([half(0), half(4)].concat(), given);
    }
    assert!(shares.iter().all(|share| (25..=56).contains(share)), "{shares:?}");
    assert!(mixed > 80, "samples are drawn one by one: {mixed}");
}

#[test]
fn a_probability_of_nought_gives_nothing_and_one_gives_all() {
    for (probability, want) in [(0.0, false), (1.0, true)] {
        let config = json!([{ "type": "first_frame", "probability": probability }]);
        for step in 0..20 {
            let inputs = prepare(flexible(config.clone()), &batch(2, [2, 1, 1]), step);
            let given = inputs.seen.scene().video.as_ref().unwrap().fixed(1)[0];
            assert_eq!(given, want);
        }
    }
}

/// LTX-2's flexible strategy masks every token of a picture and learns nothing from it.
#[test]
fn a_condition_never_gives_a_whole_clip_away() {
    for (condition, frames) in [
        (json!({ "type": "first_frame" }), 1),
        (json!({ "type": "prefix", "frames": 5 }), 3),
        (json!({ "type": "suffix", "frames": 3 }), 3),
    ] {
        let inputs = prepare(flexible(json!([condition])), &batch(1, [frames, 2, 2]), 1);
        check(&inputs, &[vec![false; frames * 4]]);
    }
    // Of two that together would, the second is left out.
    let both = json!([{ "type": "prefix", "frames": 2 }, { "type": "suffix", "frames": 1 }]);
    let inputs = prepare(flexible(both), &batch(1, [3, 1, 1]), 1);
    check(&inputs, &[rows(&[0, 1], 3)]);
}

#[test]
fn what_is_missing_or_does_not_fit_is_named() {
    let scene = |config: Value, batch: &Batch| {
        let own = strategy(config).unwrap();
        own.scene(batch, &Draws::new(0, 1, 0, batch.samples)).map(drop).unwrap_err().to_string()
    };
    let mut lacking = batch(1, [2, 2, 2]);
    lacking.fields.remove("masks");
    let masked = flexible(json!([{ "type": "mask", "source": "masks" }]));
    let message = scene(masked.clone(), &lacking);
    assert!(message.contains("strategy `flexible` needs the source `masks`"), "{message}");
    assert!(message.contains("latents"), "{message}");
    let mut other = batch(1, [2, 2, 2]);
    other.fields.insert("masks".to_owned(), video("x", 1, [2, 2, 2], 24.0));
    let message = scene(masked.clone(), &other);
    assert!(message.contains("`masks` holds video latents, but a mask is needed"), "{message}");
    let mut small = batch(1, [2, 2, 2]);
    small.fields.insert("latents".to_owned(), video("x", 1, [3, 2, 2], 24.0));
    let message = scene(masked, &small);
    assert!(message.contains("of 8 tokens") && message.contains("have 12"), "{message}");
    let mut uneven = batch(2, [2, 2, 2]);
    uneven.fields.insert("latents".to_owned(), video("x", 1, [2, 2, 2], 24.0));
    let message = scene(flexible(json!([])), &uneven);
    assert!(message.contains("for 1 samples"), "{message}");
}

#[test]
fn the_same_draws_give_the_same_bits_and_others_do_not() {
    let config = flexible(json!([{ "type": "first_frame", "probability": 0.5 }]));
    let tokens = |step| {
        bits(
            &prepare(config.clone(), &batch(3, [2, 2, 1]), step)
                .seen
                .inputs
                .video
                .as_ref()
                .unwrap()
                .tokens,
        )
    };
    assert_eq!(tokens(4), tokens(4));
    assert_ne!(tokens(4), tokens(5));
}
