//! `cargo xtask fuzz`: damaged input for every reader and for the command itself.
//!
//! Each target runs in a process of its own: readers one after the other, each for its share of the time, and the command
//! beside them for all of it. A process that aborts leaves the input that it was busy with, and the target goes on behind it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::process::{self, command};

/// What to feed, and for how long.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How long all of it takes
    #[arg(long, default_value_t = 2.0)]
    minutes: f64,
    /// What all cases are drawn from
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The folder of `fuzz` and `moviola` that are built already; nothing is built then
    #[arg(long)]
    built: Option<PathBuf>,
    /// Where inputs go that were found [default: in the target folder]
    #[arg(long)]
    found: Option<PathBuf>,
    /// Only targets whose names contain this
    only: Option<String>,
}

/// The target that is the command itself, which runs beside the readers: its cases are a hundred times as slow.
const COMMAND: &str = "command";

/// Builds everything and feeds it.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let built = match &options.built {
        Some(built) => built.clone(),
        None => {
            process::run(&mut command("cargo", "build --workspace", root))?;
            process::target_folder(root)?.join("debug")
        }
    };
    let found = match &options.found {
        Some(found) => found.clone(),
        None => process::target_folder(root)?.join("fuzz"),
    };
    let list = process::output(
        Command::new(built.join("fuzz")).arg("--root").arg(root).arg("--found").arg(&found),
    )?;
    let wanted =
        |name: &&str| options.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    let targets: Vec<&str> = list.lines().filter(wanted).collect();
    if targets.is_empty() {
        bail!(
            "there is no such target; there are: {}",
            list.lines().collect::<Vec<_>>().join(", ")
        );
    }
    let seconds = 60.0 * options.minutes;
    let (commands, readers): (Vec<&str>, Vec<&str>) =
        targets.into_iter().partition(|name| *name == COMMAND);
    let all = |names: &[&str]| -> Result<(u64, Vec<String>)> {
        let (share, mut cases, mut bad) = (seconds / names.len().max(1) as f64, 0, Vec::new());
        for name in names {
            let (count, findings) = feed(root, &built, (name, share), options.seed, &found)?;
            cases += count;
            bad.extend(findings);
        }
        Ok((cases, bad))
    };
    // The command waits for its processes; readers need a core.
    let (started, read) = thread::scope(|scope| {
        let started = scope.spawn(|| all(&commands));
        let read = all(&readers);
        (started.join(), read)
    });
    let Ok(started) = started else { bail!("the target {COMMAND} panicked") };
    let ((started, mut bad), (read, more)) = (started?, read?);
    bad.extend(more);
    println!("{read} cases of {} readers and {started} of the command", readers.len());
    match bad.is_empty() {
        true => Ok(()),
        false => bail!("{} findings:\n{}", bad.len(), bad.join("\n")),
    }
}

/// Runs one target to the end of its time, and says how many cases there were and what was found.
fn feed(
    root: &Path,
    built: &Path,
    (name, seconds): (&str, f64),
    seed: u64,
    found: &Path,
) -> Result<(u64, Vec<String>)> {
    let (begun, mut cases, mut bad) = (Instant::now(), 0, Vec::new());
    loop {
        let left = seconds - begun.elapsed().as_secs_f64();
        if left <= 0.0 || bad.len() >= 10 {
            return Ok((cases, bad));
        }
        let mut own = Command::new(built.join("fuzz"));
        own.arg("--root").arg(root).arg("--found").arg(found);
        own.arg("--moviola").arg(built.join("moviola")).args(["--target", name]);
        own.args(["--seconds", &left.to_string(), "--seed", &seed.to_string()]);
        // After an abort nobody knows how far it came.
        own.args(["--from", &(cases + 1_000_000 * bad.len() as u64).to_string()]);
        let output = own.output().with_context(|| format!("cannot start the target {name}"))?;
        let said = String::from_utf8_lossy(&output.stdout);
        print!("{said}");
        let count = said.lines().find_map(|line| {
            line.strip_prefix(&format!("{name}: "))?.split_once(" cases")?.0.parse::<u64>().ok()
        });
        cases += count.unwrap_or(0);
        match (output.status.code(), count) {
            (Some(0), _) => {}
            (_, Some(_)) => {
                bad.extend(said.lines().filter(|line| line.contains("case ")).map(str::to_owned));
            }
            _ => {
                let kept = found.join(format!("{name}-{seed}-ended-{}", bad.len()));
                let _ = std::fs::rename(found.join(format!("{name}.current")), &kept);
                bad.push(format!(
                    "{name} ended with {}; its input is {}",
                    output.status,
                    kept.display()
                ));
            }
        }
    }
}
