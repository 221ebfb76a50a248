//! Who follows a job: what is sent while nothing happens, and who has gone.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serve::Limits;

use crate::house::{House, Plot, long, small};

fn follow(house: &House, id: &str) -> TcpStream {
    let mut stream = TcpStream::connect(house.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let head = format!("GET /v1/videos/{id}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

fn watchers(house: &House) -> String {
    let text = String::from_utf8(house.get("/metrics").body).unwrap();
    text.lines().find(|line| line.starts_with("moviola_watchers ")).unwrap().to_owned()
}

/// Another job runs all the time, so something changes all the time, and nothing of it is of this one.
#[test]
fn a_job_that_waits_shows_that_it_lives() {
    let limits = Limits { idle: Duration::from_secs(2), ..Limits::default() };
    let house = House::open(Plot { limits, ..Plot::default() });
    let running = house.create(&long("a fox"));
    let waiting = house.create(&small("a hen"));
    house.until(&running, |job| job["status"] == "in_progress");
    let mut stream = follow(&house, &waiting);
    let (begun, mut seen) = (Instant::now(), String::new());
    while seen.matches("\n: \n").count() < 3 {
        assert!(begun.elapsed() < Duration::from_secs(15), "nothing shows that it lives: {seen}");
        let mut part = [0; 4096];
        let count = stream.read(&mut part).unwrap();
        assert!(count > 0, "it ended: {seen}");
        seen += &String::from_utf8_lossy(&part[..count]);
    }
    assert_eq!(seen.matches("event: ").count(), 1, "{seen}");
    // Then it is made, and its events end.
    house.delete(&format!("/v1/videos/{running}"));
    while !seen.contains("event: completed") {
        let mut part = [0; 4096];
        let count = stream.read(&mut part).unwrap();
        assert!(count > 0, "it ended: {seen}");
        seen += &String::from_utf8_lossy(&part[..count]);
    }
}

#[test]
fn who_has_gone_is_not_followed_for() {
    let house = House::open(Plot::default());
    let running = house.create(&long("a fox"));
    let waiting = house.create(&small("a hen"));
    house.until(&running, |job| job["status"] == "in_progress");
    let mut all: Vec<TcpStream> = (0..20).map(|_| follow(&house, &waiting)).collect();
    for stream in &mut all {
        assert!(stream.read(&mut [0; 64]).unwrap() > 0);
    }
    assert_eq!(watchers(&house), "moviola_watchers 20");
    drop(all);
    let begun = Instant::now();
    while watchers(&house) != "moviola_watchers 0" {
        assert!(begun.elapsed() < Duration::from_secs(10), "{}", watchers(&house));
        std::thread::sleep(Duration::from_millis(20));
    }
}
