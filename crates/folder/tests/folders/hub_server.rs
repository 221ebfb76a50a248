//! A server of our own that plays the hub.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use folder::Hub;

/// The commit that most tests serve.
pub(crate) const MAIN: &str = "1111111111111111111111111111111111111111";

/// A request as the server saw it: its path, and the headers that matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
    pub(crate) range: Option<String>,
    pub(crate) host: String,
}

/// What the server answers to a path: status, headers and body.
#[derive(Clone)]
pub(crate) struct Answer {
    pub(crate) status: &'static str,
    pub(crate) headers: Vec<String>,
    pub(crate) body: Vec<u8>,
    /// Close the connection after so many bytes of the body.
    pub(crate) breaks_after: Option<usize>,
}

impl Answer {
    pub(crate) fn new(status: &'static str, body: impl Into<Vec<u8>>) -> Answer {
        Answer { status, headers: Vec::new(), body: body.into(), breaks_after: None }
    }

    pub(crate) fn with(mut self, header: impl Into<String>) -> Answer {
        self.headers.push(header.into());
        self
    }
}

/// The hub: each path has its answers in order, of which the last is kept.
pub(crate) struct Server {
    pub(crate) port: u16,
    answers: Arc<Mutex<HashMap<String, Vec<Answer>>>>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    pub(crate) fn new() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (answers, seen) = (Arc::<Mutex<HashMap<_, _>>>::default(), Arc::default());
        let server = Server { port, answers, seen };
        let (answers, seen) = (Arc::clone(&server.answers), Arc::clone(&server.seen));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                // A client that hangs up early is what some tests are about.
                let _ = answer(&stream, &answers, &seen);
            }
        });
        server
    }

    pub(crate) fn on(&self, path: &str, answers: impl Into<Vec<Answer>>) {
        self.answers.lock().unwrap().insert(path.to_owned(), answers.into());
    }

    /// Takes what was asked since the last call.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.path).collect()
    }

    /// Lists a revision with these files: path, hash, bytes, whether it is a large one.
    pub(crate) fn list(&self, revision: &str, commit: &str, files: &[File<'_>]) {
        let files: Vec<String> = files.iter().map(File::listed).collect();
        let body = format!(r#"{{"id":"o/m","sha":"{commit}","siblings":[{}]}}"#, files.join(","));
        let path = format!("/api/models/o/m/revision/{revision}?blobs=true");
        self.on(&path, [Answer::new("200 OK", body)]);
    }

    pub(crate) fn hub(&self, cache: &Path) -> Hub {
        let endpoint = format!("http://127.0.0.1:{}/", self.port);
        Hub { endpoint, offline: false, ..Hub::offline(cache) }
    }
}

fn answer(
    stream: &TcpStream,
    answers: &Mutex<HashMap<String, Vec<Answer>>>,
    seen: &Mutex<Vec<Seen>>,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    let Some(path) = first.split(' ').nth(1) else { return Ok(()) };
    let mut headers = HashMap::new();
    for line in lines {
        let line = line?;
        let Some((name, value)) = line.split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let header = |name: &str| headers.get(name).cloned();
    let (authorization, range) = (header("authorization"), header("range"));
    let host = header("host").unwrap_or_default();
    seen.lock().unwrap().push(Seen { path: path.to_owned(), authorization, range, host });
    let own = match answers.lock().unwrap().get_mut(path) {
        Some(own) if own.len() > 1 => own.remove(0),
        Some(own) => own[0].clone(),
        None => Answer::new("404 Not Found", ""),
    };
    let mut stream = stream;
    write!(stream, "HTTP/1.1 {}\r\nconnection: close\r\n", own.status)?;
    let length = own.body.len();
    if !own.headers.iter().any(|header| header.starts_with("content-length")) {
        write!(stream, "content-length: {length}\r\n")?;
    }
    for header in &own.headers {
        write!(stream, "{header}\r\n")?;
    }
    write!(stream, "\r\n")?;
    if first.starts_with("HEAD ") {
        return Ok(());
    }
    stream.write_all(&own.body[..own.breaks_after.unwrap_or(length)])
}

/// A file that the hub lists.
pub(crate) struct File<'a> {
    pub(crate) path: &'a str,
    pub(crate) hash: &'a str,
    pub(crate) size: usize,
}

impl File<'_> {
    fn listed(&self) -> String {
        let File { path, hash, size } = self;
        match hash.len() {
            0 => format!(r#"{{"rfilename":"{path}"}}"#),
            64 => format!(
                r#"{{"rfilename":"{path}","size":{size},"blobId":"{MAIN}","lfs":{{"sha256":"{hash}","size":{size},"pointerSize":9}}}}"#
            ),
            _ => format!(r#"{{"rfilename":"{path}","size":{size},"blobId":"{hash}"}}"#),
        }
    }
}
