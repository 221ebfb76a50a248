//! LTX-2 in few steps, in two stages and with pictures given equals diffusers from the same noise.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::Arc;

use burn::tensor::Device;
use comm::{Axis, MeshShape};
use data::media::Frame as Picture;
use engine::{Enlarging, Error, Field, Given, Media, Pipeline, Request, Setup, Silent, Solving};
use parallel::cost::Run;
use parallel::{Layout, Plan};
use safetensors::SafeTensors;
use serde_json::Value;

use crate::ltx2_runs::{Golden, Kept, clip, distance, goldens, open, values};

const FILE: &str = "ltx2_stages.safetensors";
const UPSAMPLER: &str = "ltx2-tiny-upsampler";

/// One of the pictures of the file.
fn picture(name: &str) -> Picture {
    let bytes = std::fs::read(goldens().join(FILE)).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let view = file.tensor(&format!("picture.{name}")).unwrap();
    let [height, width, _] = view.shape()[..] else { panic!("a picture has three axes") };
    let values = view.data().iter().map(|value| f32::from(*value) / 255.0).collect();
    Picture::new(height, width, values).unwrap()
}

fn pictures(names: &Value) -> Media {
    let one = |name: &Value| picture(name.as_str().unwrap());
    let all =
        names.as_array().map_or_else(|| vec![one(names)], |all| all.iter().map(one).collect());
    Media::Frames(Arc::new(all))
}

/// What a case gives: diffusers counts latent frames, we count frames.
fn given(case: &Value, factor: usize) -> Given {
    let mut given = Given::default();
    for (index, names) in case["given"].as_object().into_iter().flatten() {
        let media = pictures(names);
        match (index.parse::<i64>().unwrap(), names.is_array()) {
            (0, true) => given.video_prefix = Some(media),
            (0, false) => given.image = Some(media),
            (-1, _) => given.last_image = Some(media),
            (at, _) => given.keyframes.push(((at as usize - 1) * factor + 1, media)),
        }
    }
    given
}

fn numbers(value: &Value) -> Option<Vec<f64>> {
    value.as_array().map(|all| all.iter().map(|one| one.as_f64().unwrap()).collect())
}

/// A case as a request, and the pipeline that it is asked of.
fn asked(golden: &Golden, name: &str, folder: &Path) -> (Request, Pipeline) {
    let case = &golden.config["cases"][name];
    let twice = case["twice"].as_bool() == Some(true);
    let upsampler = twice.then(|| goldens().join(UPSAMPLER));
    let setup = Setup { upsampler, ..Setup::new(&Device::flex()) };
    let model = goldens().join(case["folder"].as_str().unwrap());
    let pipeline = Pipeline::open(&model, &setup).unwrap();
    let factor = pipeline.description().geometry.factors[0];
    let base = golden.request(name, golden.noise(name, folder));
    let number = |key: &str| case[key].as_f64().unwrap_or(0.0);
    let request = Request {
        given: vec![given(case, factor)],
        solving: numbers(&case["sigmas"]).map_or(Solving::Recorded, Solving::Levels),
        enlarging: twice.then(|| Enlarging {
            levels: None,
            adain: number("adain"),
            tone_map: number("tone_map"),
        }),
        ..base
    };
    (request, pipeline)
}

#[test]
fn latents_of_every_case_equal_diffusers() {
    let golden = Golden::read(FILE);
    let temporary = tempfile::tempdir().unwrap();
    for name in golden.config["cases"].as_object().unwrap().keys() {
        let (request, mut pipeline) = asked(&golden, name, temporary.path());
        let output = pipeline.run(&request, &mut Silent, &mut Kept::default()).unwrap();
        for (what, ours) in [
            ("latents", clip(&output)),
            ("audio_latents", values(output.audio_latents.clone().unwrap())),
        ] {
            let off = distance(&ours, golden.values(name, what));
            eprintln!("{name}: {what} is off by {off:.2e}");
            assert!(off < 1e-4, "{name}: {what} is off by {off:.2e}");
        }
    }
}

/// The levels of the family are diffusers', and are run without guidance; so are those of the second stage.
#[test]
fn the_word_distilled_stands_for_the_levels_of_the_family() {
    let golden = Golden::read(FILE);
    let temporary = tempfile::tempdir().unwrap();
    let (request, mut pipeline) = asked(&golden, "distilled", temporary.path());
    let named = Request {
        solving: Solving::Distilled(None),
        guidance: None,
        more: engine::MoreGuidance {
            cross_levels: request.more.cross_levels,
            ..engine::MoreGuidance::default()
        },
        ..request
    };
    assert!(!pipeline.is_guided(&named).unwrap());
    let output = pipeline.run(&named, &mut Silent, &mut Kept::default()).unwrap();
    assert!(distance(&clip(&output), golden.values("distilled", "latents")) < 1e-4);
    let levels = pipeline.description().family.distilled.unwrap();
    assert_eq!(numbers(&golden.config["second"]).unwrap(), levels.enlarged);
    let own = numbers(&golden.config["cases"]["distilled"]["sigmas"]).unwrap();
    assert_eq!(own, levels.levels);
}

