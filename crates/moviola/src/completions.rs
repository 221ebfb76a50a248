//! `moviola completions` and `moviola man`: what shells and readers of manuals want to know.

use std::path::PathBuf;

use clap_complete::Shell;

use crate::failure::{Failure, Outcome};

/// Which shell.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  moviola completions bash > ~/.local/share/bash-completion/completions/moviola"
)]
pub(crate) struct Completions {
    /// The shell that is to complete
    shell: Shell,
}

/// Where manual pages go.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  moviola man ~/.local/share/man/man1 && man moviola-generate")]
pub(crate) struct Man {
    /// The folder, which is made if it is not there; pages of ours are replaced
    folder: PathBuf,
}

/// Prints what a shell reads.
///
/// # Errors
/// It cannot be printed.
pub(crate) fn run(arguments: &Completions) -> Outcome {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut crate::command(), "moviola", &mut text);
    Ok(crate::say(format_args!("{}", String::from_utf8_lossy(&text)))?)
}

/// Writes a page for the command and one for each of its commands.
///
/// # Errors
/// The folder cannot be made or written.
pub(crate) fn write_manual(arguments: &Man) -> Outcome {
    let folder = &arguments.folder;
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(crate::command().name("moviola"), folder));
    written.map_err(|err| Failure::Refused(format!("cannot write {}: {err}", folder.display())))?;
    Ok(crate::say(format_args!("{}\n", folder.display()))?)
}
