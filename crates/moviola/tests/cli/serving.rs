//! `moviola serve` and `train --watch` as commands: ranks that wait for jobs and give them up together, and pages.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::folder::{goldens, run};
use crate::served::Served;
use crate::training::arguments;

/// Starts a command, which says where it is on its standard output or its standard error.
fn start(words: &[&str], says: fn(&mut Child) -> Box<dyn Read + Send>) -> Served {
    let mut command = Command::new(env!("CARGO_BIN_EXE_moviola"));
    command.args(words);
    Served::start(command, says)
}

impl Served {
    fn serve(folder: &Path, more: &[&str]) -> Served {
        let (jobs, model) = (folder.join("jobs"), goldens().join("wan-tiny"));
        let words = ["serve", "--listen", "127.0.0.1:0", "--jobs", jobs.to_str().unwrap()];
        let words = [&words[..], &["--model", model.to_str().unwrap()], more].concat();
        start(&words, |child| Box::new(child.stdout.take().unwrap()))
    }

    fn create(&self, steps: usize) -> String {
        self.create_seeded(steps, 7)
    }

    fn create_seeded(&self, steps: usize, seed: u64) -> String {
        let body = json!({
            "prompt": "a fox", "size": "32x32", "num_frames": 5, "num_inference_steps": steps, "seed": seed,
        });
        let job = self.json("POST", "/v1/videos", Some(&body));
        job["id"].as_str().unwrap_or_else(|| panic!("{job}")).to_owned()
    }
}

/// Ranks that had nothing to do for ten times as long as one waits for another make the next job; one that is given up
/// ends on all of them at one step, and what comes after it is what one rank makes.
#[test]
fn ranks_wait_for_jobs_and_give_them_up_together() {
    let folder = tempfile::tempdir().unwrap();
    let want = {
        let alone = Served::serve(&folder.path().join("alone"), &[]);
        alone.clip(&alone.create(2))
    };
    let served = Served::serve(folder.path(), &["--cfg", "2", "--timeout", "1"]);
    let first = served.create(2);
    assert!(served.clip(&first) == want, "two ranks make another clip");
    std::thread::sleep(Duration::from_secs(10));
    // Minutes, of which it gets seconds.
    let long = served.create(100_000);
    served.until(&long, |job| job["progress"].as_u64() > Some(0));
    assert_eq!(served.ask("DELETE", &format!("/v1/videos/{long}"), None).0, 200);
    let begun = Instant::now();
    let after = served.create(2);
    assert!(served.clip(&after) == want);
    assert!(begun.elapsed() < Duration::from_secs(30), "what was given up went on");
}

/// Clips that share a run on one rank or several are those that each makes alone.
#[test]
fn a_run_is_shared_to_the_bit() {
    for layout in [&[][..], &["--ulysses", "2"]] {
        let folder = tempfile::tempdir().unwrap();
        let served = Served::serve(folder.path(), layout);
        let alone: Vec<Vec<u8>> =
            (0..4).map(|seed| served.clip(&served.create_seeded(3, seed))).collect();
        let busy = served.create(100_000);
        served.until(&busy, |job| job["status"] == "in_progress");
        let ids: Vec<String> = (0..4).map(|seed| served.create_seeded(3, seed)).collect();
        served.ask("DELETE", &format!("/v1/videos/{busy}"), None);
        for (id, want) in ids.iter().zip(&alone) {
            assert!(served.clip(id) == *want, "{layout:?}: it is another beside others");
        }
        let metrics = String::from_utf8(served.ask("GET", "/metrics", None).1).unwrap();
        assert!(metrics.contains("moviola_runs_total 6\n"), "they shared no run: {metrics}");
    }
}

/// A client has chosen no layout: what does not fit it is told by a field of the API.
#[test]
fn refusals_name_fields_and_no_arguments() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::serve(folder.path(), &["--ulysses", "2"]);
    let small = json!({ "prompt": "a fox", "size": "16x16", "num_frames": 1 });
    let refused = served.json("POST", "/v1/videos", Some(&small));
    let plan = served.json("GET", "/studio/api/plan?ranks=2&width=33", None);
    for (answer, param, word) in
        [(refused, "height", "the server's layout (ulysses)"), (plan, "width", "multiple of 16")]
    {
        let message = answer["error"]["message"].as_str().unwrap();
        assert_eq!(answer["error"]["param"], param, "{answer}");
        assert!(message.contains(word) && !message.contains("--"), "{message}");
    }
}

