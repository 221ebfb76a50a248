//! Layouts on processes that MPI joins: the laws of [`crate::runs`] and [`crate::decoding`], for every model of the
//! table. A job makes everything that its number of ranks can, request after request.

use std::process::Command;
use std::time::Duration;

use comm::{Group, Ranks};
use engine::Request;

use crate::asked::{Model, models, requests};
use crate::cases::{self, Law, layout};
use crate::decoding;
use crate::runs::{STEPS, by_rank, hold, latents, values_of};

/// Begins the argument that tells a process of this test binary that it is one of so many ranks; to the test runner it is
/// one more name of a test, which there is not.
const PROCESSES: &str = "processes=";

/// How long a rank waits for another, which may compute what is wanted meanwhile.
const DEADLINE: Duration = Duration::from_secs(120);

/// A rank of one of the jobs below: in a process that `mpirun` starts, and in no other.
#[test]
fn rank() {
    let size = std::env::args().find_map(|own| own.strip_prefix(PROCESSES)?.parse().ok());
    let Some(size) = size else { return };
    let ranks = Ranks { deadline: DEADLINE, ..Ranks::new(size) };
    let ended = comm::mpi::run(&ranks, |group| {
        let made: usize = models().iter().map(|model| of_model(model, &group)).sum();
        if group.rank() == 0 {
            println!("{made} requests were held to the law");
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

/// Makes what a model is asked for with all that it takes, by all layouts of a group; how many requests that were.
fn of_model(model: &Model, group: &Group) -> usize {
    let (what, request) = requests(&model.description).swap_remove(0);
    let request = Request { steps: Some(STEPS), ..request };
    let alone = layout(([1; 6], None, None, Law::Bits));
    let one = (group.rank() == 0).then(|| latents(model, &request, &alone));
    let cases = cases::by(group.size());
    for case in &cases {
        let by = (&layout(*case), group.clone());
        let own = by_rank(model.pipeline.clone(), &request, by);
        let own = own.unwrap_or_else(|err| panic!("{}, {case:?}: {err}", model.name));
        if let Some(one) = &one {
            hold((model, what), &request, (*case, &values_of(own)), one);
        }
    }
    cases.len() + decoding::by_processes(model, &request, group)
}

/// Runs a job, which holds all requests of its number of ranks to the law.
#[track_caller]
fn job(size: usize) {
    let own = std::env::current_exe().unwrap();
    let mut command = Command::new("mpirun");
    command.args(["-n", &size.to_string(), "--oversubscribe", "--bind-to", "none"]).arg(own);
    command.args(["--exact", "processes::rank", "--nocapture"]).arg(format!("{PROCESSES}{size}"));
    command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    let output = command.output().unwrap();
    let told = [output.stdout, output.stderr]
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .concat();
    assert!(output.status.success(), "{size} processes: {told}");
    let count = told.lines().find_map(|line| {
        let words = line.strip_suffix(" requests were held to the law")?;
        words.rsplit(' ').next()?.parse::<usize>().ok()
    });
    let all = (cases::by(size).len() + decoding::by(size).count()) * models().len();
    assert_eq!(count, Some(all), "{size} processes: {told}");
}

#[test]
fn two_make_what_one_makes() {
    job(2);
}

#[test]
fn three_make_what_one_makes() {
    job(3);
}

#[test]
fn four_make_what_one_makes() {
    job(4);
}

#[test]
fn five_and_six_make_what_one_makes() {
    job(5);
    job(6);
}

#[test]
fn eight_make_what_one_makes() {
    job(8);
}
