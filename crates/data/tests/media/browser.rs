//! A clip with sound in a browser: it plays to its end, and the tone that the browser decodes is the one that was written.
//!
//! Where there is no Chromium, this says so and checks nothing.

use super::mp4_sound::{heard, tone, write};
use data::media::Waveform;
use serde::Deserialize;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

const PAGE: &[u8] = include_bytes!("page.html");

/// What a page tells of the clip that it played.
#[derive(Deserialize)]
struct Told {
    error: Option<String>,
    #[serde(default)]
    seconds: f64,
    #[serde(default)]
    samples: Vec<f32>,
    #[serde(default)]
    width: usize,
    #[serde(default)]
    height: usize,
    #[serde(default)]
    played: f64,
    #[serde(default)]
    frames: usize,
    #[serde(default)]
    heard: u64,
}

/// A browser that is killed when this goes.
struct Browser(Child);

impl Drop for Browser {
    fn drop(&mut self) {
        // If it has ended, both do nothing.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Answers one request: the page, the clip, or the result, which is handed on.
fn answer(stream: TcpStream, clip: &[u8], results: &Sender<Vec<u8>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let (kind, body): (&str, &[u8]) = match first.split_whitespace().collect::<Vec<_>>()[..] {
        ["GET", "/", _] => ("text/html", PAGE),
        ["GET", "/clip.mp4", _] => ("video/mp4", clip),
        ["POST", "/result", _] => {
            let mut told = vec![0; length];
            reader.read_exact(&mut told)?;
            let _ = results.send(told);
            ("text/plain", b"")
        }
        _ => ("text/plain", b""),
    };
    let mut stream = reader.into_inner();
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )?;
    stream.write_all(body)
}

/// What Chromium makes of a clip; none if there is no Chromium.
fn play(clip: Vec<u8>) -> Option<Told> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let profile = tempfile::tempdir().unwrap();
    let started = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--mute-audio"])
        .arg("--autoplay-policy=no-user-gesture-required")
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("http://127.0.0.1:{port}/"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(child) = started else {
        println!("there is no chromium; no browser has played the clip");
        return None;
    };
    let _browser = Browser(child);
    let (results, told) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (clip, results) = (clip.clone(), results.clone());
            std::thread::spawn(move || answer(stream, &clip, &results));
        }
    });
    let told = told.recv_timeout(Duration::from_secs(100)).expect("the browser tells something");
    Some(serde_json::from_slice(&told).unwrap())
}

#[test]
fn a_browser_plays_a_clip_with_its_tone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clip.mp4");
    let (samples, pitch) = tone(8000, 1.0);
    write(&path, 16, "16", &Waveform::mono(8000, samples));
    let Some(told) = play(std::fs::read(path).unwrap()) else { return };
    assert_eq!(told.error, None);
    assert_eq!((told.width, told.height, told.frames), (48, 32, 16));
    assert!((told.played - 1.0).abs() < 0.01, "it ended at {} s", told.played);
    assert!(told.heard > 0, "no sound was played");
    assert!((told.seconds - 1.0).abs() < 1e-3, "the sound lasts {} s", told.seconds);
    let samples: Vec<f32> = told.samples.iter().map(|own| own / 32_767.0).collect();
    assert_eq!(heard(&samples, 48_000), Some(pitch));
}
