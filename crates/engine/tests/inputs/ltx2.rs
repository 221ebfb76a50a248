//! Whole runs of LTX-2, video with its sound, equal diffusers' from the same noise.

use engine::{Error, Field, MoreGuidance, Request, Silent};
use families::CrossLevels;

use crate::ltx2_runs::{Golden, Kept, clip, distance, open, values};

const PIPELINE: &str = "ltx2_pipeline.safetensors";

#[test]
fn latents_frames_and_sound_equal_diffusers() {
    let golden = Golden::read(PIPELINE);
    let kept: Vec<usize> = serde_json::from_value(golden.config["kept"].clone()).unwrap();
    let temporary = tempfile::tempdir().unwrap();
    for (name, case) in golden.config["cases"].as_object().unwrap() {
        if name == "silent" {
            continue;
        }
        let request = golden.request(name, golden.noise(name, temporary.path()));
        let mut made = Kept::default();
        let output = open(case).run(&request, &mut Silent, &mut made).unwrap();
        let check = |what: &str, ours: &[f32]| {
            let off = distance(ours, golden.values(name, what));
            // A vocoder's periodic activations magnify what is lost before them.
            let bound = if what == "wave" { 1e-3 } else { 1e-4 };
            assert!(off < bound, "{name}: {what} is off by {off:.2e}");
        };
        check("latents", &clip(&output));
        check("audio_latents", &values(output.audio_latents.unwrap()));
        check("wave", &made.sounds[0].split().concat());
        let frames = kept.iter().flat_map(|at| made.frames[*at].values().to_vec());
        check("frames", &frames.collect::<Vec<_>>());
    }
}

/// A video without its sound is one that never heard it.
#[test]
fn without_sound_the_video_is_that_of_streams_that_never_meet() {
    let golden = Golden::read(PIPELINE);
    let temporary = tempfile::tempdir().unwrap();
    let noise = golden.noise("silent", temporary.path());
    let mut request = golden.request("silent", noise);
    (request.more, request.without_audio) =
        (MoreGuidance { stg: Some(0.0), ..MoreGuidance::default() }, true);
    let mut made = Kept::default();
    let mut pipeline = open(&golden.config["cases"]["silent"]);
    let output = pipeline.run(&request, &mut Silent, &mut made).unwrap();
    let off = distance(&clip(&output), golden.values("silent", "latents"));
    assert!(off < 1e-4, "the video is off by {off:.2e}");
    assert!(made.sounds.is_empty() && output.audio_latents.is_none());
}

/// What would do nothing is refused by the name of what asked for it.
#[test]
fn guidance_that_would_do_nothing_is_refused() {
    let golden = Golden::read(PIPELINE);
    let case = &golden.config["cases"]["plain"];
    let pipeline = open(case);
    let base = Request {
        prompts: vec!["a fox".to_owned()],
        height: Some(32),
        width: Some(32),
        frames: Some(9),
        max_tokens: Some(16),
        ..Request::default()
    };
    let more = MoreGuidance::default;
    let silent = Request { without_audio: true, ..base.clone() };
    let none = MoreGuidance {
        audio_scale: Some(1.0),
        stg: Some(0.0),
        audio_stg: Some(0.0),
        modality: Some(1.0),
        audio_modality: Some(1.0),
        ..more()
    };
    let cases = [
        (&silent, MoreGuidance { audio_scale: Some(2.0), ..more() }, Field::AudioGuidance),
        (&silent, MoreGuidance { modality: Some(2.0), ..more() }, Field::Modality),
        (
            &silent,
            MoreGuidance { cross_levels: Some(CrossLevels::Own), ..more() },
            Field::CrossTimestep,
        ),
        (&base, MoreGuidance { stg_blocks: Some(vec![2]), ..more() }, Field::StgBlocks),
        (&base, MoreGuidance { stg_blocks: Some(vec![0]), ..none.clone() }, Field::StgBlocks),
        (&base, MoreGuidance { rescale: Some(2.0), ..more() }, Field::Rescale),
        (&base, MoreGuidance { stg: Some(f64::NAN), ..more() }, Field::Stg),
    ];
    for (request, more, field) in cases {
        let refused = pipeline.check(&Request { more: more.clone(), ..request.clone() });
        match refused {
            Err(Error::Request { field: found, .. }) => assert_eq!(found, field, "{more:?}"),
            other => panic!("{more:?}: {other:?}"),
        }
    }
    let unguided = Request { guidance: Some(1.0), more: none.clone(), ..base.clone() };
    assert!(pipeline.check(&unguided).is_ok());
    let rescaled = MoreGuidance { audio_rescale: Some(0.5), ..none };
    let refused = pipeline.check(&Request { more: rescaled, ..unguided });
    assert!(refused.unwrap_err().to_string().contains("nothing is guided"));
}
