//! Video-to-video: references stand before the target, clean, in places of their own.

use diffusion::Geometry;
use serde_json::json;
use strategies::{Flexible, StrategyConfig};
use testkit::numbers::values;
use train::{Draws, Strategy};

use crate::batches::{batch, prepare, samplers, seen_levels, strategy, video};

fn v2v() -> serde_json::Value {
    json!({ "name": "video_to_video" })
}

#[test]
fn a_reference_stands_before_its_target_and_does_not_count() {
    let batch = batch(2, [3, 4, 4]);
    let inputs = prepare(v2v(), &batch, 1);
    let seen = inputs.seen.inputs.video.as_ref().unwrap();
    // 3 frames of 2 x 2 before 3 of 4 x 4.
    assert_eq!(seen.tokens.dims(), [2, 12 + 48, 3]);
    assert_eq!(seen.positions.dims(), [2, 3, 60, 2]);
    let reference = batch.video("", "ref_latents").unwrap();
    let want = nn::patchify(reference.values.clone(), [1, 1, 1]);
    assert_eq!(values(&seen.tokens.clone().narrow(1, 0, 12)), values(&want));
    let levels = seen_levels(seen);
    assert!(levels.iter().all(|sample| sample[..12].iter().all(|level| *level == 0.0)));
    assert!(levels.iter().all(|sample| sample[12..].iter().all(|level| *level > 0.1)));
    // Loss and targets are about the target alone.
    assert_eq!(inputs.targets.video.as_ref().unwrap().value.dims(), [2, 48, 3]);
    assert_eq!(inputs.targets.video.as_ref().unwrap().mask.dims(), [2, 48]);
}

/// LTX-2 looks for its factors in the wrong folder and silently leaves the places as they are.
#[test]
fn a_smaller_reference_covers_the_same_picture() {
    let inputs = prepare(v2v(), &batch(1, [3, 4, 4]), 1);
    let places = inputs.seen.inputs.video.as_ref().unwrap().positions.values();
    let at = |axis: usize, token: usize| {
        values(&places.clone().slice([0..1, axis..axis + 1, token..token + 1, 0..2]))
    };
    // The last reference token of a frame ends where the last target token does.
    assert_eq!(at(1, 3), [64.0, 128.0]);
    assert_eq!(at(2, 3), [64.0, 128.0]);
    assert_eq!(at(1, 12 + 15), [96.0, 128.0]);
    // Time is the same in both.
    assert_eq!(at(0, 4), at(0, 12 + 16));
    let own = strategy(v2v()).unwrap();
    assert!(!own.metadata().contains_key("reference_downscale_factor"));
    own.scene(&batch(1, [3, 4, 4]), &Draws::new(0, 1, 0, 1)).unwrap();
    assert_eq!(own.metadata()["reference_downscale_factor"], "2");
    assert_eq!(own.metadata()["reference_spatial_scale_factor"], "2");
    assert!(!own.metadata().contains_key("reference_temporal_scale_factor"));
}

#[test]
fn a_slower_reference_is_moved_in_time() {
    // 5 frames after the first against 1: four times slower, at a quarter of the rate.
    let mut slow = batch(1, [5, 2, 2]);
    slow.fields.insert("ref_latents".to_owned(), video("x", 1, [2, 2, 2], 6.0));
    let own = strategy(v2v()).unwrap();
    let draws = Draws::new(0, 1, 0, 1);
    let inputs = own.prepare(&diffusion::Process::Flow, &slow, &draws).unwrap();
    let time = |token: usize| {
        values(&inputs.seen.inputs.video.as_ref().unwrap().positions.values().clone().slice([
            0..1,
            0..1,
            token..token + 1,
            0..2,
        ]))
    };
    let picture = 1.0 / 24.0;
    let moved = |seconds: f32| (seconds - 3.0 * picture).max(0.0);
    let want = [moved(1.0 / 6.0), moved(9.0 / 6.0)];
    assert!(time(4).iter().zip(want).all(|(got, want)| (got - want).abs() < 1e-6), "{:?}", time(4));
    assert_eq!(time(0), [0.0, moved(1.0 / 6.0)]);
    assert_eq!(own.metadata()["reference_temporal_scale_factor"], "4");
}

/// Where time is counted in latent frames, the last of a slower reference is the last of its target.
#[test]
fn a_slower_reference_of_a_family_that_counts_frames_ends_with_its_target() {
    let mut slow = batch(1, [5, 2, 2]);
    slow.fields.insert("ref_latents".to_owned(), video("x", 1, [3, 2, 2], 12.0));
    let config: StrategyConfig = serde_json::from_value(v2v()).unwrap();
    let own = Flexible::new(&config, Geometry::indices([1, 1, 1]), samplers()).unwrap();
    let draws = Draws::new(0, 1, 0, 1);
    let inputs = own.prepare(&diffusion::Process::Flow, &slow, &draws).unwrap();
    let begins: Vec<f32> =
        values(&inputs.seen.inputs.video.as_ref().unwrap().positions.values().clone().slice([
            0..1,
            0..1,
            0..32,
            0..1,
        ]));
    let frames: Vec<f32> = begins.iter().step_by(4).copied().collect();
    assert_eq!(frames, [0.0, 2.0, 4.0, 0.0, 1.0, 2.0, 3.0, 4.0]);
    assert_eq!(own.metadata()["reference_temporal_scale_factor"], "2");
}

