//! Clips are functions of seed and index, and show what their captions say.

use std::collections::BTreeSet;

use data::world::{
    Colour, Direction, Follows, MovingShape, PITCHES, Shape, Tone, World, WorldOptions,
};

/// Awkward on purpose: odd sizes and frame counts, sizes and speeds that vary.
fn varied() -> WorldOptions {
    let (size, speed) = ([7.5, 12.0], [1.0, 2.3]);
    WorldOptions { frames: 9, height: 35, width: 47, size, speed, ..WorldOptions::default() }
}

#[test]
fn a_clip_depends_on_seed_and_index_alone() {
    let world = World::new(varied(), 11).unwrap();
    let forwards: Vec<_> = (0..20).map(|index| world.show(index)).collect();
    let again = World::new(varied(), 11).unwrap();
    for index in (0..20).rev() {
        assert_eq!(again.show(index), forwards[index as usize]);
    }
    let other = World::new(varied(), 12).unwrap();
    assert!((0..20).all(|index| other.show(index).motion != forwards[index as usize].motion));
}

/// The bits are the same on every machine.
#[test]
fn a_clip_has_these_bits() {
    let world = World::new(varied(), 11).unwrap();
    let mut hasher = blake3::Hasher::new();
    for index in [0, 17, 40] {
        for value in world.show(index).clip.pixels() {
            hasher.update(&value.to_le_bytes());
        }
    }
    let hash = hasher.finalize().to_hex();
    assert_eq!(
        &hash[..16],
        "94633a5c64d0502a",
        "the generator has changed: datasets made with it differ"
    );
}

#[test]
fn every_clip_shows_its_scene_within_the_frame() {
    for options in [WorldOptions::default(), varied()] {
        let world = World::new(options, 3).unwrap();
        for index in 0..96 {
            let shown = world.show(index);
            let rgb = shown.scene.colour.rgb();
            let box_area = shown.motion.size * shown.motion.size;
            let area = match shown.scene.shape {
                Shape::Circle => box_area * std::f64::consts::FRAC_PI_4,
                Shape::Square => box_area,
                Shape::Triangle => box_area / 2.0,
            };
            for frame in 0..options.frames {
                let light = |channel: usize| {
                    let values = shown.clip.frame(frame).iter().skip(channel).step_by(3);
                    values.map(|value| f64::from(*value)).sum::<f64>()
                };
                // All of the shape is there: none of it was cut off.
                for (channel, value) in rgb.into_iter().enumerate() {
                    assert!(
                        (light(channel) - area * f64::from(value)).abs() < 0.3,
                        "{index} {frame}"
                    );
                }
            }
        }
    }
}

/// The middle of the light, `[column, row]`.
fn middle(frame: &[f32], width: usize) -> [f64; 2] {
    let mut sums = [0.0; 3];
    for (at, pixel) in frame.chunks_exact(3).enumerate() {
        let light: f64 = pixel.iter().map(|value| f64::from(*value)).sum();
        let place = [(at % width) as f64 + 0.5, (at / width) as f64 + 0.5, 1.0];
        (0..3).for_each(|axis| sums[axis] += light * place[axis]);
    }
    [sums[0] / sums[2], sums[1] / sums[2]]
}

#[test]
fn shapes_go_where_the_caption_says() {
    let options = varied();
    let world = World::new(options, 5).unwrap();
    for index in 0..96 {
        let shown = world.show(index);
        let first = middle(shown.clip.frame(0), options.width);
        let last = middle(shown.clip.frame(8), options.width);
        let moved = [0, 1].map(|axis| (last[axis] - first[axis]) / 8.0);
        let [along, across] = match shown.scene.direction {
            Direction::Left => [-moved[0], moved[1]],
            Direction::Right => [moved[0], moved[1]],
            Direction::Up => [-moved[1], moved[0]],
            Direction::Down => [moved[1], moved[0]],
        };
        assert!((0.95..2.35).contains(&along) && across.abs() < 0.02, "{index}: {moved:?}");
    }
}

