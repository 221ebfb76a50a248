//! What would be skipped, and why, before the long work begins.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use super::buckets::Buckets;
use super::extract::Extract;
use super::frames::crop;
use super::manifest::ManifestEntry;
use super::mask::{self, Mask};
use super::{Media, Probe, rounded};
use crate::store::Bucket;

/// Why a clip is skipped.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// There is no such file.
    Missing,
    /// It is not a clip that can be read.
    Unreadable(String),
    /// It has too few frames.
    TooShort {
        /// How many it has.
        frames: usize,
        /// How many the shortest bucket has.
        least: usize,
    },
    /// It would have to be enlarged.
    TooSmall {
        /// Its height.
        height: usize,
        /// Its width.
        width: usize,
        /// The smallest bucket for its length.
        least: Bucket,
    },
    /// Nobody says what it shows.
    NoCaption,
    /// There is a text beside it that is none.
    UnreadableCaption(String),
    /// The caption has no words.
    EmptyCaption,
    /// It is listed before, or is the same as one before.
    Duplicate {
        /// The first one.
        of: String,
    },
    /// Its reference cannot be used.
    Reference(PathBuf, Box<Reason>),
    /// Its mask cannot be used.
    Mask(PathBuf, Box<Reason>),
    /// A mask of another size than its clip.
    OtherSize {
        /// Height and width of the mask.
        mask: [usize; 2],
        /// Height and width of the clip.
        clip: [usize; 2],
    },
    /// A mask that ends before its clip.
    Shorter {
        /// How many frames the mask has.
        mask: usize,
        /// How many frames the clip has.
        clip: usize,
    },
    /// A mask whose frames are of other times than its clip's.
    OtherRate {
        /// Frames per second of the mask.
        mask: f64,
        /// Frames per second of the clip.
        clip: f64,
    },
    /// A mask that leaves nothing to be generated.
    NothingGenerated,
    /// Its sound cannot be used.
    Sound(PathBuf, Box<Reason>),
    /// A file that is to be a sound and has none.
    Silent,
    /// A sound that would take a lot of memory.
    TooLong {
        /// How many seconds are used of it.
        seconds: f64,
        /// How many may be.
        most: f64,
    },
    /// A reference whose frames cannot be laid beside those of its clip.
    OtherSpeed {
        /// Frames per second of the reference.
        reference: f64,
        /// Frames per second of the clip.
        clip: f64,
        /// Frames of the clip that are used.
        frames: usize,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Missing => write!(f, "there is no such file"),
            Reason::Unreadable(cause) => write!(f, "it cannot be read: {cause}"),
            Reason::TooShort { frames, least } => {
                write!(f, "it has {frames} frames, but the shortest bucket has {least}")
            }
            Reason::TooSmall { height, width, least } => {
                write!(f, "it is {width}x{height}, but the smallest bucket for it is {least}")
            }
            Reason::UnreadableCaption(why) => write!(f, "its caption cannot be read: {why}"),
            Reason::NoCaption => write!(f, "it has no caption: there is no text file beside it"),
            Reason::EmptyCaption => write!(f, "its caption is empty"),
            Reason::Duplicate { of } => write!(f, "it is the same as {of}"),
            Reason::Reference(path, reason) => {
                write!(f, "its reference {}: {reason}", path.display())
            }
            Reason::Mask(path, reason) => write!(f, "its mask {}: {reason}", path.display()),
            Reason::Sound(path, reason) => write!(f, "its sound {}: {reason}", path.display()),
            Reason::Silent => write!(f, "there is no sound in it"),
            Reason::TooLong { seconds, most } => {
                write!(f, "{seconds:.0} seconds are used of it; at most {most} can be")
            }
            Reason::OtherSize { mask: [height, width], clip: [clip_height, clip_width] } => write!(
                f,
                "it is {width}x{height}, but its clip is {clip_width}x{clip_height}; a mask is \
                 drawn on the pixels of its clip"
            ),
            Reason::Shorter { mask, clip } => write!(
                f,
                "it has {mask} frames, but its clip has {clip}; give one for each, or one picture \
                 for all"
            ),
            Reason::OtherRate { mask, clip } => write!(
                f,
                "it has {} frames per second, but its clip has {}; give it the clip's rate",
                rounded(*mask),
                rounded(*clip)
            ),
            Reason::OtherSpeed { reference, clip, frames } => write!(
                f,
                "it has {} frames per second, but its clip has {}; give it the clip's rate, or a \
                 whole fraction of it that makes a legal clip of the {frames} frames",
                rounded(*reference),
                rounded(*clip)
            ),
            Reason::NothingGenerated => write!(
                f,
                "nothing is white in the part that is kept, so nothing would be generated; white \
                 is what is to be generated"
            ),
        }
    }
}

