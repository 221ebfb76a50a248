//! Video and its sound in two streams that meet: a step of training against `tools/goldens/ltx2_training.py`, and runs
//! of such folders.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::folder::ModelFolder;
use burn::tensor::{Device, FloatDType, Tensor};
use data::preprocess::Encode;
use data::store::TEXT;
use diffusion::{NoiseLevels, TimestepSampler};
use engine::{EncoderSetup, FolderEncoder, Latents, Pipeline, Request, Setup, Silent, Solving};
use families::CrossLevels;
use nn::{OneDevice, Schedule, Store, Tracks, Weights};
use recipe::Model;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use strategies::{Flexible, StrategyConfig};
use testkit::numbers::{numbers, tensor, values};
use train::{
    Batch, Draws, Field, LearningRateSchedule, Learns, LoraConfig, ModelInputs, Noised,
    OptimizerConfig, Pass, STUDENT, Strategy, Trained, Training, VideoLatents,
};

use crate::building::folder;
use crate::sampling::Nothing;

const CAPTION: &str = "a golden fox dreams under the bridge";

/// Frames a second.
const RATE: f64 = 12.0;

/// Sums of each gradient that the golden holds.
const PROJECTIONS: usize = 3;

/// Case, folder, rule where the streams meet, and the levels of the video and of the sound.
const CASES: [(&str, &str, CrossLevels, [f32; 2]); 7] = [
    ("both", "ltx2-tiny", CrossLevels::Original, [0.7, 0.35]),
    ("other", "ltx2-tiny", CrossLevels::Other, [0.7, 0.35]),
    ("own", "ltx23-tiny", CrossLevels::Own, [0.6, 0.9]),
    ("later", "ltx23-tiny", CrossLevels::Original, [0.6, 0.9]),
    ("sound_of_video", "ltx2-tiny", CrossLevels::Original, [0.0, 0.8]),
    ("video_of_sound", "ltx23-tiny", CrossLevels::Original, [0.5, 0.0]),
    ("sound", "ltx23-tiny", CrossLevels::Original, [0.0, 0.4]),
];

/// The strategy of a case.
fn strategy(case: &str) -> Value {
    let modality =
        |generated: bool, source: &str| json!({ "generated": generated, "source": source });
    let (video, audio) = ("latents", "audio_latents");
    match case {
        "sound_of_video" => {
            json!({ "name": "flexible", "video": modality(false, video), "audio": modality(true, audio) })
        }
        "video_of_sound" => {
            json!({ "name": "flexible", "video": modality(true, video), "audio": modality(false, audio) })
        }
        "sound" => json!({ "name": "text_to_audio" }),
        "plain" => json!({ "name": "text_to_video", "audio": audio }),
        _ => json!({ "name": "text_to_video", "first_frame_probability": 1.0, "audio": audio }),
    }
}

fn golden() -> Store {
    let path: PathBuf =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/ltx2_training.safetensors");
    let bytes = fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut store = Store::new("the golden");
    for (name, view) in file.iter() {
        let floats = view.data().chunks_exact(4);
        let floats: Vec<f32> =
            floats.map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect();
        let values = Tensor::<1>::from_floats(&floats[..], &Device::flex());
        store.insert(name.to_owned(), nn::Parameter { values, shape: view.shape().to_vec() });
    }
    store
}

fn off(ours: &[f64], golden: &[f64]) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    norm(&mut ours.iter().zip(golden).map(|(a, b)| a - b)) / norm(&mut golden.iter().copied())
}

/// Weighed sums of a gradient, as `tools/goldens/tiny.py` has them.
fn projections(gradient: &[f32]) -> Vec<f64> {
    let weighed = |at: usize| {
        let weights = numbers(&format!("projection {at}"), gradient.len());
        gradient.iter().zip(weights).map(|(own, weight)| f64::from(*own) * f64::from(weight)).sum()
    };
    (0..PROJECTIONS).map(weighed).collect()
}

/// A batch of one sample, with the caption as the encoders of a folder make it.
fn batch(model: &Model, path: &Path, (video, audio): (Tensor<5>, Tensor<4>), rate: f64) -> Batch {
    let device = Device::flex();
    let setup = EncoderSetup { device: device.clone(), dtype: FloatDType::F32 };
    let mut encoder = FolderEncoder::open(path, &setup).unwrap();
    let text = Encode::text(&mut encoder, CAPTION).unwrap().remove(TEXT).unwrap();
    let text: Tensor<3> = Tensor::<2>::from_data(text, &device).unsqueeze();
    let mask = Tensor::<2>::ones([1, text.dims()[1]], &device);
    let context = model.text.context(text, mask).unwrap();
    let fields = [
        ("latents", Field::Video(VideoLatents { values: video, rates: vec![rate] })),
        ("audio_latents", Field::Audio(audio)),
        ("text", Field::Text(context)),
    ];
    let fields = fields.map(|(name, field)| (name.to_owned(), field)).into();
    Batch { samples: 1, fields, beside: None }
}

