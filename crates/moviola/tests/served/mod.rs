//! A server that a test has started, and what is asked of it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A command that serves a page until it is dropped.
pub(crate) struct Served {
    pub(crate) child: Child,
    pub(crate) host: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Served {
    /// Starts a command, which says where it is on its standard output or its standard error.
    pub(crate) fn start(
        mut command: Command,
        says: fn(&mut Child) -> Box<dyn Read + Send>,
    ) -> Served {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(says(&mut child)).lines().map(Result::unwrap);
        let host = lines.find_map(|line| {
            let (_, rest) = line.split_once("http://")?;
            Some(rest.split('/').next()?.to_owned())
        });
        // Whoever writes must not be stopped by a pipe that is full.
        std::thread::spawn(move || lines.count());
        Served { child, host: host.unwrap() }
    }

    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Vec<u8>) {
        let body = body.map_or(String::new(), Value::to_string);
        let mut stream = TcpStream::connect(&self.host).unwrap();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}",
            self.host
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        let end = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let status = String::from_utf8_lossy(&all[9..12]).parse().unwrap();
        (status, all[end + 4..].to_vec())
    }

    pub(crate) fn json(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        serde_json::from_slice(&self.ask(method, path, body).1).unwrap()
    }

    pub(crate) fn until(&self, id: &str, is_so: impl Fn(&Value) -> bool) {
        let begun = Instant::now();
        loop {
            let job = self.json("GET", &format!("/v1/videos/{id}"), None);
            if is_so(&job) {
                return;
            }
            assert_ne!(job["status"], "failed", "{job}");
            assert!(begun.elapsed() < Duration::from_secs(120), "it does not come: {job}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn clip(&self, id: &str) -> Vec<u8> {
        self.until(id, |job| job["status"] == "completed");
        self.ask("GET", &format!("/v1/videos/{id}/content"), None).1
    }
}
