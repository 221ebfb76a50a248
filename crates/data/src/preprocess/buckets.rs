//! The sizes that clips are brought to, and which of them suits a clip.

use std::str::FromStr;

use super::Probe;
use super::doctor::Reason;
use crate::error::{Error, Result};
use crate::store::Bucket;

/// No side and no clip is longer: it is a typing error.
const LARGEST: usize = 1 << 16;

/// What sizes a model can encode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Heights and widths are multiples of this.
    pub size_step: usize,
    /// Frames are `1 + k * frame_step`: a causal VAE encodes the first one alone. 0 is for models of
    /// pictures.
    pub frame_step: usize,
    /// How much a clip may be enlarged; 1 is not at all.
    pub most_enlarged: f64,
}

impl Default for Rules {
    /// Multiples of 16, `1 + 4k` frames, nothing enlarged.
    fn default() -> Rules {
        Rules { size_step: 16, frame_step: 4, most_enlarged: 1.0 }
    }
}

/// Buckets that a model can encode.
#[derive(Clone, Debug, PartialEq)]
pub struct Buckets {
    list: Vec<Bucket>,
    rules: Rules,
    /// How much smaller references are than what is made from them.
    reference_scale: usize,
}

/// How far two frame rates may be apart and still be called the same: 23.976 is 24.
const SAME_RATE: f64 = 0.01;

impl FromStr for Bucket {
    type Err = Error;

    /// As it is displayed: `WIDTHxHEIGHTxFRAMES`.
    fn from_str(text: &str) -> Result<Bucket> {
        let numbers: Option<Vec<usize>> =
            text.split('x').map(|part| part.trim().parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[width, height, frames]) if width.max(height).max(frames) <= LARGEST => {
                Ok(Bucket { frames, height, width })
            }
            _ => {
                let reason = format!(
                    "write it as WIDTHxHEIGHTxFRAMES, like 832x480x81, with numbers up to {LARGEST}"
                );
                Err(Error::Bucket { bucket: text.to_owned(), reason })
            }
        }
    }
}

impl Buckets {
    /// Buckets under the rules of a model.
    ///
    /// # Errors
    /// There are none, or one breaks a rule.
    pub fn new(list: Vec<Bucket>, rules: Rules) -> Result<Buckets> {
        let wrong = |bucket: String, reason: String| Err(Error::Bucket { bucket, reason });
        if list.is_empty() {
            return wrong("none".to_owned(), "give at least one, like 832x480x81".to_owned());
        }
        for bucket in &list {
            let nearest = nearest_legal(bucket, &rules);
            if nearest != *bucket {
                let frames = match rules.frame_step {
                    0 => "the model makes pictures of 1 frame".to_owned(),
                    step => format!("frames are 1 + k x {step}"),
                };
                let step = rules.size_step;
                let reason =
                    format!("sides are multiples of {step} and {frames}; the nearest is {nearest}");
                return wrong(bucket.to_string(), reason);
            }
        }
        Ok(Buckets { list, rules, reference_scale: 1 })
    }

    /// The same buckets with references that are encoded `scale` times smaller, in height and width
    /// alike.
    ///
    /// # Errors
    /// The scale is 0, or the model cannot encode a bucket that much smaller.
    pub fn with_reference_scale(self, scale: usize) -> Result<Buckets> {
        let step = self.rules.size_step.saturating_mul(scale);
        let divides = |side: usize| side.checked_rem(step) == Some(0);
        let odd = self.list.iter().find(|own| !(divides(own.height) && divides(own.width)));
        if let Some(bucket) = odd {
            let reason = format!(
                "its references cannot be {scale} times smaller: their sides are multiples of {} \
                 too, so its own are multiples of {step}",
                self.rules.size_step
            );
            return Err(Error::Bucket { bucket: bucket.to_string(), reason });
        }
        Ok(Buckets { reference_scale: scale, ..self })
    }

    /// How much smaller references are.
    pub fn reference_scale(&self) -> usize {
        self.reference_scale
    }

