//! The decoder: from the lowest level up to the pixels.

use nn::{Result, Weights};

use super::config::WanVaeConfig;
use super::encoder::middle;
use super::layers::{Causal, Layer, Norm, Pixelwise, Residual};
use super::network::Stream;
use super::resample::{Rate, Upsample};
use super::shortcut::{Change, Level, Shortcut};

/// Frames `[h, w, latent]` to frames `[H, W, out]`, the patch still in the channels.
pub(super) fn decoder(config: &WanVaeConfig, weights: &Weights<'_>) -> Result<Stream> {
    let widths = config.decoder_widths();
    let latent = config.latent_channels;
    let mut stream = Stream::default();
    stream.layer(Pixelwise::new(weights, "post_quant_conv", [latent; 2])?);
    let weights = weights.at("decoder");
    stream.layer(Causal::new(&weights, "conv_in", [latent, widths[0]])?);
    middle(&mut stream, &weights.at("mid_block"), widths[0])?;
    for level in 0..config.multiples.len() {
        let block = weights.at(format!("up_blocks.{level}"));
        match config.residual {
            true => residual_level(config, &mut stream, &block, level)?,
            false => plain_level(config, &mut stream, &block, level)?,
        }
        // The next level has larger frames, perhaps more of them.
        stream.stage(1);
    }
    let last = widths[widths.len() - 1];
    stream.layer(Norm::new(&weights, "norm_out", last)?);
    stream.layer(Causal::new(&weights, "conv_out", [last, config.out_channels])?);
    Ok(stream)
}

/// What the step up from a level does to the frame rate; none above the last.
fn rate(config: &WanVaeConfig, level: usize) -> Option<Rate> {
    config.halves_time.iter().rev().nth(level).map(|&halves| Rate::of(halves))
}

/// A level of Wan 2.1: the step up halves the channels.
fn plain_level(
    config: &WanVaeConfig,
    stream: &mut Stream,
    weights: &Weights<'_>,
    level: usize,
) -> Result<()> {
    let widths = config.decoder_widths();
    let outputs = widths[level + 1];
    let mut inputs = if level == 0 { widths[level] } else { widths[level] / 2 };
    for layer in 0..=config.layers_per_block {
        let weights = weights.at(format!("resnets.{layer}"));
        stream.layer(Residual::new(&weights, [inputs, outputs])?);
        inputs = outputs;
    }
    if let Some(rate) = rate(config, level) {
        let weights = weights.at("upsamplers.0");
        stream.layer(Upsample::new(&weights, [outputs, outputs / 2], rate)?);
    }
    Ok(())
}

/// A level of Wan 2.2, with its shortcut.
fn residual_level(
    config: &WanVaeConfig,
    stream: &mut Stream,
    weights: &Weights<'_>,
    level: usize,
) -> Result<()> {
    let widths = config.decoder_widths();
    let outputs = widths[level + 1];
    let mut inputs = widths[level];
    let mut layers: Vec<Box<dyn Layer>> = Vec::new();
    for layer in 0..=config.layers_per_block {
        let weights = weights.at(format!("resnets.{layer}"));
        layers.push(Box::new(Residual::new(&weights, [inputs, outputs])?));
        inputs = outputs;
    }
    let mut shortcut = Shortcut::None;
    if let Some(rate) = rate(config, level) {
        let upsample = Upsample::new(&weights.at("upsampler"), [outputs; 2], rate)?;
        layers.push(Box::new(upsample));
        shortcut = Shortcut::Repeat(Change { side: 2, rate, outputs });
    }
    stream.layer(Level::new(layers, shortcut));
    Ok(())
}
