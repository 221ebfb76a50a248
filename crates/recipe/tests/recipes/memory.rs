//! What `--dry-run` says a run holds is what it holds, byte for byte.

use std::path::Path;

use burn::tensor::{DType, Device};
use recipe::{Memory, Recipe, Student, Which};
use train::{OptimizerConfig, STUDENT, StateDict, Value};

use crate::building::{WAN, build, dataset, folder, no_hub, read, small, tiny, try_read};
use crate::lora::half;

fn memory(recipe: &Recipe) -> Memory {
    recipe.memory(comm::MeshShape::default(), &Device::flex(), &no_hub()).unwrap()
}

/// Bytes of all tensors below a name.
fn bytes(state: &StateDict, below: &str) -> u64 {
    let inside = state.iter().filter(|(name, _)| name.starts_with(below));
    let tensors = inside.filter_map(|(_, value)| match value {
        Value::Tensor(parameter) => Some(parameter.bytes() as u64),
        Value::Number(_) => None,
    });
    tensors.sum()
}

/// Trains, and compares what is there afterwards with what was said before.
fn holds_what_it_said(recipe: &Recipe, run: Option<&Path>) -> Memory {
    let said = memory(recipe);
    let mut built = build(recipe, run).unwrap();
    built.trainer.run().unwrap();
    let state = built.trainer.state();
    for own in said.roles.iter().filter(|own| own.role != "teacher") {
        let role = built.trainer.method().role(&own.role).unwrap();
        let weights: usize = role.store().iter().map(|(_, parameter)| parameter.bytes()).sum();
        assert_eq!(own.weights, weights as u64, "weights of the {}", own.role);
        let learnt: usize = role.learnt().map(|(_, parameter)| parameter.bytes()).sum();
        let copies = if recipe.run.accumulation > 1 { 2 } else { 1 };
        assert_eq!(own.gradients, copies * learnt as u64, "gradients of the {}", own.role);
        let optimizer = bytes(&state, &format!("optimizers.{}.", own.role));
        assert_eq!(own.saved, optimizer, "optimizer of the {}", own.role);
        let is_coded = matches!(recipe.models.student.optimizer, OptimizerConfig::AdamW8Bit(_));
        assert!(is_coded || own.optimizer == own.saved, "optimizer of the {}", own.role);
        assert!(own.activations > 0, "activations of the {}", own.role);
    }
    assert_eq!(said.average, bytes(&state, "callbacks.ema"), "average");
    assert!(said.peak() > said.program + said.held());
    said
}

fn quickstart(optimizer: &str, more: &[&str]) -> Recipe {
    let mut overrides = tiny();
    overrides.push(format!("models.student.optimizer={optimizer}"));
    overrides.extend(more.iter().map(|text| (*text).to_owned()));
    read("quickstart.yaml", &overrides)
}

#[test]
fn optimizers_and_averages_are_counted() {
    let kinds = ["{kind: adamw}", "{kind: muon}", "{kind: sgd}", "{kind: adamw8bit}"];
    let [adamw, muon, sgd, coded] = kinds.map(|optimizer| {
        let said = holds_what_it_said(&quickstart(optimizer, &[]), None);
        assert!(said.average > 0);
        said.roles[0].clone()
    });
    assert_eq!(adamw.optimizer, 2 * adamw.weights);
    assert_eq!(sgd.optimizer, sgd.weights);
    // Large matrices have a byte for each mean and number, and four for 256 of them; the rest stays in f32.
    assert_eq!(coded.saved, adamw.saved);
    let large = [6144, 6144].map(|numbers| 8 * numbers - 2 * (numbers + 4 * (numbers / 256)));
    assert_eq!(adamw.optimizer - coded.optimizer, large.iter().sum::<u64>());
    // Momentum for the matrices of the blocks, two means for the rest.
    assert!(sgd.optimizer < muon.optimizer && muon.optimizer < adamw.optimizer);
    let without = quickstart("{kind: adamw}", &["callbacks.ema=null", "loop.accumulation=2"]);
    assert_eq!(holds_what_it_said(&without, None).average, 0);
}

