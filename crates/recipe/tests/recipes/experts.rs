//! Both experts of a folder in one run: each learns at its own levels what it learns in a run of its own.

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::Device;
use methods::Turns;
use recipe::{ExpertConfig, FREE, Model, Recipe, Student, Which};
use testkit::numbers::bits;
use train::{STUDENT, StateDict, StepReport, Trainer, Value};

use crate::building::{WAN, build, dataset, folder, no_hub, read, small};

const HIGH: &str = "student-high";
const LOW: &str = "student-low";

/// Two experts as a recipe trains them.
fn recipe(data: &Path, expert: &str, more: &[&str]) -> Recipe {
    let mut overrides = small("wan-tiny-experts", data, &[STUDENT]);
    overrides.push(format!("models.student.expert={expert}"));
    overrides.push("callbacks={ema: [{decay: 0.9}, {decay: 0.99}]}".to_owned());
    overrides.push("models.student.rate.peak=1.0e-2".to_owned());
    overrides.push("checkpoint={every: 4, keep_last: 9}".to_owned());
    overrides.extend(more.iter().map(|text| (*text).to_owned()));
    read("wan22-expert-lora.yaml", &overrides)
}

fn tensors(state: &StateDict) -> BTreeMap<String, Vec<u32>> {
    let tensor = |(name, value): (&str, &Value)| match value {
        Value::Tensor(own) => Some((name.to_owned(), bits(&own.values))),
        Value::Number(number) => Some((name.to_owned(), vec![*number as u32])),
    };
    state.iter().filter_map(tensor).collect()
}

/// What changed from one state to another, by role.
fn moved(before: &StateDict, after: &StateDict, role: &str) -> usize {
    let (before, after) = (tensors(before), tensors(after));
    let own = after.iter().filter(|(name, _)| name.contains(&format!(".{role}.")));
    own.filter(|(name, value)| before.get(*name) != Some(*value)).count()
}

/// One role learns in a step and nothing of the other moves: weights, optimizer, schedule, averages. As many steps are
/// an expert's as it has levels.
#[test]
fn experts_take_turns() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    dataset(&data, "wan-tiny-experts", [1, 4, 4], WAN, false);
    let levels = "levels={video: {kind: uniform, lowest: 0.5, shift: 1.0}}";
    let recipe = recipe(&data, "both", &["loop.steps=24", levels]);
    let mut trainer = build(&recipe, None).unwrap().trainer;
    let model = Model::open_expert(
        Path::new(&folder("wan-tiny-experts")),
        Some(ExpertConfig::High),
        &Device::flex(),
    );
    let boundary = model.unwrap().description.expert_levels(0)[0] as f32;
    let mut before = StateDict::new();
    let mut turns = BTreeMap::from([(HIGH, 0), (LOW, 0)]);
    for step in 0..24 {
        let StepReport { losses, buckets, roles, .. } = trainer.advance().unwrap();
        let [role] = &roles[..] else { panic!("one role learns in a step") };
        let (other, loss) = match role.role {
            HIGH => (LOW, "loss.high"),
            _ => (HIGH, "loss.low"),
        };
        assert_eq!(losses.keys().collect::<Vec<_>>(), [loss]);
        let is_own =
            |from: f32, to: f32| if loss == "loss.high" { to > boundary } else { from < boundary };
        assert!(buckets.iter().all(|own| is_own(own.from, own.to)), "{loss}: {buckets:?}");
        let state = trainer.state();
        if step > 0 {
            assert!(moved(&before, &state, role.role) > 0, "step {step}: the {} learns", role.role);
            assert_eq!(moved(&before, &state, other), 0, "step {step}: the {other} waits");
        }
        before = state;
        *turns.get_mut(role.role).unwrap() += 1u64;
    }
    // Of levels from 0.5 on a quarter lies beyond 0.875.
    assert!((2..=12).contains(&turns[HIGH]), "{turns:?}");
    for (role, updates) in turns {
        assert_eq!(trainer.method().role(role).unwrap().updates(), updates);
    }
}

