//! A run on several ranks is the run of one: same samples, same losses, same updates.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use comm::{Axis, Group, Mesh, MeshShape, on_ranks};
use testkit::numbers::values;
use train::checkpoint::{self, files, read_manifest};
use train::{
    AdamWConfig, Learns, LoraConfig, MuonConfig, OptimizerConfig, Outcome, Ranks, STUDENT,
    SgdConfig, StateDict, StepReport, Value,
};

use crate::run::{Fault, Setup, fingerprint};

/// Replicas and nothing else.
fn replicas(group: Group) -> Ranks {
    let shape = MeshShape::default().with(Axis::Data, group.size());
    Ranks::over(Mesh::of(group, shape).unwrap())
}

/// What a rank ends with: its state and its reports.
type Ended = (Vec<(String, Vec<u32>)>, Vec<(String, Vec<f32>)>, Vec<StepReport>);

fn ended(run: &crate::run::Run) -> Ended {
    let state = run.trainer.state();
    (fingerprint(&state), tensors(&state), run.numbers())
}

/// Its tensors by name.
fn tensors(state: &StateDict) -> Vec<(String, Vec<f32>)> {
    let all = state.iter().filter_map(|(name, value)| match value {
        Value::Tensor(tensor) => Some((name.to_owned(), values(&tensor.values))),
        Value::Number(_) => None,
    });
    all.collect()
}

/// The run of a setup on so many ranks, each of which ends with the same bits where it holds the same.
fn spread(setup: &Setup, ranks: usize) -> Ended {
    let all = on_ranks(ranks, |group| {
        let mut run = setup.build_on(replicas(group), None).unwrap();
        run.trainer.run().unwrap();
        ended(&run)
    });
    together(all)
}

/// What ranks end with together.
fn together(all: Vec<Ended>) -> Ended {
    let reports = all[0].2.clone();
    let (mut bits, mut tensors) = (BTreeMap::new(), BTreeMap::new());
    for own in all {
        assert_eq!(own.2, reports, "ranks report different steps");
        tensors.extend(own.1);
        for (name, own) in own.0 {
            let other = bits.insert(name.clone(), own.clone());
            assert!(other.is_none_or(|other| other == own), "ranks end with different {name}");
        }
    }
    (bits.into_iter().collect(), tensors.into_iter().collect(), reports)
}

/// Losses and norms within 1e-5; each tensor within 1e-5 of its norm, with a floor of 1e-7 of all.
#[track_caller]
fn near(got: &Ended, want: &Ended, what: &str) {
    for (got, want) in got.2.iter().zip(&want.2) {
        assert_eq!((got.samples, got.tokens, got.step), (want.samples, want.tokens, want.step));
        for (name, loss) in &want.losses {
            let off = (got.losses[name] - loss).abs();
            assert!(off <= 1e-5 * loss.abs(), "{what}, step {}, {name}: {off:e}", want.step);
        }
        for (got, want) in got.roles.iter().zip(&want.roles) {
            let off = (got.gradient_norm - want.gradient_norm).abs();
            assert!(off <= 1e-5 * want.gradient_norm, "{what}: {got:?} {want:?}");
            assert_eq!(got.outcome, want.outcome);
        }
    }
    assert_eq!((got.2.len(), got.1.len()), (want.2.len(), want.1.len()));
    let norm = |values: &[f32]| values.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    let all = want.1.iter().map(|(_, values)| norm(values).powi(2)).sum::<f64>().sqrt();
    for ((name, got), (other, want)) in got.1.iter().zip(&want.1) {
        assert_eq!(name, other);
        let off = norm(&got.iter().zip(want).map(|(a, b)| a - b).collect::<Vec<_>>());
        let bound = 1e-5 * norm(want) + 1e-7 * all;
        assert!(off <= bound, "{what}, {name}: {off:e} of {bound:e}");
    }
}

fn sgd() -> OptimizerConfig {
    OptimizerConfig::Sgd(SgdConfig { momentum: 0.9, weight_decay: 0.01 })
}

fn lora() -> Learns {
    let targets = vec!["own.qkv".to_owned()];
    let config = LoraConfig { rank: 2, alpha: None, from: None, dropout: 0.25, targets };
    Learns::Adapters { config, seed: 3 }
}

