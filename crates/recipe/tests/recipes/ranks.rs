//! Recipes on several ranks: every method learns there what it learns on one.

mod cases;
#[cfg(feature = "mpi")]
mod processes;
mod resumed;
mod table;

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::Device;
use comm::{Group, Mesh, on_ranks};
use recipe::{FREE, Recipe, Student, Which};
use testkit::numbers::{bits, values};
use train::{Ranks, STUDENT, StateDict, StepReport, Value};

use self::cases::{ADAMW, Case, Law, NAMES, SGD};

use crate::building::{WAN, build, build_on, dataset, no_hub, read, small, tiny, try_read};

/// Steps of 24 samples: two micro-batches, which 2, 3, 4 and 6 ranks share evenly.
fn steps(overrides: &mut Vec<String>) {
    let more = ["loop.steps=5", "loop.accumulation=2", "data.batch=12", "data.partial=drop"];
    overrides.extend(more.map(str::to_owned));
}

/// The recipes that the law holds for, by what they are about, each with an optimizer for all roles.
fn recipes(data: &Path, optimizer: &str) -> Vec<(&'static str, Recipe)> {
    let sgd = |role: &str| format!("models.{role}.optimizer={optimizer}");
    let mut seen = tiny();
    let begun = experienced(data, "duet", "quickstart.yaml", &tiny());
    steps(&mut seen);
    seen.extend(begun.into_iter().chain([sgd(STUDENT)]));
    let shapes = |more: &[&str]| {
        let more = more.iter().map(|text| (*text).to_owned());
        read("quickstart.yaml", &seen.iter().cloned().chain(more).collect::<Vec<_>>())
    };
    let stored = |name: &str, roles: &[&str]| {
        let mut overrides = small("wan-tiny", data, roles);
        steps(&mut overrides);
        overrides.push("callbacks={ema: {decay: 0.9}}".to_owned());
        overrides.push(format!(
            "data.source={{kind: mix, of: [{{path: {}, repeats: 5}}]}}",
            data.display()
        ));
        for role in roles.iter().filter(|role| **role != "teacher") {
            // Weights move by more than they may differ.
            overrides.extend([sgd(role), format!("models.{role}.rate.peak=0.02")]);
        }
        if roles.contains(&"teacher") {
            // Iterations with the student and without it.
            overrides.push("method.student_every=2".to_owned());
        }
        read(name, &overrides)
    };
    let forcing = ["method={name: diffusion_forcing}", "levels={}"];
    let mut sound = tiny();
    sound[0] = "models.student.new={family: duet, video_channels: 384, audio_channels: 250, text_width: 64, \
                heads: 2, head_width: 8, depth: 2}"
        .to_owned();
    let begun = experienced(data, "sounding", "learn/sound.yaml", &sound);
    steps(&mut sound);
    sound.extend(begun.into_iter().chain([sgd(STUDENT)]));
    // What stands in those files is begun from another model, and a warm-up of its own.
    let heard = |name: &str, more: &[&str]| {
        let is_seen = name.contains("inpaint");
        let overrides = if is_seen { seen.clone() } else { sound.clone() };
        let own = overrides.into_iter().filter(|set| !set.starts_with("models.student.new"));
        let more = more.iter().map(|text| (*text).to_owned());
        read(name, &own.chain(more).collect::<Vec<_>>())
    };
    let all = [
        shapes(&[]),
        shapes(&forcing),
        stored("wan-lora.yaml", &[STUDENT]),
        stored("dmd2.yaml", &[STUDENT, "teacher", "critic"]),
        both_experts(data, optimizer),
        stored("ic-lora.yaml", &[STUDENT]),
        read("learn/sound.yaml", &sound),
        heard("learn/inpaint.yaml", &[]),
        heard("learn/sound-of-video.yaml", &[]),
        heard("learn/sound-of-video.yaml", &["strategy={name: text_to_audio}"]),
    ];
    NAMES.into_iter().zip(all).collect()
}

