//! What every model of the table is asked by the engine: the networks, parameters and inputs that the
//! laws are about, generated from the golden folders and from the families that can begin anew.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use burn::tensor::{Device, Tensor, TensorData};
use data::media::Frame;
use engine::{Frames, Given, Media, MoreGuidance, Pipeline, Request, Setup, Silent};
use families::{Condition, Description, FAMILIES, Family};
use folder::ModelFolder;
use nn::{
    Backward, Inputs, Levels, Loss, Modality, Network, OneDevice, Parameters, Prediction, Provider,
    Schedule, Store,
};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::json;
use tempfile::TempDir;
use testkit::numbers::{numbers, parameter};
use testkit::parity::Question;
use testkit::synthetic::{Joint, UShaped, Widths};

/// A question with the name of its model.
pub(crate) struct Asked {
    pub(crate) name: String,
    pub(crate) family: &'static Family,
    pub(crate) question: Question,
}

/// Blocks and heads of the models that layouts are tried with: golden ones have too few to be shared by many.
const DEPTH: usize = 3;
pub(crate) const HEADS: usize = 6;
const HEAD_WIDTH: usize = 12;

/// A model of the table with its parameters, and the engine around it.
pub(crate) struct Model {
    pub(crate) name: String,
    pub(crate) description: Description,
    pub(crate) store: Store,
    pub(crate) pipeline: Pipeline,
    /// Its folder, if it has one; gone when all models are.
    pub(crate) folder: Option<(Arc<TempDir>, PathBuf)>,
}

/// At least one question for each model: bare, and with all that it takes beside a prompt.
pub(crate) fn all() -> Vec<Asked> {
    models().iter().flat_map(questions).collect()
}

/// One model for each golden folder, one for each family that can begin anew, and two synthetic ones: U-shaped, and
/// with joint attention.
pub(crate) fn models() -> Vec<Model> {
    let temporary = Arc::new(tempfile::tempdir().unwrap());
    let setup = Setup::new(&Device::flex());
    let mut all = Vec::new();
    for path in folders() {
        all.push(of_folder(&path, HEAD_WIDTH, &temporary));
    }
    for family in FAMILIES.iter().filter(|family| family.scratch.is_some()) {
        all.push(anew(family.name, described(family, Some(250)), &setup));
        // Kinds of network that no family is, behind the codec and the words of this one.
        let widths =
            Widths { channels: CHANNELS, text: TEXT_WIDTH, heads: HEADS, head: SMALL_HEAD_WIDTH };
        let kinds: [(&str, Arc<dyn Network>); 2] =
            [("u-shaped", Arc::new(UShaped(widths))), ("joint", Arc::new(Joint(widths)))];
        for (name, network) in kinds {
            let mut description = described(family, None);
            description.transformers[0].network = network;
            all.push(anew(name, description, &setup));
        }
    }
    all
}

/// A model of a golden folder whose heads are so wide, with weights of its own.
pub(crate) fn of_folder(golden: &Path, head_width: usize, temporary: &Arc<TempDir>) -> Model {
    let path = with_heads(golden, temporary.path(), head_width);
    let description = families::describe(&ModelFolder::open(&path).unwrap()).unwrap();
    let network = &description.transformers[0].network;
    let store = Store::declared(|weights| network.declare(weights), parameter).unwrap();
    for transformer in &description.transformers {
        write(&path.join(transformer.component), &store);
    }
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let mut pipeline = Pipeline::open(&path, &Setup::new(&Device::flex())).unwrap();
    pipeline.open_all().unwrap();
    Model { name, description, store, pipeline, folder: Some((Arc::clone(temporary), path)) }
}

/// As few channels as there can be, so that tests are quick.
const CHANNELS: usize = 384;
const TEXT_WIDTH: usize = 64;
const SMALL_HEAD_WIDTH: usize = 6;

fn described(family: &'static Family, audio_channels: Option<usize>) -> Description {
    let scratch = family.scratch.as_ref().unwrap();
    let sizes = json!({
        "video_channels": CHANNELS, "audio_channels": audio_channels, "text_width": TEXT_WIDTH,
        "heads": HEADS, "head_width": SMALL_HEAD_WIDTH, "depth": DEPTH,
    });
    (scratch.make)(family, &sizes).unwrap().description
}

