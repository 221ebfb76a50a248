//! The record beside an output tells what was used, and makes it again.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::folder::{Copy, goldens, run, write, write_lora};
use crate::training::words;

/// Runs and expects success.
#[track_caller]
fn good(arguments: &[&str]) {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", words(&output));
}

/// Runs and expects a refusal that holds every one of `expected`.
#[track_caller]
fn refused(arguments: &[&str], expected: &[&str]) {
    let output = run(arguments);
    let text = words(&output);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
    for word in expected {
        assert!(text.contains(word), "no `{word}` in: {text}");
    }
}

const SMALL: [&str; 4] = ["--height", "32", "--width", "48"];

/// What was not said is told all the same: the model's own steps, guidance, solver and size.
#[test]
fn what_was_used_is_recorded() {
    let copy = Copy::of("wan-tiny");
    let small = ["--prompt", "a fox", "--steps", "2", "--frames", "5", "--max-tokens", "16"];
    let out = copy.generate_new("out.gif", &[&small[..], &SMALL].concat());
    assert!(out.status.success(), "{}", words(&out));
    let record = copy.record("out.gif");
    assert_eq!(record["solver"], "UniPCMultistepScheduler");
    assert_eq!(record["solver_options"]["use_flow_sigmas"], true);
    assert_eq!(record["timesteps"].as_array().unwrap().len(), 2);
    for (key, value) in [
        ("guidance", json!(5.0)),
        ("fps", json!(16.0)),
        ("steps", json!(2)),
        ("frames", json!(5)),
        ("seed", json!(0)),
        ("dtype", json!("f32")),
        ("fit", json!("crop")),
        ("moviola", json!(env!("CARGO_PKG_VERSION"))),
    ] {
        assert_eq!(record[key], value, "{key}");
    }
    assert_eq!(record["model_fingerprint"].as_str().unwrap().len(), 32);
    // A weight that changes anywhere changes the fingerprint; where the folder is does not.
    let there = copy.path("elsewhere");
    fs::rename(copy.path("model"), &there).unwrap();
    let model = there.to_str().unwrap();
    let (old, new) = (copy.path("out.gif"), copy.path("again.gif"));
    let replay = copy.path("out.gif.json");
    let replay = ["generate", "--replay", replay.to_str().unwrap(), "--model", model];
    good(&[&replay[..], &["--output", new.to_str().unwrap()]].concat());
    assert_eq!(fs::read(old).unwrap(), fs::read(new).unwrap());
}

/// Every kind of file, every input, and each of several samples comes out the same to the byte.
#[test]
fn a_replay_makes_the_same_bytes() {
    let copy = Copy::of("wan-tiny-i2v");
    let path = |name: &str| copy.path(name).to_str().unwrap().to_owned();
    let image = goldens().join("pictures/photo.png");
    write_lora(&copy.path("given-lora.safetensors"));
    let lora = format!("{}:0.5", path("given-lora.safetensors"));
    let common = [
        "--image",
        image.to_str().unwrap(),
        "--lora",
        &lora,
        "--steps",
        "2",
        "--frames",
        "5",
        "--height",
        "32",
        "--width",
        "48",
        "--seed",
        "7",
        "--max-tokens",
        "16",
        "--negative",
        "grey",
    ];
    let prompts = ["--prompt", "a fox", "--prompt", "an owl", "--count", "2"];
    for output in ["out.mp4", "out.gif", "out.webp", "out.png", "out.jpg", "out.safetensors"] {
        let out = copy.generate_new(output, &[&common[..], &prompts].concat());
        assert!(out.status.success(), "{}", words(&out));
        let (stem, extension) = output.split_once('.').unwrap();
        let name = |at: usize| format!("{stem}-{at:03}.{extension}");
        for at in [1, 3] {
            let (record, again) =
                (path(&format!("{}.json", name(at))), path(&format!("again{at}.{extension}")));
            good(&["generate", "--replay", &record, "--output", &again]);
            assert_eq!(
                fs::read(&again).unwrap(),
                fs::read(path(&name(at))).unwrap(),
                "{}",
                name(at)
            );
        }
        // Another sample of the same prompt, by its number; another prompt's is refused.
        let record = path(&format!("{}.json", name(2)));
        let sample = path(&format!("sample.{extension}"));
        good(&["generate", "--replay", &record, "--sample", "3", "--output", &sample]);
        assert_eq!(fs::read(&sample).unwrap(), fs::read(path(&name(3))).unwrap(), "{output}");
        let wrong = ["generate", "--replay", &record, "--sample", "1", "--output", "x.gif"];
        refused(&wrong, &["samples are 2 to 3", "another prompt's"]);
    }
    // Without a name it goes beside the record, and nothing is replaced.
    let record = path("out-000.gif.json");
    good(&["generate", "--replay", &record]);
    let made = fs::read(path("out-000-replay.gif")).unwrap();
    assert_eq!(made, fs::read(path("out-000.gif")).unwrap());
    refused(&["generate", "--replay", &record], &["out-000-replay.gif exists"]);
    refused(&["generate", "--replay", &record, "--steps", "3"], &["--replay", "--steps"]);
}

