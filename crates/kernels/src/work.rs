//! Choosing the machine's instructions once for a whole piece of work.

use pulp::{Arch, Simd, WithSimd};

/// A piece of work whose loops are worth compiling for every kind of machine.
///
/// A closure would do, were it not that the compiler may leave its body outside the function that
/// carries the instructions; a method marked `#[inline(always)]` is inside for certain.
pub(crate) trait Work {
    /// Does it. To be marked `#[inline(always)]`.
    fn run(self);
}

/// Runs `work` with the best instructions of this machine.
pub(crate) fn vectorised(work: impl Work) {
    Arch::new().dispatch(Dispatched(work));
}

struct Dispatched<W>(W);

impl<W: Work> WithSimd for Dispatched<W> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        self.0.run();
    }
}
