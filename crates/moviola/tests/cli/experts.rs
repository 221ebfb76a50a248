//! Training of models that are shown pictures and of models with two experts, from files to clips.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use data::store::{BESIDE, Dataset, IMAGE};
use serde_json::Value;

use crate::folder::{Copy, distance, goldens, read, run, values};
use crate::gguf;
use crate::preprocess::Workplace;
use crate::training::{recipe, words};

/// Pictures, the dataset that a model makes of them, and a place for runs.
pub(crate) struct Trained {
    pub(crate) place: Workplace,
    pub(crate) model: String,
}

impl Trained {
    pub(crate) fn new(model: &str, bucket: &str) -> Trained {
        Trained::of(&goldens().join(model), bucket)
    }

    /// The same of a folder that is no golden.
    fn of(model: &Path, bucket: &str) -> Trained {
        let place = Workplace::new();
        for (name, seed) in [("a.png", 1), ("b.png", 2), ("c.png", 3)] {
            place.picture(name, [64, 64], seed, "a fox");
        }
        place.encoded(model.to_str().unwrap(), "clips", &["--bucket", bucket]);
        Trained { place, model: model.to_str().unwrap().to_owned() }
    }

    /// Trains for two steps with more settings.
    pub(crate) fn train(&self, name: &str, folder: &str, more: &[&str]) -> Output {
        self.train_on(name, folder, more, &[])
    }

    /// The same with flags.
    fn train_on(&self, name: &str, folder: &str, more: &[&str], flags: &[&str]) -> Output {
        let (recipe, folder) = (recipe(name), self.place.text(folder));
        let sets = [
            format!("models.student.from={}", self.model),
            format!("data.source.path={}", self.place.text("dataset")),
            "models.student.rate={peak: 0.05, warmup: 0, decay: {kind: constant}}".to_owned(),
            "loop={steps: 2, seed: 1}".to_owned(),
            "checkpoint={every: 2}".to_owned(),
            "data.held_out=1".to_owned(),
        ];
        let mut all = vec!["train", recipe.as_str(), "--run", &folder];
        let sets = sets.iter().map(String::as_str).chain(more.iter().copied());
        sets.for_each(|set| all.extend(["--set", set]));
        all.extend(flags);
        run(&all)
    }

    /// The last line of the log of a run that looked at its student.
    #[track_caller]
    fn trained(&self, name: &str, folder: &str, more: &[&str]) -> String {
        let out = self.train(name, folder, more);
        assert!(out.status.success(), "{}", words(&out));
        let log = fs::read_to_string(self.place.path(folder).join("metrics.jsonl")).unwrap();
        log.lines().rev().find(|line| line.contains("held_out")).unwrap().to_owned()
    }

    #[track_caller]
    pub(crate) fn export(&self, folder: &str, output: &str, more: &[&str]) -> String {
        let (folder, output) = (self.place.text(folder), self.place.text(output));
        let out = run(&[&["export", &folder, "--output", &output], more].concat());
        assert!(out.status.success(), "{}", words(&out));
        output
    }

    /// The final latents of a small request.
    #[track_caller]
    pub(crate) fn latents(&self, model: &str, more: &[&str]) -> Vec<f32> {
        let (output, latents) = (self.place.text("out.png"), self.place.text("latents"));
        let usual = ["generate", "--prompt", "a fox", "--steps", "4", "--frames", "1", "--height"];
        let usual = [&usual[..], &["32", "--width", "32"]].concat();
        let places = ["--overwrite", "--output", &output, "--save-latents", &latents];
        let out = run(&[&usual[..], &places, &["--model", model], more].concat());
        assert!(out.status.success(), "{}", words(&out));
        values(&read(Path::new(&latents))["latents"])
    }
}

/// A look with a picture, as image to video needs it.
fn look(more: &str) -> String {
    format!(
        "callbacks.validation={{every: 2, steps: 2, prompts: [a fox], size: [1, 32, 32]{more}}}"
    )
}

