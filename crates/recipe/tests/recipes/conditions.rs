//! What is given beside a prompt is kept, and what is free follows it: one case for each condition.

use std::sync::Arc;

use burn::tensor::{Device, Tensor};
use data::media::{Frame, Waveform};
use engine::{
    Audio, Frames, Given, Latents, Media, Pipeline, PipelineOutput, Request, Setup, Silent,
};
use serde_json::json;
use testkit::numbers::{numbers, parameter, values};

/// Frames, height and width of the clips, and of their latents.
const SIZE: [usize; 3] = [8, 32, 32];
const GRID: [usize; 3] = [4, 4, 4];

/// A Duet with both voices whose parameters are random, so that everything depends on everything.
fn pipeline() -> Pipeline {
    let family = families::family("duet").unwrap();
    let sizes = json!({
        "video_channels": 384, "audio_channels": 250, "text_width": 64, "heads": 2, "head_width": 6,
        "depth": 1,
    });
    let model = (family.scratch.as_ref().unwrap().make)(family, &sizes).unwrap().description;
    let network = &model.transformers[0].network;
    let store = nn::Store::declared(|weights| network.declare(weights), parameter).unwrap();
    Pipeline::of(model, store, &Setup::new(&Device::flex())).unwrap()
}

/// The sound, and how many frames came.
#[derive(Default)]
struct Heard(Vec<f32>, usize);

impl Frames for Heard {
    fn begin(&mut self, _: usize, _: usize) -> engine::Result<()> {
        Ok(())
    }

    fn sound(&mut self, _: usize, sound: Waveform) -> engine::Result<()> {
        self.0 = sound.samples;
        Ok(())
    }

    fn frame(&mut self, _: usize, _: Frame) -> engine::Result<()> {
        self.1 += 1;
        Ok(())
    }
}

/// A short run.
fn request(given: Given) -> Request {
    Request {
        prompts: vec!["a red circle moves left".to_owned()],
        given: vec![given],
        steps: Some(2),
        seed: 3,
        ..Request::default()
    }
}

/// Final latents `[1, 384, 4, 4, 4]` and the sound of a short run.
fn run(given: Given) -> engine::Result<(Tensor<5>, Vec<f32>)> {
    let request = request(given);
    let mut heard = Heard::default();
    let PipelineOutput { latents, .. } = pipeline().run(&request, &mut Silent, &mut heard)?;
    match latents {
        Some(Latents::Clip(latents)) => Ok((latents, heard.0)),
        _ => unreachable!("Duet makes clips"),
    }
}

/// Random frames of 8 bits.
fn frames(name: &str, count: usize) -> Vec<Frame> {
    let [_, height, width] = SIZE;
    let frame = |at: usize| {
        let bytes = numbers(&format!("{name} {at}"), height * width * 3);
        let bytes: Vec<u8> = bytes.iter().map(|it| (it * 127.0 + 128.0) as u8).collect();
        Frame::from_bytes(height, width, &bytes).unwrap()
    };
    (0..count).map(frame).collect()
}

fn media(frames: &[Frame]) -> Media {
    Media::Frames(Arc::new(frames.to_vec()))
}

/// The latents of frames, as the world's codec makes them.
fn encoded(frames: &[Frame]) -> Tensor<5> {
    let [_, height, width] = SIZE;
    let pixels = frames.iter().flat_map(|frame| frame.values().to_vec()).collect();
    let clip = data::Clip::new([frames.len(), height, width], pixels).unwrap();
    data::world::SpaceToDepth::default().encode(&clip, &Device::flex()).unwrap()
}

/// The values of the latent frames `at`.
fn part(latents: &Tensor<5>, at: std::ops::Range<usize>) -> Vec<f32> {
    values(&latents.clone().slice_dim(2, at))
}

#[track_caller]
fn close(what: &str, got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len(), "{what}");
    let off = got.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(off < 1e-5, "{what} is off by {off}");
}

/// A picture, or so many, in latent frame `at`; the rest is free.
#[track_caller]
fn kept_and_followed(what: &str, at: usize, shown: &dyn Fn(&str) -> (Given, Tensor<5>)) {
    let (given, want) = shown("one");
    let [one, other] = [run(given).unwrap().0, run(shown("other").0).unwrap().0];
    let [_, _, count, _, _] = want.dims();
    close(what, &part(&one, at..at + count), &values(&want));
    for free in (0..GRID[0]).filter(|frame| !(at..at + count).contains(frame)) {
        assert_ne!(part(&one, free..free + 1), part(&other, free..free + 1), "{what}: {free}");
    }
}