/// A strategy for a model, both of whose tracks draw their levels evenly.
fn by(config: &Value, model: &Model) -> Flexible {
    let config: StrategyConfig = serde_json::from_value(config.clone()).unwrap();
    let sampler = TimestepSampler::uniform(0.0, 1.0).unwrap();
    let samplers = Tracks { video: Some(sampler), audio: Some(sampler) };
    Flexible::new(&config, model.description.geometry, samplers).unwrap()
}

/// A case ready to be learnt: its network, and what that is given and should answer.
struct Lesson {
    model: Model,
    strategy: Flexible,
    inputs: ModelInputs,
}

impl Lesson {
    fn of(
        (case, name, rule, levels): (&str, &str, CrossLevels, [f32; 2]),
        golden: &Store,
    ) -> Lesson {
        let path = folder(name);
        let model = Model::open(Path::new(&path), &Device::flex()).unwrap();
        let model = Model { description: model.description.clone().meeting_by(rule), ..model };
        let get = |key: &str| golden.get(&format!("{case}.{key}")).unwrap();
        let latents = (get("latents").tensor(), get("audio_latents").tensor());
        let batch = batch(&model, Path::new(&path), latents, RATE);
        let (geometry, strategy) = (model.description.geometry, by(&strategy(case), &model));
        let scene = strategy.scene(&batch, &Draws::new(0, 1, 0, 1)).unwrap();
        let levels = scene
            .each(|track, _| NoiseLevels::per_sample(vec![levels[usize::from(track == "audio")]]));
        let noise = Tracks {
            video: Some(nn::patchify(get("noise").tensor::<5>(), geometry.patch)),
            audio: Some(geometry.audio(&get("audio_noise").tensor()).values),
        };
        let inputs = strategy.inputs(&model.description.process, &scene, &levels, &noise);
        Lesson { model, strategy, inputs }
    }

    /// The role after one pass, and its loss.
    fn learnt(&self, learns: Learns) -> (Trained, f64) {
        let training = Training {
            learns,
            optimizer: OptimizerConfig::default(),
            learning_rate: LearningRateSchedule::constant(1e-4).unwrap(),
            sharding: None,
            layout: Arc::new(OneDevice::default()),
        };
        let network = Arc::clone(self.model.network());
        let mut role = Trained::new(STUDENT, network, self.model.store.clone(), training).unwrap();
        let pass = Pass { iteration: 1, draws: Draws::new(0, 1, 0, 1), share: 1.0, is_last: true };
        let loss = role.accumulate(&self.inputs.seen.inputs, &pass, &mut |prediction| {
            Ok(self.strategy.loss(prediction, &self.inputs).total())
        });
        (role, f64::from(loss.unwrap()[0]))
    }
}

/// The loss and every gradient of a step are PyTorch's, by every rule for where the streams meet, with both generated,
/// one given and one alone; and nothing but the transformer has a gradient, the connectors of its captions least of all.
#[test]
fn a_step_equals_pytorch() {
    let golden = golden();
    for setting in CASES {
        let (case, ..) = setting;
        let own = Lesson::of(setting, &golden);
        let (role, loss) = own.learnt(Learns::All);
        let want = values(&golden.get(&format!("{case}.loss")).unwrap().tensor::<1>())[0];
        assert!(off(&[loss], &[f64::from(want)]) < 1e-5, "{case}: the loss is {loss}, not {want}");
        let rows = values(&golden.get(&format!("{case}.gradients")).unwrap().tensor::<2>());
        let mut names: Vec<&str> = own.model.store.iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        assert_eq!(rows.len(), names.len() * PROJECTIONS, "{case}");
        let known = |name: &String| names.binary_search(&name.as_str()).is_ok();
        assert!(role.gradients().keys().all(known), "{case}: only the transformer learns");
        let mut learnt = 0;
        for (name, want) in names.iter().zip(rows.chunks(PROJECTIONS)) {
            let want: Vec<f64> = want.iter().map(|own| f64::from(*own)).collect();
            let found = role.gradients().get(*name).map(|own| projections(&values(own)));
            let found = found.unwrap_or_else(|| vec![0.0; PROJECTIONS]);
            if want.iter().all(|own| *own == 0.0) {
                assert!(found.iter().all(|own| *own == 0.0), "{case}: {name} has a gradient");
                continue;
            }
            // Softmax cannot see the bias of keys that are not normed; those here are.
            let off = off(&found, &want);
            assert!(off < 1e-4, "{case}: {name} is off by {off:e}");
            learnt += 1;
        }
        assert!(learnt > 40, "{case}: {learnt} gradients");
    }
}

/// The rules differ where a part of the clip is given, so the goldens tell them apart.
#[test]
fn the_rules_are_told_apart() {
    let golden = golden();
    let loss =
        |rule| Lesson::of(("both", "ltx2-tiny", rule, [0.7, 0.35]), &golden).learnt(Learns::All).1;
    let all = [CrossLevels::Original, CrossLevels::Own, CrossLevels::Other].map(loss);
    assert!((all[0] - all[1]).abs() > 1e-3 && (all[1] - all[2]).abs() > 1e-3, "{all:?}");
    assert!((all[0] - all[2]).abs() > 1e-3, "{all:?}");
}

