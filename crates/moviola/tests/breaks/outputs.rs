//! Outputs that are pipes, links, or inputs of the same run; and signals while something is made.

use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::place::{Place, golden};
use crate::process::{Run, text};
use crate::training::train;

/// A small run of `generate`.
fn generate(model: &str, more: &[&str]) -> Run {
    let words = ["generate", "--model", model, "--steps", "1", "--height", "32", "--width", "32"];
    Run::of([&words[..], &["--prompt", "a fox"], more].concat())
}

/// A pipe is written to, and is a pipe after it; a link to a device leads there still.
#[test]
fn pipes_and_devices_are_written_to_as_they_are() {
    let place = Place::new();
    let model = golden("pixart-tiny");
    let (pipe, output) = (place.path("pipe"), place.text("out.png"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = thread::spawn({
        let pipe = pipe.clone();
        move || fs::read(pipe).unwrap()
    });
    let more = ["--output", &output, "--save-latents", text(&pipe)];
    generate(text(&model), &more).ended().ended_with(0, &["out.png"]);
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
    let latents = reader.join().unwrap();
    assert!(latents.windows(7).any(|word| word == b"latents"), "{} bytes", latents.len());

    let null = place.path("null");
    symlink("/dev/null", &null).unwrap();
    let more = ["--output", &place.text("again.png"), "--save-latents", text(&null)];
    generate(text(&model), &more).ended().ended_with(0, &["again.png"]);
    assert_eq!(fs::read_link(&null).unwrap().to_str(), Some("/dev/null"));
    assert_eq!(place.names("").len(), 6, "{:?}", place.names(""));
}

/// What a link at the place of an output leads to is not touched.
#[test]
fn links_at_the_place_of_an_output_are_not_followed() {
    let place = Place::new();
    let model = golden("pixart-tiny");
    let victim = place.write("victim.png", "precious");
    let link = place.path("out.png");
    symlink(&victim, &link).unwrap();
    let ended = generate(text(&model), &["--output", text(&link)]).ended();
    assert!(matches!(ended.status.code(), Some(0 | 2)), "{ended:?}");
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
}

#[test]
fn no_output_is_an_input() {
    let place = Place::new();
    let model = place.model("pixart-tiny", "model");
    let model = text(&model);
    let prompts = place.write("p.json", "a fox\n");
    let index = place.text("model/model_index.json");
    let weights = "model/transformer/diffusion_pytorch_model.safetensors";
    let (weights, out) = (place.text(weights), place.text("out.png"));
    let before = place.files("");
    let cases: [&[&str]; 3] = [
        &["--output", &index, "--format", "png", "--overwrite"],
        &["--output", &out, "--save-latents", &weights],
        &["--output", &place.text("model/vae/config.json"), "--prompt", "an owl"],
    ];
    for more in cases {
        generate(model, more).ended().refused(&[]);
        assert!(place.files("") == before, "{more:?}: {:?}", place.names(""));
    }
    let words = ["generate", "--model", model, "--steps", "1", "--height", "32", "--width", "32"];
    let own = ["--prompts", text(&prompts), "--output", text(&prompts), "--format", "png"];
    Run::of([&words[..], &own].concat()).ended().refused(&["p.json"]);
    assert!(place.files("") == before, "{:?}", place.names(""));

    let (i2v, picture) = (golden("wan-tiny-i2v"), place.picture("s.png", [32, 32], 1));
    let before = place.files("");
    let own = ["--image", text(&picture), "--output", text(&picture)];
    generate(text(&i2v), &own).ended().refused(&["s.png"]);
    assert!(place.files("") == before, "{:?}", place.names(""));
}

/// The disk is full when the record is written, which is longer than its picture: neither is there.
#[test]
fn no_clip_is_left_without_its_record() {
    let place = Place::new();
    let model = golden("pixart-tiny");
    let (output, prompt) = (place.text("out.png"), "fox ".repeat(10_000));
    let words = ["generate", "--model", text(&model), "--steps", "1", "--height", "32"];
    let more = ["--width", "32", "--prompt", &prompt, "--output", &output];
    let run = || Run::of([&words[..], &more].concat());
    run().with_files_of(32).ended().refused(&["out.png.json"]);
    assert_eq!(place.names(""), Vec::<String>::new());
    run().ended().ended_with(0, &["out.png"]);
}

/// A signal ends what is being made within a step, and nothing is left.
#[test]
fn signals_end_what_is_being_made() {
    let place = Place::new();
    train(&place, &["loop.steps=1"]).ended().ended_with(0, &[]);
    let (run, model) = (place.text("run"), place.text("model"));
    Run::of(["export", &run, "--output", &model]).ended().ended_with(0, &[]);
    for signal in ["-INT", "-TERM", "-HUP"] {
        let prompt = "a red circle moves left";
        let words = ["generate", "--model", &model, "--prompt", prompt, "--steps", "1000"];
        let out = place.text("out.gif");
        let running = Run::of([&words[..], &["--count", "200", "--output", &out]].concat()).begin();
        thread::sleep(Duration::from_millis(1500));
        let told = Command::new("kill").args([signal, &running.id().to_string()]).status();
        assert!(told.unwrap().success(), "{signal}");
        let ended = running.ended();
        assert!(matches!(ended.status.code(), Some(129 | 130 | 143)), "{signal}: {ended:?}");
        ended.within(10);
        let left = place.names("");
        assert!(
            left.iter().all(|name| !name.starts_with("out") && !name.starts_with(".out")),
            "{signal}: {left:?}"
        );
    }
}
