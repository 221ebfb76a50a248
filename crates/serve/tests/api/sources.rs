//! Clips and pictures that others begin with: extensions, edits, and how much of what is sent is decoded.

use std::process::Command;
use std::time::{Duration, Instant};

use base64::Engine as _;
use image::{ImageFormat, Rgb, RgbImage};
use serde_json::{Value, json};

use crate::house::{House, Plot, png};
use crate::wire::Part;

/// A model that takes whatever can be given.
const TAKES_ALL: &str = "ltx2-tiny";

fn house() -> House {
    House::open(Plot { models: vec![TAKES_ALL, "wan-tiny"], ..Plot::default() })
}

/// Whether clips can be decoded; says so if they cannot.
fn has_ffmpeg() -> bool {
    let is_there = |program| Command::new(program).arg("-version").output().is_ok();
    let both = is_there("ffmpeg") && is_there("ffprobe");
    if !both {
        eprintln!("not checked with ffmpeg, which is not installed");
    }
    both
}

const SETTINGS: [Part<'_>; 4] = [
    Part::Text("prompt", "a fox"),
    Part::Text("num_inference_steps", "2"),
    Part::Text("guidance_scale", "1"),
    Part::Text("seed", "7"),
];

fn post(house: &House, path: &str, more: Vec<Part<'_>>) -> Value {
    let parts: Vec<Part<'_>> = SETTINGS.into_iter().chain(more).collect();
    let answer = house.post_form(path, &parts);
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    answer.json()
}

/// A clip of nine frames at twelve a second, made by the server: its id and its bytes.
fn clip(house: &House) -> (String, Vec<u8>) {
    let made = post(
        house,
        "/v1/videos",
        vec![Part::Text("size", "64x64"), Part::Text("num_frames", "9"), Part::Text("fps", "12")],
    );
    let id = made["id"].as_str().unwrap().to_owned();
    assert_eq!(house.wait(&id)["status"], "completed");
    let bytes = house.get(&format!("/v1/videos/{id}/content")).body;
    (id, bytes)
}

fn done(house: &House, job: &Value) -> Value {
    let done = house.wait(job["id"].as_str().unwrap());
    assert_eq!(done["status"], "completed", "{done}");
    done
}

/// What goes on with a clip plays as fast as it did, whether it was made here or sent.
#[test]
fn a_clip_goes_on_at_its_own_speed() {
    if !has_ffmpeg() {
        return;
    }
    let house = house();
    let (id, bytes) = clip(&house);
    let by_id = || Part::Text("video[id]", &id);
    let by_file = || Part::File("video", &bytes);
    for source in [by_id(), by_file()] {
        let is_file = matches!(source, Part::File(..));
        let more = vec![source, Part::Text("seconds", "0.7"), Part::Text("size", "64x64")];
        let job = post(&house, "/v1/videos/extensions", more);
        // Nine there are, and 8.4 of twelve a second come to 17.
        assert_eq!((&job["fps"], &job["num_frames"]), (&json!(12.0), &json!(17)), "{is_file}");
        assert!(job["notes"].to_string().contains("fps is 12"), "{job}");
        done(&house, &job);
    }
    let more = vec![
        by_file(),
        Part::Text("seconds", "0.7"),
        Part::Text("fps", "24"),
        Part::Text("size", "64x64"),
    ];
    let job = post(&house, "/v1/videos/extensions", more);
    assert_eq!(job["fps"], json!(24.0));
    assert!(job["notes"].to_string().contains("another speed"), "{job}");
    house.delete(&format!("/v1/videos/{}", job["id"].as_str().unwrap()));
    let without = [Part::Text("prompt", "a fox"), by_file()];
    let answer = house.post_form("/v1/videos/extensions", &without);
    assert_eq!((answer.status, &answer.error()["param"]), (400, &json!("seconds")));
}