#[test]
fn what_learns_is_widened_and_the_rest_is_as_stored() {
    let temporary = tempfile::tempdir().unwrap();
    let [data, base] = ["data", "base"].map(|name| temporary.path().join(name));
    dataset(&data, "wan-tiny", [2, 4, 6], WAN, false);
    half(&base);
    let from = format!("models.student.from={}", base.display());
    let weights = |name: &str, learns: Option<&str>| {
        let mut overrides = small("wan-tiny", &data, &[STUDENT]);
        overrides.push(from.clone());
        overrides.extend(learns.map(|learns| format!("models.student.learns={learns}")));
        holds_what_it_said(&read(name, &overrides), None).roles[0].weights
    };
    let all = weights("wan-full.yaml", None);
    let some = weights("wan-full.yaml", Some("{kind: only, patterns: [attn1.to_q]}"));
    let lora = weights("wan-lora.yaml", None);
    let stored = recipe::Model::open(&base, &Device::flex()).unwrap();
    assert!(stored.store.iter().all(|(_, own)| own.values.dtype() == DType::BF16));
    let half: u64 = stored.store.iter().map(|(_, own)| own.bytes() as u64).sum();
    assert_eq!(all, 2 * half);
    assert!(half < some && some < all);
    assert!(half < lora);
}

/// Both experts are held, with optimizers and averages; gradients are of one at a time.
#[test]
fn both_experts_are_counted() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    dataset(&data, "wan-tiny-experts", [2, 4, 6], WAN, false);
    let recipe = |expert: &str| {
        let mut overrides = small("wan-tiny-experts", &data, &[STUDENT]);
        let more = ["loop.steps=12", "callbacks={ema: {decay: 0.9}}"].map(str::to_owned);
        overrides.extend(more);
        overrides.push(format!("models.student.expert={expert}"));
        read("wan22-expert-lora.yaml", &overrides)
    };
    let both = holds_what_it_said(&recipe("both"), None);
    let [high, low] = ["high", "low"].map(|expert| memory(&recipe(expert)));
    let names: Vec<&str> = both.roles.iter().map(|own| own.role.as_str()).collect();
    assert_eq!(names, ["student-high", "student-low"]);
    assert_eq!(both.held(), high.held() + low.held());
    // A step of both is a step of one, with the other one beside it.
    let step = |said: &Memory| said.phases[0].bytes;
    let lost = |bytes: u64| bytes + bytes / 10;
    let beside = low.roles[0].mapped + lost(low.held() - low.roles[0].mapped);
    assert!(step(&both).abs_diff(step(&high) + beside) <= 1, "{both:?}");
}

#[test]
fn phases_are_not_added_up() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    dataset(&data, "wan-tiny", [2, 4, 6], WAN, false);
    let roles = [STUDENT, "teacher", "critic"];
    let said = memory(&read("dmd2.yaml", &small("wan-tiny", &data, &roles)));
    let names: Vec<_> = said.phases.iter().map(|phase| phase.name).collect();
    assert_eq!(names, ["negative prompt", "training", "validation"]);
    let [negative, training, validation] = [0, 1, 2].map(|phase| said.phases[phase].bytes);
    let encoder = Path::new(&folder("wan-tiny")).join("text_encoder/model.safetensors");
    let encoder = std::fs::metadata(encoder).unwrap().len();
    assert_eq!(negative, said.program + encoder, "the encoder is gone before training");
    assert!(training > said.program + said.held());
    assert!(validation > training, "what a step has freed is still the process's own");
    assert_eq!(said.peak(), validation);
    assert_eq!(said.snapshot, 0, "only the last step is saved");
    let overrides = [small("wan-tiny", &data, &roles), vec!["checkpoint.every=1".to_owned()]];
    let often = memory(&read("dmd2.yaml", &overrides.concat()));
    let learnt = often.roles.iter().map(|role| role.gradients + role.optimizer).sum::<u64>();
    assert_eq!(often.snapshot, learnt + often.average);
}

