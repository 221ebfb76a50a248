//! `cargo xtask break`: what was made to break the command, all of it, as processes with little memory.
//!
//! The tests of `crates/moviola/tests/breaks` are part of every test run. Here they also wait for what hangs,
//! and kill each command at many more moments.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::process::{self, command};

/// How long all of it may take.
const MINUTES: u64 = 10;

/// What to try.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// At how many moments each command is killed
    #[arg(long, default_value_t = 50)]
    moments: u32,
    /// Only those whose names contain this
    only: Option<String>,
}

/// Builds the command and tries to break it.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    const TARGETS: &str = "--workspace --bin moviola --test breaks";
    process::run(&mut command("cargo", &format!("test {TARGETS} --no-run"), root))?;
    let begun = Instant::now();
    let has_nextest = process::succeeds(&mut command("cargo", "nextest --version", root))?;
    let mut tests = match has_nextest {
        true => command("cargo", &format!("nextest run {TARGETS} --no-fail-fast"), root),
        false => command("cargo", &format!("test {TARGETS} --no-fail-fast --"), root),
    };
    process::run(
        tests.args(&options.only).env("MOVIOLA_BREAK_MOMENTS", options.moments.to_string()),
    )?;
    let seconds = begun.elapsed().as_secs();
    println!("nothing broke in {seconds} s");
    match seconds > 60 * MINUTES {
        true => bail!("it took more than {MINUTES} minutes"),
        false => Ok(()),
    }
}
