//! Every recipe of the tree is built and takes a step, and what cannot be built is refused.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use burn::tensor::{Device, TensorData};
use data::preprocess::Encode;
use data::store::{Bucket, Fingerprint, LATENTS, Origin, REF_LATENTS, Sample, TEXT, Writer};
use diffusion::Draw;
use engine::{EncoderSetup, FolderEncoder};
use folder::Hub;
use recipe::{Dialect, Environment, FREE, Model, Recipe, Run, Student, Which};
use train::{Ranks, STUDENT};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn folder(name: &str) -> String {
    root().join("goldens").join(name).display().to_string()
}

/// Neither a network nor a cache: what a test reads is in the tree.
pub(crate) fn no_hub() -> Hub {
    Hub::offline("no-cache")
}

/// The encoders of a folder.
pub(crate) fn encoders(model: &str) -> Fingerprint {
    let setup = EncoderSetup { device: Device::flex(), dtype: burn::tensor::FloatDType::F32 };
    FolderEncoder::open(Path::new(&folder(model)), &setup).unwrap().fingerprint()
}

/// Random samples for a family: size of latents, width of the text.
pub(crate) fn dataset(
    path: &Path,
    model: &str,
    [f, h, w]: [usize; 3],
    width: usize,
    reference: bool,
) {
    let channels = 4;
    let mut writer = Writer::open(path, &encoders(model), 1 << 20).unwrap();
    let null = TensorData::new(vec![0.5f32; width], [1, width]);
    writer.put_null_text(&BTreeMap::from([(TEXT.to_owned(), null)])).unwrap();
    for index in 0..5usize {
        let draw = Draw::new(7).sample(index as u64);
        let latents = |name: &str| {
            let values = draw.stream(name).normal(0..channels * f * h * w);
            TensorData::new(values, [channels, f, h, w])
        };
        let words = 2 + index % 3;
        let text = TensorData::new(draw.stream("text").normal(0..words * width), [words, width]);
        let mut tensors =
            BTreeMap::from([(LATENTS.to_owned(), latents("clip")), (TEXT.to_owned(), text)]);
        if reference {
            tensors.insert(REF_LATENTS.to_owned(), latents("reference"));
        }
        let bucket = Bucket { frames: 4 * f - 3, height: 8 * h, width: 8 * w };
        let (id, caption) = (format!("clip {index}"), "a caption".to_owned());
        let origin = Origin {
            id,
            source_hash: index.to_string(),
            caption,
            fps: 16.0,
            bucket,
            reference: None,
        };
        writer.push(Sample { origin, tensors }).unwrap();
    }
    writer.flush().unwrap();
}

pub(crate) fn read(name: &str, overrides: &[String]) -> Recipe {
    try_read(name, overrides).unwrap()
}

pub(crate) fn try_read(name: &str, overrides: &[String]) -> recipe::Result<Recipe> {
    Recipe::read(&root().join("recipes").join(name), overrides)
}

pub(crate) fn build(recipe: &Recipe, run: Option<&Path>) -> recipe::Result<Run> {
    build_on(recipe, run, Ranks::alone())
}

