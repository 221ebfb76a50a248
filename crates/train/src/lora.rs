//! Which layers get low-rank adapters (Hu et al. 2021), how these begin, and what dropout hides from them.
//!
//! A targeted layer `x W^T` becomes `x W^T + (alpha / rank) drop(x) A^T B^T`, with parameters
//! `<layer>.lora_A.weight` `[rank, inputs]` and `<layer>.lora_B.weight` `[outputs, rank]` beside its own.
//! The change itself is `nn`'s, as it is when a LoRA is loaded, merged or exported.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use burn::tensor::{Device, Tensor, TensorData};
use diffusion::Draw;
use nn::{Bias, Linear, LowRank, Network, Parameter, Part, Provider, Store, Weights, most_similar};
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Which layers are adapted, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoraConfig {
    /// The rank of the adapters.
    #[schemars(range(min = 1))]
    pub rank: usize,
    /// Their strength is `alpha / rank`; the rank if it is not said.
    #[serde(default)]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub alpha: Option<f64>,
    /// A LoRA file that the adapters begin as, in any dialect and of this rank; without one they change
    /// nothing at first.
    #[serde(default)]
    pub from: Option<String>,
    /// The share of inputs an adapter does not see, in training only.
    #[serde(default)]
    #[schemars(extend("minimum" = 0, "exclusiveMaximum" = 1))]
    pub dropout: f64,
    /// Names of layers: `to_q` means every layer called so or ending in `.to_q`; `*` stands for
    /// anything in a whole name.
    pub targets: Vec<String>,
}

impl LoraConfig {
    /// What the product of the adapters is multiplied by.
    pub fn strength(&self) -> f64 {
        self.alpha.unwrap_or(self.rank as f64) / self.rank as f64
    }

    /// # Errors
    /// No rank, a dropout of everything, a strength that is not above 0.
    pub fn check(&self) -> Result<()> {
        if self.rank == 0 {
            return Err(Error::setting("lora.rank", 0, "it is at least 1"));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(Error::setting("lora.dropout", self.dropout, "it lies from 0 to below 1"));
        }
        if self.targets.is_empty() {
            return Err(Error::setting("lora.targets", "empty", "it names at least one layer"));
        }
        match self.strength().is_finite() && self.strength() > 0.0 {
            true => Ok(()),
            false => {
                let alpha = self.alpha.unwrap_or_default();
                Err(Error::setting("lora.alpha", alpha, "it is above 0"))
            }
        }
    }
}

/// Whether `pattern` means the layer or parameter `name`.
pub fn matches(pattern: &str, name: &str) -> bool {
    if !pattern.contains('*') {
        return name == pattern || name.ends_with(&format!(".{pattern}"));
    }
    let mut rest = name;
    let mut parts = pattern.split('*').peekable();
    if let Some(first) = parts.next() {
        let Some(after) = rest.strip_prefix(first) else { return false };
        rest = after;
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(found) = rest.find(part) else { return false };
        rest = &rest[found + part.len()..];
    }
    rest.is_empty()
}

/// The adapters of one role: which layers have one.
#[derive(Clone, Debug)]
pub struct Adapters {
    config: LoraConfig,
    layers: BTreeMap<String, [usize; 2]>,
}

impl Adapters {
    /// Finds the layers that `config` targets.
    ///
    /// # Errors
    /// A setting that cannot be, or a pattern that matches no layer.
    pub fn find(config: LoraConfig, network: &dyn Network, store: &Store) -> Result<Adapters> {
        config.check()?;
        let census = Census { store, layers: RefCell::default() };
        network.declare(&Weights::new(&census))?;
        let all = census.layers.into_inner();
        for pattern in &config.targets {
            if !all.keys().any(|layer| matches(pattern, layer)) {
                let last = |layer: &'_ str| layer.rsplit('.').next().unwrap_or("").to_owned();
                let names: BTreeSet<String> = all.keys().map(|layer| last(layer)).collect();
                let near = most_similar(pattern, all.keys().map(String::as_str))
                    .or_else(|| most_similar(pattern, names.iter().map(String::as_str)));
                let (key, pattern) = ("learns.targets: ", pattern.clone());
                return Err(Error::NoMatch { key, pattern, what: "layer", near });
            }
        }
        let targeted = |layer: &str| config.targets.iter().any(|pattern| matches(pattern, layer));
        let layers = all.into_iter().filter(|(layer, _)| targeted(layer)).collect();
        Ok(Adapters { config, layers })
    }

    /// Its settings.
    pub fn config(&self) -> &LoraConfig {
        &self.config
    }

    /// The layers it adapts, with inputs and outputs.
    pub fn layers(&self) -> impl Iterator<Item = (&str, [usize; 2])> {
        self.layers.iter().map(|(layer, size)| (layer.as_str(), *size))
    }

    /// The names of its parameters with their shapes.
    pub fn shapes(&self) -> impl Iterator<Item = (String, Vec<usize>)> {
        let rank = self.config.rank;
        self.layers.iter().flat_map(move |(layer, [inputs, outputs])| {
            let [down, up] = LowRank::names(layer);
            [(down, vec![rank, *inputs]), (up, vec![*outputs, rank])]
        })
    }

