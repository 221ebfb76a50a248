//! Runs of LTX-2's goldens: what they were asked for, and how far from them ours are.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::tensor::{Device, Tensor};
use data::media::{Frame, Waveform};
use engine::{
    Fit, Frames, Given, Latents, Media, MoreGuidance, Pipeline, PipelineOutput, Request, Setup,
};
use families::CrossLevels;
use safetensors::SafeTensors;
use serde_json::Value;

pub(crate) fn goldens() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../goldens"))
}

/// Everything that a run makes.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) sounds: Vec<Waveform>,
    pub(crate) frames: Vec<Frame>,
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

pub(crate) struct Golden {
    pub(crate) tensors: BTreeMap<String, (Vec<usize>, Vec<f32>)>,
    pub(crate) config: Value,
}

impl Golden {
    /// Reads a file of `goldens/`.
    pub(crate) fn read(name: &str) -> Golden {
        let bytes = std::fs::read(goldens().join(name)).unwrap();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let config = serde_json::from_str(&header.metadata().as_ref().unwrap()["config"]).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let floats = file.iter().filter(|(_, view)| view.dtype() == safetensors::Dtype::F32);
        let tensors = floats.map(|(name, view)| {
            let numbers = view.data().chunks_exact(4);
            let numbers = numbers.map(|four| f32::from_le_bytes(four.try_into().unwrap()));
            (name.to_owned(), (view.shape().to_vec(), numbers.collect()))
        });
        Golden { tensors: tensors.collect(), config }
    }

    pub(crate) fn values(&self, case: &str, name: &str) -> &[f32] {
        &self.tensors[&format!("{case}.{name}")].1
    }

    /// A file with the noise of both tracks, and of both stages where there are two.
    pub(crate) fn noise(&self, case: &str, folder: &Path) -> PathBuf {
        let path = folder.join("noise.safetensors");
        let names = ["noise", "audio_noise", "enlarged_noise", "enlarged_audio_noise"];
        let views = names.into_iter().filter_map(|name| {
            let (shape, values) = self.tensors.get(&format!("{case}.{name}"))?;
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            Some((name, shape.clone(), bytes))
        });
        let views: Vec<_> = views.collect();
        let views = views.iter().map(|(name, shape, bytes)| {
            let float = safetensors::Dtype::F32;
            (*name, safetensors::tensor::TensorView::new(float, shape.clone(), bytes).unwrap())
        });
        std::fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
        path
    }

    pub(crate) fn request(&self, case: &str, noise: PathBuf) -> Request {
        let own = &self.config["cases"][case];
        let number = |key: &str| own[key].as_f64().unwrap();
        let count = |key: &str| own[key].as_u64().unwrap() as usize;
        let side = |key: &str, at: usize| {
            own[key].as_u64().or_else(|| own["size"][at].as_u64()).unwrap() as usize
        };
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
            steps: own["steps"].as_u64().map(|steps| steps as usize),
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
            height: Some(side("height", 0)),
            width: Some(side("width", 1)),
            frames: Some(count("frames")),
            frame_rate: Some(number("frame_rate")),
            max_tokens: Some(count("tokens")),
            noise: Some(noise),
            ..Request::default()
        }
    }
}

pub(crate) fn open(case: &Value) -> Pipeline {
    let folder = goldens().join(case["folder"].as_str().unwrap());
    Pipeline::open(&folder, &Setup::new(&Device::flex())).unwrap()
}

pub(crate) fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

pub(crate) fn clip(output: &PipelineOutput) -> Vec<f32> {
    match output.latents.clone() {
        Some(Latents::Clip(latents)) => values(latents),
        _ => panic!("no clip was made"),
    }
}

/// How far one is from the other at the most, in deviations of the other.
pub(crate) fn distance(ours: &[f32], golden: &[f32]) -> f64 {
    assert_eq!(ours.len(), golden.len());
    let count = golden.len() as f64;
    let mean = golden.iter().map(|value| f64::from(*value)).sum::<f64>() / count;
    let square = |value: &f32| (f64::from(*value) - mean).powi(2);
    let deviation = (golden.iter().map(square).sum::<f64>() / count).sqrt();
    let off = ours.iter().zip(golden).map(|(own, want)| f64::from((own - want).abs()));
    off.fold(0.0, f64::max) / deviation
}
