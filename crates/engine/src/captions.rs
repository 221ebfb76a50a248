//! Captions to embeddings: a tokenizer and a T5 encoder, and embeddings that users bring.

use std::path::Path;

use burn::tensor::{Device, Int, Tensor, TensorData};
use diffusion::Branch;
use models::text::t5::{T5Config, T5Encoder};
use nn::{Context, Weights};

use crate::component::{Component, Holding};
use crate::error::{Error, Result};
use crate::folder::ModelFolder;
use crate::progress::{self, Progress};
use crate::tokenizer::Tokenizer;
use crate::{finite, tensors};

/// Embedded captions of a request, `[1, L, D]` each.
#[derive(Clone)]
pub(crate) struct Captions {
    /// One per prompt.
    pub(crate) prompts: Vec<Context>,
    /// One per prompt, or none where no guidance asks for them.
    pub(crate) negatives: Vec<Context>,
}

/// A text encoder of a folder with its tokenizer.
pub(crate) struct TextEncoder {
    tokenizer: Tokenizer,
    network: T5Encoder,
    component: Component,
}

impl TextEncoder {
    /// Opens `text_encoder` and `tokenizer` and checks them; weights stay on disk, in the type they
    /// are stored in. A caption is read once, and rounding its encoder shows in every step.
    ///
    /// # Errors
    /// A part is missing, damaged or unsupported.
    pub(crate) fn open(folder: &ModelFolder) -> Result<TextEncoder> {
        let config = T5Config::from_json(&folder.text("text_encoder", "config.json")?)?;
        let network = T5Encoder::new(config);
        let weights = folder.weights("text_encoder")?;
        let component = Component::new(weights, Holding::STORED, &T5Encoder::IGNORED, |weights| {
            network.declare(weights)
        })?;
        let tokenizer = Tokenizer::open(&folder.component("tokenizer")?)?;
        Ok(TextEncoder { tokenizer, network, component })
    }

    /// The width of an embedding.
    pub(crate) fn width(&self) -> usize {
        self.network.config.width
    }

    /// Lets go of the weights.
    pub(crate) fn close(&mut self) {
        self.component.close();
    }

    /// Embeds all prompts and, if there is one, the negative prompt, which serves them all.
    ///
    /// # Errors
    /// A caption cannot be embedded, or an interruption.
    pub(crate) fn encode(
        &mut self,
        prompts: &[String],
        negative: Option<&str>,
        progress: &mut dyn Progress,
        mut embed: impl FnMut(&mut TextEncoder, &str) -> Result<Context>,
    ) -> Result<Captions> {
        let texts: Vec<&str> = prompts.iter().map(String::as_str).chain(negative).collect();
        progress.begin("encode", texts.len());
        let mut contexts = Vec::with_capacity(texts.len());
        for (done, text) in texts.iter().enumerate() {
            progress::check(progress)?;
            contexts.push(embed(self, text)?);
            progress.reach(done + 1);
        }
        let negatives = match negative {
            Some(_) => vec![contexts.pop().expect("the negative prompt came last"); prompts.len()],
            None => Vec::new(),
        };
        Ok(Captions { prompts: contexts, negatives })
    }

    /// The embedding `[1, L, D]` of a clean caption of at most `max_tokens` tokens, padding and its
    /// mask `[1, L]` included.
    ///
    /// # Errors
    /// The tokenizer's and the network's.
    pub(crate) fn embed(
        &mut self,
        text: &str,
        max_tokens: usize,
        device: &Device,
    ) -> Result<Context> {
        let tokens = self.tokenizer.encode(text, max_tokens)?;
        let shape = [1, tokens.ids.len()];
        let ids: Vec<i64> = tokens.ids.iter().map(|id| i64::from(*id)).collect();
        let mask: Vec<f32> = tokens.mask.iter().map(|keep| f32::from(*keep)).collect();
        let ids: Tensor<2, Int> = Tensor::from_data(TensorData::new(ids, shape), device);
        let mask: Tensor<2> = Tensor::from_data(TensorData::new(mask, shape), device);
        let store = self.component.open(device)?;
        let tokens = self.network.encode(&Weights::new(store), ids, mask.clone())?;
        finite::check(&tokens, "the text encoder", store)?;
        Ok(Context::text(tokens, Some(mask)))
    }
}

/// Embeddings from a file the user gave, of the width the transformer takes.
///
/// # Errors
/// A tensor is missing, or its shape does not fit.
pub(crate) fn given(
    path: &Path,
    width: usize,
    branches: &[Branch],
    device: &Device,
) -> Result<Captions> {
    let keys = ["prompt_embeds", "prompt_attention_mask"];
    let prompts = given_contexts(path, keys, width, device)?;
    if !branches.contains(&Branch::Unconditional) {
        return Ok(Captions { prompts, negatives: Vec::new() });
    }
    let keys = ["negative_prompt_embeds", "negative_prompt_attention_mask"];
    let mut negatives = given_contexts(path, keys, width, device)?;
    if negatives.len() == 1 {
        negatives = vec![negatives[0].clone(); prompts.len()];
    }
    if negatives.len() != prompts.len() {
        let reason = format!(
            "`negative_prompt_embeds` has {} captions, but `prompt_embeds` has {}; give one, or as many",
            negatives.len(),
            prompts.len()
        );
        return Err(Error::Tensor { path: path.to_owned(), reason });
    }
    Ok(Captions { prompts, negatives })
}

fn given_contexts(
    path: &Path,
    [embeds, mask]: [&str; 2],
    want: usize,
    device: &Device,
) -> Result<Vec<Context>> {
    let tokens = tensors::require::<3>(path, embeds, device)?;
    let mask_values = tensors::read::<2>(path, mask, device)?;
    let [batch, length, width] = tokens.dims();
    let wrong = |reason| Err(Error::Tensor { path: path.to_owned(), reason });
    if width != want {
        return wrong(format!("`{embeds}` has width {width}, but the transformer takes {want}"));
    }
    if length == 0 {
        return wrong(format!("`{embeds}` has no tokens; give 1 or more"));
    }
    if let Some(mask_values) = &mask_values
        && mask_values.dims() != [batch, length]
    {
        let got = mask_values.dims();
        return wrong(format!(
            "`{mask}` has shape {got:?}, but `{embeds}` asks for {:?}",
            [batch, length]
        ));
    }
    let context = |sample: usize| {
        let rows = sample..sample + 1;
        let mask = mask_values.clone().map(|mask| mask.slice_dim(0, rows.clone()));
        Context::text(tokens.clone().slice_dim(0, rows), mask)
    };
    Ok((0..batch).map(context).collect())
}