#[test]
fn a_step_is_that_of_one_rank() {
    for learns in [Learns::All, lora()] {
        for accumulation in [1, 2] {
            let setup = Setup {
                steps: 5,
                batch: 12,
                accumulation,
                clip: Some(0.5),
                optimizer: sgd(),
                learns: learns.clone(),
                ..Setup::default()
            };
            let mut alone = setup.build(None).unwrap();
            alone.trainer.run().unwrap();
            let want = ended(&alone);
            for ranks in [2, 3, 4] {
                let what = format!("{ranks} ranks, {accumulation} micro-batches, {learns:?}");
                near(&spread(&setup, ranks), &want, &what);
            }
        }
    }
}

/// Optimizers that divide by what they remember turn the last bit of a small gradient into a step, so losses are
/// compared, and a layout with itself to the bit.
#[test]
fn optimizers_follow_one_rank_and_a_layout_repeats_to_the_bit() {
    let optimizers = [
        OptimizerConfig::AdamW(AdamWConfig::default()),
        OptimizerConfig::Muon(MuonConfig::default()),
    ];
    for optimizer in optimizers {
        let setup = Setup { steps: 5, batch: 6, optimizer, ..Setup::default() };
        let alone = setup.run();
        for ranks in [2, 3] {
            let [once, again] = [(); 2].map(|()| spread(&setup, ranks));
            assert!(once.0 == again.0 && once.2 == again.2, "{ranks} ranks differ from themselves");
            for (got, want) in once.2.iter().zip(alone.numbers()) {
                let off = (got.losses["loss"] - want.losses["loss"]).abs();
                assert!(off <= 1e-4 * want.losses["loss"], "step {}: {off:e}", want.step);
            }
        }
    }
}

/// A batch that does not come out even is shared out unevenly; samples weigh the same.
#[test]
fn uneven_parts_weigh_by_their_samples() {
    let setup = Setup { steps: 3, batch: 7, optimizer: sgd(), ..Setup::default() };
    let mut alone = setup.build(None).unwrap();
    alone.trainer.run().unwrap();
    near(&spread(&setup, 3), &ended(&alone), "7 samples on 3 ranks");
}

/// What is not finite on one rank is skipped by all.
#[test]
fn an_update_is_skipped_by_all_ranks_or_none() {
    let faults = [Fault::Loss(2), Fault::Gradient(2)];
    for (fault, shard) in faults.into_iter().flat_map(|fault| [(fault, 1), (fault, 2)]) {
        let setup = Setup { steps: 3, batch: 4, shard, ..Setup::default() };
        let faulty = Setup { fault, ..setup.clone() };
        let all = on_ranks(2, |group| {
            let own = if group.rank() == 1 { &faulty } else { &setup };
            let mut run = own.build_on(replicas(group), None).unwrap();
            run.trainer.run().unwrap();
            ended(&run)
        });
        assert!(shard > 1 || all[0].0 == all[1].0);
        assert_eq!(format!("{:?}", all[0].2), format!("{:?}", all[1].2));
        let student = &all[0].2[1].roles[0];
        assert!(student.role == STUDENT && student.outcome != Outcome::Updated, "{student:?}");
        assert_eq!(all[0].2[2].roles[0].outcome, Outcome::Updated);
    }
}

/// Runs to `steps` on so many ranks from the newest checkpoint of a folder, or from the beginning.
fn go_on(setup: &Setup, steps: u64, ranks: usize, folder: &Path) -> Ended {
    let setup = Setup { steps, ..setup.clone() };
    let all = on_ranks(ranks, |group| {
        let mut run = setup.build_on(replicas(group), Some(folder)).unwrap();
        run.trainer.resume(&["loop.steps"], &Device::flex()).unwrap();
        run.trainer.run().unwrap();
        ended(&run)
    });
    together(all)
}