/// A network of the shapes world that has learnt for a while, which a recipe is to begin from: a new one begins with
/// layers of zeros, behind which all gradients are zero and no layout can get one wrong.
fn experienced(data: &Path, name: &str, recipe: &str, overrides: &[String]) -> [String; 2] {
    let [run, model] = ["run", "model"].map(|part| data.with_file_name(format!("{name}-{part}")));
    if !model.exists() {
        let mut overrides = overrides.to_vec();
        overrides.extend(["loop.steps=60", "callbacks={}", "data.batch=4"].map(str::to_owned));
        build(&read(recipe, &overrides), Some(&run)).unwrap().trainer.run().unwrap();
        let student = Student::open(&run, Which::Live, &Device::flex(), &no_hub()).unwrap();
        student.write_folder(&model).unwrap();
    }
    ["models.student.new=null".to_owned(), format!("models.student.from={}", model.display())]
}

/// Every network of the law has gradients that a wrong exchange would change.
#[test]
fn the_law_is_about_gradients_that_are_there() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    dataset(&data, "wan-tiny", [2, 4, 6], WAN, true);
    for (what, recipe) in recipes(&data, "{kind: sgd, momentum: 0.9}") {
        let own = run(&recipe, Ranks::alone());
        let norm =
            |values: &[f32]| values.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        let moved = own.tensors.iter().filter(|(name, _)| name.ends_with(".momentum_buffer"));
        let norms: Vec<f64> = moved.map(|(_, values)| norm(values)).collect();
        let all = norms.iter().map(|own| own.powi(2)).sum::<f64>().sqrt();
        let there = norms.iter().filter(|own| **own > 100.0 * floor_of(what) * all).count();
        // Of a LoRA that begins as nothing half have none at their first step.
        // Where a sound is all that is made, the voice that makes the video has none, or few.
        let share = if what.contains("sound of") || what.contains("to audio") { 5 } else { 2 };
        assert!(share * there > norms.len(), "{what}: {there} of {}", norms.len());
    }
}

/// Two experts that take turns, with two averages of which one has a dot in its name.
fn both_experts(data: &Path, optimizer: &str) -> Recipe {
    let own = data.with_file_name("experts");
    if !own.exists() {
        dataset(&own, "wan-tiny-experts", [2, 4, 6], WAN, false);
    }
    let mut overrides = small("wan-tiny-experts", &own, &[STUDENT]);
    steps(&mut overrides);
    let more = [
        "models.student.expert=both".to_owned(),
        format!("models.student.optimizer={optimizer}"),
        "models.student.rate.peak=0.02".to_owned(),
        "levels={video: {kind: uniform, lowest: 0.75}}".to_owned(),
        "callbacks={ema: [{decay: 0.9}, {decay: 0.99}]}".to_owned(),
        format!("data.source={{kind: mix, of: [{{path: {}, repeats: 5}}]}}", own.display()),
    ];
    overrides.extend(more);
    read("wan22-expert-lora.yaml", &overrides)
}

/// What a rank ends with.
#[derive(Clone)]
struct Ended {
    reports: Vec<StepReport>,
    /// What SGD remembers after the first step: the clipped gradients.
    gradients: BTreeMap<String, Vec<f32>>,
    tensors: BTreeMap<String, Vec<f32>>,
    bits: BTreeMap<String, Vec<u32>>,
}

fn run(recipe: &Recipe, ranks: Ranks) -> Ended {
    let mut trainer = build_on(recipe, None, ranks).unwrap().trainer;
    trainer.resume(&FREE, &Device::flex()).unwrap();
    let timeless = |report| StepReport { seconds: 0.0, ..report };
    let mut reports = vec![timeless(trainer.advance().unwrap())];
    let first = trainer.state();
    let gradients = first.iter().filter_map(|(name, value)| match value {
        Value::Tensor(own) if name.ends_with(".momentum_buffer") => {
            Some((name.to_owned(), values(&own.values)))
        }
        _ => None,
    });
    let gradients = gradients.collect();
    drop(first);
    reports.extend((1..recipe.run.steps).map(|_| timeless(trainer.advance().unwrap())));
    let state = trainer.state();
    Ended { reports, gradients, bits: bits_of(&state), tensors: tensors_of(&state) }
}