pub(crate) fn build_on(recipe: &Recipe, run: Option<&Path>, ranks: Ranks) -> recipe::Result<Run> {
    let (device, hub, callbacks) = (Device::flex(), no_hub(), Vec::new());
    let negative = recipe.negative(&device, &hub)?;
    let record = Box::new(|_: &recipe::Look<'_>| Ok(()));
    let watched = Box::new(engine::Silent);
    let hub = &hub;
    recipe.build(Environment {
        folder: run,
        device,
        ranks,
        hub,
        negative,
        callbacks,
        record,
        watched,
    })
}

/// Overrides that make a recipe small: its models are tiny folders, its data random.
pub(crate) fn small(model: &str, data: &Path, roles: &[&str]) -> Vec<String> {
    let mut all = vec![
        format!("data.source.path={}", data.display()),
        "loop.steps=2".to_owned(),
        "loop.accumulation=1".to_owned(),
        // A student of few steps is looked at as it is sampled.
        match roles.contains(&"teacher") {
            true => "callbacks.validation={every: 1, prompts: [a cat], size: [1, 32, 32]}",
            false => {
                "callbacks.validation={every: 1, prompts: [a cat], steps: 1, size: [1, 32, 32]}"
            }
        }
        .to_owned(),
    ];
    if roles.contains(&"teacher") {
        all.push("callbacks.ema={decay: 0.99}".to_owned());
    }
    all.extend(roles.iter().map(|role| format!("models.{role}.from={}", folder(model))));
    all.extend(
        roles
            .iter()
            .filter(|role| **role != "teacher")
            .map(|role| format!("models.{role}.rate.warmup=0")),
    );
    all
}

/// Overrides that make the quickstart three steps of a tiny network.
pub(crate) fn tiny() -> Vec<String> {
    let sizes = "models.student.new={family: duet, video_channels: 384, text_width: 64, heads: 2, \
                 head_width: 8, depth: 2}";
    let overrides = [sizes, "loop.steps=3", "data.batch=2", "models.student.rate.warmup=1"];
    overrides.iter().map(|text| (*text).to_owned()).collect()
}

/// How the engine opens what was exported.
pub(crate) fn setup() -> engine::Setup {
    engine::Setup::new(&Device::flex())
}

/// Width of the text of the tiny Wan folder.
pub(crate) const WAN: usize = 8;

#[test]
fn every_recipe_takes_steps() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    dataset(&data, "wan-tiny", [2, 4, 6], WAN, true);
    let all: [(&str, &[&str]); 4] = [
        ("wan-full.yaml", &[STUDENT]),
        ("wan-lora.yaml", &[STUDENT]),
        ("ic-lora.yaml", &[STUDENT]),
        ("dmd2.yaml", &[STUDENT, "teacher", "critic"]),
    ];
    for (name, roles) in all {
        let recipe = read(name, &small("wan-tiny", &data, roles));
        let run = temporary.path().join(name);
        let mut trainer = build(&recipe, Some(&run)).unwrap().trainer;
        assert_eq!(trainer.run().unwrap(), 2, "{name}");
        assert!(trainer.method().role(STUDENT).unwrap().skipped() == 0, "{name}");
    }
}

#[test]
fn pixart_is_trained_too() {
    let temporary = tempfile::tempdir().unwrap();
    for (model, width) in [("pixart-tiny", 20), ("pixart-tiny-conditions", 28)] {
        let data = temporary.path().join(model);
        dataset(&data, model, [1, 6, 8], width, false);
        let recipe = read("wan-full.yaml", &small(model, &data, &[STUDENT]));
        let mut trainer = build(&recipe, None).unwrap().trainer;
        assert_eq!(trainer.run().unwrap(), 2);
        assert_eq!(trainer.method().role(STUDENT).unwrap().updates(), 2);
    }
}

/// The quickstart in small: it learns, is stopped, goes on, and its model is used by the engine.
#[test]
fn a_run_goes_on_and_is_exported() {
    let temporary = tempfile::tempdir().unwrap();
    let overrides = tiny();
    let recipe = read("quickstart.yaml", &overrides);
    let run = temporary.path().join("run");
    let stop = Arc::new(AtomicBool::new(true));
    let trainer = build(&recipe, Some(&run)).unwrap().trainer;
    assert_eq!(trainer.stopping_at(stop).run().unwrap(), 0);
    let mut trainer = build(&recipe, Some(&run)).unwrap().trainer;
    assert!(trainer.resume(&FREE, &Device::flex()).unwrap().is_none());
    assert_eq!(trainer.run().unwrap(), 3);

    let other = read("quickstart.yaml", &[&overrides[..], &["loop.seed=9".to_owned()]].concat());
    let message = build(&other, Some(&run)).err().expect("a run goes on there").to_string();
    assert!(message.contains("another process trains in"), "{message}");
    drop(trainer);
    let mut trainer = build(&other, Some(&run)).unwrap().trainer;
    let message = trainer.resume(&FREE, &Device::flex()).unwrap_err().to_string();
    assert!(message.contains("these keys differ: loop.seed"), "{message}");

    let student = Student::open(&run, Which::Average, &Device::flex(), &no_hub()).unwrap();
    assert_eq!(student.step, 3);
    let model = temporary.path().join("model");
    student.write_folder(&model).unwrap();
    assert!(student.write_folder(&model).is_err(), "nothing is overwritten");
    assert!(student.write_lora(&temporary.path().join("x.safetensors"), Dialect::ComfyUi).is_err());
    engine::Pipeline::open(&model, &setup()).unwrap();
    // A model that was exported can be trained on.
    let further = format!("models.student={{from: {}, rate: {{peak: 1.0e-3}}}}", model.display());
    let recipe = read("quickstart.yaml", &[further, "loop.steps=1".to_owned()]);
    assert_eq!(build(&recipe, None).unwrap().trainer.run().unwrap(), 1);
}

