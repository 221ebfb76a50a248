//! Exams: what a question shows and hides, and which answers count.

use std::sync::{Arc, Mutex};

use burn::tensor::{Device, Tensor};
use data::world::{MovingShape, Rendered, Tone, WorldOptions};
use engine::{Pipeline, Setup, Silent, Solving};
use nn::{Backward, Inputs, Loss, Network, Parameters, Prediction, Provider, Schedule, patchify};
use recipe::{Answer, Exam, Sampling, ShapesConfig, Task};
use serde_json::json;
use testkit::numbers::{bits, parameter};

/// Where the clips of exams begin in their world.
const FIRST_CLIP: u64 = 1 << 40;

fn shapes(task: Task) -> ShapesConfig {
    let tone = task.sounds().then(Tone::default);
    ShapesConfig {
        world: WorldOptions { tone, ..WorldOptions::default() },
        ..ShapesConfig::default()
    }
}

fn exam(task: Task) -> (Exam, Vec<MovingShape>) {
    let shapes = shapes(task);
    let scenes = shapes.scenes().unwrap();
    (Exam::new(task, shapes.world().unwrap(), &scenes), scenes)
}

fn right(answers: &[Answer]) -> usize {
    answers.iter().filter(|answer| answer.is_right()).count()
}

/// What is given is not the answer.
#[test]
fn what_is_given_alone_is_worth_little() {
    let most = [
        (Task::Text, 0),
        (Task::FirstFrame, 10),
        (Task::Recolour, 0),
        (Task::Inpaint, 30),
        (Task::WithSound, 0),
        (Task::SoundOfVideo, 0),
    ];
    for (task, most) in most {
        let answers = exam(task).0.without_a_model().unwrap();
        assert_eq!(answers.len(), 96, "{task:?}");
        assert!(right(&answers) <= most, "{task:?}: {}", right(&answers));
    }
}

/// Somebody who knows the questions, whatever network is asked.
struct Knowing<F> {
    rendered: Rendered,
    scenes: Vec<MovingShape>,
    /// The place in the world of the clip that answers a question.
    clip: F,
    /// Questions so far, and what was asked first.
    asked: Mutex<(usize, Option<Inputs>)>,
}

impl<F: Fn(u64) -> u64 + Send + Sync> Schedule for Knowing<F> {
    fn predict(
        &self,
        _: &dyn Network,
        _: &dyn Provider,
        inputs: &Inputs,
    ) -> nn::Result<Prediction> {
        let device = Device::flex();
        let (first, asked) = &mut *self.asked.lock().unwrap();
        asked.get_or_insert_with(|| inputs.clone());
        let [samples, tokens, channels] = inputs.video.as_ref().unwrap().tokens.dims();
        let one = |at: usize| {
            let scene = self.scenes[(*first + at) % self.scenes.len()];
            let clip = (self.clip)((*first + at) as u64);
            let clip = self.rendered.world.show_scene(scene, clip).clip;
            patchify(self.rendered.codec.encode(&clip, &device).unwrap(), [1, 1, 1])
        };
        let video: Tensor<3> = Tensor::cat((0..samples).map(one).collect(), 0);
        // References come first, and what is said of them counts for nothing.
        let references = [samples, tokens - video.dims()[1], channels];
        let video = Tensor::cat(vec![Tensor::zeros(references, &device), video], 1);
        *first += samples;
        let audio = inputs.audio.as_ref().map(|audio| audio.tokens.zeros_like());
        Ok(Prediction { video: Some(video), audio })
    }

    fn backward(
        &self,
        _: &dyn Network,
        _: Parameters<'_>,
        _: &Inputs,
        _: Loss<'_>,
    ) -> nn::Result<Backward> {
        unreachable!("nobody learns in an exam")
    }
}

/// Sits an exam in one step with somebody who knows the questions: `clip` is the place in the world of
/// the clip that answers one. Returns also what was asked first.
fn sit(task: Task, clip: impl Fn(u64) -> u64 + Send + Sync + 'static) -> (Vec<Answer>, Inputs) {
    let (exam, scenes) = exam(task);
    let rendered = shapes(task).rendered().unwrap();
    let knowing = Arc::new(Knowing { rendered, scenes, clip, asked: Mutex::new((0, None)) });
    let family = families::family("duet").unwrap();
    let sizes = json!({
        "video_channels": 384, "audio_channels": 250, "text_width": 64, "heads": 1, "head_width": 6,
        "depth": 1,
    });
    let model = (family.scratch.as_ref().unwrap().make)(family, &sizes).unwrap().description;
    let network = &model.transformers[0].network;
    let store = nn::Store::declared(|weights| network.declare(weights), parameter).unwrap();
    let setup = Setup { schedule: knowing.clone(), ..Setup::new(&Device::flex()) };
    let mut pipeline = Pipeline::of(model, store, &setup).unwrap();
    let solving = Solving::Renoise(vec![1000.0]);
    let sampling = Sampling { solving, ..Sampling::default() };
    let answers = exam.sit(&mut pipeline, &sampling, &mut Silent).unwrap();
    let asked = knowing.asked.lock().unwrap().1.clone();
    (answers, asked.unwrap())
}

#[test]
fn a_true_answer_is_right_and_a_recoloured_clip_moves_where_it_did() {
    let (answers, _) = sit(Task::Text, |at| at);
    assert!(right(&answers) >= 95, "{}", right(&answers));
    let (answers, _) = sit(Task::Recolour, |at| FIRST_CLIP + at);
    assert!(right(&answers) >= 95, "{}", right(&answers));
    // As the caption says, but not where the reference is.
    let (answers, _) = sit(Task::Recolour, |at| at);
    let attributes = answers.iter().filter(|answer| answer.right == [true; 3]).count();
    assert!(attributes >= 95 && right(&answers) <= 10, "{attributes} and {}", right(&answers));
}

/// The sampler puts a given first frame back whatever the network made of it, so what the network made
/// is measured: one that goes on from another frame has kept nothing.
#[test]
fn a_given_frame_is_measured_before_it_is_put_back() {
    let (answers, _) = sit(Task::FirstFrame, |at| FIRST_CLIP + at);
    assert!(right(&answers) >= 95, "{}", right(&answers));
    assert!(answers.iter().all(|answer| answer.kept.unwrap() > 60.0));
    let (answers, _) = sit(Task::FirstFrame, |at| at);
    let kept = answers.iter().filter(|answer| answer.kept.unwrap() > 30.0).count();
    assert!(kept <= 10 && right(&answers) <= 10, "{kept} and {}", right(&answers));
}

/// Only the clip can tell the tone of a clip: there is no caption. Elsewhere nothing shows the clip.
#[test]
fn questions_hide_what_they_ask_for() {
    let rendered = shapes(Task::SoundOfVideo).rendered().unwrap();
    let null = bits(&rendered.words.null(&Device::flex()));
    let (_, asked) = sit(Task::SoundOfVideo, |at| at);
    let texts = bits(&asked.video.as_ref().unwrap().context.tokens);
    assert!(texts.chunks(null.len()).all(|text| text == null), "a caption is told");
    let (_, asked) = sit(Task::WithSound, |at| at);
    let texts = bits(&asked.video.as_ref().unwrap().context.tokens);
    assert!(texts.chunks(null.len()).all(|text| text != null), "no caption is told");
}
