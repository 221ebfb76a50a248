//! `cargo xtask goldens`: makes the reference files anew with the real PyTorch and diffusers.
//!
//! Tests only read `goldens/`; nobody needs Python unless the reference itself changes.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::process::{self, command};
use crate::venv;

/// How to make the goldens.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Use this interpreter, which has tools/goldens/requirements.txt installed, instead of
    /// making target/venv-goldens
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
}

/// Runs `tools/goldens/make_all.py` in an environment with the pinned versions.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let script = root.join("tools/goldens/make_all.py");
    if !script.exists() {
        bail!("{} is missing; run this in a complete checkout", script.display());
    }
    let requirements = root.join("tools/goldens/requirements.txt");
    let python = venv::choose(options.python.as_deref(), root, "venv-goldens", &requirements)?;
    process::run(command(&python.to_string_lossy(), "", root).arg(&script))?;
    println!("goldens/ is made; look at `git diff --stat goldens` before you commit it");
    Ok(())
}