/// Neither a key nor what was asked for stands in the log.
#[test]
fn no_secret_is_logged() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys.txt");
    std::fs::write(&keys, "anna:0123456789abcdef\n").unwrap();
    let mut served = Served::serve(folder.path(), &["--keys", keys.to_str().unwrap()]);
    let mut log = served.child.stderr.take().unwrap();
    for key in ["0123456789abcdef", "fedcba9876543210"] {
        let mut stream = TcpStream::connect(&served.host).unwrap();
        let body = "{\"prompt\": \"my own fox\", \"size\": \"32x32\", \"num_frames\": 5, \"num_inference_steps\": 2}";
        let head = format!(
            "POST /v1/videos HTTP/1.1\r\nHost: films\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
    }
    std::thread::sleep(Duration::from_secs(1));
    let _ = served.child.kill();
    let mut said = String::new();
    log.read_to_string(&mut said).unwrap();
    assert!(said.contains("serving"), "{said}");
    for secret in ["0123456789abcdef", "fedcba9876543210", "my own fox"] {
        assert!(!said.contains(secret), "{secret} is in the log: {said}");
    }
}

/// A run that two jobs share is dealt to two replicas. When both jobs are given up, both replicas stop: the next job does
/// not wait for what nobody wants.
#[test]
fn replicas_give_up_together() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::serve(folder.path(), &["--data", "2", "--timeout", "60"]);
    let blocking = served.create(3000);
    served.until(&blocking, |job| job["progress"].as_u64() > Some(0));
    let shared = [served.create(20_000), served.create(20_000)];
    assert_eq!(served.ask("DELETE", &format!("/v1/videos/{blocking}"), None).0, 200);
    for id in &shared {
        served.until(id, |job| job["status"] == "in_progress");
    }
    let begun = Instant::now();
    for id in &shared {
        assert_eq!(served.ask("DELETE", &format!("/v1/videos/{id}"), None).0, 200);
    }
    let after = served.create(2);
    served.clip(&after);
    let waited = begun.elapsed();
    assert!(waited < Duration::from_secs(8), "the next job waited {waited:?}");
}

/// What the page copies as a command makes the clip of the server, and says how it is served.
#[test]
fn a_clip_of_the_server_is_made_again_by_generate() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::serve(folder.path(), &["--dtype", "bf16", "--cfg", "2"]);
    let facts = served.json("GET", "/studio/api/models/wan-tiny", None);
    let told: Vec<&str> = facts["command"]["arguments"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert_eq!(told[2..], ["--dtype", "bf16", "--cfg", "2"]);
    let clip = served.clip(&served.create(2));
    let output = folder.path().join("clip.mp4");
    let settings = ["--prompt=a fox", "--width", "32", "--height", "32", "--frames=5", "--steps=2"];
    let rest = ["--seed=7", "--output", output.to_str().unwrap()];
    let made = run(&[&["generate"], &told[..], &settings, &rest].concat());
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert!(std::fs::read(output).unwrap() == clip);
}

/// A run is watched on a page that it names, and that ends with it.
#[test]
fn a_run_shows_itself_while_it_trains() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let words = arguments(&run, 100_000, &["checkpoint={every: 100000}"]);
    let words: Vec<&str> = words.iter().map(String::as_str).chain(["--watch"]).collect();
    let served = start(&words, |child| Box::new(child.stderr.take().unwrap()));
    assert_eq!(served.json("GET", "/studio/api/about", None)["views"], json!(["training"]));
    let step = || served.json("GET", "/studio/api/runs", None)["data"][0]["step"].as_u64();
    let begun = Instant::now();
    let mut seen = Vec::new();
    while seen.len() < 3 {
        assert!(begun.elapsed() < Duration::from_secs(60), "no step is seen: {seen:?}");
        seen.extend(step().filter(|own| seen.last().is_none_or(|last| own > last)));
        std::thread::sleep(Duration::from_millis(20));
    }
    let host = served.host.clone();
    drop(served);
    assert!(TcpStream::connect(host).is_err());
    let refused = crate::folder::run(&[&words[..words.len() - 1], &["--watch=0.0.0.0:0"]].concat());
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && message.contains("127.0.0.1"), "{message}");
}