fn anew(name: &str, description: Description, setup: &Setup) -> Model {
    let network = &description.transformers[0].network;
    let store = Store::declared(|weights| network.declare(weights), parameter).unwrap();
    let pipeline = Pipeline::of(description.clone(), store.clone(), setup).unwrap();
    Model { name: name.to_owned(), description, store, pipeline, folder: None }
}

/// A copy of a golden folder whose transformers have more heads, without their weights.
fn with_heads(golden: &Path, temporary: &Path, head_width: usize) -> PathBuf {
    let copy = temporary.join(golden.file_name().unwrap());
    copy_folder(golden, &copy);
    for transformer in ["transformer", "transformer_2"] {
        let config = copy.join(transformer).join("config.json");
        let Ok(text) = std::fs::read_to_string(&config) else { continue };
        let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
        value["num_layers"] = json!(DEPTH);
        // Where captions come in the width of the streams, that width is the folder's: it has as many heads.
        let fixed = value.get("use_prompt_embeddings") == Some(&json!(false));
        let is_number = |value: &serde_json::Value, key: &str| {
            value.get(key).is_some_and(serde_json::Value::is_number)
        };
        for stream in ["", "audio_"].into_iter().filter(|_| !fixed) {
            let key = |name: &str| format!("{stream}{name}");
            if !is_number(&value, &key("num_attention_heads")) {
                continue;
            }
            value[key("num_attention_heads")] = json!(HEADS);
            value[key("attention_head_dim")] = json!(head_width);
            for width in ["cross_attention_dim", "added_kv_proj_dim"].map(key) {
                if is_number(&value, &width) {
                    value[width] = json!(HEADS * head_width);
                }
            }
        }
        std::fs::write(config, value.to_string()).unwrap();
    }
    copy
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy_folder(&path, &target),
            false => _ = std::fs::copy(&path, &target).unwrap(),
        }
    }
}

/// Writes the weights of a transformer.
fn write(folder: &Path, store: &Store) {
    let data: Vec<_> = store
        .iter()
        .map(|(name, own)| (name.to_owned(), own.shape.clone(), own.values.clone().into_data()))
        .collect();
    let views = data.iter().map(|(name, shape, data)| {
        (name, TensorView::new(Dtype::F32, shape.clone(), data.bytes()).unwrap())
    });
    let file = folder.join("diffusion_pytorch_model.safetensors");
    std::fs::write(file, safetensors::serialize(views, None).unwrap()).unwrap();
}

/// Every golden folder of a pipeline.
pub(crate) fn folders() -> Vec<PathBuf> {
    let goldens = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../goldens"));
    let mut all: Vec<PathBuf> =
        std::fs::read_dir(goldens).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.retain(|path| path.join("model_index.json").is_file());
    all.sort();
    all
}

fn questions(model: &Model) -> Vec<Asked> {
    let Model { name, description, store, pipeline, .. } = model;
    let asked = requests(description).into_iter().flat_map(|(what, request)| {
        let own = captured(pipeline, &request).into_iter().enumerate();
        own.map(move |(branch, inputs)| (format!("{name}, given {what}, branch {branch}"), inputs))
    });
    asked
        .map(|(name, inputs)| {
            let network = Arc::clone(&description.transformers[0].network);
            let question = Question { network, store: store.clone(), inputs: varied(inputs) };
            Asked { name, family: description.family, question }
        })
        .collect()
}

/// What a model is asked for: two samples, bare where nothing must be given, and with all that it takes.
pub(crate) fn requests(model: &Description) -> Vec<(&'static str, Request)> {
    let [frames, height, width] = size(model);
    let request = |given: Given| Request {
        prompts: vec!["a red circle".to_owned(), "a blue square moves".to_owned()],
        given: vec![given],
        frames: Some(frames),
        height: Some(height),
        width: Some(width),
        // The ladder of some schedules has no single step.
        steps: Some(2),
        more: by_the_prompt_alone(model),
        max_tokens: model.text_rules(0).map(|_| 32),
        ..Request::default()
    };
    let bare = model.conditions.required.is_none();
    let bare = bare.then(|| ("nothing", request(Given::default())));
    [("all", request(everything(model)))].into_iter().chain(bare).collect()
}

/// Guidance by the prompt alone: what compares whole clips is not for stages, and the rest is asked for where it is tried.
fn by_the_prompt_alone(model: &Description) -> MoreGuidance {
    let (none, one) = match model.defaults.terms {
        Some(_) => (Some(0.0), Some(1.0)),
        None => (None, None),
    };
    MoreGuidance {
        stg: none,
        audio_stg: none,
        modality: one,
        audio_modality: one,
        rescale: none,
        audio_rescale: none,
        ..MoreGuidance::default()
    }
}

