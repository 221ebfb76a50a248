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
        (1, "stopped at work" | "stopped at the end") => {
            let _work = group.busy("the decoding of a clip", Duration::from_secs(3600));
            stop_this_process();
            Ok(())
        }
        (1, "long work" | "long work at the end") => {
            let work = group.busy("the decoding of a clip", Duration::from_secs(3600));
            std::thread::sleep(2 * DEADLINE);
            drop(work);
            match fault {
                "long work" => group.named("the loss").all_reduce(part(3)).map(drop),
                _ => Ok(()),
            }
        }
        (0, "stopped at the end" | "long work at the end") => Ok(()),
        (0, "long work") => group.named("the loss").all_reduce(part(3)).map(drop),
        _ => {
            group.named("the loss").all_reduce(part(3))?;
            group.named("the norm").all_reduce(part(3)).map(drop)
        }
    }
}

/// Stops as a process does that is debugged, or whose machine swaps: all its threads.
fn stop_this_process() {
    // What it does is told before.
    std::thread::sleep(DEADLINE / 8);
    let own = std::process::id().to_string();
    assert!(Command::new("kill").args(["-STOP", &own]).status().unwrap().success());
    std::thread::sleep(Duration::from_secs(3600));
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

/// Work that is announced may take long, and a process that is stopped in it is missed all the same: by those who wait for
/// it in a call, and by those who have done their part.
#[test]
fn a_process_that_is_stopped_at_work_is_missed() {
    for fault in ["long work", "long work at the end"] {
        let (told, code) = job(fault);
        assert_eq!(code, Some(0), "{fault}: {told}");
    }
    let cases = [
        ("stopped at work", "rank 0 waited"),
        ("stopped at the end", "rank 0 is done and waits for the others, but"),
    ];
    for (fault, who) in cases {
        let (told, code) = job(fault);
        assert!(code.is_some_and(|code| code != 0), "{fault}: {code:?}: {told}");
        let lost = "rank 1 did not come: it was busy with the decoding of a clip and has given no sign of life";
        for words in [who, lost] {
            assert!(told.contains(words), "{fault}: no `{words}` in {told}");
        }
    }
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
