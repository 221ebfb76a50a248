//! Guidance: which predictions are needed, and how they become one.

use crate::{Error, Result};
use burn::tensor::{FloatDType, Tensor};
use nn::Tracks;

/// What a prediction knows or lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Branch {
    /// The prompt.
    Conditional,
    /// The negative prompt, or nothing.
    Unconditional,
    /// The prompt, but in some blocks tokens do not look at each other.
    Skipped,
    /// The prompt, but the video does not hear the sound.
    VideoAlone,
    /// The prompt, but the sound does not see the video.
    AudioAlone,
}

/// How far a prediction is pushed away from poorer ones.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guidance {
    video: Terms,
    audio: Terms,
}

/// How far the prediction of one track is pushed away from poorer ones.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Terms {
    /// From the unconditional one; 1 or less means not at all.
    pub scale: f64,
    /// From the one that skips blocks, spatio-temporal guidance; 0 means not at all.
    pub skip: f64,
    /// From the one that does not hear the other track; 1 or less means not at all.
    pub modality: f64,
    /// How much of what guidance adds to the deviation of the clean tokens is taken back, 0 to 1.
    pub rescale: f64,
}

impl Terms {
    /// The conditional prediction alone.
    pub const NONE: Terms = Terms { scale: 1.0, skip: 0.0, modality: 1.0, rescale: 0.0 };

    /// Classifier-free guidance alone.
    ///
    /// # Errors
    /// The scale is not finite.
    pub fn scaled(scale: f64) -> Result<Terms> {
        Terms { scale, ..Terms::NONE }.checked()
    }

    /// The same if it can be.
    ///
    /// # Errors
    /// A number is not finite, or beyond what it can be.
    pub fn checked(self) -> Result<Terms> {
        let Terms { scale, skip, modality, rescale } = self;
        if !scale.is_finite() {
            return Err(Error::Guidance { scale });
        }
        let refuse = |what, got, want| Err(Error::GuidanceTerm { what, got, want });
        if !(skip.is_finite() && skip >= 0.0) {
            return refuse("spatio-temporal guidance", skip, "0 or more");
        }
        if !modality.is_finite() {
            return refuse("modality guidance", modality, "a finite number");
        }
        match (0.0..=1.0).contains(&rescale) {
            true => Ok(self),
            false => refuse("guidance rescale", rescale, "0 to 1"),
        }
    }

    fn is_scaled(self) -> bool {
        self.scale > 1.0
    }
}

/// The tokens `[B, N, C]` of a track that a step starts from, with its noise level: what clean tokens are
/// found by.
pub(crate) struct Noisy {
    pub(crate) tokens: Tensor<3>,
    pub(crate) level: f32,
}

impl Guidance {
    /// The conditional prediction alone.
    pub const NONE: Guidance = Guidance { video: Terms::NONE, audio: Terms::NONE };

    /// Any finite scale for all tracks; 1 or less means the conditional prediction alone.
    ///
    /// # Errors
    /// It is not finite.
    pub fn new(scale: f64) -> Result<Guidance> {
        let terms = Terms::scaled(scale)?;
        Ok(Guidance { video: terms, audio: terms })
    }

    /// Terms for each track.
    pub fn of(video: Terms, audio: Terms) -> Guidance {
        Guidance { video, audio }
    }

    /// The scale of the video.
    pub fn scale(&self) -> f64 {
        self.video.scale
    }

    /// The predictions that are needed for a scene with these tracks, the conditional one first.
    pub fn branches<T>(&self, tracks: &Tracks<T>) -> Vec<Branch> {
        let own =
            [tracks.video.as_ref().map(|_| self.video), tracks.audio.as_ref().map(|_| self.audio)];
        let any = |has: fn(Terms) -> bool| own.into_iter().flatten().any(has);
        let both = tracks.video.is_some() && tracks.audio.is_some();
        let alone = both && any(|terms| terms.modality > 1.0);
        let all = [
            (Branch::Conditional, true),
            (Branch::Unconditional, any(Terms::is_scaled)),
            (Branch::Skipped, any(|terms| terms.skip > 0.0)),
            (Branch::VideoAlone, alone),
            (Branch::AudioAlone, alone),
        ];
        all.into_iter().filter(|(_, wanted)| *wanted).map(|(branch, _)| branch).collect()
    }