/// Frames, height and width of few tokens, an odd number of them.
fn size(model: &Description) -> [usize; 3] {
    let geometry = &model.geometry;
    let side = |axis: usize, tokens: usize| geometry.factors[axis] * geometry.patch[axis] * tokens;
    // The sound of models with guidance of its own is cut into eight parts, so it lasts longer.
    let latent_frames = if model.defaults.terms.is_some() { 5 } else { 3 };
    let frames = geometry.frames(latent_frames * geometry.patch[0]);
    let frames = if geometry.latent_frames(frames).is_ok() { frames } else { 1 };
    [frames, side(1, 3), side(2, 3)]
}

/// All that the model takes beside a prompt, as far as it can be given together.
fn everything(model: &Description) -> Given {
    let takes = |condition| model.conditions.enters(condition).is_some();
    let [frames, height, width] = size(model);
    let media = |name: &str, count: usize| {
        let frame = |at: usize| {
            let values = numbers(&format!("{name} {at}"), height * width * 3);
            Frame::new(height, width, values.iter().map(|it| (it + 1.0) / 2.0).collect()).unwrap()
        };
        Media::Frames(Arc::new((0..count).map(frame).collect()))
    };
    let picture = |condition, name: &str| takes(condition).then(|| media(name, 1));
    Given {
        image: picture(Condition::Image, "first"),
        last_image: picture(Condition::LastImage, "last"),
        references: match takes(Condition::Reference) {
            true => vec![(media("reference", frames), None)],
            false => Vec::new(),
        },
        ..Given::default()
    }
}

/// What the network is asked at the first step, branch by branch of its guidance.
fn captured(pipeline: &Pipeline, request: &Request) -> Vec<Inputs> {
    let ear = Arc::new(Ear::default());
    let mut pipeline = pipeline.clone().run_by(ear.clone());
    pipeline.run(request, &mut Silent, &mut Nobody).unwrap();
    let heard = std::mem::take(&mut *ear.heard.lock().unwrap());
    heard.into_iter().take(2).collect()
}

/// The same inputs with two noise levels per sample, and text whose last token is padding in every second
/// sample: what the engine asks is simpler than what a network must be able to answer.
fn varied(inputs: Inputs) -> Inputs {
    inputs.map(|own| {
        let device = own.tokens.device();
        let [samples, tokens, _] = own.tokens.dims();
        let [_, length, _] = own.context.tokens.dims();
        let distinct: Vec<f32> =
            (0..samples).flat_map(|at| [900.0 - 100.0 * at as f32, 40.0 + at as f32]).collect();
        let index: Vec<i64> = (0..samples * tokens).map(|at| (at % 3 == 0).into()).collect();
        let visible: Vec<f32> = (0..samples * length)
            .map(|at| f32::from(u8::from(at / length % 2 == 0 || at % length + 1 < length)))
            .collect();
        let mut context = own.context.clone();
        context.mask =
            Some(Tensor::from_data(TensorData::new(visible, [samples, length]), &device));
        Modality {
            levels: Levels {
                distinct: Tensor::from_data(TensorData::new(distinct, [samples, 2]), &device),
                index: Some(Tensor::from_data(TensorData::new(index, [samples, tokens]), &device)),
            },
            context,
            ..own
        }
    })
}

/// A schedule that listens.
#[derive(Default)]
struct Ear {
    heard: Mutex<Vec<Inputs>>,
}

impl Schedule for Ear {
    fn predict(
        &self,
        network: &dyn Network,
        provider: &dyn Provider,
        inputs: &Inputs,
    ) -> nn::Result<Prediction> {
        self.heard.lock().unwrap().push(inputs.clone());
        OneDevice::default().predict(network, provider, inputs)
    }

    fn backward(
        &self,
        _: &dyn Network,
        _: Parameters<'_>,
        _: &Inputs,
        _: Loss<'_>,
    ) -> nn::Result<Backward> {
        unreachable!("the engine does not learn")
    }
}

/// Takes what is made and keeps nothing.
pub(crate) struct Nobody;

impl Frames for Nobody {
    fn begin(&mut self, _: usize, _: usize) -> engine::Result<()> {
        Ok(())
    }

    fn frame(&mut self, _: usize, _: Frame) -> engine::Result<()> {
        Ok(())
    }
}
