//! A network by its sizes alone: the work of a transformer whose blocks are alike.

use std::collections::BTreeSet;

use nn::{Split, Tracks};

use super::network::{Mixing, Network, Part, Product, Rows, Run, Stream, Work};
use crate::plan::Workload;

/// How text is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextRole {
    /// Every block has an attention whose keys are the text.
    Cross,
    /// Text and tokens are one sequence; in so many of the blocks text has matrices of its own.
    Joint {
        /// How many of them.
        own_layers: usize,
    },
}

/// Text beside the streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextShape {
    /// Tokens of a prompt.
    pub tokens: usize,
    /// Values of a token before it is projected.
    pub width: usize,
    /// How it is looked at.
    pub role: TextRole,
}

/// The sizes of a transformer and of what is asked of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// Blocks.
    pub layers: usize,
    /// Width of a stream.
    pub width: usize,
    /// Heads of an attention.
    pub heads: usize,
    /// Width within a feed-forward.
    pub feed_forward: usize,
    /// Widths of a stream that each block makes of the noise level by a matrix of its own.
    pub modulation: usize,
    /// Tokens of each stream; where there are two, each looks at the other.
    pub tokens: Tracks<usize>,
    /// Values of a token of latents.
    pub channels: usize,
    /// The text.
    pub text: Option<TextShape>,
    /// Bytes of a parameter.
    pub parameter_bytes: u64,
    /// Predictions of a step.
    pub branches: usize,
    /// Steps.
    pub steps: usize,
    /// Samples.
    pub samples: usize,
    /// Rows of the video's latents, if it is decoded.
    pub latent_rows: Option<usize>,
    /// Operations before the steps.
    pub before: f64,
    /// Operations of decoding a sample.
    pub decode: f64,
    /// Bytes of what is computed while decoding.
    pub decode_bytes: u64,
    /// Bytes of the parameters of everything but the transformer.
    pub other_bytes: u64,
}

impl Shape {
    /// What it comes to.
    pub fn work(&self) -> Work {
        let workload = Workload {
            depth: self.layers,
            heads: self.heads,
            tokens: self.tokens,
            own_tokens: self.tokens,
            latent_rows: self.latent_rows,
            tiled: false,
            caches_steps: false,
            whole_rows: false,
            needs_whole: None,
            branches: self.branches,
            samples: self.samples,
        };
        Work {
            workload,
            runs: vec![Run {
                networks: vec![self.network()],
                steps: vec![vec![0; self.branches]; self.steps],
                switches: Vec::new(),
            }],
            before: self.before,
            decode: self.decode,
            decode_bytes: self.decode_bytes,
            other_bytes: self.other_bytes,
            together: 1,
        }
    }

    fn network(&self) -> Network {
        let spread = |width| {
            let streams = self.tokens.into_iter();
            streams
                .map(|spread| Stream { rows: Rows { spread, ..Rows::default() }, width })
                .collect()
        };
        let mut streams: Vec<Stream> = spread(self.width);
        if let (Some(first), Some(text)) = (streams.first_mut(), self.joint()) {
            first.rows.whole = text.tokens;
        }
        let around = |outputs, inputs| {
            let rows = self.tokens.into_iter().map(|spread| Rows { spread, ..Rows::default() });
            rows.map(|rows| self.product(rows, inputs, outputs, None)).collect()
        };
        Network {
            shared: self.part(self.conditions(), Vec::new(), 1),
            embed: self.part(around(self.width, self.channels), Vec::new(), 1),
            blocks: (0..self.layers).map(|layer| self.block(layer)).collect(),
            head: self.part(around(self.channels, self.width), Vec::new(), 1),
            streams: vec![streams; self.layers + 1],
            predictions: spread(self.channels),
            made: spread(self.channels),
        }
    }

    fn joint(&self) -> Option<TextShape> {
        self.text.filter(|text| matches!(text.role, TextRole::Joint { .. }))
    }

    fn conditions(&self) -> Vec<Product> {
        let text = self.text.iter().flat_map(|text| {
            let rows = match text.role {
                TextRole::Cross => Rows { constant: text.tokens, ..Rows::default() },
                TextRole::Joint { .. } => Rows { whole: text.tokens, ..Rows::default() },
            };
            [(text.width, self.width), (self.width, self.width)]
                .map(|(inputs, outputs)| self.product(rows, inputs, outputs, None))
        });
        text.collect()
    }

    fn block(&self, layer: usize) -> Part {
        let (mut products, mut mixings) = (Vec::new(), Vec::new());
        let level = Rows { whole: 1, ..Rows::default() };
        let (wide, feed) = (self.width, self.feed_forward);
        let columns = Some(Split::Columns);
        for (at, spread) in self.tokens.into_iter().enumerate() {
            let joint = self.joint().filter(|_| at == 0);
            let rows = Rows { spread, whole: joint.map_or(0, |text| text.tokens), constant: 0 };
            self.attend(rows, rows, &mut products, &mut mixings);
            if let Some(text) = self.text.filter(|_| self.joint().is_none()) {
                let keys = Rows { whole: text.tokens, ..Rows::default() };
                self.attend(rows, keys, &mut products, &mut mixings);
            }
            for other in self.tokens.into_iter().enumerate().filter(|(other, _)| *other != at) {
                let keys = Rows { spread: other.1, ..Rows::default() };
                self.attend(rows, keys, &mut products, &mut mixings);
            }
            products.push(self.product(rows, wide, feed, columns));
            products.push(self.product(rows, feed, wide, Some(Split::Rows)));
            if self.modulation > 0 {
                products.push(self.product(level, wide, wide * self.modulation, None));
            }
        }
        let own_text = match self.text.map(|text| text.role) {
            Some(TextRole::Joint { own_layers }) if layer < own_layers => 2,
            _ => 1,
        };
        self.part(products, mixings, own_text)
    }

    fn attend(
        &self,
        queries: Rows,
        keys: Rows,
        products: &mut Vec<Product>,
        mixings: &mut Vec<Mixing>,
    ) {
        let columns = Some(Split::Columns);
        // Keys and values of the text are made once.
        let of_keys = match keys.spread {
            0 => Rows { constant: keys.whole, ..Rows::default() },
            _ => keys,
        };
        for rows in [queries, of_keys, of_keys] {
            products.push(self.product(rows, self.width, self.width, columns));
        }
        products.push(self.product(queries, self.width, self.width, Some(Split::Rows)));
        let head_width = self.width / self.heads;
        mixings.push(Mixing { queries, keys, heads: self.heads, head_width });
    }

    fn product(&self, rows: Rows, inputs: usize, outputs: usize, split: Option<Split>) -> Product {
        Product { rows, inputs, outputs, split }
    }

    /// A part of so many copies of its matrices.
    fn part(&self, products: Vec<Product>, mixings: Vec<Mixing>, copies: u64) -> Part {
        let count = |split: bool| {
            let own = products.iter().filter(|own| own.split.is_some() == split);
            own.map(|own| (own.inputs * own.outputs) as u64).sum::<u64>() * copies
        };
        let (split_parameters, whole_parameters) = (count(true), count(false));
        let norms = Vec::new();
        let split_bytes = split_parameters * self.parameter_bytes;
        let whole_bytes = whole_parameters * self.parameter_bytes;
        Part {
            products,
            mixings,
            norms,
            split_parameters,
            whole_parameters,
            split_bytes,
            whole_bytes,
            // A file of sizes names nothing.
            names: BTreeSet::new(),
        }
    }
}
