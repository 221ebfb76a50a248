//! Choosing the machine's instructions once for a whole piece of work.

use crate::instruction_set;

/// A piece of work whose loops are worth compiling for every kind of machine.
///
/// A closure would do, were it not that the compiler may leave its body outside the function that
/// carries the instructions; a method marked `#[inline(always)]` is inside for certain.
pub(crate) trait Work {
    /// What comes of it.
    type Output;

    /// Does it. To be marked `#[inline(always)]`.
    fn run(self) -> Self::Output;
}

/// Runs `work` compiled for the instruction set in use.
pub(crate) fn vectorised<W: Work>(work: W) -> W::Output {
    instruction_set::run(work)
}

/// [`vectorised`] for a closure, which must be marked `#[inline(always)]` itself.
pub(crate) fn dispatch<A, R>(argument: A, work: impl Fn(A) -> R) -> R {
    vectorised(Call { argument, work })
}

struct Call<A, F> {
    argument: A,
    work: F,
}

impl<A, R, F: Fn(A) -> R> Work for Call<A, F> {
    type Output = R;

    #[inline(always)]
    fn run(self) -> R {
        (self.work)(self.argument)
    }
}
