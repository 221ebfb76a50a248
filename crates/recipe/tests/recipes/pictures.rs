//! Networks that are shown pictures, and experts: a step of training against `tools/goldens/wan_training.py`,
//! and runs of such folders.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::{Device, FloatDType, Tensor, TensorData};
use data::Clip;
use data::preprocess::Encode;
use data::store::{BESIDE, IMAGE, LATENTS, TEXT};
use diffusion::{NoiseLevels, Process, Scene, TimestepSampler};
use engine::{EncoderSetup, FolderEncoder};
use methods::{EXPERTS, Expert, FinetuneConfig, FinetuneExperts, Turns};
use nn::{OneDevice, Store, Tracks, patchify};
use recipe::{ExpertConfig, Model};
use safetensors::SafeTensors;
use strategies::{Flexible, StrategyConfig};
use testkit::numbers::values;
use train::{
    Batch, Draws, Field, LearningRateSchedule, Learns, Method, ModelInputs, OptimizerConfig, Pass,
    STUDENT, Strategy, Trained, Training, VideoLatents,
};

use crate::building::folder;

const CAPTION: &str = "a golden fox dreams under the bridge";

/// Folder, expert, strategy and level of a case.
type Setting = (&'static str, Option<ExpertConfig>, &'static str, f32);

const CASES: [(&str, Setting); 4] = [
    ("image", ("wan-tiny-i2v", None, "0.0", 0.6)),
    ("high", ("wan-tiny-experts", Some(ExpertConfig::High), "0.0", 0.95)),
    ("low", ("wan-tiny-experts", Some(ExpertConfig::Low), "0.0", 0.3)),
    ("first_frame", ("wan-tiny-ti2v", None, "1.0", 0.7)),
];

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/wan_training.safetensors")
}

/// The clip that all cases see.
fn clip() -> Clip {
    let bytes = fs::read(path()).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let frames = file.tensor("frames").unwrap();
    let [frames_, height, width, _] = frames.shape() else { panic!("frames of pixels") };
    let pixels = frames.data().iter().map(|byte| f32::from(*byte) / 255.0).collect();
    Clip::new([*frames_, *height, *width], pixels).unwrap()
}

struct Golden(Store);

impl Golden {
    fn open() -> Golden {
        // Bytes are no parameters.
        let bytes = fs::read(path()).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let mut store = Store::new("the golden");
        for (name, view) in file.iter().filter(|(name, _)| *name != "frames") {
            let floats = view.data().chunks_exact(4);
            let floats: Vec<f32> =
                floats.map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect();
            let values = Tensor::<1>::from_floats(&floats[..], &Device::flex());
            let shape = view.shape().to_vec();
            store.insert(name.to_owned(), nn::Parameter { values, shape });
        }
        Golden(store)
    }

    fn get<const D: usize>(&self, case: &str, name: &str) -> Option<Tensor<D>> {
        self.0.get(&format!("{case}.{name}")).map(nn::Parameter::tensor)
    }
}

/// `norm(ours - golden) / norm(golden)`.
fn off(ours: &[f32], golden: &[f32]) -> f64 {
    assert_eq!(ours.len(), golden.len());
    let norm = |values: Vec<f64>| values.iter().map(|x| x * x).sum::<f64>().sqrt();
    let difference = ours.iter().zip(golden).map(|(a, b)| f64::from(a - b)).collect();
    norm(difference) / norm(golden.iter().map(|x| f64::from(*x)).collect())
}

/// A matrix seen from both sides, as the goldens hold gradients (`sketch` in `tools/goldens/tiny.py`).
fn sketch(matrix: &[f32], shape: &[usize]) -> Vec<f32> {
    let [rows, .., _] = shape else { return matrix.to_vec() };
    let columns = matrix.len() / rows;
    let sign = |index: usize| if ((index * 2_654_435_761) >> 16) & 1 == 1 { 1.0 } else { -1.0 };
    let at = |row: usize, column: usize| f64::from(matrix[row * columns + column]);
    let across = (0..*rows).map(|row| (0..columns).map(|c| at(row, c) * sign(c)).sum::<f64>());
    let down = (0..columns).map(|column| (0..*rows).map(|r| at(r, column) * sign(r)).sum::<f64>());
    across.chain(down).map(|sum| sum as f32).collect()
}

