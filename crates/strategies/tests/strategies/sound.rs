//! Sound: own noise, own levels, own places, and each modality from the other.

use serde_json::{Value, json};
use testkit::numbers::{tensor, values};
use train::Strategy;

use crate::batches::{batch, prepare, seen_levels, strategy};

fn mode(video: bool, audio: bool, conditions: Value) -> Value {
    json!({
        "name": "flexible",
        "video": { "generated": video, "source": "latents" },
        "audio": { "generated": audio, "source": "audio_latents", "conditions": conditions },
    })
}

#[test]
fn both_are_generated_with_noise_and_levels_of_their_own() {
    let batch = batch(4, [2, 1, 2]);
    let inputs = prepare(mode(true, true, json!([])), &batch, 1);
    let sound = inputs.seen.inputs.audio.as_ref().unwrap();
    // Tokens are times; within one the channel is slow and the frequency fast.
    assert_eq!(sound.tokens.dims(), [4, 5, 8]);
    let clean = &inputs.seen.scene().audio.as_ref().unwrap().clean;
    let latents = batch.audio("", "audio_latents").unwrap();
    let element = |c: usize, t: usize, f: usize| {
        values(&latents.clone().slice([1..2, c..c + 1, t..t + 1, f..f + 1]))[0]
    };
    let token = values(&clean.clone().slice([1..2, 3..4]));
    assert_eq!(token[..5], [0, 1, 2, 3, 4].map(|at| element(at / 4, 3, at % 4)));
    let (video, audio) =
        (values(&inputs.seen.inputs.video.as_ref().unwrap().sigma), values(&sound.sigma));
    assert!(video.iter().zip(&audio).all(|(video, audio)| (video - audio).abs() > 1e-4));
    assert_eq!(sound.positions.dims(), [4, 1, 5, 2]);
    let loss = strategy(mode(true, true, json!([]))).unwrap().loss(&answer(&inputs), &inputs);
    assert!(loss.tracks.video.is_some() && loss.tracks.audio.is_some());
}

/// A prediction of the right shapes.
fn answer(inputs: &train::ModelInputs) -> nn::Prediction {
    let names = nn::Tracks { video: Some("answer"), audio: Some("sounds") };
    let all = names.zip(inputs.seen.inputs.as_ref());
    all.map(|(name, own)| tensor(name, own.tokens.dims()))
}

#[test]
fn each_is_generated_from_the_other() {
    let batch = batch(2, [2, 1, 2]);
    for (video, audio) in [(true, false), (false, true)] {
        let config = mode(video, audio, json!([]));
        let inputs = prepare(config.clone(), &batch, 1);
        let sound = inputs.seen.inputs.audio.as_ref().unwrap();
        let scene = inputs.seen.scene();
        for (generated, modality, clean) in [
            (
                video,
                inputs.seen.inputs.video.as_ref().unwrap(),
                &scene.video.as_ref().unwrap().clean,
            ),
            (audio, sound, &scene.audio.as_ref().unwrap().clean),
        ] {
            let given = values(&modality.tokens) == values(clean);
            assert_eq!(given, !generated);
            let zero = seen_levels(modality).iter().flatten().all(|level| *level == 0.0);
            assert_eq!(zero, !generated);
            assert_eq!(values(&modality.sigma).iter().all(|sigma| *sigma == 0.0), !generated);
            assert!(modality.enabled);
        }
        // Only what is generated has a loss, at a level of its own: LTX-2 files a sound's loss under
        // the level of the video, which is 0 here.
        let loss = strategy(config).unwrap().loss(&answer(&inputs), &inputs);
        assert_eq!((loss.tracks.video.is_some(), loss.tracks.audio.is_some()), (video, audio));
        let own = if video {
            inputs.targets.video.as_ref().unwrap()
        } else {
            inputs.targets.audio.as_ref().unwrap()
        };
        assert!(own.counts && own.sigma.iter().all(|sigma| *sigma > 0.1));
        let only = loss.tracks.video.or(loss.tracks.audio).unwrap();
        assert_eq!(values(&loss_total(&inputs, video, audio)), values(&only));
    }
}

fn loss_total(inputs: &train::ModelInputs, video: bool, audio: bool) -> burn::tensor::Tensor<1> {
    let own = strategy(mode(video, audio, json!([]))).unwrap();
    own.loss(&answer(inputs), inputs).total()
}

