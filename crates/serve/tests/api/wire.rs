//! HTTP as it is written, without a library that would mend what is wrong.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// A header by its name in small letters.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// What an error says, which has all of OpenAI's fields.
    pub(crate) fn error(&self) -> Value {
        let error = self.json()["error"].clone();
        for field in ["message", "type", "param", "code"] {
            assert!(error.get(field).is_some(), "no `{field}` in {error}");
        }
        error
    }
}

/// Sends bytes and reads all that comes back until the other side closes.
pub(crate) fn exchange(address: SocketAddr, bytes: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // The server may answer and close before it has read all.
    let _ = stream.write_all(bytes);
    answer(&mut stream)
}

/// Reads one answer of a connection that is closed after it.
pub(crate) fn answer(stream: &mut TcpStream) -> Answer {
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    let end = all.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no answer: {:?}", String::from_utf8_lossy(&all)));
    let head = String::from_utf8_lossy(&all[..end]).into_owned();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let header = |line: &str| {
        let (name, value) = line.split_once(':').unwrap();
        (name.to_lowercase(), value.trim().to_owned())
    };
    let headers: Vec<(String, String)> = lines.map(header).collect();
    let mut body = all.split_off(end + 4);
    if headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked") {
        body = unchunked(&body);
    }
    Answer { status, headers, body }
}

fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        body.extend(&rest[end + 2..end + 2 + length]);
        rest = &rest[end + 2 + length + 2..];
        if length == 0 {
            break;
        }
    }
    body
}

/// A request with headers beside those that every one has.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "Host") {
        head += "Host: 127.0.0.1\r\n";
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    [head.as_bytes(), b"\r\n", body].concat()
}

/// A part of a form: a text, or a file with its name.
pub(crate) enum Part<'a> {
    Text(&'a str, &'a str),
    File(&'a str, &'a [u8]),
}

/// A multipart form and the header that says so.
pub(crate) fn form(parts: &[Part<'_>]) -> (String, Vec<u8>) {
    const BOUNDARY: &str = "----boundary";
    let mut body = Vec::new();
    for part in parts {
        body.extend(format!("--{BOUNDARY}\r\n").bytes());
        match part {
            Part::Text(name, text) => {
                let head = format!("Content-Disposition: form-data; name=\"{name}\"\r\n\r\n{text}");
                body.extend(head.bytes());
            }
            Part::File(name, bytes) => {
                let head = format!(
                    "Content-Disposition: form-data; name=\"{name}\"; filename=\"../../etc/x.exe\"\r\n\
                     Content-Type: application/octet-stream\r\n\r\n"
                );
                body.extend(head.bytes());
                body.extend(*bytes);
            }
        }
        body.extend(b"\r\n");
    }
    body.extend(format!("--{BOUNDARY}--\r\n").bytes());
    (format!("multipart/form-data; boundary={BOUNDARY}"), body)
}
