//! What training adds noise by, and what a network predicts: `Flow` or `Vp`.
//!
//! Methods speak of clean tokens and levels only. A level is a number from 0 (clean) to 1 (the
//! most noise) per token or per sample: a tensor `[batch, tokens or 1, 1]`.

use burn::tensor::{Device, Tensor, TensorData};

/// The timesteps a flow network counts from no noise to pure noise.
const FLOW_TIMESTEPS: f64 = 1000.0;

/// How noise is added, and what the network is asked to predict.
#[derive(Debug, Clone, PartialEq)]
pub enum Process {
    /// A straight line from data to noise, `x = (1 - level) clean + level epsilon`. The network
    /// predicts its velocity `epsilon - clean`.
    Flow,
    /// The same line; the network predicts the clean sample. Wide tokens are learnt sooner so.
    FlowClean,
    /// A variance-preserving process on discrete timesteps,
    /// `x = sqrt(a) clean + sqrt(1 - a) epsilon` with `a = alphas_cumprod[timestep]`. Levels are
    /// spread evenly over the timesteps: 0 is the first, 1 the last.
    Vp {
        /// How much of the signal's variance is left at each timestep.
        alphas_cumprod: Vec<f32>,
        /// What the network predicts.
        prediction: VpPrediction,
    },
}

/// What the network of a variance-preserving process predicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VpPrediction {
    /// The noise.
    Epsilon,
    /// The velocity `sqrt(a) epsilon - sqrt(1 - a) clean`.
    Velocity,
    /// The clean sample.
    Sample,
}

impl Process {
    /// Mixes `clean` and `epsilon` (both `[batch, tokens, channels]`) at `level`.
    pub fn noise(&self, clean: Tensor<3>, epsilon: Tensor<3>, level: Tensor<3>) -> Tensor<3> {
        let (alpha, sigma) = self.scales(level);
        clean * alpha + epsilon * sigma
    }

    /// What the network should predict for `clean` mixed with `epsilon` at `level`.
    pub fn target(&self, clean: Tensor<3>, epsilon: Tensor<3>, level: Tensor<3>) -> Tensor<3> {
        match self {
            Process::Flow => epsilon - clean,
            Process::FlowClean => clean,
            Process::Vp { prediction: VpPrediction::Epsilon, .. } => epsilon,
            Process::Vp { prediction: VpPrediction::Sample, .. } => clean,
            Process::Vp { prediction: VpPrediction::Velocity, .. } => {
                let (alpha, sigma) = self.scales(level);
                epsilon * alpha - clean * sigma
            }
        }
    }

    /// The clean tokens that a prediction for `noisy` implies, all `[batch, tokens, channels]`.
    pub fn clean(&self, noisy: Tensor<3>, prediction: Tensor<3>, level: Tensor<3>) -> Tensor<3> {
        match self {
            Process::Flow => noisy - prediction * level,
            Process::FlowClean | Process::Vp { prediction: VpPrediction::Sample, .. } => prediction,
            Process::Vp { prediction: VpPrediction::Epsilon, .. } => {
                let (alpha, sigma) = self.scales(level);
                (noisy - prediction * sigma) / alpha
            }
            Process::Vp { prediction: VpPrediction::Velocity, .. } => {
                let (alpha, sigma) = self.scales(level);
                noisy * alpha - prediction * sigma
            }
        }
    }

    /// The prediction as solvers want it: solvers of a flow follow velocities, all
    /// `[batch, tokens, channels]`. Where there is no noise there is no velocity either.
    pub fn for_solver(
        &self,
        noisy: Tensor<3>,
        prediction: Tensor<3>,
        level: Tensor<3>,
    ) -> Tensor<3> {
        match self {
            Process::FlowClean => {
                let moving = level.clone().greater_elem(0.0).float();
                (noisy - prediction) * moving / level.clamp_min(f32::MIN_POSITIVE)
            }
            Process::Flow | Process::Vp { .. } => prediction,
        }
    }

    /// The timestep that the network is told for `level`, of the same shape.
    pub fn timestep(&self, level: Tensor<3>) -> Tensor<3> {
        match self {
            Process::Flow | Process::FlowClean => level * FLOW_TIMESTEPS,
            Process::Vp { alphas_cumprod, .. } => (level * last_timestep(alphas_cumprod)).round(),
        }
    }

    /// The level of a timestep of a solver, the inverse of [`Process::timestep`].
    pub fn level(&self, timestep: f64) -> f64 {
        match self {
            Process::Flow | Process::FlowClean => timestep / FLOW_TIMESTEPS,
            Process::Vp { alphas_cumprod, .. } => timestep / last_timestep(alphas_cumprod).max(1.0),
        }
    }

    /// How much signal and how much noise there is at `level`, each of the shape of `level`.
    fn scales(&self, level: Tensor<3>) -> (Tensor<3>, Tensor<3>) {
        match self {
            Process::Flow | Process::FlowClean => (-level.clone() + 1.0, level),
            Process::Vp { alphas_cumprod, .. } => {
                let (shape, device) = (level.dims(), level.device());
                let timesteps = self.timestep(level).flatten::<1>(0, 2).int();
                let kept = table(alphas_cumprod, &device).select(0, timesteps).reshape(shape);
                (kept.clone().sqrt(), (-kept + 1.0).sqrt())
            }
        }
    }
}

fn last_timestep(alphas_cumprod: &[f32]) -> f64 {
    alphas_cumprod.len().saturating_sub(1) as f64
}

fn table(values: &[f32], device: &Device) -> Tensor<1> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), device)
}