    /// Whether the whole of one of these tracks must be seen to guide any of it.
    pub fn sees_whole_tracks<T>(&self, tracks: &Tracks<T>) -> bool {
        let video = tracks.video.is_some() && self.video.rescale > 0.0;
        video || tracks.audio.is_some() && self.audio.rescale > 0.0
    }

    /// `unconditional + scale (conditional - unconditional)`, in f32; all are
    /// `[batch, tokens, channels]`.
    pub fn combine(&self, conditional: Tensor<3>, unconditional: Tensor<3>) -> Tensor<3> {
        pushed(conditional, unconditional, self.video.scale)
    }

    /// The branches of one track as one, in f32; all are `[batch, tokens, channels]`.
    ///
    /// Velocities are pushed as clean tokens would be: what both share, the noisy tokens, falls out of
    /// every difference. Only their deviation needs the clean ones.
    pub(crate) fn join(
        &self,
        track: &str,
        said: Vec<(Branch, Tensor<3>)>,
        noisy: impl FnOnce() -> Noisy,
    ) -> Tensor<3> {
        let terms = if track == "video" { self.video } else { self.audio };
        let of = |wanted: Branch| {
            said.iter().find(|(own, _)| *own == wanted).map(|(_, said)| said.clone())
        };
        let alone = of(Branch::VideoAlone).or_else(|| of(Branch::AudioAlone));
        let Some(conditional) = of(Branch::Conditional) else {
            unreachable!("the conditional prediction is always there")
        };
        if said.len() == 1 {
            return conditional;
        }
        let conditional = conditional.cast(FloatDType::F32);
        let mut guided = match of(Branch::Unconditional).filter(|_| terms.is_scaled()) {
            Some(without) => pushed(conditional.clone(), without, terms.scale),
            None => conditional.clone(),
        };
        let poorer = [
            (of(Branch::Skipped).filter(|_| terms.skip > 0.0), terms.skip),
            (alone.filter(|_| terms.modality > 1.0), terms.modality - 1.0),
        ];
        for (poorer, weight) in poorer {
            if let Some(poorer) = poorer {
                guided = guided + (conditional.clone() - poorer.cast(FloatDType::F32)) * weight;
            }
        }
        match terms.rescale > 0.0 {
            true => rescaled(guided, conditional, &noisy(), terms.rescale),
            false => guided,
        }
    }
}

fn pushed(conditional: Tensor<3>, unconditional: Tensor<3>, scale: f64) -> Tensor<3> {
    let conditional = conditional.cast(FloatDType::F32);
    let unconditional = unconditional.cast(FloatDType::F32);
    unconditional.clone() + (conditional - unconditional) * scale
}

/// Velocities whose clean tokens have a deviation nearer to that of the conditional ones, sample by sample.
fn rescaled(guided: Tensor<3>, conditional: Tensor<3>, noisy: &Noisy, rescale: f64) -> Tensor<3> {
    let Noisy { tokens, level } = noisy;
    let clean = |velocity: Tensor<3>| tokens.clone() - velocity * *level;
    let (guided, conditional) = (clean(guided), clean(conditional));
    let ratio = deviation(conditional) / deviation(guided.clone());
    let scale = ratio * rescale + (1.0 - rescale);
    (tokens.clone() - guided * scale) / *level
}