#[test]
fn starts_sizes_and_speeds_fill_their_ranges() {
    let options = varied();
    let world = World::new(options, 6).unwrap();
    let scene =
        MovingShape { shape: Shape::Square, colour: Colour::Red, direction: Direction::Down };
    let motions: Vec<_> = (0..500).map(|index| world.show_scene(scene, index).motion).collect();
    let spread = |value: &dyn Fn(usize) -> f64| {
        let values = (0..500).map(value);
        values.fold([f64::MAX, f64::MIN], |[low, high], x| [low.min(x), high.max(x)])
    };
    let [low, high] = spread(&|at| motions[at].size);
    assert!(low < 7.6 && high > 11.9);
    let [low, high] = spread(&|at| motions[at].velocity[1]);
    assert!(low < 1.05 && high > 2.25);
    let [low, high] = spread(&|at| motions[at].start[0]);
    assert!(low < 6.0 && high > 41.0);
}

#[test]
fn clips_take_turns_through_the_scenes() {
    let all = MovingShape::all();
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 48);
    let held_out = [all[3], all[17], all[30], all[46]];
    let kept: Vec<_> = all.into_iter().filter(|scene| !held_out.contains(scene)).collect();
    let world = World::new(WorldOptions::default(), 1).unwrap().with_scenes(kept.clone()).unwrap();
    let shown: Vec<_> = (0..88).map(|index| world.show(index).scene).collect();
    assert_eq!(shown[..44], kept);
    assert_eq!(shown[44..], kept);
    assert!(World::new(WorldOptions::default(), 1).unwrap().with_scenes(Vec::new()).is_err());
}

#[test]
fn captions_are_read_as_they_are_written() {
    for scene in MovingShape::of(&Colour::KNOWN) {
        assert_eq!(scene.to_string().parse::<MovingShape>().unwrap(), scene);
    }
    let cases = [
        ("a red circle", "write it like"),
        ("a pink circle moves left", "there is no colour `pink`; there are red, green"),
        ("a red cube moves left", "there is no shape `cube`; there are circle, square, triangle"),
        ("a red circle moves away", "there is no direction `away`"),
    ];
    for (caption, expected) in cases {
        let message = caption.parse::<MovingShape>().unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn impossible_worlds_are_refused_with_a_remedy() {
    let default = WorldOptions::default();
    let tone = Some(Tone { sample_rate: 2000, ..Tone::default() });
    let cases = [
        (WorldOptions { frames: 1, ..default }, "motion needs at least 2"),
        (WorldOptions { size: [5.0, 10.0], ..default }, "from 6 pixels on"),
        (WorldOptions { size: [10.0, 9.0], ..default }, "from 6 pixels on"),
        (WorldOptions { size: [10.0, f64::INFINITY], ..default }, "from 6 pixels on"),
        (WorldOptions { speed: [0.0, 2.0], ..default }, "above 0"),
        (WorldOptions { speed: [f64::NAN, 2.0], ..default }, "above 0"),
        (WorldOptions { frames: 20, ..default }, "both sides need at least 48"),
        (WorldOptions { width: 17, ..default }, "both sides need at least 24"),
        (
            WorldOptions { size: [17.0, 17.0], speed: [1.0, 1.0], ..default },
            "both sides need at least 34",
        ),
        (WorldOptions { fps: 0.0, ..default }, "a number above 0"),
        (WorldOptions { tone, ..default }, "give at least 3324"),
    ];
    for (options, expected) in cases {
        let message = World::new(options, 0).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    let fits = WorldOptions { width: 24, height: 24, ..default };
    assert!(World::new(fits, 0).is_ok());
}

#[test]
fn a_tone_has_the_pitch_of_its_scene() {
    for follows in [Follows::Direction, Follows::Colour] {
        let tone = Some(Tone { follows, sample_rate: 8000 });
        let world = World::new(WorldOptions { tone, ..WorldOptions::default() }, 0).unwrap();
        for index in 0..48 {
            let shown = world.show(index);
            let samples = shown.tone.unwrap();
            assert_eq!(samples.len(), 4000);
            let place = match follows {
                Follows::Direction => shown.scene.direction as usize,
                Follows::Colour => shown.scene.colour as usize,
            };
            // Half a second has half as many rising zeros as the pitch says, give or take one.
            let rising = samples.windows(2).filter(|pair| pair[0] < 0.0 && pair[1] >= 0.0).count();
            assert!((rising as f64 - PITCHES[place] / 2.0).abs() < 1.5);
        }
    }
    assert_eq!(World::new(WorldOptions::default(), 0).unwrap().show(0).tone, None);
}
