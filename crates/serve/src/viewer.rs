//! The page of one training run, for as long as it is held: what `train --watch` shows.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crate::error::{Error, Result};
use crate::http::{self, Pages};
use crate::limits::Limits;
use crate::server::front;

/// Shows a run to this machine. Dropping it ends that.
pub struct Viewer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Viewer {
    /// Shows the run of a folder, which may be empty still.
    ///
    /// # Errors
    /// Others could reach the address, or it is taken.
    pub fn open(run: &Path, listen: SocketAddr) -> Result<Viewer> {
        if !listen.ip().is_loopback() {
            return Err(Error::Settings(format!(
                "{listen} can be reached from other machines; a run is shown to this one only: give 127.0.0.1, or \
                 `moviola serve --runs DIR` with --keys"
            )));
        }
        let wrong = |source: std::io::Error| {
            Error::Settings(format!("cannot listen on {listen}: {source}; choose another port"))
        };
        let listener = TcpListener::bind(listen).map_err(wrong)?;
        let address = listener.local_addr().map_err(wrong)?;
        let runs = Some(run.to_owned());
        let app = http::runs_only(Arc::new(Pages { runs, origins: Vec::new(), has_keys: false }));
        let stop = Arc::new(AtomicBool::new(false));
        let own = stop.clone();
        let body = move || front(listener, app, &Limits::default(), None, &own);
        let thread = thread::Builder::new().name("watch".to_owned()).spawn(body).map_err(wrong)?;
        Ok(Viewer { address, stop, thread: Some(thread) })
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Whoever trains does not mind how the page ended.
            let _ = thread.join();
        }
    }
}