/// A clip that is skipped.
#[derive(Clone, Debug, PartialEq)]
pub struct Skipped {
    /// Its name.
    pub id: String,
    /// Why.
    pub reason: Reason,
}

/// A clip that is to be encoded.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// Its name.
    pub id: String,
    /// Where it is.
    pub path: PathBuf,
    /// What it shows.
    pub caption: String,
    /// The clip it is to be made from.
    pub reference: Option<Reference>,
    /// What of it is to be generated.
    pub mask: Option<Mask>,
    /// The file that its sound is in: its own, or another.
    pub sound: Option<PathBuf>,
    /// The size it is brought to.
    pub bucket: Bucket,
    /// Frames per second.
    pub fps: f64,
    /// What the whole clip is.
    pub source: Probe,
    /// The first of its frames that is used.
    pub first: usize,
    /// The first frame of the piece of the same clip that comes next, if one does.
    pub next: Option<usize>,
}

impl Planned {
    /// The share of its pictures that is cut away.
    pub fn cropped(&self) -> f64 {
        let Probe { height, width, .. } = self.source;
        let kept = crop(height, width, &self.bucket);
        1.0 - (kept.height * kept.width) as f64 / (height * width) as f64
    }
}

/// The reference of a clip that is to be encoded.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// Where it is.
    pub path: PathBuf,
    /// The size it is brought to.
    pub bucket: Bucket,
    /// Frames per second.
    pub fps: f64,
}

/// What the doctor found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DoctorReport {
    /// What will be encoded, in order.
    pub planned: Vec<Planned>,
    /// What will be skipped, in order.
    pub skipped: Vec<Skipped>,
}

impl DoctorReport {
    /// How many references each bucket gets.
    pub fn reference_buckets(&self) -> BTreeMap<Bucket, usize> {
        let mut counts = BTreeMap::new();
        let references = self.planned.iter().filter_map(|it| it.reference.as_ref());
        references.for_each(|it| *counts.entry(it.bucket).or_default() += 1);
        counts
    }

    /// The same with as many pieces of each clip as `extract` says. The first keeps the clip's name.
    pub fn extracted(self, extract: Extract) -> DoctorReport {
        let pieces = |clip: Planned| {
            let firsts = extract.firsts(clip.source.frames, clip.bucket.frames);
            let nexts = firsts.iter().skip(1).copied().map(Some).chain([None]);
            let nexts: Vec<Option<usize>> = nexts.collect();
            firsts.into_iter().zip(nexts).map(move |(first, next)| Planned {
                id: match first {
                    0 => clip.id.clone(),
                    first => format!("{}@{first}", clip.id),
                },
                first,
                next,
                ..clip.clone()
            })
        };
        DoctorReport { planned: self.planned.into_iter().flat_map(pieces).collect(), ..self }
    }

    /// How many clips have which rate of frames, pictures aside. 23.976 is 24.
    pub fn rates(&self) -> BTreeMap<u64, usize> {
        let mut counts = BTreeMap::new();
        let clips = self.planned.iter().filter(|it| it.source.frames > 1 && it.first == 0);
        clips.for_each(|it| *counts.entry(it.fps.round() as u64).or_default() += 1);
        counts
    }

    /// How many clips each bucket gets.
    pub fn buckets(&self) -> BTreeMap<Bucket, usize> {
        let mut counts = BTreeMap::new();
        self.planned.iter().for_each(|it| *counts.entry(it.bucket).or_default() += 1);
        counts
    }
}

/// Looks at every clip without decoding it.
pub fn doctor(entries: &[ManifestEntry], media: &dyn Media, buckets: &Buckets) -> DoctorReport {
    let mut report = DoctorReport::default();
    let mut seen = Seen::default();
    for entry in entries {
        let examined = examine(entry, media, buckets);
        let unique = examined.and_then(|planned| seen.admit(planned));
        match unique {
            Ok(planned) => report.planned.push(planned),
            Err(reason) => report.skipped.push(Skipped { id: entry.id.clone(), reason }),
        }
    }
    report
}