/// A second stage has noise of its own, and a seed is one clip however many are made together.
#[test]
fn a_seed_is_one_clip_in_two_stages() {
    let golden = Golden::read(FILE);
    let temporary = tempfile::tempdir().unwrap();
    let (request, mut pipeline) = asked(&golden, "twice", temporary.path());
    let both = Request { noise: None, count: 2, seed: 5, ..request };
    let mut made = |request: &Request| {
        clip(&pipeline.run(request, &mut Silent, &mut Kept::default()).unwrap())
    };
    let together = made(&both);
    let second = made(&Request { count: 1, first_sample: 1, ..both.clone() });
    assert_eq!(together[second.len()..], second[..]);
    let other = made(&Request { count: 1, ..both.clone() });
    assert_ne!(other, second);
    // From pure noise the second stage is a run of its own, but of other noise than a first one has.
    let levels = vec![1.0, 0.5];
    let alone =
        Request { solving: Solving::Levels(levels.clone()), enlarging: None, count: 1, ..both };
    let enlarging = Enlarging { levels: Some(levels), ..Enlarging::default() };
    let after = Request { enlarging: Some(enlarging), ..alone.clone() };
    assert_ne!(made(&after), made(&alone));
}

/// A plan counts the steps of both stages, each with its own branches and tokens, and a layout must fit the smaller clip too.
#[test]
fn both_stages_are_planned() {
    let golden = Golden::read(FILE);
    let temporary = tempfile::tempdir().unwrap();
    let (request, pipeline) = asked(&golden, "twice", temporary.path());
    // The initial latents are those of the first stage.
    let request = Request { noise: None, ..request };
    let work = pipeline.work(&request).unwrap();
    let alone = pipeline.workload(&Request { enlarging: None, ..request }).unwrap();
    let [first, second] = &work.runs[..] else { panic!("{} runs", work.runs.len()) };
    let branches = |run: &Run| run.steps.iter().map(Vec::len).max().unwrap();
    assert_eq!((branches(first), branches(second)), (work.workload.branches, 1));
    let tokens = |run: &Run| run.whole().streams[0][0].rows.spread;
    assert_eq!(tokens(second), alone.tokens.video.unwrap());
    assert_eq!(tokens(first), work.workload.tokens.video.unwrap());
    assert!(4 * tokens(first) <= tokens(second), "{} and {}", tokens(first), tokens(second));
    let ranks = tokens(first) + 1;
    let layout = Layout::new(ranks, MeshShape::default().with(Axis::Ring, ranks));
    let refused = Plan::new(&layout, &work.workload).unwrap_err();
    assert!(refused.axis == "ring" && refused.reason.contains("the nearest is"), "{refused}");
}

/// What two stages cannot do is refused by the name of what asked for it.
#[test]
fn what_two_stages_cannot_do_is_refused() {
    let golden = Golden::read(FILE);
    let temporary = tempfile::tempdir().unwrap();
    let (request, pipeline) = asked(&golden, "twice", temporary.path());
    let with = |enlarging: Enlarging| Request { enlarging: Some(enlarging), ..request.clone() };
    let cases = [
        (Request { height: Some(40), ..request.clone() }, Field::Height, "multiple of 16"),
        (
            with(Enlarging { adain: 11.0, ..Enlarging::default() }),
            Field::UpsamplerAdain,
            "0 (off) to 10",
        ),
        (
            with(Enlarging { tone_map: -1.0, ..Enlarging::default() }),
            Field::UpsamplerToneMap,
            "to 1",
        ),
        (
            with(Enlarging { levels: Some(vec![0.5, 0.7]), ..Enlarging::default() }),
            Field::UpsamplerLevels,
            "fall",
        ),
        (Request { only_audio: true, ..request.clone() }, Field::Upsampler, "no video is made"),
        (Request { steps: Some(2), ..request.clone() }, Field::Steps, "as many steps"),
        (Request { flow_shift: Some(2.0), ..request.clone() }, Field::FlowShift, "as they are"),
        (
            Request { solving: Solving::Levels(vec![1.5]), ..request.clone() },
            Field::Levels,
            "at most 1",
        ),
    ];
    for (request, wanted, words) in cases {
        match pipeline.check(&request) {
            Err(Error::Request { field, reason }) => {
                assert!(field == wanted && reason.contains(words), "{field}: {reason}");
            }
            other => panic!("{wanted}: {other:?}"),
        }
    }
    let without = open(&golden.config["cases"]["twice"]);
    let refused = without.check(&request).unwrap_err().to_string();
    assert!(refused.contains("upsampler: latents are to be made larger"), "{refused}");
}

/// An upsampler is loaded strictly, and one of other latents is refused.
#[test]
fn an_upsampler_that_does_not_fit_is_refused() {
    let open = |model: &str, upsampler: &Path| {
        let setup = Setup { upsampler: Some(upsampler.to_owned()), ..Setup::new(&Device::flex()) };
        Pipeline::open(&goldens().join(model), &setup).map(drop).unwrap_err().to_string()
    };
    let own = goldens().join(UPSAMPLER);
    let refused = open("wan-tiny", &own);
    assert!(refused.contains("there is none for the latents of Wan"), "{refused}");
    let refused = open("ltx2-tiny", &goldens().join("wan-tiny"));
    assert!(refused.contains("upsampler") && refused.contains("config.json"), "{refused}");
    let temporary = tempfile::tempdir().unwrap();
    let changed = |from: &str, to: &str| {
        let config = std::fs::read_to_string(own.join("config.json")).unwrap();
        assert!(config.contains(from), "{config}");
        std::fs::write(temporary.path().join("config.json"), config.replace(from, to)).unwrap();
        let weights = "diffusion_pytorch_model.safetensors";
        std::fs::copy(own.join(weights), temporary.path().join(weights)).unwrap();
        open("ltx2-tiny", temporary.path())
    };
    let refused = changed("\"in_channels\": 4", "\"in_channels\": 6");
    assert!(refused.contains("`in_channels` of the upsampler is 6"), "{refused}");
    let refused = changed("\"num_blocks_per_stage\": 0", "\"num_blocks_per_stage\": 1");
    assert!(refused.contains("res_blocks.0"), "{refused}");
}
