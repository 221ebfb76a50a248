//! What each kind of folder can do, tried through the command: the columns of the table in `docs/families.md`
//! that are no property of a description.

use std::fs;
use std::path::PathBuf;

use data::media::Waveform;

use crate::folder::{goldens, run};
use crate::preprocess::{Workplace, has_ffmpeg};
use crate::training::{recipe, words};

/// What a folder was seen to do.
struct Kind {
    name: String,
    model: String,
    place: Workplace,
}

impl Kind {
    fn new(name: &str, model: PathBuf) -> Kind {
        let place = Workplace::new();
        for (file, seed) in [("a.png", 1), ("b.png", 2)] {
            place.picture(file, [64, 64], seed, "a red circle moves left");
        }
        Kind { name: name.to_owned(), model: model.to_str().unwrap().to_owned(), place }
    }

    /// Whether a command does what it is asked; what it refuses is told.
    fn does(&self, arguments: &[&str]) -> Result<(), String> {
        let out = run(arguments);
        match out.status.code() {
            Some(0) => Ok(()),
            Some(2) => {
                let said = words(&out);
                let last = said.lines().last().unwrap_or_default();
                Err(last.strip_prefix("error: ").unwrap_or(last).to_owned())
            }
            _ => panic!("{}: {arguments:?}: {}", self.name, words(&out)),
        }
    }

    /// Makes something as long as it can be, of a few frames or one, shown a picture if it has to be.
    fn generates(&self, output: &str, more: &[&str]) -> Result<&'static str, String> {
        let (picture, output) = (self.place.text("clips/a.png"), self.place.text(output));
        let usual = ["generate", "--model", &self.model, "--prompt", "a red circle moves left"];
        let more = [&["--steps", "2", "--height", "64", "--width", "64"], more].concat();
        let ends = ["--output", &output, "--overwrite", "--frames"];
        let mut refusal = String::new();
        for (frames, made) in [("5", "clips"), ("8", "clips"), ("1", "pictures")] {
            for given in [&[][..], &["--image", &picture]] {
                match self.does(&[&usual[..], &more, &ends, &[frames], given].concat()) {
                    Ok(()) => return Ok(made),
                    Err(reason) => refusal = reason,
                }
            }
        }
        Err(refusal)
    }

    /// Whether the last thing that was made has a sound beside it.
    fn sounds(&self) -> bool {
        self.place.path("out.wav").exists()
    }

    fn preprocesses(&self) -> Result<(), String> {
        let (clips, dataset) = (self.place.text("clips"), self.place.text("dataset"));
        let usual = ["preprocess", "--model", &self.model, "--data", &clips];
        self.does(&[&usual[..], &["--output", &dataset, "--bucket", "64x64x1"]].concat())
    }

    fn trains(&self, folder: &str, more: &[&str]) -> Result<(), String> {
        let (recipe, folder) = (recipe("wan-full.yaml"), self.place.text(folder));
        let dataset = self.place.text("dataset");
        let source = match self.place.path("dataset").exists() {
            true => format!("data.source={{kind: store, path: {dataset}}}"),
            // What nobody preprocesses is rendered.
            false => "data.source={kind: shapes, clips: 40}".to_owned(),
        };
        let sets = [
            format!("models.student.from={}", self.model),
            source,
            "models.student.rate={peak: 0.01, warmup: 0, decay: {kind: constant}}".to_owned(),
            "strategy={name: text_to_video}".to_owned(),
            "levels={video: {kind: uniform}}".to_owned(),
            "loop={steps: 1, seed: 1}".to_owned(),
            "checkpoint={every: 1}".to_owned(),
            "callbacks={}".to_owned(),
        ];
        let mut all = vec!["train", recipe.as_str(), "--run", &folder];
        let sets = sets.iter().map(String::as_str).chain(more.iter().copied());
        sets.for_each(|set| all.extend(["--set", set]));
        self.does(&all)
    }

    /// Encodes a clip with a sound, and tells whether it is kept.
    fn hears(&self) -> bool {
        self.place.video_at(8, "c.mp4", [64, 64], 5, "a blue square moves up");
        let samples = (0..5000).map(|at| (f64::from(at) / 3.0).sin() as f32 / 2.0);
        let sound = Waveform::mono(8000, samples.collect());
        sound.write(&self.place.path("clips/c.wav")).unwrap();
        let (clips, dataset) = (self.place.text("clips"), self.place.text("sounding"));
        let usual = ["preprocess", "--model", &self.model, "--data", &clips];
        self.does(&[&usual[..], &["--output", &dataset, "--bucket", "64x64x5"]].concat()).unwrap();
        let dataset = data::store::Dataset::open(&self.place.path("sounding")).unwrap();
        dataset.holding("audio_latents") == dataset.len()
    }

    /// Trains on that clip and its sound.
    fn trains_sounds(&self, folder: &str, more: &[&str]) -> bool {
        let source = format!("data.source={{kind: store, path: {}}}", self.place.text("sounding"));
        let both = "strategy={name: text_to_video, audio: audio_latents}";
        let done = self.trains(folder, &[&[source.as_str(), both], more].concat());
        done.inspect_err(|reason| eprintln!("{}: {reason}", self.name)).is_ok()
    }

    /// The four columns: `generate`, `preprocess`, `train` and LoRA.
    fn columns(&self) -> [String; 4] {
        let made = self.generates("out.gif", &[]);
        let generate = match (&made, self.sounds()) {
            (Ok(made), true) => format!("{made} with sound"),
            (Ok(made), false) => (*made).to_owned(),
            (Err(reason), _) => format!("no: {reason}"),
        };
        let stored = self.preprocesses();
        let hears = self.sounds().then(|| self.hears());
        let preprocess = match (&stored, hears) {
            (Ok(()), Some(true)) => "with sound".to_owned(),
            (Ok(()), Some(false)) => "without sound".to_owned(),
            (Ok(()), None) => "yes".to_owned(),
            (Err(reason), _) => format!("no: {reason}"),
        };
        let expert = "models.student.expert=high";
        let full: Vec<&str> = if self.has_experts() { vec![expert] } else { Vec::new() };
        let told = |done: Result<(), String>, folder: &str, more: &[&str]| match (done, hears) {
            (Ok(()), None) => "yes".to_owned(),
            (Ok(()), Some(true)) if self.trains_sounds(folder, more) => {
                "yes, with sound".to_owned()
            }
            (Ok(()), Some(_)) => "the video alone".to_owned(),
            (Err(reason), _) => format!("no: {reason}"),
        };
        let train = told(self.trains("full", &full), "sounding-full", &full);
        let learns = "models.student.learns={kind: lora, rank: 2, targets: [to_q]}";
        let lora = self.trains("lora", &[&full[..], &[learns]].concat()).and_then(|()| {
            let (lora, file) = (self.place.text("lora"), self.place.text("lora.safetensors"));
            self.does(&["export", &lora, "--as", "lora", "--output", &file])?;
            self.generates("with-lora.gif", &["--lora", &file]).map(drop)
        });
        let lora = told(lora, "sounding-lora", &[&full[..], &[learns]].concat());
        [generate, preprocess, train, lora]
    }

    fn has_experts(&self) -> bool {
        PathBuf::from(&self.model).join("transformer_2").is_dir()
    }
}

