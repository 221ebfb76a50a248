//! What one client does is no other's fault: numbers that cannot be kept, connections that are not read, bodies that are
//! refused on their way, a stage that takes too long for several.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use engine::{Frames, Pipeline, Plan, Progress, Request};
use serde_json::{Value, json};
use serve::{Executor, Limits, Run};

use crate::house::{House, OneRank, Plot, golden, long, png, small};
use crate::wire::{self, Part};

/// A scale that is infinite as it is kept could not be read again, and with it the whole table.
#[test]
fn a_scale_that_cannot_be_kept_is_refused() {
    let house = House::open(Plot::default());
    for lora in [
        json!("{\"name\": \"a\", \"scale\": 1e300}"),
        json!({ "name": "a", "scale": 1e39 }),
        json!([{ "name": "a", "scale": -1e300 }]),
    ] {
        let mut body = small("a fox");
        body["lora"] = lora;
        let refused = house.post("/v1/videos", &body);
        assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("lora")));
        let message = refused.error()["message"].to_string();
        assert!(message.contains("no finite number"), "{message}");
    }
    assert_eq!(house.wait(&house.create(&small("a fox")))["status"], "completed");
}

#[test]
fn a_row_that_is_damaged_fails_alone() {
    let mut house = House::open(Plot::default());
    let done = house.create(&small("a fox"));
    house.wait(&done);
    house.close();
    let table = rusqlite::Connection::open(house.folder.path().join("jobs/jobs.sqlite3")).unwrap();
    let change = "UPDATE jobs SET ask = replace(ask, '\"loras\":[]', '\"loras\":[{\"name\":\"a\",\"scale\":null}]'), \
                  status = 'queued'";
    assert_eq!(table.execute(change, []).unwrap(), 1);
    drop(table);
    let house = House::open_in(house.folder.clone(), Plot::default());
    let job = house.wait(&done);
    assert_eq!((&job["status"], &job["error"]["code"]), (&json!("failed"), &json!("server_error")));
    assert_eq!(house.wait(&house.create(&small("a hen")))["status"], "completed");
    assert_eq!(house.get("/v1/videos").json()["data"].as_array().unwrap().len(), 2);
    assert_eq!(house.delete(&format!("/v1/videos/{done}")).status, 200);
}

/// Waits, where several share a run, until it is interrupted.
struct SlowTogether;

