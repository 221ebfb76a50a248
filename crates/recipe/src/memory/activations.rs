//! What a forward pass leaves for the backward pass, and what it needs by itself.

use data::store::TEXT;
use nn::{Network, Recompute, Split, Store};
use parallel::Splits;

use super::F32;
use crate::error::{Error, Result};
use crate::model::{Model, TextForm};
use crate::schema::{Recipe, RecomputeConfig};

/// The tokens of a micro-batch.
#[derive(Clone, Copy)]
pub(super) struct Tokens {
    /// Of clips and references.
    pub(super) video: u64,
    /// Of sounds.
    pub(super) audio: u64,
    /// Of captions, padding included.
    pub(super) text: u64,
}

impl Tokens {
    /// Those of the largest part where so many ranks share clips and sounds; all have the captions.
    pub(super) fn shared_by(self, ranks: u64) -> Tokens {
        Tokens {
            video: self.video.div_ceil(ranks),
            audio: self.audio.div_ceil(ranks),
            text: self.text,
        }
    }
}

/// What one token leaves behind, in values.
pub(super) struct Width {
    /// In one block: what goes into each of its layers, and what comes out; of tokens of the video and
    /// of the sound, which has layers of its own.
    block: [u64; 2],
    /// In the stream between blocks.
    stream: u64,
    /// In the widest layer of a block.
    widest: u64,
    depth: u64,
    /// Multiplications and additions of all layers, whoever shares them.
    operations: f64,
}

impl Width {
    pub(super) fn of(network: &dyn Network, store: &Store) -> Result<Width> {
        Width::of_part(network, store, (&[], 1))
    }

    /// The same of one of so many ranks that share the matrices as a family's table says.
    pub(super) fn of_part(
        network: &dyn Network,
        store: &Store,
        (splits, ranks): (Splits, u64),
    ) -> Result<Width> {
        let targets = vec!["*".to_owned()];
        let census = train::LoraConfig { rank: 1, alpha: None, from: None, dropout: 0.0, targets };
        let layers = train::Adapters::find(census, network, store)?;
        let depth = network.depth().max(1) as u64;
        let (mut block, mut stream, mut widest, mut operations) = ([0, 0], 0, 0, 0.0);
        for (name, [inputs, outputs]) in
            layers.layers().filter(|(name, _)| name.contains("blocks."))
        {
            operations += 2.0 * (inputs * outputs) as f64;
            // Every layer keeps its input, and what follows it keeps its output.
            let [part_in, part_out] = match parallel::split_of(splits, name) {
                Some(Split::Columns) => [1, ranks],
                Some(Split::Rows) => [ranks, 1],
                Some(Split::Channels) | None => [1, 1],
            };
            let own = (inputs as u64).div_ceil(part_in) + (outputs as u64).div_ceil(part_out);
            block[usize::from(name.contains(".audio"))] += own;
            stream = stream.max(inputs.min(outputs) as u64);
            widest = widest.max(inputs.max(outputs) as u64);
        }
        Ok(Width { block: block.map(|all| all / depth), stream, widest, depth, operations })
    }

    /// Operations of the layers of all blocks for a token.
    pub(super) fn operations(&self) -> f64 {
        self.operations
    }

    /// Operations with which a token looks at so many others in all blocks.
    pub(super) fn mixing(&self, others: f64) -> f64 {
        4.0 * others * (self.stream * self.depth) as f64
    }

    /// The part of a forward pass that is done again on the way back.
    pub(super) fn recomputed(&self, recompute: Recompute) -> f64 {
        match recompute {
            Recompute::Never => 0.0,
            Recompute::PerBlock => 1.0,
            Recompute::Keep(kept) => 1.0 - (kept as f64 / self.depth as f64).min(1.0),
        }
    }

    /// Bytes that one block leaves.
    fn block(&self, tokens: Tokens) -> u64 {
        F32 * (tokens.video * self.block[0] + tokens.audio * self.block[1])
    }

    /// Bytes of the streams before all blocks.
    fn streams(&self, tokens: Tokens) -> u64 {
        F32 * (tokens.video + tokens.audio) * self.depth * self.stream
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
        // A caption as it enters the blocks, its gradient in this block and in all so far, and what
        // the layer before keeps of it; in a block its keys, the same normalised, and its values.
        let text = (4 + 3 * kept) * self.stream;
        let passing = F32 * ((tokens.video + tokens.audio) * flowing + tokens.text * text);
        kept * self.block(tokens) + self.streams(tokens) + passing
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
        let tokens = self.tokens(model)?;
        let budget = (gibibytes * f64::from(1 << 30)) as u64;
        let (streams, block) = (width.streams(tokens), width.block(tokens));
        Ok(Recompute::within(budget.saturating_sub(streams), block, width.depth as usize))
    }

    /// Tokens of the largest micro-batch.
    pub(super) fn tokens(&self, model: &Model) -> Result<Tokens> {
        let source = self.source(model)?;
        let samples = &source.samples;
        let patch: usize = model.description.geometry.patch.iter().product();
        let sources = self.strategy.flexible().sources();
        let mut largest = Tokens { video: 0, audio: 0, text: 0 };
        let mut seen = std::collections::BTreeSet::new();
        for index in 0..samples.count() {
            if !seen.insert(samples.group(index)) {
                continue;
            }
            let (mut video, mut audio) = (0, 0);
            let sample = samples.read(index)?;
            let used = |key: &String| key.contains("latents") && sources.contains(key);
            for (key, data) in sample.tensors.iter().filter(|(key, _)| used(key)) {
                // A moment of a sound is a token with all of its bins.
                let values = data.shape()[1..].iter().product::<usize>();
                match key.contains("audio") {
                    true => audio += data.shape()[1] as u64,
                    false => video += values.div_ceil(patch) as u64,
                }
            }
            let text = match &model.text {
                TextForm::Whole => sample.tensors.get(TEXT).map_or(0, |data| data.shape()[0]),
                TextForm::Rules(rules) => rules.max_tokens,
            };
            if video + audio >= largest.video + largest.audio {
                largest = Tokens { video, audio, text: text as u64 };
            }
        }
        let [video, audio, text] = [largest.video, largest.audio, largest.text]
            .map(|tokens| tokens * self.data.batch as u64);
        Ok(Tokens { video, audio, text })
    }
}