    /// The bucket of the reference of a clip in `bucket`: smaller by the scale, and of as many frames
    /// as last as long. A picture is a reference of one frame.
    ///
    /// # Errors
    /// It is too short or too small, or its rate is not the clip's nor a whole fraction of it.
    pub fn reference(
        &self,
        bucket: &Bucket,
        clip: &Probe,
        reference: &Probe,
    ) -> Result<Bucket, Reason> {
        let (height, width) =
            (bucket.height / self.reference_scale, bucket.width / self.reference_scale);
        let frames = match reference.frames == 1 || bucket.frames == 1 {
            true => 1,
            false => self.reference_frames(bucket.frames, [clip.fps, reference.fps])?,
        };
        let own = Bucket { frames, height, width };
        if reference.frames < frames {
            return Err(Reason::TooShort { frames: reference.frames, least: frames });
        }
        if enlarged(&own, reference) > self.rules.most_enlarged {
            let Probe { height, width, .. } = *reference;
            return Err(Reason::TooSmall { height, width, least: own });
        }
        Ok(own)
    }

    /// How many frames of a reference last as long as `frames` of its clip.
    fn reference_frames(&self, frames: usize, [clip, own]: [f64; 2]) -> Result<usize, Reason> {
        let slower = (clip / own).round();
        let steps = frames - 1;
        let fits = slower >= 1.0
            && (clip / own - slower).abs() <= SAME_RATE * slower
            && steps.is_multiple_of(slower as usize)
            && (steps / slower as usize).is_multiple_of(self.rules.frame_step.max(1));
        match fits {
            true => Ok(1 + steps / slower as usize),
            false => Err(Reason::OtherSpeed { reference: own, clip, frames }),
        }
    }

    /// All of them.
    pub fn list(&self) -> &[Bucket] {
        &self.list
    }

    /// The bucket for a clip: of those with no more frames than it has and not much larger than it,
    /// the one with the nearest proportion; of those, the longest, then the largest.
    ///
    /// # Errors
    /// It is too short or too small for all of them.
    pub fn pick(&self, probe: &Probe) -> Result<Bucket, Reason> {
        let least = self.list.iter().map(|bucket| bucket.frames).min().unwrap_or(1);
        if probe.frames < least {
            return Err(Reason::TooShort { frames: probe.frames, least });
        }
        let fits = |bucket: &&Bucket| {
            bucket.frames <= probe.frames && enlarged(bucket, probe) <= self.rules.most_enlarged
        };
        let proportion = |height: usize, width: usize| (width as f64 / height as f64).ln();
        let far = |bucket: &Bucket| {
            let own = proportion(bucket.height, bucket.width);
            (own - proportion(probe.height, probe.width)).abs()
        };
        let best = self.list.iter().filter(fits).min_by(|a, b| {
            let larger = |bucket: &Bucket| (bucket.frames, bucket.height * bucket.width);
            far(a).total_cmp(&far(b)).then(larger(b).cmp(&larger(a)))
        });
        best.copied().ok_or_else(|| Reason::TooSmall {
            height: probe.height,
            width: probe.width,
            least: self.smallest(probe.frames),
        })
    }

    /// The smallest bucket that is short enough.
    fn smallest(&self, frames: usize) -> Bucket {
        let short = self.list.iter().filter(|bucket| bucket.frames <= frames);
        let smallest = short.min_by_key(|bucket| bucket.height * bucket.width);
        *smallest.unwrap_or(&self.list[0])
    }
}

/// How much a clip grows when it is cut to a bucket's proportion and brought to its size.
fn enlarged(bucket: &Bucket, probe: &Probe) -> f64 {
    let tall = bucket.height as f64 / probe.height as f64;
    let wide = bucket.width as f64 / probe.width as f64;
    tall.max(wide)
}

