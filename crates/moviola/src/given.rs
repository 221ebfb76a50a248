//! What is given beside prompts, as arguments.

use std::path::PathBuf;

use engine::{Audio, Given, Media};
use serde_json::{Value, json};

/// Where `--help` lists these.
const GIVEN: &str = "Given beside the prompt";

/// What is given beside a prompt; each model says which of these it takes.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct GivenArguments {
    /// The picture a clip begins with
    #[arg(long, help_heading = GIVEN, value_name = "FILE")]
    image: Option<PathBuf>,
    /// The picture a clip ends with
    #[arg(long, help_heading = GIVEN, value_name = "FILE")]
    last_image: Option<PathBuf>,
    /// A picture for a frame, counted from 0; repeat it for several
    #[arg(long, help_heading = GIVEN, value_name = "FRAME:FILE", value_parser = keyframe)]
    keyframe: Vec<(usize, PathBuf)>,
    /// The first frames of a clip: a video, or a folder of pictures
    #[arg(long, help_heading = GIVEN, value_name = "FILE|FOLDER")]
    video_prefix: Option<PathBuf>,
    /// The whole clip: its sound is made, or what --mask leaves free
    #[arg(long, help_heading = GIVEN, value_name = "FILE|FOLDER")]
    video: Option<PathBuf>,
    /// What is made anew of what is given: white is, black stays
    #[arg(long, help_heading = GIVEN, value_name = "FILE|FOLDER")]
    mask: Option<PathBuf>,
    /// A clip to look at, and how many times smaller it is shown [default: as in training]; repeat it
    /// for several
    #[arg(long, help_heading = GIVEN, value_name = "FILE[:SCALE]", value_parser = reference)]
    reference: Vec<(PathBuf, Option<usize>)>,
    /// The sound: a WAV file
    #[arg(long, help_heading = GIVEN, value_name = "FILE")]
    audio: Option<PathBuf>,
}

fn keyframe(text: &str) -> Result<(usize, PathBuf), String> {
    let parts = text.split_once(':').and_then(|(frame, file)| Some((frame.parse().ok()?, file)));
    match parts {
        Some((frame, file)) if !file.is_empty() => Ok((frame, PathBuf::from(file))),
        _ => Err("write FRAME:FILE, as in 40:middle.png".to_owned()),
    }
}

fn reference(text: &str) -> Result<(PathBuf, Option<usize>), String> {
    match text.rsplit_once(':') {
        Some((file, scale)) if !file.is_empty() && scale.chars().all(|it| it.is_ascii_digit()) => {
            match scale.parse() {
                Ok(scale) if scale > 0 => Ok((PathBuf::from(file), Some(scale))),
                _ => Err("a scale is 1 or more, as in depth.mp4:2".to_owned()),
            }
        }
        _ => Ok((PathBuf::from(text), None)),
    }
}

impl GivenArguments {
    /// The same for a request.
    pub(crate) fn given(&self) -> Given {
        let media = |path: &PathBuf| Media::File(path.clone());
        Given {
            image: self.image.as_ref().map(media),
            last_image: self.last_image.as_ref().map(media),
            keyframes: self.keyframe.iter().map(|(frame, path)| (*frame, media(path))).collect(),
            video_prefix: self.video_prefix.as_ref().map(media),
            video: self.video.as_ref().map(media),
            mask: self.mask.as_ref().map(media),
            references: self.reference.iter().map(|(path, scale)| (media(path), *scale)).collect(),
            audio: self.audio.clone().map(Audio::File),
        }
    }

    /// All files.
    pub(crate) fn files(&self) -> impl Iterator<Item = PathBuf> {
        let single = [&self.image, &self.last_image, &self.video_prefix, &self.video, &self.mask];
        let single = single.into_iter().chain([&self.audio]).flatten().cloned();
        let keyframes = self.keyframe.iter().map(|(_, path)| path.clone());
        single.chain(keyframes).chain(self.reference.iter().map(|(path, _)| path.clone()))
    }

    /// The same for a record, without what was not given.
    pub(crate) fn record(&self) -> Value {
        // A path may hold what JSON cannot.
        let text = |path: &PathBuf| Value::from(path.display().to_string());
        let keyframes =
            self.keyframe.iter().map(|(at, path)| json!({ "frame": at, "file": text(path) }));
        let references = self
            .reference
            .iter()
            .map(|(path, scale)| json!({ "file": text(path), "scale": scale }));
        let all = [
            ("image", self.image.as_ref().map(text)),
            ("last_image", self.last_image.as_ref().map(text)),
            ("keyframes", listed(keyframes.collect())),
            ("video_prefix", self.video_prefix.as_ref().map(text)),
            ("video", self.video.as_ref().map(text)),
            ("mask", self.mask.as_ref().map(text)),
            ("references", listed(references.collect())),
            ("audio", self.audio.as_ref().map(text)),
        ];
        all.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
    }
}

fn listed(all: Vec<Value>) -> Option<Value> {
    (!all.is_empty()).then_some(Value::Array(all))
}
