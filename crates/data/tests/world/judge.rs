//! The judge reads what is there, under mild harm too, and is not fooled.

#[path = "../../examples/judge/impostors.rs"]
mod impostors;

use data::Clip;
use data::world::{Colour, Follows, Judge, MovingShape, Reading, Shape, Tone, World, WorldOptions};
use diffusion::Draw;
use impostors::{Change, HARM, IMPOSTORS};

/// The default world, and one of odd and varied sizes.
fn worlds() -> [World; 2] {
    let (size, speed) = ([8.0, 13.0], [1.0, 2.5]);
    let varied =
        WorldOptions { frames: 9, height: 43, width: 39, size, speed, ..WorldOptions::default() };
    [World::new(WorldOptions::default(), 21).unwrap(), World::new(varied, 22).unwrap()]
}

/// How many of the clips are read as some scene, as a share: the right one, and another.
fn accepted(world: &World, change: Change, clips: std::ops::Range<u64>) -> [f64; 2] {
    let judge = Judge::new(world.options());
    let (mut right, mut other, count) = (0, 0, clips.end - clips.start);
    for index in clips {
        // A stride that is prime to 48 makes a few clips show many scenes.
        let shown = world.show(index * 11);
        match judge.read(&change(world, &shown, index)).scene() {
            Some(scene) if scene == shown.scene => right += 1,
            Some(_) => other += 1,
            None => {}
        }
    }
    [right, other].map(|found| f64::from(found) / count as f64)
}

/// How many clips are read for each kind of harm and each impostor; the example takes more.
const CLIPS: u64 = 24;

/// What an honest clip must bear, all of it together 99 times of 100.
fn check_honest(world: &World) {
    let mut shares = Vec::new();
    for (name, change) in HARM {
        let [right, other] = accepted(world, change, 0..CLIPS);
        assert!(right >= 0.95, "{name}: {right}");
        assert!(other <= 0.02, "{name}: {other}");
        shares.push(right);
    }
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    assert!(mean >= 0.99, "{mean}: {shares:?}");
}

fn check_impostors(world: &World) {
    for (name, change) in IMPOSTORS {
        let [right, other] = accepted(world, change, 100..100 + CLIPS);
        assert!(right + other <= 0.05, "{name}: {right} as they say, {other} as another");
    }
}

#[test]
fn honest_clips_are_read() {
    check_honest(&worlds()[0]);
}

#[test]
fn honest_clips_of_odd_sizes_are_read() {
    check_honest(&worlds()[1]);
}

#[test]
fn impostors_are_not_accepted() {
    check_impostors(&worlds()[0]);
}

#[test]
fn impostors_of_odd_sizes_are_not_accepted() {
    check_impostors(&worlds()[1]);
}

/// A caption that differs in one word is refused: no attribute is read by its neighbour.
#[test]
fn every_word_of_the_caption_counts() {
    let [world, _] = worlds();
    let judge = Judge::new(world.options());
    for index in 0..48 {
        let shown = world.show(index);
        let reading = judge.read(&impostors::noisy(&shown.clip, 0.1, index));
        assert!(reading.shows(&shown.scene));
        let others =
            MovingShape::of(&Colour::KNOWN).into_iter().filter(|other| *other != shown.scene);
        assert!(others.into_iter().all(|other| !reading.shows(&other)));
    }
}

#[test]
fn the_colours_for_later_are_known_too() {
    let [world, _] = worlds();
    let judge = Judge::new(world.options());
    for (index, scene) in MovingShape::of(&[Colour::Magenta, Colour::Cyan]).into_iter().enumerate()
    {
        let shown = world.show_scene(scene, index as u64);
        let clip = impostors::noisy(&impostors::blurred(&shown.clip, 0.5), 0.1, index as u64);
        assert!(judge.read(&clip).shows(&scene), "{scene}");
    }
}

/// Circles at many places between pixels, of every size and colour: a clean one is never refused, and what is measured of it keeps
/// well away from the limits.
#[test]
fn clean_circles_are_read_wherever_they_are() {
    for world in worlds() {
        let judge = Judge::new(world.options());
        let circles = MovingShape::of(&Colour::KNOWN);
        let circles = circles.into_iter().filter(|scene| scene.shape == Shape::Circle);
        let (mut worst, mut clips) = ([0.0, 0.0, f64::NEG_INFINITY], 0);
        for (at, scene) in circles.enumerate() {
            for index in 0..12 {
                let shown = world.show_scene(scene, 1000 * at as u64 + index);
                let (reading, evidence) = judge.examine(&shown.clip);
                assert!(reading.shows(&scene), "{:?}: {evidence:?}", shown.motion);
                let evidence = evidence.unwrap();
                let softness = evidence.softness / shown.motion.size;
                let own = [softness, evidence.misfit, -evidence.margin];
                worst = std::array::from_fn(|axis| f64::max(worst[axis], own[axis]));
                clips += 1;
            }
        }
        let [softness, misfit, margin] = [worst[0], worst[1], -worst[2]];
        println!("{clips}: softness {softness:.3}, misfit {misfit:.4}, margin {margin:.3}");
        assert!(softness < 0.07 && misfit < 0.02 && margin > 0.03, "{softness} {misfit} {margin}");
    }
}

