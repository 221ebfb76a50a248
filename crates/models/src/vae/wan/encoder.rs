//! The encoder: from the pixels down to the moments of a latent.

use nn::{Result, Weights};

use super::config::WanVaeConfig;
use super::layers::{Attention, Causal, Layer, Norm, Pixelwise, Residual};
use super::network::Stream;
use super::resample::{Downsample, Rate};
use super::shortcut::{Change, Level, Shortcut};

/// Frames `[H, W, in]`, the patch in the channels, to frames `[h, w, 2 latent]`: means, then
/// log-variances.
pub(super) fn encoder(config: &WanVaeConfig, root: &Weights<'_>) -> Result<Stream> {
    let widths = config.encoder_widths();
    let weights = root.at("encoder");
    let mut stream = Stream::default();
    stream.layer(Causal::new(&weights, "conv_in", [config.in_channels, widths[0]])?);
    match config.residual {
        true => residual_levels(config, &mut stream, &weights)?,
        false => plain_levels(config, &mut stream, &weights)?,
    }
    let last = widths[widths.len() - 1];
    middle(&mut stream, &weights.at("mid_block"), last)?;
    let moments = 2 * config.latent_channels;
    stream.layer(Norm::new(&weights, "norm_out", last)?);
    stream.layer(Causal::new(&weights, "conv_out", [last, moments])?);
    stream.layer(Pixelwise::new(root, "quant_conv", [moments; 2])?);
    Ok(stream)
}

/// The blocks at the lowest level.
pub(super) fn middle(stream: &mut Stream, weights: &Weights<'_>, width: usize) -> Result<()> {
    stream.layer(Residual::new(&weights.at("resnets.0"), [width; 2])?);
    stream.layer(Attention::new(&weights.at("attentions.0"), width)?);
    stream.layer(Residual::new(&weights.at("resnets.1"), [width; 2])?);
    Ok(())
}

/// Two frames become one where time is halved.
fn grain(rate: Rate) -> usize {
    if rate == Rate::Changed { 2 } else { 1 }
}

/// The levels of Wan 2.1, whose layers are counted through.
fn plain_levels(config: &WanVaeConfig, stream: &mut Stream, weights: &Weights<'_>) -> Result<()> {
    let widths = config.encoder_widths();
    let mut names = (0..).map(|layer| weights.at(format!("down_blocks.{layer}")));
    let mut next = || names.next().expect("there are as many names as numbers");
    for level in 0..config.multiples.len() {
        let (mut inputs, outputs) = (widths[level], widths[level + 1]);
        for _ in 0..config.layers_per_block {
            stream.layer(Residual::new(&next(), [inputs, outputs])?);
            inputs = outputs;
        }
        if let Some(&halves) = config.halves_time.get(level) {
            let rate = Rate::of(halves);
            stream.stage(grain(rate));
            stream.layer(Downsample::new(&next(), outputs, rate)?);
        }
    }
    Ok(())
}

/// The levels of Wan 2.2, with their shortcuts.
fn residual_levels(
    config: &WanVaeConfig,
    stream: &mut Stream,
    weights: &Weights<'_>,
) -> Result<()> {
    let widths = config.encoder_widths();
    for level in 0..config.multiples.len() {
        let weights = weights.at(format!("down_blocks.{level}"));
        let (mut inputs, outputs) = (widths[level], widths[level + 1]);
        let mut layers: Vec<Box<dyn Layer>> = Vec::new();
        for layer in 0..config.layers_per_block {
            let weights = weights.at(format!("resnets.{layer}"));
            layers.push(Box::new(Residual::new(&weights, [inputs, outputs])?));
            inputs = outputs;
        }
        let mut change = Change { side: 1, rate: Rate::Kept, outputs };
        if let Some(&halves) = config.halves_time.get(level) {
            change = Change { side: 2, rate: Rate::of(halves), outputs };
            let weights = weights.at("downsampler");
            layers.push(Box::new(Downsample::new(&weights, outputs, change.rate)?));
        }
        stream.stage(grain(change.rate));
        stream.layer(Level::new(layers, Shortcut::Average(change)));
    }
    Ok(())
}
