//! What training tells a network is what inference tells it, and students are sampled as trained.

use std::fs;
use std::path::Path;

use burn::tensor::{Device, FloatDType, Tensor};
use data::media::Frame;
use data::preprocess::Encode;
use data::store::TEXT;
use diffusion::{NoiseLevels, TimestepSampler};
use engine::{
    EncoderSetup, FolderEncoder, Frames, Latents, Pipeline, Request, Setup, Silent, Solving,
};
use folder::ModelFolder;
use nn::Tracks;
use nn::{OneDevice, Schedule};
use recipe::{Model, Student, Which};
use safetensors::tensor::{Dtype, TensorView};
use strategies::{Flexible, StrategyConfig};
use testkit::numbers::{tensor, values};
use train::{Batch, Draws, Field, Noised, STUDENT, Strategy, VideoLatents};

use crate::building::{WAN, build, dataset, folder as golden, no_hub, read, setup, small};

const PROMPT: &str = "a red fox";

/// Takes what is made and keeps nothing.
pub(crate) struct Nothing;

impl Frames for Nothing {
    fn begin(&mut self, _: usize, _: usize) -> engine::Result<()> {
        Ok(())
    }

    fn frame(&mut self, _: usize, _: Frame) -> engine::Result<()> {
        Ok(())
    }
}

fn request([frames, height, width]: [usize; 3], noise: Option<&Path>) -> Request {
    Request {
        prompts: vec![PROMPT.to_owned()],
        height: Some(height),
        width: Some(width),
        frames: (frames > 1).then_some(frames),
        seed: 3,
        noise: noise.map(Path::to_owned),
        ..Request::default()
    }
}

/// Final latents, `[1, C, F, h, w]`.
fn latents(model: &Path, request: &Request) -> Tensor<5> {
    let mut pipeline = Pipeline::open(model, &setup()).unwrap();
    match pipeline.run(request, &mut Silent, &mut Nothing).unwrap().latents {
        Some(Latents::Picture(latents)) => latents.unsqueeze_dim(2),
        Some(Latents::Clip(latents)) => latents,
        None => unreachable!("a video is made"),
    }
}

/// The clean tokens that training sees in noisy latents at a timestep, `[1, N, C]`, and the patch.
fn by_training(path: &Path, noisy: &Tensor<5>, timestep: f64) -> (Tensor<3>, [usize; 3]) {
    let device = Device::flex();
    let model = Model::open(path, &device).unwrap();
    let setup = EncoderSetup { device: device.clone(), dtype: FloatDType::F32 };
    let mut encoder = FolderEncoder::open(path, &setup).unwrap();
    let text = encoder.text(PROMPT).unwrap().remove(TEXT).unwrap();
    let text: Tensor<3> = Tensor::<2>::from_data(text, &device).unsqueeze();
    let mask = Tensor::<2>::ones([1, text.dims()[1]], &device);
    let latents = VideoLatents { values: noisy.clone(), rates: vec![16.0] };
    let context = model.text.context(text, mask).unwrap();
    let fields = [("latents", Field::Video(latents)), ("text", Field::Text(context))];
    let fields = fields.map(|(name, field)| (name.to_owned(), field)).into();
    let config = serde_json::json!({ "name": "text_to_video" });
    let config: StrategyConfig = serde_json::from_value(config).unwrap();
    let video = TimestepSampler::uniform(0.0, 1.0).unwrap();
    let own = Flexible::new(&config, model.description.geometry, Tracks::video(video)).unwrap();
    let scene =
        own.scene(&Batch { samples: 1, fields, beside: None }, &Draws::new(0, 1, 0, 1)).unwrap();
    let level = model.description.process.level(timestep) as f32;
    let levels = scene.each(|_, _| NoiseLevels::per_sample(vec![level]));
    let tokens = scene.each(|_, track| track.clean.clone());
    let seen = Noised::new(&model.description.process, &scene, tokens, &levels);
    let prediction =
        OneDevice::default().predict(&**model.network(), &model.store, &seen.inputs).unwrap();
    (seen.clean(&prediction).video.unwrap(), model.description.geometry.patch)
}

