//! Where a run writes, and what may not be overwritten there.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use data::aside::{self, AsideFolder, Existing};
use data::media::{self, Format};
use engine::{Error, Result};

use crate::failure::{Failure, Outcome};
use crate::inputs::{InputFiles, place};

/// What a sample is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A clip or a picture.
    Clip(Format),
    /// The sound alone, as a WAV file.
    Sound,
}

/// The name of the sound alone.
const WAV: &str = "wav";
/// The name of a folder of frames.
const FRAMES: &str = "frames";

impl Kind {
    /// What a path asks for, or what was asked for by name.
    ///
    /// # Errors
    /// The path has an extension of no format, or is the standard output without a format.
    pub(crate) fn of(path: &Path, named: Option<Kind>) -> Outcome<Kind> {
        let extension = path.extension().map(OsStr::to_ascii_lowercase);
        match named {
            Some(Kind::Clip(Format::Folder)) if aside::is_stdout(path) => Err(Failure::refused(
                "--format frames is a folder, which cannot go to the standard output; choose another",
            )),
            Some(kind) => Ok(kind),
            None if aside::is_stdout(path) => Err(Failure::refused(
                "--output - is the standard output; say what to write with --format, like --format gif",
            )),
            None if extension.is_none() && nameless(path) => Err(Failure::Refused(format!(
                "--output: {} is an extension without a name, like that of clip{}",
                path.display(),
                path.file_name().unwrap_or_default().display()
            ))),
            None if extension.is_some_and(|own| own == WAV) => Ok(Kind::Sound),
            None => Ok(Kind::Clip(Format::of(path)?)),
        }
    }

    /// Whether a sample of this kind has its sound in it.
    pub(crate) fn holds_sound(self) -> bool {
        match self {
            Kind::Clip(format) => format.holds_sound(),
            Kind::Sound => true,
        }
    }

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        let is_own = |name: &&str| Kind::named(name).is_ok_and(|own| own == self);
        Kind::names().find(is_own).expect("every kind has a name")
    }

    fn names() -> impl Iterator<Item = &'static str> {
        Format::names().chain([WAV, FRAMES])
    }

    /// A kind by its name: an extension, or `frames`.
    ///
    /// # Errors
    /// There is none of that name.
    pub(crate) fn named(name: &str) -> Result<Kind, String> {
        let clip = Format::named(name).map(Kind::Clip);
        let other = match name {
            WAV => Some(Kind::Sound),
            FRAMES => Some(Kind::Clip(Format::Folder)),
            _ => None,
        };
        clip.or(other).ok_or_else(|| {
            let names: Vec<&str> = Kind::names().collect();
            format!("there is no such format; there are {}", names.join(", "))
        })
    }
}

/// Whether a file is called as an extension is, which the system takes for the name of a folder.
fn nameless(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str).and_then(|name| name.strip_prefix('.'));
    name.is_some_and(|name| name == WAV || Format::named(name).is_some())
}

/// Refuses to replace a file, unless that is asked for; `flag` says where else to write.
pub(crate) fn spare_existing(path: &Path, existing: Existing, flag: &str) -> Outcome {
    let is_there = fs::symlink_metadata(path).is_ok_and(|_| !aside::is_special(path));
    match is_there && !path.is_dir() && existing == Existing::Refuse {
        true => Err(Failure::Refused(format!(
            "{} exists; add --overwrite to replace it, or give {flag} another name",
            path.display()
        ))),
        false => Ok(()),
    }
}

/// The paths of a run's samples.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    pub(crate) path: PathBuf,
    pub(crate) kind: Kind,
    /// How many there are in all.
    pub(crate) samples: usize,
    /// Whether there is a sound with each clip.
    pub(crate) sounds: bool,
    /// Where the latents go.
    pub(crate) latents: Option<PathBuf>,
    /// What happens to files that are there.
    pub(crate) existing: Existing,
}

impl Places {
    /// The path of a sample: the path as given, or numbered where there are several.
    pub(crate) fn sample(&self, sample: usize) -> PathBuf {
        if self.samples == 1 {
            return self.path.clone();
        }
        let mut name = self.path.file_stem().unwrap_or_default().to_owned();
        name.push(format!("-{sample:03}"));
        if let Some(extension) = self.path.extension() {
            name.push(".");
            name.push(extension);
        }
        self.path.with_file_name(name)
    }

