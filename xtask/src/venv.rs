//! Python environments under `target/`, for the commands that compare us with PyTorch or drive us from Python.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::process::{self, command};

/// The interpreter of the environment `target/<name>` with `requirements` installed.
///
/// The environment is made on first use and brought up to date whenever the requirements change.
pub(crate) fn ensure(root: &Path, name: &str, requirements: &Path) -> Result<PathBuf> {
    let wanted = fs::read_to_string(requirements)
        .with_context(|| format!("cannot read {}", requirements.display()))?;
    let folder = root.join("target").join(name);
    let python = interpreter(&folder);
    // Written last, so that an interrupted installation is taken up again.
    let stamp = folder.join("installed-requirements.txt");
    if python.exists() && fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    if !process::succeeds(&mut command("python3", "--version", root))? {
        bail!(
            "python3 is not installed; install Python 3.10 or newer with its venv module, \
             or name an interpreter that has {} with --python",
            requirements.display()
        );
    }
    eprintln!("making {} (PyTorch, where it is asked for, is a large download)", folder.display());
    process::run(command("python3", "-m venv", root).arg(&folder))?;
    let install = "-m pip install --disable-pip-version-check -r";
    process::run(command(&python.to_string_lossy(), install, root).arg(requirements))?;
    fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(python)
}

/// `given` if there is one and it exists, else the environment that [`ensure`] makes.
pub(crate) fn choose(
    given: Option<&Path>,
    root: &Path,
    name: &str,
    requirements: &Path,
) -> Result<PathBuf> {
    match given {
        Some(python) if python.exists() => Ok(python.to_path_buf()),
        Some(python) => bail!("there is no interpreter at {}", python.display()),
        None => ensure(root, name, requirements),
    }
}

fn interpreter(folder: &Path) -> PathBuf {
    if cfg!(windows) { folder.join("Scripts/python.exe") } else { folder.join("bin/python") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_requirements_are_named() {
        let missing = Path::new("no/such/requirements.txt");
        let message = ensure(Path::new("."), "venv-none", missing).unwrap_err().to_string();
        assert!(message.contains("no/such/requirements.txt"), "{message}");
    }

    #[test]
    fn a_given_interpreter_must_exist() {
        let given = Path::new("no/such/python");
        let chosen = choose(Some(given), Path::new("."), "venv-none", Path::new("none.txt"));
        assert!(chosen.unwrap_err().to_string().contains("no/such/python"));
    }
}
