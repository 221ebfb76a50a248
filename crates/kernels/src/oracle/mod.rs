//! Every operation as a short composition of burn's own: the reference in tests, and what runs on
//! backends other than the CPU.
//!
//! Each function has the signature and the meaning of its namesake at the root of the crate.

mod attention;
mod convolution;
mod elementwise;
mod linear;
mod norm;

pub use attention::{attention, attention_backward};
pub use convolution::{causal_conv3d, conv2d, frames_conv2d};
pub use elementwise::{gelu_erf, gelu_tanh, rope, silu, softmax, sum, sum_squares};
pub use linear::{linear, linear_int8, linear_mixed};
pub use norm::{
    gated_residual, group_norm, layer_norm, modulate, modulated_rms_norm, rms_norm, unit_norm,
};