/// A sample that the record does not know is made, and said to be a new one.
#[test]
fn a_sample_that_was_not_made_is_told() {
    let copy = Copy::of("pixart-tiny");
    let path = |name: &str| copy.path(name).to_str().unwrap().to_owned();
    let lines = "{\"prompt\": \"a fox\"}\n{\"prompt\": \"an owl\", \"seed\": 9, \"count\": 2}\n";
    fs::write(copy.path("given.jsonl"), lines).unwrap();
    let given = ["--prompts", &path("given.jsonl"), "--steps", "1"];
    let out = copy.generate_new("out.png", &[&given[..], &SMALL].concat());
    assert!(out.status.success(), "{}", words(&out));
    // The files are numbered through, and samples by their seed.
    let again = |sample: &str, output: &str| {
        let own = ["generate", "--replay", &path("out-001.png.json"), "--sample", sample];
        run(&[&own[..], &["--output", &path(output)]].concat())
    };
    assert!(!words(&again("1", "one.png")).contains("warning"));
    assert_eq!(fs::read(path("one.png")).unwrap(), fs::read(path("out-002.png")).unwrap());
    let said = words(&again("2", "two.png"));
    assert!(
        said.contains("is of samples 0 to 1 of its seed") && said.contains("not made then"),
        "{said}"
    );
}

/// What computes otherwise is said before bytes differ.
#[test]
fn other_instructions_are_told() {
    let copy = Copy::of("pixart-tiny");
    let small = ["--prompt", "a fox", "--steps", "1"];
    let out = copy.generate_new("out.png", &[&small[..], &SMALL].concat());
    assert!(out.status.success(), "{}", words(&out));
    let record = copy.path("out.png.json");
    let replay = |set: &str, output: &str| {
        let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("moviola"));
        command.args(["generate", "--replay"]).arg(&record).arg("--output").arg(copy.path(output));
        words(&command.env("MOVIOLA_ISA", set).output().unwrap())
    };
    let own = copy.record("out.png")["instructions"].as_str().unwrap().to_owned();
    assert!(!replay(&own, "own.png").contains("warning"));
    if own != "portable" {
        let said = replay("portable", "other.png");
        let expected = format!("was computed with {own}, and this is portable");
        assert!(said.contains(&expected) && said.contains(&format!("MOVIOLA_ISA={own}")), "{said}");
    }
}

/// Noise and embeddings of a file: a sample has its own row of each.
#[test]
fn rows_of_files_belong_to_their_samples() {
    let copy = Copy::of("pixart-tiny");
    let path = |name: &str| copy.path(name).to_str().unwrap().to_owned();
    let tensor = |shape: Vec<usize>, seed: usize| {
        let count = shape.iter().product::<usize>();
        let value = |at: usize| ((at * 37 + seed) % 101) as f32 / 50.0 - 1.0;
        (
            safetensors::Dtype::F32,
            shape,
            (0..count).flat_map(|at| value(at).to_le_bytes()).collect::<Vec<u8>>(),
        )
    };
    write(&copy.path("given-noise"), &[("noise".to_owned(), tensor(vec![4, 4, 4, 6], 0))].into());
    let embeds = [
        ("prompt_embeds".to_owned(), tensor(vec![2, 3, 20], 1)),
        ("negative_prompt_embeds".to_owned(), tensor(vec![1, 3, 20], 2)),
    ];
    write(&copy.path("given-embeds"), &embeds.into());
    let files = ["--noise", &path("given-noise"), "--prompt-embeds", &path("given-embeds")];
    let out = copy
        .generate_new("out.png", &[&files[..], &SMALL, &["--steps", "2", "--count", "2"]].concat());
    assert!(out.status.success(), "{}", words(&out));
    for at in 0..4 {
        let (record, again) =
            (path(&format!("out-{at:03}.png.json")), path(&format!("again-{at}.png")));
        good(&["generate", "--replay", &record, "--output", &again]);
        let made = fs::read(path(&format!("out-{at:03}.png"))).unwrap();
        assert_eq!(fs::read(again).unwrap(), made, "sample {at}");
    }
}

