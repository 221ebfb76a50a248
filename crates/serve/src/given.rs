//! How much a request gives beside its prompt, and how much of all requests is decoded at a time: a file of a few
//! kilobytes may hold gigabytes of pixels.

use std::path::Path;
use std::sync::Arc;

use data::media::{self, Stream};
use families::Condition;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::ask::GivenFile;
use crate::error::{Answer, Refusal, wire_name};

/// Pixels that are counted together.
const UNIT: u64 = 1 << 20;

/// Pixels that are decoded at a time, in units: whoever gives more is decoded alone.
const AT_A_TIME: u32 = 96;

/// A clip that was sent, by what can be told without decoding it.
pub(crate) struct Clip {
    pub(crate) frames: usize,
    /// Frames per second.
    pub(crate) rate: f64,
    /// Height and width.
    pub(crate) size: [usize; 2],
}

impl Clip {
    /// Looks into a file; `param` is the field that it was sent as.
    ///
    /// # Errors
    /// It is no clip.
    pub(crate) fn probe(path: &Path, param: &str) -> Answer<Clip> {
        let refuse = |error: media::Error| Refusal::field(param, format!("{param}: {error}"));
        let stream = Stream::probe(path).map_err(refuse)?;
        let frames = media::shown_frames(path).map_err(refuse)?;
        let rate = stream.rate.per_second();
        Ok(Clip { frames, rate, size: [stream.height, stream.width] })
    }
}

/// Refuses what has more pixels than a request may give, and counts them: those of the first `frames` frames of each
/// file, because no others are decoded.
///
/// # Errors
/// It has more than `most`.
pub(crate) fn pixels(given: &[GivenFile], folder: &Path, frames: usize, most: u64) -> Answer<u64> {
    let mut all = 0u64;
    for GivenFile { role, file, .. } in given.iter().filter(|own| own.role != Condition::Audio) {
        let (path, param) = (folder.join(file), wire_name((*role).into()));
        let found = match media::is_picture(&path) {
            true => media::picture_size(&path).ok().map(|(height, width)| (1, [height, width])),
            false => {
                let clip = Clip::probe(&path, param).ok();
                clip.map(|clip| (clip.frames.min(frames), clip.size))
            }
        };
        // What cannot be read is refused when it is, in words for what it was to be.
        let Some((shown, [height, width])) = found else { continue };
        let own = [shown, height, width].iter().fold(1u64, |own, n| own.saturating_mul(*n as u64));
        all = all.saturating_add(own);
        if all > most {
            let reason = format!(
                "{param}: {shown} frames of {width} x {height} and what is given beside them have more pixels than the {most} \
                 that this server takes; scale it down, or cut it"
            );
            return Err(Refusal::field(param, reason));
        }
    }
    Ok(all)
}

/// What bounds the pixels that are decoded at a time.
#[derive(Clone)]
pub(crate) struct Decoding(Arc<Semaphore>);

impl Decoding {
    pub(crate) fn new() -> Decoding {
        Decoding(Arc::new(Semaphore::new(AT_A_TIME as usize)))
    }

    /// Waits until so many pixels may be decoded; they may for as long as the answer is held.
    pub(crate) async fn turn(&self, pixels: u64) -> Answer<Option<OwnedSemaphorePermit>> {
        if pixels == 0 {
            return Ok(None);
        }
        let units = u32::try_from(pixels.div_ceil(UNIT)).unwrap_or(u32::MAX).min(AT_A_TIME);
        let permit = Arc::clone(&self.0).acquire_many_owned(units).await;
        permit.map(Some).map_err(|error| Refusal::ours(&error))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Decoding;

    /// Small pictures go at once; whoever gives much waits until nobody else decodes, and lets nobody in meanwhile.
    #[test]
    fn large_ones_go_one_at_a_time() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(async {
            let decoding = Decoding::new();
            let soon = |pixels: u64| {
                let own = decoding.clone();
                async move {
                    tokio::time::timeout(Duration::from_millis(50), own.turn(pixels)).await.ok()
                }
            };
            let small = (soon(1 << 20).await, soon(1 << 20).await, soon(0).await);
            assert!(small.0.is_some() && small.1.is_some() && small.2.is_some());
            assert!(soon(100_000_000).await.is_none(), "others decode");
            drop(small);
            let large = soon(400_000_000).await;
            assert!(large.is_some());
            assert!(soon(1).await.is_none(), "it has all the room");
            drop(large);
            assert!(soon(1).await.is_some());
        });
    }
}
