//! What is given beside prompts, as arguments.

use std::path::PathBuf;

use engine::Given;
use families::Condition;

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
        let mut given = Given::default();
        for GivenFile { role, path, frame, scale } in self.listed() {
            given.give(role, path, frame, scale);
        }
        given
    }

    /// All files.
    pub(crate) fn files(&self) -> impl Iterator<Item = PathBuf> {
        self.listed().into_iter().map(|given| given.path)
    }

    /// Everything that is given.
    pub(crate) fn listed(&self) -> Vec<GivenFile> {
        let single = [
            (Condition::Image, &self.image),
            (Condition::LastImage, &self.last_image),
            (Condition::VideoPrefix, &self.video_prefix),
            (Condition::Video, &self.video),
            (Condition::Mask, &self.mask),
            (Condition::Audio, &self.audio),
        ];
        let single = single.into_iter().filter_map(|(role, path)| {
            Some(GivenFile { role, path: path.clone()?, frame: None, scale: None })
        });
        let keyframes = self.keyframe.iter().map(|(frame, path)| GivenFile {
            role: Condition::Keyframe,
            path: path.clone(),
            frame: Some(*frame),
            scale: None,
        });
        let references = self.reference.iter().map(|(path, scale)| GivenFile {
            role: Condition::Reference,
            path: path.clone(),
            frame: None,
            scale: *scale,
        });
        single.chain(keyframes).chain(references).collect()
    }

    /// Gives one more, as [`GivenArguments::listed`] tells it.
    pub(crate) fn give(&mut self, given: GivenFile) {
        let GivenFile { role, path, frame, scale } = given;
        match role {
            Condition::Image => self.image = Some(path),
            Condition::LastImage => self.last_image = Some(path),
            Condition::VideoPrefix => self.video_prefix = Some(path),
            Condition::Video => self.video = Some(path),
            Condition::Mask => self.mask = Some(path),
            Condition::Audio => self.audio = Some(path),
            Condition::Keyframe => self.keyframe.push((frame.unwrap_or(0), path)),
            Condition::Reference => self.reference.push((path, scale)),
        }
    }
}

/// A file that is given beside a prompt.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GivenFile {
    /// As what.
    pub(crate) role: Condition,
    /// Where it is.
    pub(crate) path: PathBuf,
    /// The frame that a picture stands for.
    pub(crate) frame: Option<usize>,
    /// How many times smaller it is shown.
    pub(crate) scale: Option<usize>,
}
