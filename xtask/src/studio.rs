//! `cargo xtask studio-test`: the page in a headless Chromium, which Playwright drives from `tools/studio`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::process::{self, command};

/// Names that Chromium has as a program.
const BROWSERS: [&str; 4] =
    ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

const NO_NPM: &str = "there is no npm; install Node.js 20 or newer (on Debian: nodejs npm)";
const NO_BROWSER: &str =
    "there is no Chromium; install one (on Debian: chromium), or name it with --chromium";

/// Where the page is tried from, and with what.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// The binary to try instead of one that is built now
    #[arg(long, value_name = "PATH")]
    moviola: Option<PathBuf>,
    /// The browser [default: chromium or chrome of this machine]
    #[arg(long, value_name = "PATH")]
    chromium: Option<PathBuf>,
    /// A folder for screenshots
    #[arg(long, value_name = "DIR")]
    pictures: Option<PathBuf>,
    /// A model of the shapes world, like that of `moviola quickstart`, instead of one that has learnt nothing
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Steps of the training that is watched
    #[arg(long, value_name = "N", default_value_t = 60)]
    steps: usize,
}

/// Tries the page; fails where there is no browser or no Node.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    if let Some(lacking) = lacking(root, options)? {
        anyhow::bail!("{lacking}");
    }
    drive(root, options)
}

/// The same as a step of `check`: why it was not run, if it was not.
pub(crate) fn check(root: &Path) -> Result<Option<&'static str>> {
    let options = Options { steps: 24, ..Options::default() };
    // Each by itself: a Node that did not come as a package and the one that does exclude each other.
    if lacking(root, &options)? == Some(NO_NPM) {
        process::install(root, "nodejs npm")?;
    }
    if lacking(root, &options)? == Some(NO_BROWSER) {
        process::install(root, "chromium")?;
    }
    match lacking(root, &options)? {
        Some(lacking) => Ok(Some(lacking)),
        None => drive(root, &options).map(|()| None),
    }
}

/// What of that which is needed is not here.
fn lacking(root: &Path, options: &Options) -> Result<Option<&'static str>> {
    if !process::succeeds(&mut command("npm", "--version", root))? {
        return Ok(Some(NO_NPM));
    }
    if options.chromium.is_none() && browser(root)?.is_none() {
        return Ok(Some(NO_BROWSER));
    }
    Ok(None)
}

fn browser(root: &Path) -> Result<Option<String>> {
    for name in BROWSERS {
        if process::succeeds(&mut command(name, "--version", root))? {
            let place = process::output(&mut command("which", name, root))?;
            return Ok(Some(place.trim().to_owned()));
        }
    }
    Ok(None)
}

fn drive(root: &Path, options: &Options) -> Result<()> {
    let moviola = match &options.moviola {
        Some(moviola) => std::path::absolute(moviola)?,
        None => {
            process::run(&mut command("cargo", "build --workspace --bin moviola", root))?;
            process::target_folder(root)?.join("debug/moviola")
        }
    };
    let chromium = match &options.chromium {
        Some(chromium) => chromium.display().to_string(),
        None => browser(root)?.context("the browser is gone")?,
    };
    let scripts = scripts(root)?;
    let mut drive = command("node", "drive.mjs", &scripts);
    drive.arg("--moviola").arg(moviola).arg("--root").arg(root).arg("--chromium").arg(chromium);
    for (name, path) in [("--pictures", &options.pictures), ("--model", &options.model)] {
        if let Some(path) = path {
            drive.arg(name).arg(std::path::absolute(path)?);
        }
    }
    process::run(drive.arg("--steps").arg(options.steps.to_string()))
}

/// The scripts in a folder under `target`, with the packages that they are pinned to.
fn scripts(root: &Path) -> Result<PathBuf> {
    let (from, to) = (root.join("tools/studio"), root.join("target/studio-test"));
    fs::create_dir_all(&to).with_context(|| format!("cannot make {}", to.display()))?;
    let pinned = from.join("package-lock.json");
    let installed = to.join("installed.json");
    for entry in fs::read_dir(&from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    let is_there = fs::read(&installed).ok() == fs::read(&pinned).ok() && installed.exists();
    if !is_there {
        process::run(&mut command("npm", "ci --no-audit --no-fund --ignore-scripts", &to))?;
        fs::copy(&pinned, &installed)?;
    }
    Ok(to)
}
