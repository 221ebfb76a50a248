//! Diffusion forcing: a level per chunk of frames, and the bell that weighs them.

use std::sync::Arc;

use diffusion::Process;
use methods::{DiffusionForcing, DiffusionForcingConfig};
use serde_json::json;
use train::{Draws, Form, Method, Strategy};

use crate::setting::{TINY, accumulate, batch, gradient_distance, store, strategy, trained};

fn method(config: DiffusionForcingConfig) -> train::Result<DiffusionForcing> {
    let student = trained("student", Arc::new(TINY), store(&TINY, "student"));
    let own = strategy(json!({ "name": "text_to_video" }));
    DiffusionForcing::new(student, own, Process::Flow, config)
}

fn config() -> DiffusionForcingConfig {
    DiffusionForcingConfig { chunk: 2, shift: 3.0, ..Default::default() }
}

#[test]
fn a_chunk_of_frames_shares_a_level_and_chunks_do_not() {
    let method = method(config()).unwrap();
    let own = strategy(json!({ "name": "text_to_video" }));
    for step in 0..20 {
        let draws = Draws::new(2, step, 0, 3);
        // Five frames of two tokens: chunks of two, two and one.
        let scene = own.scene(&batch(0, 3, 5), &draws).unwrap();
        let levels = method.levels(scene.video.as_ref().unwrap(), &draws);
        for sample in 0..3 {
            let of = |token: usize| levels.of(sample, token);
            assert_eq!([of(0), of(1), of(2)], [of(3); 3]);
            assert_eq!([of(4), of(5), of(6)], [of(7); 3]);
            assert_eq!(of(8), of(9));
            assert!(of(0) != of(4) && of(4) != of(8));
        }
        assert_ne!(levels.distinct(0), levels.distinct(1));
    }
}

#[test]
fn levels_lie_on_the_shifted_grid_within_the_range() {
    let drawn = |config: DiffusionForcingConfig| -> Vec<f32> {
        let method = method(config).unwrap();
        let own = strategy(json!({ "name": "text_to_video" }));
        (0..60)
            .flat_map(|step| {
                let draws = Draws::new(2, step, 0, 4);
                let scene = own.scene(&batch(0, 4, 6), &draws).unwrap();
                let levels = method.levels(scene.video.as_ref().unwrap(), &draws);
                (0..4).flat_map(|sample| levels.distinct(sample).to_vec()).collect::<Vec<_>>()
            })
            .collect()
    };
    let even = drawn(DiffusionForcingConfig { shift: 1.0, ..config() });
    let moved = drawn(config());
    for (even, moved) in even.iter().zip(&moved) {
        assert!((even * 1000.0 - (even * 1000.0).round()).abs() < 1e-3, "{even}");
        assert!((3.0 * even / (1.0 + 2.0 * even) - moved).abs() < 1e-6);
        assert!(*even > 0.0 && *even <= 1.0);
    }
    let part = drawn(DiffusionForcingConfig { shift: 1.0, range: [0.2, 0.5], ..config() });
    assert!(part.iter().all(|level| (0.5 - 1e-6..=0.8 + 1e-6).contains(level)));
    let (low, high) = part.iter().fold((1.0_f32, 0.0_f32), |(l, h), x| (l.min(*x), h.max(*x)));
    assert!(low < 0.52 && high > 0.78, "{low} {high}");
}

/// FastVideo's weight by place on the grid, written out once more.
#[test]
fn the_loss_is_weighed_by_the_bell() {
    let grid: Vec<f64> = (0..1000)
        .map(|place| (-2.0 * ((f64::from(place) - 500.0) / 1000.0).powi(2)).exp())
        .collect();
    let lowest = grid.iter().copied().fold(f64::INFINITY, f64::min);
    let sum: f64 = grid.iter().map(|height| height - lowest).sum();
    let bell = |place: usize| (grid[place] - lowest) * 1000.0 / sum;
    let mut method = method(config()).unwrap();
    let clips = batch(0, 2, 5);
    let draws = Draws::new(11, 4, 0, 2);
    let own = strategy(json!({ "name": "text_to_video" }));
    let scene = own.scene(&clips, &draws).unwrap();
    let levels = method.levels(scene.video.as_ref().unwrap(), &draws);
    let report = accumulate(&mut method, &clips, (4, 0, 1.0)).unwrap();
    let noise = train::noise_for(&scene, &draws, "noise");
    let tracks = nn::Tracks::video(levels.clone());
    let inputs = own.inputs(&Process::Flow, &scene, &tracks, &noise);
    let prediction = method.student.predict(&inputs.seen.inputs).unwrap();
    let difference =
        prediction.video.unwrap() - inputs.targets.video.as_ref().unwrap().value.clone();
    let squares = testkit::numbers::values(&(difference.clone() * difference));
    for sample in 0..2 {
        let mut want = 0.0;
        for token in 0..10 {
            let level = f64::from(levels.of(sample, token));
            let place = (1000.0 * (1.0 - level / (3.0 - 2.0 * level))).round() as usize;
            let row = &squares[(sample * 10 + token) * 3..][..3];
            want += bell(place) * row.iter().map(|x| f64::from(*x)).sum::<f64>() / 3.0 / 10.0;
        }
        let got = f64::from(report.losses[0].values[sample]);
        assert!((got - want).abs() < 1e-4 * want, "{got} instead of {want}");
    }
}

#[test]
fn a_step_cut_into_micro_batches_is_the_same_step() {
    let config = DiffusionForcingConfig { form: Form::Clean, ..config() };
    let (mut whole, mut parts) = (method(config).unwrap(), method(config).unwrap());
    accumulate(&mut whole, &batch(0, 4, 3), (2, 0, 1.0)).unwrap();
    for part in 0..4 {
        accumulate(&mut parts, &batch(part, 1, 3), (2, part as u64, 0.25)).unwrap();
    }
    let off = gradient_distance(&whole.student, &parts.student);
    assert!(off < 1e-6, "{off:e}");
    assert_eq!(whole.updates(7), ["student"]);
}

#[test]
fn what_cannot_be_is_refused() {
    let refused =
        |config: DiffusionForcingConfig| method(config).map(drop).unwrap_err().to_string();
    assert!(refused(DiffusionForcingConfig { chunk: 0, ..config() }).contains("method.chunk is 0"));
    let range = DiffusionForcingConfig { range: [0.5, 0.5], ..config() };
    assert!(refused(range).contains("method.range"));
    assert!(refused(DiffusionForcingConfig { shift: 0.0, ..config() }).contains("method.shift"));
}