/// A step costs what its passes cost, of which a rank has its share.
#[test]
fn the_cost_of_a_step_is_that_of_its_passes() {
    use comm::{Axis, MeshShape};
    let with = |more: &[&str]| quickstart("{kind: adamw}", &[&["data.batch=4"], more].concat());
    let effort = |recipe: &Recipe, mesh: MeshShape| {
        recipe.memory(mesh, &Device::flex(), &no_hub()).unwrap().effort()
    };
    let alone = MeshShape::default();
    let one = effort(&with(&[]), alone);
    assert!(one.operations > 1e6 && one.sent == 0.0, "{one:?}");
    let near = |got: f64, want: f64| assert!((got / want - 1.0).abs() < 1e-9, "{got} {want}");
    near(effort(&with(&["data.batch=8"]), alone).operations, 2.0 * one.operations);
    near(effort(&with(&["loop.accumulation=3"]), alone).operations, 3.0 * one.operations);
    // There once more, beside there, back to the inputs and back to the weights.
    let again = with(&["models.student.recompute={kind: per-block}"]);
    near(effort(&again, alone).operations, one.operations * 4.0 / 3.0);
    let two = |axis| alone.with(axis, 2);
    for axis in [Axis::Data, Axis::Ulysses, Axis::Ring, Axis::Tensor] {
        near(effort(&with(&[]), two(axis)).operations, one.operations / 2.0);
    }
    // All that learns is lent once where graphs are kept, and twice where blocks run again; half of it is one's own, and half
    // of the gradients is the other's.
    let store = build(&with(&[]), None).unwrap();
    let role = store.trainer.method().role(STUDENT).unwrap();
    let bytes: usize = role.learnt().map(|(_, own)| own.bytes()).sum();
    near(effort(&with(&[]), two(Axis::Data)).sent, bytes as f64);
    near(effort(&again, two(Axis::Data)).sent, bytes as f64 * 1.5);
    near(effort(&with(&["parallel.shard=1"]), two(Axis::Data)).sent, bytes as f64);
}

/// A dry run begins as its run does: it refuses what that refuses, and nothing else.
#[test]
fn a_dry_run_refuses_what_its_run_refuses() {
    let temporary = tempfile::tempdir().unwrap();
    let (run, model) = (temporary.path().join("run"), temporary.path().join("model"));
    build(&read("quickstart.yaml", &tiny()), Some(&run)).unwrap().trainer.run().unwrap();
    let student = Student::open(&run, Which::Live, &Device::flex(), &no_hub()).unwrap();
    student.write_folder(&model).unwrap();
    let with = |more: &[&str]| {
        let mut overrides: Vec<String> = tiny()[1..].to_vec();
        overrides.push(format!("models.student={{from: {}, rate: {{peak: 1}}}}", model.display()));
        overrides.push(
            "callbacks.validation={every: 1, prompts: [a red circle moves left], steps: 1}".into(),
        );
        overrides.extend(more.iter().map(|text| (*text).to_owned()));
        try_read("quickstart.yaml", &overrides)
    };
    // A folder without a VAE is looked at too.
    holds_what_it_said(&with(&[]).unwrap(), Some(&temporary.path().join("again")));
    for (argument, wanted) in [
        ("data.batch=0", "batch"),
        ("loop.accumulation=0", "`loop.accumulation` is 0"),
        ("loop.clip=0", "`loop.clip` is 0"),
        ("data.caption_dropout=2", "dropout"),
        ("callbacks.ema.decay=1.5", "ema.decay` is 1.5"),
        ("levels.video={kind: uniform, lowest: 0.9, highest: 0.1}", "0.9"),
        ("models.student.rate.warmup=9", "`models.student.rate.warmup` is 9"),
        ("models.student.learns={kind: only, patterns: [nothing]}", "`nothing` matches"),
    ] {
        // Most is refused as it is read, by both alike.
        let recipe = match with(&[argument]) {
            Ok(recipe) => recipe,
            Err(error) => {
                assert!(error.to_string().contains(wanted), "{argument}: {error}");
                continue;
            }
        };
        let refused = build(&recipe, None).err().expect(argument).to_string();
        assert!(refused.contains(wanted), "{argument}: {refused}");
        let dry = recipe
            .memory(comm::MeshShape::default(), &Device::flex(), &no_hub())
            .expect_err(argument)
            .to_string();
        assert_eq!(dry, refused, "{argument}");
    }
}