#[test]
fn pictures_are_kept_in_their_frames_and_the_rest_follows() {
    // A picture fills its group of two frames.
    let still = |name: &str| {
        let picture = frames(name, 1);
        (media(&picture), encoded(&[picture[0].clone(), picture[0].clone()]))
    };
    kept_and_followed("--image", 0, &|name| {
        let (picture, latents) = still(name);
        (Given { image: Some(picture), ..Given::default() }, latents)
    });
    kept_and_followed("--last-image", 3, &|name| {
        let (picture, latents) = still(name);
        (Given { last_image: Some(picture), ..Given::default() }, latents)
    });
    for (frame, latent) in [(2, 1), (5, 2)] {
        kept_and_followed("--keyframe", latent, &|name| {
            let (picture, latents) = still(name);
            (Given { keyframes: vec![(frame, picture)], ..Given::default() }, latents)
        });
    }
}

#[test]
fn a_prefix_is_kept_and_the_rest_follows() {
    kept_and_followed("--video-prefix", 0, &|name| {
        let clip = frames(name, 4);
        let given = Given { video_prefix: Some(media(&clip)), ..Given::default() };
        (given, encoded(&clip))
    });
}

/// White is made anew, black stays, and every token of the right half follows the left one.
#[test]
fn a_mask_says_what_is_made_anew() {
    let [_, height, width] = SIZE;
    let right = (0..height * width * 3).map(|at| f32::from(u8::from(at / 3 % width >= 16)));
    let mask = Frame::new(height, width, right.collect()).unwrap();
    let given = |name: &str| Given {
        video: Some(media(&frames(name, 8))),
        mask: Some(media(std::slice::from_ref(&mask))),
        ..Given::default()
    };
    let [one, other] = ["one", "other"].map(|name| run(given(name)).unwrap().0);
    let half = |latents: &Tensor<5>, at| values(&latents.clone().slice_dim(4, at));
    close("the black half", &half(&one, 0..2), &half(&encoded(&frames("one", 8)), 0..2));
    // What was put back would be off by rounding only.
    let truth = half(&encoded(&frames("one", 8)), 2..4);
    let off = |(made, true_value): (&f32, &f32)| (made - true_value).abs();
    let same = half(&one, 2..4).iter().zip(&truth).map(off).filter(|off| *off < 1e-4).count();
    assert!(same < truth.len() / 100, "{same} values of the white half were put back");
    for (free, another) in half(&one, 2..4).chunks(2).zip(half(&other, 2..4).chunks(2)) {
        assert_ne!(free, another);
    }
}

#[test]
fn a_reference_is_followed() {
    let given = |name: &str, scale| Given {
        references: vec![(media(&frames(name, 8)), scale)],
        ..Given::default()
    };
    let made = |given| values(&run(given).unwrap().0);
    let whole = made(given("one", None));
    assert_ne!(whole, made(Given::default()));
    assert_ne!(whole, made(given("other", None)));
    assert_ne!(whole, made(given("one", Some(2))), "its scale is seen");
    assert_eq!(whole, made(given("one", Some(1))));
}

#[test]
fn a_sound_is_kept_and_the_clip_follows_it_and_the_other_way_round() {
    let wave = |name: &str| numbers(name, 4000);
    let given = |name: &str| Given {
        audio: Some(Audio::Samples(Arc::new(wave(name)))),
        ..Given::default()
    };
    let [(clip, sound), (other, _)] = ["one", "other"].map(|name| run(given(name)).unwrap());
    close("the sound", &sound, &wave("one"));
    assert_ne!(values(&clip), values(&other), "the clip follows the sound");

    let given = |name: &str| Given { video: Some(media(&frames(name, 8))), ..Given::default() };
    let [(clip, sound), (_, other)] = ["one", "other"].map(|name| run(given(name)).unwrap());
    close("the clip", &values(&clip), &values(&encoded(&frames("one", 8))));
    assert_ne!(sound, other, "the sound follows the clip");
    assert_eq!(sound.len(), 4000);
}

/// Each contradiction is told with the field it is about.
#[test]
fn what_contradicts_itself_is_refused() {
    let one = || Some(media(&frames("one", 1)));
    let clip = |count| Some(media(&frames("one", count)));
    let cases = [
        (Given { mask: one(), ..Given::default() }, "mask: nothing is given"),
        (
            Given { video: clip(8), image: one(), ..Given::default() },
            "video: the whole clip is given",
        ),
        (Given { video: clip(7), ..Given::default() }, "video: it has 7 frames"),
        (Given { video_prefix: clip(3), ..Given::default() }, "video_prefix: frames is 3"),
        (Given { video_prefix: clip(8), ..Given::default() }, "nothing would be left"),
        (
            Given { image: one(), video_prefix: clip(2), ..Given::default() },
            "video_prefix: a picture",
        ),
        (Given { image: clip(2), ..Given::default() }, "image: it has 2 frames"),
        (
            Given { image: one(), keyframes: vec![(1, one().unwrap())], ..Given::default() },
            "keyframe: frames 0 to 1 become one latent frame",
        ),
        (
            Given { last_image: one(), keyframes: vec![(6, one().unwrap())], ..Given::default() },
            "last_image: frames 6 to 7 become one latent frame",
        ),
        (
            Given { keyframes: vec![(8, media(&frames("one", 1)))], ..Given::default() },
            "keyframe: there is no frame 8",
        ),
        (
            Given { references: vec![(media(&frames("one", 8)), Some(3))], ..Given::default() },
            "reference: 32 x 32 cannot be 3 times smaller",
        ),
        (
            Given { audio: Some(Audio::Samples(Arc::new(vec![0.0; 9]))), ..Given::default() },
            "audio: it has 9 samples",
        ),
    ];
    for (given, words) in cases {
        let message = run(given).map(drop).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    }
}

