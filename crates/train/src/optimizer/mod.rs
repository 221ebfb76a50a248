//! Optimizers on named flat tensors.
//!
//! The state of every parameter exists from the start, so that a checkpoint is complete before the
//! first step and restoring never has to guess what is missing.

mod config;
mod eight_bit;
#[cfg(test)]
mod golden;
mod muon;

use std::collections::BTreeMap;

use burn::tensor::Tensor;
use kernels::{AdamStep, Moments, adamw, blend};
use nn::Parameter;
use rayon::prelude::*;

pub use config::{AdamWConfig, LrMatch, MuonConfig, OptimizerConfig, SgdConfig};

use self::eight_bit::CodedMoments;
use crate::error::Result;
use crate::state::StateDict;

/// One optimizer with its state for every parameter of a role.
#[derive(Clone, Debug)]
pub struct Optimizer {
    config: OptimizerConfig,
    slots: BTreeMap<String, Slot>,
}

/// The state of one parameter.
#[derive(Clone, Debug)]
struct Slot {
    shape: Vec<usize>,
    /// How often this parameter was updated: one without a gradient is passed over.
    count: u64,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Adam(AdamWConfig, Moments),
    Adam8Bit(AdamWConfig, CodedMoments),
    Muon(MuonConfig, Tensor<1>),
    Sgd(SgdConfig, Tensor<1>),
}

/// What one update brings along.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Update {
    /// The learning rate.
    pub(crate) rate: f64,
    /// What gradients are multiplied by first: the clipping factor.
    pub(crate) scale: f64,
}

impl Optimizer {
    /// StateDict of zeros for all parameters.
    ///
    /// # Errors
    /// A number of the config that cannot be.
    pub fn new<'a>(
        config: OptimizerConfig,
        parameters: impl Iterator<Item = (&'a str, &'a Parameter)>,
    ) -> Result<Optimizer> {
        config.check()?;
        let slots = parameters.map(|(name, parameter)| {
            let zeros = || parameter.values.zeros_like();
            let kind = match &config {
                OptimizerConfig::AdamW8Bit(config)
                    if eight_bit::is_coded(parameter.values.dims()[0]) =>
                {
                    let moments = CodedMoments::zeros(&parameter.values);
                    Kind::Adam8Bit(config.for_shape(&parameter.shape), moments)
                }
                OptimizerConfig::AdamW(config) | OptimizerConfig::AdamW8Bit(config) => {
                    let moments = Moments { first: zeros(), second: zeros() };
                    Kind::Adam(config.for_shape(&parameter.shape), moments)
                }
                OptimizerConfig::Muon(config) if config.takes(name, &parameter.shape) => {
                    Kind::Muon(config.clone(), zeros())
                }
                OptimizerConfig::Muon(config) => {
                    let moments = Moments { first: zeros(), second: zeros() };
                    Kind::Adam(config.rest.for_shape(&parameter.shape), moments)
                }
                OptimizerConfig::Sgd(config) => Kind::Sgd(*config, zeros()),
            };
            (name.to_owned(), Slot { shape: parameter.shape.clone(), count: 0, kind })
        });
        let slots = slots.collect();
        Ok(Optimizer { config, slots })
    }

    /// The config it was made with.
    pub fn config(&self) -> &OptimizerConfig {
        &self.config
    }

    /// Parameters after one update by their gradients, `(parameter, gradient)` by name. Each is a
    /// task of its own: small ones would not keep several threads busy.
    pub(crate) fn step(
        &mut self,
        mut work: BTreeMap<String, (Tensor<1>, Tensor<1>)>,
        update: Update,
    ) -> Vec<(String, Tensor<1>)> {
        let due = self.slots.iter_mut().filter_map(|(name, slot)| {
            let (parameter, gradient) = work.remove(name)?;
            Some((name, slot, parameter, gradient))
        });
        let due: Vec<_> = due.collect();
        assert!(work.is_empty(), "every trained parameter has its state");
        due.into_par_iter()
            .map(|(name, slot, parameter, gradient)| {
                slot.count += 1;
                let after = slot.kind.step(&slot.shape, slot.count, parameter, &gradient, update);
                (name.clone(), after)
            })
            .collect()
    }

    /// Everything it remembers.
    pub fn state(&self) -> StateDict {
        let mut state = StateDict::new();
        for (name, slot) in &self.slots {
            state.number(format!("{name}.step"), slot.count);
            for (part, values) in slot.kind.tensors() {
                let parameter = Parameter { values, shape: slot.shape.clone() };
                state.tensor(format!("{name}.{part}"), parameter);
            }
        }
        state
    }

    /// Continues from what [`Optimizer::state`] said.
    ///
    /// # Errors
    /// Something is missing, misshapen or left over.
    pub fn restore(&mut self, mut state: StateDict) -> Result<()> {
        for (name, slot) in &mut self.slots {
            slot.count = state.take_number(&format!("{name}.step"))?;
            let shape = slot.shape.clone();
            let mut take = |part: &str| -> Result<Tensor<1>> {
                Ok(state.take_tensor(&format!("{name}.{part}"), &shape)?.values)
            };
            match &mut slot.kind {
                Kind::Adam(_, moments) => *moments = taken_moments(take)?,
                Kind::Adam8Bit(_, moments) => moments.code(&taken_moments(take)?),
                Kind::Muon(_, momentum) | Kind::Sgd(_, momentum) => *momentum = take(MOMENTUM)?,
            }
        }
        state.finish()
    }
}