/// LTX-2 says the same thing in two ways, and they differ.
#[test]
fn networks_are_told_the_same_in_training_and_in_inference() {
    let temporary = tempfile::tempdir().unwrap();
    for (name, grid, factor) in [
        ("wan-tiny", [2, 4, 6], 8),
        ("pixart-tiny", [1, 6, 8], 8),
        ("pixart-tiny-conditions", [1, 6, 8], 4),
    ] {
        let [f, h, w] = grid;
        let noisy: Tensor<5> = tensor(name, [1, 4, f, h, w]);
        let bytes: Vec<u8> = values(&noisy).iter().flat_map(|x| x.to_le_bytes()).collect();
        let shape = if f > 1 { vec![1, 4, f, h, w] } else { vec![1, 4, h, w] };
        let file = temporary.path().join(format!("{name}.safetensors"));
        let views = [("noise", TensorView::new(Dtype::F32, shape, &bytes).unwrap())];
        fs::write(&file, safetensors::serialize(views, None).unwrap()).unwrap();
        let path = golden(name);
        let asked = request([4 * f - 3, factor * h, factor * w], Some(&file));
        let asked = Request { solving: Solving::Renoise(vec![400.0]), ..asked };
        let (want, patch) = by_training(Path::new(&path), &noisy, 400.0);
        let got = values(&nn::patchify(latents(Path::new(&path), &asked), patch));
        let want = values(&want);
        assert_eq!(got.len(), want.len(), "{name}");
        let off = got.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        let size = want.iter().fold(1.0_f32, |most, x| most.max(x.abs()));
        assert!(off < 1e-4 * size, "{name}: off by {off:e} of {size}");
    }
}

/// FastVideo's inference has a shift of its own, whatever the student was trained with. An exported
/// folder says how its student is sampled, and the engine does so unless it is told otherwise: at
/// those timesteps, and without guidance.
#[test]
fn an_exported_student_is_sampled_as_it_was_trained() {
    let temporary = tempfile::tempdir().unwrap();
    let [data, run, model] = ["data", "run", "model"].map(|name| temporary.path().join(name));
    dataset(&data, "wan-tiny", [2, 4, 6], WAN, false);
    let mut overrides = small("wan-tiny", &data, &[STUDENT, "teacher", "critic"]);
    overrides.push("method.timesteps=[1000, 500]".to_owned());
    build(&read("dmd2.yaml", &overrides), Some(&run)).unwrap().trainer.run().unwrap();
    let student = Student::open(&run, Which::Live, &Device::flex(), &no_hub()).unwrap();
    student.write_folder(&model).unwrap();
    // Shift 5, warped: 5 s / (1 + 4 s).
    let want = vec![1000.0, 1000.0 * 2.5 / 3.0];
    let found: Option<Vec<f64>> = ModelFolder::open(&model).unwrap().option("timesteps").unwrap();
    let found = found.expect("the folder says how its student is sampled");
    assert!(found.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?}");
    let plain = request([5, 32, 48], None);
    let of = |request: &Request| values(&latents(&model, request));
    let told = Request { solving: Solving::Renoise(found), guidance: Some(1.0), ..plain.clone() };
    assert_eq!(of(&plain), of(&told));
    let guided = Request { guidance: Some(5.0), ..plain.clone() };
    assert_ne!(of(&plain), of(&guided), "guidance is still there for who asks");
    // A number of steps never changes the solver: as many of its own timesteps, or a refusal.
    let asked = Request { steps: Some(2), ..plain.clone() };
    assert_eq!(of(&plain), of(&asked));
    let fewer = Request { steps: Some(1), ..plain.clone() };
    let first = Request { solving: Solving::Renoise(vec![1000.0]), ..told };
    assert_eq!(of(&fewer), of(&first));
    let scheduler = Request { solving: Solving::Scheduler, ..asked };
    assert_ne!(of(&plain), of(&scheduler), "the scheduler is there for who asks");
    let pipeline = Pipeline::open(&model, &Setup::new(&Device::flex())).unwrap();
    let more = Request { steps: Some(50), ..plain };
    let message = pipeline.check(&more).unwrap_err().to_string();
    assert!(message.contains("distilled for 2 step(s)"), "{message}");
}