/// The tensors of a state by name.
fn tensors_of(state: &StateDict) -> Tensors {
    let tensors = state.iter().filter_map(|(name, value)| match value {
        Value::Tensor(own) => Some((name.to_owned(), values(&own.values))),
        Value::Number(_) => None,
    });
    tensors.collect()
}

/// The same by their bits.
fn bits_of(state: &StateDict) -> BTreeMap<String, Vec<u32>> {
    let tensors = state.iter().filter_map(|(name, value)| match value {
        Value::Tensor(own) => Some((name.to_owned(), bits(&own.values))),
        Value::Number(_) => None,
    });
    tensors.collect()
}

/// The ranks of a group as the recipe lays them out.
fn ranks_of(recipe: &Recipe, group: Group) -> Ranks {
    let shape = recipe.mesh(Some(group.size())).unwrap();
    Ranks::over(Mesh::of(group, shape).unwrap())
}

/// The run of a recipe on so many ranks, which end alike where they hold the same.
fn spread(recipe: &Recipe, ranks: usize) -> Ended {
    together(on_ranks(ranks, |group| run(recipe, ranks_of(recipe, group))))
}

/// What ranks end with together, in their order.
fn together(mut all: Vec<Ended>) -> Ended {
    let mut whole = all.remove(0);
    for other in all {
        assert!(other.reports == whole.reports, "ranks report apart");
        for (name, bits) in other.bits {
            let known = whole.bits.insert(name.clone(), bits.clone());
            assert!(known.is_none_or(|known| known == bits), "ranks end with another {name}");
        }
        whole.tensors.extend(other.tensors);
        whole.gradients.extend(other.gradients);
    }
    whole
}

/// Losses and norms within `bound`, and where weights are compared too each tensor, average, momentum and gradient
/// within 1e-5 of its norm, with a floor of 1e-7 of all of its kind.
#[track_caller]
fn near(what: &str, got: &Ended, want: &Ended, bound: f64, with_tensors: bool) {
    for (got, want) in got.reports.iter().zip(&want.reports) {
        assert_eq!((got.samples, got.tokens), (want.samples, want.tokens), "{what}");
        assert_eq!(got.losses.len(), want.losses.len(), "{what}");
        for (name, loss) in &want.losses {
            let off = (got.losses[name] - loss).abs() / loss.abs();
            assert!(off <= bound, "{what}, step {}, {name}: {off:e}", want.step);
        }
        for (got, want) in got.roles.iter().zip(&want.roles) {
            let off = (got.gradient_norm - want.gradient_norm).abs() / want.gradient_norm;
            assert!(off <= bound, "{what}, norm of the {}: {off:e}", want.role);
        }
    }
    if !with_tensors {
        return;
    }
    near_tensors(&format!("gradients of {what}"), &got.gradients, &want.gradients);
    near_tensors(what, &got.tensors, &want.tensors);
}

/// The part of the norm of all tensors of a kind that each may be off whatever its own norm is. In DMD2 the gradients of
/// the critic's biases of values are what is left of sums of thousands of padded texts: 2e-5 of their own norm, 3e-6 of
/// all, was seen.
fn floor_of(what: &str) -> f64 {
    if what.contains("DMD2") { 1e-5 } else { 1e-7 }
}

/// The tensors of a run by name.
type Tensors = BTreeMap<String, Vec<f32>>;