/// Turns follow the share, and depend on the seed and the step alone.
#[test]
fn turns_are_as_many_as_the_share() {
    for high in [0.1, 0.37, 0.8] {
        let counts = [3, 4].map(|seed| {
            let turns = Turns::new(seed, high);
            assert_eq!(turns.of(0, 5000) + turns.of(1, 5000), 5000);
            assert_eq!(turns, Turns::new(seed, high));
            turns.of(0, 5000) as f64 / 5000.0
        });
        // Four deviations of so many draws.
        let bound = 4.0 * (high * (1.0 - high) / 5000.0f64).sqrt();
        assert!(counts.iter().all(|share| (share - high).abs() < bound), "{high}: {counts:?}");
        assert_ne!(counts[0], counts[1]);
    }
}

/// The first step of either expert is, to the bit, that of a run which trains it alone.
#[test]
fn a_turn_is_a_step_of_a_run_of_its_own() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    dataset(&data, "wan-tiny-experts", [1, 4, 4], WAN, false);
    let learnt = |trainer: &Trainer, role: &str| -> Vec<(String, Vec<u32>)> {
        let role = trainer.method().role(role).unwrap();
        role.learnt().map(|(name, own)| (name.to_owned(), bits(&own.values))).collect()
    };
    let mut seen = BTreeMap::new();
    for seed in 0..40 {
        let seed = format!("loop.seed={seed}");
        let more = ["loop.steps=64", seed.as_str()];
        let mut both = build(&recipe(&data, "both", &more), None).unwrap().trainer;
        let report = both.advance().unwrap();
        let (role, expert) = match report.roles[0].role {
            HIGH => (HIGH, "high"),
            _ => (LOW, "low"),
        };
        if seen.insert(expert, seed.clone()).is_some() {
            continue;
        }
        let mut alone = build(&recipe(&data, expert, &more), None).unwrap().trainer;
        let own = alone.advance().unwrap();
        assert_eq!(report.losses[&format!("loss.{expert}")], own.losses["loss"]);
        assert_eq!(report.roles[0].gradient_norm, own.roles[0].gradient_norm);
        assert!(learnt(&both, role) == learnt(&alone, STUDENT), "{expert}");
    }
    assert_eq!(seen.len(), 2, "both experts have a first step among them: {seen:?}");
}

/// A run that was stopped ends with the bits of one that was not, on whole networks.
#[test]
fn both_go_on_to_the_bit_and_are_exported() {
    let temporary = tempfile::tempdir().unwrap();
    let path = |name: &str| temporary.path().join(name);
    dataset(&path("data"), "wan-tiny-experts", [1, 4, 4], WAN, false);
    let all = ["models.student.learns={kind: all}", "loop.steps=12"];
    let whole = recipe(&path("data"), "both", &all);
    let mut trainer = build(&whole, Some(&path("whole"))).unwrap().trainer;
    trainer.run().unwrap();
    let first = recipe(&path("data"), "both", &[&all[..], &["loop.steps=8"]].concat());
    build(&first, Some(&path("parts"))).unwrap().trainer.run().unwrap();
    let mut parts = build(&whole, Some(&path("parts"))).unwrap().trainer;
    assert_eq!(parts.resume(&FREE, &Device::flex()).unwrap().unwrap().step, 8);
    parts.run().unwrap();
    assert!(tensors(&parts.state()) == tensors(&trainer.state()), "the states differ");

    // The folder holds both, the averages too; single files are told apart by their names.
    let open = |which| Student::open(&path("whole"), which, &Device::flex(), &no_hub()).unwrap();
    for (name, which) in [("live", Which::Live), ("average", Which::Decay(0.99))] {
        open(which).write_folder(&path(name)).unwrap();
        for (role, component) in [(HIGH, "transformer"), (LOW, "transformer_2")] {
            let file = path(name).join(component).join("diffusion_pytorch_model.safetensors");
            let store = nn::Store::open(&[file], nn::Precision::Stored, &Device::flex()).unwrap();
            let below = match which {
                Which::Live => format!("roles.{role}.transformer."),
                _ => format!("callbacks.ema-0.99{}.{role}.", &role[STUDENT.len()..]),
            };
            let state = trainer.state();
            let mut compared = 0;
            for (key, value) in state.iter() {
                let (Some(name), Value::Tensor(own)) = (key.strip_prefix(&below), value) else {
                    continue;
                };
                assert!(bits(&store.get(name).unwrap().values) == bits(&own.values), "{key}");
                compared += 1;
            }
            assert!(compared > 30, "{role}: {compared} tensors of {below}");
        }
    }
    let student = open(Which::Live);
    let files = student.files(&path("wan.safetensors"));
    assert_eq!(files, [path("wan-high.safetensors"), path("wan-low.safetensors")]);
    student.write_file(&path("wan.safetensors"), recipe::Dialect::Diffusers).unwrap();
    assert!(files.iter().all(|file| file.is_file()) && !path("wan.safetensors").exists());
    let low = open(Which::Live).only(ExpertConfig::Low).unwrap();
    assert_eq!(low.files(&path("one.safetensors")), [path("one.safetensors")]);
    low.write_file(&path("one.safetensors"), recipe::Dialect::Diffusers).unwrap();
    let bytes = |name: &str| std::fs::read(path(name)).unwrap();
    assert!(bytes("one.safetensors") == bytes("wan-low.safetensors"));
    assert!(bytes("one.safetensors") != bytes("wan-high.safetensors"));
    // Half of a pair that is there is not overwritten, and the other half not written.
    std::fs::remove_file(path("wan-high.safetensors")).unwrap();
    assert!(student.write_file(&path("wan.safetensors"), recipe::Dialect::Diffusers).is_err());
    assert!(!path("wan-high.safetensors").exists());
}

