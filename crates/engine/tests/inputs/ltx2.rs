//! Whole runs of LTX-2, video with its sound, equal diffusers' from the same noise.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::tensor::{Device, Tensor};
use data::media::{Frame, Waveform};
use engine::{
    Error, Field, Fit, Frames, Given, Latents, Media, MoreGuidance, Pipeline, PipelineOutput,
    Request, Setup, Silent,
};
use families::CrossLevels;
use safetensors::SafeTensors;
use serde_json::Value;

fn goldens() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../goldens"))
}

/// Everything that a run makes.
#[derive(Default)]
struct Kept {
    sounds: Vec<Waveform>,
    frames: Vec<Frame>,
}

impl Frames for Kept {
    fn begin(&mut self, _: usize, _: usize) -> engine::Result<()> {
        Ok(())
    }

    fn sound(&mut self, _: usize, sound: Waveform) -> engine::Result<()> {
        self.sounds.push(sound);
        Ok(())
    }

    fn frame(&mut self, _: usize, frame: Frame) -> engine::Result<()> {
        self.frames.push(frame);
        Ok(())
    }
}

struct Golden {
    tensors: BTreeMap<String, (Vec<usize>, Vec<f32>)>,
    config: Value,
}

impl Golden {
    fn read() -> Golden {
        let bytes = std::fs::read(goldens().join("ltx2_pipeline.safetensors")).unwrap();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let config = serde_json::from_str(&header.metadata().as_ref().unwrap()["config"]).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let tensors = file.iter().map(|(name, view)| {
            let numbers = view.data().chunks_exact(4);
            let numbers = numbers.map(|four| f32::from_le_bytes(four.try_into().unwrap()));
            (name.to_owned(), (view.shape().to_vec(), numbers.collect()))
        });
        Golden { tensors: tensors.collect(), config }
    }

    fn values(&self, case: &str, name: &str) -> &[f32] {
        &self.tensors[&format!("{case}.{name}")].1
    }

    /// A file with the noise of both tracks.
    fn noise(&self, case: &str, folder: &Path) -> PathBuf {
        let path = folder.join("noise.safetensors");
        let views = ["noise", "audio_noise"].map(|name| {
            let (shape, values) = &self.tensors[&format!("{case}.{name}")];
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            (name, shape.clone(), bytes)
        });
        let views = views.iter().map(|(name, shape, bytes)| {
            let float = safetensors::Dtype::F32;
            (*name, safetensors::tensor::TensorView::new(float, shape.clone(), bytes).unwrap())
        });
        std::fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
        path
    }

    fn request(&self, case: &str, noise: PathBuf) -> Request {
        let own = &self.config["cases"][case];
        let number = |key: &str| own[key].as_f64().unwrap();
        let count = |key: &str| own[key].as_u64().unwrap() as usize;
        let text = |key: &str| own[key].as_str().unwrap().to_owned();
        let guided = number("guidance") > 1.0
            || number("audio_guidance") > 1.0
            || number("stg") > 0.0
            || number("modality_guidance") > 1.0;
        let blocks = own["stg_blocks"].as_array().unwrap();
        let blocks = blocks.iter().map(|block| block.as_u64().unwrap() as usize).collect();
        let image = own["image"].as_str().map(|image| Media::File(goldens().join(image)));
        // diffusers stretches.
        let fit = image.is_some().then_some(Fit::Stretch);
        Request {
            prompts: vec![text("prompt")],
            negative: text("negative"),
            given: vec![Given { image, ..Given::default() }],
            fit,
            steps: Some(count("steps")),
            guidance: Some(number("guidance")),
            more: MoreGuidance {
                audio_scale: Some(number("audio_guidance")),
                stg: Some(number("stg")),
                audio_stg: Some(number("audio_stg")),
                stg_blocks: (number("stg") > 0.0).then_some(blocks),
                modality: Some(number("modality_guidance")),
                audio_modality: Some(number("audio_modality_guidance")),
                rescale: guided.then(|| number("guidance_rescale")),
                audio_rescale: guided.then(|| number("audio_guidance_rescale")),
                cross_levels: Some(match own["cross"].as_bool() {
                    Some(false) => CrossLevels::Own,
                    _ => CrossLevels::Other,
                }),
            },
            height: Some(count("height")),
            width: Some(count("width")),
            frames: Some(count("frames")),
            frame_rate: Some(number("frame_rate")),
            max_tokens: Some(count("tokens")),
            noise: Some(noise),
            ..Request::default()
        }
    }
}

fn open(case: &Value) -> Pipeline {
    let folder = goldens().join(case["folder"].as_str().unwrap());
    Pipeline::open(&folder, &Setup::new(&Device::flex())).unwrap()
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

fn clip(output: &PipelineOutput) -> Vec<f32> {
    match output.latents.clone() {
        Some(Latents::Clip(latents)) => values(latents),
        _ => panic!("no clip was made"),
    }
}

/// How far one is from the other at the most, in deviations of the other.
fn distance(ours: &[f32], golden: &[f32]) -> f64 {
    assert_eq!(ours.len(), golden.len());
    let count = golden.len() as f64;
    let mean = golden.iter().map(|value| f64::from(*value)).sum::<f64>() / count;
    let square = |value: &f32| (f64::from(*value) - mean).powi(2);
    let deviation = (golden.iter().map(square).sum::<f64>() / count).sqrt();
    let off = ours.iter().zip(golden).map(|(own, want)| f64::from((own - want).abs()));
    off.fold(0.0, f64::max) / deviation
}

#[test]
fn latents_frames_and_sound_equal_diffusers() {
    let golden = Golden::read();
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
    let golden = Golden::read();
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
    let golden = Golden::read();
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
