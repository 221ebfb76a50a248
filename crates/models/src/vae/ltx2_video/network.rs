//! Encoder and decoder as rows of layers.

use burn::tensor::{Device, Tensor, TensorData};
use kernels::Activation;
use nn::{Result, Weights};

use super::config::Ltx2VideoVaeConfig;
use super::convolution::{Borders, Convolution};
use super::layers::{Down, Layer, Norm, Residual, Shape, Up, UpShape};
use crate::vae::frames::FrameTensor;

/// Width of the sinusoids of a timestep.
const SINUSOID: usize = 256;

/// Layers that a clip passes one after the other.
#[derive(Default)]
pub(super) struct Network(Vec<Box<dyn Layer>>);

impl Network {
    fn layer(&mut self, layer: impl Layer + 'static) {
        self.0.push(Box::new(layer));
    }

    /// All frames of the result; `tell` is told of each layer that is done.
    pub(super) fn run(
        &self,
        frames: Vec<FrameTensor>,
        tell: &mut dyn FnMut(),
    ) -> Result<Vec<FrameTensor>> {
        self.0.iter().try_fold(frames, |frames, layer| {
            let frames = layer.apply(frames)?;
            tell();
            Ok(frames)
        })
    }

    /// How many layers there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    fn residuals(&mut self, weights: &Weights<'_>, count: usize, shape: Shape<'_>) -> Result<()> {
        for layer in 0..count {
            self.layer(Residual::new(&weights.at(format!("resnets.{layer}")), shape)?);
        }
        Ok(())
    }
}

/// Patched frames to frames `[h, w, latent + 1]`, of which the last channel is the log-variance of all.
pub(super) fn encoder(config: &Ltx2VideoVaeConfig, weights: &Weights<'_>) -> Result<Network> {
    let weights = weights.at("encoder");
    let half = &config.encoder;
    let borders = Borders::from(half);
    let shape =
        |width| Shape { channels: [width; 2], borders, epsilon: config.epsilon, timestep: None };
    let latent = config.latent_channels;
    let pixels = config.in_channels * config.patch * config.patch;
    let mut network = Network::default();
    network.layer(Convolution::new(&weights, "conv_in", [pixels, latent], borders)?);
    for (at, level) in half.levels.iter().enumerate() {
        let weights = weights.at(format!("down_blocks.{at}"));
        network.residuals(&weights, level.layers, shape(level.inputs))?;
        if let Some(step) = level.step {
            let channels = [level.inputs, level.outputs];
            network.layer(Down::new(&weights.at("downsamplers.0"), channels, step, borders)?);
        }
    }
    network.residuals(&weights.at("mid_block"), half.layers, shape(half.width))?;
    network.layer(Norm::new(None, 0));
    network.layer(Convolution::new(&weights, "conv_out", [half.width, latent + 1], borders)?);
    Ok(network)
}

/// Frames `[h, w, latent]` to patched frames; a model that is not told a timestep does not look at it.
pub(super) fn decoder(
    config: &Ltx2VideoVaeConfig,
    weights: &Weights<'_>,
    timestep: f64,
) -> Result<Network> {
    let weights = weights.at("decoder");
    let half = &config.decoder;
    let borders = Borders::from(half);
    let timestep = Timestep::new(config, &weights, timestep)?;
    let mut network = Network::default();
    let channels = [config.latent_channels, half.width];
    network.layer(Convolution::new(&weights, "conv_in", channels, borders)?);
    let middle = weights.at("mid_block");
    let said = timestep.said(&middle, [4, half.width])?;
    let (channels, epsilon) = ([half.width; 2], config.epsilon);
    let shape = Shape { channels, borders, epsilon, timestep: said.as_ref() };
    network.residuals(&middle, half.layers, shape)?;
    let mut last = half.width;
    for (at, level) in half.levels.iter().enumerate() {
        let weights = weights.at(format!("up_blocks.{at}"));
        let width = level.outputs * level.factor;
        if level.inputs != width {
            let shape = Shape { channels: [level.inputs, width], timestep: None, ..shape };
            network.layer(Residual::new(&weights.at("conv_in"), shape)?);
        }
        let said = timestep.said(&weights, [4, level.outputs])?;
        if let Some(step) = level.step {
            let (factor, residual) = (level.factor, level.residual);
            let up = UpShape { inputs: width, step, factor, residual, borders };
            network.layer(Up::new(&weights.at("upsamplers.0"), up)?);
        }
        last = level.outputs;
        let shape = Shape { channels: [last; 2], borders, epsilon, timestep: said.as_ref() };
        network.residuals(&weights, level.layers, shape)?;
    }
    let table = match timestep.said(&weights, [2, last])? {
        Some(said) => Some(weights.table("scale_shift_table", [2, last])? + said),
        None => None,
    };
    network.layer(Norm::new(table.as_ref(), 0));
    let pixels = config.out_channels * config.patch * config.patch;
    network.layer(Convolution::new(&weights, "conv_out", [last, pixels], borders)?);
    Ok(network)
}

/// The sinusoids of the timestep, `[1, SINUSOID]`, where the decoder is told one.
struct Timestep(Option<Tensor<2>>);

impl Timestep {
    fn new(config: &Ltx2VideoVaeConfig, weights: &Weights<'_>, timestep: f64) -> Result<Timestep> {
        if !config.timestep_conditioning {
            return Ok(Timestep(None));
        }
        let scale = weights.scalar("timestep_scale_multiplier")?;
        let number = TensorData::new(vec![timestep as f32], [1, 1]);
        let number = Tensor::<2>::from_data(number, &Device::flex()) * scale.reshape([1, 1]);
        Ok(Timestep(Some(nn::timestep_embedding(&number, SINUSOID).reshape([1, SINUSOID]))))
    }

    /// What the embedder of a level makes of it, `[rows, width]`.
    fn said(&self, weights: &Weights<'_>, [rows, width]: [usize; 2]) -> Result<Option<Tensor<2>>> {
        let Some(sinusoids) = &self.0 else { return Ok(None) };
        let weights = weights.at("time_embedder.timestep_embedder");
        let inner = weights.linear("linear_1", SINUSOID, rows * width)?;
        let outer = weights.linear("linear_2", rows * width, rows * width)?;
        let said = outer.apply(inner.apply_with(sinusoids.clone(), Activation::Silu)?)?;
        Ok(Some(said.reshape([rows, width])))
    }
}