    /// The record of a sample, named after the whole name of its output; what goes to a device, a pipe or
    /// the standard output has none.
    pub(crate) fn record(&self, sample: usize) -> Option<PathBuf> {
        let path = self.sample(sample);
        let mut name = OsString::from(path.file_name()?);
        name.push(".json");
        (!aside::is_special(&path)).then(|| path.with_file_name(name))
    }

    /// The sound beside a sample, if there is one and the sample cannot hold it.
    pub(crate) fn sound(&self, sample: usize) -> Option<PathBuf> {
        let path = self.sample(sample);
        (self.sounds && !self.kind.holds_sound()).then(|| path.with_extension(WAV))
    }

    /// Everything that is written.
    pub(crate) fn all(&self) -> Vec<PathBuf> {
        let of = |sample| {
            let beside = [self.record(sample), self.sound(sample)];
            std::iter::once(self.sample(sample)).chain(beside.into_iter().flatten())
        };
        (0..self.samples).flat_map(of).chain(self.latents.clone()).collect()
    }

    /// Checks that everything can be written without overwriting an input, a part of the model, each
    /// other or, unless that was asked for, anything at all.
    ///
    /// # Errors
    /// Something stands in the way, and what to do about it.
    pub(crate) fn check(&self, inputs: &InputFiles) -> Outcome {
        let all = self.all();
        self.check_stdout()?;
        // What is worst comes first: an input or a part of the model is never replaced.
        for path in &all {
            inputs.spare(path)?;
        }
        if self.latents.as_deref().is_some_and(aside::is_stdout) {
            let reason = "names are told there, or a clip is; give the latents a name";
            return Err(Failure::Refused(format!("--save-latents -: {reason}")));
        }
        if let Some(latents) = &self.latents {
            let clips = &all[..all.len() - 1];
            if clips.iter().any(|path| same_place(path, latents)) {
                return Err(Failure::Refused(format!(
                    "--save-latents {} would be overwritten by a sample; give another name",
                    latents.display()
                )));
            }
        }
        for (at, path) in all.iter().enumerate() {
            let is_folder = self.kind == Kind::Clip(Format::Folder)
                && (0..self.samples).any(|sample| self.sample(sample) == *path);
            let flag = if Some(path) == self.latents.as_ref() && at + 1 == all.len() {
                "--save-latents"
            } else {
                "--output"
            };
            self.check_one(path, is_folder, flag)?;
        }
        match self.kind {
            Kind::Clip(Format::Webm) => Ok(media::check_webm(&self.path)?),
            _ => Ok(()),
        }
    }

    fn check_one(&self, path: &Path, is_folder: bool, flag: &str) -> Outcome {
        if is_folder {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            return match parent.is_none_or(Path::is_dir) {
                true => Ok(AsideFolder::create(path, Existing::Replace)
                    .map(drop)
                    .map_err(refused(path))?),
                false => Ok(aside::check_writable_below(path).map_err(refused(path))?),
            };
        }
        spare_existing(path, self.existing, flag)?;
        Ok(aside::check_writable_below(path).map_err(refused(path))?)
    }

    /// One file goes to the standard output, and not to a screen.
    fn check_stdout(&self) -> Outcome {
        if !aside::is_stdout(&self.path) {
            return Ok(());
        }
        let refuse = |reason: &str| Err(Failure::Refused(format!("--output -: {reason}")));
        if self.samples > 1 {
            let reason = format!("{} samples are made, and one can go there", self.samples);
            return refuse(&format!("{reason}; give a name, or make them one by one"));
        }
        if self.sounds && !self.kind.holds_sound() {
            return refuse("the sound has nowhere to go; add --without-audio, or give a name");
        }
        match io::stdout().is_terminal() {
            true => refuse("the standard output is a terminal; send it to a file or a program"),
            false => Ok(()),
        }
    }
}

/// Whether two paths to write to name one file.
fn same_place(left: &Path, right: &Path) -> bool {
    !aside::is_special(left) && place(left).is_some_and(|own| place(right) == Some(own))
}

/// The error of a path that cannot be written to.
pub(crate) fn refused(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { verb: "write", path, source }
}
