//! Nothing is lost between clips and latents, and words have vectors of their own.

use burn::tensor::{Device, Tensor};
use data::Clip;
use data::world::{MovingShape, SoundBlocks, SpaceToDepth, Tone, Words, World, WorldOptions};
use diffusion::Draw;

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_to_vec().unwrap()
}

fn random_clip(size: [usize; 3]) -> Clip {
    let count = size.iter().product::<usize>() * 3;
    Clip::new(size, Draw::new(1).stream("clip").normal(0..count)).unwrap()
}

#[test]
fn latents_and_back_is_the_identity_to_the_bit() {
    let device = Device::flex();
    for (block, size) in
        [([2, 8, 8], [8, 32, 32]), ([1, 4, 2], [5, 12, 14]), ([3, 1, 5], [6, 7, 10])]
    {
        let codec = SpaceToDepth::new(block).unwrap();
        let clip = random_clip(size);
        let latents = codec.encode(&clip, &device).unwrap();
        let [f, h, w] = [0, 1, 2].map(|axis| size[axis] / block[axis]);
        assert_eq!(latents.dims(), [1, codec.channels(), f, h, w]);
        assert_eq!(codec.decode(latents).unwrap(), [clip]);
    }
}

/// Channel (colour, frame, row, column) of block (f, h, w) is twice that pixel.
#[test]
fn a_latent_is_twice_its_pixel() {
    let codec = SpaceToDepth::default();
    assert_eq!(codec.channels(), 384);
    let clip = random_clip([4, 16, 24]);
    let latents = values(codec.encode(&clip, &Device::flex()).unwrap());
    for (colour, frame, row, column) in [(0, 0, 0, 0), (2, 3, 9, 17), (1, 2, 15, 7), (0, 1, 8, 16)]
    {
        let channel = ((colour * 2 + frame % 2) * 8 + row % 8) * 8 + column % 8;
        let place = ((channel * 2 + frame / 2) * 2 + row / 8) * 3 + column / 8;
        assert_eq!(latents[place], 2.0 * clip.pixel(frame, row, column)[colour]);
    }
}

#[test]
fn a_batch_of_latents_is_a_list_of_clips() {
    let device = Device::flex();
    let codec = SpaceToDepth::default();
    let world = World::new(WorldOptions::default(), 2).unwrap();
    let clips: Vec<_> = (0..3).map(|index| world.show(index).clip).collect();
    let latents = clips.iter().map(|clip| codec.encode(clip, &device).unwrap()).collect();
    assert_eq!(codec.decode(Tensor::cat(latents, 0)).unwrap(), clips);
}

#[test]
fn sizes_that_do_not_divide_are_refused() {
    let codec = SpaceToDepth::default();
    let cases = [
        ([7, 32, 32], "frames 7 is not a multiple of 2; the nearest that is, is 8"),
        ([8, 35, 32], "height 35 is not a multiple of 8; the nearest that is, is 32"),
        ([8, 32, 3], "width 3 is not a multiple of 8; the nearest that is, is 8"),
    ];
    for (size, expected) in cases {
        let message = codec.encode(&Clip::black(size), &Device::flex()).unwrap_err().to_string();
        assert_eq!(message, expected);
    }
    assert!(SpaceToDepth::new([2, 0, 8]).is_err());
    let foreign = Tensor::zeros([1, 16, 2, 2, 2], &Device::flex());
    assert!(codec.decode(foreign).unwrap_err().to_string().contains("16 channels"));
}

#[test]
fn sound_and_back_is_the_identity_to_the_bit() {
    let device = Device::flex();
    let tone = Some(Tone::default());
    let world = World::new(WorldOptions { tone, ..WorldOptions::default() }, 2).unwrap();
    let samples = world.show(5).tone.unwrap();
    let codec = SoundBlocks { block: 250 };
    let latents = codec.encode(&samples, &device).unwrap();
    assert_eq!(latents.dims(), [1, 250, 16]);
    // Step 3, sample 20 of it.
    assert_eq!(values(latents.clone())[20 * 16 + 3], 2.0 * samples[3 * 250 + 20]);
    let twice = Tensor::cat(vec![latents.clone(), latents], 0);
    assert_eq!(codec.decode(twice).unwrap(), [samples.clone(), samples.clone()]);
    assert!(codec.encode(&samples[1..], &device).is_err());
    assert!(SoundBlocks { block: 0 }.encode(&samples, &device).is_ok());
}

#[test]
fn a_word_has_one_vector_wherever_it_stands() {
    let device = Device::flex();
    let words = Words::default();
    let embed = |caption: &str| values(words.embed(caption, &device).unwrap());
    let row = |values: &[f32], at: usize| values[at * 64..][..64].to_vec();
    let (left, right) = (embed("a red circle moves left"), embed("A  blue circle moves right"));
    assert_eq!(left.len(), 6 * 64);
    for at in [0, 2, 3, 5] {
        assert_eq!(row(&left, at), row(&right, at));
    }
    for at in [1, 4] {
        assert_ne!(row(&left, at), row(&right, at));
    }
    assert_eq!(row(&embed("left"), 0), row(&left, 4));
    assert_ne!(row(&left, 5), row(&left, 4));
    for same in ["A Red, circle moves LEFT.", " a red circle; moves -- left!"] {
        assert_eq!(embed(same), embed("a red circle moves left"), "{same}");
    }
    assert_eq!(words.unknown("A Blue hexagon moves up, slowly"), ["hexagon", "slowly"]);
    assert!(words.unknown("a magenta triangle moves down").is_empty());
    let message = words.embed("...", &device).unwrap_err().to_string();
    assert!(message.contains("0 words") && message.contains("write some"), "{message}");
    let null = values(words.null(&device));
    assert!((0..6).all(|at| row(&null, at) == row(&null, 0)));
    assert!((0..6).all(|at| row(&left, at) != row(&null, 0)));
}

#[test]
fn vectors_are_normal_and_captions_are_bounded() {
    let device = Device::flex();
    let words = Words { length: 5, width: 512 };
    let all: Vec<f32> = MovingShape::all()
        .iter()
        .flat_map(|scene| values(words.embed(&scene.to_string(), &device).unwrap()))
        .collect();
    let mean = all.iter().sum::<f32>() / all.len() as f32;
    let variance = all.iter().map(|x| x * x).sum::<f32>() / all.len() as f32;
    assert!(mean.abs() < 0.05 && (variance - 1.0).abs() < 0.1, "{mean} {variance}");
    let message = words.embed("a b c d e f", &device).unwrap_err().to_string();
    assert!(message.contains("has 6 words, but 1 to 5 are allowed"), "{message}");
    assert!(words.embed("  ", &device).is_err());
}
