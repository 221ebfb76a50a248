//! The innermost product: six rows times a few packed panels of sixteen columns.
//!
//! Everything in this crate that multiplies matrices ends here. The left-hand rows are read where
//! they lie, through one pointer each, so a linear layer, an attention tile and a convolution (whose
//! "rows" are pixels under a tap) share one kernel and no left-hand copy is made. Each element is
//! one chain of fused multiply-adds over the depth, whatever the machine's vector width and however
//! many panels a kernel takes at once.
//!
//! Rows and panels are made of *words* of 32 bits: a float, two bf16, two 16-bit integers or four
//! bytes, whichever a kernel multiplies. What finds, packs and cuts them need not know; the depth is
//! counted in words, and a sum takes the place of one.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use std::ops::Range;

use crate::instruction_set::{InstructionSet, Operands};

/// Rows of a tile.
pub(crate) const ROWS: usize = 6;
/// Columns of a packed panel.
pub(crate) const COLUMNS: usize = 16;
/// Columns of half a panel, the fewest that a kernel computes.
pub(crate) const HALF: usize = COLUMNS / 2;
/// Panels of a tile, at most.
pub(crate) const PANELS: usize = 4;

/// What a tile does with what stands in its place already.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Write {
    /// Overwrite it.
    Store,
    /// Add to it.
    Add,
}

/// What the words of a result are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sum {
    /// Floats.
    Float,
    /// 32-bit integers.
    Integer,
}

/// `out[r][c] (+)= sum over k < depth of rows[r][k] * panel[k][c]`, where column `c` lies in panel
/// number `c / COLUMNS`.
#[derive(Clone, Copy)]
pub(crate) struct Tile<'a> {
    pub(crate) depth: usize,
    /// Where the values of each row begin.
    pub(crate) rows: &'a [*const f32; ROWS],
    /// The first panel.
    pub(crate) panels: *const f32,
    /// Distance between panels.
    pub(crate) apart: usize,
    pub(crate) out: *mut f32,
    /// Distance between rows of `out`.
    pub(crate) stride: usize,
    /// How many of the rows exist.
    pub(crate) height: usize,
    /// How many columns exist: at most those of [`PANELS`] panels.
    pub(crate) width: usize,
    pub(crate) write: Write,
}

impl Tile<'_> {
    /// Writes those of the `WIDTH` columns that exist.
    ///
    /// # Safety
    /// `out` is writable for the tile's rows and columns.
    #[inline(always)]
    unsafe fn put<const WIDTH: usize>(&self, sums: &[[f32; WIDTH]; ROWS], kind: Sum) {
        let width = WIDTH.min(self.width);
        for (r, sums) in sums.iter().enumerate().take(self.height) {
            for (c, sum) in sums.iter().enumerate().take(width) {
                // SAFETY: the place belongs to a row and a column that exist.
                unsafe {
                    let place = self.out.add(r * self.stride + c);
                    *place = match (self.write, kind) {
                        (Write::Store, _) => *sum,
                        (Write::Add, Sum::Float) => *place + *sum,
                        (Write::Add, Sum::Integer) => {
                            f32::from_bits((*place).to_bits().wrapping_add(sum.to_bits()))
                        }
                    };
                }
            }
        }
    }
}

/// Computes a tile.
///
/// # Safety
/// Every row pointer is readable for `depth` floats, also of rows that do not exist; the panels that
/// hold the tile's columns for `depth * COLUMNS` each; and `out` is writable for the rows and columns
/// that exist, which nobody else reads or writes meanwhile.
type Kernel = unsafe fn(&Tile<'_>);

/// The kernels of an instruction set. All compute an element in the same way.
#[derive(Clone, Copy)]
pub(crate) struct Kernels {
    /// For half a panel.
    half: Kernel,
    /// For one, two, three and four panels; only the first `most` are called.
    whole: [Kernel; PANELS],
    most: usize,
}

/// How whole numbers of eight bits lie in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Integers {
    /// Two signed numbers of sixteen bits on both sides.
    Shorts,
    /// Four numbers of eight bits: 128 more than they are in a row, as they are in a panel.
    Bytes,
}

impl Kernels {
    /// Those that multiply floats in the set that this thread uses.
    pub(crate) fn in_use() -> Kernels {
        match InstructionSet::in_use() {
            InstructionSet::Portable => Kernels::PORTABLE,
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => Kernels::AVX2,
            #[cfg(target_arch = "x86_64")]
            _ => Kernels::AVX512,
            #[cfg(not(target_arch = "x86_64"))]
            _ => Kernels::PORTABLE,
        }
    }

    /// Those that multiply pairs of bf16, if the set has any.
    pub(crate) fn of_bf16() -> Option<Kernels> {
        match InstructionSet::in_use() {
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512Bf16 => Some(Kernels::AVX512_BF16),
            _ => None,
        }
    }

