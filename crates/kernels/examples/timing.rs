//! Times the kernels alone: `cargo run --release --workspace --example timing -- [threads] [part of a name] [set]`.
//!
//! Sizes are those of a 1.3-billion-parameter video transformer; each line is the best of several
//! runs, to be held against PyTorch's own on the same cores.
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use burn::tensor::{Device, Tensor};
use kernels::{Activation, AttentionInputs, CausalFrames, Convolution, InstructionSet, Modulation};

#[global_allocator]
static ALLOCATOR: kernels::Allocator = kernels::Allocator;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let threads = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(2);
    let part = arguments.next().unwrap_or_default();
    let set = arguments.next().map_or(InstructionSet::best(), |set| set.parse().expect("a set"));
    set.pool(threads).expect("a thread pool").install(|| run(threads, &Timing { part }));
}

fn run(threads: usize, timing: &Timing) {
    let peak = kernels::measure_fma_peak(threads);
    println!("{} on {threads} threads: {:.1} GFLOP/s", InstructionSet::in_use(), peak / 1e9);
    let device = Device::flex();
    products(&device, timing);
    few_rows(&device, timing);
    rows(&device, timing);
    convolutions(&device, timing);
}

/// What is timed: names that contain a part.
struct Timing {
    part: String,
}

impl Timing {
    /// Times `work` and says so, with a rate if its operations are known.
    fn time<R>(&self, name: &str, flops: Option<f64>, work: impl Fn() -> R) {
        if !name.contains(&self.part) {
            return;
        }
        let mut best = f64::INFINITY;
        for _ in 0..12 {
            let start = Instant::now();
            black_box(work());
            best = best.min(start.elapsed().as_secs_f64());
        }
        let rate =
            flops.map_or(String::new(), |flops| format!("{:8.1} GFLOP/s", flops / best / 1e9));
        println!("{name:<45} {:8.2} ms {rate}", best * 1e3);
    }
}

fn random<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::random(shape, burn::tensor::Distribution::Normal(0.0, 1.0), device)
}

fn products(device: &Device, timing: &Timing) {
    for [rows, inner, outer] in [
        [2048, 1536, 8960],
        [2048, 8960, 1536],
        [1950, 1536, 1536],
        [2048, 1152, 4608],
        [64, 1536, 1536],
    ] {
        let flops = Some(2.0 * (rows * inner * outer) as f64);
        let x: Tensor<2> = random([rows, inner], device);
        let weight: Tensor<2> = random([outer, inner], device);
        timing.time(&format!("linear {rows}x{inner}x{outer}"), flops, || {
            kernels::linear(x.clone(), weight.clone(), None, Activation::Identity)
        });
        let narrow = kernels::to_bf16(weight.clone());
        timing.time(&format!("linear {rows}x{inner}x{outer} in bf16"), flops, || {
            let x = kernels::to_bf16(x.clone());
            kernels::linear(x, narrow.clone(), None, Activation::Identity)
        });
        let bytes = kernels::Int8Matrix::nearest(weight.clone());
        timing.time(&format!("linear {rows}x{inner}x{outer} in int8"), flops, || {
            kernels::linear_int8(x.clone(), &bytes, None, Activation::Identity)
        });
        let flops = flops.map(|flops| 3.0 * flops);
        let (x, weight) = (x.autodiff().require_grad(), weight.autodiff().require_grad());
        let upstream: Tensor<2> = random([rows, outer], device).autodiff();
        timing.time(&format!("linear {rows}x{inner}x{outer} with backward"), flops, || {
            let out = kernels::linear(x.clone(), weight.clone(), None, Activation::Identity);
            (out * upstream.clone()).sum().backward()
        });
    }
    for [heads, tokens, keys, width] in
        [[12, 2048, 2048, 128], [12, 1950, 512, 128], [16, 1024, 1024, 72], [2, 8192, 8192, 128]]
    {
        let flops = Some(4.0 * (heads * tokens * keys * width) as f64);
        let q: Tensor<4> = random([1, tokens, heads, width], device);
        let [k, v]: [Tensor<4>; 2] = [(); 2].map(|()| random([1, keys, heads, width], device));
        let inputs = AttentionInputs { q, k, v, mask: None, scale: 0.1 };
        let name = format!("attention {heads}x{tokens}x{keys}x{width}");
        timing.time(&name, flops, || kernels::attention(inputs.clone()));
        timing.time(&format!("{name} in bf16"), flops, || {
            let AttentionInputs { q, k, v, mask, scale } = inputs.clone();
            let [q, k, v] = [q, k, v].map(kernels::to_bf16);
            kernels::attention(AttentionInputs { q, k, v, mask, scale })
        });
        let [q, k, v] = [inputs.q, inputs.k, inputs.v].map(|leaf| leaf.autodiff().require_grad());
        let upstream: Tensor<4> = random([1, tokens, heads, width], device).autodiff();
        let inputs = AttentionInputs { q, k, v, mask: None, scale: 0.1 };
        let flops = flops.map(|flops| 3.0 * flops);
        timing.time(&format!("{name} with backward"), flops, || {
            (kernels::attention(inputs.clone()) * upstream.clone()).sum().backward()
        });
    }
}

