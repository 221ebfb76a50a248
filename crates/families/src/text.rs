//! What happens to a caption before and after its encoder, as data: one set of rules per encoder.

use burn::tensor::Tensor;
use folder::tokenizer::caption;
use nn::Context;

use crate::error::Result;

/// The rules of one of a family's text encoders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncoderRules {
    /// The class of the encoder.
    pub class: &'static str,
    /// How its captions are embedded.
    pub rules: TextRules,
}

/// How the captions of an encoder are embedded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextRules {
    /// What happens to a caption before it is cut into tokens.
    pub preparation: Preparation,
    /// Tokens of an embedding, padding included.
    pub max_tokens: usize,
    /// What becomes of the padding.
    pub padding: Padding,
}

/// What happens to a caption before it is cut into tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preparation {
    /// Lower case, without surrounding space.
    Plain,
    /// Also cleaned of addresses, markup and the like.
    Cleaned,
    /// Characters repaired, white space joined; its case stays.
    Repaired,
    /// As it is, without surrounding space.
    Stripped,
}

/// What becomes of the padding of an embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// It stays as the encoder gives it, and a mask hides it from the transformer.
    Masked,
    /// It is set to zero, and the transformer looks at it.
    Zeroed,
    /// The encoder leaves none: something that it learnt stands in its place.
    Filled,
}

impl Preparation {
    /// A caption made ready.
    ///
    /// # Errors
    /// It cannot be cleaned.
    pub fn apply(self, text: &str) -> Result<String> {
        Ok(match self {
            Preparation::Plain => caption::plain(text),
            Preparation::Cleaned => caption::cleaned(text).map_err(folder::Error::from)?,
            Preparation::Repaired => caption::repaired(text),
            Preparation::Stripped => text.trim().to_owned(),
        })
    }
}

impl Padding {
    /// Tokens `[B, L, D]` under their mask `[B, L]`.
    pub fn apply(self, tokens: Tensor<3>, mask: &Tensor<2>) -> Tensor<3> {
        let [batch, length, width] = tokens.dims();
        match self {
            Padding::Masked | Padding::Filled => tokens,
            Padding::Zeroed => {
                let mask = mask.clone().reshape([batch, length, 1]);
                tokens * mask.expand([batch, length, width])
            }
        }
    }
}

impl TextRules {
    /// Text tokens at the most: the bias of T5's scores grows with their square.
    pub const MOST_TOKENS: usize = 4096;

    /// The context that inference gives a transformer, from tokens `[B, L, D]` that count where
    /// `mask` `[B, L]` is 1, as a dataset keeps them: as long as the rules say, with the padding that
    /// they say.
    ///
    /// # Errors
    /// There are more tokens than the rules allow.
    pub fn context(&self, tokens: Tensor<3>, mask: Tensor<2>) -> Result<Context> {
        let [batch, length, width] = tokens.dims();
        let Some(missing) = self.max_tokens.checked_sub(length) else {
            return Err(folder::Error::Unfit(format!(
                "a caption has {length} tokens, but this model takes at most {}; preprocess the \
                 dataset for this model",
                self.max_tokens
            ))
            .into());
        };
        if self.padding == Padding::Filled {
            return Ok(Context::text(tokens, (missing > 0).then_some(mask)));
        }
        let device = tokens.device();
        let tokens = Padding::Zeroed.apply(tokens, &mask);
        let tokens = Tensor::cat(vec![tokens, Tensor::zeros([batch, missing, width], &device)], 1);
        let mask = Tensor::cat(vec![mask, Tensor::zeros([batch, missing], &device)], 1);
        Ok(match self.padding {
            Padding::Masked => Context::text(tokens, Some(mask)),
            Padding::Zeroed | Padding::Filled => Context::text(tokens, None),
        })
    }
}
