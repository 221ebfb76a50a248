//! The long work: every clip and caption through the encoders, into the store.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

use burn::tensor::TensorData;

use super::doctor::{Planned, Reason, Reference, Skipped, hash};
use super::mask::Mask;
use super::pieces::{Pieces, Role};
use super::together::{Tensors, Together};
use super::{Cause, Encode, Media};
use crate::error::{Error, Result};
use crate::store::{
    AUDIO_LATENTS, LATENTS, MASK, Origin, REF_LATENTS, RefOrigin, Sample, Writer, hash_parts,
};

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress<'a> {
    /// Clips that are done or failed.
    pub done: usize,
    /// All clips.
    pub total: usize,
    /// The clip that comes next.
    pub id: &'a str,
}

/// What became of the clips.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// How many were encoded now.
    pub written: usize,
    /// How many were there already, unchanged.
    pub kept: usize,
    /// How many were there and are no longer asked for.
    pub removed: usize,
    /// What could not be read after all.
    pub failed: Vec<Skipped>,
    /// Whether it was asked to stop; run it again to go on.
    pub interrupted: bool,
}

/// Encodes the clips that the store does not have yet, or that have changed since. Once `stop` is
/// set it ends after the clip at hand, with all that was encoded safe on disk.
///
/// # Errors
/// An encoder fails, or the store cannot be written. A clip that cannot be read is reported and skipped.
pub fn preprocess(
    planned: &[Planned],
    media: &dyn Media,
    encode: &mut dyn Encode,
    writer: &mut Writer,
    progress: &mut dyn FnMut(Progress<'_>),
    stop: &AtomicBool,
) -> Result<Summary> {
    let mut summary = Summary::default();
    let mut wanted = BTreeSet::new();
    let mut together = Together::default();
    let mut ahead: VecDeque<Todo> = VecDeque::new();
    let mut pieces = Pieces::of(media);
    for (done, clip) in planned.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            summary.interrupted = true;
            break;
        }
        progress(Progress { done, total: planned.len(), id: &clip.id });
        if ahead.is_empty() {
            (ahead, together) = round(planned, done, encode, writer)?;
        }
        let outcome = match ahead.pop_front() {
            None | Some(Todo::Missing) => Err(Reason::Missing),
            Some(Todo::Nothing) => Ok(None),
            Some(Todo::Make { hash, is_first }) => {
                let helped = together.next(encode, is_first).map_err(|cause| failed(clip, cause));
                let tensors = match helped {
                    Ok(Some(tensors)) => Ok(Ok(tensors)),
                    Ok(None) => tensors_of(clip, &mut pieces, encode),
                    Err(failure) => Err(failure),
                };
                match tensors {
                    Ok(tensors) => tensors.map(|tensors| Some(sample(clip, hash, tensors))),
                    Err(failure) => {
                        // What was encoded before stays.
                        writer.flush()?;
                        return Err(failure);
                    }
                }
            }
        };
        match outcome {
            Ok(None) => summary.kept += 1,
            Ok(Some(sample)) => {
                writer.push(sample)?;
                summary.written += 1;
            }
            // What ends a terminal's programs ends the one that was reading as well: the clip is sound.
            Err(_) if stop.load(Ordering::Relaxed) => {
                summary.interrupted = true;
                break;
            }
            Err(reason) => {
                summary.failed.push(Skipped { id: clip.id.clone(), reason });
                continue;
            }
        }
        wanted.insert(clip.id.clone());
    }
    writer.flush()?;
    if !summary.interrupted {
        summary.removed = writer.retain(&wanted)?;
    }
    Ok(summary)
}

fn failed(clip: &Planned, cause: Cause) -> Error {
    Error::Encode { id: clip.id.clone(), cause }
}

/// What is to be done about a clip.
enum Todo {
    /// A file of it cannot be read.
    Missing,
    /// The store has it.
    Nothing,
    /// It is to be encoded; the first of a round is encoded here.
    Make { hash: String, is_first: bool },
}

/// What is to be done about the next clips, of which as many are encoded as there are who encode.
fn round(
    planned: &[Planned],
    done: usize,
    encode: &mut dyn Encode,
    writer: &Writer,
) -> Result<(VecDeque<Todo>, Together)> {
    let width = Together::width(encode);
    let (mut todo, mut places) = (VecDeque::new(), Vec::new());
    for (at, clip) in planned.iter().enumerate().skip(done) {
        todo.push_back(match source_hash(clip) {
            None => Todo::Missing,
            Some(hash) if writer.has(&clip.id, &hash) => Todo::Nothing,
            Some(hash) => {
                places.push(at);
                Todo::Make { hash, is_first: places.len() == 1 }
            }
        });
        if places.len() == width || (width == 1 && places.is_empty()) {
            break;
        }
    }
    let together =
        Together::begin(encode, &places).map_err(|cause| failed(&planned[done], cause))?;
    Ok((todo, together))
}