/// Linear layers of as many rows as a patch, or a rank's part of a clip, has.
fn few_rows(device: &Device, timing: &Timing) {
    for rows in [64, 128, 256, 288, 512, 576, 768, 1024] {
        for [inner, outer] in [[1536, 1536], [1536, 8960], [8960, 1536]] {
            let flops = Some(2.0 * (rows * inner * outer) as f64);
            let x: Tensor<2> = random([rows, inner], device);
            // Several matrices, as a model has: none of them is in a cache when it is needed.
            let weights: Vec<Tensor<2>> = (0..4).map(|_| random([outer, inner], device)).collect();
            let flops = flops.map(|flops| flops * weights.len() as f64);
            timing.time(&format!("few rows {rows}x{inner}x{outer}"), flops, || {
                for weight in &weights {
                    let weight = weight.clone();
                    black_box(kernels::linear(x.clone(), weight, None, Activation::Identity));
                }
            });
        }
    }
}

fn rows(device: &Device, timing: &Timing) {
    let wide: Tensor<3> = random([1, 2048, 8960], device);
    let time = |name: &str, work: &dyn Fn() -> Tensor<3>| timing.time(name, None, work);
    time("gelu (erf) 2048x8960", &|| kernels::gelu_erf(wide.clone()));
    time("gelu (tanh) 2048x8960", &|| kernels::gelu_tanh(wide.clone()));
    time("silu 2048x8960", &|| kernels::silu(wide.clone()));
    time("softmax 2048x8960", &|| kernels::softmax(wide.clone()));
    timing.time("sum 2048x8960", None, || kernels::sum(wide.clone()));

    let x: Tensor<3> = random([1, 2048, 1536], device);
    let (scale, shift) = (random([1, 1, 1536], device), random([1, 1, 1536], device));
    let modulation = Modulation { scale: scale.clone(), shift, index: None };
    time("layer norm + modulate 2048x1536", &|| {
        kernels::layer_norm(x.clone(), None, Some(&modulation), 1e-6)
    });
    time("rms norm 2048x1536", &|| kernels::rms_norm(x.clone(), None, 1e-6));
    time("gated residual 2048x1536", &|| {
        kernels::gated_residual(x.clone(), x.clone(), scale.clone(), None)
    });
    let angle = random([1, 2048, 64], device);
    let heads = x.clone().reshape([1, 2048, 12, 128]);
    timing.time("rope 2048x12x128", None, || {
        kernels::rope(heads.clone(), angle.clone(), angle.clone())
    });
    let image: Tensor<4> = random([1, 256, 256, 256], device);
    let affine = (Tensor::ones([256], device), Tensor::zeros([256], device));
    timing.time("group norm + silu 256x256x256", None, || {
        kernels::group_norm(image.clone(), 32, affine.clone(), 1e-6, Activation::Silu)
    });
    let leaf = wide.clone().autodiff().require_grad();
    timing.time("gelu (erf) with backward", None, || {
        leaf.grad(&kernels::gelu_erf(leaf.clone()).sum().backward())
    });
    let leaf = |tensor: &Tensor<3>| tensor.clone().autodiff().require_grad();
    let (x, scale, shift) = (leaf(&x), leaf(&modulation.scale), leaf(&modulation.shift));
    let modulation = Modulation { scale, shift, index: None };
    timing.time("layer norm + modulate with backward", None, || {
        let out = kernels::layer_norm(x.clone(), None, Some(&modulation), 1e-6);
        x.grad(&out.sum().backward())
    });
}

/// The levels of a video autoencoder at 256 x 256 pixels, with the operations of the plain sum.
fn convolutions(device: &Device, timing: &Timing) {
    for (side, channels, count) in [(256_usize, 96, 1), (128, 192, 4), (64, 384, 2), (32, 384, 1)] {
        let frames: Vec<Tensor<3>> =
            (0..count).map(|_| random([side, side, channels], device)).collect();
        let earlier = vec![frames[0].clone(); 2];
        let frames = CausalFrames { earlier: &earlier, now: &frames };
        let weight: Tensor<5> = random([channels, channels, 3, 3, 3], device);
        let flops = 54.0 * (channels * channels * count * side * side) as f64;
        timing.time(&format!("conv 3x3x3 {count}x{side}x{side}x{channels}"), Some(flops), || {
            kernels::causal_conv3d(frames, weight.clone(), None, 1, None)
        });
        let half: Tensor<4> = random([channels / 2, channels, 3, 3], device);
        let enlarging = Convolution { stride: 1, padding: [1; 4], upsample: 2 };
        let flops = 36.0 * (channels * channels * count * side * side) as f64;
        let name = format!("enlarging conv 3x3 {count}x{side}x{side}x{channels}");
        timing.time(&name, Some(flops), || {
            kernels::frames_conv2d(frames.now, half.clone(), None, &enlarging)
        });
    }
    let image: Tensor<4> = random([1, 256, 256, 128], device);
    let weight: Tensor<4> = random([128, 128, 3, 3], device);
    let flops = 18.0 * (256 * 256 * 128 * 128) as f64;
    timing.time("conv2d 3x3 256x256x128", Some(flops), || {
        let convolution = Convolution::padded(1);
        kernels::conv2d(image.clone(), weight.clone(), None, &convolution, Activation::Identity)
    });
}
