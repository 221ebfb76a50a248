//! The encoder: from the pixels down to the moments of a latent.

use super::blocks::Network;
use super::config::KlConfig;

/// `[B, H, W, in]` to `[B, h, w, 2 latent]`: means, then log-variances.
pub(super) fn encoder(config: &KlConfig) -> Network {
    let moments = 2 * config.latent_channels;
    let mut width = config.widths[0];
    let mut network = Network::new(config.groups);
    network.convolution("encoder.conv_in", [config.in_channels, width], 3);
    for (level, &next) in config.widths.iter().enumerate() {
        let block = format!("encoder.down_blocks.{level}");
        for layer in 0..config.layers_per_block {
            network.residual(&format!("{block}.resnets.{layer}"), [width, next]);
            width = next;
        }
        if level + 1 < config.widths.len() {
            network.downsample(&format!("{block}.downsamplers.0.conv"), width);
        }
    }
    network.middle("encoder.mid_block", width, config.attention);
    network.norm("encoder.conv_norm_out", width);
    network.convolution("encoder.conv_out", [width, moments], 3);
    if config.quant_convolution {
        network.convolution("quant_conv", [moments; 2], 1);
    }
    network
}