/// The hash of all that a sample is made from; `None` if a file cannot be read.
fn source_hash(clip: &Planned) -> Option<String> {
    let own = hash(&clip.path)?;
    let reference = match &clip.reference {
        Some(reference) => hash(&reference.path)?.as_bytes().to_vec(),
        None => Vec::new(),
    };
    let other = clip.reference.as_ref().filter(|own| {
        [own.bucket.to_string(), own.fps.to_string()]
            != [clip.bucket.to_string(), clip.fps.to_string()]
    });
    let other = other.map(|own| format!("reference {} at {}", own.bucket, own.fps));
    let mask = match &clip.mask {
        Some(Mask { path, .. }) => Some(hash(path)?),
        None => None,
    };
    let bucket = clip.bucket.to_string();
    let rate = clip.fps.to_le_bytes();
    let mut parts = vec![
        own.as_bytes().as_slice(),
        &reference,
        clip.caption.as_bytes(),
        bucket.as_bytes(),
        &rate,
    ];
    // Only where there is one: samples of datasets that were made without masks keep their hash.
    parts.extend(mask.as_ref().map(|mask| mask.as_bytes().as_slice()));
    let first = (clip.first > 0).then(|| format!("from frame {}", clip.first));
    parts.extend(first.as_ref().map(|first| first.as_bytes()));
    // The same for references that are as large and as fast as their clips.
    parts.extend(other.as_ref().map(|other| other.as_bytes()));
    // A sound that is in the clip is told by it.
    let sound = match clip.sound.as_ref().filter(|sound| **sound != clip.path) {
        Some(path) => Some(format!("sound {}", hash(path)?)),
        None => None,
    };
    parts.extend(sound.as_ref().map(|sound| sound.as_bytes()));
    Some(hash_parts(&parts))
}

/// Reads and encodes a clip. The outer error is an encoder's, the inner one the clip's.
///
/// # Errors
/// An encoder fails.
pub fn tensors_of(
    clip: &Planned,
    pieces: &mut Pieces<'_>,
    encode: &mut dyn Encode,
) -> Result<Result<Tensors, Reason>> {
    let failed = |cause: Cause| failed(clip, cause);
    let span = (clip.first, clip.next);
    let frames = match pieces.clip(Role::Clip, &clip.path, &clip.bucket, span) {
        Ok(frames) => frames,
        Err(cause) => return Ok(Err(Reason::Unreadable(cause.to_string()))),
    };
    let factors = encode.factors();
    let mask = clip.mask.as_ref().map(|mask| mask.read(pieces, (span, &clip.bucket), factors));
    let mask = mask.transpose();
    let sound = pieces.sound(clip);
    let (mask, sound) = match (mask, sound) {
        (Ok(mask), Ok(sound)) => (mask, sound),
        (Err(reason), _) | (_, Err(reason)) => return Ok(Err(reason)),
    };
    let mut tensors: Tensors = encode.text(&clip.caption).map_err(failed)?;
    let latents = encode.clip(&frames).map_err(failed)?;
    if let Some(mask) = mask {
        let mask = on_grid(mask, &latents).map_err(failed)?;
        tensors.insert(MASK.to_owned(), mask);
    }
    tensors.insert(LATENTS.to_owned(), latents);
    tensors.extend(encode.shown(&frames).map_err(failed)?);
    if let Some((wave, seconds)) = sound {
        let latents = encode.sound(&wave, seconds).map_err(failed)?;
        tensors.extend(latents.map(|latents| (AUDIO_LATENTS.to_owned(), latents)));
    }
    if let Some(Reference { path, bucket, fps }) = &clip.reference {
        // A picture stands for every piece; a clip is used from the same moment on.
        let is_still = bucket.frames == 1;
        let moment = |first: usize| match is_still {
            true => 0,
            false => (first as f64 / clip.fps * fps).round() as usize,
        };
        let span = (moment(clip.first), clip.next.map(moment));
        match pieces.clip(Role::Reference, path, bucket, span) {
            Ok(frames) => {
                tensors.insert(REF_LATENTS.to_owned(), encode.clip(&frames).map_err(failed)?);
            }
            Err(cause) => {
                let reason = Box::new(Reason::Unreadable(cause.to_string()));
                return Ok(Err(Reason::Reference(path.clone(), reason)));
            }
        }
    }
    Ok(Ok(tensors))
}

/// A clip as a sample.
fn sample(clip: &Planned, source_hash: String, tensors: Tensors) -> Sample {
    let Planned { id, caption, bucket, fps, reference, .. } = clip.clone();
    let reference = reference.map(|Reference { bucket, fps, .. }| RefOrigin { bucket, fps });
    let origin = Origin { id, source_hash, caption, fps, bucket, reference };
    Sample { origin, tensors }
}

/// A mask `[f, h, w]` in the type of its latents `[C, f, h, w]`.
///
/// # Errors
/// The encoder makes other latents than its factors say.
fn on_grid(mask: TensorData, latents: &TensorData) -> Result<TensorData, Cause> {
    if latents.shape().len() != 4 || latents.shape()[1..] != mask.shape()[..] {
        let (latents, mask) = (latents.shape(), mask.shape());
        return Err(format!("its latents are {latents:?}, but its mask {mask:?}").into());
    }
    Ok(mask.convert_dtype(latents.dtype()))
}
