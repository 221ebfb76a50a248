//! Running other programs: what was run, where, and what to say when it fails.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// A command for `program` in `folder`, with its arguments split at spaces.
pub(crate) fn command(program: &str, arguments: &str, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(arguments.split_whitespace()).current_dir(folder);
    command
}

/// Runs `command` with its output shown, and fails if it does.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = describe(command);
    let status = command.status().with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed with {status}");
    }
    Ok(())
}

/// Runs `command` and returns what it printed.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = describe(command);
    let output = command.output().with_context(|| format!("cannot start `{shown}`"))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        bail!("`{shown}` failed with {}: {}", output.status, reason.trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{shown}` printed invalid UTF-8"))
}

/// Whether `command` starts and succeeds; a missing program is an answer, not an error.
pub(crate) fn succeeds(command: &mut Command) -> Result<bool> {
    match command.stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(status) => Ok(status.success()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot start `{}`", describe(command))),
    }
}

/// Where cargo puts what it builds.
pub(crate) fn target_folder(root: &Path) -> Result<PathBuf> {
    #[derive(serde::Deserialize)]
    struct Metadata {
        target_directory: PathBuf,
    }
    let line = "metadata --no-deps --format-version 1";
    let text = output(&mut command("cargo", line, root))?;
    let metadata: Metadata = serde_json::from_str(&text).context("cargo's metadata are no JSON")?;
    Ok(metadata.target_directory)
}

/// The command as one would type it.
pub(crate) fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Installs packages of Debian without asking anybody; says whether that could be done.
///
/// # Errors
/// A program cannot be started for another reason than that it is not there.
pub(crate) fn install(root: &Path, packages: &str) -> Result<bool> {
    for arguments in ["update".to_owned(), format!("install -y {packages}")] {
        let mut install = command("apt-get", &arguments, root);
        install.env("DEBIAN_FRONTEND", "noninteractive");
        if !succeeds(&mut install)? {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_not_installed() {
        let mut missing = command("moviola-no-such-program", "--version", Path::new("."));
        assert!(!succeeds(&mut missing).unwrap());
        assert!(run(&mut missing).unwrap_err().to_string().contains("moviola-no-such-program"));
    }

    #[test]
    fn a_failure_names_the_command() {
        let mut failing = command("cargo", "no-such-command", Path::new("."));
        let message = output(&mut failing).unwrap_err().to_string();
        assert!(message.starts_with("`cargo no-such-command` failed"), "{message}");
    }
}
