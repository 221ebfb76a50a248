//! Jobs outlast the process, and go when their time has come.

use std::time::Duration;

use serde_json::json;
use serve::{Limits, Retention};

use crate::house::{House, Plot, folders, small};

#[test]
fn what_was_accepted_is_there_after_a_stop() {
    let mut house = House::open(Plot::default());
    let done = house.create(&small("a fox"));
    house.wait(&done);
    let clip = house.get(&format!("/v1/videos/{done}/content")).body;
    let mut body = small("a fox");
    body["num_inference_steps"] = json!(3000);
    let running = house.create(&body);
    let waiting = house.create(&small("a fox"));
    house.until(&running, |job| job["progress"].as_u64().unwrap() > 0);
    house.close();
    // Somebody who was never answered has left a folder.
    std::fs::create_dir(house.folder.path().join("jobs/jobs/video_stranger")).unwrap();
    let house = House::open_in(house.folder.clone(), Plot::default());
    assert_eq!(house.get(&format!("/v1/videos/{done}/content")).body, clip);
    assert_eq!(house.wait(&waiting)["status"], "completed");
    assert_eq!(
        house.get(&format!("/v1/videos/{waiting}/content")).body,
        clip,
        "the seed is another"
    );
    let again = house.wait(&running);
    assert_eq!((&again["status"], &again["seed"]), (&json!("completed"), &json!(7)));
    assert!(!folders(house.folder.path()).contains(&"video_stranger".to_owned()));
}

/// A second server refuses the folder of the first.
#[test]
fn a_folder_has_one_server() {
    let house = House::open(Plot::default());
    let folder = house.folder.clone();
    let second = std::panic::catch_unwind(|| House::open_in(folder, Plot::default()));
    assert!(second.is_err());
}

#[test]
fn what_is_old_or_too_much_goes() {
    let retention = Retention { age: Duration::from_secs(3600), bytes: 1 };
    let house = House::open(Plot { retention, ..Plot::default() });
    let first = house.create(&small("a fox"));
    let second = house.create(&small("a hen"));
    // Each goes as soon as it is over: one byte is not enough for it.
    for id in [first, second] {
        let gone = || house.get(&format!("/v1/videos/{id}")).status == 404;
        let begun = std::time::Instant::now();
        while !gone() {
            assert!(begun.elapsed() < Duration::from_secs(60), "it stays");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let retention = Retention { age: Duration::ZERO, bytes: u64::MAX };
    let mut house = House::open(Plot { retention, ..Plot::default() });
    let id = house.create(&small("a fox"));
    house.wait(&id);
    house.close();
    std::thread::sleep(Duration::from_millis(1100));
    let limits = Limits::default();
    let house = House::open_in(house.folder.clone(), Plot { retention, limits, ..Plot::default() });
    let begun = std::time::Instant::now();
    while house.get(&format!("/v1/videos/{id}")).status != 404 {
        assert!(begun.elapsed() < Duration::from_secs(60), "it stays");
        std::thread::sleep(Duration::from_millis(20));
    }
}
