//! What a user asks for.

use std::path::PathBuf;

use crate::error::{Error, Result};

/// Pictures of one run at the most; all of them are held until the end.
const MOST_PICTURES: usize = 10_000;

/// A request as it was written; a pipeline checks it against its model.
#[derive(Clone, Debug)]
pub struct Request {
    /// One picture (or `count` pictures) per prompt.
    pub prompts: Vec<String>,
    /// What the pictures should not be.
    pub negative: String,
    /// Denoising steps.
    pub steps: usize,
    /// Guidance scale; at 1 and below the negative prompt plays no part.
    pub guidance: f64,
    /// Height in pixels; the model's own if not given.
    pub height: Option<usize>,
    /// Width in pixels; the model's own if not given.
    pub width: Option<usize>,
    /// The seed of all noise.
    pub seed: u64,
    /// Pictures per prompt.
    pub count: usize,
    /// Text tokens at the most; the model's own if not given.
    pub max_tokens: Option<usize>,
    /// How much noise DDIM puts back.
    pub eta: Option<f64>,
    /// Initial latents instead of noise from the seed: a safetensors file with key `noise`.
    pub noise: Option<PathBuf>,
    /// Text embeddings instead of prompts.
    pub prompt_embeds: Option<PathBuf>,
    /// Repair captions scraped from the web.
    pub clean_caption: CaptionStyle,
    /// Generate at the nearest size the model was trained on and resize.
    pub sizing: Sizing,
    /// Decode in tiles.
    pub decoding: Decoding,
}

impl Request {
    /// How many pictures it makes of `prompts` prompts.
    ///
    /// # Errors
    /// None, or more than a run can hold.
    pub fn pictures(&self, prompts: usize) -> Result<usize> {
        let count = self.count;
        if prompts == 0 || count == 0 {
            let reason = "there is nothing to generate; give a --prompt and a --count of 1 or more";
            return Err(Error::Request(reason.to_owned()));
        }
        let pictures = prompts.checked_mul(count).filter(|pictures| *pictures <= MOST_PICTURES);
        pictures.ok_or_else(|| {
            Error::Request(format!(
                "--count {count} for {prompts} prompt(s) is more than the {MOST_PICTURES} pictures \
                 of one run; lower it or run several times"
            ))
        })
    }
}

/// What happens to a caption before it is cut into tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptionStyle {
    /// Lower case, without surrounding space.
    Plain,
    /// Also cleaned of addresses, markup and the like.
    Cleaned,
}

/// At which size a picture is generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizing {
    /// At the size asked for.
    Exact,
    /// At the nearest size of the training, then resized and cropped.
    Binned,
}

/// How latents become pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoding {
    /// All at once.
    Whole,
    /// In tiles that overlap: less memory, slightly different pixels.
    Tiled,
}