#[test]
fn the_loss_is_the_weighed_sum_of_both() {
    let batch = batch(3, [2, 1, 2]);
    let mut config = mode(true, true, json!([]));
    let inputs = prepare(config.clone(), &batch, 1);
    let even = strategy(config.clone()).unwrap().loss(&answer(&inputs), &inputs);
    config["audio"]["weight"] = json!(0.25);
    let uneven = strategy(config).unwrap().loss(&answer(&inputs), &inputs);
    let (video, audio) =
        (values(even.tracks.video.as_ref().unwrap()), values(even.tracks.audio.as_ref().unwrap()));
    for sample in 0..3 {
        let sum = video[sample] + audio[sample];
        assert!((values(&even.total())[sample] - sum).abs() < 1e-6);
        let sum = video[sample] + 0.25 * audio[sample];
        assert!((values(&uneven.total())[sample] - sum).abs() < 1e-6);
    }
}

#[test]
fn a_sound_can_be_continued() {
    let config = mode(true, true, json!([{ "type": "prefix", "frames": 2 }]));
    let inputs = prepare(config, &batch(1, [2, 1, 2]), 1);
    let sound = inputs.seen.inputs.audio.as_ref().unwrap();
    let levels = &seen_levels(sound)[0];
    assert!(levels[..2].iter().all(|level| *level == 0.0));
    assert!(levels[2..].iter().all(|level| *level > 0.1));
    assert!(
        seen_levels(inputs.seen.inputs.video.as_ref().unwrap())[0].iter().all(|level| *level > 0.1)
    );
}

/// Every sample of a step takes another part of the density, however the step is cut.
#[test]
fn levels_can_be_spread_over_a_step() {
    let own = strategy(mode(true, true, json!([]))).unwrap().stratified();
    let levels = |first: u64, samples: usize| -> Vec<f32> {
        let draws = train::Draws::new(5, 3, first, samples).of_whole(8);
        let scene = own.scene(&batch(samples, [2, 1, 2]), &draws).unwrap();
        let levels = own.levels(&scene, &draws).unwrap().video.unwrap();
        (0..samples).map(|sample| levels.of_sample(sample)).collect()
    };
    let whole = levels(0, 8);
    let mut sorted = whole.clone();
    sorted.sort_by(f32::total_cmp);
    for (part, level) in sorted.iter().enumerate() {
        let (low, high) = (0.2 + 0.7 * part as f32 / 8.0, 0.2 + 0.7 * (part + 1) as f32 / 8.0);
        assert!((low..=high).contains(level), "{sorted:?}");
    }
    assert_eq!([levels(0, 3), levels(3, 5)].concat(), whole);
    assert_ne!(sorted, whole, "parts are dealt at random");
}

/// A sound from text alone: no video is looked at, drawn for or asked of the network.
#[test]
fn a_sound_is_generated_without_a_video() {
    let batch = batch(3, [2, 1, 2]);
    let own = strategy(json!({ "name": "text_to_audio" })).unwrap();
    let inputs = prepare(json!({ "name": "text_to_audio" }), &batch, 1);
    assert!(inputs.seen.inputs.video.is_none() && inputs.targets.video.is_none());
    let loss = own.loss(&answer(&inputs), &inputs);
    assert!(loss.tracks.video.is_none());
    assert_eq!(values(&loss.total()), values(loss.tracks.audio.as_ref().unwrap()));
    // Beside a video, the same sound has the same noise: its draws are its own.
    let beside = prepare(mode(true, true, json!([])), &batch, 1);
    let tokens =
        |inputs: &train::ModelInputs| values(&inputs.seen.inputs.audio.as_ref().unwrap().tokens);
    assert_eq!(tokens(&inputs), tokens(&beside));
}

/// A sample without a sound teaches the video alone, with the draws it would have beside one; where the sound is all
/// there is to learn, or is what a video is made for, it cannot be missing.
#[test]
fn a_batch_without_sound_teaches_the_video_alone() {
    let whole = batch(3, [2, 1, 2]);
    let mut silent = whole.clone();
    silent.fields.remove("audio_latents");
    let beside = prepare(mode(true, true, json!([])), &whole, 1);
    let alone = prepare(mode(true, true, json!([])), &silent, 1);
    assert!(alone.seen.inputs.audio.is_none() && alone.targets.audio.is_none());
    let tokens =
        |inputs: &train::ModelInputs| values(&inputs.seen.inputs.video.as_ref().unwrap().tokens);
    assert_eq!(tokens(&alone), tokens(&beside));
    let own = strategy(json!({ "name": "text_to_video", "audio": "audio_latents" })).unwrap();
    assert_eq!(own.optional().as_deref(), Some("audio_latents"));
    let loss = own.loss(&answer(&alone), &alone);
    assert_eq!(values(&loss.total()), values(loss.tracks.video.as_ref().unwrap()));
    for config in [mode(true, false, json!([])), json!({ "name": "text_to_audio" })] {
        let own = strategy(config).unwrap();
        assert_eq!(own.optional(), None);
        let refused = own.scene(&silent, &train::Draws::new(0, 1, 0, 3)).unwrap_err().to_string();
        assert!(refused.contains("audio_latents"), "{refused}");
    }
}
