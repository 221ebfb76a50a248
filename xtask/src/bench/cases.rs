//! What is compared: the names that both workers know, their arithmetic, and what we aim at.

/// One piece of work that both sides do.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) name: &'static str,
    /// Floating-point operations of one call in matrix products; none where memory is the limit.
    pub(super) flops: Option<f64>,
    /// How many times PyTorch's speed we promise at least.
    pub(super) goal: Option<f64>,
}

fn case(name: &'static str, flops: Option<f64>, goal: Option<f64>) -> Case {
    Case { name, flops, goal }
}

/// All cases, the small ones first.
pub(super) fn all() -> Vec<Case> {
    let linear = matmul(2048, 1536, 8960);
    let attention = attention_flops(12 * 128, 2048, 2048);
    let pixart = pixart_flops(4, 2, 1024, 120);
    let wan = wan_flops(2, 1950, 512);
    vec![
        case("linear_2048x1536x8960_f32", Some(linear), None),
        case("linear_2048x1536x8960_bf16", Some(linear), None),
        case("linear_2048x1536x8960_int8", Some(linear), None),
        case("attention_12x2048x128_forward", Some(attention), Some(1.0)),
        case("attention_bf16_12x2048x128_forward", Some(attention), None),
        // The backward of a product is two products; work that is done again is not counted.
        case("attention_12x2048x128_forward_backward", Some(3.0 * attention), Some(1.0)),
        case("gelu_tanh_2048x8960", None, Some(1.5)),
        case("gelu_erf_2048x8960", None, Some(1.5)),
        case("layer_norm_modulate_2048x1536", None, Some(1.5)),
        case("conv2d_3x3_128_256", Some(convolution(256, 3, 128, 128)), None),
        case("pixart_xl_4_layers_b2_1024_f32", Some(pixart), Some(1.05)),
        case("pixart_xl_4_layers_b2_1024_bf16", Some(pixart), None),
        case("wan_1_3b_2_layers_1950_f32", Some(wan), Some(1.05)),
        case("wan_1_3b_2_layers_1950_bf16", Some(wan), Some(1.05)),
        case("wan_1_3b_2_layers_training_step", Some(3.0 * wan), Some(1.0)),
        case("wan_1_3b_8_layers_training_ours_per_block_theirs_whole", None, None),
        case("wan_1_3b_8_layers_training_both_per_block", None, None),
        case("vae_decode_512", Some(vae_decode_flops(64)), Some(1.0)),
        case("wan_vae_decode_9_frames", Some(wan_vae_decode_flops(16, 3)), Some(1.2)),
        case("wan_vae_decode_17_frames", Some(wan_vae_decode_flops(16, 5)), Some(1.2)),
    ]
}

/// `[rows, inner] · [inner, columns]`.
fn matmul(rows: usize, inner: usize, columns: usize) -> f64 {
    2.0 * rows as f64 * inner as f64 * columns as f64
}

/// A square convolution with `kernel` × `kernel` taps that keeps an image of `side` × `side`.
fn convolution(side: usize, kernel: usize, input: usize, output: usize) -> f64 {
    matmul(side * side, kernel * kernel * input, output)
}

/// Scores and mixing; `width` is that of all heads together.
fn attention_flops(width: usize, queries: usize, keys: usize) -> f64 {
    2.0 * matmul(queries, width, keys)
}

/// The PixArt-XL transformer of width 1152 with `layers` blocks.
fn pixart_flops(layers: usize, batch: usize, tokens: usize, caption: usize) -> f64 {
    let width = 1152;
    let self_attention =
        4.0 * matmul(tokens, width, width) + attention_flops(width, tokens, tokens);
    let cross_attention = 2.0 * matmul(tokens, width, width)
        + 2.0 * matmul(caption, width, width)
        + attention_flops(width, tokens, caption);
    let feed_forward = 2.0 * matmul(tokens, width, 4 * width);
    let block = self_attention + cross_attention + feed_forward;
    let embed = matmul(tokens, 2 * 2 * 4, width)
        + matmul(caption, 4096, width)
        + matmul(caption, width, width);
    let timestep = matmul(1, 256, width) + matmul(1, width, width) + matmul(1, width, 6 * width);
    let head = matmul(tokens, width, 2 * 2 * 8);
    batch as f64 * (layers as f64 * block + embed + timestep + head)
}

