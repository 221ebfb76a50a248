//! `cargo xtask serve-test`: the server from outside. A pinned openai-python drives the API; load, `kill -9` and bad input follow.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::process::{self, command};
use crate::venv;

/// What to try, and how much of it.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// An interpreter that has tools/serve/requirements.txt installed
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Some of the parts: api, load, kill, bad, schema; repeat it for several
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
    /// Jobs of the load
    #[arg(long, value_name = "N", default_value_t = 500)]
    jobs: usize,
    /// How often the server is killed
    #[arg(long, value_name = "N", default_value_t = 100)]
    kills: usize,
    /// Bad requests
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    bad: usize,
    /// Cases that schemathesis makes up of each call
    #[arg(long, value_name = "N", default_value_t = 200)]
    schema: usize,
    /// The binary to try instead of one that is built now
    #[arg(long, value_name = "PATH")]
    moviola: Option<PathBuf>,
}

/// Tries the server.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let moviola = match &options.moviola {
        Some(moviola) => moviola.clone(),
        None => {
            process::run(&mut command("cargo", "build --workspace --bin moviola", root))?;
            process::target_folder(root)?.join("debug/moviola")
        }
    };
    let requirements = root.join("tools/serve/requirements.txt");
    let python = venv::choose(options.python.as_deref(), root, "venv-serve", &requirements)?;
    let mut drive = command(&python.to_string_lossy(), "tools/serve/drive.py", root);
    drive.arg("--moviola").arg(moviola).arg("--root").arg(root);
    for (name, count) in [
        ("--jobs", options.jobs),
        ("--kills", options.kills),
        ("--bad", options.bad),
        ("--schema", options.schema),
    ] {
        drive.arg(name).arg(count.to_string());
    }
    for part in &options.only {
        drive.arg("--only").arg(part);
    }
    process::run(&mut drive)
}
