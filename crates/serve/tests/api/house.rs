//! A server that runs for a test.

use std::io::Cursor;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use burn::tensor::Device;
use engine::{Frames, Pipeline, Plan, Progress, Request, Setup};
use serde_json::Value;
use serve::{Executor, Limits, Model, Retention, Run, Server, Settings};
use tempfile::TempDir;

use crate::wire::{self, Answer, Part};

/// A golden model.
pub(crate) fn golden(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../goldens")).join(name)
}

/// Runs requests as they are.
pub(crate) struct OneRank;

impl Executor for OneRank {
    fn check(&self, _: &Pipeline, _: &Request, _: &Plan) -> engine::Result<()> {
        Ok(())
    }

    fn carry_out(
        &self,
        pipeline: &mut Pipeline,
        run: &Run<'_>,
        progress: &mut (dyn Progress + Send),
        frames: &mut (dyn Frames + Send),
    ) -> engine::Result<()> {
        pipeline.carry_out(run.plan, progress, frames).map(drop)
    }

    fn layouts(&self, _: &Pipeline, _: &Request, ranks: usize) -> engine::Result<Value> {
        Ok(serde_json::json!({ "ranks": ranks }))
    }
}

/// What a server of a test is like.
pub(crate) struct Plot {
    pub(crate) models: Vec<&'static str>,
    pub(crate) limits: Limits,
    pub(crate) retention: Retention,
    pub(crate) keys: Option<&'static str>,
    pub(crate) loras: Option<PathBuf>,
    pub(crate) runs: Option<PathBuf>,
    pub(crate) origins: Vec<String>,
    pub(crate) executor: Box<dyn Executor>,
}

impl Default for Plot {
    fn default() -> Plot {
        Plot {
            models: vec!["wan-tiny"],
            limits: Limits::default(),
            retention: Retention::default(),
            keys: None,
            loras: None,
            runs: None,
            origins: Vec::new(),
            executor: Box::new(OneRank),
        }
    }
}

/// A server and its folder.
pub(crate) struct House {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<serve::Result<()>>>,
    pub(crate) folder: Arc<TempDir>,
}

impl Drop for House {
    fn drop(&mut self) {
        self.close();
    }
}

impl House {
    pub(crate) fn open(plot: Plot) -> House {
        House::open_in(Arc::new(tempfile::tempdir().unwrap()), plot)
    }

    /// The same with the folder of another.
    pub(crate) fn open_in(folder: Arc<TempDir>, plot: Plot) -> House {
        let keys = plot.keys.map(|text| {
            let path = folder.path().join("keys.txt");
            std::fs::write(&path, text).unwrap();
            serve::Keys::read(&path).unwrap()
        });
        let settings = Settings {
            folder: folder.path().join("jobs"),
            listen: "127.0.0.1:0".parse().unwrap(),
            open_to_all: false,
            keys,
            loras: plot.loras,
            runs: plot.runs,
            origins: plot.origins,
            limits: plot.limits,
            retention: plot.retention,
        };
        let setup = Setup::new(&Device::flex());
        let open = |name: &&str| {
            let command = vec!["--model".to_owned(), (*name).to_owned()];
            Model::open(name, &golden(name), &setup).unwrap().with_command(command)
        };
        let models: Vec<Model> = plot.models.iter().map(open).collect();
        let server = Server::open(settings, models, plot.executor).unwrap();
        let address = server.address().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let own = stop.clone();
        let thread = thread::spawn(move || server.run(&own));
        House { address, stop, thread: Some(thread), folder }
    }

    /// Stops it, as SIGTERM does.
    pub(crate) fn close(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], b"")
    }

    pub(crate) fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, &[], b"")
    }

    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        wire::exchange(self.address, &wire::request(method, path, headers, body))
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(
            "POST",
            path,
            &[("Content-Type", "application/json")],
            body.to_string().as_bytes(),
        )
    }

    pub(crate) fn post_form(&self, path: &str, parts: &[Part<'_>]) -> Answer {
        let (kind, body) = wire::form(parts);
        self.send("POST", path, &[("Content-Type", &kind)], &body)
    }

    /// A job that was accepted.
    pub(crate) fn create(&self, body: &Value) -> String {
        let answer = self.post("/v1/videos", body);
        assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    /// Waits until a job is over.
    pub(crate) fn wait(&self, id: &str) -> Value {
        self.until(id, |job| ["completed", "failed"].contains(&job["status"].as_str().unwrap()))
    }

    /// Waits until something is true of a job.
    pub(crate) fn until(&self, id: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let job = self.get(&format!("/v1/videos/{id}")).json();
            if is_so(&job) {
                return job;
            }
            assert!(begun.elapsed() < Duration::from_secs(120), "it does not come: {job}");
            sleep(Duration::from_millis(20));
        }
    }

    /// Folders of jobs that there are.
    pub(crate) fn folders(&self) -> Vec<String> {
        folders(self.folder.path())
    }
}

/// Folders of jobs below the folder of a test.
pub(crate) fn folders(root: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(root.join("jobs/jobs")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

/// A small clip that takes a moment.
pub(crate) fn small(prompt: &str) -> Value {
    serde_json::json!({ "prompt": prompt, "size": "32x32", "num_frames": 5, "num_inference_steps": 2, "seed": 7 })
}

/// The same that takes minutes: whatever comes after it in time, something has given it up.
pub(crate) fn long(prompt: &str) -> Value {
    serde_json::json!({ "prompt": prompt, "size": "64x64", "num_frames": 17, "num_inference_steps": 100_000, "seed": 7 })
}

/// A PNG file of one colour.
pub(crate) fn png(width: u32, height: u32) -> Vec<u8> {
    let picture = image::RgbImage::from_pixel(width, height, image::Rgb([200, 30, 60]));
    let mut bytes = Cursor::new(Vec::new());
    picture.write_to(&mut bytes, image::ImageFormat::Png).unwrap();
    bytes.into_inner()
}
