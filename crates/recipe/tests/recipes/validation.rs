//! A student is looked at as it will be used: what validation shows, `generate` makes of all that is
//! exported, frame by frame.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use burn::tensor::Device;
use data::media::{ClipWriter, Frame, FrameRate};
use engine::{Frames, Given, Media, Pipeline, Request, Setup, Silent};
use folder::lora::LoraSource;
use recipe::{Dialect, Environment, Recipe, Student, Which};
use testkit::numbers::numbers;
use train::STUDENT;

use crate::building::{
    WAN, build, dataset, folder as golden, no_hub, read, setup, small, tiny, try_read,
};
use crate::exporting::references;

/// Frames, height and width of the clips.
const SIZE: [usize; 3] = [5, 32, 64];

/// Writes the frames of one clip, as validation does.
struct Written(ClipWriter);

impl Frames for Written {
    fn begin(&mut self, samples: usize, _: usize) -> engine::Result<()> {
        assert_eq!(samples, 1);
        Ok(())
    }

    fn frame(&mut self, _: usize, frame: Frame) -> engine::Result<()> {
        Ok(self.0.push(&frame)?)
    }
}

/// The bytes of the clip that a folder makes of a request.
fn generated(model: &Path, setup: &Setup, request: &Request, file: &Path) -> Vec<u8> {
    let mut pipeline = Pipeline::open(model, setup).unwrap();
    let rate = FrameRate::from_number(pipeline.description().defaults.frame_rate).unwrap();
    let mut written = Written(ClipWriter::create(file, rate).unwrap());
    pipeline.run(request, &mut Silent, &mut written).unwrap();
    written.0.finish().unwrap();
    std::fs::read(file).unwrap()
}

/// A folder of so many random pictures.
fn pictures(path: &Path, name: &str, count: usize) -> String {
    let [_, height, width] = SIZE;
    let mut writer = ClipWriter::create(path, FrameRate::from_number(16.0).unwrap()).unwrap();
    for at in 0..count {
        let values = numbers(&format!("{name} {at}"), height * width * 3);
        let values = values.iter().map(|it| (it + 1.0) / 2.0).collect();
        writer.push(&Frame::new(height, width, values).unwrap()).unwrap();
    }
    writer.finish().unwrap();
    path.display().to_string()
}

/// A run of two steps in a folder of its own that is looked at after the second.
struct Looked {
    root: tempfile::TempDir,
    base: PathBuf,
}

impl Looked {
    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Trains, exports everything in every way there is, and compares what each makes of `request` with
    /// what validation showed.
    #[track_caller]
    fn is_what_generate_makes(&self, recipe: &Recipe, request: &Request) {
        build(recipe, Some(&self.path("run"))).unwrap().trainer.run().unwrap();
        let shown = std::fs::read(self.path("run/validation/00000002/000.mp4")).unwrap();
        let averaged = recipe.callbacks.ema.is_some();
        let which = if averaged { Which::Average } else { Which::Live };
        let student = Student::open(&self.path("run"), which, &Device::flex(), &no_hub()).unwrap();
        let (model, file) = (self.path("model"), self.path("whole.safetensors"));
        student.write_folder(&model).unwrap();
        student.write_file(&file, recipe::Dialect::Diffusers).unwrap();
        let mut all = vec![
            (model, setup()),
            (self.base.clone(), Setup { transformer: Some(file), ..setup() }),
        ];
        if student.lora().is_some() {
            for (dialect, name) in [(Dialect::Diffusers, "a"), (Dialect::ComfyUi, "b")] {
                let path = self.path(&format!("{name}.safetensors"));
                student.write_lora(&path, dialect).unwrap();
                let loras = vec![LoraSource { path, scale: 1.0 }];
                all.push((self.base.clone(), Setup { loras, ..setup() }));
            }
        }
        for (at, (model, setup)) in all.iter().enumerate() {
            let made = generated(model, setup, request, &self.path(&format!("{at}.mp4")));
            assert!(made == shown, "artefact {at} of {}", recipe.strategy.name());
        }
    }
}