/// The Wan-1.3B transformer of width 1536 with `layers` blocks, one sample.
fn wan_flops(layers: usize, tokens: usize, text: usize) -> f64 {
    let (width, feed) = (1536, 8960);
    let self_attention =
        4.0 * matmul(tokens, width, width) + attention_flops(width, tokens, tokens);
    let cross_attention = 2.0 * matmul(tokens, width, width)
        + 2.0 * matmul(text, width, width)
        + attention_flops(width, tokens, text);
    let block = self_attention + cross_attention + 2.0 * matmul(tokens, width, feed);
    let embed =
        matmul(tokens, 2 * 2 * 16, width) + matmul(text, 4096, width) + matmul(text, width, width);
    let timestep = matmul(1, 256, width) + matmul(1, width, width) + matmul(1, width, 6 * width);
    layers as f64 * block + embed + timestep + matmul(tokens, width, 2 * 2 * 16)
}

/// The decoder of Stable Diffusion's autoencoder, from latents of `side` × `side`.
fn vae_decode_flops(side: usize) -> f64 {
    let residual = |side, input, output| {
        let shortcut = if input == output { 0.0 } else { convolution(side, 1, input, output) };
        convolution(side, 3, input, output) + convolution(side, 3, output, output) + shortcut
    };
    let tokens = side * side;
    let middle = 2.0 * residual(side, 512, 512)
        + 4.0 * matmul(tokens, 512, 512)
        + attention_flops(512, tokens, tokens);
    let mut total = convolution(side, 1, 4, 4) + convolution(side, 3, 4, 512) + middle;
    let (mut side, mut input) = (side, 512);
    for (level, output) in [512, 512, 256, 128].into_iter().enumerate() {
        total += residual(side, input, output) + 2.0 * residual(side, output, output);
        if level < 3 {
            side *= 2;
            total += convolution(side, 3, output, output);
        }
        input = output;
    }
    total + convolution(side, 3, 128, 3)
}

/// The decoder of Wan 2.1's autoencoder, from `latents` latent frames of `side` × `side`. Counted
/// are the products of the plain sums, also those with frames of zeros before the first; a decoder
/// may find shorter ways.
fn wan_vae_decode_flops(side: usize, latents: usize) -> f64 {
    let causal = |frames: usize, side: usize, input: usize, output: usize| {
        matmul(frames * side * side, 27 * input, output)
    };
    let residual = |frames: usize, side: usize, input: usize, output: usize| {
        let pixels = frames * side * side;
        let shortcut = if input == output { 0.0 } else { matmul(pixels, input, output) };
        causal(frames, side, input, output) + causal(frames, side, output, output) + shortcut
    };
    let tokens = side * side;
    let attention = matmul(tokens, 384, 4 * 384) + attention_flops(384, tokens, tokens);
    let middle = 2.0 * residual(latents, side, 384, 384) + latents as f64 * attention;
    let mut total = matmul(latents * tokens, 16, 16) + causal(latents, side, 16, 384) + middle;
    let (mut side, mut frames, mut input) = (side, latents, 384);
    for (level, output) in [384, 384, 192, 96].into_iter().enumerate() {
        total += residual(frames, side, input, output);
        total += 2.0 * residual(frames, side, output, output);
        if level < 2 {
            // The first frame is not doubled.
            total += matmul((frames - 1) * side * side, 3 * output, 2 * output);
            frames = 2 * frames - 1;
        }
        if level < 3 {
            (side, input) = (2 * side, output / 2);
            total += frames as f64 * convolution(side, 3, output, input);
        }
    }
    total + causal(frames, side, 96, 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = all().iter().map(|case| case.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    /// What `torch.utils.flop_counter` counts for the modules in `tools/bench/worker.py`.
    #[test]
    fn operations_agree_with_those_that_torch_counts() {
        assert_eq!(matmul(2048, 1536, 8960), 56_371_445_760.0);
        assert_eq!(convolution(256, 3, 128, 128), 19_327_352_832.0);
        assert_eq!(attention_flops(12 * 128, 2048, 2048), 25_769_803_776.0);
        assert_eq!(pixart_flops(4, 2, 1024, 120), 355_853_205_504.0);
        assert_eq!(wan_flops(2, 1950, 512), 403_427_082_240.0);
        assert_eq!(vae_decode_flops(64), 2_514_518_933_504.0);
        assert_eq!(wan_vae_decode_flops(16, 3), 1_283_287_547_904.0);
        assert_eq!(wan_vae_decode_flops(16, 5), 2_390_376_448_000.0);
    }
}