/// What is certain is told even if something else is not.
#[test]
fn attributes_are_answered_one_by_one() {
    let [world, _] = worlds();
    let judge = Judge::new(world.options());
    let shown = world.show(0);
    let change = |name: &str| {
        let (_, change) = IMPOSTORS.into_iter().find(|(it, _)| *it == name).unwrap();
        judge.read(&change(&world, &shown, 0))
    };
    let MovingShape { shape, colour, direction } = shown.scene;
    let (shape, colour, direction) = (Some(shape), Some(colour), Some(direction));
    assert_eq!(change("still frames"), Reading { shape, colour, direction: None });
    let blob = change("blob with the circle's area");
    assert_eq!(blob, Reading { shape: None, colour, direction });
    assert_eq!(change("white").colour, None);
    assert_eq!(change("normal noise"), Reading::default());
}

#[test]
fn strange_clips_show_nothing() {
    let judge = Judge::new(&WorldOptions::default());
    let mut broken = worlds()[0].show(0).clip;
    broken.pixels_mut()[100] = f32::NAN;
    let mut red = Clip::black([8, 32, 32]);
    red.pixels_mut().iter_mut().step_by(3).for_each(|value| *value = 1.0);
    let none = [Clip::black([8, 32, 32]), Clip::black([0, 32, 32]), Clip::black([8, 4, 4])];
    let one_frame = Clip::black([1, 32, 32]);
    for clip in none.iter().chain([&broken, &red, &one_frame]) {
        assert_eq!(judge.read(clip), Reading::default());
    }
}

#[test]
fn tones_are_heard_under_noise_and_a_little_out_of_tune() {
    let tone = Tone { follows: Follows::Colour, sample_rate: 8000 };
    let judge = Judge::new(&WorldOptions::default());
    for (index, scene) in MovingShape::of(&Colour::KNOWN).into_iter().enumerate().step_by(3) {
        let clean = tone.waveform(&scene, 0.5);
        let noise = Draw::new(1).stream("noise").sample(index as u64).normal(0..clean.len());
        let noisy: Vec<f32> = clean.iter().zip(&noise).map(|(x, noise)| x + 0.2 * noise).collect();
        let pitch = Some(scene.colour as usize);
        assert_eq!(judge.read_tone(&clean, 8000), pitch);
        assert_eq!(judge.read_tone(&noisy, 8000), pitch);
        assert_eq!(judge.read_tone(&clean, 8250), pitch);
        // Between two pitches, and noise alone.
        assert_eq!(judge.read_tone(&clean, 8960), None);
        assert_eq!(judge.read_tone(&noise, 8000), None);
    }
    assert_eq!(judge.read_tone(&[0.0; 4000], 8000), None);
    assert_eq!(judge.read_tone(&[0.1; 10], 8000), None);
    assert_eq!(judge.read_tone(&[], 8000), None);
}

/// Whoever is refused is told why, with what was measured; what is right has nothing to be told.
#[test]
fn a_refusal_is_explained() {
    let world = World::new(WorldOptions::default(), 5).unwrap();
    let judge = Judge::new(world.options());
    for index in 0..24 {
        let shown = world.show(index * 11);
        let right = judge.read(&shown.clip).shows(&shown.scene);
        assert_eq!(judge.explain(&shown.clip, &shown.scene).is_empty(), right, "{index}");
        let other = world.show(index * 11 + 1).scene;
        if other != shown.scene {
            assert!(!judge.explain(&shown.clip, &other).is_empty());
        }
    }
    let black = Clip::black([8, 32, 32]);
    let why = judge.explain(&black, &world.show(0).scene);
    assert_eq!(why, ["nothing stands out of the background"]);
    let blurred = impostors::IMPOSTORS.iter().find(|(name, _)| name.contains("blob"));
    if let Some((_, change)) = blurred {
        let shown = world.show(0);
        let why = judge.explain(&change(&world, &shown, 0), &shown.scene).join("; ");
        assert!(
            why.contains("at most") || why.contains("allowed") || why.contains("least"),
            "{why}"
        );
    }
}