/// Ranks whose sums have another order are told, and make the same numbers again.
#[test]
fn a_layout_is_recorded() {
    let copy = Copy::of("wan-tiny");
    let path = |name: &str| copy.path(name).to_str().unwrap().to_owned();
    let small = ["--prompt", "a fox", "--prompt", "an owl", "--steps", "2", "--frames", "5"];
    let small = [&small[..], &SMALL, &["--max-tokens", "8"]].concat();
    let made = |name: &str, layout: &[&str]| {
        let out = copy.generate_new(name, &[&small[..], layout].concat());
        assert!(out.status.success(), "{layout:?}: {}", words(&out));
        let (stem, extension) = name.split_once('.').unwrap();
        let name = format!("{stem}-001.{extension}");
        (fs::read(path(&name)).unwrap(), copy.record(&name)["layout"].clone(), name)
    };
    let (plain, layout, _) = made("plain.safetensors", &[]);
    assert_eq!(layout, Value::Null);
    let (ringed, layout, name) = made("ring.safetensors", &["--ring", "3", "--data", "2"]);
    assert_eq!(layout, json!({ "ring": 3 }));
    assert_ne!(ringed, plain, "the sums of a ring have another order");
    let replay = ["generate", "--replay", &path(&format!("{name}.json"))];
    good(&[&replay[..], &["--output", &path("again.safetensors")]].concat());
    assert_eq!(fs::read(path("again.safetensors")).unwrap(), ringed);
    refused(&[&replay[..], &["--ring", "2"]].concat(), &["--replay", "--ring"]);
    // What --ranks chose for two samples is what is told, and not what it would choose for one.
    let (_, layout, _) = made("auto.safetensors", &["--ranks", "4"]);
    assert_eq!(layout, json!({ "cfg": 2 }));
}