/// Makes the sound alone; nothing may come as a frame.
fn sound_alone(given: Given) -> engine::Result<Vec<f32>> {
    let request = Request { only_audio: true, ..request(given) };
    let mut heard = Heard::default();
    let answer = pipeline().run(&request, &mut Silent, &mut heard)?;
    assert!(heard.1 == 0 && answer.latents.is_none(), "no frame is made");
    assert_eq!(answer.audio_latents.unwrap().dims()[1], 250);
    Ok(heard.0)
}

#[test]
fn a_sound_is_made_alone_or_for_a_clip_that_is_only_looked_at() {
    let alone = sound_alone(Given::default()).unwrap();
    assert_ne!(alone, run(Given::default()).unwrap().1, "with a clip it hears the clip");
    let shown = |name: &str| Given { video: Some(media(&frames(name, 8))), ..Given::default() };
    let [one, other] = ["one", "other"].map(|name| sound_alone(shown(name)).unwrap());
    assert!(one != other && one != alone);
    assert_eq!(one, run(shown("one")).unwrap().1, "the same sound as beside its clip");
    let picture = Given { image: Some(media(&frames("one", 1))), ..Given::default() };
    let refused = sound_alone(picture).unwrap_err().to_string();
    assert!(refused.starts_with("image: the sound alone is made"), "{refused}");
}

/// Pictures for every latent frame leave the sound to be made, or nothing.
#[test]
fn a_request_that_leaves_nothing_to_make_is_refused() {
    let picture = || media(&frames("one", 1));
    let given = || Given {
        image: Some(picture()),
        last_image: Some(picture()),
        keyframes: vec![(2, picture()), (5, picture())],
        ..Given::default()
    };
    let check = |request: &Request| pipeline().check(request).map_err(|err| err.to_string());
    assert_eq!(check(&request(given())), Ok(()));
    let audio = Some(Audio::Samples(Arc::new(numbers("wave", 4000))));
    for request in
        [Request { without_audio: true, ..request(given()) }, request(Given { audio, ..given() })]
    {
        let refused = check(&request).unwrap_err();
        assert!(refused.contains("nothing is left to make"), "{refused}");
    }
}

/// Initial latents are given for all that is made, and for nothing else.
#[test]
fn initial_latents_are_those_of_what_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, keys: &[(&str, Vec<usize>)]| {
        let path = folder.path().join(name);
        let bytes = vec![0_u8; 4 * 384 * 4 * 4 * 4];
        let views = keys.iter().map(|(key, shape)| {
            let bytes = &bytes[..4 * shape.iter().product::<usize>()];
            let dtype = safetensors::tensor::Dtype::F32;
            (*key, safetensors::tensor::TensorView::new(dtype, shape.clone(), bytes).unwrap())
        });
        safetensors::serialize_to_file(views, None, &path).unwrap();
        path
    };
    let (video, audio) = (("noise", vec![1, 384, 4, 4, 4]), ("audio_noise", vec![1, 250, 16, 1]));
    let clip = file("clip", std::slice::from_ref(&video));
    let sound = file("sound", std::slice::from_ref(&audio));
    let both = file("both", &[video, audio]);
    let check = |noise: &std::path::PathBuf, request: Request| {
        let request = Request { noise: Some(noise.clone()), ..request };
        pipeline().check(&request).map_err(|err| err.to_string())
    };
    let shown = || Given { video: Some(media(&frames("one", 8))), ..Given::default() };
    let alone = |given| Request { only_audio: true, ..request(given) };
    let silent = || Request { without_audio: true, ..request(Given::default()) };
    let lacks = |key: &str, answer: Result<(), String>| {
        let refused = answer.unwrap_err();
        assert!(refused.starts_with("noise: "), "{refused}");
        assert!(refused.ends_with(&format!("it has no tensor `{key}`")), "{refused}");
    };
    assert_eq!(check(&both, request(Given::default())), Ok(()));
    lacks("audio_noise", check(&clip, request(Given::default())));
    lacks("noise", check(&sound, request(Given::default())));
    assert_eq!(check(&clip, silent()), Ok(()));
    lacks("audio_noise", check(&clip, alone(Given::default())));
    for request in [alone(Given::default()), alone(shown()), request(shown())] {
        assert_eq!(check(&sound, request), Ok(()));
    }
}