/// The model of the quickstart, untrained, as a folder.
fn new_model(place: &Workplace) -> PathBuf {
    let (recipe, folder) = (recipe("quickstart.yaml"), place.text("run"));
    let constant = "models.student.rate={peak: 0.001, warmup: 0, decay: {kind: constant}}";
    let sets = ["loop.steps=1", "callbacks={}", "data.source.clips=40", "data.batch=1", constant];
    let mut train = vec!["train", recipe.as_str(), "--run", &folder];
    sets.iter().for_each(|set| train.extend(["--set", set]));
    let out = run(&train);
    assert!(out.status.success(), "{}", words(&out));
    let model = place.path("model");
    let out = run(&["export", &folder, "--output", model.to_str().unwrap()]);
    assert!(out.status.success(), "{}", words(&out));
    model
}

/// Each row of the table says what the command did.
#[test]
fn the_table_of_families_is_what_the_command_does() {
    let page = fs::read_to_string(goldens().join("../docs/families.md")).unwrap();
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains("| `") && !line.contains("`train`"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let scratch = Workplace::new();
    let mut folders: Vec<(String, PathBuf)> = fs::read_dir(goldens())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("model_index.json").is_file())
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), path))
        .collect();
    folders.sort();
    folders.push(("new".to_owned(), new_model(&scratch)));
    assert_eq!(rows.len(), folders.len());
    let mut wrong = Vec::new();
    for (name, folder) in folders {
        // Clips with a sound are read by ffmpeg.
        if name.starts_with("ltx2") && !has_ffmpeg() {
            continue;
        }
        let seen = Kind::new(&name, folder).columns();
        let quoted = format!("`{name}`");
        let told = rows.iter().find(|row| row[1] == quoted).map(|row| &row[3..7]);
        if told != Some(&seen.each_ref().map(String::as_str)[..]) {
            wrong.push(format!("{name}: {seen:?}, but the page says {told:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