/// A tiny Wan, and data for it.
fn wan(data: impl FnOnce(&Path)) -> (Looked, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("data");
    data(&path);
    (Looked { root, base: golden("wan-tiny").into() }, path)
}

fn request(given: Given) -> Request {
    let [frames, height, width] = SIZE;
    Request {
        prompts: vec!["a cat".to_owned()],
        given: vec![given],
        frames: Some(frames),
        height: Some(height),
        width: Some(width),
        ..Request::default()
    }
}

/// Overrides of a small run whose validation says `look` too.
fn overrides(data: &Path, roles: &[&str], look: &str) -> Vec<String> {
    let mut all = small("wan-tiny", data, roles);
    let [frames, height, width] = SIZE;
    let size = format!("size: [{frames}, {height}, {width}]");
    all.push(format!("callbacks.validation={{every: 2, prompts: [a cat], {size}{look}}}"));
    all.push("models.student.rate.peak=0.05".to_owned());
    all
}

/// References at the scale of the data, a negative prompt and a guidance.
#[test]
fn an_in_context_lora_is_looked_at_with_its_reference() {
    let (looked, data) = wan(|data| references(data, &[[2, 4]; 3]));
    let shown = pictures(&looked.path("shown"), "reference", 5);
    let look = format!(", steps: 2, guidance: 3.0, negative: a dog, given: {{reference: {shown}}}");
    let mut overrides = overrides(&data, &[STUDENT], &look);
    overrides.push("strategy.first_frame_probability=0".to_owned());
    let recipe = read("ic-lora.yaml", &overrides);
    let asked = Request {
        steps: Some(2),
        guidance: Some(3.0),
        negative: "a dog".to_owned(),
        ..request(Given { references: vec![(Media::File(shown.into()), None)], ..Given::default() })
    };
    looked.is_what_generate_makes(&recipe, &asked);
}

/// A first frame, and the average.
#[test]
fn a_first_frame_model_is_looked_at_with_its_first_frame() {
    let (looked, data) = wan(|data| dataset(data, "wan-tiny", [2, 4, 6], WAN, false));
    let shown = pictures(&looked.path("shown"), "first", 1);
    let look = format!(", steps: 2, given: {{image: {shown}}}");
    let mut overrides = overrides(&data, &[STUDENT], &look);
    overrides.push("strategy={name: text_to_video, first_frame_probability: 0.5}".to_owned());
    overrides.push("callbacks.ema={decay: 0.5}".to_owned());
    let recipe = read("wan-full.yaml", &overrides);
    let image = Some(Media::File(shown.into()));
    let asked = request(Given { image, ..Given::default() });
    looked.is_what_generate_makes(&recipe, &Request { steps: Some(2), ..asked });
}

/// A student of few steps is one wherever it goes; one that is trained on from it is none any more.
#[test]
fn students_of_few_steps_are_sampled_as_they_were_trained_last() {
    let (looked, data) = wan(|data| dataset(data, "wan-tiny", [2, 4, 6], WAN, false));
    let mut few = overrides(&data, &[STUDENT, "teacher", "critic"], "");
    few.push("callbacks.ema=null".to_owned());
    few.push("method.student_every=1".to_owned());
    few.push("models.student.learns={kind: lora, rank: 2, targets: [to_q, to_v]}".to_owned());
    looked.is_what_generate_makes(&read("dmd2.yaml", &few), &request(Given::default()));
    let (later, data) = wan(|data| dataset(data, "wan-tiny", [2, 4, 6], WAN, false));
    let later = Looked { base: looked.path("model"), ..later };
    for (name, steps) in [("wan-full.yaml", ", steps: 2"), ("wan-lora.yaml", "")] {
        let mut overrides = overrides(&data, &[STUDENT], steps);
        overrides.push(format!("models.student.from={}", later.base.display()));
        let asked = (!steps.is_empty()).then_some(2);
        let own = Looked { root: tempfile::tempdir().unwrap(), base: later.base.clone() };
        let asked = Request { steps: asked, ..request(Given::default()) };
        own.is_what_generate_makes(&read(name, &overrides), &asked);
    }
}

