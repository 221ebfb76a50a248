//! A server: its settings, its socket and its worker.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::sync::Semaphore;
use tower::ServiceExt;

use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::http::{self, Api};
use crate::jobs::Jobs;
use crate::keys::Keys;
use crate::limits::{Limits, Retention};
use crate::model::{Loras, Model, Models};
use crate::worker::{Engine, Executor, Worker};

/// How often the server looks whether it should stop.
const GLANCE: Duration = Duration::from_millis(100);

/// How often what is too old is removed.
const SWEEP: Duration = Duration::from_secs(60);

/// How long answers that are on their way may take when the server stops.
const FAREWELL: Duration = Duration::from_secs(5);

/// The most that the headers of a request may be, in bytes.
const MOST_HEADERS: usize = 64 << 10;

/// Threads that check requests and write the table.
const BLOCKING_THREADS: usize = 8;

/// What a server is to do.
pub struct Settings {
    /// The folder of its jobs.
    pub folder: PathBuf,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Whether it may listen for everybody without keys.
    pub open_to_all: bool,
    /// Keys of clients; without them everybody is served.
    pub keys: Option<Keys>,
    /// The folder of LoRAs.
    pub loras: Option<PathBuf>,
    /// The folder of training runs that the page shows.
    pub runs: Option<PathBuf>,
    /// Origins of other pages that may use it from a browser.
    pub origins: Vec<String>,
    /// Bounds of requests and connections.
    pub limits: Limits,
    /// How long finished jobs are kept.
    pub retention: Retention,
}

/// A server that is bound to its address.
pub struct Server {
    listener: TcpListener,
    engine: Arc<Engine>,
    jobs: Arc<Jobs>,
    api: Arc<Api>,
}

impl Server {
    /// Opens the folder of jobs and binds the address; nothing is answered yet.
    ///
    /// # Errors
    /// The settings cannot be, the folder cannot be used, or the address is taken.
    pub fn open(
        settings: Settings,
        models: Vec<Model>,
        executor: Box<dyn Executor>,
    ) -> Result<Server> {
        let address = settings.listen;
        if !address.ip().is_loopback() && settings.keys.is_none() && !settings.open_to_all {
            return Err(Error::Settings(format!(
                "{address} can be reached from other machines, and there are no keys; give --keys FILE, listen on \
                 127.0.0.1, or say --open-to-all"
            )));
        }
        if models.is_empty() {
            return Err(Error::Settings("there is no model to serve; give --model".to_owned()));
        }
        if let Some(twice) = models.iter().enumerate().find_map(|(at, model)| {
            models[..at].iter().find(|other| other.id() == model.id()).map(Model::id)
        }) {
            return Err(Error::Settings(format!(
                "two models are called `{twice}`; give one another name, as in --model NAME=DIR"
            )));
        }
        let Settings { folder, keys, loras, runs, origins, limits, retention, .. } = settings;
        let jobs = Arc::new(Jobs::open(&folder, limits.queue, retention)?);
        let listener = TcpListener::bind(address).map_err(|source| {
            Error::Settings(format!(
                "cannot listen on {address}: {source}; choose another --listen"
            ))
        })?;
        let (models, loras) = (Models(models), Loras::of(loras));
        let engine = Arc::new(Engine { models, loras, executor, limits });
        let pages = Arc::new(http::Pages { runs, origins, has_keys: keys.is_some() });
        let api = Arc::new(Api::new(engine.clone(), jobs.clone(), keys, pages));
        Ok(Server { listener, engine, jobs, api })
    }

    /// Where it listens, with the port that the system chose if none was asked for.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(|source| Error::Settings(source.to_string()))
    }

    /// Serves until `stop` is set. Jobs are worked on by the thread that calls this, within its pool.
    ///
    /// # Errors
    /// The socket or the table of jobs cannot be used any more.
    pub fn run(self, stop: &Arc<AtomicBool>) -> Result<()> {
        let Server { listener, engine, jobs, api } = self;
        let limits = engine.limits.clone();
        let app = http::router(api);
        let front = {
            let (jobs, stop) = (jobs.clone(), stop.clone());
            let body = move || front(listener, app, &limits, Some(&jobs), &stop);
            thread::Builder::new().name("http".to_owned()).spawn(body)
        };
        let front =
            front.map_err(|source| Error::Settings(format!("cannot start a thread: {source}")))?;
        let worked = Worker::new(&engine, &jobs).work();
        // If the worker cannot go on, nobody else should wait for it.
        stop.store(true, Ordering::Relaxed);
        let fronted = front
            .join()
            .unwrap_or_else(|_| Err(Error::Settings("the front of the server failed".to_owned())));
        worked.and(fronted)
    }
}

/// Answers connections until the server stops, and lets what is worked on stop with it.
pub(crate) fn front(
    listener: TcpListener,
    app: Router,
    limits: &Limits,
    jobs: Option<&Arc<Jobs>>,
    stop: &AtomicBool,
) -> Result<()> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let builder = builder.enable_io().enable_time().max_blocking_threads(BLOCKING_THREADS);
    let wrong = |source: std::io::Error| Error::Settings(format!("cannot serve: {source}"));
    let result = builder.build().map_err(wrong).and_then(|runtime| {
        let served = runtime.block_on(accept(listener, app, limits, jobs, stop)).map_err(wrong);
        runtime.shutdown_timeout(FAREWELL);
        served
    });
    // Whatever ended this, the worker must not wait for jobs that cannot come.
    if let Some(jobs) = jobs {
        jobs.stop();
    }
    result
}

async fn accept(
    listener: TcpListener,
    app: Router,
    limits: &Limits,
    jobs: Option<&Arc<Jobs>>,
    stop: &AtomicBool,
) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(limits.connections));
    let graceful = GracefulShutdown::new();
    let sweeping = jobs.map(|jobs| tokio::spawn(sweep(jobs.clone())));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.idle).max_buf_size(MOST_HEADERS);
    while !stop.load(Ordering::Relaxed) {
        let next = async {
            let place = places.clone().acquire_owned().await;
            (place, listener.accept().await)
        };
        let Ok((place, accepted)) = tokio::time::timeout(GLANCE, next).await else { continue };
        let Ok((stream, peer)) = accepted else {
            // Too many open files, or a client that is gone already.
            tokio::time::sleep(GLANCE).await;
            continue;
        };
        let app = app.clone();
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(ConnectInfo(peer));
            app.clone().oneshot(request)
        });
        let stream = TokioIo::new(Connection::new(stream, limits.idle));
        let connection = graceful.watch(builder.serve_connection(stream, service));
        tokio::spawn(async move {
            // A connection that breaks is the client's affair.
            let _ = connection.await;
            drop(place);
        });
    }
    if let Some((jobs, sweeping)) = jobs.zip(sweeping) {
        jobs.stop();
        sweeping.abort();
    }
    drop(listener);
    // Who still waits after that is not waited for.
    let _ = tokio::time::timeout(FAREWELL, graceful.shutdown()).await;
    Ok(())
}

/// Removes what is too old, now and then.
async fn sweep(jobs: Arc<Jobs>) {
    loop {
        let own = jobs.clone();
        let _ = tokio::task::spawn_blocking(move || {
            if let Err(error) = own.retain() {
                eprintln!("error: {error}");
            }
        })
        .await;
        tokio::time::sleep(SWEEP).await;
    }
}
