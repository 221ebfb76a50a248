//! The kernels that multiply matrices against their oracles, and the laws they keep.

mod attention;
mod blocks;
#[path = "../elementwise/check.rs"]
#[expect(dead_code, reason = "levels belong to modulation")]
mod check;
mod convolution;
mod frames;
mod int8;
mod invariance;
mod linear;
mod mixed;
mod rounded;
#[path = "../elementwise/sets.rs"]
mod sets;
