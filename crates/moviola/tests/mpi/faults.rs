//! Processes that do not do the same: the job ends in time, and names who did what.

use std::process::Command;
use std::time::{Duration, Instant};

use burn::tensor::{Device, Tensor};
use comm::{Group, Ranks};

/// What tells a process of this test binary that it is a rank, and what is wrong with it.
const FAULT: &str = "MOVIOLA_TEST_FAULT";

/// How long a rank waits for another.
const DEADLINE: Duration = Duration::from_secs(4);

fn part(rows: usize) -> Tensor<2> {
    Tensor::ones([rows, 2], &Device::flex())
}

/// What the ranks of a job do, of which the second has a fault.
fn work(fault: &str, group: &Group) -> comm::Result<()> {
    group.named("the first sum").all_reduce(part(3))?;
    match (group.rank(), fault) {
        (1, "another call") => group.named("the loss").all_gather(part(3), &[0]).map(drop),
        (1, "another shape") => group.named("the loss").all_reduce(part(5)).map(drop),
        // The next call comes in the place of the one that is left out.
        (1, "a call left out") => group.named("the norm").all_reduce(part(3)).map(drop),
        (1, "a panic") => panic!("a rank lost its mind"),
        (1, "silence") => {
            std::thread::sleep(3 * DEADLINE);
            Ok(())
        }
        _ => {
            group.named("the loss").all_reduce(part(3))?;
            group.named("the norm").all_reduce(part(3)).map(drop)
        }
    }
}

/// A rank of one of the jobs below: in a process that `mpirun` starts, and in no other.
#[test]
#[expect(clippy::disallowed_methods, reason = "tests have no other arguments")]
fn rank() {
    let Ok(fault) = std::env::var(FAULT) else { return };
    let ranks = Ranks { deadline: DEADLINE, ..Ranks::new(2) };
    let ended = comm::mpi::run(&ranks, |group| work(&fault, &group));
    let ended = ended.and_then(|ended| ended.finish());
    if let Err(error) = ended {
        eprintln!("a rank says: {error}");
        std::process::exit(7);
    }
    std::process::exit(0);
}

/// What a job with this fault says, and how it ended.
fn job(fault: &str) -> (String, Option<i32>) {
    let own = std::env::current_exe().unwrap();
    let mut command = Command::new("mpirun");
    command.args(["-n", "2", "--oversubscribe", "--bind-to", "none"]).arg(own);
    command.args(["--exact", "faults::rank", "--nocapture"]);
    command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    command.env(FAULT, fault);
    let begun = Instant::now();
    let output = command.output().unwrap();
    assert!(begun.elapsed() < 6 * DEADLINE, "{fault}: {:?}", begun.elapsed());
    let told =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (told.concat(), output.status.code())
}

#[test]
fn what_differs_is_named() {
    let (told, code) = job("none");
    assert_eq!(code, Some(0), "{told}");
    let cases: [(&str, &[&str]); 5] = [
        ("another call", &["all_gather", "all_reduce", "for the loss"]),
        ("another shape", &["(f32 [3, 2])", "(f32 [5, 2])"]),
        ("a call left out", &["for the loss", "for the norm"]),
        ("a panic", &["rank 1 panicked", "a rank lost its mind"]),
        ("silence", &["rank 1 did not come", "for the loss"]),
    ];
    for (fault, wanted) in cases {
        let (told, code) = job(fault);
        assert!(code.is_some_and(|code| code != 0), "{fault}: {code:?}: {told}");
        for words in wanted {
            assert!(told.contains(words), "{fault}: no `{words}` in {told}");
        }
    }
}
