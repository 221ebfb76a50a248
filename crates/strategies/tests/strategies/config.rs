//! Settings: what they may say, what they need, and what is refused.

use serde_json::{Value, json};
use strategies::{Flexible, StrategyConfig};
use train::Strategy;

use crate::batches::{geometry, samplers, strategy};

#[test]
fn sources_are_what_the_settings_name() {
    let sources = |config: Value| strategy(config).unwrap().sources();
    assert_eq!(sources(json!({ "name": "text_to_video" })), ["latents", "text"]);
    let sound = json!({ "name": "text_to_video", "audio": "audio_latents" });
    assert_eq!(sources(sound), ["latents", "text", "audio_latents"]);
    assert_eq!(sources(json!({ "name": "text_to_audio" })), ["audio_latents", "text"]);
    let v2v = json!({ "name": "video_to_video" });
    assert_eq!(sources(v2v), ["latents", "text", "ref_latents"]);
    let flexible = json!({
        "name": "flexible",
        "video": {
            "generated": true,
            "source": "clips",
            "text": "captions",
            "conditions": [
                { "type": "mask", "source": "holes" },
                { "type": "reference", "source": "depth", "probability": 0.5 },
            ],
        },
    });
    assert_eq!(sources(flexible), ["clips", "captions", "holes", "depth"]);
}

#[test]
fn unknown_keys_are_refused() {
    let parse = |config: Value| serde_json::from_value::<StrategyConfig>(config);
    assert!(parse(json!({ "name": "text_to_video", "first_frame": 0.1 })).is_err());
    assert!(parse(json!({ "name": "image_to_video" })).is_err());
    let with = |condition: Value| {
        let video = json!({ "generated": true, "source": "x", "conditions": [condition] });
        parse(json!({ "name": "flexible", "video": video }))
    };
    with(json!({ "type": "prefix", "frames": 2, "probability": 0.5 })).unwrap();
    assert!(with(json!({ "type": "prefix", "frames": 2, "count": 1 })).is_err());
    assert!(with(json!({ "type": "first_frame", "frames": 2 })).is_err());
    assert!(with(json!({ "type": "outpaint" })).is_err());
}

#[track_caller]
fn refused(video: Value, audio: Option<Value>, part: &str) {
    let mut config = json!({ "name": "flexible", "video": video });
    if let Some(audio) = audio {
        config["audio"] = audio;
    }
    let message = strategy(config).map(drop).unwrap_err().to_string();
    assert!(message.contains(part), "{message}");
}

#[test]
fn what_cannot_be_is_refused_before_any_work() {
    let video = |conditions: Value| json!({ "generated": true, "source": "latents", "conditions": conditions });
    let given = json!({ "generated": false, "source": "latents" });
    refused(given.clone(), None, "nothing to learn");
    refused(given, Some(json!({ "generated": false, "source": "sounds" })), "nothing to learn");
    refused(video(json!([{ "type": "prefix", "frames": 0 }])), None, "at least 1");
    refused(video(json!([{ "type": "first_frame", "probability": 1.5 }])), None, "between 0 and 1");
    refused(video(json!([{ "type": "keyframes", "frames": [] }])), None, "at least one");
    let upside_down = json!([{ "type": "rectangle", "rows": [9, 3], "columns": [0, 1] }]);
    refused(video(upside_down), None, "ends after it begins");
    // A reference that is the latents themselves: LTX-2 fails with a bare key error later.
    refused(video(json!([{ "type": "reference", "source": "latents" }])), None, "name another");
    refused(video(json!([{ "type": "mask", "source": "text" }])), None, "name another");
    let sound = |part: Value| {
        let mut audio = json!({ "generated": true, "source": "sounds" });
        audio.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
        Some(audio)
    };
    refused(video(json!([])), sound(json!({ "source": "latents" })), "the video has that one");
    refused(video(json!([])), sound(json!({ "weight": -1.0 })), "not below 0");
    let first = json!({ "conditions": [{ "type": "first_frame" }] });
    refused(video(json!([])), sound(first), "a sound has no pictures");
    let known = json!({ "generated": false, "conditions": [{ "type": "prefix", "frames": 1 }] });
    refused(video(json!([])), sound(known), "leave its conditions out");
}

#[test]
fn a_generated_sound_needs_a_sampler_of_its_own() {
    let config = json!({ "name": "text_to_video", "audio": "audio_latents" });
    let config: StrategyConfig = serde_json::from_value(config).unwrap();
    let deaf = nn::Tracks { audio: None, ..samplers() };
    let message = Flexible::new(&config, geometry(), deaf).map(drop).unwrap_err().to_string();
    assert!(message.contains("needs its own"), "{message}");
}

/// LTX-2 pools frames 0-7, 8-15; its codec holds {0}, {1-8}.
#[test]
fn masks_are_pooled_as_the_codec_groups_pictures() {
    let pixels: Vec<bool> = (0..17 * 2 * 2).map(|at| at / 4 == 8 && at % 4 == 3).collect();
    let tokens = diffusion::pool_mask(&pixels, [17, 2, 2], [8, 2, 2]);
    assert_eq!(tokens, [false, true, false]);
    let first: Vec<bool> = (0..17 * 2 * 2).map(|at| at / 4 == 0).collect();
    assert_eq!(diffusion::pool_mask(&first, [17, 2, 2], [8, 2, 1])[..3], [true, true, false]);
}
