//! What a user types in the hope that it works: it does, or says what to type instead.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::conditions::model;
use crate::folder::{Copy, read, run, write_lora};
use crate::training::words;

/// A folder with a tiny Duet in `model`.
struct Duet {
    folder: tempfile::TempDir,
    model: String,
}

impl Duet {
    fn new() -> Duet {
        let folder = tempfile::tempdir().unwrap();
        let model = model(folder.path(), "quickstart.yaml", "");
        Duet { folder, model }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn generate(&self, output: &str, more: &[&str]) -> std::process::Output {
        let path = self.path(output);
        run(&[&["generate", "--model", &self.model, "--overwrite", "--output", &path], more]
            .concat())
    }

    /// Makes a clip and returns its bytes and its record.
    #[track_caller]
    fn made(&self, output: &str, more: &[&str]) -> (Vec<u8>, Value) {
        let out = self.generate(output, more);
        assert!(out.status.success(), "{more:?}: {}", words(&out));
        let record = fs::read(self.path(&format!("{output}.json"))).unwrap();
        (fs::read(self.path(output)).unwrap(), serde_json::from_slice(&record).unwrap())
    }
}

const CIRCLE: &str = "a red circle moves left";

/// A number of steps never changes the solver of a student: it takes as many of its own timesteps.
#[test]
fn a_student_keeps_its_solver() {
    let duet = Duet::new();
    let index = Path::new(&duet.model).join("model_index.json");
    let mut value: Value = serde_json::from_slice(&fs::read(&index).unwrap()).unwrap();
    value["solver"] = json!("renoise");
    value["timesteps"] = json!([1000.0, 750.0, 500.0, 250.0]);
    fs::write(&index, value.to_string()).unwrap();
    let prompt = ["--prompt", CIRCLE];
    let (own, record) = duet.made("own.gif", &prompt);
    assert_eq!((&record["solver"], &record["guidance"]), (&json!("renoise"), &json!(1.0)));
    let (four, _) = duet.made("four.gif", &[&prompt[..], &["--steps", "4"]].concat());
    assert_eq!(four, own);
    for (steps, timesteps) in [("2", json!([1000.0, 500.0])), ("1", json!([1000.0]))] {
        let (fewer, record) = duet.made("fewer.gif", &[&prompt[..], &["--steps", steps]].concat());
        assert_eq!((&record["solver"], &record["timesteps"]), (&json!("renoise"), &timesteps));
        assert_eq!(record["guidance"], 1.0);
        assert_ne!(fewer, own);
    }
    for steps in ["0", "5", "30"] {
        let out = duet.generate("no.gif", &[&prompt[..], &["--steps", steps]].concat());
        assert_eq!(out.status.code(), Some(2));
        for word in ["--steps: ", "distilled for 4 step(s)", "1000, 750, 500, 250", "`scheduler`"] {
            assert!(words(&out).contains(word), "{}", words(&out));
        }
    }
    let scheduler = [&prompt[..], &["--steps", "5", "--solver", "scheduler"]].concat();
    let (_, record) = duet.made("scheduled.gif", &scheduler);
    assert_eq!(record["solver"], "FlowMatchEulerDiscreteScheduler");
    assert_eq!((&record["guidance"], &record["steps"]), (&json!(2.0), &json!(5)));
    let shift = duet.generate("no.gif", &[&prompt[..], &["--flow-shift", "3"]].concat());
    assert!(words(&shift).contains("--flow-shift: the steps are a distilled model's"));
}

/// A first-block cache says what it saved and cost, is told by the record, and is refused where it cannot be.
#[test]
fn blocks_are_left_out_when_asked() {
    let copy = Copy::of("pixart-tiny");
    let small = ["--prompt", "a fox", "--steps", "6", "--height", "32", "--width", "32"];
    let out = copy.generate_to("plain.png", &small);
    assert!(out.status.success() && !words(&out).contains("cache"), "{}", words(&out));
    let out = copy.generate_to("out.png", &[&small[..], &["--cache", "fbcache:0.9"]].concat());
    assert!(out.status.success(), "{}", words(&out));
    let told = words(&out);
    assert!(told.contains("of 12 passes ran the first block only; what was left out"), "{told}");
    let [plain, made] = ["plain.png", "out.png"].map(|name| fs::read(copy.path(name)).unwrap());
    assert_ne!(plain, made);
    assert_eq!(copy.record("out.png")["cache"], "fbcache:0.9");
    let [record, again] = ["out.png.json", "again.png"].map(|name| copy.path(name));
    let replay = ["generate", "--replay", record.to_str().unwrap(), "--output"];
    let out = run(&[&replay[..], &[again.to_str().unwrap()]].concat());
    assert!(out.status.success(), "{}", words(&out));
    assert_eq!(fs::read(again).unwrap(), made);
    let one = Copy::of("wan-tiny").generate(&["--prompt", "a fox", "--cache", "fbcache:0.1"]);
    assert!(words(&one).contains("--cache: the model has one block"), "{}", words(&one));
    for (more, reason) in [
        (&["--cache", "fbcache:1.5"][..], "--cache: a share of 1.5 is not between 0 and 1"),
        (&["--cache", "fbcache:nan"], "--cache: a share of NaN is not between 0 and 1"),
        (&["--cache", "fbcache:much"], "`much` is not a number"),
        (&["--cache", "teacache:0.1"], "there is only fbcache:SHARE"),
        (&["--cache", "fbcache:0.1", "--pipefusion", "2"], "--pipefusion: patches that flow"),
    ] {
        let out = copy.generate(&[&small[..], more].concat());
        assert!(words(&out).contains(reason), "{more:?}: {}", words(&out));
        assert_eq!(out.status.code(), Some(2));
    }
}

/// `--flow-shift` is what the scheduler's own config would have said.
#[test]
fn a_flow_is_shifted() {
    let copy = Copy::of("wan-tiny");
    let small = ["--prompt", "a fox", "--steps", "3", "--frames", "1", "--height", "32", "--width"];
    let small = [&small[..], &["32", "--max-tokens", "8"]].concat();
    let latents = copy.path("latents");
    let save = ["--save-latents", latents.to_str().unwrap()];
    let made = |more: &[&str]| {
        let out = copy.generate_to("out.png", &[&small[..], &save, more].concat());
        assert!(out.status.success(), "{}", words(&out));
        (read(&latents)["latents"].clone(), copy.record("out.png"))
    };
    let (plain, _) = made(&[]);
    let (shifted, record) = made(&["--flow-shift", "9.5"]);
    assert_ne!(plain, shifted);
    assert_eq!(
        (&record["flow_shift"], &record["solver_options"]["flow_shift"]),
        (&json!(9.5), &json!(9.5))
    );
    let file = copy.path("model/scheduler/scheduler_config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    config["flow_shift"] = json!(9.5);
    fs::write(&file, config.to_string()).unwrap();
    assert_eq!(made(&[]).0, shifted);
    for (shift, word) in [("0", "a shift of 0"), ("-2", "a shift of -2")] {
        let out = copy.generate(&[&small[..], &["--flow-shift", shift]].concat());
        assert!(words(&out).starts_with("error: --flow-shift: ") && words(&out).contains(word));
    }
    let picture = Copy::of("pixart-tiny");
    let out = picture.generate(&["--prompt", "a fox", "--flow-shift", "3"]);
    assert!(words(&out).contains("DPMSolverMultistepScheduler of this folder has no shift"));
}

/// A size that is left out follows the picture, and its proportions stay; both are said.
#[test]
fn a_picture_keeps_its_proportions() {
    let duet = Duet::new();
    let picture = duet.path("wide.png");
    image::RgbImage::from_fn(90, 40, |x, y| image::Rgb([(2 * x) as u8, (5 * y) as u8, 128]))
        .save(&picture)
        .unwrap();
    let common = ["--prompt", CIRCLE, "--steps", "2", "--image", &picture];
    let made = |more: &[&str]| {
        let out = duet.generate("out.safetensors", &[&common[..], more].concat());
        assert!(out.status.success(), "{more:?}: {}", words(&out));
        let record = fs::read(duet.path("out.safetensors.json")).unwrap();
        let record: Value = serde_json::from_slice(&record).unwrap();
        let size = [&record["height"], &record["width"]].map(|side| side.as_u64().unwrap());
        let frames = read(Path::new(&duet.path("out.safetensors")))["frames"].clone();
        (size, frames, record["fit"].clone(), words(&out))
    };
    // As many pixels as the model makes by itself, in multiples of 8, and no more.
    let (size, _, fit, said) = made(&[]);
    assert_eq!((size, fit), ([16, 48], json!("crop")));
    let note = "the image of 90 x 40 (width x height) is cropped to 48 x 16";
    assert!(said.contains(note), "{said}");
    assert_eq!(made(&["--height", "32"]).0, [32, 72]);
    assert_eq!(made(&["--width", "40"]).0, [16, 40]);
    let square = ["--height", "32", "--width", "32"];
    let (size, plain, fit, _) = made(&square);
    assert_eq!((size, fit), ([32, 32], json!("crop")));
    let fitted = |way| made(&[&square[..], &["--fit", way]].concat());
    let (_, stretched, _, said) = fitted("stretch");
    assert!(said.contains("stretched to 32 x 32, by 125 % more"), "{said}");
    let (cropped, padded) = (fitted("crop"), fitted("pad"));
    assert_eq!(cropped.1, plain);
    assert!(cropped.3.contains("cropped to 32 x 32: 55.6 % of it is not seen"), "{}", cropped.3);
    assert!(padded.3.contains("padded to 32 x 32: 55.6 % of the clip is black"), "{}", padded.3);
    assert!(cropped.1 != stretched && padded.1 != stretched && cropped.1 != padded.1);
    // The first frame is the picture: its upper edge is black where it was padded.
    let value =
        |bytes: &[u8], at: usize| f32::from_le_bytes(bytes[4 * at..][..4].try_into().unwrap());
    assert!((0..96).all(|at| value(&padded.1.2, at) < 0.02), "the first row");
    assert!((0..96).any(|at| value(&cropped.1.2, at) > 0.2), "the first row");
    // What becomes of each of several is said.
    let keyframe = format!("4:{picture}");
    let (_, _, _, said) = made(&[&square[..], &["--keyframe", &keyframe]].concat());
    assert_eq!(said.matches("is cropped to 32 x 32").count(), 2, "{said}");
    // Where no picture is given, there is none to fit.
    let out = duet.generate("no.gif", &["--prompt", CIRCLE, "--fit", "pad"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(
        words(&out).contains("--fit: nothing is given that could be fitted"),
        "{}",
        words(&out)
    );
    // What has the right proportions already is left alone and nothing is said.
    image::RgbImage::new(64, 64).save(&picture).unwrap();
    let (size, _, _, said) = made(&[]);
    assert!(size == [32, 32] && !said.contains("warning"), "{said}");
}

/// One file goes to the standard output and nothing else does.
#[test]
fn the_standard_output_is_a_place() {
    let copy = Copy::of("wan-tiny");
    let small = ["--prompt", "a fox", "--steps", "1", "--frames", "5", "--height", "16", "--width"];
    let small = [&small[..], &["16", "--max-tokens", "8"]].concat();
    let model = copy.path("model");
    let to_stdout = |more: &[&str]| {
        let common = ["generate", "--model", model.to_str().unwrap(), "--output", "-"];
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("moviola"));
        command
            .args([&common[..], &small, more].concat())
            .current_dir(copy.path(""))
            .output()
            .unwrap()
    };
    for format in ["gif", "mp4", "png", "jpg", "webp", "safetensors"] {
        let out = to_stdout(&["--format", format]);
        assert!(out.status.success(), "{}", words(&out));
        let name = format!("out.{format}");
        assert!(copy.generate_new(&name, &small).status.success());
        assert_eq!(out.stdout, fs::read(copy.path(&name)).unwrap(), "{format}");
        fs::remove_file(copy.path(&name)).unwrap();
        fs::remove_file(copy.path(&format!("{name}.json"))).unwrap();
    }
    for (more, word) in [
        (&[][..], "--format gif"),
        (&["--format", "gif", "--count", "2"], "2 samples are made, and one can go there"),
        (&["--format", "frames"], "a folder"),
        (&["--format", "docx"], "there are mp4, webm, gif"),
    ] {
        let out = to_stdout(more);
        assert_eq!((out.status.code(), out.stdout.len()), (Some(2), 0), "{more:?}");
        assert!(words(&out).contains(word), "{more:?}: {}", words(&out));
    }
    let out = copy.generate_new("x.gif", &[&small[..], &["--save-latents", "-"]].concat());
    assert_eq!((out.status.code(), out.stdout.len()), (Some(2), 0));
    assert!(words(&out).contains("--save-latents -: "), "{}", words(&out));
    assert_eq!(copy.written(), Vec::<String>::new());
    // Marks for programs are JSON and nothing else.
    let out = run(&["exam", "--model", "x", "--without-model", "--colour", "red", "--output", "-"]);
    assert!(out.status.success(), "{}", words(&out));
    let marks: Value = serde_json::from_slice(&out.stdout).expect("the marks are JSON");
    assert!(marks["score"].is_object() && words(&out).contains("score "), "{marks}");
    // A format holds over the name of a file.
    let out = copy.generate_new("clip", &[&small[..], &["--format", "gif"]].concat());
    assert!(out.status.success(), "{}", words(&out));
    assert_eq!(fs::read(copy.path("clip")).unwrap()[..3], *b"GIF");
}

/// The folders of an output are made, and not by a run that is refused.
#[test]
fn folders_of_outputs_are_made() {
    let copy = Copy::of("pixart-tiny");
    let small = ["--prompt", "a fox", "--steps", "1", "--width", "32", "--height"];
    let made =
        |high: &str| copy.generate_new("new/deeper/out.png", &[&small[..], &[high]].concat());
    assert_eq!(made("33").status.code(), Some(2));
    assert!(!copy.path("new").exists());
    let out = made("32");
    assert!(out.status.success(), "{}", words(&out));
    assert!(
        copy.path("new/deeper/out.png").is_file() && copy.path("new/deeper/out.png.json").is_file()
    );
}

/// What people type elsewhere means the same here, and a number may be negative.
#[test]
fn names_that_people_type() {
    let copy = Copy::of("wan-tiny");
    let size = ["--height", "16", "--width", "16", "--max-tokens", "8"];
    let made = |words_of: &[&str]| {
        let out = copy.generate_to("out.gif", &[&size[..], words_of].concat());
        assert!(out.status.success(), "{words_of:?}: {}", words(&out));
        (fs::read(copy.path("out.gif")).unwrap(), copy.record("out.gif"))
    };
    let ours = [
        "--prompt",
        "a fox",
        "--negative",
        "grey",
        "--steps",
        "2",
        "--guidance",
        "3",
        "--frames",
        "5",
    ];
    let (plain, _) = made(&ours);
    for guidance in ["--guidance-scale", "--cfg-scale"] {
        let theirs = [
            "-p",
            "a fox",
            "--negative-prompt",
            "grey",
            "--num-inference-steps",
            "2",
            guidance,
            "3",
            "--num-frames",
            "5",
        ];
        assert_eq!(made(&theirs).0, plain, "{guidance}");
    }
    let (_, record) = made(&["-p", "a fox", "--steps", "1", "--frames", "1", "--guidance", "-1.5"]);
    assert_eq!(record["guidance"], -1.5);
}

/// A rate is a number or a fraction, and one that the file cannot show is refused before anything is made.
#[test]
fn rates_that_a_file_can_show() {
    let copy = Copy::of("wan-tiny");
    let small = ["-p", "a fox", "--steps", "1", "--frames", "5", "--height", "16", "--width", "16"];
    let made = |output: &str, rate: &str| {
        copy.generate_to(output, &[&small[..], &["--max-tokens", "8", "--fps", rate]].concat())
    };
    for rate in ["24000/1001", "50"] {
        let out = made("out.gif", rate);
        assert!(out.status.success(), "{rate}: {}", words(&out));
    }
    assert_eq!(copy.record("out.gif")["fps"], 50.0);
    for (rate, word) in [
        ("60", "--fps: a GIF shows 50 frames a second at most, and this is 60"),
        ("1e9", "is no frame rate; give a number above 0 and up to 1000, or a fraction"),
        ("24/0", "is no frame rate"),
    ] {
        let out = made("fast.gif", rate);
        assert_eq!(out.status.code(), Some(2), "{rate}");
        assert!(words(&out).contains(word), "{rate}: {}", words(&out));
    }
    assert!(made("fast.mp4", "60").status.success());
}

/// A seed that a line says is its own, though it be that of the run.
#[test]
fn a_seed_of_a_line_may_be_that_of_the_run() {
    let copy = Copy::of("wan-tiny");
    let small = ["--steps", "1", "--frames", "1", "--height", "16", "--width", "16"];
    let small = [&small[..], &["--max-tokens", "8"]].concat();
    let lines = "{\"prompt\": \"an owl\"}\n{\"prompt\": \"a fox\", \"seed\": 0}\n";
    fs::write(copy.path("given.jsonl"), lines).unwrap();
    let given = copy.path("given.jsonl");
    let prompts = ["--prompts", given.to_str().unwrap()];
    assert!(copy.generate_new("out.png", &[&small[..], &prompts].concat()).status.success());
    let typed = ["--prompt", "a fox", "--seed", "0"];
    assert!(copy.generate_new("typed.png", &[&small[..], &typed].concat()).status.success());
    let bytes = ["out-001.png", "typed.png"].map(|name| fs::read(copy.path(name)).unwrap());
    assert!(bytes[0] == bytes[1], "{}", copy.record("out-001.png")["sample"]);
}

/// A negative prompt that nothing is pushed away from is said to be idle.
#[test]
fn a_negative_prompt_without_guidance_is_told() {
    let copy = Copy::of("wan-tiny");
    let small = ["-p", "a fox", "--steps", "1", "--frames", "1", "--height", "16", "--width", "16"];
    for (guidance, is_told) in [("1", true), ("3", false)] {
        let more = ["--max-tokens", "8", "--negative", "grey", "--guidance", guidance];
        let said = words(&copy.generate(&[&small[..], &more].concat()));
        assert_eq!(said.contains("the negative prompt is not looked at"), is_told, "{said}");
    }
}

/// Each line of a .jsonl file is made as if its settings were typed.
#[test]
fn prompts_with_settings_of_their_own() {
    let copy = Copy::of("wan-tiny");
    let path = |name: &str| copy.path(name).to_str().unwrap().to_owned();
    write_lora(&copy.path("given-lora.safetensors"));
    let lora = path("given-lora.safetensors");
    let lines = [
        "# made by hand".to_owned(),
        json!({ "prompt": "a fox" }).to_string(),
        json!("an owl").to_string(),
        String::new(),
        json!({ "prompt": "a fox", "seed": 9, "size": "16x32", "frames": 1 }).to_string(),
        json!({ "prompt": "a cat", "negative_prompt": "grey", "cfg_scale": 3, "steps": 1 })
            .to_string(),
        json!({ "prompt": "a fox", "lora": [format!("{lora}:0.5")], "seed": "random" }).to_string(),
    ];
    fs::write(copy.path("given.jsonl"), lines.join("\n")).unwrap();
    let small =
        ["--steps", "2", "--frames", "5", "--height", "16", "--width", "16", "--max-tokens", "8"];
    let out =
        copy.generate_new("out.png", &[&small[..], &["--prompts", &path("given.jsonl")]].concat());
    assert!(out.status.success(), "{}", words(&out));
    let alone = |more: &[&str]| {
        let own: Vec<&str> =
            small.chunks(2).filter(|pair| !more.contains(&pair[0])).flatten().copied().collect();
        let out = copy.generate_to("alone.png", &[&own[..], more].concat());
        assert!(out.status.success(), "{}", words(&out));
        fs::read(copy.path("alone.png")).unwrap()
    };
    let scaled = format!("{lora}:0.5");
    let drawn = copy.record("out-004.png")["seed"].to_string();
    let typed: [&[&str]; 5] = [
        &["--prompt", "a fox"],
        &["--prompt", "an owl", "--first-sample", "1"],
        &["--prompt", "a fox", "--seed", "9", "--height", "32", "--frames", "1"],
        &[
            "--prompt",
            "a cat",
            "--negative",
            "grey",
            "--guidance",
            "3",
            "--steps",
            "1",
            "--first-sample",
            "2",
        ],
        &["--prompt", "a fox", "--lora", &scaled, "--seed", &drawn],
    ];
    for (at, words) in typed.iter().enumerate() {
        let made = fs::read(copy.path(&format!("out-{at:03}.png"))).unwrap();
        assert_eq!(alone(words), made, "line {at}");
    }
    let replay =
        ["generate", "--replay", &path("out-004.png.json"), "--output", &path("again.png")];
    assert!(run(&replay).status.success());
    assert_eq!(
        fs::read(copy.path("again.png")).unwrap(),
        fs::read(copy.path("out-004.png")).unwrap()
    );
}

/// All lines are checked before the first is made.
#[test]
fn lines_that_cannot_be_made() {
    let copy = Copy::of("wan-tiny");
    let given = copy.path("given.jsonl");
    let small = ["--steps", "2", "--frames", "5", "--height", "16", "--width", "16"];
    let small = [&small[..], &["--max-tokens", "8", "--prompts", given.to_str().unwrap()]].concat();
    for (line, word) in [
        (json!({ "prompt": "x", "sed": 1 }), "line 2 of"),
        (json!({ "prompt": "x", "sed": 1 }), "`sed` is no setting of a line; did you mean `seed`?"),
        (json!({ "promt": "x" }), "did you mean `prompt`?"),
        (json!({ "seed": 1 }), "it has no `prompt`"),
        (json!({ "prompt": "x", "height": "tall" }), "`height` is \"tall\""),
        (json!({ "prompt": "x", "height": 17 }), "height is 17"),
        (json!({ "prompt": "x", "seed": -7 }), "`seed` is -7"),
        (json!([1]), "neither an object"),
        (json!({ "prompt": "x", "size": "wide" }), "`size` is \"wide\", not WIDTHxHEIGHT"),
    ] {
        fs::write(&given, format!("{}\n{line}", json!({ "prompt": "a fox" }))).unwrap();
        let out = copy.generate_new("no.png", &small);
        assert_eq!(out.status.code(), Some(2), "{line}");
        assert!(words(&out).contains(word), "{line}: {}", words(&out));
        assert!(!copy.path("no-000.png").exists() && !copy.path("no.png").exists());
    }
}

/// What other programs read from a line is not taken for a part of the prompt.
#[test]
fn prompts_of_other_programs() {
    let copy = Copy::of("wan-tiny");
    let refused = |name: &str, text: &str, word: &str| {
        fs::write(copy.path(name), text).unwrap();
        let given = copy.path(name);
        let out = copy.generate(&["--prompts", given.to_str().unwrap(), "--steps", "1"]);
        assert_eq!(out.status.code(), Some(2), "{text}");
        assert!(words(&out).contains(word), "{text}: {}", words(&out));
    };
    refused("a.txt", "an owl\na fox --w 512 --d 4", "line 2 of");
    refused("a.txt", "an owl\na fox --w 512 --d 4", "`--w` is no part of a prompt here");
    refused("a.json", "[{\"prompt\": \"a fox\"}]", "an object in each line, and call it .jsonl");
}

/// What is not read of a prompt is said before the work.
#[test]
fn a_prompt_that_is_cut() {
    let copy = Copy::of("pixart-tiny");
    let small = ["--steps", "1", "--height", "16", "--width", "16", "--prompt"];
    let long = "a fox in the snow beside a river that nobody has crossed";
    let out = copy.generate(&[&small[..], &[long, "--max-tokens", "6"]].concat());
    assert!(out.status.success(), "{}", words(&out));
    let said = words(&out);
    let line =
        said.lines().find(|line| line.starts_with("warning: the prompt has ")).unwrap_or(&said);
    assert!(line.contains("is cut at 6; what is not read begins with `"), "{line}");
    let lost = line.split('`').nth(1).unwrap();
    assert!(long.contains(lost.trim_end_matches('…')), "{lost}");
    let out = copy.generate(&[&small[..], &[long]].concat());
    assert!(!words(&out).contains("warning"), "{}", words(&out));
}

/// The small model of the shapes world: words it never learnt are named, case and punctuation do not
/// matter, and what it makes plays as its folder says.
#[test]
fn words_of_the_shapes_world() {
    let duet = Duet::new();
    let made = |prompt: &str| {
        let out = duet.generate("out.gif", &["--steps", "1", "--prompt", prompt]);
        assert!(out.status.success(), "{prompt}: {}", words(&out));
        (fs::read(duet.path("out.gif")).unwrap(), words(&out))
    };
    let (plain, said) = made("a blue square moves up");
    assert!(!said.contains("warning"), "{said}");
    assert_eq!(made("A blue square moves up.").0, plain);
    let (_, said) = made("a blue hexagon moves upwards");
    assert!(said.contains("never learnt: `hexagon`, `upwards`; it knows a, red, green"), "{said}");
    let (_, said) = made("");
    assert!(said.contains("the prompt is empty"), "{said}");
    let out = duet.generate("no.gif", &["--prompt", "?!"]);
    assert!(
        words(&out).contains("--prompt: `?!` has 0 words") && words(&out).contains("write some")
    );
    let out = duet.generate("no.gif", &["--prompt", "a b c d e f g"]);
    assert!(
        words(&out).contains("7 words") && words(&out).contains("shorten it"),
        "{}",
        words(&out)
    );
}

/// A line before the work says what it takes, and one after it what it took.
#[test]
fn what_it_takes_is_said() {
    let copy = Copy::of("wan-tiny");
    let small =
        ["--prompt", "a fox", "--steps", "2", "--frames", "5", "--height", "32", "--width", "48"];
    let out =
        copy.generate_to("out.gif", &[&small[..], &["--seed", "3", "--max-tokens", "8"]].concat());
    let said = words(&out);
    let before = said.lines().next().unwrap();
    let parts = [
        "1 clip of 5 frames, 48 x 32, 16 a second",
        "2 steps by UniPC",
        "guidance 5",
        "seed 3",
        "about ",
        "MiB",
    ];
    for part in parts {
        assert!(before.contains(part), "no `{part}` in: {before}");
    }
    let after = said.lines().last().unwrap();
    for part in ["made 1 of 48 x 32 in ", "seed 3", "encode ", "denoise ", "decode "] {
        assert!(after.contains(part), "no `{part}` in: {after}");
    }
    assert_eq!(
        String::from_utf8(out.stdout).unwrap(),
        format!("{}\n", copy.path("out.gif").display())
    );
}

/// WebM is written by ffmpeg, and who has none is told before the work.
#[cfg(unix)]
#[test]
fn webm_is_written_by_ffmpeg() {
    use std::os::unix::fs::PermissionsExt;
    let copy = Copy::of("wan-tiny");
    let tools = copy.path("given-tools");
    fs::create_dir(&tools).unwrap();
    let (model, output) = (copy.path("model"), copy.path("out.webm"));
    let generate = || {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("moviola"));
        command.args([
            "generate", "--prompt", "a fox", "--steps", "1", "--frames", "5", "--height", "16",
        ]);
        command.args(["--width", "16", "--max-tokens", "8", "--model"]).arg(&model);
        let path = format!("{}:/usr/bin:/bin", tools.display());
        let path = if tools.join("ffmpeg").exists() { path } else { String::new() };
        command
            .arg("--output")
            .arg(&output)
            .env("PATH", path)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    let out = generate();
    assert_eq!(out.status.code(), Some(2));
    assert!(words(&out).contains("ffmpeg` was not found") && words(&out).contains(".mp4 instead"));
    // One that keeps what it is sent, in the place of the real one.
    let script = |text: &str| {
        fs::write(tools.join("ffmpeg"), format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(tools.join("ffmpeg"), fs::Permissions::from_mode(0o755)).unwrap();
    };
    let last = r#"[ "$1" = -version ] && exit 0; for last; do :; done"#;
    script(&format!("{last}; cat > \"${{last#file:}}\""));
    let out = generate();
    assert!(out.status.success(), "{}", words(&out));
    assert_eq!(fs::read(&output).unwrap().len(), 5 * 16 * 16 * 3, "five frames of bytes");
    fs::remove_file(&output).unwrap();
    fs::remove_file(copy.path("out.webm.json")).unwrap();
    script(&format!("{last}; echo 'no such encoder' >&2; exit 1"));
    let out = generate();
    assert_eq!(out.status.code(), Some(2));
    assert!(words(&out).contains("ffmpeg: no such encoder"), "{}", words(&out));
    assert_eq!(copy.written(), Vec::<String>::new());
}