fn examine(entry: &ManifestEntry, media: &dyn Media, buckets: &Buckets) -> Result<Planned, Reason> {
    let probe = probe(media, &entry.path)?;
    let caption = entry.caption.as_deref().ok_or_else(|| match &entry.caption_fault {
        Some(why) => Reason::UnreadableCaption(why.clone()),
        None => Reason::NoCaption,
    })?;
    if caption.trim().is_empty() {
        return Err(Reason::EmptyCaption);
    }
    let bucket = buckets.pick(&probe)?;
    let reference = entry.reference.as_deref().map(|path| {
        let found = self::probe(media, path).and_then(|found| {
            let bucket = buckets.reference(&bucket, &probe, &found)?;
            Ok(Reference { path: path.to_owned(), bucket, fps: found.fps })
        });
        found.map_err(|reason| Reason::Reference(path.to_owned(), Box::new(reason)))
    });
    let mask = entry.mask.as_deref().map(|path| {
        let found =
            self::probe(media, path).and_then(|found| mask::examine(&found, &probe, &bucket));
        let kind = found.map_err(|reason| Reason::Mask(path.to_owned(), Box::new(reason)))?;
        Ok(Mask { path: path.to_owned(), kind })
    });
    Ok(Planned {
        id: entry.id.clone(),
        path: entry.path.clone(),
        caption: caption.trim().to_owned(),
        reference: reference.transpose()?,
        mask: mask.transpose()?,
        sound: entry.sound.clone(),
        bucket,
        fps: probe.fps,
        source: probe,
        first: 0,
        next: None,
    })
}

fn probe(media: &dyn Media, path: &Path) -> Result<Probe, Reason> {
    match fs::metadata(path) {
        Err(_) => return Err(Reason::Missing),
        // A pipe would be waited for.
        Ok(found) if !found.is_file() => {
            let what = if found.is_dir() { "folder" } else { "pipe or a device" };
            return Err(Reason::Unreadable(format!("it is a {what}, and a file is needed")));
        }
        Ok(_) => {}
    }
    let probe = media.probe(path).map_err(|cause| Reason::Unreadable(cause.to_string()))?;
    let Probe { frames, height, width, fps } = probe;
    if frames == 0 || height == 0 || width == 0 || !fps.is_finite() || fps <= 0.0 {
        let reason = format!("it says {frames} frames of {width}x{height} at {fps} per second");
        return Err(Reason::Unreadable(reason));
    }
    Ok(probe)
}

/// The clips that were taken, to find duplicates: the same file, or a copy with the same caption.
#[derive(Default)]
struct Seen {
    /// By the true path.
    paths: BTreeMap<PathBuf, String>,
    /// By length: only files of one length are compared.
    lengths: BTreeMap<u64, Vec<Candidate>>,
}

struct Candidate {
    planned: Planned,
    hash: Option<blake3::Hash>,
}

impl Seen {
    fn admit(&mut self, planned: Planned) -> Result<Planned, Reason> {
        let path = fs::canonicalize(&planned.path).unwrap_or_else(|_| planned.path.clone());
        if let Some(of) = self.paths.get(&path) {
            return Err(Reason::Duplicate { of: of.clone() });
        }
        let length = fs::metadata(&path).map_or(0, |metadata| metadata.len());
        let alike = self.lengths.entry(length).or_default();
        let hash = (!alike.is_empty()).then(|| hash(&path)).flatten();
        for other in alike.iter_mut() {
            other.hash = other.hash.or_else(|| self::hash(&other.planned.path));
            let is_copy = hash.is_some()
                && hash == other.hash
                && other.planned.caption == planned.caption
                && other.planned.reference == planned.reference
                && other.planned.mask == planned.mask
                && other.planned.sound == planned.sound;
            if is_copy {
                return Err(Reason::Duplicate { of: other.planned.id.clone() });
            }
        }
        alike.push(Candidate { planned: planned.clone(), hash });
        self.paths.insert(path, planned.id.clone());
        Ok(planned)
    }
}

/// The hash of a file, if it can be read.
pub(super) fn hash(path: &Path) -> Option<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(kernels::open_file(path).ok()?).ok()?;
    Some(hasher.finalize())
}