/// What does not fit is told with its key, by a run and by a dry run alike.
#[test]
fn what_validation_cannot_ask_for_is_refused_by_its_key() {
    let (looked, data) = wan(|data| dataset(data, "wan-tiny", [2, 4, 6], WAN, false));
    let shown = pictures(&looked.path("shown"), "reference", 5);
    for (look, wanted) in [
        (format!(", given: {{reference: {shown}}}"), "callbacks.validation.given.reference: "),
        (", given: {keyframes: [{frame: 1, image: x}]}".to_owned(), "given.keyframes: "),
        (", guidance: 1.0, negative: a dog".to_owned(), "callbacks.validation.negative: "),
        (", steps: 0".to_owned(), "`callbacks.validation.steps` is 0"),
        (", size: [5, 33, 64]".to_owned(), "callbacks.validation.size: "),
    ] {
        let size = if look.contains("size") { "" } else { ", size: [5, 32, 64]" };
        let mut overrides = small("wan-tiny", &data, &[STUDENT]);
        overrides.push(format!("callbacks.validation={{every: 2, prompts: [a cat]{size}{look}}}"));
        let recipe = match try_read("wan-full.yaml", &overrides) {
            Ok(recipe) => recipe,
            Err(error) => {
                assert!(error.to_string().contains(wanted), "{error}");
                continue;
            }
        };
        let refused = build(&recipe, None).err().expect("it should be refused").to_string();
        assert!(refused.contains(wanted), "{refused}");
        let dry = recipe
            .memory(comm::MeshShape::default(), &Device::flex(), &no_hub())
            .unwrap_err()
            .to_string();
        assert_eq!(dry, refused);
    }
}

/// Numbers of validation by name: step, name, value.
type Numbers = Rc<RefCell<Vec<(u64, String, f64)>>>;

fn run(recipe: &Recipe, at: &Path) -> Vec<(u64, String, f64)> {
    let numbers = Numbers::default();
    let own = Rc::clone(&numbers);
    let record = Box::new(move |look: &recipe::Look<'_>| {
        let (step, all) = (look.step, look.numbers);
        own.borrow_mut().extend(all.iter().map(|(name, value)| (step, (*name).to_owned(), *value)));
        Ok(())
    });
    let (device, hub) = (Device::flex(), no_hub());
    let environment = Environment {
        folder: Some(at),
        device,
        ranks: train::Ranks::alone(),
        hub: &hub,
        negative: None,
        callbacks: Vec::new(),
        record,
        watched: Box::new(engine::Silent),
    };
    recipe.build(environment).unwrap().trainer.run().unwrap();
    numbers.take()
}

/// Held-out losses are those of the average, as the clips are: its exported model begins with them.
#[test]
fn held_out_losses_are_those_of_the_weights_that_are_shown() {
    let temporary = tempfile::tempdir().unwrap();
    let path = |name: &str| temporary.path().join(name);
    let mut overrides = tiny();
    overrides.extend(
        [
            "data.held_out=4",
            "callbacks.ema={decay: 0.9, warm_up: false}",
            "callbacks.validation={every: 3, prompts: [a red circle moves left], steps: 1}",
        ]
        .map(str::to_owned),
    );
    let first = run(&read("quickstart.yaml", &overrides), &path("run"));
    let student = Student::open(&path("run"), Which::Average, &Device::flex(), &no_hub()).unwrap();
    student.write_folder(&path("model")).unwrap();
    let from = path("model");
    overrides.remove(0);
    overrides.push(format!("models.student={{from: {}, rate: {{peak: 1}}}}", from.display()));
    let again = run(&read("quickstart.yaml", &overrides), &path("again"));
    let losses = |all: &[(u64, String, f64)], step: u64| -> Vec<(String, f64)> {
        let own = all.iter().filter(|(at, name, _)| *at == step && name.starts_with("held_out"));
        own.map(|(_, name, value)| (name.clone(), *value)).collect()
    };
    assert_eq!(losses(&first, 3), losses(&again, 0));
    assert_eq!(losses(&first, 3).len(), 6);
    assert_ne!(losses(&first, 3), losses(&first, 0));
}
