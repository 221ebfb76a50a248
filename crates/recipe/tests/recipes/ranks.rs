//! Recipes on several ranks: every method learns there what it learns on one.

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::Device;
use comm::{Group, Mesh, on_ranks};
use recipe::{FREE, ParallelConfig, Recipe};
use testkit::numbers::{bits, values};
use train::{Ranks, STUDENT, StepReport, Value};

use crate::building::{WAN, build, build_on, dataset, no_hub, read, small, tiny, try_read};

/// Steps of 24 samples: two micro-batches, which 2, 3, 4 and 6 ranks share evenly.
fn steps(overrides: &mut Vec<String>) {
    let more = ["loop.steps=5", "loop.accumulation=2", "data.batch=12", "data.partial=drop"];
    overrides.extend(more.map(str::to_owned));
}

/// The recipes that the law holds for, by what they are about, each with an optimizer for all roles.
fn recipes(data: &Path, optimizer: &str) -> Vec<(&'static str, Recipe)> {
    let sgd = |role: &str| format!("models.{role}.optimizer={optimizer}");
    let shapes = |more: &[&str]| {
        let mut overrides = tiny();
        steps(&mut overrides);
        overrides.push(sgd(STUDENT));
        overrides.extend(more.iter().map(|text| (*text).to_owned()));
        read("quickstart.yaml", &overrides)
    };
    let stored = |name: &str, roles: &[&str]| {
        let mut overrides = small("wan-tiny", data, roles);
        steps(&mut overrides);
        overrides.push("callbacks={ema: {decay: 0.9}}".to_owned());
        overrides.push(format!(
            "data.source={{kind: mix, of: [{{path: {}, repeats: 5}}]}}",
            data.display()
        ));
        overrides.extend(roles.iter().filter(|role| **role != "teacher").map(|role| sgd(role)));
        read(name, &overrides)
    };
    let forcing = ["method={name: diffusion_forcing}", "levels={}"];
    vec![
        ("finetune", shapes(&[])),
        ("diffusion forcing", shapes(&forcing)),
        ("lora", stored("wan-lora.yaml", &[STUDENT])),
        ("dmd2", stored("dmd2.yaml", &[STUDENT, "teacher", "critic"])),
        ("both experts", both_experts(data, optimizer)),
    ]
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
        "levels={video: {kind: uniform, lowest: 0.75}}".to_owned(),
        "callbacks={ema: [{decay: 0.9}, {decay: 0.99}]}".to_owned(),
        format!("data.source={{kind: mix, of: [{{path: {}, repeats: 5}}]}}", own.display()),
    ];
    overrides.extend(more);
    read("wan22-expert-lora.yaml", &overrides)
}

/// What a rank ends with.
struct Ended {
    reports: Vec<StepReport>,
    tensors: BTreeMap<String, Vec<f32>>,
    bits: BTreeMap<String, Vec<u32>>,
}

fn run(recipe: &Recipe, ranks: Ranks) -> Ended {
    let mut trainer = build_on(recipe, None, ranks).unwrap().trainer;
    trainer.resume(&FREE, &Device::flex()).unwrap();
    let timeless = |report| StepReport { seconds: 0.0, ..report };
    let reports =
        (0..recipe.run.steps).map(|_| timeless(trainer.advance().unwrap())).collect::<Vec<_>>();
    let state = trainer.state();
    let tensors = state.iter().filter_map(|(name, value)| match value {
        Value::Tensor(own) => Some((name.to_owned(), values(&own.values), bits(&own.values))),
        Value::Number(_) => None,
    });
    let (mut named, mut all) = (BTreeMap::new(), BTreeMap::new());
    for (name, values, bits) in tensors {
        named.insert(name.clone(), values);
        all.insert(name, bits);
    }
    Ended { reports, tensors: named, bits: all }
}

/// Layouts of up to eight ranks that share tokens: data, ulysses, ring. The twelve tokens of a sample come out uneven on
/// eight.
const SEQUENCES: [[usize; 3]; 8] =
    [[1, 2, 1], [1, 1, 2], [1, 1, 3], [2, 2, 1], [1, 2, 2], [3, 1, 2], [2, 2, 2], [1, 2, 4]];

/// The same recipe on other ranks.
fn laid_out(recipe: &Recipe, degrees: [usize; 3], shard: usize) -> Recipe {
    let [data, ulysses, ring] = degrees.map(Some);
    let parallel = ParallelConfig { data, ulysses, ring, shard: Some(shard) };
    Recipe { parallel, ..recipe.clone() }
}

/// The ranks of a group as the recipe lays them out.
fn ranks_of(recipe: &Recipe, group: Group) -> Ranks {
    let shape = recipe.mesh(Some(group.size())).unwrap();
    Ranks::over(Mesh::of(group, shape).unwrap())
}