fn nearest_legal(bucket: &Bucket, rules: &Rules) -> Bucket {
    let side =
        |side: usize| ((side + rules.size_step / 2) / rules.size_step).max(1) * rules.size_step;
    let beyond = bucket.frames.saturating_sub(1) + rules.frame_step / 2;
    let steps = beyond.checked_div(rules.frame_step).unwrap_or(0);
    Bucket {
        frames: 1 + steps * rules.frame_step,
        height: side(bucket.height),
        width: side(bucket.width),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(texts: &[&str]) -> Buckets {
        let list = texts.iter().map(|text| text.parse().unwrap()).collect();
        Buckets::new(list, Rules::default()).unwrap()
    }

    fn probe(width: usize, height: usize, frames: usize) -> Probe {
        Probe { frames, height, width, fps: 24.0 }
    }

    #[test]
    fn proportion_decides_then_frames_then_size() {
        let buckets =
            buckets(&["832x480x81", "832x480x33", "416x240x81", "480x832x81", "480x480x81"]);
        let cases = [
            (probe(1920, 1080, 100), "832x480x81"),
            (probe(1920, 1080, 80), "832x480x33"),
            (probe(800, 460, 100), "416x240x81"),
            (probe(1080, 1920, 81), "480x832x81"),
            (probe(700, 600, 200), "480x480x81"),
        ];
        for (probe, expected) in cases {
            assert_eq!(buckets.pick(&probe).unwrap().to_string(), expected, "{probe:?}");
        }
    }

    #[test]
    fn too_short_and_too_small_are_told_apart() {
        let buckets = buckets(&["832x480x81", "416x240x33"]);
        let short = buckets.pick(&probe(1920, 1080, 32));
        assert_eq!(short, Err(Reason::TooShort { frames: 32, least: 33 }));
        let least = "416x240x33".parse().unwrap();
        let small = buckets.pick(&probe(400, 300, 90));
        assert_eq!(small, Err(Reason::TooSmall { height: 300, width: 400, least }));
    }

    #[test]
    fn a_reference_is_smaller_and_lasts_as_long() {
        let own = buckets(&["832x480x81"]).with_reference_scale(4);
        assert!(own.unwrap_err().to_string().contains("multiples of 64"), "480 is 7.5 x 64");
        let own = buckets(&["832x480x81"]).with_reference_scale(2).unwrap();
        let bucket = own.list()[0];
        let at = |width, height, frames, fps| Probe { frames, height, width, fps };
        let clip = at(1920, 1080, 100, 24.0);
        let found = |reference: Probe| own.reference(&bucket, &clip, &reference);
        let text = |reference| found(reference).unwrap().to_string();
        assert_eq!(text(at(1920, 1080, 100, 24.0)), "416x240x81");
        assert_eq!(text(at(1920, 1080, 100, 23.976)), "416x240x81");
        assert_eq!(text(at(1920, 1080, 41, 12.0)), "416x240x41");
        assert_eq!(text(at(1920, 1080, 100, 6.0)), "416x240x21");
        assert_eq!(text(at(500, 500, 1, 1.0)), "416x240x1");
        let slow = at(1920, 1080, 40, 12.0);
        assert_eq!(found(slow), Err(Reason::TooShort { frames: 40, least: 41 }));
        // A third of the rate would need 1 + 80 / 3 frames; twice the rate is none of ours.
        for fps in [8.0, 48.0, 20.0] {
            let refused = Reason::OtherSpeed { reference: fps, clip: 24.0, frames: 81 };
            assert_eq!(found(at(1920, 1080, 200, fps)), Err(refused));
        }
        let small = found(at(400, 300, 100, 24.0));
        assert!(
            matches!(small, Err(Reason::TooSmall { height: 300, width: 400, .. })),
            "{small:?}"
        );
        assert!(buckets(&["832x480x81"]).with_reference_scale(0).is_err());
    }

    #[test]
    fn illegal_buckets_name_the_nearest_legal_one() {
        for (text, nearest) in
            [("832x480x80", "832x480x81"), ("840x470x81", "848x464x81"), ("8x3x0", "16x16x1")]
        {
            let made = Buckets::new(vec![text.parse().unwrap()], Rules::default());
            let message = made.unwrap_err().to_string();
            assert!(message.contains(nearest), "{message}");
        }
        assert!("832x480".parse::<Bucket>().is_err() && "axbxc".parse::<Bucket>().is_err());
        assert!("16x16x18446744073709551615".parse::<Bucket>().is_err());
        let pictures = Rules { frame_step: 0, ..Rules::default() };
        let make = |text: &str| Buckets::new(vec![text.parse().unwrap()], pictures);
        assert!(make("32x16x1").is_ok());
        for text in ["32x16x5", "32x16x2", "32x16x0"] {
            let message = make(text).unwrap_err().to_string();
            assert!(message.contains("1 frame; the nearest is 32x16x1"), "{message}");
        }
    }
}
