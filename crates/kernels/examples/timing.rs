//! Times the memory-bound kernels: `cargo run --release -p kernels --example timing -- [threads]`.
//!
//! Sizes are those of a 1.3-billion-parameter video transformer; each line is the best of several
//! runs, to be held against PyTorch's own on the same cores.
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use burn::tensor::{Device, Tensor};
use kernels::{Activation, Modulation};

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
    backward(&wide, &x, &modulation);
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

fn time<R>(name: &str, work: impl Fn() -> R) {
    let mut best = f64::INFINITY;
    for _ in 0..12 {
        let start = Instant::now();
        black_box(work());
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!("{name:<45} {:8.2} ms", best * 1e3);
}
