//! DMD2: who runs how often, who is updated when, what is drawn by what.

use std::sync::Arc;

use burn::tensor::Tensor;
use diffusion::Process;
use methods::{Dmd2, Dmd2Config, Dmd2Draws, Dmd2Roles, Rollout, Unconditional};
use nn::{Context, Parameter};
use serde_json::json;
use testkit::numbers::{tensor, values};
use train::{Draws, Frozen, LoopConfig, Method, Outcome, Parts, STUDENT, Strategy, Trainer};

use crate::setting::{
    Clips, TINY, accumulate, batch, frozen, gradient_distance, run_by, store, strategy, trained,
};
use crate::tiny::{Counted, Counts};

fn config() -> Dmd2Config {
    Dmd2Config {
        rollout: Rollout::Simulate,
        timesteps: vec![1000.0, 750.0, 500.0, 250.0],
        student_every: 5,
        guidance: 3.0,
        unconditional: Unconditional::NegativePrompt,
        score_range: [0.02, 0.98],
        shift: 1.0,
        warp: false,
    }
}

/// A method whose networks are counted: student, teacher, critic.
fn counted(config: Dmd2Config) -> (train::Result<Dmd2>, [Counts; 3]) {
    let counts: [Counts; 3] = Default::default();
    let layout = |index: usize| Arc::new(Counted(counts[index].clone()));
    let network = || Arc::new(TINY);
    let roles = Dmd2Roles {
        student: run_by(layout(0), "student", network(), store(&TINY, "teacher")),
        teacher: Frozen::new(network(), store(&TINY, "teacher"), layout(1)).unwrap(),
        critic: run_by(layout(2), "critic", network(), store(&TINY, "critic")),
    };
    let negative = Some(Context { tokens: tensor("negative", [1, 2, 4]), mask: None, image: None });
    let negative = negative.filter(|_| config.needs_negative_prompt());
    let strategy = strategy(json!({ "name": "text_to_video", "first_frame_probability": 0.3 }));
    (Dmd2::new(roles, strategy, Process::Flow, config, negative), counts)
}

fn method(config: Dmd2Config) -> Dmd2 {
    counted(config).0.unwrap()
}

/// The exit that a step draws.
fn exit(config: &Dmd2Config, step: u64, first: u64) -> usize {
    let draws = Draws::new(11, step, first, 2);
    let own = strategy(json!({ "name": "text_to_video" }));
    let scene = own.scene(&batch(0, 2, 3), &draws).unwrap();
    Dmd2Draws::new(config, &scene, &draws).exit
}

#[test]
fn the_student_is_updated_at_every_so_many_iterations_and_the_critic_at_each() {
    let method = method(config());
    let updates: Vec<_> = (1..=10).map(|iteration| method.updates(iteration).len()).collect();
    assert_eq!(updates, [1, 1, 1, 1, 2, 1, 1, 1, 1, 2]);
    for iteration in 1..=10 {
        // Clipped is exactly who is updated: the student's stale gradients are not.
        assert_eq!(method.clipped(iteration), method.updates(iteration));
        assert!(method.updates(iteration).contains(&"critic"));
    }
    // The horizon of a schedule is its role's own number of updates.
    let within = |role| {
        (1..=4000).filter(|iteration| config().updates(*iteration).contains(&role)).count() as u64
    };
    for role in [STUDENT, "critic"] {
        assert_eq!(config().horizon(role, 4000), within(role), "{role}");
    }
    assert_eq!((within(STUDENT), within("critic")), (800, 4000));
}