/// The run of a recipe on so many ranks, which end alike where they hold the same.
fn spread(recipe: &Recipe, ranks: usize) -> Ended {
    let mut all = on_ranks(ranks, |group| run(recipe, ranks_of(recipe, group)));
    let mut whole = all.remove(0);
    for other in all {
        assert!(other.reports == whole.reports, "ranks report apart");
        for (name, bits) in other.bits {
            let known = whole.bits.insert(name.clone(), bits.clone());
            assert!(known.is_none_or(|known| known == bits), "ranks end with another {name}");
        }
        whole.tensors.extend(other.tensors);
    }
    whole
}

/// Losses and norms within `bound`, and where weights are compared too each tensor within 1e-5 of its norm, with a
/// floor of 1e-7 of all.
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
    let norm = |values: &[f32]| values.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    let all = want.tensors.values().map(|own| norm(own).powi(2)).sum::<f64>().sqrt();
    assert_eq!(got.tensors.len(), want.tensors.len(), "{what}");
    for ((name, got), (_, want)) in got.tensors.iter().zip(&want.tensors) {
        let off = norm(&got.iter().zip(want).map(|(a, b)| a - b).collect::<Vec<_>>());
        assert!(off <= 1e-5 * norm(want) + 1e-7 * all, "{what}, {name}: {off:e}");
    }
}

#[test]
fn every_method_learns_what_it_learns_on_one_rank() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    dataset(&data, "wan-tiny", [2, 4, 6], WAN, false);
    for (what, recipe) in recipes(&data, "{kind: sgd, momentum: 0.9}") {
        let want = run(&recipe, Ranks::alone());
        for ranks in [2, 3, 4] {
            let got = spread(&recipe, ranks);
            near(&format!("{what} on {ranks} ranks"), &got, &want, 1e-5, true);
        }
    }
}

/// Methods see whole sequences, of which each rank runs a part: the same law.
#[test]
fn ranks_that_share_tokens_learn_what_one_rank_learns() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    dataset(&data, "wan-tiny", [2, 4, 6], WAN, false);
    for (at, (what, recipe)) in recipes(&data, "{kind: sgd, momentum: 0.9}").iter().enumerate() {
        let want = run(recipe, Ranks::alone());
        // Each method takes its turn at the larger layouts.
        let some = SEQUENCES.iter().enumerate().filter(|(place, _)| *place < 4 || place % 4 == at);
        for (_, layout) in some {
            // Half of them hold parameters together.
            let ranks = layout.iter().product();
            let shard = if layout[1] > 1 { 2 } else { 1 };
            let got = spread(&laid_out(recipe, *layout, shard), ranks);
            near(&format!("{what} on {layout:?}"), &got, &want, 1e-5, true);
        }
    }
}

/// FSDP, HSDP and whole copies at one degree of data: who holds parameters changes no bit.
#[test]
fn parameters_that_ranks_hold_together_learn_the_same_bits() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    dataset(&data, "wan-tiny", [2, 4, 6], WAN, false);
    for (what, recipe) in recipes(&data, "{kind: adamw}") {
        let on = |degrees: [usize; 3], shard| {
            spread(&laid_out(&recipe, degrees, shard), degrees.iter().product())
        };
        for (degrees, shards) in [([4, 1, 1], &[2, 4][..]), ([2, 1, 2], &[4])] {
            let whole = on(degrees, 1);
            for shard in shards {
                let got = on(degrees, *shard);
                let what = format!("{what} on {degrees:?}, {shard} ranks a copy");
                assert!(got.reports == whole.reports, "{what}: reports differ");
                assert!(got.bits == whole.bits, "{what}: states differ");
            }
        }
    }
}

#[test]
fn the_other_optimizers_follow_one_rank_too() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    dataset(&data, "wan-tiny", [2, 4, 6], WAN, false);
    for optimizer in ["{kind: adamw}", "{kind: muon}"] {
        for (what, recipe) in recipes(&data, optimizer) {
            let want = run(&recipe, Ranks::alone());
            let got = spread(&recipe, 2);
            near(&format!("{what} with {optimizer}"), &got, &want, 1e-4, false);
            assert!(spread(&recipe, 2).bits == got.bits, "{what}: a layout differs from itself");
        }
    }
}

/// FastVideo's ranks hung where one of them encoded the negative prompt and the others waited for it: here every rank
/// encodes, opens and builds without a word to the others.
#[test]
fn nothing_is_exchanged_before_the_first_step() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    dataset(&data, "wan-tiny", [2, 4, 6], WAN, false);
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