/// What a model is shown of the first frame is in the dataset, and it learns with it.
#[test]
fn image_to_video_is_trained() {
    let own = Trained::new("wan-tiny-i2v", "32x32x1");
    let sample = Dataset::open(&own.place.path("dataset")).unwrap().read(0).unwrap();
    assert_eq!(sample.tensors[BESIDE].shape()[..], [8, 1, 4, 4]);
    assert_eq!(sample.tensors[IMAGE].shape().len(), 2);
    let picture = own.place.text("clips/a.png");
    let given = look(&format!(", given: {{image: {picture}}}"));
    own.trained("wan-i2v-lora.yaml", "run", &[&given]);
    assert!(own.place.path("run/validation/00000002/000.mp4").is_file());
    let lora = own.export("run", "i2v.safetensors", &[]);
    let image = ["--image", picture.as_str()];
    let plain = own.latents(&own.model, &image);
    let tuned = own.latents(&own.model, &[&image[..], &["--lora", &lora]].concat());
    assert!(distance(&tuned, &plain) > 0.01, "the LoRA changes nothing");
    let folder = own.export("run", "i2v-folder", &["--as", "folder"]);
    assert!(distance(&own.latents(&folder, &image), &tuned) < 1e-4);
    // All of its parameters, the layers for pictures too.
    let all = ["models.student.learns={kind: all}", "models.student.rate.peak=1.0e-3"];
    own.trained("wan-i2v-lora.yaml", "full", &[&given, all[0], all[1]]);
    let full = own.export("full", "i2v-full", &[]);
    assert!(distance(&own.latents(&full, &image), &plain) > 0.003, "a full run changes nothing");
    // Without a picture there is nothing to look at; clean first frames are another model's condition.
    for (set, word) in [
        (look(""), "callbacks.validation.given.image"),
        (
            "strategy={name: text_to_video, first_frame_probability: 0.5}".to_owned(),
            "shown the first frame of every clip as channels",
        ),
    ] {
        let out = own.train("wan-i2v-lora.yaml", "refused", &[&given, &set]);
        assert_eq!(out.status.code(), Some(2), "{}", words(&out));
        assert!(words(&out).contains(word), "{}", words(&out));
    }
    // Latents alone, as a model of texts makes them, do not do.
    let text = Trained::new("wan-tiny", "32x32x1");
    let source = format!("data.source.path={}", text.place.text("dataset"));
    let out = own.train("wan-i2v-lora.yaml", "refused", &[&given, &source]);
    assert_eq!(out.status.code(), Some(2), "{}", words(&out));
    assert!(words(&out).contains("image encoder"), "{}", words(&out));
}