impl Executor for SlowTogether {
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
        progress.begin("denoise", 1);
        let begun = Instant::now();
        while run.request.prompts.len() > 1 && begun.elapsed() < Duration::from_secs(60) {
            if progress.interrupted() {
                return Err(engine::Error::Interrupted);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        OneRank.carry_out(pipeline, run, progress, frames)
    }

    fn layouts(&self, _: &Pipeline, _: &Request, _: usize) -> engine::Result<Value> {
        Ok(Value::Null)
    }
}

#[test]
fn what_takes_too_long_together_is_made_alone() {
    let limits = Limits { stage: Duration::from_secs(2), ..Limits::default() };
    let executor = Box::new(SlowTogether);
    let house = House::open(Plot { limits, executor, ..Plot::default() });
    // It fails at its limit, and the others wait together meanwhile.
    let first = house.create(&long("a fox"));
    house.until(&first, |job| job["status"] == "in_progress");
    let ids: Vec<String> = (0..3).map(|_| house.create(&small("a hen"))).collect();
    assert_eq!(house.wait(&first)["error"]["code"], "timeout");
    for id in ids {
        let job = house.wait(&id);
        assert_eq!(job["status"], "completed", "{job}");
    }
    let metrics = String::from_utf8(house.get("/metrics").body).unwrap();
    assert!(metrics.contains("moviola_runs_total 5\n"), "they shared no run: {metrics}");
}

/// What was given to a job that fails takes no room any more.
#[test]
fn a_failed_job_keeps_no_uploads() {
    let limits = Limits { stage: Duration::from_millis(50), ..Limits::default() };
    let models = vec!["wan-tiny-i2v"];
    let house = House::open(Plot { limits, models, ..Plot::default() });
    let picture = png(40, 40);
    let parts = [
        Part::Text("prompt", "a fox"),
        Part::Text("size", "32x32"),
        Part::Text("num_frames", "5"),
        Part::Text("num_inference_steps", "100000"),
        Part::File("input_reference", &picture),
    ];
    let id = house.post_form("/v1/videos", &parts).json()["id"].as_str().unwrap().to_owned();
    assert_eq!(house.wait(&id)["error"]["code"], "timeout");
    let place = house.folder.path().join("jobs/jobs").join(&id);
    let left: Vec<_> = std::fs::read_dir(place).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Whoever asks for much and reads nothing is let go, and others are served.
#[test]
fn who_does_not_read_holds_no_connection() {
    let limits = Limits { connections: 3, idle: Duration::from_secs(2), ..Limits::default() };
    let house = House::open(Plot { limits, ..Plot::default() });
    let request = wire::request("GET", "/openapi.json", &[], b"");
    let request = String::from_utf8(request).unwrap().replace("Connection: close\r\n", "");
    let stalled: Vec<TcpStream> = (0..3)
        .map(|_| {
            let mut stream = TcpStream::connect(house.address).unwrap();
            stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
            // It stops where the buffers of both sides are full.
            let _ = stream.write_all(request.repeat(3000).as_bytes());
            stream
        })
        .collect();
    let begun = Instant::now();
    let mut stream = TcpStream::connect(house.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(&wire::request("GET", "/health", &[], b"")).unwrap();
    assert_eq!(wire::answer(&mut stream).status, 200);
    assert!(begun.elapsed() < Duration::from_secs(20));
    drop(stalled);
}

/// Sends all of a request before it reads anything, as most clients do.
fn send_all(house: &House, headers: &[(&str, &str)]) -> u16 {
    let (kind, body) =
        wire::form(&[Part::Text("prompt", "x"), Part::File("mask", &vec![b'A'; 20 << 20])]);
    let headers = [headers, &[("Content-Type", &*kind)]].concat();
    let mut stream = TcpStream::connect(house.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(&wire::request("POST", "/v1/videos", &headers, &body)).unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    String::from_utf8_lossy(&all[9..12]).parse().unwrap()
}

#[test]
fn who_is_refused_while_sending_hears_why() {
    let house = House::open(Plot { keys: Some("anna:0123456789abcdef\n"), ..Plot::default() });
    assert_eq!(send_all(&house, &[("Authorization", "Bearer no")]), 401);
    let limits = Limits { queue: 1, ..Limits::default() };
    let house = House::open(Plot { limits, ..Plot::default() });
    let first = house.create(&long("a fox"));
    house.until(&first, |job| job["status"] == "in_progress");
    house.create(&small("a hen"));
    assert_eq!(send_all(&house, &[]), 429);
}

/// A body of five million values, which was built whole before it was refused, keeps nobody waiting.
#[test]
fn a_body_of_many_values_stops_nobody() {
    let house = House::open(Plot::default());
    let body = format!("{{\"prompt\": \"x\", \"a\": [{}0]}}", "{},".repeat(5 << 20));
    let headers = [("Content-Type", "application/json")];
    let request = wire::request("POST", "/v1/videos", &headers, body.as_bytes());
    let address = house.address;
    let sender = std::thread::spawn(move || wire::exchange(address, &request));
    let mut slowest = Duration::ZERO;
    while !sender.is_finished() {
        let begun = Instant::now();
        assert_eq!(house.get("/health").status, 200);
        slowest = slowest.max(begun.elapsed());
    }
    let answer = sender.join().unwrap();
    assert_eq!(answer.status, 400);
    assert!(answer.error()["message"].as_str().unwrap().contains("more than 128 fields"));
    assert!(slowest < Duration::from_secs(1), "somebody waited {slowest:?}");
}

#[test]
fn the_bound_of_bodies_holds_for_all_kinds() {
    let limits = Limits { body: 64 << 10, prompt: 1 << 20, ..Limits::default() };
    let house = House::open(Plot { limits, ..Plot::default() });
    let large = house.post("/v1/videos", &small(&"x".repeat(100 << 10)));
    assert_eq!((large.status, &large.error()["code"]), (413, &json!("request_too_large")));
}

/// Another key finds a place, however much the first one asks for.
#[test]
fn a_greedy_client_leaves_room() {
    let keys = Some("anna:0123456789abcdef\nbert:fedcba9876543210\n");
    let limits = Limits { queue: 4, ..Limits::default() };
    let house = House::open(Plot { keys, limits, ..Plot::default() });
    let post = |key: &str, body: &Value| {
        let headers = [("Authorization", key), ("Content-Type", "application/json")];
        house.send("POST", "/v1/videos", &headers, body.to_string().as_bytes())
    };
    let (anna, bert) = ("Bearer 0123456789abcdef", "Bearer fedcba9876543210");
    assert_eq!(post(anna, &long("a fox")).status, 200);
    let (begun, mut full) = (Instant::now(), post(anna, &small("a fox")));
    while full.status == 200 {
        assert!(begun.elapsed() < Duration::from_secs(20), "the queue has no end");
        full = post(anna, &small("a fox"));
    }
    assert_eq!(full.status, 429);
    assert!(full.error()["message"].to_string().contains("for others"), "{:?}", full.error());
    assert_eq!(post(bert, &small("a hen")).status, 200);
}

/// Whoever deletes what a page lists gets the next page.
#[test]
fn a_list_goes_on_behind_what_was_deleted() {
    let house = House::open(Plot::default());
    let ids: Vec<String> = (0..5).map(|_| house.create(&long("a fox"))).collect();
    let (mut query, mut gone) = ("?limit=2".to_owned(), Vec::new());
    loop {
        let page = house.get(&format!("/v1/videos{query}"));
        assert_eq!(page.status, 200, "{}", String::from_utf8_lossy(&page.body));
        let page = page.json();
        for video in page["data"].as_array().unwrap() {
            let id = video["id"].as_str().unwrap().to_owned();
            assert_eq!(house.delete(&format!("/v1/videos/{id}")).status, 200);
            gone.push(id);
        }
        if page["has_more"] == json!(false) {
            break;
        }
        query = format!("?limit=2&after={}", page["last_id"].as_str().unwrap());
    }
    gone.reverse();
    assert_eq!(gone, ids);
}

/// What is wrong with files of the server says nothing of where they are.
#[test]
fn no_place_of_the_server_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    copy(&golden("wan-tiny"), &model);
    let name: &'static str = Box::leak(model.display().to_string().into_boxed_str());
    let house = House::open(Plot { models: vec![name], ..Plot::default() });
    std::fs::remove_dir_all(model.join("transformer")).unwrap();
    let mut body = small("a fox");
    body["model"] = Value::Null;
    let answer = house.post("/v1/videos", &body);
    let said = match answer.status {
        200 => house.wait(answer.json()["id"].as_str().unwrap())["error"].clone(),
        _ => answer.error(),
    };
    let place = folder.path().display().to_string();
    assert!(said["code"].is_string() && !said.to_string().contains(&place), "{said}");
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let own = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &own),
            false => _ = std::fs::copy(entry.path(), own).unwrap(),
        }
    }
}
