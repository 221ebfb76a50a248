//! Element-wise, row-wise and summing kernels against their oracles, and the laws they keep.

mod activation;
mod check;
mod in_place;
mod invariance;
mod norm;
mod rope;
mod sets;
mod softmax;
mod sums;
mod updates;