impl Kind {
    fn step(
        &mut self,
        shape: &[usize],
        count: u64,
        parameter: Tensor<1>,
        gradient: &Tensor<1>,
        update: Update,
    ) -> Tensor<1> {
        let Update { rate, scale } = update;
        match self {
            Kind::Adam(config, moments) => {
                let step = config.step(count, update);
                // The state moves through the kernel, so that it is changed where it lies.
                let taken = std::mem::replace(moments, nothing(gradient));
                let (parameter, updated) = adamw(parameter, taken, gradient, &step);
                *moments = updated;
                parameter
            }
            Kind::Adam8Bit(config, moments) => {
                moments.step(parameter, gradient, &config.step(count, update))
            }
            Kind::Muon(config, momentum) => {
                let taken = std::mem::replace(momentum, empty(gradient));
                let (parameter, updated) =
                    muon::step(config, shape, (parameter, taken), gradient, (rate, scale));
                *momentum = updated;
                parameter
            }
            Kind::Sgd(config, momentum) => {
                let taken = std::mem::replace(momentum, empty(gradient));
                let parameter = config.decayed(parameter, gradient, rate);
                *momentum = blend(taken, config.momentum, gradient, scale);
                blend(parameter, 1.0, momentum, -rate)
            }
        }
    }

    /// Its tensors under the names that PyTorch gives them.
    fn tensors(&self) -> Vec<(&'static str, Tensor<1>)> {
        let named = |Moments { first, second }| vec![(FIRST, first), (SECOND, second)];
        match self {
            Kind::Adam(_, moments) => named(moments.clone()),
            Kind::Adam8Bit(_, moments) => named(moments.moments()),
            Kind::Muon(_, momentum) | Kind::Sgd(_, momentum) => vec![(MOMENTUM, momentum.clone())],
        }
    }
}

/// What PyTorch calls the tensors that optimizers remember.
const FIRST: &str = "exp_avg";
const SECOND: &str = "exp_avg_sq";
const MOMENTUM: &str = "momentum_buffer";

/// Both moments out of a state.
fn taken_moments(mut take: impl FnMut(&str) -> Result<Tensor<1>>) -> Result<Moments> {
    Ok(Moments { first: take(FIRST)?, second: take(SECOND)? })
}

impl AdamWConfig {
    /// The numbers of one step.
    fn step(&self, count: u64, Update { rate, scale }: Update) -> AdamStep {
        let AdamWConfig { betas, epsilon, weight_decay, .. } = *self;
        AdamStep { rate, betas, epsilon, weight_decay, scale, count }
    }
}

impl SgdConfig {
    /// Weight decay apart from the gradient, as in AdamW.
    fn decayed(&self, parameter: Tensor<1>, gradient: &Tensor<1>, rate: f64) -> Tensor<1> {
        match self.weight_decay {
            0.0 => parameter,
            decay => blend(parameter, 1.0 - rate * decay, gradient, 0.0),
        }
    }
}

/// A place holder while the real tensor is being changed.
fn empty(like: &Tensor<1>) -> Tensor<1> {
    Tensor::zeros([1], &like.device())
}

fn nothing(like: &Tensor<1>) -> Moments {
    Moments { first: empty(like), second: empty(like) }
}
