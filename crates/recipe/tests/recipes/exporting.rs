//! What a run leaves behind is what it learnt, and says what its users must know.

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::{Device, TensorData};
use data::store::{Bucket, LATENTS, Origin, REF_LATENTS, RefOrigin, Sample, TEXT, Writer};
use diffusion::Draw;
use recipe::{Dialect, Model, Student, Which};
use testkit::numbers::{bits, values};
use train::STUDENT;

use crate::building::{WAN, build, dataset, encoders, folder, no_hub, read, setup, small, tiny};

/// What is exported as the average is the average, not the student of the last step.
#[test]
fn the_average_is_exported_as_it_was_kept() {
    let temporary = tempfile::tempdir().unwrap();
    let mut built = build(&read("quickstart.yaml", &tiny()), Some(temporary.path())).unwrap();
    built.trainer.run().unwrap();
    let role = built.trainer.method().role(STUDENT).unwrap();
    let live = role.store().clone();
    let average = built.average.as_ref().unwrap().store(role);
    let differs = |(name, own): (&str, &nn::Parameter)| {
        bits(&own.values) != bits(&live.get(name).unwrap().values)
    };
    assert!(average.iter().any(differs), "the average is behind");
    for (which, want) in [(Which::Average, &average), (Which::Live, &live)] {
        let student = Student::open(temporary.path(), which, &Device::flex(), &no_hub()).unwrap();
        let store = student.store().unwrap();
        for (name, own) in want.iter() {
            let found = store.get(name).unwrap();
            assert_eq!(bits(&found.values), bits(&own.values), "{which:?} {name}");
        }
    }
}

/// Weights may be read by whoever may read the files beside them: the umask decides.
fn readable_as_any_file(model: &Path) {
    let permissions = |name: &str| std::fs::metadata(model.join(name)).unwrap().permissions();
    let weights = "transformer/diffusion_pytorch_model.safetensors";
    assert_eq!(permissions(weights), permissions("model_index.json"));
}

/// LTX-2's finetuned models cannot be read by its own loader.
#[test]
fn a_finetuned_folder_is_read_by_the_engine_and_trained_on() {
    let temporary = tempfile::tempdir().unwrap();
    for (name, grid, width) in [("wan-tiny", [2, 4, 6], WAN), ("pixart-tiny", [1, 6, 8], 20)] {
        let path = |part: &str| temporary.path().join(format!("{name}-{part}"));
        dataset(&path("data"), name, grid, width, false);
        let mut overrides = small(name, &path("data"), &[STUDENT]);
        overrides.push("callbacks={}".to_owned());
        let recipe = read("wan-full.yaml", &overrides);
        build(&recipe, Some(&path("run"))).unwrap().trainer.run().unwrap();
        let student = Student::open(&path("run"), Which::Live, &Device::flex(), &no_hub()).unwrap();
        student.write_folder(&path("model")).unwrap();
        engine::Pipeline::open(&path("model"), &setup()).unwrap();
        readable_as_any_file(&path("model"));
        let again = Model::open(&path("model"), &Device::flex()).unwrap();
        let store = student.store().unwrap();
        assert_eq!(again.store.iter().count(), store.iter().count(), "{name}");
        for (key, own) in store.iter() {
            assert_eq!(bits(&again.store.get(key).unwrap().values), bits(&own.values), "{key}");
        }
    }
}

/// LTX-2 leaves out how much smaller its references were, and nobody notices.
#[test]
fn a_lora_tells_how_much_smaller_its_references_were() {
    let temporary = tempfile::tempdir().unwrap();
    let (data, run) = (temporary.path().join("data"), temporary.path().join("run"));
    references(&data, &[[2, 4], [2, 4]]);
    let recipe = read("ic-lora.yaml", &small("wan-tiny", &data, &[STUDENT]));
    build(&recipe, Some(&run)).unwrap().trainer.run().unwrap();
    let student = Student::open(&run, Which::Live, &Device::flex(), &no_hub()).unwrap();
    for (dialect, name) in [(Dialect::Diffusers, "a"), (Dialect::ComfyUi, "b")] {
        let path = temporary.path().join(format!("{name}.safetensors"));
        student.write_lora(&path, dialect).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
        let facts = header.metadata().as_ref().unwrap();
        let factor = facts.get("reference_downscale_factor").map(String::as_str);
        assert_eq!(factor, Some("2"), "{dialect:?}");
    }
}