#[test]
fn a_reference_that_does_not_divide_is_refused() {
    for (grid, part) in [([3, 3, 2], "height"), ([3, 2, 3], "width"), ([3, 2, 1], "one factor")] {
        let mut odd = batch(1, [3, 4, 4]);
        odd.fields.insert("ref_latents".to_owned(), video("x", 1, grid, 24.0));
        let own = strategy(v2v()).unwrap();
        let message = own.scene(&odd, &Draws::new(0, 1, 0, 1)).map(drop).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
    let mut odd = batch(1, [4, 2, 2]);
    odd.fields.insert("ref_latents".to_owned(), video("x", 1, [3, 2, 2], 24.0));
    let own = strategy(v2v()).unwrap();
    assert!(own.scene(&odd, &Draws::new(0, 1, 0, 1)).is_err());
}

#[test]
fn later_batches_must_have_the_factors_of_the_first() {
    let own = strategy(v2v()).unwrap();
    own.scene(&batch(1, [3, 4, 4]), &Draws::new(0, 1, 0, 1)).unwrap();
    let mut other = batch(1, [3, 4, 4]);
    other.fields.insert("ref_latents".to_owned(), video("x", 1, [3, 4, 4], 24.0));
    let message = own.scene(&other, &Draws::new(0, 2, 0, 1)).map(drop).unwrap_err().to_string();
    assert!(message.contains("1 times smaller") && message.contains("was 2"), "{message}");
}

/// References change how many tokens there are, so all samples and micro-batches draw alike.
#[test]
fn a_reference_is_drawn_once_for_all() {
    let reference = json!({ "type": "reference", "source": "ref_latents", "probability": 0.5 });
    let video = json!({ "generated": true, "source": "latents", "conditions": [reference] });
    let own = strategy(json!({ "name": "flexible", "video": video })).unwrap();
    let mut with = 0;
    for step in 0..60 {
        let tokens = |first: u64| {
            let draws = Draws::new(5, step, first, 2);
            own.scene(&batch(2, [1, 2, 2]), &draws)
                .unwrap()
                .video
                .as_ref()
                .unwrap()
                .reference_tokens()
        };
        assert_eq!(tokens(0), tokens(2));
        with += usize::from(tokens(0) > 0);
    }
    assert!((18..=42).contains(&with), "{with}");
}

/// What the exported model says of its references does not hang on whether the first step drew one.
#[test]
fn a_reference_that_is_not_drawn_is_known_too() {
    let reference = json!({ "type": "reference", "source": "ref_latents", "probability": 0.5 });
    let own = json!({ "generated": true, "source": "latents", "conditions": [reference] });
    let drawn = |step| {
        let own = strategy(json!({ "name": "flexible", "video": own.clone() })).unwrap();
        let scene = own.scene(&batch(1, [3, 4, 4]), &Draws::new(5, step, 0, 1)).unwrap();
        assert_eq!(own.metadata()["reference_downscale_factor"], "2");
        let mut other = batch(1, [3, 4, 4]);
        other.fields.insert("ref_latents".to_owned(), video("x", 1, [3, 4, 4], 24.0));
        let refused = own.scene(&other, &Draws::new(5, step, 0, 1)).map(drop).unwrap_err();
        assert!(refused.to_string().contains("1 times smaller"), "{refused}");
        scene.video.as_ref().unwrap().reference_tokens() > 0
    };
    let with = (0..20).filter(|step| drawn(*step)).count();
    assert!(0 < with && with < 20, "{with}");
}

#[test]
fn references_stack_to_the_left() {
    let one = |source: &str| json!({ "type": "reference", "source": source });
    let conditions = json!([one("ref_latents"), one("second")]);
    let own = json!({ "generated": true, "source": "latents", "conditions": conditions });
    let mut both = batch(1, [1, 2, 2]);
    both.fields.insert("second".to_owned(), video("second", 1, [1, 2, 2], 24.0));
    let inputs = prepare(json!({ "name": "flexible", "video": own }), &both, 1);
    assert_eq!(inputs.seen.inputs.video.as_ref().unwrap().tokens.dims(), [1, 4 + 1 + 4, 3]);
    let second = both.video("", "second").unwrap().values.clone();
    let want = values(&nn::patchify(second, [1, 1, 1]));
    assert_eq!(
        values(&inputs.seen.inputs.video.as_ref().unwrap().tokens.clone().narrow(1, 0, 4)),
        want
    );
}
