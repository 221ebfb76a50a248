//! What is given beside prompts, as arguments.

use std::path::PathBuf;

use engine::{Audio, Given, Media};

/// Where `--help` lists these.
const GIVEN: &str = "Given beside the prompt";

/// What is given beside a prompt; each model says which of these it takes.
#[derive(clap::Args, Clone, Debug, PartialEq)]
pub(crate) struct GivenArguments {
    /// The picture a clip begins with
    #[arg(long, help_heading = GIVEN, value_name = "FILE")]
    pub(crate) image: Option<PathBuf>,
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
        self.listed().into_iter().map(|given| given.path)
    }

    /// Everything that is given.
    pub(crate) fn listed(&self) -> Vec<GivenFile<'static>> {
        let single = [
            ("image", &self.image),
            ("last_image", &self.last_image),
            ("video_prefix", &self.video_prefix),
            ("video", &self.video),
            ("mask", &self.mask),
            ("audio", &self.audio),
        ];
        let single = single.into_iter().filter_map(|(role, path)| {
            Some(GivenFile { role, path: path.clone()?, frame: None, scale: None })
        });
        let keyframes = self.keyframe.iter().map(|(frame, path)| GivenFile {
            role: "keyframe",
            path: path.clone(),
            frame: Some(*frame),
            scale: None,
        });
        let references = self.reference.iter().map(|(path, scale)| GivenFile {
            role: "reference",
            path: path.clone(),
            frame: None,
            scale: *scale,
        });
        single.chain(keyframes).chain(references).collect()
    }

    /// Gives one more, as [`GivenArguments::listed`] tells it. What has no such role is passed over.
    pub(crate) fn give(&mut self, given: GivenFile<'_>) {
        let GivenFile { role, path, frame, scale } = given;
        match role {
            "image" => self.image = Some(path),
            "last_image" => self.last_image = Some(path),
            "video_prefix" => self.video_prefix = Some(path),
            "video" => self.video = Some(path),
            "mask" => self.mask = Some(path),
            "audio" => self.audio = Some(path),
            "keyframe" => self.keyframe.push((frame.unwrap_or(0), path)),
            "reference" => self.reference.push((path, scale)),
            _ => {}
        }
    }
}

/// A file that is given beside a prompt.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GivenFile<'a> {
    /// As what.
    pub(crate) role: &'a str,
    /// Where it is.
    pub(crate) path: PathBuf,
    /// The frame that a picture stands for.
    pub(crate) frame: Option<usize>,
    /// How many times smaller it is shown.
    pub(crate) scale: Option<usize>,
}
