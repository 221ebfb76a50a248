//! What a forward pass leaves for the backward pass, and what it needs by itself.

use data::store::TEXT;
use nn::{Network, Recompute, Store};

use super::F32;
use crate::error::{Error, Result};
use crate::model::{Model, TextForm};
use crate::schema::{Recipe, RecomputeConfig};

/// The tokens of a micro-batch.
#[derive(Clone, Copy)]
pub(super) struct Tokens {
    /// Of clips, references and sounds.
    pub(super) own: u64,
    /// Of captions, padding included.
    pub(super) text: u64,
}

/// What one token leaves behind, in values.
pub(super) struct Width {
    /// In one block: what goes into each of its layers, and what comes out.
    block: u64,
    /// In the stream between blocks.
    stream: u64,
    /// In the widest layer of a block.
    widest: u64,
    depth: u64,
}

impl Width {
    pub(super) fn of(network: &dyn Network, store: &Store) -> Result<Width> {
        let targets = vec!["*".to_owned()];
        let census = train::LoraConfig { rank: 1, alpha: None, dropout: 0.0, targets };
        let layers = train::Adapters::find(census, network, store)?;
        let depth = network.depth().max(1) as u64;
        let (mut block, mut stream, mut widest) = (0, 0, 0);
        for (_, [inputs, outputs]) in layers.layers().filter(|(name, _)| name.contains("blocks.")) {
            // Every layer keeps its input, and what follows it keeps its output.
            block += (inputs + outputs) as u64;
            stream = stream.max(inputs.min(outputs) as u64);
            widest = widest.max(inputs.max(outputs) as u64);
        }
        Ok(Width { block: block / depth, stream, widest, depth })
    }

    /// Bytes that a backward pass over so many tokens keeps.
    pub(super) fn backward(&self, tokens: Tokens, recompute: Recompute) -> u64 {
        let kept = match recompute {
            Recompute::Never => self.depth,
            Recompute::PerBlock => 1,
            Recompute::Keep(kept) => (kept as u64 + 1).min(self.depth),
        };
        // Of the layer at hand: the gradients of its output and of its input, and the former once more
        // with its sides swapped, for the gradient of the weight; of the stream, in and out.
        let flowing = 3 * self.widest + 2 * self.stream;
        let own = kept * self.block + self.depth * self.stream + flowing;
        // A caption as it enters the blocks, its gradient in this block and in all so far, and what
        // the layer before keeps of it; in a block its keys, the same normalised, and its values.
        let text = (4 + 3 * kept) * self.stream;
        F32 * (tokens.own * own + tokens.text * text)
    }

    /// Bytes that a pass over so many tokens needs which nothing is learnt from: a stream, what is
    /// added to it, queries, keys, values and what they give, and the widest layer with its input.
    pub(super) fn forward(&self, tokens: u64) -> u64 {
        tokens * F32 * (6 * self.stream + 2 * self.widest)
    }
}

impl Recipe {
    /// What a role keeps for its backward pass.
    pub(crate) fn recompute(&self, model: &Model, config: RecomputeConfig) -> Result<Recompute> {
        Ok(match config {
            RecomputeConfig::Never => Recompute::Never,
            RecomputeConfig::PerBlock => Recompute::PerBlock,
            RecomputeConfig::Within { gibibytes } => self.recompute_within(model, gibibytes)?,
        })
    }

    /// How many blocks keep their graphs within so much memory.
    pub(crate) fn recompute_within(&self, model: &Model, gibibytes: f64) -> Result<Recompute> {
        if !(gibibytes.is_finite() && gibibytes > 0.0) {
            return Err(Error::Recipe(format!(
                "recompute.gibibytes is {gibibytes}; give one above 0"
            )));
        }
        let width = Width::of(&**model.network(), &model.store)?;
        let tokens = self.tokens(model)?.own;
        let budget = (gibibytes * f64::from(1 << 30)) as u64;
        let streams = tokens * F32 * width.depth * width.stream;
        let block = tokens * F32 * width.block;
        Ok(Recompute::within(budget.saturating_sub(streams), block, width.depth as usize))
    }

    /// Tokens of the largest micro-batch.
    pub(super) fn tokens(&self, model: &Model) -> Result<Tokens> {
        let source = self.source(model)?;
        let samples = &source.samples;
        let patch: usize = model.description.geometry.patch.iter().product();
        let (mut largest, mut text) = (0, 0);
        let mut seen = std::collections::BTreeSet::new();
        for index in 0..samples.count() {
            if seen.insert(samples.group(index)) {
                let sample = samples.read(index)?;
                let latents = sample.tensors.iter().filter(|(key, _)| key.contains("latents"));
                let tokens = latents.map(|(_, data)| {
                    data.shape()[1..].iter().product::<usize>().div_ceil(patch) as u64
                });
                largest = largest.max(tokens.sum::<u64>());
                let words = sample.tensors.get(TEXT).map_or(0, |data| data.shape()[0]);
                text = text.max(match &model.text {
                    TextForm::Whole => words,
                    TextForm::Rules(rules) => rules.max_tokens,
                } as u64);
            }
        }
        let batch = self.data.batch as u64;
        Ok(Tokens { own: largest * batch, text: text * batch })
    }
}
