//! Models by hub id: what is said while one comes, and what of its cache is read.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use serde_json::Value;

use crate::training::words;

const COMMIT: &str = "1111111111111111111111111111111111111111";
/// Two mebibytes of zeros, and an empty object: their names and hashes.
const LARGE: (&str, usize, &str) = (
    "large.safetensors",
    2 << 20,
    "5647f05ec18958947d32874eeb788fa396a05d0bab7c1b71f112ceb7e9b31eee",
);
const SMALL: (&str, usize, &str) =
    ("small.json", 2, "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");

/// Plays the hub, and returns where it answers.
fn hub() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://127.0.0.1:{}", listener.local_addr().unwrap().port());
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // A command that ends hangs up.
            let _ = answer(&stream);
        }
    });
    address
}

fn answer(mut stream: &TcpStream) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let listed = |(path, size, hash): (&str, usize, &str)| {
        format!(
            r#"{{"rfilename":"{path}","size":{size},"blobId":"{COMMIT}","lfs":{{"sha256":"{hash}","size":{size},"pointerSize":9}}}}"#
        )
    };
    let body = match first.split(' ').nth(1).unwrap_or_default() {
        path if path.ends_with(LARGE.0) => vec![0; LARGE.1],
        path if path.ends_with(SMALL.0) => b"{}".to_vec(),
        _ => format!(
            r#"{{"id":"o/m","sha":"{COMMIT}","siblings":[{},{}]}}"#,
            listed(SMALL),
            listed(LARGE)
        )
        .into_bytes(),
    };
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )?;
    stream.write_all(&body)
}

/// Asks for a model that comes whole and is none, so that the command ends there.
fn ask(address: &str, cache: &Path, more: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = assert_cmd::Command::cargo_bin("moviola").unwrap();
    command.args(["generate", "--model", "o/m", "--prompt", "a fox", "--output", "x.png"]);
    command.args(more).env("HF_ENDPOINT", address).env("HF_HUB_CACHE", cache);
    command.env_remove("HF_TOKEN").env_remove("HF_HUB_OFFLINE").env("HF_HOME", cache);
    command.envs(variables.iter().copied()).timeout(Duration::from_secs(60));
    command.output().unwrap()
}

/// A download is told as all long work is.
#[test]
fn a_download_is_heard_as_asked() {
    let address = hub();
    let said = |more: &[&str]| {
        let cache = tempfile::tempdir().unwrap();
        let out = ask(&address, cache.path(), more, &[]);
        assert_eq!(out.status.code(), Some(2), "{}", words(&out));
        assert!(words(&out).contains("model_index.json"), "{}", words(&out));
        words(&out)
    };
    let text = said(&["--log-every", "0"]);
    for part in
        ["fetching small.json (2 bytes)", "fetching large.safetensors (2 MiB)", "fetch     0/2"]
    {
        assert!(text.contains(part), "no `{part}` in: {text}");
    }
    assert!(text.contains("fetch     2/2") && text.contains("MiB/s"), "{text}");
    assert!(!said(&["--quiet"]).contains("fetch"));
    let json = said(&["--log-format", "json"]);
    let lines: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["stage"] == "fetch" && line["total"] == 2), "{json}");
}

/// Where a small text should be and a pipe is, nothing waits for it.
#[cfg(unix)]
#[test]
fn pipes_in_the_cache_are_not_waited_for() {
    let pipe = |path: &Path| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    let cache = tempfile::tempdir().unwrap();
    let token = cache.path().join("pipe");
    pipe(&token);
    let reference = cache.path().join("models--o--m/refs/main");
    pipe(&reference);
    let variables = [("HF_TOKEN_PATH", token.to_str().unwrap())];
    let offline = [variables[0], ("HF_HUB_OFFLINE", "1")];
    let address = hub();
    let out = ask(&address, cache.path(), &[], &offline);
    assert_eq!(out.status.code(), Some(2), "{}", words(&out));
    assert!(words(&out).contains("HF_HUB_OFFLINE"), "{}", words(&out));
    let out = ask(&address, cache.path(), &[], &variables);
    assert_eq!(out.status.code(), Some(2), "{}", words(&out));
    assert_eq!(fs::read_to_string(&reference).unwrap(), COMMIT, "{}", words(&out));
}
