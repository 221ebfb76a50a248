//! Exams: what a question shows and hides, and which answers count.

use burn::tensor::{Device, Tensor};
use data::world::{Options, Scene, Tone};
use diffusion::{Guidance, Process};
use engine::{SceneSampler, Silent};
use nn::{Inputs, Prediction, patchify};
use recipe::{Answer, Exam, ShapesConfig, Task};
use testkit::numbers::bits;

/// Where the clips of exams begin in their world.
const FIRST_CLIP: u64 = 1 << 40;

fn shapes(task: Task) -> ShapesConfig {
    let tone = task.sounds().then(Tone::default);
    ShapesConfig { world: Options { tone, ..Options::default() }, ..ShapesConfig::default() }
}

fn exam(task: Task) -> (Exam, Vec<Scene>) {
    let shapes = shapes(task);
    let scenes = shapes.scenes().unwrap();
    (Exam::new(task, shapes.rendered().unwrap(), &scenes), scenes)
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
        let answers = exam(task).0.without_a_model(&Device::flex()).unwrap();
        assert_eq!(answers.len(), 96, "{task:?}");
        assert!(right(&answers) <= most, "{task:?}: {}", right(&answers));
    }
}

/// Sits an exam in one step with somebody who knows the questions: `clip` is the place in the world of
/// the clip that answers one. Returns also what was asked first.
fn sit(task: Task, clip: impl Fn(u64) -> u64) -> (Vec<Answer>, Inputs) {
    let (exam, scenes) = exam(task);
    let rendered = shapes(task).rendered().unwrap();
    let device = Device::flex();
    let guidance = Guidance::new(1.0).unwrap();
    let sampler = SceneSampler::renoising(Process::FlowClean, &[1000.0], guidance).unwrap();
    let (mut first, mut asked) = (0, None);
    let mut predict = |inputs: &Inputs| {
        let [samples, ..] = inputs.video.tokens.dims();
        asked.get_or_insert_with(|| inputs.clone());
        let one = |at: usize| {
            let scene = scenes[(first + at) % scenes.len()];
            let clip = rendered.world.show_scene(scene, clip((first + at) as u64)).clip;
            patchify(rendered.codec.encode(&clip, &device).unwrap(), [1, 1, 1])
        };
        let video: Tensor<3> = Tensor::cat((0..samples).map(one).collect(), 0);
        // References come first, and what is said of them counts for nothing.
        let [_, tokens, channels] = inputs.video.tokens.dims();
        let references = [samples, tokens - video.dims()[1], channels];
        let video = Tensor::cat(vec![Tensor::zeros(references, &device), video], 1);
        first += samples;
        let audio = inputs.audio.as_ref().map(|audio| audio.tokens.zeros_like());
        Ok(Prediction { video, audio })
    };
    let answers = exam.sit(&sampler, &device, &mut Silent, &mut predict).unwrap();
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

/// Only the clip can tell the tone of a clip: there is no caption. Elsewhere nothing shows the clip.
#[test]
fn questions_hide_what_they_ask_for() {
    let rendered = shapes(Task::SoundOfVideo).rendered().unwrap();
    let null = bits(&rendered.words.null(&Device::flex()));
    let (_, asked) = sit(Task::SoundOfVideo, |at| at);
    let texts = bits(&asked.video.context.tokens);
    assert!(texts.chunks(null.len()).all(|text| text == null), "a caption is told");
    let (_, asked) = sit(Task::WithSound, |at| at);
    let texts = bits(&asked.video.context.tokens);
    assert!(texts.chunks(null.len()).all(|text| text != null), "no caption is told");
}
