//! The operations a diffusion transformer spends its time in, fast on a CPU and right everywhere.
//!
//! Every function takes and returns ordinary burn tensors. On the CPU backend the work is done by
//! the kernels of this crate, with a backward pass of their own under autodiff; on every other
//! backend the same function runs its *oracle*, a short composition of burn's own operations that
//! also serves as the reference in tests.
//!
//! What holds for every kernel here:
//! - **Row-invariance.** A row's result never depends on how many rows share the call, on its place
//!   among them or on the number of threads: work is cut by shape only, and the scalar tail of a
//!   loop performs the same operations as its vector body.
//! - **Accumulation is f32** whatever the storage type of the weights.
//! - **Instruction sets** are one table, [`InstructionSet`]; the best of the machine is chosen at run
//!   time, and in f32 all that have fused multiply-adds give the same bits.

#![expect(
    unsafe_code,
    reason = "kernels read and write through pointers; each block says why it may"
)]

mod activation;
mod allocator;
mod attention;
mod blocks;
mod convolution;
mod gemm;
mod group_norm;
mod held;
mod inplace;
mod instruction_set;
mod int8;
mod lanes;
mod levels;
mod linear;
mod linear_map;
mod mapped;
mod math;
mod micro;
mod mixed;
mod modulate;
mod narrow;
mod norm;
mod operation;
pub mod oracle;
mod pack;
mod peak;
mod rope;
mod rounding;
mod rows;
#[cfg_attr(not(unix), path = "unshrunk.rs")]
mod shrunk;
mod softmax;
mod storage;
mod sum;
mod transpose;
mod unit_norm;
mod with_gradient;
mod work;

pub use activation::{Activation, gelu_erf, gelu_tanh, silu};
pub use allocator::{Allocator, give_freed_pages_back, keep_freed_pages};
pub use attention::{
    AttentionInputs, AttentionSums, additive_mask, attention, attention_backward, attention_delta,
    attention_forward,
};
pub use blocks::{BlockMatrix, BlockType, linear_blocks};
pub use convolution::{CausalFrames, Convolution, causal_conv3d, conv2d, frames_conv2d};
pub use group_norm::{group_moments, group_norm, group_norm_by};
pub use inplace::{AdamStep, Moments, adamw, blend};
pub use instruction_set::{InstructionSet, InstructionSetError, Operands};
pub use int8::{Int8Matrix, linear_int8};
pub use linear::linear;
pub use linear_map::linear_map;
pub use mapped::{map_file, open_file, read_file, read_text};
pub use mixed::linear_mixed;
pub use modulate::{Modulation, gated_residual, modulate};
pub use norm::{layer_norm, modulated_rms_norm, rms_norm};
pub use peak::{measure_fma_peak, measure_peak};
pub use rope::rope;
pub use rounding::to_bf16;
pub use shrunk::watch_mapped_files;
pub use softmax::softmax;
pub use sum::{sum, sum_squares};
pub use unit_norm::unit_norm;
pub use with_gradient::with_gradient;