/// FastVideo runs the whole list whatever the exit, and a second rollout for the critic.
#[test]
fn networks_run_no_more_often_than_they_must() {
    let config = config();
    let (method, counts) = counted(config.clone());
    let mut method = method.unwrap();
    let mut exits = std::collections::BTreeSet::new();
    for iteration in 1..=20 {
        let clips = batch(0, 2, 3);
        accumulate(&mut method, &clips, (iteration, 0, 1.0)).unwrap();
        let exit = exit(&config, iteration, 0);
        exits.insert(exit);
        let [student, teacher, critic] = counts.each_ref().map(Counts::take);
        match iteration % 5 {
            0 => {
                assert_eq!(student, [exit, 1], "iteration {iteration}");
                assert_eq!((teacher, critic), ([2, 0], [1, 1]));
            }
            _ => {
                assert_eq!(student, [exit + 1, 0], "iteration {iteration}");
                assert_eq!((teacher, critic), ([0, 0], [0, 1]));
            }
        }
        method.trained_mut().into_iter().for_each(|role| role.gradients_mut().clear());
    }
    assert_eq!(exits.len(), 4, "every step of the student is its exit sometimes");
}

#[test]
fn without_guidance_the_teacher_runs_once_and_no_negative_prompt_is_needed() {
    let plain = Dmd2Config { guidance: 1.0, student_every: 1, ..config() };
    assert!(!plain.needs_negative_prompt() && config().needs_negative_prompt());
    let zero = Dmd2Config { unconditional: Unconditional::Zero, student_every: 1, ..config() };
    assert!(!zero.needs_negative_prompt());
    for (config, runs) in [(plain, 1), (zero, 2)] {
        let (method, counts) = counted(config);
        accumulate(&mut method.unwrap(), &batch(0, 2, 3), (1, 0, 1.0)).unwrap();
        assert_eq!(counts[1].take(), [runs, 0]);
    }
}

#[test]
fn a_step_cut_into_micro_batches_is_the_same_step() {
    let config = Dmd2Config { student_every: 1, ..config() };
    let (mut whole, mut parts) = (method(config.clone()), method(config.clone()));
    // The exit decides how often networks run, so it knows no sample.
    assert_eq!(exit(&config, 3, 0), exit(&config, 3, 2));
    let report = accumulate(&mut whole, &batch(0, 4, 3), (3, 0, 1.0)).unwrap();
    let mut seen = vec![Vec::new(); 2];
    for part in 0..4 {
        let share = (3, part as u64, 0.25);
        let report = accumulate(&mut parts, &batch(part, 1, 3), share).unwrap();
        for (seen, loss) in seen.iter_mut().zip(report.losses) {
            seen.extend(loss.values);
        }
    }
    for (loss, seen) in report.losses.iter().zip(&seen) {
        let off = loss.values.iter().zip(seen).map(|(a, b)| (a - b).abs() / b);
        assert!(off.fold(0.0, f32::max) < 1e-4, "{}: {:?} {seen:?}", loss.name, loss.values);
    }
    for (whole, parts) in whole.trained().into_iter().zip(parts.trained()) {
        let off = gradient_distance(whole, parts);
        assert!(off < 2e-6, "{}: {off:e}", whole.name());
    }
}

#[test]
fn samples_are_scored_within_the_range_and_shifted_once() {
    let own = strategy(json!({ "name": "text_to_video" }));
    let levels = |config: &Dmd2Config| -> Vec<f32> {
        (0..200)
            .flat_map(|step| {
                let draws = Draws::new(11, step, 0, 4);
                let scene = own.scene(&batch(0, 4, 1), &draws).unwrap();
                let drawn = Dmd2Draws::new(config, &scene, &draws);
                assert_ne!(drawn.score.0, drawn.critic.0, "student and critic draw apart");
                (0..4)
                    .map(|sample| drawn.score.0.video.as_ref().unwrap().of_sample(sample))
                    .collect::<Vec<_>>()
            })
            .collect()
    };
    let even = levels(&Dmd2Config { score_range: [0.0, 1.0], ..config() });
    let moved = levels(&Dmd2Config { score_range: [0.0, 1.0], shift: 5.0, ..config() });
    let kept = levels(&Dmd2Config { score_range: [0.3, 0.6], ..config() });
    for (even, (moved, kept)) in even.iter().zip(moved.iter().zip(&kept)) {
        assert!((5.0 * even / (1.0 + 4.0 * even) - moved).abs() < 1e-5);
        assert!((even.clamp(0.3, 0.6) - kept).abs() < 1e-6);
    }
    let mean = even.iter().sum::<f32>() / even.len() as f32;
    assert!((mean - 0.5).abs() < 0.05, "{mean}");
}

