//! Training of models that are shown pictures and of models with two experts, from files to clips.

use std::fs;
use std::path::Path;

use data::store::{BESIDE, Dataset, IMAGE};
use serde_json::Value;

use crate::folder::{distance, goldens, read, run, values};
use crate::preprocess::Workplace;
use crate::training::{recipe, words};

/// Pictures, the dataset that a model makes of them, and a place for runs.
pub(crate) struct Trained {
    pub(crate) place: Workplace,
    pub(crate) model: String,
}

impl Trained {
    pub(crate) fn new(model: &str, bucket: &str) -> Trained {
        let place = Workplace::new();
        for (name, seed) in [("a.png", 1), ("b.png", 2), ("c.png", 3)] {
            place.picture(name, [64, 64], seed, "a fox");
        }
        place.encoded(model, "clips", &["--bucket", bucket]);
        let model = goldens().join(model).to_str().unwrap().to_owned();
        Trained { place, model }
    }

    /// Trains for two steps with more settings.
    pub(crate) fn train(&self, name: &str, folder: &str, more: &[&str]) -> std::process::Output {
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

/// A first frame that is given clean, at a level per token.
#[test]
fn a_model_of_texts_and_pictures_is_trained() {
    let own = Trained::new("wan-tiny-ti2v", "64x64x1");
    let picture = own.place.text("clips/a.png");
    let given = format!(
        "callbacks.validation={{every: 2, steps: 2, prompts: [a fox], size: [5, 32, 32], given: {{image: \
         {picture}}}}}"
    );
    let strategy = "strategy={name: text_to_video, first_frame_probability: 0.5}";
    own.trained("wan-full.yaml", "run", &[&given, strategy, "callbacks.ema=null"]);
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
