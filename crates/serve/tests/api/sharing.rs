//! Jobs that wait together share a run, and none is another for it.

use serde_json::{Value, json};

use crate::house::{House, Plot, long, png, small};
use crate::wire::Part;

/// The number behind a name of `/metrics`.
fn metric(house: &House, name: &str) -> u64 {
    let text = String::from_utf8(house.get("/metrics").body).unwrap();
    let line = text.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn clip(house: &House, id: &str) -> Vec<u8> {
    let answer = house.get(&format!("/v1/videos/{id}/content"));
    assert_eq!(answer.status, 200, "{id}");
    answer.body
}

/// A server that is at work on something that takes a while.
fn busy() -> (House, String) {
    let house = House::open(Plot::default());
    let first = house.create(&long("a fox"));
    house.until(&first, |job| job["status"] == "in_progress");
    (house, first)
}

fn asked(prompt: &str, seed: u64, more: &[(&str, Value)]) -> Value {
    let mut body = small(prompt);
    body["seed"] = json!(seed);
    for (name, value) in more {
        body[*name] = value.clone();
    }
    body
}

#[test]
fn a_clip_is_the_same_alone_and_beside_others() {
    let more = [("negative_prompt", json!("a hen"))];
    let bodies = [
        asked("a fox", 7, &[]),
        asked("a hen in the snow", 8, &[]),
        asked("a fox", 7, &[]),
        asked("a boat", 8, &more),
        asked("a boat", 9, &[("num_inference_steps", json!(3))]),
        asked("a ship", 7, &[("guidance_scale", json!(1.0))]),
        asked("a house", 11, &[]),
    ];
    let alone: Vec<Vec<u8>> = bodies
        .iter()
        .map(|body| {
            let house = House::open(Plot::default());
            let id = house.create(body);
            house.wait(&id);
            assert_eq!(metric(&house, "moviola_runs_total"), 1);
            clip(&house, &id)
        })
        .collect();
    let (house, first) = busy();
    let ids: Vec<String> = bodies.iter().map(|body| house.create(body)).collect();
    house.delete(&format!("/v1/videos/{first}"));
    for (at, (id, want)) in ids.iter().zip(&alone).enumerate() {
        let job = house.wait(id);
        assert_eq!((&job["status"], &job["seed"]), (&json!("completed"), &bodies[at]["seed"]));
        assert!(clip(&house, id) == *want, "clip {at} is another beside others");
    }
    // The first, then four that are alike, and three that each differ in a setting.
    assert_eq!(metric(&house, "moviola_runs_total"), 5);
    assert_ne!(alone[0], alone[1]);
    assert_eq!(alone[0], alone[2]);
}

/// Pictures that are given differ too, and whoever gives none is not mixed up with them.
#[test]
fn each_has_what_was_given_to_it() {
    let plot = || Plot { models: vec!["wan-tiny-i2v"], ..Plot::default() };
    let pictures = [png(32, 32), png(48, 32)];
    let create = |house: &House, seed: &str, steps: &str, picture: &[u8]| -> String {
        let parts = [
            Part::Text("prompt", "a fox"),
            Part::Text("size", "32x32"),
            Part::Text("num_frames", "5"),
            Part::Text("num_inference_steps", steps),
            Part::Text("seed", seed),
            Part::File("input_reference", picture),
        ];
        let answer = house.post_form("/v1/videos", &parts);
        assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
        answer.json()["id"].as_str().unwrap().to_owned()
    };
    let alone: Vec<Vec<u8>> = pictures
        .iter()
        .zip(["1", "2"])
        .map(|(picture, seed)| {
            let house = House::open(plot());
            let id = create(&house, seed, "2", picture);
            house.wait(&id);
            clip(&house, &id)
        })
        .collect();
    let house = House::open(plot());
    let first = create(&house, "3", "100000", &pictures[0]);
    house.until(&first, |job| job["status"] == "in_progress");
    let ids: Vec<String> = pictures
        .iter()
        .zip(["1", "2"])
        .map(|(picture, seed)| create(&house, seed, "2", picture))
        .collect();
    house.delete(&format!("/v1/videos/{first}"));
    for (id, want) in ids.iter().zip(&alone) {
        house.wait(id);
        assert!(clip(&house, id) == *want);
    }
    assert_eq!(metric(&house, "moviola_runs_total"), 2);
}

/// Who gives up a clip of a run does not take it from the others; if all do, the run ends.
#[test]
fn one_of_a_run_is_given_up() {
    let (house, first) = busy();
    let steps = [("num_inference_steps", json!(3000))];
    let want = {
        let house = House::open(Plot::default());
        let id = house.create(&asked("a hen", 2, &steps));
        house.wait(&id);
        clip(&house, &id)
    };
    let ids: Vec<String> = (1..4).map(|seed| house.create(&asked("a hen", seed, &steps))).collect();
    house.delete(&format!("/v1/videos/{first}"));
    house.until(&ids[2], |job| job["progress"].as_u64().unwrap() > 0);
    for id in [&ids[0], &ids[2]] {
        assert_eq!(house.delete(&format!("/v1/videos/{id}")).json()["deleted"], true);
        assert_eq!(house.get(&format!("/v1/videos/{id}")).status, 404);
    }
    assert_eq!(house.wait(&ids[1])["status"], "completed");
    assert!(clip(&house, &ids[1]) == want);
    // What is given up goes when the worker has let go of it.
    let is_gone = |id: &String| {
        (0..200).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(25));
            !house.folders().contains(id)
        })
    };
    assert!(is_gone(&ids[0]) && is_gone(&ids[2]) && house.folders().contains(&ids[1]));
    // A run that nobody wants any more ends at its next step.
    let (house, first) = busy();
    let steps = [("num_inference_steps", json!(100_000))];
    let ids: Vec<String> = (1..3).map(|seed| house.create(&asked("a hen", seed, &steps))).collect();
    house.delete(&format!("/v1/videos/{first}"));
    house.until(&ids[1], |job| job["status"] == "in_progress");
    ids.iter().for_each(|id| drop(house.delete(&format!("/v1/videos/{id}"))));
    let after = house.create(&small("a fox"));
    assert_eq!(house.wait(&after)["status"], "completed");
}