#[test]
fn warping_moves_the_students_timesteps_by_the_same_shift() {
    let warped = Dmd2Config { warp: true, shift: 3.0, ..config() };
    let steps = warped.student_timesteps(&Process::Flow);
    let want = [1000.0, 900.0, 750.0, 500.0];
    assert!(steps.iter().zip(want).all(|(step, want)| (step - want).abs() < 1e-9), "{steps:?}");
    assert_eq!(config().student_timesteps(&Process::Flow), config().timesteps);
}

/// From data, the student sees them noised to one of its timesteps.
#[test]
fn a_rollout_from_data_starts_from_them() {
    let data = Dmd2Config { rollout: Rollout::Data, student_every: 1, ..config() };
    let (method, counts) = counted(data.clone());
    let mut method = method.unwrap();
    let first = accumulate(&mut method, &batch(0, 2, 3), (1, 0, 1.0)).unwrap();
    assert_eq!(counts[0].take(), [0, 1]);
    let other = accumulate(&mut self::method(data), &batch(7, 2, 3), (1, 0, 1.0)).unwrap();
    assert_ne!(first.losses[0].values, other.losses[0].values);
}

/// FastVideo turns what is not a number into nought and goes on.
#[test]
fn what_is_not_a_number_is_not_hidden() {
    let config = Dmd2Config { student_every: 1, ..config() };
    let mut broken = store(&TINY, "teacher");
    let nan: Tensor<1> = tensor("nan", [3]) * f32::NAN;
    broken.insert("head.bias", Parameter::new(nan));
    let roles = Dmd2Roles {
        student: trained("student", Arc::new(TINY), store(&TINY, "teacher")),
        teacher: frozen(Arc::new(TINY), broken),
        critic: trained("critic", Arc::new(TINY), store(&TINY, "critic")),
    };
    let negative = Some(Context { tokens: tensor("negative", [1, 2, 4]), mask: None, image: None });
    let own = strategy(json!({ "name": "text_to_video" }));
    let method = Dmd2::new(roles, own, Process::Flow, config, negative).unwrap();
    let before = values(&method.roles.student.store().get("head.weight").unwrap().values);
    let (mut trainer, reports) = run(method, 2);
    // A run whose last updates were all skipped has not done what was asked for.
    let ended = trainer.run();
    assert!(matches!(ended, Err(train::Error::Unlearnt { skipped: 2, .. })), "{ended:?}");
    let student = trainer.method().role(STUDENT).unwrap();
    assert_eq!(values(&student.store().get("head.weight").unwrap().values), before);
    assert_eq!((student.updates(), student.skipped()), (0, 2));
    assert_eq!(trainer.method().role("critic").unwrap().updates(), 2);
    let outcomes: Vec<Outcome> = reports.lock().unwrap().clone();
    assert_eq!(
        outcomes,
        [Outcome::LossNotFinite, Outcome::Updated, Outcome::LossNotFinite, Outcome::Updated]
    );
}

type Outcomes = Arc<std::sync::Mutex<Vec<Outcome>>>;

struct Watch(Outcomes);

impl train::Callback for Watch {
    fn name(&self) -> &str {
        "watch"
    }

    fn on(&mut self, event: &train::Event<'_>, _: &dyn Method) -> train::Result<()> {
        if let train::Event::Stepped { report } = event {
            self.0.lock().unwrap().extend(report.roles.iter().map(|role| role.outcome));
        }
        Ok(())
    }
}