    /// The layers of `base` with the adapters beside them, and dropout in training.
    pub fn beside<'a>(&self, base: &'a dyn Provider, dropout: Option<Dropout>) -> nn::Adapted<'a> {
        let (rank, share) = (self.config.rank, self.config.dropout);
        let dropout = dropout.filter(|_| share > 0.0);
        let mut adapters = nn::Adapters::default();
        for layer in self.layers.keys() {
            let own = dropout.map(|dropout| dropout.of(layer, share));
            let adapter = nn::Adapter::named(layer, rank, self.config.strength() as f32, own);
            adapters.push(format!("{layer}.weight"), adapter);
        }
        nn::Adapted::new(base, adapters)
    }

    /// New adapters that change nothing yet: `A` random in `+-1 / sqrt(inputs)`, `B` zero.
    pub fn initial(&self, draw: Draw, device: &Device) -> Vec<(String, Parameter)> {
        let rank = self.config.rank;
        let both = self.layers.iter().flat_map(|(layer, [inputs, outputs])| {
            let bound = 1.0 / (*inputs as f32).sqrt();
            let uniform = draw.stream(layer).uniform(0..rank * inputs);
            let values = uniform.into_iter().map(|unit| (2.0 * unit - 1.0) * bound);
            let down = TensorData::new(values.collect::<Vec<_>>(), [rank, *inputs]);
            let up = Tensor::<2>::zeros([*outputs, rank], device);
            let [down_name, up_name] = LowRank::names(layer);
            [
                (down_name, Parameter::new(Tensor::<2>::from_data(down, device))),
                (up_name, Parameter::new(up)),
            ]
        });
        both.collect()
    }
}

/// Lists the linear layers of a network.
struct Census<'a> {
    store: &'a Store,
    layers: RefCell<BTreeMap<String, [usize; 2]>>,
}

impl Provider for Census<'_> {
    fn values(&self, name: &str, shape: &[usize]) -> nn::Result<Tensor<1>> {
        self.store.values(name, shape)
    }

    fn has(&self, name: &str) -> bool {
        Provider::has(self.store, name)
    }

    fn quantized(&self, name: &str, shape: [usize; 2]) -> nn::Result<Option<nn::QuantizedMatrix>> {
        Provider::quantized(self.store, name, shape)
    }

    fn linear(
        &self,
        leaves: &dyn Provider,
        name: &str,
        sizes: [usize; 2],
        bias: Bias,
        part: &Part,
    ) -> nn::Result<Linear> {
        self.layers.borrow_mut().insert(name.to_owned(), sizes);
        self.store.linear(leaves, name, sizes, bias, part)
    }
}

/// What dropout is drawn from in one training pass: numbers belong to (layer, sample, element).
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    /// Keyed by seed and step.
    pub draw: Draw,
    /// The global index of the first sample.
    pub first: u64,
    /// How many samples share a call.
    pub samples: usize,
}

impl Dropout {
    /// What an adapter of `layer` sees of its input, a `share` of which is dropped.
    fn of(self, layer: &str, share: f64) -> nn::Dropout {
        let draw = self.draw.stream("lora-dropout").stream(layer);
        let own = Dropout { draw, ..self };
        Arc::new(move |x| own.apply(x, share))
    }

    /// Zeroes a share of `x` `[rows, inputs]` and enlarges the rest; rows come sample by sample.
    fn apply(&self, x: Tensor<2>, share: f64) -> Tensor<2> {
        let [rows, inputs] = x.dims();
        // What no sample owns, a layer over something that all share, has one draw for all.
        let owned = self.samples > 0 && rows % self.samples == 0;
        let groups = if owned { self.samples } else { 1 };
        let kept = (1.0 / (1.0 - share)) as f32;
        let masks: Vec<Vec<f32>> = (0..groups)
            .into_par_iter()
            .map(|group| {
                let draw = match owned {
                    true => self.draw.sample(self.first + group as u64),
                    false => self.draw,
                };
                let unit = draw.uniform(0..rows / groups * inputs);
                let keep = |unit: f32| if f64::from(unit) < share { 0.0 } else { kept };
                unit.into_iter().map(keep).collect()
            })
            .collect();
        let mask = TensorData::new(masks.concat(), [rows, inputs]);
        let device = x.device();
        x * Tensor::from_data(mask, &device)
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_plain_pattern_is_a_whole_last_part() {
        assert!(matches("to_k", "blocks.0.attn1.to_k") && matches("to_k", "to_k"));
        assert!(matches("attn1.to_k", "blocks.0.attn1.to_k"));
        // A longer name that merely ends alike is another layer.
        assert!(!matches("attn1.to_k", "blocks.0.audio_attn1.to_k"));
        assert!(!matches("to_k", "blocks.0.to_k_2") && !matches("to", "blocks.0.to_k"));
    }

    #[test]
    fn a_star_stands_for_anything() {
        assert!(matches("blocks.*.to_q", "blocks.12.attn1.to_q"));
        assert!(matches("*attn2*", "blocks.1.attn2.to_q") && matches("*", "x"));
        assert!(!matches("blocks.*.to_q", "blocks.12.attn1.to_k"));
        assert!(!matches("blocks.1.*", "blocks.12.attn1.to_k"));
        assert!(!matches("a*b*c", "abx"));
    }
}