/// What is refused before any work, with what it says.
#[test]
fn what_cannot_be_built_is_refused() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    dataset(&data, "wan-tiny", [2, 4, 6], WAN, false);
    let empty = temporary.path().join("empty");
    drop(Writer::open(&empty, &encoders("wan-tiny"), 1 << 20).unwrap());
    let refused = |name: &str, data: &Path, more: &[&str]| {
        let mut overrides = small("wan-tiny", data, &[STUDENT]);
        overrides.extend(more.iter().map(|text| (*text).to_owned()));
        let recipe = read(name, &overrides);
        build(&recipe, None).err().expect("it should be refused").to_string()
    };
    let cases = [
        (refused("ic-lora.yaml", &data, &[]), "the strategy `video_to_video` needs `ref_latents`"),
        (refused("wan-full.yaml", &empty, &[]), "has no samples"),
        (refused("wan-full.yaml", &temporary.path().join("none"), &[]), "none"),
        (
            refused(
                "wan-full.yaml",
                &data,
                &[&format!("models.student.from={}", folder("pixart-tiny"))],
            ),
            "encoder",
        ),
        (
            refused("wan-lora.yaml", &data, &["models.student.learns.targets=[to_qq]"]),
            "`to_qq` matches no layer of the model; the nearest is `to_q`",
        ),
        (
            refused("wan-full.yaml", &data, &["models.student.from=no/such/folder"]),
            "no/such/folder",
        ),
        (
            refused(
                "wan-full.yaml",
                &data,
                &[&format!("models.student.from={}", folder("wan-tiny-experts"))],
            ),
            "two experts",
        ),
        (
            refused(
                "quickstart.yaml",
                &data,
                &[
                    "models.student={new: {family: duet, video_channels: 384, text_width: 64}, rate: {peak: 1}}",
                    "data.source={kind: shapes, withheld: [a red cube]}",
                    "callbacks.validation={every: 1}",
                ],
            ),
            "which is no caption of this world",
        ),
    ];
    for (message, expected) in cases {
        assert!(message.contains(expected), "{message}");
        assert!(!message.ends_with('.'), "{message}");
    }
}

/// A LoRA that was trained reloads in the engine, in both dialects, and means the same.
#[test]
fn a_lora_is_exported_in_two_dialects() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    dataset(&data, "wan-tiny", [2, 4, 6], WAN, false);
    let run = temporary.path().join("run");
    let mut overrides = small("wan-tiny", &data, &[STUDENT]);
    overrides.push("models.student.learns.alpha=8".to_owned());
    overrides.push("models.student.rate.peak=0.05".to_owned());
    let recipe = read("wan-lora.yaml", &overrides);
    build(&recipe, Some(&run)).unwrap().trainer.run().unwrap();
    let student = Student::open(&run, Which::Live, &Device::flex(), &no_hub()).unwrap();
    assert!(Student::open(&run, Which::Average, &Device::flex(), &no_hub()).is_err());
    let mut stores = Vec::new();
    for (dialect, name) in [(Dialect::Diffusers, "a"), (Dialect::ComfyUi, "b")] {
        let path = temporary.path().join(format!("{name}.safetensors"));
        student.write_lora(&path, dialect).unwrap();
        let weights =
            [root().join("goldens/wan-tiny/transformer/diffusion_pytorch_model.safetensors")];
        let mut store = nn::Store::open(&weights, nn::Precision::Stored, &Device::flex()).unwrap();
        let source = folder::lora::LoraSource { path, scale: 1.0 };
        let names = families::family("wan").unwrap().lora_names();
        let merge = nn::Merge::Into;
        folder::lora::load(&[source], &mut store, names, merge, &Device::flex()).unwrap();
        stores.push(store);
    }
    let merged = student.store().unwrap();
    let model = Model::open(Path::new(&folder("wan-tiny")), &Device::flex()).unwrap();
    let mut changed = 0;
    for (name, parameter) in merged.iter() {
        let values = parameter.values.to_data();
        for store in &stores {
            let own = store.get(name).unwrap().values.to_data();
            own.assert_approx_eq::<f32>(&values, burn::tensor::Tolerance::absolute(1e-6));
        }
        let before = model.store.get(name).unwrap().values.to_data();
        changed += usize::from(before.bytes() != values.bytes());
    }
    assert_eq!(changed, 8, "four layers of two attentions learn");
    let single = temporary.path().join("whole.safetensors");
    student.write_file(&single, Dialect::Diffusers).unwrap();
    let read = nn::Store::open(&[single], nn::Precision::Stored, &Device::flex()).unwrap();
    assert_eq!(read.iter().count(), merged.iter().count());
}

