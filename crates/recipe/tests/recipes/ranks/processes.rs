//! The law on processes that MPI joins: they learn the bits of threads in the same layout, and what one rank learns. One
//! job of eight runs all cases, those of fewer by its first processes.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use burn::tensor::{Device, Tensor};
use comm::{Group, Parcel, Ranks as Processes, Values};

use super::cases::{self, ADAMW, Case, Law, MUON, SGD};
use super::{Ended, Oracle, Tensors, near, ranks_of, recipes, run, spread, together};
use crate::building::{WAN, dataset};

/// Begins the argument that tells a process of this test binary that it is a rank, and where the data are; to the test
/// runner it is one more name of a test, which there is not.
const PROCESSES: &str = "processes=";

/// The most processes of a case.
const MOST: usize = 8;

/// How long a rank waits for another, which may compute what is wanted meanwhile.
const DEADLINE: Duration = Duration::from_secs(240);

/// A rank of the job below: in a process that `mpirun` starts, and in no other.
#[test]
fn rank() {
    let place = std::env::args().find_map(|own| own.strip_prefix(PROCESSES).map(PathBuf::from));
    let Some(data) = place else { return };
    let ranks = Processes { deadline: DEADLINE, ..Processes::new(MOST) };
    let ended = comm::mpi::run(&ranks, |group| {
        let all = [SGD, ADAMW, MUON].map(|optimizer| (optimizer, recipes(&data, optimizer)));
        let mut oracle = Oracle::default();
        for (at, case) in cases::of(Law::AsThreads).enumerate() {
            if group.rank() >= case.layout.ranks() {
                continue;
            }
            let members: Vec<usize> = (0..case.layout.ranks()).collect();
            let own = group.split(&format!("case {at}"), &members);
            let recipes = all.iter().find(|(own, _)| *own == case.optimizer);
            let (what, recipe) = &recipes.expect("a known optimizer").1[case.what];
            let recipe = case.layout.of(recipe);
            let ended = run(&recipe, ranks_of(&recipe, own.clone()));
            let Some(got) = brought(&own, ended) else { continue };
            held((*what, &recipe), &case, &together(got), &mut oracle);
        }
        if group.rank() == 0 {
            println!("{} runs were held to the law", cases::of(Law::AsThreads).count());
        }
        Ok::<_, String>(())
    });
    let ended = ended.map(|ended| ended.finish()).map_err(|err| err.to_string()).flatten();
    if let Err(error) = ended {
        eprintln!("a rank says: {error}");
        std::process::exit(7);
    }
    std::process::exit(0);
}

/// Holds what processes learnt to what threads learn, and to what one rank learns.
fn held((what, recipe): (&str, &recipe::Recipe), case: &Case, got: &Ended, oracle: &mut Oracle) {
    let told = format!("{what} with {} on processes, {:?}", case.optimizer, case.layout);
    let threads = spread(recipe, case.layout.ranks());
    assert!(got.reports == threads.reports, "{told}: threads report other steps");
    assert!(got.bits == threads.bits, "{told}: threads end with other bits");
    let (bound, with_tensors) = if case.optimizer == SGD { (1e-5, true) } else { (1e-4, false) };
    near(&told, got, oracle.of(case, recipe), bound, with_tensors);
}

/// What all ranks of a group end with, on the first of them. Each has said what the first one has reported.
fn brought(group: &Group, own: Ended) -> Option<Vec<Ended>> {
    let reported = format!("{:?}", own.reports);
    if group.rank() > 0 {
        let text: Vec<f32> = reported.bytes().map(f32::from).collect();
        let all = [("gradient ", &own.gradients), ("tensor ", &own.tensors)];
        let all = all.into_iter().flat_map(|(kind, tensors)| {
            tensors.iter().map(move |(name, values)| parcel(&format!("{kind}{name}"), values))
        });
        group.send_parcels(0, all.chain([parcel("reports", &text)]).collect()).unwrap();
        return None;
    }
    let reports = own.reports.clone();
    let others = (1..group.size()).map(|peer| {
        let (mut gradients, mut tensors) = (Tensors::new(), Tensors::new());
        for Parcel { name, values, .. } in group.recv_parcels(peer).unwrap() {
            let Values::Floats(values) = values else { unreachable!("it sends floats") };
            let values = testkit::numbers::values(&values);
            if let Some(name) = name.strip_prefix("gradient ") {
                gradients.insert(name.to_owned(), values);
            } else if let Some(name) = name.strip_prefix("tensor ") {
                tensors.insert(name.to_owned(), values);
            } else {
                let text =
                    values.into_iter().map(|byte| char::from(byte as u8)).collect::<String>();
                assert_eq!(text, reported, "rank {peer} reports apart");
            }
        }
        let bits = |values: &Vec<f32>| values.iter().map(|own| own.to_bits()).collect();
        let bits = tensors.iter().map(|(name, own)| (name.clone(), bits(own))).collect();
        Ended { reports: reports.clone(), gradients, tensors, bits }
    });
    let others: Vec<Ended> = others.collect();
    Some([own].into_iter().chain(others).collect())
}

fn parcel(name: &str, values: &[f32]) -> Parcel {
    let name: Arc<str> = name.into();
    let own: Tensor<1> = Tensor::from_floats(values, &Device::flex());
    Parcel { name, shape: vec![values.len()], values: Values::Floats(own) }
}

#[test]
fn processes_learn_what_threads_and_one_rank_learn() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    dataset(&data, "wan-tiny", [2, 4, 6], WAN, true);
    // What the processes begin from is made before them.
    recipes(&data, SGD);
    let own = std::env::current_exe().unwrap();
    let mut command = Command::new("mpirun");
    command.args(["-n", &MOST.to_string(), "--oversubscribe", "--bind-to", "none"]).arg(own);
    command.args(["--exact", "ranks::processes::rank", "--nocapture"]);
    command.arg(format!("{PROCESSES}{}", data.display()));
    command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    let output = command.output().unwrap();
    let told = [output.stdout, output.stderr]
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .concat();
    assert!(output.status.success(), "{told}");
    let held = format!("{} runs were held to the law", cases::of(Law::AsThreads).count());
    assert!(told.contains(&held), "{told}");
}