#[track_caller]
fn near_tensors(what: &str, got: &Tensors, want: &Tensors) {
    let norm = |values: &[f32]| values.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    let kind = |name: &str| name.split('.').take(2).collect::<Vec<_>>().join(".");
    let mut of_kind: BTreeMap<String, f64> = BTreeMap::new();
    for (name, own) in want {
        *of_kind.entry(kind(name)).or_default() += norm(own).powi(2);
    }
    assert!(!want.is_empty() && got.len() == want.len(), "{what}: {} {}", got.len(), want.len());
    let all = of_kind.values().sum::<f64>().sqrt();
    let has_weights = want.keys().any(|name| name.starts_with("roles."));
    for ((name, got), (_, want)) in got.iter().zip(want) {
        let off = norm(&got.iter().zip(want).map(|(a, b)| a - b).collect::<Vec<_>>());
        let floor = floor_of(what) * of_kind[&kind(name)].sqrt();
        assert!(off <= 1e-5 * norm(want) + floor, "{what}, {name}: {off:e} of {:e}", norm(want));
        let is_near = off <= 1e-5 * norm(want) + 1e-7 * all;
        assert!(is_near || !has_weights, "{what}, {name}: {off:e} of all {all:e}");
    }
}

/// What one rank learns, by what is learnt, with which optimizer and in how many micro-batches.
#[derive(Default)]
struct Oracle(BTreeMap<(usize, &'static str, bool), Ended>);

impl Oracle {
    /// What one rank learns where a case is about several.
    fn of(&mut self, case: &Case, recipe: &Recipe) -> &Ended {
        let key = (case.what, case.optimizer, case.layout.is_of_two());
        self.0.entry(key).or_insert_with(|| {
            let alone = Recipe { parallel: Default::default(), ..case.layout.of(recipe) };
            run(&alone, Ranks::alone())
        })
    }
}

/// Runs the cases of the law of one rank that are `wanted`.
fn as_one(wanted: impl Fn(&Case) -> bool) {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    dataset(&data, "wan-tiny", [2, 4, 6], WAN, true);
    let (all, mut oracle) = (recipes(&data, SGD), Oracle::default());
    for case in cases::of(Law::AsOne).filter(|case| case.optimizer == SGD && wanted(case)) {
        let (what, recipe) = &all[case.what];
        let got = spread(&case.layout.of(recipe), case.layout.ranks());
        let told = format!("{what} on {:?}", case.layout);
        near(&told, &got, oracle.of(&case, recipe), 1e-5, true);
    }
}

#[test]
fn every_method_learns_what_it_learns_on_one_rank() {
    as_one(|case| case.layout.column() == "FSDP");
}

/// Methods see whole sequences, of which each rank runs a part, or a part of each matrix: the same law.
#[test]
fn ranks_that_share_tokens_or_matrices_learn_what_one_rank_learns() {
    as_one(|case| case.layout.column() != "FSDP");
}

/// FSDP, HSDP and whole copies at one degree of data: who holds parameters changes no bit.
#[test]
fn parameters_that_ranks_hold_together_learn_the_same_bits() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    dataset(&data, "wan-tiny", [2, 4, 6], WAN, true);
    let all = recipes(&data, ADAMW);
    let mut copies: BTreeMap<(usize, [usize; 4]), Ended> = BTreeMap::new();
    for Case { what, layout, .. } in cases::of(Law::AsCopies) {
        let (name, recipe) = &all[what];
        let on = |layout: cases::Layout| spread(&layout.of(recipe), layout.ranks());
        let whole = copies.entry((what, layout.degrees));
        let whole = whole.or_insert_with(|| on(cases::Layout { shard: 1, ..layout }));
        let got = on(layout);
        assert!(got.reports == whole.reports, "{name} on {layout:?}: reports differ");
        assert!(got.bits == whole.bits, "{name} on {layout:?}: states differ");
    }
}

#[test]
fn the_other_optimizers_follow_one_rank_too() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    dataset(&data, "wan-tiny", [2, 4, 6], WAN, true);
    let mut oracle = Oracle::default();
    for case in cases::of(Law::AsOne).filter(|case| case.optimizer != SGD) {
        let (what, recipe) = recipes(&data, case.optimizer).swap_remove(case.what);
        let own = case.layout.of(&recipe);
        let [got, again] = [(); 2].map(|()| spread(&own, case.layout.ranks()));
        let told = format!("{what} with {}", case.optimizer);
        near(&told, &got, oracle.of(&case, &recipe), 1e-4, false);
        assert!(again.bits == got.bits, "{told}: a layout differs from itself");
    }
}

