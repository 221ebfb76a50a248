//! Ctrl-C, SIGTERM and SIGHUP: once stops at the next safe place, twice stops at once.

use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::{Failure, Outcome};

/// The exit code of what Ctrl-C ended, as shells have it.
pub(crate) const INTERRUPTED: u8 = 130;

/// A flag that Ctrl-C sets.
///
/// # Errors
/// The system refuses to tell us.
pub(crate) fn watch() -> Outcome<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = interrupted.clone();
    let handler = move || {
        if flag.swap(true, Ordering::Relaxed) {
            exit(INTERRUPTED.into());
        }
        eprintln!("stopping after this step; press Ctrl-C again to stop at once");
    };
    ctrlc::set_handler(handler)
        .map_err(|err| Failure::Refused(format!("cannot watch for Ctrl-C: {err}")))?;
    Ok(interrupted)
}