/// What a mask leaves stays, and what it shows white is another.
#[test]
fn a_part_of_a_clip_is_made_anew() {
    if !has_ffmpeg() {
        return;
    }
    let house = house();
    let (id, bytes) = clip(&house);
    let mask = half();
    for source in [Part::Text("video[id]", &id), Part::File("video", &bytes)] {
        let more = vec![source, Part::File("mask", &mask), Part::Text("size", "64x64")];
        let job = post(&house, "/v1/videos/edits", more);
        assert_eq!((&job["fps"], &job["num_frames"]), (&json!(12.0), &json!(9)), "{job}");
        let job = done(&house, &job);
        let edited = house.get(&format!("/v1/videos/{}/content", job["id"].as_str().unwrap())).body;
        assert_ne!(edited, bytes);
    }
    let black = png_of(|_| 0);
    let parts =
        [Part::Text("prompt", "a"), Part::File("video", &bytes), Part::File("mask", &black)];
    let answer = house.post_form("/v1/videos/edits", &parts);
    assert_eq!((answer.status, &answer.error()["param"]), (400, &json!("mask")));
}

fn png_of(level: impl Fn(u32) -> u8) -> Vec<u8> {
    let picture = RgbImage::from_fn(64, 64, |x, _| Rgb([level(x); 3]));
    let mut bytes = std::io::Cursor::new(Vec::new());
    picture.write_to(&mut bytes, ImageFormat::Png).unwrap();
    bytes.into_inner()
}

/// White on its right side.
fn half() -> Vec<u8> {
    png_of(|x| if x < 32 { 0 } else { 255 })
}

#[test]
fn a_part_of_a_picture_is_made_anew() {
    let house = house();
    let (picture, mask) = (png(64, 64), half());
    let more =
        vec![Part::Text("size", "64x64"), Part::File("image", &picture), Part::File("mask", &mask)];
    let parts: Vec<Part<'_>> = SETTINGS.into_iter().chain(more).collect();
    let answer = house.post_form("/v1/images/edits", &parts);
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    let made = answer.json();
    let text = made["data"][0]["b64_json"].as_str().unwrap();
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
    assert_eq!(image::load_from_memory(&bytes).unwrap().to_rgb8().dimensions(), (64, 64));
}

/// Nine seconds of black in 1920 x 1080: kilobytes that hold 1.7 GB of pixels.
fn bomb() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bomb.mp4");
    let words = "-v error -f lavfi -i color=black:s=1920x1080:r=30 -t 9 -c:v mpeg4";
    let made = Command::new("ffmpeg").args(words.split(' ')).arg(&path).status().unwrap();
    assert!(made.success());
    std::fs::read(path).unwrap()
}

/// A model that takes no clip is asked before anything is read, and one that does before anything is decoded.
#[test]
fn a_few_bytes_do_not_become_gigabytes() {
    if !has_ffmpeg() {
        return;
    }
    let house = house();
    let bomb = bomb();
    assert!(bomb.len() < 1 << 20);
    let before = engine::most_memory().unwrap();
    for (path, field, model, param, word) in [
        ("/v1/videos/extensions", "video", "wan-tiny", "video", "takes prompts alone"),
        ("/v1/videos/edits", "video", "wan-tiny", "video", "takes prompts alone"),
        ("/v1/videos", "video_prefix", "wan-tiny", "video_prefix", "takes prompts alone"),
        ("/v1/videos/extensions", "video", TAKES_ALL, "video_prefix", "pixels"),
        ("/v1/videos/edits", "video", TAKES_ALL, "video", "pixels"),
    ] {
        let parts = [
            Part::Text("prompt", "a fox"),
            Part::Text("model", model),
            Part::Text("size", "64x64"),
            Part::File(field, &bomb),
        ];
        let seconds = [Part::Text("seconds", "1")];
        let parts: Vec<Part<'_>> = match path.ends_with("edits") {
            true => parts.into_iter().collect(),
            false => parts.into_iter().chain(seconds).collect(),
        };
        let begun = Instant::now();
        let answer = house.post_form(path, &parts);
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!((answer.status, &answer.error()["param"]), (400, &json!(param)), "{text}");
        assert!(text.contains(word), "no `{word}` in {text}");
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
    let grown = (engine::most_memory().unwrap() - before) >> 20;
    assert!(grown < 800, "it took {grown} MB");
    assert!(house.folders().is_empty());
}
