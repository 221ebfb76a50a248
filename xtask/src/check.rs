//! `cargo xtask check`: what CI runs, cheapest first, each step announced with its time.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::process::{self, command};
use crate::{studio, tidy};

/// One step: its name, how to repeat it alone, and what it does.
struct Step {
    name: &'static str,
    repeat: &'static str,
    run: fn(&Path) -> Result<Outcome>,
}

/// How a step that did not fail ended.
enum Outcome {
    Passed,
    Skipped(&'static str),
}

const STEPS: [Step; 8] = [
    Step { name: "fmt", repeat: "cargo fmt --all", run: fmt },
    Step { name: "tidy", repeat: "cargo xtask tidy", run: run_tidy },
    Step { name: "deny", repeat: "cargo deny check bans licenses sources", run: deny },
    Step {
        name: "clippy",
        repeat: "cargo clippy --workspace --all-targets -- -D warnings",
        run: clippy,
    },
    Step {
        name: "docs",
        repeat: "RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --document-private-items",
        run: docs,
    },
    Step { name: "tests", repeat: "cargo xtask test", run: tests },
    Step { name: "studio", repeat: "cargo xtask studio-test", run: run_studio },
    Step { name: "mpi", repeat: "cargo xtask mpi", run: mpi },
];

/// Runs every step, and stops at the first that fails.
pub(crate) fn run(root: &Path) -> Result<()> {
    run_steps(&STEPS, root)
}

fn run_steps(steps: &[Step], root: &Path) -> Result<()> {
    let start = Instant::now();
    for step in steps {
        eprintln!("── {}", step.name);
        let step_start = Instant::now();
        match (step.run)(root) {
            Ok(Outcome::Passed) => {
                eprintln!("── {} passed in {}", step.name, seconds(step_start.elapsed()));
            }
            Ok(Outcome::Skipped(why)) => eprintln!("── {} skipped: {why}", step.name),
            Err(error) => {
                eprintln!("── {} failed after {}", step.name, seconds(step_start.elapsed()));
                bail!("check stopped at {}: {error:#}; alone: {}", step.name, step.repeat);
            }
        }
    }
    eprintln!("check passed in {}", seconds(start.elapsed()));
    Ok(())
}

fn fmt(root: &Path) -> Result<Outcome> {
    process::run(&mut command("cargo", "fmt --all --check", root))?;
    Ok(Outcome::Passed)
}

fn run_tidy(root: &Path) -> Result<Outcome> {
    tidy::run(root)?;
    Ok(Outcome::Passed)
}

/// Advisories are left out: they need the network and change without a commit of ours.
fn deny(root: &Path) -> Result<Outcome> {
    if !process::succeeds(&mut command("cargo", "deny --version", root))? {
        return Ok(Outcome::Skipped("cargo-deny is not installed"));
    }
    process::run(&mut command("cargo", "deny check bans licenses sources", root))?;
    Ok(Outcome::Passed)
}

fn clippy(root: &Path) -> Result<Outcome> {
    let arguments = "clippy --workspace --all-targets -- -D warnings";
    process::run(&mut command("cargo", arguments, root))?;
    Ok(Outcome::Passed)
}

fn docs(root: &Path) -> Result<Outcome> {
    let arguments = "doc --workspace --no-deps --document-private-items";
    process::run(command("cargo", arguments, root).env("RUSTDOCFLAGS", "-D warnings"))?;
    Ok(Outcome::Passed)
}

fn tests(root: &Path) -> Result<Outcome> {
    run_tests(root)?;
    Ok(Outcome::Passed)
}

/// The page in a browser; without one, and where none can be installed, it is said to be skipped.
fn run_studio(root: &Path) -> Result<Outcome> {
    Ok(studio::check(root)?.map_or(Outcome::Passed, Outcome::Skipped))
}

fn mpi(root: &Path) -> Result<Outcome> {
    run_mpi_tests(root, Much::AsMuchAsThereIsTimeFor)?;
    Ok(Outcome::Passed)
}

/// What of the tests of ranks as processes is run.
#[derive(clap::Args)]
pub(crate) struct MpiOptions {
    /// Kill a random rank of a training at so many random moments, on 2 and on 4 processes, and run nothing else
    #[arg(long, value_name = "N")]
    kills: Option<usize>,
}

/// `cargo xtask mpi`.
pub(crate) fn run_mpi(root: &Path, options: &MpiOptions) -> Result<()> {
    let Some(kills) = options.kills else { return run_mpi_tests(root, Much::All) };
    need_mpi(root)?;
    let tests = "test --workspace --features moviola/mpi --test mpi -- --nocapture";
    let mut tests = command("cargo", &format!("{tests} whose_ranks_are_killed"), root);
    process::run(tests.env("MOVIOLA_TEST_KILLS", kills.to_string()))
}

/// How much of the tests of ranks as processes is run.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Much {
    /// Without the laws of more than four processes: on two cores they take minutes.
    AsMuchAsThereIsTimeFor,
    All,
}