/// A record whose inputs changed is refused, and all that changed is named.
#[test]
fn inputs_that_changed_are_named() {
    let copy = Copy::of("wan-tiny-i2v");
    let path = |name: &str| copy.path(name).to_str().unwrap().to_owned();
    fs::copy(goldens().join("pictures/photo.png"), copy.path("given-photo.png")).unwrap();
    write_lora(&copy.path("given-lora.safetensors"));
    let files = ["--image", &path("given-photo.png"), "--lora", &path("given-lora.safetensors")];
    let small = ["--prompt", "a fox", "--steps", "1", "--frames", "1", "--max-tokens", "8"];
    let out = copy.generate_new("out.png", &[&files[..], &small, &SMALL].concat());
    assert!(out.status.success(), "{}", words(&out));
    let record = path("out.png.json");
    let replay = ["generate", "--replay", &record, "--output", &path("again.png")];
    good(&replay);
    fs::remove_file(path("again.png")).unwrap();
    fs::copy(goldens().join("pictures/gray.png"), copy.path("given-photo.png")).unwrap();
    refused(&replay, &["image", "given-photo.png has changed"]);
    fs::remove_file(copy.path("given-lora.safetensors")).unwrap();
    refused(&replay, &["given-photo.png has changed", "LoRA", "given-lora.safetensors is gone"]);
    copy.rewrite("vae/diffusion_pytorch_model.safetensors", |tensors| {
        tensors.values_mut().next().unwrap().2[0] ^= 1;
    });
    refused(&replay, &["the model", "has changed (it was"]);
    assert!(!copy.path("again.png").exists());
    fs::write(&record, "{}").unwrap();
    refused(&replay, &["no record of `moviola generate`"]);
    fs::write(&record, r#"{"command": "generate", "steps": null}"#).unwrap();
    refused(&replay, &["format 1", "did not tell all"]);
}

/// Nothing that is there is lost: neither an output, nor a record, nor a file of the user's.
#[test]
fn nothing_is_overwritten_unless_asked() {
    let copy = Copy::of("wan-tiny");
    let small = ["--prompt", "a fox", "--steps", "1", "--frames", "1", "--max-tokens", "8"];
    let small = [&small[..], &SMALL].concat();
    let own = "my own data";
    fs::write(copy.path("data.json"), own).unwrap();
    for output in ["data.gif", "data.mp4"] {
        let out = copy.generate_new(output, &small);
        assert!(out.status.success(), "{}", words(&out));
        assert!(copy.path(&format!("{output}.json")).is_file());
    }
    assert_eq!(fs::read_to_string(copy.path("data.json")).unwrap(), own);
    let before = fs::read(copy.path("data.gif")).unwrap();
    let other = [&small[..], &["--seed", "5"]].concat();
    let out = copy.generate_new("data.gif", &other);
    assert_eq!(out.status.code(), Some(2));
    assert!(words(&out).contains("data.gif exists; add --overwrite"), "{}", words(&out));
    assert_eq!(fs::read(copy.path("data.gif")).unwrap(), before);
    fs::remove_file(copy.path("data.gif")).unwrap();
    let out = copy.generate_new("data.gif", &other);
    assert!(words(&out).contains("data.gif.json exists"), "a record alone: {}", words(&out));
    let latents = copy.path("given-latents");
    fs::write(&latents, own).unwrap();
    let save = [&small[..], &["--save-latents", latents.to_str().unwrap()]].concat();
    let out = copy.generate_new("new.gif", &save);
    assert!(words(&out).contains("--save-latents another name"), "{}", words(&out));
    assert_eq!(fs::read_to_string(&latents).unwrap(), own);
    let out = copy.generate_to("data.gif", &other);
    assert!(out.status.success(), "{}", words(&out));
    assert_ne!(fs::read(copy.path("data.gif")).unwrap(), before);
}

/// Even who asks for it does not overwrite the model or an input.
#[test]
fn a_model_and_inputs_are_never_overwritten() {
    let copy = Copy::of("wan-tiny-i2v");
    let photo = copy.path("given-photo.png");
    fs::copy(goldens().join("pictures/photo.png"), &photo).unwrap();
    let small =
        ["--prompt", "a fox", "--steps", "1", "--frames", "1", "--image", photo.to_str().unwrap()];
    let refuses = |output: &str, more: &[&str], word: &str| {
        let out = copy.generate_to(output, &[&small[..], &SMALL, more].concat());
        assert_eq!(out.status.code(), Some(2), "{output}");
        assert!(words(&out).contains(word), "{output}: {}", words(&out));
    };
    let weights = copy.path("model/vae/diffusion_pytorch_model.safetensors");
    let before = fs::read(&weights).unwrap();
    refuses("model/vae/diffusion_pytorch_model.safetensors", &[], "is an input of this run");
    refuses("x.png", &["--save-latents", weights.to_str().unwrap()], "is an input of this run");
    refuses("given-photo.png", &[], "is an input of this run");
    assert_eq!(fs::read(&weights).unwrap(), before);
    // The folders that lead to an output are made, and only when there is something to put there.
    let out = copy
        .generate_new("deep/er/out.png", &[&small[..], &SMALL, &["--max-tokens", "8"]].concat());
    assert!(out.status.success(), "{}", words(&out));
    assert!(copy.path("deep/er/out.png.json").is_file());
    let out = copy.generate_new("never/out.png", &[&small[..], &["--height", "33"]].concat());
    assert!(out.status.code() == Some(2) && !copy.path("never").exists());
}

/// A seed that is drawn is told, and makes the same picture when it is asked for.
#[test]
fn a_drawn_seed_is_recorded() {
    let copy = Copy::of("pixart-tiny");
    let small = [&["--prompt", "a fox", "--steps", "1"], &SMALL[..]].concat();
    let mut seeds = Vec::new();
    for (at, seed) in ["-1", "random", "random"].into_iter().enumerate() {
        let output = format!("out{at}.png");
        let out = copy.generate_new(&output, &[&small[..], &["--seed", seed]].concat());
        assert!(out.status.success(), "{}", words(&out));
        let drawn = copy.record(&output)["seed"].as_u64().unwrap();
        assert!(words(&out).contains(&format!("seed {drawn}")), "{}", words(&out));
        let again =
            copy.generate_to("again.png", &[&small[..], &["--seed", &drawn.to_string()]].concat());
        assert!(again.status.success(), "{}", words(&again));
        let read = |name: &str| fs::read(copy.path(name)).unwrap();
        assert_eq!(read("again.png"), read(&output));
        seeds.push(drawn);
    }
    assert!(seeds[0] != seeds[1] && seeds[1] != seeds[2], "{seeds:?}");
}

/// The relative paths of a record are found from elsewhere.
#[test]
fn a_record_is_replayed_from_another_folder() {
    let copy = Copy::of("pixart-tiny");
    let program = assert_cmd::cargo::cargo_bin!("moviola");
    let run_in = |folder: &Path, arguments: &[&str]| {
        let out = std::process::Command::new(program)
            .args(arguments)
            .current_dir(folder)
            .output()
            .unwrap();
        assert!(out.status.success(), "{}", words(&out));
    };
    let make =
        ["generate", "--model", "model", "--prompt", "a fox", "--steps", "1", "--output", "x.png"];
    run_in(&copy.path(""), &[&make[..], &SMALL].concat());
    let elsewhere = copy.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    run_in(&elsewhere, &["generate", "--replay", "../x.png.json", "--output", "y.png"]);
    assert_eq!(fs::read(elsewhere.join("y.png")).unwrap(), fs::read(copy.path("x.png")).unwrap());
    let record: Value = copy.record("x.png");
    assert_eq!(record["model"], "model");
}

/// An output whose name does not say what it is, and a file here that only has the name of the one that was read.
#[test]
fn a_replay_knows_what_was_written_and_what_was_read() {
    let copy = Copy::of("wan-tiny-ti2v");
    let text = |name: &str| copy.path(name).to_str().unwrap().to_owned();
    let small = ["-p", "a fox", "--steps", "1", "--frames", "5", "--height", "32", "--width", "32"];
    let small = [&small[..], &["--max-tokens", "8"]].concat();
    let out = copy.generate_new("clip", &[&small[..], &["--format", "gif"]].concat());
    assert!(out.status.success(), "{}", words(&out));
    good(&["generate", "--replay", &text("clip.json")]);
    assert_eq!(fs::read(copy.path("clip-replay")).unwrap(), fs::read(copy.path("clip")).unwrap());
    // A name that says what it is wins.
    good(&["generate", "--replay", &text("clip.json"), "--output", &text("other.mp4")]);
    assert_eq!(fs::read(copy.path("other.mp4")).unwrap()[4..8], *b"ftyp");
    let picture = |name: &str, level: u8| {
        image::RgbImage::from_pixel(32, 32, image::Rgb([level; 3])).save(copy.path(name)).unwrap();
    };
    fs::create_dir(copy.path("here")).unwrap();
    picture("x.png", 40);
    picture("here/x.png", 200);
    let run_in = |folder: &str, words: &[&str]| {
        let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("moviola"));
        let out = command.args(words).current_dir(copy.path(folder)).output().unwrap();
        (out.status.success(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let make = ["generate", "--model", "model", "--image", "x.png", "--output", "given.gif"];
    let (made, said) = run_in("", &[&make[..], &small].concat());
    assert!(made, "{said}");
    let again = ["generate", "--replay", "../given.gif.json", "--output", "again.gif"];
    let (made, said) = run_in("here", &again);
    assert!(made, "{said}");
    let bytes = ["given.gif", "here/again.gif"].map(|name| fs::read(copy.path(name)).unwrap());
    assert!(bytes[0] == bytes[1]);
    picture("x.png", 41);
    let (made, said) = run_in("here", &again);
    assert!(!made && said.contains("x.png has changed"), "{said}");
}

/// A record that was renamed still knows what was written.
#[test]
fn a_renamed_record_knows_its_format() {
    let copy = Copy::of("wan-tiny");
    let small = ["--prompt", "a fox", "--steps", "1", "--frames", "5", "--max-tokens", "8"];
    let out =
        copy.generate_to("out.gif", &[&small[..], &["--height", "16", "--width", "16"]].concat());
    assert!(out.status.success(), "{}", words(&out));
    fs::rename(copy.path("out.gif.json"), copy.path("mine.json")).unwrap();
    let out = run(&["generate", "--replay", copy.path("mine.json").to_str().unwrap()]);
    assert!(out.status.success(), "{}", words(&out));
    let made = fs::read(copy.path("mine-replay")).unwrap();
    assert!(made == fs::read(copy.path("out.gif")).unwrap(), "the bytes differ");
}
