//! What the programs say that read clips for us. A script that says whatever stands in a file takes their place: it is found by the
//! search path, which a process is started with.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

/// The target that needs the script.
pub(crate) const NAME: &str = "probed";

/// The variable that says where the answers stand; a process that has it has the script too.
const ANSWERS: &str = "MOVIOLA_FUZZ_ANSWERS";

/// Starts this program again with a script in the place of `ffprobe` and `ffmpeg`, unless that has been done.
pub(crate) fn started_again() -> Result<Option<ExitCode>> {
    if std::env::var_os(ANSWERS).is_some() {
        return Ok(None);
    }
    let place = tempfile::tempdir_in(crate::memory())?;
    for program in ["ffprobe", "ffmpeg"] {
        let script = place.path().join(program);
        fs::write(&script, format!("#!/bin/sh\nexec cat \"${ANSWERS}\"\n"))?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        }
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(place.path().to_owned()).chain(std::env::split_paths(&path));
    let own = std::env::current_exe()?;
    let status = Command::new(own)
        .args(std::env::args_os().skip(1))
        .env("PATH", std::env::join_paths(folders)?)
        .env(ANSWERS, place.path().join("answer"))
        .status()
        .context("cannot start again")?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(Some(code.map_or(ExitCode::FAILURE, ExitCode::from)))
}

/// A clip of which both programs say `input`.
pub(crate) fn call(place: &Path, input: &[u8]) {
    let Some(answer) = std::env::var_os(ANSWERS) else { return };
    let clip = place.join("x.mp4");
    if fs::write(answer, input).is_ok() && fs::write(&clip, "whatever").is_ok() {
        let _ = data::media::DecodedClip::read(&clip);
    }
}
