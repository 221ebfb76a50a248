//! What a model is given and what it answers.

use burn::tensor::{Int, Tensor};

use crate::error::{Error, Result};
use crate::positions::Positions;
use crate::tracks::Tracks;

/// Everything one forward pass sees: a picture or video, a sound, or both.
pub type Inputs = Tracks<Modality>;

/// What a model answers, token by token, `[B, T, C']` for every modality that it was given.
pub type Prediction = Tracks<Tensor<3>>;

impl Inputs {
    /// The picture or video, for networks that know nothing else.
    ///
    /// # Errors
    /// There is none, or there is a sound too.
    pub fn video_alone(&self) -> Result<&Modality> {
        let refuse = |what, got: &str| {
            let want = "this transformer makes pictures and videos, and no sound".to_owned();
            Err(Error::Shape { what, got: got.to_owned(), want })
        };
        match (&self.video, &self.audio) {
            (Some(video), None) => Ok(video),
            (Some(_), Some(_)) => refuse("the sound", "given"),
            (None, _) => refuse("the video", "missing"),
        }
    }
}

/// One stream of tokens with what conditions it. Any subset of tokens is a legal input.
#[derive(Clone, Debug)]
pub struct Modality {
    /// Noisy latents as tokens, `[B, T, C]`.
    pub tokens: Tensor<3>,
    /// The noise levels.
    pub levels: Levels,
    /// One noise level per sample, `[B]`, for what is conditioned as a whole.
    pub sigma: Tensor<1>,
    /// Where the tokens are.
    pub positions: Positions,
    /// What it is about.
    pub context: Context,
    /// The size of the whole picture, for families that are told it.
    pub size: Option<SizeCondition>,
    /// Whether this stream takes part at all.
    pub enabled: bool,
    /// Blocks in which its tokens do not look at each other, for networks that can be asked so.
    pub skipped: Vec<usize>,
}

/// Noise levels as the network's timesteps: few distinct ones, and which of them each token has.
#[derive(Clone, Debug)]
pub struct Levels {
    /// `[B, K]`.
    pub distinct: Tensor<2>,
    /// `[B, T]`; `None` where every sample has one level.
    pub index: Option<Tensor<2, Int>>,
}

impl Levels {
    /// One level per sample, `[B]`.
    pub fn per_sample(levels: Tensor<1>) -> Levels {
        let [batch] = levels.dims();
        Levels { distinct: levels.reshape([batch, 1]), index: None }
    }
}

/// Embedded text, and pictures for families that look at them.
#[derive(Clone, Debug)]
pub struct Context {
    /// The text, `[B, L, D]`.
    pub tokens: Tensor<3>,
    /// `[B, L]`, 1 where a token counts and 0 where it is padding.
    pub mask: Option<Tensor<2>>,
    /// An image encoder's tokens `[B, L', D']`, those of several pictures one after the other.
    pub image: Option<Tensor<3>>,
}

impl Context {
    /// Text `[B, L, D]` alone, with its mask `[B, L]`.
    pub fn text(tokens: Tensor<3>, mask: Option<Tensor<2>>) -> Context {
        Context { tokens, mask, image: None }
    }

    /// What is added to the scores of the text so that padding is not seen, `[B, 1, 1, L]`.
    pub fn text_mask(&self) -> Option<Tensor<4>> {
        self.mask.as_ref().map(|mask| {
            let [batch, length] = mask.dims();
            kernels::additive_mask(mask.clone().greater_elem(0.5)).reshape([batch, 1, 1, length])
        })
    }
}

/// The size of the whole picture in pixels and its proportion.
#[derive(Clone, Debug)]
pub struct SizeCondition {
    /// Height and width, `[B, 2]`.
    pub resolution: Tensor<2>,
    /// Height over width, `[B, 1]`.
    pub aspect_ratio: Tensor<2>,
}
