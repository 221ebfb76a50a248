//! The captions of a request, embedded, and embeddings that users bring.

use std::ops::Range;
use std::path::Path;

use burn::tensor::Device;
use nn::Context;

use crate::error::{Error, Result};
use crate::tensors;

/// Embedded captions of a request, `[1, L, D]` each.
#[derive(Clone)]
pub(crate) struct Captions {
    /// One per prompt.
    pub(crate) prompts: Vec<Context>,
    /// One per prompt, or none where no guidance asks for them.
    pub(crate) negatives: Vec<Context>,
}

impl Captions {
    /// Those of some of the prompts.
    pub(crate) fn of(&self, prompts: Range<usize>) -> Captions {
        let negatives = match self.negatives.is_empty() {
            true => Vec::new(),
            false => self.negatives[prompts.clone()].to_vec(),
        };
        Captions { prompts: self.prompts[prompts].to_vec(), negatives }
    }

    /// One of them alone, or all.
    ///
    /// # Errors
    /// There are not so many.
    pub(crate) fn only(self, path: &Path, row: Option<usize>) -> Result<Captions> {
        let Some(row) = row else { return Ok(self) };
        let count = self.prompts.len();
        if row >= count {
            let reason =
                format!("it holds {count} caption(s), but number {row} (from 0) is asked for");
            return Err(Error::Tensor { path: path.to_owned(), reason });
        }
        let one = |all: Vec<Context>| all.into_iter().skip(row).take(1).collect();
        Ok(Captions { prompts: one(self.prompts), negatives: one(self.negatives) })
    }
}

/// Embeddings from a file the user gave, of the width the transformer takes.
///
/// # Errors
/// A tensor is missing, or its shape does not fit.
pub(crate) fn given(
    path: &Path,
    width: usize,
    is_guided: bool,
    device: &Device,
) -> Result<Captions> {
    let keys = ["prompt_embeds", "prompt_attention_mask"];
    let prompts = given_contexts(path, keys, width, device)?;
    if !is_guided {
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
