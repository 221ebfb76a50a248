//! Which buckets suit a heap of clips: few, each of which many clips fill without losing much.

use std::collections::BTreeSet;

use super::Probe;
use super::buckets::Rules;
use super::frames::crop;
use crate::store::Bucket;

/// No more buckets are proposed.
const MOST: usize = 5;

/// Another bucket must spare the clips this much of themselves, on average.
const WORTH: f64 = 0.02;

/// What a clip that suits no bucket is held to lose.
const SKIPPED: f64 = 2.0;

/// Buckets for clips, under the rules of a model that makes clips of the size `own` by itself: as many
/// pixels as that at the most, as many frames at the most, and no clip enlarged.
pub fn suggest(clips: &[Probe], own: &Bucket, rules: &Rules) -> Vec<Bucket> {
    let candidates: BTreeSet<Bucket> =
        clips.iter().filter_map(|clip| candidate(clip, own, rules)).collect();
    let candidates: Vec<Bucket> = candidates.into_iter().collect();
    let mut chosen: Vec<Bucket> = Vec::new();
    let mut least = vec![SKIPPED; clips.len()];
    while chosen.len() < MOST {
        let after = |bucket: &Bucket| -> f64 {
            let each = clips.iter().zip(&least);
            each.map(|(clip, before)| before.min(lost(clip, bucket, own))).sum()
        };
        let best = candidates.iter().map(|bucket| (after(bucket), bucket));
        let Some((sum, bucket)) = best.min_by(|(a, _), (b, _)| a.total_cmp(b)) else { break };
        if least.iter().sum::<f64>() - sum < WORTH * clips.len() as f64 {
            break;
        }
        chosen.push(*bucket);
        for (clip, before) in clips.iter().zip(&mut least) {
            *before = before.min(lost(clip, bucket, own));
        }
    }
    chosen
}

/// The bucket that suits one clip best.
fn candidate(clip: &Probe, own: &Bucket, rules: &Rules) -> Option<Bucket> {
    let (height, width) = (clip.height as f64, clip.width as f64);
    let scale = ((own.height * own.width) as f64 / (height * width)).sqrt().min(1.0);
    let side = |side: f64| (side * scale) as usize / rules.size_step * rules.size_step;
    let frames = match rules.frame_step {
        0 => 1,
        step => 1 + (clip.frames.min(own.frames).checked_sub(1)?) / step * step,
    };
    let bucket = Bucket { frames, height: side(height), width: side(width) };
    (bucket.height > 0 && bucket.width > 0).then_some(bucket)
}

/// How much of itself a clip loses in a bucket: what is cropped, half of the resolution and half of the
/// frames that it could have kept.
fn lost(clip: &Probe, bucket: &Bucket, own: &Bucket) -> f64 {
    let fits = bucket.frames <= clip.frames
        && bucket.height <= clip.height
        && bucket.width <= clip.width
        // A video is no picture, unless that is all a model makes.
        && (bucket.frames > 1 || clip.frames == 1 || own.frames == 1);
    if !fits {
        return SKIPPED;
    }
    let area = |height: usize, width: usize| (height * width) as f64;
    let kept = crop(clip.height, clip.width, bucket);
    let cropped = 1.0 - area(kept.height, kept.width) / area(clip.height, clip.width);
    let most = area(clip.height, clip.width).min(area(own.height, own.width));
    let scaled = 1.0 - (area(bucket.height, bucket.width) / most).min(1.0);
    let cut = 1.0 - bucket.frames as f64 / clip.frames.min(own.frames) as f64;
    cropped + 0.5 * scaled + 0.5 * cut
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Bucket = Bucket { frames: 81, height: 480, width: 832 };

    fn clips(all: &[(usize, usize, usize, usize)]) -> Vec<Probe> {
        let one = |&(count, width, height, frames): &(usize, usize, usize, usize)| {
            vec![Probe { frames, height, width, fps: 24.0 }; count]
        };
        all.iter().flat_map(one).collect()
    }

    fn suggested(all: &[(usize, usize, usize, usize)]) -> Vec<String> {
        let found = suggest(&clips(all), &OWN, &Rules::default());
        found.iter().map(Bucket::to_string).collect()
    }

    #[test]
    fn few_buckets_serve_most_clips() {
        assert_eq!(suggested(&[(9, 1920, 1080, 200)]), ["832x464x81"]);
        let both = suggested(&[(9, 1920, 1080, 200), (4, 1080, 1920, 100), (1, 1900, 1080, 100)]);
        assert_eq!(both, ["832x464x81", "464x832x81"]);
        // One short clip among many is not worth a bucket; many are.
        let short = suggested(&[(50, 1920, 1080, 200), (20, 1920, 1080, 40)]);
        assert_eq!(short, ["832x464x37", "832x464x81"]);
        assert_eq!(suggested(&[(199, 1920, 1080, 200), (1, 640, 480, 200)]).len(), 1);
        // Pictures get a bucket of their own.
        let mixed = suggested(&[(5, 1920, 1080, 200), (5, 1000, 1000, 1)]);
        assert_eq!(mixed, ["624x624x1", "832x464x81"]);
        assert!(suggested(&[]).is_empty() && suggested(&[(3, 8, 8, 100)]).is_empty());
    }
}
