//! `cargo xtask fuzz`: damaged input for every reader and for the command itself.
//!
//! Each target runs in a process of its own, for its share of the time. A process that aborts leaves the input that it was busy
//! with, and the target goes on behind it.

use std::path::{Path, PathBuf};
use std::process::Command;
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

/// The share of the time that is the command's: its cases are a hundred times as slow.
const PROCESSES: f64 = 0.75;

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
    let readers = targets.iter().filter(|name| **name != "command").count().max(1) as f64;
    let has_command = targets.contains(&"command");
    let left = if has_command && targets.len() > 1 { 1.0 - PROCESSES } else { 1.0 };
    let (mut read, mut started, mut bad) = (0, 0, Vec::new());
    for name in &targets {
        let share = match *name {
            "command" if targets.len() > 1 => PROCESSES,
            "command" => 1.0,
            _ => left / readers,
        };
        let (count, findings) = feed(root, &built, (name, seconds * share), options.seed, &found)?;
        match *name {
            "command" => started += count,
            _ => read += count,
        }
        bad.extend(findings);
    }
    println!(
        "{read} cases of {} readers and {started} of the command",
        targets.len() - usize::from(has_command)
    );
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
