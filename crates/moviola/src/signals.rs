//! Ctrl-C, and the signals that end a process from outside: SIGTERM of SLURM, Docker and systemd, and
//! SIGHUP of a terminal that is gone. Once stops at the next safe place, twice stops at once. SIGUSR1, which
//! `mpirun` hands on and SLURM can send before the time is up, stops at the next safe place however often it comes.

use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use data::aside;

use crate::failure::{Failure, Outcome};
use crate::voice::Voice;

/// The exit code of what was interrupted, as shells have it.
pub(crate) const INTERRUPTED: u8 = 130;

/// How long something that keeps nothing may take to come to an end. Docker waits ten seconds before it
/// kills.
const GRACE: Duration = Duration::from_secs(3);

/// A flag that an interruption sets.
///
/// # Errors
/// The system refuses to tell us.
pub(crate) fn watch(voice: Voice) -> Outcome<Arc<AtomicBool>> {
    Ok(Looking::watch(voice)?.over())
}

/// A command that looks at much before it writes anything: for so long an interruption ends it at once.
pub(crate) struct Looking {
    looks: Arc<AtomicBool>,
    interrupted: Arc<AtomicBool>,
}

impl Looking {
    /// Watches for interruptions.
    ///
    /// # Errors
    /// The system refuses to tell us.
    pub(crate) fn watch(voice: Voice) -> Outcome<Looking> {
        let looks = Arc::new(AtomicBool::new(true));
        let interrupted = watch_after(looks.clone(), voice)?;
        Ok(Looking { looks, interrupted })
    }

    /// From here on something is written, and an interruption sets the flag.
    pub(crate) fn over(self) -> Arc<AtomicBool> {
        self.looks.store(false, Ordering::Relaxed);
        self.interrupted
    }
}

/// A flag that an interruption sets, once nobody only looks any more.
fn watch_after(looks: Arc<AtomicBool>, voice: Voice) -> Outcome<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = interrupted.clone();
    // SIGUSR1 came first: this is the first that may be one too many.
    let mut was_told = false;
    handle(move || {
        if looks.load(Ordering::Relaxed) {
            voice.fail(&Writing::default().interrupted(), INTERRUPTED);
            exit(INTERRUPTED.into());
        }
        if std::mem::replace(&mut was_told, true) {
            exit(INTERRUPTED.into());
        }
        flag.store(true, Ordering::Relaxed);
        voice.say("stopping after this step; press Ctrl-C again to stop at once");
    })?;
    let flag = interrupted.clone();
    signal_hook::flag::register(signal_hook::consts::SIGUSR1, flag)
        .map_err(|err| Failure::Refused(format!("cannot watch for SIGUSR1: {err}")))?;
    Ok(interrupted)
}

fn handle(handler: impl FnMut() + Send + 'static) -> Outcome {
    ctrlc::set_handler(handler)
        .map_err(|err| Failure::Refused(format!("cannot watch for Ctrl-C: {err}")))
}

/// A run that only writes files, and whose work is lost when it is stopped: it ends soon, and leaves
/// nothing half-written.
#[derive(Clone, Default)]
pub(crate) struct Writing {
    flag: Arc<AtomicBool>,
    files: Arc<Mutex<Files>>,
}

#[derive(Default)]
struct Files {
    /// What is or will be written.
    targets: Vec<PathBuf>,
    /// What is there.
    written: Vec<PathBuf>,
}

impl Writing {
    /// Watches for interruptions: the flag is set, and the process ended if that does not help.
    ///
    /// # Errors
    /// The system refuses to tell us.
    pub(crate) fn watch(voice: Voice) -> Outcome<Writing> {
        Writing::watch_for(GRACE, voice)
    }

    /// The same for work that looks at no flag.
    ///
    /// # Errors
    /// The system refuses to tell us.
    pub(crate) fn watch_at_once(voice: Voice) -> Outcome<Writing> {
        Writing::watch_for(Duration::ZERO, voice)
    }

    fn watch_for(grace: Duration, voice: Voice) -> Outcome<Writing> {
        let writing = Writing::default();
        let own = writing.clone();
        handle(move || {
            if own.flag.swap(true, Ordering::Relaxed) || grace.is_zero() {
                own.end(voice);
            }
            let late = own.clone();
            std::thread::spawn(move || {
                std::thread::sleep(grace);
                late.end(voice);
            });
        })?;
        Ok(writing)
    }

    /// The flag that an interruption sets.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        self.flag.clone()
    }

    /// Notes what will be written.
    pub(crate) fn expect(&self, targets: impl IntoIterator<Item = PathBuf>) {
        self.files().targets.extend(targets);
    }

    /// Notes that something is there.
    pub(crate) fn wrote(&self, path: &Path) {
        self.files().written.push(path.to_owned());
    }

    /// What an interruption has left.
    pub(crate) fn interrupted(&self) -> String {
        let files = self.files();
        match &files.written[..] {
            [] => "interrupted; nothing was written".to_owned(),
            [only] => format!("interrupted; {} was written before", only.display()),
            [first, .., last] => format!(
                "interrupted; {} files were written before, from {} to {}",
                files.written.len(),
                first.display(),
                last.display()
            ),
        }
    }

    /// Ends the process from another thread: what it is making is removed.
    fn end(&self, voice: Voice) {
        for target in &self.files().targets {
            aside::remove_own_unfinished(target);
        }
        voice.fail(&self.interrupted(), INTERRUPTED);
        exit(INTERRUPTED.into());
    }

    fn files(&self) -> std::sync::MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