fn run(method: Dmd2, steps: u64) -> (Trainer, Outcomes) {
    let outcomes = Outcomes::default();
    let parts = Parts {
        method: Box::new(method),
        feed: Box::new(Clips(Box::new(|| batch(0, 2, 3)))),
        callbacks: vec![Box::new(Watch(Arc::clone(&outcomes)))],
        checkpoints: None,
    };
    let config = LoopConfig { steps, accumulation: 1, seed: 3, clip: Some(10.0) };
    (Trainer::new(config, parts).unwrap(), outcomes)
}

/// A student that samples what the critic has learnt is not pulled anywhere.
#[test]
fn the_critic_learns_what_the_student_makes() {
    let config = Dmd2Config { student_every: 1000, ..config() };
    let mut method = method(config);
    let mut losses = Vec::new();
    for iteration in 1..=60 {
        let report = accumulate(&mut method, &batch(0, 4, 3), (iteration, 0, 1.0)).unwrap();
        let values = &report.losses[0].values;
        losses.push(values.iter().sum::<f32>() / values.len() as f32);
        assert_eq!((report.losses.len(), report.losses[0].role), (1, "critic"));
        // What the trainer does, on the critic alone.
        descend(&mut method.roles.critic);
    }
    let mean = |part: &[f32]| part.iter().sum::<f32>() / part.len() as f32;
    let (early, late) = (mean(&losses[..10]), mean(&losses[50..]));
    assert!(late < 0.8 * early, "{early} to {late}");
}

/// Gradients are small steps of a role that only tests may take.
fn descend(role: &mut train::Trained) {
    let gradients = std::mem::take(role.gradients_mut());
    let mut store = role.store().clone();
    for (name, gradient) in gradients {
        let own = store.get(&name).unwrap().clone();
        let moved = Parameter { values: own.values - gradient * 0.02, shape: own.shape };
        store.insert(name, moved);
    }
    let network = Arc::clone(role.network());
    *role = trained(role.name(), network, store);
}

#[test]
fn what_cannot_be_is_refused_before_any_work() {
    let refused = |config: Dmd2Config| counted(config).0.map(drop).unwrap_err().to_string();
    assert!(refused(Dmd2Config { student_every: 0, ..config() }).contains("student_every is 0"));
    let rising = Dmd2Config { timesteps: vec![500.0, 750.0], ..config() };
    assert!(refused(rising).contains("750"));
    assert!(!refused(Dmd2Config { timesteps: vec![], ..config() }).is_empty());
    let range = Dmd2Config { score_range: [0.9, 0.1], ..config() };
    assert!(refused(range).contains("score_range"));
    // A shift of nought made a grid of nothing in FastVideo.
    assert!(refused(Dmd2Config { shift: 0.0, ..config() }).contains("method.shift is 0"));
    let roles = || Dmd2Roles {
        student: trained("student", Arc::new(TINY), store(&TINY, "teacher")),
        teacher: frozen(Arc::new(TINY), store(&TINY, "teacher")),
        critic: trained("critic", Arc::new(TINY), store(&TINY, "critic")),
    };
    let own = || strategy(json!({ "name": "text_to_video" }));
    let message = Dmd2::new(roles(), own(), Process::Flow, config(), None).map(drop);
    assert!(message.unwrap_err().to_string().contains("negative prompt"));
    let mut swapped = roles();
    std::mem::swap(&mut swapped.student, &mut swapped.critic);
    let plain = Dmd2Config { guidance: 1.0, ..config() };
    let message = Dmd2::new(swapped, own(), Process::Flow, plain, None).map(drop);
    assert!(message.unwrap_err().to_string().contains("must be called `student`"));
    let parse = |text: serde_json::Value| serde_json::from_value::<Dmd2Config>(text);
    let least = json!({ "rollout": "simulate", "timesteps": [1000.0, 500.0] });
    let read = parse(least.clone()).unwrap();
    assert_eq!((read.student_every, read.guidance, read.score_range), (1, 1.0, [0.0, 1.0]));
    let mut unknown = least;
    unknown["generator_update_interval"] = json!(5);
    assert!(parse(unknown).is_err());
}