/// Ranks as processes. Without an MPI it is installed where that is possible; the tests are never left out in silence.
pub(crate) fn run_mpi_tests(root: &Path, much: Much) -> Result<()> {
    need_mpi(root)?;
    let run = |words: &str| process::run(&mut command("cargo", words, root));
    let of = |name: &str| format!("--workspace --features moviola/mpi --test {name}");
    let (commands, laws, recipes) = (of("mpi"), of("laws"), of("recipes"));
    let has_nextest = process::succeeds(&mut command("cargo", "nextest --version", root))?;
    let runner = if has_nextest { "nextest run" } else { "test" };
    run(&format!("{runner} {commands}"))?;
    if much == Much::AsMuchAsThereIsTimeFor {
        println!("the laws of more than four processes are run by `cargo xtask mpi` alone");
        return run(&format!(
            "{runner} {laws} processes:: -- --skip eight_make --skip five_and_six"
        ));
    }
    run(&format!("{runner} {laws} processes::"))?;
    run(&format!("{runner} {recipes} processes::"))
}

/// Installs an MPI where there is none.
pub(crate) fn need_mpi(root: &Path) -> Result<()> {
    for program in ["mpirun --version", "mpicc --version"] {
        let (name, version) = program.split_once(' ').expect("a program and a flag");
        if !process::succeeds(&mut command(name, version, root))? {
            return install_mpi(root);
        }
    }
    Ok(())
}

fn install_mpi(root: &Path) -> Result<()> {
    match process::install(root, "openmpi-bin libopenmpi-dev libclang-dev")? {
        true => Ok(()),
        false => bail!(
            "there is no MPI; install one with its headers, mpirun and libclang (on Debian: \
             openmpi-bin libopenmpi-dev libclang-dev)"
        ),
    }
}

/// Installs ffmpeg where there is none: tests of foreign videos say that they did not run without it.
fn want_ffmpeg(root: &Path) -> Result<()> {
    for program in ["ffmpeg", "ffprobe"] {
        if !process::succeeds(&mut command(program, "-version", root))?
            && !process::install(root, "ffmpeg")?
        {
            eprintln!(
                "there is no {program}, and it could not be installed: foreign videos are not tested"
            );
        }
    }
    Ok(())
}

/// `cargo xtask test`: every unit, integration and documentation test of the workspace.
pub(crate) fn run_tests(root: &Path) -> Result<()> {
    want_ffmpeg(root)?;
    let has_nextest = process::succeeds(&mut command("cargo", "nextest --version", root))?;
    if !has_nextest {
        return process::run(&mut command("cargo", "test --workspace", root));
    }
    // nextest does not run documentation tests. It comes last, so that the summary of all other
    // tests is what a reader sees.
    process::run(&mut command("cargo", "test --workspace --doc --quiet", root))?;
    process::run(&mut command("cargo", "nextest run --workspace", root))
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(_: &Path) -> Result<Outcome> {
        Ok(Outcome::Passed)
    }

    fn fails(_: &Path) -> Result<Outcome> {
        bail!("planted")
    }

    fn must_not_run(_: &Path) -> Result<Outcome> {
        panic!("a step ran after a failed one")
    }

    #[test]
    fn the_first_failure_stops_the_check_and_is_named() {
        let steps = [
            Step { name: "first", repeat: "do first", run: passes },
            Step { name: "second", repeat: "do second", run: fails },
            Step { name: "third", repeat: "do third", run: must_not_run },
        ];
        let message = run_steps(&steps, Path::new(".")).unwrap_err().to_string();
        assert_eq!(message, "check stopped at second: planted; alone: do second");
    }

    #[test]
    fn a_skipped_step_lets_the_rest_run() {
        let steps = [
            Step { name: "first", repeat: "", run: |_| Ok(Outcome::Skipped("planted")) },
            Step { name: "second", repeat: "", run: passes },
        ];
        run_steps(&steps, Path::new(".")).unwrap();
    }
}