#[test]
fn a_run_goes_on_to_the_bit_and_on_other_numbers_of_ranks() {
    let setup = Setup { batch: 12, optimizer: sgd(), every: 3, ..Setup::default() };
    let temporary = tempfile::tempdir().unwrap();
    let at = |name: &str| temporary.path().join(name);
    let whole = go_on(&setup, 6, 2, &at("whole"));
    go_on(&setup, 3, 2, &at("parts"));
    let parts = go_on(&setup, 6, 2, &at("parts"));
    assert!(parts.0 == whole.0, "a run that went on differs from one that was never stopped");
    for (from, to) in [(4, 1), (4, 3), (1, 2), (3, 4), (4, 8)] {
        let name = format!("{from} to {to}");
        go_on(&setup, 3, from, &at(&name));
        let got = go_on(&setup, 6, to, &at(&name));
        let want = (whole.0.clone(), whole.1.clone(), whole.2[3..].to_vec());
        near(&got, &want, &name);
    }
}

/// FSDP, HSDP and whole copies: who holds a parameter, with its optimizer and its average, changes no bit.
#[test]
fn ranks_that_hold_parameters_together_learn_the_bits_of_whole_copies() {
    let muon = OptimizerConfig::Muon(MuonConfig::default());
    for (learns, optimizer) in
        [(Learns::All, muon), (Learns::All, OptimizerConfig::default()), (lora(), sgd())]
    {
        for accumulation in [1, 2] {
            let (steps, batch) = (4, 12);
            let (learns, optimizer) = (learns.clone(), optimizer.clone());
            let setup = Setup { steps, batch, accumulation, learns, optimizer, ..Setup::default() };
            let whole = spread(&setup, 4);
            for shard in [2, 4] {
                let got = spread(&Setup { shard, ..setup.clone() }, 4);
                assert!(got.2 == whole.2, "{shard} ranks a copy report other steps");
                assert!(got.0 == whole.0, "{shard} ranks a copy learn otherwise");
            }
        }
    }
    let setup = Setup { steps: 3, batch: 6, shard: 3, optimizer: sgd(), ..Setup::default() };
    let mut alone = setup.build(None).unwrap();
    alone.trainer.run().unwrap();
    near(&spread(&setup, 3), &ended(&alone), "3 ranks a copy");
}

/// Every tensor has one holder, and none holds much more than the others.
#[test]
fn parameters_are_held_once_and_evenly() {
    let setup = Setup { shard: 3, batch: 3, ..Setup::default() };
    let held = on_ranks(3, |group| {
        let run = setup.build_on(replicas(group), None).unwrap();
        let own = run.role(STUDENT).store().iter();
        own.map(|(name, own)| (name.to_owned(), own.values.dims()[0])).collect::<Vec<_>>()
    });
    let whole = setup.role(STUDENT).unwrap();
    let all: Vec<(String, usize)> =
        whole.store().iter().map(|(name, own)| (name.to_owned(), own.values.dims()[0])).collect();
    let mut found = held.concat();
    found.sort();
    assert_eq!(found, all);
    let values = |own: &[(String, usize)]| own.iter().map(|(_, count)| count).sum::<usize>();
    let most = held.iter().map(|own| values(own)).max().unwrap();
    assert!(most <= values(&all) / 2, "one of three holds {most} of {}", values(&all));
}

#[test]
fn a_run_of_shards_goes_on_to_the_bit_and_in_other_layouts() {
    let setup = Setup { batch: 12, optimizer: sgd(), every: 3, ..Setup::default() };
    let shared = |shard| Setup { shard, ..setup.clone() };
    let temporary = tempfile::tempdir().unwrap();
    let at = |name: &str| temporary.path().join(name);
    let whole = go_on(&shared(4), 6, 4, &at("whole"));
    assert!(go_on(&shared(1), 6, 4, &at("copies")).0 == whole.0, "it is kept otherwise");
    let kept = |name: &str| {
        let found =
            checkpoint::read(&at(name).join("checkpoint-00000006"), &Device::flex()).unwrap();
        fingerprint(&found.state)
    };
    assert!(kept("whole") == kept("copies"), "what is kept differs");
    for ((ranks, shard), is_same) in [
        ((4, 4), true),
        ((4, 2), true),
        ((1, 1), false),
        ((3, 3), false),
        ((6, 3), false),
        ((8, 8), false),
    ] {
        let name = format!("4 to {ranks} by {shard}");
        go_on(&shared(4), 3, 4, &at(&name));
        let got = go_on(&shared(shard), 6, ranks, &at(&name));
        let want = (whole.0.clone(), whole.1.clone(), whole.2[3..].to_vec());
        near(&got, &want, &name);
        assert!(!is_same || got.0 == whole.0, "{name}: it went on otherwise");
    }
}

