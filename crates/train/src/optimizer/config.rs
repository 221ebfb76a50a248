//! The settings of optimizers, as a recipe has them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::eight_bit;
use crate::error::{Error, Result};

/// Which optimizer, with its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum OptimizerConfig {
    /// AdamW.
    AdamW(AdamWConfig),
    /// AdamW that remembers its means in eight bits, in a quarter of the memory.
    #[serde(rename = "adamw8bit")]
    AdamW8Bit(AdamWConfig),
    /// Muon for the matrices of the blocks, AdamW for the rest.
    Muon(MuonConfig),
    /// Stochastic gradient descent with momentum.
    Sgd(SgdConfig),
}

/// Settings of AdamW; the defaults are PyTorch's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdamWConfig {
    /// How much of the old means stays.
    pub betas: [f64; 2],
    /// Added to the root of the second mean.
    #[schemars(extend("minimum" = 0))]
    pub epsilon: f64,
    /// How much of a parameter is taken away per learning rate.
    #[schemars(extend("minimum" = 0))]
    pub weight_decay: f64,
    /// Whether biases, norms and other vectors are left without weight decay.
    pub spare_vectors: bool,
}

/// Settings of Muon (Jordan 2024).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MuonConfig {
    /// How much of the old mean stays.
    #[schemars(extend("minimum" = 0, "exclusiveMaximum" = 1))]
    pub momentum: f64,
    /// Whether the gradient is added once more to the mean.
    pub nesterov: bool,
    /// Newton-Schulz iterations.
    pub iterations: usize,
    /// How much of a parameter is taken away per learning rate.
    #[schemars(extend("minimum" = 0))]
    pub weight_decay: f64,
    /// How the learning rate depends on the shape of a matrix.
    pub match_rate: LrMatch,
    /// Matrices whose names contain one of these are left to AdamW: embeddings and heads.
    pub exclude: Vec<String>,
    /// AdamW for everything that is no matrix, or excluded.
    pub rest: AdamWConfig,
}

/// How Muon's learning rate depends on the shape of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LrMatch {
    /// `sqrt(max(1, rows / columns))`, as first published.
    Original,
    /// `0.2 sqrt(max(rows, columns))`: updates as large as AdamW's, so both share a learning rate.
    AdamW,
}

/// Settings of SGD.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SgdConfig {
    /// How much of the old direction stays.
    #[schemars(extend("minimum" = 0, "exclusiveMaximum" = 1))]
    pub momentum: f64,
    /// How much of a parameter is taken away per learning rate, apart from the gradient.
    #[schemars(extend("minimum" = 0))]
    pub weight_decay: f64,
}

impl Default for AdamWConfig {
    fn default() -> AdamWConfig {
        let betas = [0.9, 0.999];
        AdamWConfig { betas, epsilon: 1e-8, weight_decay: 0.01, spare_vectors: false }
    }
}

impl Default for MuonConfig {
    fn default() -> MuonConfig {
        MuonConfig {
            momentum: 0.95,
            nesterov: true,
            iterations: 5,
            weight_decay: 0.0,
            match_rate: LrMatch::AdamW,
            exclude: ["embed", "head", "proj_out", "table"].map(str::to_owned).to_vec(),
            rest: AdamWConfig::default(),
        }
    }
}

impl Default for SgdConfig {
    fn default() -> SgdConfig {
        SgdConfig { momentum: 0.9, weight_decay: 0.0 }
    }
}

impl Default for OptimizerConfig {
    fn default() -> OptimizerConfig {
        OptimizerConfig::AdamW(AdamWConfig::default())
    }
}

impl OptimizerConfig {
    /// Bytes of what is remembered of a parameter.
    pub fn state_bytes(&self, name: &str, shape: &[usize]) -> u64 {
        let numbers = shape.iter().product();
        match self {
            OptimizerConfig::AdamW8Bit(_) if eight_bit::is_coded(numbers) => {
                eight_bit::bytes(numbers) as u64
            }
            _ => self.saved_bytes(name, shape),
        }
    }

    /// Bytes of it in a checkpoint, which holds numbers in f32.
    pub fn saved_bytes(&self, name: &str, shape: &[usize]) -> u64 {
        let tensors = match self {
            OptimizerConfig::AdamW(_) | OptimizerConfig::AdamW8Bit(_) => 2,
            OptimizerConfig::Muon(config) if config.takes(name, shape) => 1,
            OptimizerConfig::Muon(_) => 2,
            OptimizerConfig::Sgd(_) => 1,
        };
        (tensors * shape.iter().product::<usize>() * size_of::<f32>()) as u64
    }

    /// # Errors
    /// A number that cannot be.
    pub fn check(&self) -> Result<()> {
        match self {
            OptimizerConfig::AdamW(config) | OptimizerConfig::AdamW8Bit(config) => config.check(),
            OptimizerConfig::Muon(config) => {
                share("optimizer.momentum", config.momentum)?;
                not_negative("optimizer.weight_decay", config.weight_decay)?;
                if !(1..100).contains(&config.iterations) {
                    let want = "from 1 to 99 iterations make sense";
                    return Err(Error::setting("optimizer.iterations", config.iterations, want));
                }
                config.rest.check()
            }
            OptimizerConfig::Sgd(config) => {
                share("optimizer.momentum", config.momentum)?;
                not_negative("optimizer.weight_decay", config.weight_decay)
            }
        }
    }
}

impl AdamWConfig {
    fn check(&self) -> Result<()> {
        self.betas.iter().try_for_each(|beta| share("optimizer.betas", *beta))?;
        not_negative("optimizer.epsilon", self.epsilon)?;
        not_negative("optimizer.weight_decay", self.weight_decay)
    }

    /// The settings for one parameter.
    pub(super) fn for_shape(&self, shape: &[usize]) -> AdamWConfig {
        let spared = self.spare_vectors && shape.iter().filter(|size| **size > 1).count() < 2;
        let weight_decay = if spared { 0.0 } else { self.weight_decay };
        AdamWConfig { weight_decay, ..self.clone() }
    }
}

impl MuonConfig {
    /// Whether Muon, and not AdamW, updates this parameter.
    pub(super) fn takes(&self, name: &str, shape: &[usize]) -> bool {
        let matrix = shape.len() == 2 && shape.iter().all(|size| *size > 1);
        matrix && !self.exclude.iter().any(|part| name.contains(part.as_str()))
    }
}

fn share(key: &str, value: f64) -> Result<()> {
    match (0.0..1.0).contains(&value) {
        true => Ok(()),
        false => Err(Error::setting(key, value, "it lies between 0 and 1, 1 not included")),
    }
}

fn not_negative(key: &str, value: f64) -> Result<()> {
    match value.is_finite() && value >= 0.0 {
        true => Ok(()),
        false => Err(Error::setting(key, value, "it is a number that is not below 0")),
    }
}
