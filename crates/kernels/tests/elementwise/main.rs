//! Element-wise, row-wise and summing kernels against their oracles, and the laws they keep.

mod activation;
mod check;
mod inplace;
mod invariance;
mod norm;
mod rope;
mod softmax;
mod sums;