/// The standard deviation of every sample, `[B, 1, 1]`.
fn deviation(tokens: Tensor<3>) -> Tensor<3> {
    let [batch, count, channels] = tokens.dims();
    let values: Tensor<2> = tokens.reshape([batch, count * channels]);
    values.var(1).sqrt().reshape([batch, 1, 1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    fn tensor(values: [f32; 2]) -> Tensor<3> {
        Tensor::from_floats([[values]], &Device::flex())
    }

    fn combined(terms: Terms, said: Vec<(Branch, Tensor<3>)>) -> Vec<f32> {
        let guidance = Guidance::of(terms, Terms::NONE);
        let noisy = || Noisy { tokens: tensor([2.0, 4.0]), level: 0.5 };
        guidance.join("video", said, noisy).try_into_vec_as::<f32>().unwrap()
    }

    #[test]
    fn a_scale_of_one_or_less_needs_no_second_pass() {
        let tracks = Tracks::video(());
        for (scale, branches) in [(-2.0, 1), (0.0, 1), (1.0, 1), (1.001, 2), (7.5, 2)] {
            let own = Guidance::new(scale).unwrap().branches(&tracks);
            assert_eq!(own.len(), branches, "{scale}");
        }
        assert!(Guidance::new(f64::NAN).is_err() && Guidance::new(f64::INFINITY).is_err());
    }

    /// A track that is not there asks for nothing, and nobody is alone who has no company.
    #[test]
    fn a_branch_is_needed_by_a_track_that_is_there() {
        let all = Terms { scale: 3.0, skip: 1.0, modality: 2.0, rescale: 0.0 };
        let guidance = Guidance::of(Terms::NONE, all);
        let both = Tracks { video: Some(()), audio: Some(()) };
        assert_eq!(guidance.branches(&both).len(), 5);
        assert_eq!(guidance.branches(&Tracks::video(())), [Branch::Conditional]);
        let alone = guidance.branches(&Tracks::audio(()));
        assert_eq!(alone, [Branch::Conditional, Branch::Unconditional, Branch::Skipped]);
    }

    #[test]
    fn the_scale_extrapolates_from_the_unconditional_prediction() {
        let combine = |scale| {
            let said = vec![
                (Branch::Conditional, tensor([3.0, -1.0])),
                (Branch::Unconditional, tensor([1.0, 1.0])),
            ];
            combined(Terms { scale, ..Terms::NONE }, said)
        };
        assert_eq!(combine(4.5), [10.0, -8.0]);
        assert_eq!(combine(1.0), [3.0, -1.0]);
    }

    #[test]
    fn every_poorer_prediction_pushes_by_its_own_weight() {
        let said = vec![
            (Branch::Conditional, tensor([3.0, -1.0])),
            (Branch::Unconditional, tensor([1.0, 1.0])),
            (Branch::Skipped, tensor([2.0, 0.0])),
            (Branch::VideoAlone, tensor([3.0, 3.0])),
        ];
        let terms = Terms { scale: 2.0, skip: 0.5, modality: 1.25, rescale: 0.0 };
        assert_eq!(combined(terms, said), [5.5, -4.5]);
    }

    /// All of it taken back: the clean tokens deviate as the conditional ones do.
    #[test]
    fn rescaling_takes_the_deviation_back() {
        let said = vec![
            (Branch::Conditional, tensor([3.0, -1.0])),
            (Branch::Unconditional, tensor([1.0, 1.0])),
        ];
        let made = combined(Terms { scale: 3.0, rescale: 1.0, ..Terms::NONE }, said);
        let clean = [2.0 - 0.5 * made[0], 4.0 - 0.5 * made[1]];
        // Conditional: 0.5 and 4.5; guided: -1.5 and 6.5.
        assert!((clean[1] - clean[0] - 4.0).abs() < 1e-5, "{clean:?}");
        assert!((clean[0] + 0.75).abs() < 1e-5, "{clean:?}");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let bad = [
            Terms { skip: -1.0, ..Terms::NONE },
            Terms { modality: f64::NAN, ..Terms::NONE },
            Terms { rescale: 1.5, ..Terms::NONE },
        ];
        assert!(bad.into_iter().all(|terms| terms.checked().is_err()));
    }
}