/// A LoRA beside frozen streams: its adapters alone have gradients, those of the sound and of where it meets the video
/// among them.
#[test]
fn adapters_of_both_streams_learn_and_nothing_else() {
    let lesson = Lesson::of(CASES[0], &golden());
    let targets = ["to_q", "audio_attn1.to_v", "audio_ff.net.2"].map(str::to_owned).to_vec();
    let config = LoraConfig { rank: 2, alpha: None, from: None, dropout: 0.0, targets };
    let (role, _) = lesson.learnt(Learns::Adapters { config, seed: 1 });
    let names: Vec<&String> = role.gradients().keys().collect();
    assert!(names.iter().all(|own| own.contains("lora_")), "{names:?}");
    for part in ["audio_attn1.to_v", "audio_ff.net.2", "audio_to_video_attn.to_q", "0.attn1.to_q"] {
        assert!(names.iter().any(|own| own.contains(part)), "{part}: {names:?}");
    }
    let zero = |own: &Tensor<1>| values(own).iter().all(|value| *value == 0.0);
    let moved = role.gradients().iter().filter(|(name, own)| name.contains("lora_B") && !zero(own));
    assert_eq!(moved.count() * 2, names.len(), "every adapter learns");
}

/// The network is told the same of a video and its sound in training and in inference: text, places, clocks and levels.
#[test]
fn both_tracks_are_told_the_same_in_training_and_in_inference() {
    const RATE: f64 = 10.0;
    let (temporary, device) = (tempfile::tempdir().unwrap(), Device::flex());
    for name in ["ltx2-tiny", "ltx23-tiny"] {
        let path = folder(name);
        let model = Model::open(Path::new(&path), &device).unwrap();
        let geometry = model.description.geometry;
        // Half a second is twelve latents and a half, of which the even number is made.
        let size = [5, 2 * geometry.factors[1], 2 * geometry.factors[2]];
        let [frames, rows, columns] = geometry.latents(size).unwrap();
        let video: Tensor<5> = tensor("video", [1, 4, frames, rows, columns]);
        let audio: Tensor<4> = tensor("audio", [1, 2, 12, 4]);
        let bytes = [values(&video), values(&audio)]
            .map(|own| own.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
        let view =
            |shape: Vec<usize>, at: usize| TensorView::new(Dtype::F32, shape, &bytes[at]).unwrap();
        let views = [
            ("noise", view(video.dims().to_vec(), 0)),
            ("audio_noise", view(audio.dims().to_vec(), 1)),
        ];
        let file = temporary.path().join(format!("{name}.safetensors"));
        fs::write(&file, safetensors::serialize(views, None).unwrap()).unwrap();
        let request = Request {
            prompts: vec![CAPTION.to_owned()],
            frames: Some(size[0]),
            height: Some(size[1]),
            width: Some(size[2]),
            frame_rate: Some(RATE),
            solving: Solving::Renoise(vec![400.0]),
            noise: Some(file),
            ..Request::default()
        };
        let mut pipeline = Pipeline::open(Path::new(&path), &Setup::new(&device)).unwrap();
        let made = pipeline.run(&request, &mut Silent, &mut Nothing).unwrap();
        let Some(Latents::Clip(seen)) = made.latents else { panic!("a clip is made") };
        let heard = made.audio_latents.unwrap();

        let batch = batch(&model, Path::new(&path), (video, audio), RATE);
        let strategy = by(&strategy("plain"), &model);
        let scene = strategy.scene(&batch, &Draws::new(0, 1, 0, 1)).unwrap();
        let level = model.description.process.level(400.0) as f32;
        let levels = scene.each(|_, _| NoiseLevels::per_sample(vec![level]));
        let tokens = scene.each(|_, track| track.clean.clone());
        let told = Noised::new(&model.description.process, &scene, tokens, &levels);
        let one = OneDevice::default();
        let said = one.predict(&**model.network(), &model.store, &told.inputs).unwrap();
        let clean = told.clean(&said).zip(scene.tracks());
        let clean = clean.map(|(tokens, track)| track.latents(tokens));
        let opened = ModelFolder::open(Path::new(&path)).unwrap();
        let store = |part: &str| {
            Store::open(&opened.weights(part).unwrap(), nn::Precision::Stored, &device).unwrap()
        };
        let (vae, codec) = (store("vae"), store("audio_vae"));
        let want = model.description.vae.released(&Weights::new(&vae), clean.video.unwrap());
        let close = |what: &str, got: Vec<f32>, want: Vec<f32>| {
            let [got, want] =
                [got, want].map(|own| own.into_iter().map(f64::from).collect::<Vec<_>>());
            let off = off(&got, &want);
            assert!(off < 1e-5, "{name}: the {what} is off by {off:e}");
        };
        close("video", values(&seen), values(&want.unwrap()));
        let sound = model.description.sound.as_ref().unwrap();
        let own: Tensor<4> = clean.audio.unwrap().squeeze_dim(4);
        let want = sound.codec.released(&Weights::new(&codec), own).unwrap();
        close("sound", values(&heard), values(&want));
    }
}
