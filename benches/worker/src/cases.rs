//! The work itself: what each case prepares and what one call of it does.
//!
//! The names and sizes are those of `tools/bench/worker.py`, whose cases do the same in PyTorch.

use burn::Tensor;
use burn::tensor::{Device, Distribution, activation};

/// One call; returns a rate in FLOP/s if the work measures one.
pub(crate) type Work = Box<dyn FnMut() -> Option<f64>>;

/// A named piece of work.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Makes the data and returns the work on it.
    pub(crate) prepare: Box<dyn Fn() -> Work>,
}

/// A case whose calls are only timed.
fn timed<F, R>(name: &'static str, prepare: impl Fn() -> F + 'static) -> Case
where
    F: Fn() -> R + 'static,
{
    let prepare = move || -> Work {
        let call = prepare();
        Box::new(move || {
            std::hint::black_box(call());
            None
        })
    };
    Case { name, prepare: Box::new(prepare) }
}

/// Everything that this side can do with `threads` threads.
pub(crate) fn all(_threads: usize) -> Vec<Case> {
    vec![timed("gelu_erf_2048x8960", gelu_erf)]
}

/// A standard normal tensor of the given shape.
fn normal<const D: usize>(shape: [usize; D]) -> Tensor<D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), &Device::flex())
}

fn gelu_erf() -> impl Fn() -> Tensor<2> {
    let x = normal([2048, 8960]);
    move || activation::gelu(x.clone())
}
