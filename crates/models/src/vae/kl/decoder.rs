//! The decoder: from the lowest level up to the pixels.

use super::blocks::Network;
use super::config::KlConfig;

/// `[B, h, w, latent]` to `[B, H, W, out]`.
pub(super) fn decoder(config: &KlConfig) -> Network {
    let latent = config.latent_channels;
    let lowest = *config.widths.last().expect("a checked config has a level");
    let mut network = Network::new(config.groups);
    if config.post_quant_convolution {
        network.convolution("post_quant_conv", [latent; 2], 1);
    }
    network.convolution("decoder.conv_in", [latent, lowest], 3);
    network.middle("decoder.mid_block", lowest, config.attention);
    let mut width = lowest;
    for (level, &next) in config.widths.iter().rev().enumerate() {
        let block = format!("decoder.up_blocks.{level}");
        for layer in 0..=config.layers_per_block {
            network.residual(&format!("{block}.resnets.{layer}"), [width, next]);
            width = next;
        }
        if level + 1 < config.widths.len() {
            network.upsample(&format!("{block}.upsamplers.0.conv"), width);
        }
    }
    network.norm("decoder.conv_norm_out", width);
    network.convolution("decoder.conv_out", [width, config.out_channels], 3);
    network
}