/// What two experts cannot do is refused with what to do instead.
#[test]
fn what_both_cannot_do_is_refused() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    dataset(&data, "wan-tiny-experts", [1, 4, 4], WAN, false);
    let uniform = |low: f64, high: f64| {
        format!("levels={{video: {{kind: uniform, lowest: {low}, highest: {high}}}}}")
    };
    let built = [
        (uniform(0.9, 1.0), "nothing on one side of the boundary at 0.875"),
        (uniform(0.0, 0.8), "nothing on one side of the boundary at 0.875"),
        (uniform(0.0, 0.8751), "expert's, which has 0.0 % of levels.video; raise loop.steps"),
        (
            "models.student.rate.warmup=19".to_owned(),
            "models.student.rate.warmup is 19, but this role is updated only",
        ),
        ("callbacks={ema: {start: 19}}".to_owned(), "callbacks.ema.start: the student-"),
    ];
    for (more, want) in built {
        let recipe = recipe(&data, "both", &["loop.steps=20", &more]);
        let message = build(&recipe, None).err().expect("it is refused").to_string();
        assert!(message.contains(want), "{more}: {message}");
    }
    let weights = format!("models.student.weights={}", folder("wan_training.safetensors"));
    let read = [
        (
            "method={name: diffusion_forcing}",
            "method diffusion_forcing draws noise levels of its own",
        ),
        ("levels={video: {kind: shifted_logit_normal}}", "depends on the number of tokens"),
        (weights.as_str(), "models.student.weights is the file of one transformer"),
        (
            "models.student.learns.from=a.safetensors",
            "models.student.learns.from is the LoRA of one transformer",
        ),
    ];
    for (more, want) in read {
        let mut overrides = small("wan-tiny-experts", &data, &[STUDENT]);
        let usual = ["models.student.expert=both", "callbacks={}", "levels={}", more];
        overrides.extend(usual.map(str::to_owned));
        let message = crate::building::try_read("wan22-expert-lora.yaml", &overrides)
            .unwrap_err()
            .to_string();
        assert!(message.contains(want), "{more}: {message}");
    }
    let one = recipe(&data, "both", &[&format!("models.student.from={}", folder("wan-tiny"))]);
    let message = build(&one, None).err().expect("it has one transformer").to_string();
    assert!(message.contains("the folder has one transformer"), "{message}");
}