    /// Those that multiply bytes, and how they want them.
    pub(crate) fn of_int8() -> (Kernels, Integers) {
        match InstructionSet::in_use() {
            InstructionSet::Portable => (Kernels::PORTABLE_SHORTS, Integers::Shorts),
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => (Kernels::AVX2_SHORTS, Integers::Shorts),
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => (Kernels::AVX512_SHORTS, Integers::Shorts),
            #[cfg(target_arch = "x86_64")]
            _ => (Kernels::AVX512_BYTES, Integers::Bytes),
            #[cfg(not(target_arch = "x86_64"))]
            _ => (Kernels::PORTABLE_SHORTS, Integers::Shorts),
        }
    }

    /// The kernels for these operands, and how many of them a word holds.
    pub(crate) fn of(operands: Operands) -> Option<(Kernels, usize)> {
        match operands {
            Operands::F32 => Some((Kernels::in_use(), 1)),
            Operands::Bf16 => Kernels::of_bf16().map(|kernels| (kernels, 2)),
            Operands::Int8 => Some(match Kernels::of_int8() {
                (kernels, Integers::Shorts) => (kernels, 2),
                (kernels, Integers::Bytes) => (kernels, 4),
            }),
        }
    }

    const PORTABLE: Kernels = Kernels {
        half: portable::floats::<HALF>,
        whole: [portable::floats::<COLUMNS>; PANELS],
        most: 1,
    };

    const PORTABLE_SHORTS: Kernels = Kernels {
        half: portable::shorts::<HALF>,
        whole: [portable::shorts::<COLUMNS>; PANELS],
        most: 1,
    };

    /// Twelve accumulators, two panel registers and a broadcast value fill the sixteen registers.
    #[cfg(target_arch = "x86_64")]
    const AVX2: Kernels =
        Kernels { half: avx2::floats::<1>, whole: [avx2::floats::<2>; PANELS], most: 1 };

    #[cfg(target_arch = "x86_64")]
    const AVX2_SHORTS: Kernels =
        Kernels { half: avx2::shorts::<1>, whole: [avx2::shorts::<2>; PANELS], most: 1 };

    /// Twenty-four accumulators, four panel registers and a broadcast value fit 32 registers; a
    /// processor that multiplies two vectors a cycle then loads less than one per multiplication.
    #[cfg(target_arch = "x86_64")]
    const AVX512: Kernels = Kernels {
        half: avx2::floats::<1>,
        whole: [avx512::floats::<1>, avx512::floats::<2>, avx512::floats::<3>, avx512::floats::<4>],
        most: PANELS,
    };

    #[cfg(target_arch = "x86_64")]
    const AVX512_BF16: Kernels = Kernels::wide([
        avx512::pairs_of_bf16::<1>,
        avx512::pairs_of_bf16::<2>,
        avx512::pairs_of_bf16::<3>,
        avx512::pairs_of_bf16::<4>,
    ]);

    #[cfg(target_arch = "x86_64")]
    const AVX512_SHORTS: Kernels = Kernels::wide([
        avx512::shorts::<1>,
        avx512::shorts::<2>,
        avx512::shorts::<3>,
        avx512::shorts::<4>,
    ]);

    #[cfg(target_arch = "x86_64")]
    const AVX512_BYTES: Kernels = Kernels::wide([
        avx512::bytes::<1>,
        avx512::bytes::<2>,
        avx512::bytes::<3>,
        avx512::bytes::<4>,
    ]);

    /// Kernels of which that for one panel does for half of one.
    #[cfg(target_arch = "x86_64")]
    const fn wide(whole: [Kernel; PANELS]) -> Kernels {
        Kernels { half: whole[0], whole, most: PANELS }
    }

    /// The most panels that one tile takes.
    pub(crate) fn most(self) -> usize {
        self.most
    }

    /// Cuts a range of panels into ranges of at most [`Kernels::most`], as even as can be: a tile of
    /// one panel keeps a wide machine waiting.
    #[inline(always)]
    pub(crate) fn groups(self, panels: Range<usize>) -> impl Iterator<Item = Range<usize>> + Clone {
        let parts = panels.len().div_ceil(self.most).max(1);
        let size = panels.len().div_ceil(parts).max(1);
        panels.clone().step_by(size).map(move |first| first..panels.end.min(first + size))
    }

    /// Computes a tile of at most [`Kernels::most`] panels.
    ///
    /// # Safety
    /// As [`Kernel`].
    #[inline(always)]
    pub(crate) unsafe fn compute(self, tile: &Tile<'_>) {
        let kernel = match tile.width {
            0 => return,
            width if width <= HALF => self.half,
            width => self.whole[(width - 1) / COLUMNS],
        };
        // SAFETY: by the caller's promise; the set in use is one that the machine has.
        unsafe { kernel(tile) }
    }
}

#[cfg(test)]
mod tests;
