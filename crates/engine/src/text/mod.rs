//! Captions to embeddings: a tokenizer and a text encoder of a folder, and the rules they follow.

mod negative;
mod network;
mod prompts;

use std::path::PathBuf;
use std::sync::Arc;

use burn::tensor::{Device, FloatDType, Tensor};
use families::{Padding, TextRules};
use folder::tokenizer::{Cut, Tokenizer};
use folder::{ModelFolder, Weight};
use nn::Context;

pub use self::negative::{PromptSetup, encode_negative_prompt};
use self::network::TextNetwork;
pub(crate) use self::prompts::PromptEncoder;

use crate::error::Result;

/// Letters of what is not read of a caption that are shown.
const SHOWN: usize = 40;

/// An embedded caption with its padding.
#[derive(Clone, Debug)]
pub struct PromptEmbedding {
    /// The tokens, `[1, L, D]`.
    pub tokens: Tensor<3>,
    /// `[1, L]`, 1 where a token counts and 0 where it is padding. Padding comes last.
    pub mask: Tensor<2>,
    /// What became of the padding, by the rules of the encoder.
    pub padding: Padding,
}

impl PromptEmbedding {
    /// What a transformer is given.
    pub fn context(self) -> Context {
        match self.padding {
            Padding::Masked => Context::text(self.tokens, Some(self.mask)),
            Padding::Zeroed | Padding::Filled => Context::text(self.tokens, None),
        }
    }

    /// The tokens that count, `[L, D]`.
    pub(crate) fn valid(self) -> Tensor<2> {
        let count = self.mask.sum().into_scalar::<f32>() as usize;
        self.tokens.squeeze_dim::<2>(0).slice_dim(0, 0..count)
    }

    /// The same in another type.
    fn cast(self, dtype: FloatDType) -> PromptEmbedding {
        let (tokens, mask) = (self.tokens.cast(dtype), self.mask.cast(dtype));
        PromptEmbedding { tokens, mask, ..self }
    }
}

/// The folders of an encoder and of its tokenizer: `text_encoder`, `text_encoder_2`, ….
pub(crate) fn names(index: usize) -> [String; 2] {
    let suffix = if index == 0 { String::new() } else { format!("_{}", index.saturating_add(1)) };
    ["text_encoder", "tokenizer"].map(|name| format!("{name}{suffix}"))
}

/// The bytes of the weights of a folder's text encoder, from 0; none if it has no such encoder.
///
/// # Errors
/// Its files are not there.
pub fn encoder_bytes(folder: &ModelFolder, index: usize) -> Result<u64> {
    let [encoder, _] = names(index);
    if !folder.has(&encoder) {
        return Ok(0);
    }
    let size = |path: &PathBuf| std::fs::metadata(path).map_or(0, |file| file.len());
    Ok(folder.weights(&encoder)?.iter().map(size).sum())
}

/// A text encoder of a folder with its tokenizer.
#[derive(Clone)]
pub(crate) struct TextEncoder {
    rules: TextRules,
    tokenizer: Arc<Tokenizer>,
    network: TextNetwork,
}

impl TextEncoder {
    /// Opens the encoder and the tokenizer of an index and checks them; weights stay on disk, in the
    /// type they are stored in. A caption is read once, and rounding its encoder shows in every step.
    ///
    /// # Errors
    /// A part is missing, damaged or unsupported.
    pub(crate) fn open(folder: &ModelFolder, index: usize) -> Result<TextEncoder> {
        let [encoder, tokenizer] = names(index);
        let network = TextNetwork::open(folder, &encoder)?;
        let tokenizer =
            Tokenizer::open(&folder.component(&tokenizer)?).map_err(folder::Error::from)?;
        network.check(&tokenizer)?;
        let rules = families::text_rules(folder, (index, &encoder), tokenizer.max_length())?;
        Ok(TextEncoder { rules, tokenizer: Arc::new(tokenizer), network })
    }

    /// How captions are embedded unless a request says otherwise.
    pub(crate) fn rules(&self) -> TextRules {
        self.rules
    }

    /// The width of an embedding.
    pub(crate) fn width(&self) -> usize {
        self.network.width()
    }

    /// Opens the weights.
    ///
    /// # Errors
    /// Their files cannot be read any more.
    pub(crate) fn open_weights(&mut self, device: &Device) -> Result<()> {
        self.network.open_weights(device)
    }

    /// Its weights, as they are stored.
    pub(crate) fn weights(&self) -> Vec<Weight> {
        self.network.weights()
    }

    /// Lets go of the weights.
    pub(crate) fn close(&mut self) {
        self.network.close();
    }

    /// What a transformer reads of features that another trainer kept of a caption, `[1, L, D]` of the video and of the
    /// sound, of which those tokens count that `mask` `[1, L]` says; none where there is nothing between.
    ///
    /// # Errors
    /// The features do not fit.
    pub(crate) fn connected(
        &mut self,
        features: [Tensor<3>; 2],
        mask: &Tensor<2>,
        device: &Device,
    ) -> Result<Option<Tensor<3>>> {
        self.network.connected(features, mask, device)
    }

    /// What of a caption the rules leave unread, in words that follow its name.
    ///
    /// # Errors
    /// The tokenizer's.
    pub(crate) fn cut(&self, caption: &str, rules: &TextRules) -> Result<Option<String>> {
        let text = rules.preparation.apply(caption)?;
        let cut = self.tokenizer.cut(&text, rules.max_tokens).map_err(folder::Error::from)?;
        Ok(cut.map(|Cut { tokens, lost }| {
            let shown: String = lost.chars().take(SHOWN).collect();
            let more = if lost.chars().count() > SHOWN { "…" } else { "" };
            let most = rules.max_tokens;
            format!(
                "has {tokens} tokens and is cut at {most}; what is not read begins with `{shown}{more}`"
            )
        }))
    }

    /// The embedding of a caption as it was written: made ready, cut or padded to the tokens of the
    /// rules, and finished as they say.
    ///
    /// # Errors
    /// The tokenizer's and the network's.
    pub(crate) fn embed(
        &mut self,
        caption: &str,
        rules: &TextRules,
        device: &Device,
    ) -> Result<PromptEmbedding> {
        let text = rules.preparation.apply(caption)?;
        let tokens = self.tokenizer.encode(&text, rules.max_tokens).map_err(folder::Error::from)?;
        let (tokens, mask) = self.network.embed(&tokens, device)?;
        let tokens = rules.padding.apply(tokens, &mask);
        Ok(PromptEmbedding { tokens, mask, padding: rules.padding })
    }
}
