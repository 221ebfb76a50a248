//! The worker as `cargo xtask bench` meets it: a process with two pipes.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Starts the worker with `arguments`, sends `lines`, and returns what it said, and its success.
fn converse(arguments: &[&str], lines: &str) -> (Vec<Value>, bool) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_bench-worker"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the worker starts");
    let mut input = child.stdin.take().expect("its input is a pipe");
    // A worker that refused its arguments no longer reads.
    let _ = input.write_all(lines.as_bytes());
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8(output.stdout).expect("it speaks UTF-8");
    let said =
        text.lines().map(|line| serde_json::from_str(line).expect("it speaks JSON")).collect();
    (said, output.status.success())
}

#[test]
fn it_says_hello_and_times_what_it_is_asked_for() {
    let request = "{\"case\":\"gelu_erf_2048x8960\",\"repeat\":2}\n";
    let (said, success) = converse(&["--threads", "1"], request);
    assert!(success);
    let [hello, answer] = &said[..] else { panic!("{said:?}") };
    assert!(hello["cases"].as_array().unwrap().contains(&"gelu_erf_2048x8960".into()));
    let seconds = answer["seconds"].as_array().unwrap();
    assert_eq!(seconds.len(), 2);
    assert!(seconds.iter().all(|value| value.as_f64().unwrap() > 0.0));
    if cfg!(target_os = "linux") {
        // The input alone is 2048 × 8960 × 4 bytes.
        assert!(answer["peak_rss_bytes"].as_u64().unwrap() > 73_400_320);
    }
}

#[test]
fn it_refuses_to_start_without_a_thread_count() {
    let (said, success) = converse(&[], "");
    assert!(said.is_empty() && !success);
}
