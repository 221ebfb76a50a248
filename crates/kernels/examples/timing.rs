//! Times the memory-bound kernels and the convolutions of video: `cargo run --release -p kernels --example timing -- [threads]`.
//!
//! Sizes are those of a 1.3-billion-parameter video transformer; each line is the best of several
//! runs, to be held against PyTorch's own on the same cores.
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use burn::tensor::{Device, Tensor};
use kernels::{Activation, CausalFrames, Convolution, Modulation};

#[global_allocator]
static ALLOCATOR: kernels::Allocator = kernels::Allocator;

fn main() {
    let threads = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(2);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.expect("a thread pool").install(run);
}

fn run() {
    let device = Device::flex();
    let random = |shape| Tensor::<3>::random(shape, burn::tensor::Distribution::Default, &device);
    let wide = random([1, 2048, 8960]);
    time("gelu (erf) 2048x8960", || kernels::gelu_erf(wide.clone()));
    time("gelu (tanh) 2048x8960", || kernels::gelu_tanh(wide.clone()));
    time("silu 2048x8960", || kernels::silu(wide.clone()));
    time("softmax 2048x8960", || kernels::softmax(wide.clone()));
    time("sum 2048x8960", || kernels::sum(wide.clone()));

    let x = random([1, 2048, 1536]);
    let (scale, shift) = (random([1, 1, 1536]), random([1, 1, 1536]));
    let modulation = Modulation { scale: scale.clone(), shift, index: None };
    time("layer norm + modulate 2048x1536", || {
        kernels::layer_norm(x.clone(), None, Some(&modulation), 1e-6)
    });
    time("rms norm 2048x1536", || kernels::rms_norm(x.clone(), None, 1e-6));
    time("gated residual 2048x1536", || {
        kernels::gated_residual(x.clone(), x.clone(), scale.clone(), None)
    });
    let angle = random([1, 2048, 64]);
    let heads = x.clone().reshape([1, 2048, 12, 128]);
    time("rope 2048x12x128", || kernels::rope(heads.clone(), angle.clone(), angle.clone()));

    let image = random([256, 256, 256]).reshape([1, 256, 256, 256]);
    let affine = (Tensor::ones([256], &device), Tensor::zeros([256], &device));
    time("group norm + silu 256x256x256", || {
        kernels::group_norm(image.clone(), 32, affine.clone(), 1e-6, Activation::Silu)
    });
    convolutions(&device);
    backward(&wide, &x, &modulation);
}

/// The levels of a video autoencoder at 256 x 256 pixels, with what they would take without tricks.
fn convolutions(device: &Device) {
    let random = |shape| Tensor::<3>::random(shape, burn::tensor::Distribution::Default, device);
    for (side, channels, count) in [(256_usize, 96, 1), (128, 192, 4), (64, 384, 2), (32, 384, 1)] {
        let frames: Vec<_> = (0..count).map(|_| random([side, side, channels])).collect();
        let earlier = vec![frames[0].clone(); 2];
        let frames = CausalFrames { earlier: &earlier, now: &frames };
        let weight = random([channels, channels, 27]).reshape([channels, channels, 3, 3, 3]);
        let name = format!("conv 3x3x3 {count}x{side}x{side}x{channels}");
        let work = || kernels::causal_conv3d(frames, weight.clone(), None, 1, None);
        let flops = 54.0 * (channels * channels * count * side * side) as f64;
        rate(&name, flops, time(&name, work));
        let half = random([channels / 2, channels, 9]).reshape([channels / 2, channels, 3, 3]);
        let enlarging = Convolution { stride: 1, padding: [1; 4], upsample: 2 };
        let name = format!("enlarging conv 3x3 {count}x{side}x{side}x{channels}");
        let work = || kernels::frames_conv2d(frames.now, half.clone(), None, &enlarging);
        let flops = 36.0 * (channels * channels * count * side * side) as f64;
        rate(&name, flops, time(&name, work));
    }
}

fn rate(name: &str, flops: f64, seconds: f64) {
    println!("{name:<45} {:8.1} GFLOP/s of the plain sum", flops / seconds / 1e9);
}

fn backward(wide: &Tensor<3>, x: &Tensor<3>, modulation: &Modulation) {
    let wide = wide.clone().autodiff().require_grad();
    time("gelu (erf) forward and backward", || {
        wide.grad(&kernels::gelu_erf(wide.clone()).sum().backward())
    });
    let leaf = |tensor: &Tensor<3>| tensor.clone().autodiff().require_grad();
    let (x, scale, shift) = (leaf(x), leaf(&modulation.scale), leaf(&modulation.shift));
    let modulation = Modulation { scale, shift, index: None };
    time("layer norm + modulate forward and backward", || {
        let out = kernels::layer_norm(x.clone(), None, Some(&modulation), 1e-6);
        x.grad(&out.sum().backward())
    });
}

fn time<R>(name: &str, work: impl Fn() -> R) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..12 {
        let start = Instant::now();
        black_box(work());
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!("{name:<45} {:8.2} ms", best * 1e3);
    best
}