/// FastVideo's ranks hung where one of them encoded the negative prompt and the others waited for it: here every rank
/// encodes, opens and builds without a word to the others.
#[test]
fn nothing_is_exchanged_before_the_first_step() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    dataset(&data, "wan-tiny", [2, 4, 6], WAN, true);
    let all = recipes(&data, "{kind: sgd}");
    let (_, recipe) = &all[3];
    let one = recipe.negative(&Device::flex(), &no_hub()).unwrap().expect("dmd2 looks at it");
    let all = on_ranks(3, |group| {
        let ranks = ranks_of(recipe, group.clone());
        let (mesh, negative) = (ranks.mesh().clone(), recipe.negative(&Device::flex(), &no_hub()));
        let run = build_on(recipe, None, ranks).unwrap();
        let posts = [&group, mesh.world(), mesh.replica(), mesh.axis(comm::Axis::Data)];
        let posts: u64 = posts.iter().map(|group| group.traffic().posts).sum();
        drop(run);
        (posts, bits(&negative.unwrap().unwrap().tokens))
    });
    for (posts, negative) in all {
        assert_eq!(posts, 0, "building exchanged something");
        assert_eq!(negative, bits(&one.tokens));
    }
}

#[test]
fn a_batch_that_cannot_be_cut_is_refused_with_the_nearest() {
    let with = |more: &[&str]| {
        let overrides: Vec<String> =
            tiny().into_iter().chain(more.iter().map(|text| (*text).to_owned())).collect();
        try_read("quickstart.yaml", &overrides)
    };
    let message = |more: &[&str], ranks| {
        with(more).unwrap().mesh(ranks).expect_err("it is refused").to_string()
    };
    let told = message(&["data.batch=10"], Some(4));
    assert!(told.contains("data.batch is 10") && told.contains("8 or 12"), "{told}");
    assert!(told.contains("choose 2 or 5 replicas"), "{told}");
    let told = message(&["data.batch=2"], Some(3));
    assert!(told.contains("nearest that can be cut is 3, or choose 2 replicas"), "{told}");
    let told = message(&["parallel={data: 2}"], Some(4));
    assert!(told.contains("parallel.data is 2, but there are 4 ranks"), "{told}");
    assert!(with(&["parallel={data: 0}"]).is_err(), "none at all");
    let told = message(&["parallel={ulysses: 2}"], Some(3));
    assert!(told.contains("parallel.ulysses is 2, but there are 3 ranks"), "{told}");
    let told = message(&["parallel={data: 2, shard: 4}"], None);
    assert!(told.contains("parallel.shard is 4") && told.contains("choose one of 1, 2"), "{told}");
    assert_eq!(with(&["parallel={data: 2}"]).unwrap().mesh(None).unwrap().size(), Some(2));
    assert_eq!(with(&[]).unwrap().mesh(None).unwrap().size(), Some(1));
    // One that is built by hand is refused as well.
    let recipe = with(&["data.batch=3"]).unwrap();
    let refused = on_ranks(2, |group| {
        let shape = comm::MeshShape::default().with(comm::Axis::Data, 2);
        build_on(&recipe, None, Ranks::over(Mesh::of(group, shape).unwrap()))
            .err()
            .unwrap()
            .to_string()
    });
    assert!(refused.iter().all(|told| told.contains("cannot take equal parts")), "{refused:?}");
    assert!(build(&recipe, None).is_ok());
}