/// Where ranks hold parameters together each writes what it holds, once, under the keys of one rank.
#[test]
fn each_rank_writes_its_part_of_a_checkpoint() {
    let temporary = tempfile::tempdir().unwrap();
    let setup = Setup { steps: 2, batch: 4, shard: 2, optimizer: sgd(), ..Setup::default() };
    go_on(&setup, 2, 4, temporary.path());
    let place = temporary.path().join("checkpoint-00000002");
    let manifest = read_manifest(&place).unwrap();
    assert_eq!((manifest.version, manifest.parts.len()), (2, 1), "two ranks a copy, two copies");
    let names = |path: &PathBuf| {
        let bytes = std::fs::read(path).unwrap();
        let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        file.names().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let parts: Vec<Vec<String>> = files(&place, &manifest).iter().map(names).collect();
    let learnt = |own: &[String]| own.iter().filter(|name| name.starts_with("roles.")).count();
    assert!(parts.iter().all(|own| learnt(own) > 2), "{parts:?}");
    let mut all = parts.concat();
    all.sort();
    let alone = setup.run().trainer.state();
    let want: Vec<String> = alone.iter().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(all, want);
    // Nothing but the lock is beside it.
    let left: Vec<_> = std::fs::read_dir(temporary.path()).unwrap().flatten().collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

/// A part that is lost, another's or damaged: the checkpoint is passed over, and the run goes on from the one before to
/// the same bits. What a rank that was killed left behind is swept.
#[test]
fn a_checkpoint_without_one_of_its_parts_is_passed_over() {
    let setup = Setup { batch: 6, shard: 3, optimizer: sgd(), every: 2, ..Setup::default() };
    let temporary = tempfile::tempdir().unwrap();
    let whole = go_on(&setup, 4, 3, &temporary.path().join("whole"));
    let part = "state-00002-of-00003.safetensors";
    type Damage = fn(&Path, &str);
    let damages: [(&str, Damage); 3] = [
        (part, |place, part| std::fs::remove_file(place.join(part)).unwrap()),
        ("its hash differs", |place, part| {
            let mut bytes = std::fs::read(place.join(part)).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            std::fs::write(place.join(part), bytes).unwrap();
        }),
        ("bytes, but", |place, part| {
            let bytes = std::fs::read(place.join(part)).unwrap();
            std::fs::write(place.join(part), &bytes[..bytes.len() / 2]).unwrap();
        }),
    ];
    for (at, (told, damage)) in damages.into_iter().enumerate() {
        let folder = temporary.path().join(at.to_string());
        go_on(&setup, 4, 3, &folder);
        damage(&folder.join("checkpoint-00000004"), part);
        let loose = folder.join(".checkpoint-00000004.00003-of-00003.part");
        std::fs::write(&loose, "half of it").unwrap();
        let found = checkpoint::find(&folder, &Device::flex()).unwrap();
        let reason = &found.skipped[0].reason;
        assert!(found.manifest.step == 2 && reason.contains(told), "{told}: {reason}");
        assert!(go_on(&setup, 4, 3, &folder).0 == whole.0, "{told}: it went on apart");
        assert!(!loose.exists(), "what was left behind is still there");
    }
}

/// A disk that is full on one rank: it says so, the others say who, and the checkpoint before stays.
#[test]
fn what_one_rank_cannot_write_ends_all() {
    let setup = Setup { batch: 6, shard: 3, optimizer: sgd(), every: 2, ..Setup::default() };
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    go_on(&setup, 2, 3, folder);
    // The system refuses to write there, as it does on a full disk.
    let blocked = folder.join(".checkpoint-00000004.00002-of-00003.part");
    let all = on_ranks(3, |group| {
        let ranks = replicas(group);
        let is_first = ranks.is_first();
        let mut run = setup.build_on(ranks, Some(folder)).unwrap();
        run.trainer.resume(&["loop.steps"], &Device::flex()).unwrap();
        if is_first {
            std::fs::create_dir(&blocked).unwrap();
        }
        let failed = run.trainer.run().unwrap_err();
        (failed.to_string(), failed.is_of_another())
    });
    // Who has a reason of its own is heard, and not those who only know that somebody failed.
    assert_eq!([all[0].1, all[1].1, all[2].1], [true, false, true], "{all:?}");
    let all: Vec<String> = all.into_iter().map(|(told, _)| told).collect();
    assert!(all[1].contains("cannot write") && all[1].contains("00002-of-00003"), "{all:?}");
    for told in [&all[0], &all[2]] {
        assert!(told.contains("rank 1 could not write its part of the checkpoint"), "{told}");
    }
    assert_eq!(checkpoint::find(folder, &Device::flex()).unwrap().manifest.step, 2);
    std::fs::remove_dir(&blocked).unwrap();
    let left = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().ends_with(".part")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A signal reaches one rank; all stop after the same step, and the first keeps a checkpoint.
#[test]
fn ranks_stop_after_the_same_step() {
    let temporary = tempfile::tempdir().unwrap();
    let setup = Setup { steps: 9, batch: 4, every: 0, ..Setup::default() };
    let steps = on_ranks(3, |group| {
        let signal = (group.rank() == 2).then_some(4);
        let own = Setup { signal, ..setup.clone() };
        let mut run = own.build_on(replicas(group), Some(temporary.path())).unwrap();
        run.trainer.run().unwrap()
    });
    assert_eq!(steps, [4, 4, 4]);
    let saved = train::checkpoint::list(temporary.path()).unwrap();
    assert_eq!(saved.into_iter().map(|(step, _)| step).collect::<Vec<_>>(), [4]);
}

/// However many micro-batches there are, a step exchanges the same.
#[test]
fn gradients_travel_once_a_step() {
    let posts = |accumulation| {
        let setup = Setup { steps: 2, batch: 4, accumulation, ..Setup::default() };
        on_ranks(2, |group| {
            let mut run = setup.build_on(replicas(group.clone()), None).unwrap();
            run.trainer.run().unwrap();
            group.traffic().bytes
        })
    };
    let once = posts(1);
    assert!(once[0] > 1000, "{once:?}");
    assert_eq!(posts(3), once);
}

/// What is lent for a step is lent again for the way back, unless graphs are kept.
#[test]
fn kept_graphs_are_lent_parameters_once() {
    let sent = |recompute| {
        let layout = std::sync::Arc::new(nn::OneDevice { recompute });
        let setup = Setup { steps: 1, batch: 2, shard: 2, layout, ..Setup::default() };
        let all = on_ranks(2, |group| {
            let mut run = setup.build_on(replicas(group), None).unwrap();
            let own = run.role(STUDENT).store().iter().map(|(_, own)| own.bytes() as u64);
            let held: u64 = own.sum();
            run.trainer.run().unwrap();
            (run.copy.unwrap().traffic().bytes, held)
        });
        let sum = |all: [u64; 2]| (all[0] + all[1]) as f64;
        sum([all[0].0, all[1].0]) / sum([all[0].1, all[1].1])
    };
    let [kept, again] = [nn::Recompute::Never, nn::Recompute::PerBlock].map(sent);
    // Beside parameters the squares of gradients travel.
    assert!((1.0..1.2).contains(&kept), "{kept}");
    assert!((1.3..2.2).contains(&again), "{again}");
}

#[test]
fn ranks_that_were_told_different_things_are_named() {
    let setup = Setup::default();
    let all = on_ranks(2, |group| {
        let steps = 4 + group.rank() as u64;
        let own = Setup { steps, ..setup.clone() };
        let mut run = own.build_on(replicas(group), None).unwrap();
        run.trainer.resume(&[], &Device::flex()).unwrap_err().to_string()
    });
    for message in all {
        assert!(
            message.contains("rank 1 and rank 0") && message.contains("loop.steps"),
            "{message}"
        );
    }
    // Weights that ranks hold together are compared by what they were read from.
    let setup = Setup { shard: 2, batch: 4, ..Setup::default() };
    let all = on_ranks(2, |group| {
        let told = vec![("the dataset".to_owned(), 7 + group.rank() as u64)];
        let run = setup.build_on(replicas(group), None).unwrap();
        let mut trainer = run.trainer.made_from(told);
        trainer.resume(&[], &Device::flex()).unwrap_err().to_string()
    });
    for message in all {
        assert!(message.contains("differ in the dataset"), "{message}");
    }
}