/// Every kind of sample is tried before the first step, not only the first.
#[test]
fn a_sample_that_does_not_fit_is_found_before_any_work() {
    let temporary = tempfile::tempdir().unwrap();
    let refused = |name: &str, sizes: &[[usize; 2]]| {
        let (data, run) = (temporary.path().join(name), temporary.path().join("run"));
        references(&data, sizes);
        let recipe = read("ic-lora.yaml", &small("wan-tiny", &data, &[STUDENT]));
        let message = build(&recipe, Some(&run)).err().expect("it should be refused").to_string();
        assert!(!run.exists(), "something was written");
        message
    };
    let message = refused("lacking", &[[2, 4], [2, 4], [0, 0]]);
    assert!(message.contains("needs `ref_latents`, but 1 of 3 samples"), "{message}");
    assert!(message.contains("`clip 2`"), "{message}");
    let message = refused("uneven", &[[2, 4], [3, 4]]);
    assert!(message.contains("ref_latents"), "{message}");
    let message = refused("mixed", &[[2, 4], [4, 8]]);
    assert!(message.contains("times smaller"), "{message}");
}

/// LTX-2 takes the frame rate of the first sample for all.
#[test]
fn every_sample_of_a_batch_brings_its_own_rate() {
    let temporary = tempfile::tempdir().unwrap();
    references(temporary.path(), &[[2, 4]; 4]);
    let mut overrides = small("wan-tiny", temporary.path(), &[STUDENT]);
    overrides.push("data.batch=4".to_owned());
    let model = Model::open(Path::new(&folder("wan-tiny")), &Device::flex()).unwrap();
    let recipe = read("ic-lora.yaml", &overrides);
    let batch = recipe.feed(&model, Device::flex()).unwrap().next().unwrap();
    let latents = batch.video("", LATENTS).unwrap();
    let firsts: Vec<f32> =
        values(&latents.values).chunks(4 * 2 * 4 * 8).map(|own| own[0]).collect();
    let index = |first: &f32| (0..4).find(|at| clip(*at)[0] == *first).unwrap();
    let want: Vec<f64> = firsts.iter().map(index).map(rate).collect();
    assert_eq!(latents.rates, want);
    // A reference plays at a rate of its own, if the dataset says so.
    let halves: Vec<f64> = want.iter().map(|rate| rate / 2.0).collect();
    assert_eq!(batch.video("", REF_LATENTS).unwrap().rates, halves);
}

fn rate(index: usize) -> f64 {
    8.0 * (index + 1) as f64
}

/// The latents of a sample.
fn clip(index: usize) -> Vec<f32> {
    Draw::new(7).sample(index as u64).stream("clip").normal(0..4 * 2 * 4 * 8)
}

/// Samples of 4 x 8 latents with references of their own sizes; none where a size is 0.
pub(crate) fn references(data: &Path, sizes: &[[usize; 2]]) {
    let mut writer = Writer::open(data, &encoders("wan-tiny"), 1 << 20).unwrap();
    let null = TensorData::new(vec![0.5f32; WAN], [1, WAN]);
    writer.put_null_text(&BTreeMap::from([(TEXT.to_owned(), null)])).unwrap();
    for (index, size) in sizes.iter().enumerate() {
        let draw = Draw::new(7).sample(index as u64);
        let text = TensorData::new(draw.stream("text").normal(0..2 * WAN), [2, WAN]);
        let mut tensors = BTreeMap::from([
            (LATENTS.to_owned(), TensorData::new(clip(index), [4, 2, 4, 8])),
            (TEXT.to_owned(), text),
        ]);
        if *size != [0, 0] {
            let [h, w] = *size;
            let values = draw.stream("reference").normal(0..4 * 2 * h * w);
            tensors.insert(REF_LATENTS.to_owned(), TensorData::new(values, [4, 2, h, w]));
        }
        let bucket = Bucket { frames: 5, height: 32, width: 64 };
        let (id, caption) = (format!("clip {index}"), "a caption".to_owned());
        let fps = rate(index);
        let reference = Some(RefOrigin { bucket, fps: fps / 2.0 });
        let source_hash = index.to_string();
        let origin = Origin { id, source_hash, caption, fps, bucket, reference };
        writer.push(Sample { origin, tensors }).unwrap();
    }
    writer.flush().unwrap();
}