/// FastVideo counts a student's schedule in its updates, but sizes it by iterations.
#[test]
fn a_schedule_is_as_long_as_its_role_is_updated() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    dataset(&data, "wan-tiny", [2, 4, 6], WAN, false);
    let with = |warmup: u64| {
        let mut overrides = small("wan-tiny", &data, &[STUDENT, "teacher", "critic"]);
        overrides.push("loop.steps=20".to_owned());
        overrides.push(format!("models.student.rate.warmup={warmup}"));
        overrides.push("models.critic.rate.warmup=20".to_owned());
        build(&try_read("dmd2.yaml", &overrides)?, None)
    };
    let message = with(5).err().expect("it should be refused").to_string();
    assert!(message.contains("the student is updated only 4 times"), "{message}");
    assert!(with(4).is_ok());
}

/// FastVideo loads its text encoder for methods that never look at it.
#[test]
fn only_who_needs_a_negative_prompt_loads_an_encoder() {
    let negative = |name: &str, more: &[&str]| {
        let mut overrides = vec!["models.student.from=no/such/folder".to_owned()];
        overrides.extend(more.iter().map(|text| (*text).to_owned()));
        read(name, &overrides).negative(&Device::flex(), &no_hub())
    };
    assert!(negative("wan-full.yaml", &[]).unwrap().is_none());
    let without = "negative_prompt=null";
    assert!(negative("dmd2.yaml", &["method.guidance=1", without]).unwrap().is_none());
    assert!(negative("dmd2.yaml", &["method.unconditional=zero", without]).unwrap().is_none());
    assert!(negative("dmd2.yaml", &[]).is_err(), "this one looks for its encoder");
}

/// Several datasets are one, and a folder is seen as often as it should be.
#[test]
fn datasets_are_mixed() {
    let temporary = tempfile::tempdir().unwrap();
    let paths = ["a", "b"].map(|name| temporary.path().join(name));
    dataset(&paths[0], "wan-tiny", [2, 4, 6], WAN, false);
    dataset(&paths[1], "wan-tiny", [1, 4, 6], WAN, false);
    let [a, b] = paths.each_ref().map(|path| path.display().to_string());
    let samples = |more: &[String]| {
        let mut overrides = small("wan-tiny", &paths[0], &[STUDENT]);
        overrides.extend(more.iter().cloned());
        let run = build(&try_read("wan-full.yaml", &overrides)?, None)?;
        let mut trainer = run.trainer;
        trainer.run()?;
        Ok::<usize, recipe::Error>(run.facts.samples)
    };
    let mix = |of: String| format!("data.source={{kind: mix, of: [{of}]}}");
    let repeated = mix(format!("{{path: {a}, repeats: 3}}, {{path: {b}}}"));
    assert_eq!(samples(std::slice::from_ref(&repeated)).unwrap(), 20);
    // Each folder holds out its share.
    assert_eq!(samples(&[repeated, "data.held_out=2".to_owned()]).unwrap(), 16);
    let weighed = mix(format!("{{path: {a}, weight: 4}}, {{path: {b}, weight: 1}}"));
    assert_eq!(samples(std::slice::from_ref(&weighed)).unwrap(), 25);
    // Weights hold for what is learnt, and a folder keeps one sample to learn from.
    assert_eq!(samples(&[weighed.clone(), "data.held_out=4".to_owned()]).unwrap(), 15);
    assert_eq!(samples(&[weighed.clone(), "data.held_out=8".to_owned()]).unwrap(), 5);
    let message = samples(&[weighed, "data.held_out=9".to_owned()]).unwrap_err().to_string();
    assert!(message.contains("hold out 8 at the most") && message.contains(&a), "{message}");
    for (of, word) in [
        (format!("{{path: {a}, weight: 4}}, {{path: {b}}}"), "every folder has one"),
        (format!("{{path: {a}, repeats: 0}}"), "at least 1"),
        (format!("{{path: {a}, weight: 1}}, {{path: {b}, weight: 20000}}"), "than 10000 times"),
        (String::new(), "is empty"),
        (format!("{{path: {a}}}, {{path: no/such}}"), "no/such"),
    ] {
        let message = samples(&[mix(of)]).unwrap_err().to_string();
        assert!(message.contains(word), "no `{word}` in: {message}");
    }
}