/// A batch of one sample, as the encoders of a folder make it.
fn batch(case: &str, model: &Model, name: &str, golden: &Golden) -> Batch {
    let device = Device::flex();
    let setup = EncoderSetup { device: device.clone(), dtype: FloatDType::F32 };
    let mut encoder = FolderEncoder::open(Path::new(&folder(name)), &setup).unwrap();
    let mut sample = encoder.shown(&clip()).unwrap();
    sample.insert(LATENTS.to_owned(), encoder.clip(&clip()).unwrap());
    for key in [LATENTS, BESIDE] {
        let ours = sample.get(key).map(|own| own.iter::<f32>().collect::<Vec<_>>());
        let want = golden.get::<5>(case, key).map(|own| values(&own));
        assert_eq!(ours.is_some(), want.is_some(), "{case}: {key}");
        if let (Some(ours), Some(want)) = (ours, want) {
            assert!(off(&ours, &want) < 1e-5, "{case}: {key} is off by {}", off(&ours, &want));
        }
    }
    let tensor = |own: TensorData| Tensor::<4>::from_data(own, &device).unsqueeze::<5>();
    let text = encoder.text(CAPTION).unwrap().remove(TEXT).unwrap();
    let text: Tensor<3> = Tensor::<2>::from_data(text, &device).unsqueeze();
    let mask = Tensor::<2>::ones([1, text.dims()[1]], &device);
    let mut context = model.text.context(text, mask).unwrap();
    if let Some(image) = sample.remove(IMAGE) {
        let image: Tensor<3> = Tensor::<2>::from_data(image, &device).unsqueeze();
        let want = values(&golden.get::<3>(case, IMAGE).unwrap());
        assert!(off(&values(&image), &want) < 1e-5, "{case}: the image tokens");
        context.image = Some(image);
    }
    let values = tensor(sample.remove(LATENTS).unwrap());
    let latents = VideoLatents { values, rates: vec![16.0] };
    let fields = [("latents", Field::Video(latents)), ("text", Field::Text(context))];
    let fields = fields.map(|(name, field)| (name.to_owned(), field)).into();
    Batch { samples: 1, fields, beside: sample.remove(BESIDE).map(tensor) }
}

/// A case ready to be learnt: its network, and what that is given and should answer.
struct Lesson {
    model: Model,
    strategy: Flexible,
    inputs: ModelInputs,
}

impl Lesson {
    fn of(case: &str, (name, expert, probability, level): Setting, golden: &Golden) -> Lesson {
        let model = Model::open_expert(Path::new(&folder(name)), expert, &Device::flex()).unwrap();
        let batch = batch(case, &model, name, golden);
        let config = serde_json::json!({
            "name": "text_to_video",
            "first_frame_probability": probability.parse::<f64>().unwrap(),
        });
        let config: StrategyConfig = serde_json::from_value(config).unwrap();
        let sampler = TimestepSampler::uniform(0.0, 1.0).unwrap();
        let geometry = model.description.geometry;
        let strategy = Flexible::new(&config, geometry, Tracks::video(sampler)).unwrap();
        let scene = strategy.scene(&batch, &Draws::new(0, 1, 0, 1)).unwrap();
        let levels = scene.each(|_, _| NoiseLevels::per_sample(vec![level]));
        let noise = golden.get::<5>(case, "noise").unwrap();
        let noise = Tracks::video(patchify(noise, geometry.patch));
        let inputs = strategy.inputs(&model.description.process, &scene, &levels, &noise);
        Lesson { model, strategy, inputs }
    }

    fn role(&self, name: &'static str) -> Trained {
        let training = Training {
            learns: Learns::All,
            optimizer: OptimizerConfig::default(),
            learning_rate: LearningRateSchedule::constant(1e-4).unwrap(),
            sharding: None,
            layout: Arc::new(OneDevice::default()),
        };
        let network = Arc::clone(self.model.network());
        Trained::new(name, network, self.model.store.clone(), training).unwrap()
    }

