//! The work itself: what each case prepares and what one call of it does.
//!
//! The names and sizes are those of `tools/bench/worker.py`, whose cases do the same in PyTorch.

use burn::Tensor;
use burn::tensor::{DType, Device, Distribution};
use kernels::{Activation, AttentionInputs, Int8Matrix, Modulation};
use nn::Recompute;

use crate::{networks, training};

/// One call; returns a rate in FLOP/s if the work measures one.
pub(crate) type Work = Box<dyn FnMut() -> Option<f64>>;

/// Work that is ready.
pub(crate) struct Made {
    pub(crate) work: Work,
    /// Bytes of weights, gradients and optimizer, if it is a training.
    pub(crate) state_bytes: Option<u64>,
}

impl Made {
    fn plain(work: impl FnMut() -> Option<f64> + 'static) -> Made {
        Made { work: Box::new(work), state_bytes: None }
    }
}

/// A named piece of work.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Makes the data and returns the work on it.
    pub(crate) prepare: Box<dyn Fn() -> Made>,
}

/// A case whose calls are only timed.
fn timed<F, R>(name: &'static str, prepare: impl Fn() -> F + 'static) -> Case
where
    F: Fn() -> R + 'static,
{
    let prepare = move || {
        let call = prepare();
        Made::plain(move || {
            std::hint::black_box(call());
            None
        })
    };
    Case { name, prepare: Box::new(prepare) }
}

/// Everything that this side can do with `threads` threads.
pub(crate) fn all(threads: usize) -> Vec<Case> {
    vec![
        fma_peak(threads),
        timed("linear_2048x1536x8960_f32", || linear(DType::F32)),
        timed("linear_2048x1536x8960_bf16", || linear(DType::BF16)),
        timed("linear_2048x1536x8960_int8", linear_int8),
        timed("attention_12x2048x128_forward", || attention_forward(DType::F32)),
        timed("attention_bf16_12x2048x128_forward", || attention_forward(DType::BF16)),
        timed("attention_12x2048x128_forward_backward", attention_forward_backward),
        timed("gelu_tanh_2048x8960", gelu_tanh),
        timed("gelu_erf_2048x8960", gelu_erf),
        timed("layer_norm_modulate_2048x1536", layer_norm_modulate),
        timed("conv2d_3x3_128_256", networks::conv2d),
        timed("pixart_xl_4_layers_b2_1024_f32", || networks::pixart(DType::F32)),
        timed("pixart_xl_4_layers_b2_1024_bf16", || networks::pixart(DType::BF16)),
        timed("wan_1_3b_2_layers_1950_f32", || networks::wan(DType::F32)),
        timed("wan_1_3b_2_layers_1950_bf16", || networks::wan(DType::BF16)),
        stepped("wan_1_3b_2_layers_training_step", 2, Recompute::Never),
        stepped("wan_1_3b_8_layers_training_ours_per_block_theirs_whole", 8, Recompute::PerBlock),
        stepped("wan_1_3b_8_layers_training_both_per_block", 8, Recompute::PerBlock),
        timed("vae_decode_512", networks::vae_decode),
        timed("wan_vae_decode_9_frames", || networks::wan_vae_decode(3)),
        timed("wan_vae_decode_17_frames", || networks::wan_vae_decode(5)),
    ]
}

/// A case whose calls are training steps of Wan-1.3B with so many layers.
fn stepped(name: &'static str, layers: usize, recompute: Recompute) -> Case {
    let prepare = move || {
        let (mut step, state_bytes) = training::wan(layers, recompute);
        let work = move || {
            std::hint::black_box(step());
            None
        };
        Made { work: Box::new(work), state_bytes: Some(state_bytes) }
    };
    Case { name, prepare: Box::new(prepare) }
}

/// What this machine could do at best, as a rate.
fn fma_peak(threads: usize) -> Case {
    let measure = move || Some(kernels::measure_fma_peak(threads));
    Case { name: "fma_peak", prepare: Box::new(move || Made::plain(measure)) }
}

/// A standard normal tensor.
fn normal<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

/// Weights in `dtype`; activations come in f32, as everywhere in Moviola, and are rounded as
/// `--dtype bf16` rounds them.
fn linear(dtype: DType) -> impl Fn() -> Tensor<2> {
    let device = Device::flex();
    let x = normal([2048, 1536], &device);
    let weight = normal([8960, 1536], &device).cast(dtype);
    let bias = normal([8960], &device);
    move || {
        let x = rounded(x.clone(), dtype);
        kernels::linear(x, weight.clone(), Some(bias.clone()), Activation::Identity)
    }
}

/// What `--dtype` makes of activations.
fn rounded<const D: usize>(x: Tensor<D>, dtype: DType) -> Tensor<D> {
    if dtype == DType::BF16 { kernels::to_bf16(x) } else { x }
}

/// Weights in bytes, activations rounded row by row.
fn linear_int8() -> impl Fn() -> Tensor<2> {
    let device = Device::flex();
    let x = normal([2048, 1536], &device);
    let weight = Int8Matrix::nearest(normal([8960, 1536], &device));
    let bias = normal([8960], &device);
    move || kernels::linear_int8(x.clone(), &weight, Some(bias.clone()), Activation::Identity)
}

/// Queries, keys and values `[1, 2048, 12, 128]`.
fn attention_inputs(device: &Device) -> AttentionInputs {
    let [q, k, v] = [(); 3].map(|()| normal([1, 2048, 12, 128], device));
    AttentionInputs { q, k, v, mask: None, scale: 1.0 / 128_f32.sqrt() }
}

fn attention_forward(dtype: DType) -> impl Fn() -> Tensor<4> {
    let inputs = attention_inputs(&Device::flex());
    move || {
        let AttentionInputs { q, k, v, mask, scale } = inputs.clone();
        let [q, k, v] = [q, k, v].map(|x| rounded(x, dtype));
        kernels::attention(AttentionInputs { q, k, v, mask, scale })
    }
}

fn attention_forward_backward() -> impl Fn() -> [Option<Tensor<4>>; 3] {
    let device = Device::flex().autodiff();
    let AttentionInputs { q, k, v, mask, scale } = attention_inputs(&device);
    let upstream = normal([1, 2048, 12, 128], &device);
    move || {
        let [q, k, v] = [&q, &k, &v].map(|leaf| leaf.clone().detach().require_grad());
        let leaves = AttentionInputs { q, k, v, mask: mask.clone(), scale };
        let out = kernels::attention(leaves.clone());
        let gradients = (out * upstream.clone()).sum().backward();
        [leaves.q, leaves.k, leaves.v].map(|leaf| leaf.grad(&gradients))
    }
}

fn gelu_tanh() -> impl Fn() -> Tensor<2> {
    let x = normal([2048, 8960], &Device::flex());
    move || kernels::gelu_tanh(x.clone())
}

fn gelu_erf() -> impl Fn() -> Tensor<2> {
    let x = normal([2048, 8960], &Device::flex());
    move || kernels::gelu_erf(x.clone())
}

fn layer_norm_modulate() -> impl Fn() -> Tensor<3> {
    let device = Device::flex();
    let x = normal([1, 2048, 1536], &device);
    let [scale, shift] = [(); 2].map(|()| normal([1, 1, 1536], &device));
    let modulation = Modulation { scale, shift, index: None };
    move || kernels::layer_norm(x.clone(), None, Some(&modulation), 1e-6)
}