/// Each expert learns at its own levels in a run of its own, and both are used together.
#[test]
fn experts_are_trained_one_by_one() {
    let own = Trained::new("wan-tiny-experts", "32x32x1");
    let out =
        own.train("wan22-expert-lora.yaml", "none", &[&look(""), "models.student.expert=null"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(words(&out).contains("expert: high"), "{}", words(&out));
    let plain = own.latents(&own.model, &[]);
    let mut made = vec![plain];
    let index = fs::read_to_string(Path::new(&own.model).join("model_index.json")).unwrap();
    let index: Value = serde_json::from_str(&index).unwrap();
    let boundary = index["boundary_ratio"].as_f64().unwrap();
    for (expert, flag, other) in
        [("high", "--lora", "transformer_2"), ("low", "--lora-2", "transformer")]
    {
        let set = format!("models.student.expert={expert}");
        let line = own.trained("wan22-expert-lora.yaml", expert, &[&look(""), &set]);
        let levels = line.split("held_out/loss/").skip(1);
        let levels: Vec<f64> =
            levels.map(|rest| rest.split('"').next().unwrap().parse().unwrap()).collect();
        let is_own = |level: &f64| (*level > boundary) == (expert == "high");
        assert!(levels.len() == 5 && levels.iter().all(is_own), "{expert}: {levels:?}");
        let lora = own.export(expert, &format!("{expert}.safetensors"), &[]);
        let tuned = own.latents(&own.model, &[flag, &lora]);
        let folder = own.export(expert, &format!("{expert}-folder"), &["--as", "folder"]);
        assert!(distance(&own.latents(&folder, &[]), &tuned) < 1e-4, "{expert}");
        let file = format!("{other}/diffusion_pytorch_model.safetensors");
        let [ours, theirs] =
            [&folder, &own.model].map(|folder| fs::read(Path::new(folder).join(&file)).unwrap());
        assert!(ours == theirs, "{expert}: the other expert stays as it is");
        made.push(tuned);
    }
    for (at, other) in [(0, 1), (0, 2), (1, 2)] {
        assert!(distance(&made[at], &made[other]) > 0.003, "{at} and {other} are alike");
    }
}

/// Settings of a run of both experts.
const BOTH: [&str; 6] = [
    "models.student.expert=both",
    "levels={video: {kind: uniform, lowest: 0.75}}",
    "callbacks.ema=[{decay: 0.9}, {decay: 0.99}]",
    "data.batch=2",
    "data.partial=drop",
    "callbacks.validation={every: 2, steps: 2, prompts: [a fox], size: [1, 32, 32]}",
];

impl Trained {
    /// Trains both experts for so many steps.
    fn train_both(&self, folder: &str, steps: usize, more: &[&str], flags: &[&str]) -> Output {
        let steps = format!("loop={{steps: {steps}, seed: 1}}");
        let sets = [&BOTH[..], &[steps.as_str()], more].concat();
        self.train_on("wan22-expert-lora.yaml", folder, &sets, flags)
    }

    fn state_of(&self, folder: &str) -> PathBuf {
        self.place.path(folder).join("checkpoints/checkpoint-00000008/state.safetensors")
    }
}

/// Both experts in one run: it stops and goes on, on one rank or two, and shows what both learn.
#[test]
fn experts_are_trained_in_one_run() {
    let own = Trained::new("wan-tiny-experts", "32x32x1");
    let train = |folder: &str, steps: usize, ranks: &[&str]| {
        let out = own.train_both(folder, steps, &[], ranks);
        assert!(out.status.success(), "{folder}: {}", words(&out));
    };
    train("whole", 8, &[]);
    train("parts", 4, &[]);
    train("parts", 8, &[]);
    let [whole, parts] = ["whole", "parts"].map(|folder| fs::read(own.state_of(folder)).unwrap());
    assert!(whole == parts, "a resumed run is another");
    // What two ranks hold together is one checkpoint, with which one goes on.
    train("ranks", 4, &["--ranks", "2"]);
    train("ranks", 8, &[]);
    let names =
        |folder: &str| -> BTreeSet<String> { read(&own.state_of(folder)).into_keys().collect() };
    assert_eq!(names("whole"), names("ranks"));
    // Held-out losses are taken on both sides of the boundary.
    let log = fs::read_to_string(own.place.path("whole/metrics.jsonl")).unwrap();
    let line = log.lines().rev().find(|line| line.contains("held_out")).unwrap();
    assert_eq!(line.matches("held_out/loss/").count(), 10, "{line}");
    assert!(log.contains("loss.high") && log.contains("loss.low"), "{log}");
    // The head of the page says what learns, of what, on what.
    let page = fs::read_to_string(own.place.path("whole/report.html")).unwrap();
    let dataset = own.place.text("dataset");
    let head =
        ["a LoRA of rank 32", "both experts", &own.model, &dataset, "wan22-expert-lora.yaml"];
    head.iter().for_each(|fact| assert!(page.contains(fact), "no `{fact}` on the page"));
    assert!(page.contains("loss.high") && page.contains("loss.low"), "no curves of both");
    // A run in which one of them has no step is refused with what to do.
    let out = own.train_both("none", 1, &[], &[]);
    assert_eq!(out.status.code(), Some(2), "{}", words(&out));
    assert!(words(&out).contains("raise loop.steps, or choose one expert"), "{}", words(&out));
    let out = own.train_both("none", 8, &[], &["--dry-run"]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(said.contains("# student-high") && said.contains("# student-low"), "{said}");
}

/// The golden with two experts as a folder of image to video: each is shown the picture as channels beside the noise,
/// and there is no image encoder, as in Wan 2.2.
fn experts_of_image_to_video() -> Copy {
    let copy = Copy::of("wan-tiny-experts");
    copy.replace("model_index.json", "WanPipeline", "WanImageToVideoPipeline");
    for component in ["transformer", "transformer_2"] {
        let channels = "\"in_channels\": ";
        copy.replace(
            &format!("{component}/config.json"),
            &format!("{channels}4"),
            &format!("{channels}12"),
        );
        copy.rewrite(&format!("{component}/diffusion_pytorch_model.safetensors"), |tensors| {
            let (dtype, shape, bytes) = tensors["patch_embedding.weight"].clone();
            // A mask of four channels and a latent of four more, each read as strongly as the noise.
            let rows = bytes.chunks(bytes.len() / shape[0]).flat_map(|row| row.repeat(3)).collect();
            let wide = [&[shape[0], 3 * shape[1]][..], &shape[2..]].concat();
            tensors.insert("patch_embedding.weight".to_owned(), (dtype, wide, rows));
        });
    }
    copy
}

/// Both experts of image to video learn with the picture, are looked at with it, and what they learnt is used with it.
#[test]
fn experts_of_image_to_video_are_trained() {
    let copy = experts_of_image_to_video();
    let own = Trained::of(&copy.path("model"), "32x32x1");
    let sample = Dataset::open(&own.place.path("dataset")).unwrap().read(0).unwrap();
    assert_eq!(sample.tensors[BESIDE].shape()[..], [8, 1, 4, 4]);
    let picture = own.place.text("clips/a.png");
    let given = look(&format!(", given: {{image: {picture}}}"));
    let out = own.train_both("run", 8, &[&given], &[]);
    assert!(out.status.success(), "{}", words(&out));
    own.export("run", "both.safetensors", &[]);
    let [high, low] =
        ["both-high.safetensors", "both-low.safetensors"].map(|name| own.place.text(name));
    let image = ["--image", picture.as_str()];
    let latents = |more: &[&str]| own.latents(&own.model, &[&image[..], more].concat());
    let (plain, tuned) = (latents(&[]), latents(&["--lora", &high, "--lora-2", &low]));
    assert!(distance(&tuned, &plain) > 0.003, "the LoRAs change nothing");
    let folder = own.export("run", "folder", &["--as", "folder"]);
    assert!(distance(&own.latents(&folder, &image), &tuned) < 1e-4, "the folder is another model");
    let other = own.place.text("clips/b.png");
    let shown = own.latents(&own.model, &["--image", &other]);
    assert!(distance(&shown, &plain) > 0.003, "the picture is not seen");
    let out = own.train_both("refused", 8, &[], &[]);
    assert!(words(&out).contains("callbacks.validation.given.image"), "{}", words(&out));
}

/// What a run of both leaves is used together: two LoRAs, one folder, or one of them alone.
#[test]
fn both_experts_are_exported_together_and_alone() {
    let own = Trained::new("wan-tiny-experts", "32x32x1");
    let out = own.train_both("run", 8, &[], &[]);
    assert!(out.status.success(), "{}", words(&out));
    let files = [own.place.text("both-high.safetensors"), own.place.text("both-low.safetensors")];
    own.export("run", "both.safetensors", &[]);
    let plain = own.latents(&own.model, &[]);
    let pair = ["--lora", files[0].as_str(), "--lora-2", files[1].as_str()];
    let [high, low, tuned] =
        [&pair[..2], &pair[2..], &pair[..]].map(|loras| own.latents(&own.model, loras));
    // Whoever takes one for the other is told, and does not go on learning from it.
    let output = own.place.text("crossed.png");
    let crossed = ["--lora-2", files[0].as_str(), "--output", &output, "--model", &own.model];
    let small =
        ["generate", "--prompt", "a fox", "--steps", "1", "--frames", "1", "--height", "32"];
    let out = run(&[&small[..], &["--width", "32"], &crossed].concat());
    assert!(
        words(&out).contains("learnt as the high expert, and is given to the other one"),
        "{}",
        words(&out)
    );
    let from = format!("models.student.learns.from={}", files[0]);
    let out = own.train_both("crossed", 8, &[&from, "models.student.expert=low"], &[]);
    assert!(
        words(&out).contains("learnt as the high expert, and this is the low one"),
        "{}",
        words(&out)
    );
    for (name, other) in [("no LoRA", &plain), ("the high one", &high), ("the low one", &low)] {
        assert!(distance(&tuned, other) > 0.003, "both are as {name}");
    }
    let folder = own.export("run", "both", &["--as", "folder"]);
    assert!(distance(&own.latents(&folder, &[]), &tuned) < 1e-4, "the folder is another model");
    let one = own.export("run", "low.safetensors", &["--expert", "low"]);
    assert!(fs::read(one).unwrap() == fs::read(&files[1]).unwrap());
    own.export("run", "average.safetensors", &["--ema", "0.99", "--expert", "high"]);
    // A GGUF file of each, with what that expert learnt.
    own.export("run", "both.gguf", &["--as", "gguf", "--dtype", "f32"]);
    for (name, component) in [("both-high.gguf", "transformer"), ("both-low.gguf", "transformer_2")]
    {
        let file = format!("{component}/diffusion_pytorch_model.safetensors");
        let whole = read(&Path::new(&folder).join(file));
        let learnt = values(&whole["blocks.0.attn1.to_q.weight"]);
        let written = gguf::floats(&own.place.path(name), "blocks.0.self_attn.q.weight");
        assert!(written == learnt, "{name} is not {component}");
    }
    // And both files together, or one beside the expert of the folder, are what was trained.
    own.export("run", "single.safetensors", &["--as", "file"]);
    for kind in ["both-high.gguf both-low.gguf", "single-high.safetensors single-low.safetensors"] {
        let (first, second) = kind.split_once(' ').unwrap();
        let (first, second) = (own.place.text(first), own.place.text(second));
        let files = ["--transformer", first.as_str(), "--transformer-2", second.as_str()];
        assert!(distance(&own.latents(&own.model, &files), &tuned) < 1e-4, "{kind}");
        assert!(distance(&own.latents(&own.model, &files[..2]), &high) < 1e-4, "{kind}: high");
        assert!(distance(&own.latents(&own.model, &files[2..]), &low) < 1e-4, "{kind}: low");
    }
    // All parameters of both instead of LoRAs.
    let all = ["models.student.learns={kind: all}", "models.student.rate.peak=1.0e-3"];
    let out = own.train_both("full", 8, &all, &[]);
    assert!(out.status.success(), "{}", words(&out));
    let full = own.export("full", "full-folder", &[]);
    for component in ["transformer", "transformer_2"] {
        let file = format!("{component}/diffusion_pytorch_model.safetensors");
        let [ours, theirs] =
            [&full, &own.model].map(|folder| fs::read(Path::new(folder).join(&file)).unwrap());
        assert!(ours != theirs, "{component} learnt nothing");
    }
}

/// A model of texts learns to go on from first frames, is looked at with one, and takes one once it has learnt it.
#[test]
fn first_frames_are_trained_into_a_model_of_texts() {
    let place = Workplace::new();
    for (name, value) in [("a.gif", "a fox"), ("b.gif", "a cat"), ("c.gif", "a fox")] {
        place.video_at(16, name, [32, 32], 9, value);
    }
    place.encoded("wan-tiny", "clips", &["--bucket", "32x32x9"]);
    place.picture("picture.png", [32, 32], 1, "a fox");
    let picture = place.text("clips/picture.png");
    let model = goldens().join("wan-tiny").to_str().unwrap().to_owned();
    let own = Trained { place, model };
    let given = format!(
        "callbacks.validation={{every: 2, steps: 2, prompts: [a fox], size: [9, 32, 32], given: {{image: \
         {picture}}}}}"
    );
    let image = ["--frames", "9", "--image", picture.as_str()];
    let ask = |model: &str, more: &[&str]| {
        let output = own.place.text("clip.gif");
        let usual = ["generate", "--prompt", "a fox", "--steps", "2", "--height", "32", "--width"];
        let usual =
            [&usual[..], &["32", "--overwrite", "--output", &output, "--model", model]].concat();
        run(&[&usual[..], &image, more].concat())
    };
    let out = ask(&own.model, &[]);
    assert_eq!(out.status.code(), Some(2), "it was not trained with one: {}", words(&out));
    // Nor is it looked at with one while it does not learn that.
    let without = "strategy={name: text_to_video, first_frame_probability: 0}";
    let out = own.train("wan-lora.yaml", "refused", &[&given, without]);
    assert_eq!(out.status.code(), Some(2), "{}", words(&out));
    assert!(words(&out).contains("callbacks.validation.given.image"), "{}", words(&out));
    own.trained("wan-lora.yaml", "run", &[&given, without.replace(": 0}", ": 0.5}").as_str()]);
    let lora = own.export("run", "first.safetensors", &[]);
    let out = ask(&own.model, &["--lora", &lora]);
    assert!(out.status.success(), "{}", words(&out));
}

/// A first frame that is given clean, at a level per token.
#[test]
fn a_model_of_texts_and_pictures_is_trained() {
    let place = Workplace::new();
    for (name, value) in [("a.gif", "a fox"), ("b.gif", "a cat"), ("c.gif", "a fox")] {
        place.video_at(16, name, [64, 64], 5, value);
    }
    place.encoded("wan-tiny-ti2v", "clips", &["--bucket", "64x64x5"]);
    place.picture("picture.png", [64, 64], 1, "a fox");
    let picture = place.text("clips/picture.png");
    let model = goldens().join("wan-tiny-ti2v").to_str().unwrap().to_owned();
    let own = Trained { place, model };
    let given = format!(
        "callbacks.validation={{every: 2, steps: 2, prompts: [a fox], size: [5, 32, 32], given: {{image: \
         {picture}}}}}"
    );
    let strategy = "strategy={name: text_to_video, first_frame_probability: 0.5}";
    own.trained("wan-full.yaml", "run", &[&given, strategy, "callbacks.ema=null"]);
    // Of clips a first frame is really given: what is left to learn is another loss.
    let first = |folder: &str, share: &str| {
        let strategy =
            format!("strategy={{name: text_to_video, first_frame_probability: {share}}}");
        let out =
            own.train("wan-full.yaml", folder, &["callbacks={}", "data.held_out=0", &strategy]);
        assert!(out.status.success(), "{}", words(&out));
        let log = fs::read_to_string(own.place.path(folder).join("metrics.jsonl")).unwrap();
        let line: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
        line["losses"]["loss"].as_f64().unwrap()
    };
    let [never, always] = [first("never", "0"), first("always", "1")];
    assert!((never - always).abs() > 1e-3 * never, "{never} {always}");
    let folder = own.export("run", "folder", &[]);
    let image = ["--image", picture.as_str(), "--frames", "5"];
    let out =
        run(
            &[
                &[
                    "generate", "--prompt", "a fox", "--steps", "2", "--height", "32", "--width",
                    "32",
                ][..],
                &["--model", &folder, "--output", &own.place.text("clip.gif")],
                &image,
            ]
            .concat(),
        );
    assert!(out.status.success(), "{}", words(&out));
}

/// A model of image to video is examined with the first picture of a clip; one that never saw the world knows nothing.
#[test]
fn an_exam_gives_the_first_picture() {
    let place = Workplace::new();
    let model = goldens().join("wan-tiny-i2v").to_str().unwrap().to_owned();
    let marks = place.text("marks.json");
    let exam = ["exam", "--model", &model, "--frames", "9", "--steps", "1", "--guidance", "1"];
    let asked = ["--task", "picture", "--colour", "red", "--output", &marks];
    let out = run(&[&exam[..], &asked].concat());
    assert!(out.status.success(), "{}", words(&out));
    let marks: Value = serde_json::from_str(&fs::read_to_string(&marks).unwrap()).unwrap();
    assert_eq!(marks["score"]["of"], 24, "{marks}");
    assert_eq!(marks["score"]["right"], 0, "{marks}");
    assert!(marks["kept_decibels"].as_f64().is_some_and(|kept| kept < 20.0), "{marks}");
    let out = run(&[&exam[..], &["--task", "text"]].concat());
    assert_eq!(out.status.code(), Some(2), "{}", words(&out));
    assert!(words(&out).contains("knows nothing of the shapes world"), "{}", words(&out));
}