    /// Every gradient of a role is PyTorch's.
    #[track_caller]
    fn agrees(&self, case: &str, role: &Trained, golden: &Golden) {
        let mut compared = 0;
        for (parameter, own) in self.model.store.iter() {
            let want = golden.get::<1>(case, &format!("gradients.{parameter}"));
            let want = values(&want.unwrap_or_else(|| panic!("{case}: {parameter}")));
            let found = sketch(&values(&role.gradients()[parameter]), &own.shape);
            // Softmax cannot see the bias of keys: its gradient is rounding only, on both sides.
            if !parameter.ends_with("to_k.bias") && !parameter.ends_with("add_k_proj.bias") {
                let off = off(&found, &want);
                assert!(off < 1e-4, "{case}: {parameter} is off by {off:e}");
                compared += 1;
            }
        }
        assert!(compared > 35, "{case}: {compared} gradients");
    }
}

/// What is encoded, the loss and every gradient of a step are diffusers' and PyTorch's.
#[test]
fn a_step_equals_pytorch() {
    let golden = Golden::open();
    for (case, setting) in CASES {
        let own = Lesson::of(case, setting, &golden);
        let mut role = own.role(STUDENT);
        let pass = Pass { iteration: 1, draws: Draws::new(0, 1, 0, 1), share: 1.0, is_last: true };
        let losses = role.accumulate(&own.inputs.seen.inputs, &pass, &mut |prediction| {
            Ok(own.strategy.loss(prediction, &own.inputs).total())
        });
        let want = values(&golden.get::<1>(case, "loss").unwrap());
        assert!(off(&losses.unwrap(), &want) < 1e-5, "{case}: the loss is not {want:?}");
        own.agrees(case, &role, &golden);
    }
}

/// What a golden says instead of what would be drawn.
struct Fixed {
    strategy: Flexible,
    inputs: ModelInputs,
}

impl Strategy for Fixed {
    fn name(&self) -> &'static str {
        self.strategy.name()
    }

    fn sources(&self) -> Vec<String> {
        self.strategy.sources()
    }

    fn scene(&self, batch: &Batch, draws: &Draws) -> train::Result<Scene> {
        self.strategy.scene(batch, draws)
    }

    fn levels(&self, scene: &Scene, draws: &Draws) -> train::Result<Tracks<NoiseLevels>> {
        self.strategy.levels(scene, draws)
    }

    fn prepare(&self, _: &Process, _: &Batch, _: &Draws) -> train::Result<ModelInputs> {
        Ok(self.inputs.clone())
    }
}

/// Two experts in one run: the one whose turn it is has PyTorch's gradients, the other one none.
#[test]
fn a_turn_of_either_expert_equals_pytorch() {
    let golden = Golden::open();
    let lessons = || [1, 2].map(|at| Lesson::of(CASES[at].0, CASES[at].1, &golden));
    let turns = Turns::new(5, 0.4);
    let experts = lessons().into_iter().zip(EXPERTS).map(|(own, name)| {
        let role = own.role(name);
        Expert { role, strategy: Box::new(Fixed { strategy: own.strategy, inputs: own.inputs }) }
    });
    let Ok(experts) = experts.collect::<Vec<_>>().try_into() else { panic!("two experts") };
    let [high, low] = lessons();
    let process = high.model.description.process.clone();
    let config = FinetuneConfig::default();
    let mut method = FinetuneExperts::new(experts, turns, process, config).unwrap();
    for (at, own) in [high, low].iter().enumerate() {
        let case = CASES[at + 1].0;
        let iteration = (1..100).find(|iteration| turns.at(*iteration) == at).unwrap();
        let draws = Draws::new(5, iteration, 0, 1);
        let pass = Pass { iteration, draws, share: 1.0, is_last: true };
        let batch = batch(case, &own.model, "wan-tiny-experts", &golden);
        let report = method.accumulate(&batch, &pass).unwrap();
        assert_eq!(method.updates(iteration), [EXPERTS[at]]);
        let want = values(&golden.get::<1>(case, "loss").unwrap());
        assert!(off(&report.losses[0].values, &want) < 1e-5, "{case}: the loss is not {want:?}");
        own.agrees(case, method.role(EXPERTS[at]).unwrap(), &golden);
        if at == 0 {
            assert!(method.role(EXPERTS[1]).unwrap().gradients().is_empty(), "it waits");
        }
    }
}
