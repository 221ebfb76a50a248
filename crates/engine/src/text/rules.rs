//! What happens to a caption before and after its encoder, as data: one set of rules per encoder.

use burn::tensor::Tensor;
use nn::Context;

use super::names;
use crate::error::{Error, Result};
use crate::folder::ModelFolder;
use crate::request::MOST_TOKENS;
use crate::tokenizer::caption;
use crate::{pixart, wan};

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
}

/// What becomes of the padding of an embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// It stays as the encoder gives it, and a mask hides it from the transformer.
    Masked,
    /// It is set to zero, and the transformer looks at it.
    Zeroed,
}

impl Preparation {
    pub(super) fn apply(self, text: &str) -> Result<String> {
        Ok(match self {
            Preparation::Plain => caption::plain(text),
            Preparation::Cleaned => caption::cleaned(text)?,
            Preparation::Repaired => caption::repaired(text),
        })
    }
}

impl Padding {
    /// Tokens `[B, L, D]` under their mask `[B, L]`.
    pub(super) fn apply(self, tokens: Tensor<3>, mask: &Tensor<2>) -> Tensor<3> {
        let [batch, length, width] = tokens.dims();
        match self {
            Padding::Masked => tokens,
            Padding::Zeroed => {
                let mask = mask.clone().reshape([batch, length, 1]);
                tokens * mask.expand([batch, length, width])
            }
        }
    }
}

impl TextRules {
    /// The rules of an encoder of a folder. Those of a family's own encoders are the family's. Any
    /// other follows the family that has an encoder of its class, for as many tokens as its
    /// tokenizer says.
    ///
    /// # Errors
    /// It is of a class that no family has.
    pub(super) fn of(
        folder: &ModelFolder,
        index: usize,
        max_length: Option<usize>,
    ) -> Result<TextRules> {
        let families: [(&[&str], &[TextRules]); 2] = [
            (&pixart::Pipeline::CLASSES, &pixart::Pipeline::TEXT),
            (&wan::Pipeline::CLASSES, &wan::Pipeline::TEXT),
        ];
        let own = families.iter().find(|(classes, _)| classes.contains(&folder.class()));
        if let Some(rules) = own.and_then(|(_, rules)| rules.get(index)) {
            return Ok(*rules);
        }
        let [encoder, _] = names(index);
        let rules = match folder.class_of(&encoder) {
            Some("T5EncoderModel") => pixart::Pipeline::TEXT[0],
            Some("UMT5EncoderModel") => wan::Pipeline::TEXT[0],
            other => {
                return Err(Error::Json {
                    path: folder.path().join("model_index.json"),
                    reason: format!(
                        "`{encoder}` is {}, which is not supported; supported: T5EncoderModel, \
                         UMT5EncoderModel",
                        other.unwrap_or("missing")
                    ),
                });
            }
        };
        let max_tokens = max_length.filter(|length| (1..=MOST_TOKENS).contains(length));
        Ok(TextRules { max_tokens: max_tokens.unwrap_or(rules.max_tokens), ..rules })
    }

    /// The context that inference gives a transformer, from tokens `[B, L, D]` that count where
    /// `mask` `[B, L]` is 1, as a dataset keeps them: as long as the rules say, with the padding that
    /// they say.
    ///
    /// # Errors
    /// There are more tokens than the rules allow.
    pub fn context(&self, tokens: Tensor<3>, mask: Tensor<2>) -> Result<Context> {
        let [batch, length, width] = tokens.dims();
        let Some(missing) = self.max_tokens.checked_sub(length) else {
            return Err(Error::Request(format!(
                "a caption has {length} tokens, but this model takes at most {}; preprocess the \
                 dataset for this model",
                self.max_tokens
            )));
        };
        let device = tokens.device();
        let tokens = Padding::Zeroed.apply(tokens, &mask);
        let tokens = Tensor::cat(vec![tokens, Tensor::zeros([batch, missing, width], &device)], 1);
        let mask = Tensor::cat(vec![mask, Tensor::zeros([batch, missing], &device)], 1);
        Ok(match self.padding {
            Padding::Masked => Context::text(tokens, Some(mask)),
            Padding::Zeroed => Context::text(tokens, None),
        })
    }
}
