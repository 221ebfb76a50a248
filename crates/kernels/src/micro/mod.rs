//! The innermost product: six rows times a few packed panels of sixteen columns.
//!
//! Everything in this crate that multiplies matrices ends here. The left-hand rows are read where
//! they lie, through one pointer each, so a linear layer, an attention tile and a convolution (whose
//! "rows" are pixels under a tap) share one kernel and no left-hand copy is made. Each element is
//! one chain of fused multiply-adds over the depth, whatever the machine's vector width and however
//! many panels a kernel takes at once.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use std::ops::Range;

use crate::instruction_set::InstructionSet;

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
    /// Writes those of the `WIDTH` columns from `first` on that exist.
    ///
    /// # Safety
    /// `out` is writable for the tile's rows and columns.
    #[inline(always)]
    unsafe fn put<const WIDTH: usize>(&self, first: usize, sums: &[[f32; WIDTH]; ROWS]) {
        let width = WIDTH.min(self.width - first);
        for (r, sums) in sums.iter().enumerate().take(self.height) {
            for (c, sum) in sums.iter().enumerate().take(width) {
                // SAFETY: the place belongs to a row and a column that exist.
                unsafe {
                    let place = self.out.add(r * self.stride + first + c);
                    *place = match self.write {
                        Write::Store => *sum,
                        Write::Add => *place + *sum,
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

impl Kernels {
    /// Those of the set that this thread uses.
    pub(crate) fn in_use() -> Kernels {
        match InstructionSet::in_use() {
            InstructionSet::Portable => Kernels::PORTABLE,
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => Kernels::AVX2,
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => Kernels::AVX512,
            #[cfg(not(target_arch = "x86_64"))]
            InstructionSet::Avx2 | InstructionSet::Avx512 => Kernels::PORTABLE,
        }
    }

    const PORTABLE: Kernels = Kernels {
        half: portable::tile::<HALF>,
        whole: [portable::tile::<COLUMNS>; PANELS],
        most: 1,
    };

    /// Twelve accumulators, two panel registers and a broadcast value fill the sixteen registers.
    #[cfg(target_arch = "x86_64")]
    const AVX2: Kernels =
        Kernels { half: avx2::tile::<1>, whole: [avx2::tile::<2>; PANELS], most: 1 };

    /// Twenty-four accumulators, four panel registers and a broadcast value fit 32 registers; a
    /// processor that multiplies two vectors a cycle then loads less than one per multiplication.
    #[cfg(target_arch = "x86_64")]
    const AVX512: Kernels = Kernels {
        half: avx2::tile::<1>,
        whole: [avx512::tile::<1>, avx512::tile::<2>, avx512::tile::<3>, avx512::tile::<4>],
        most: PANELS,
    };

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
mod tests {
    use super::*;

    /// Distance between rows of the result: more than a tile is wide.
    const STRIDE: usize = PANELS * COLUMNS + 3;

    /// A product of six rows and four panels.
    struct Case {
        depth: usize,
        left: Vec<f32>,
        panels: Vec<f32>,
        before: Vec<f32>,
    }

    impl Case {
        fn new(depth: usize) -> Case {
            let value = |index: usize| ((index * 7919 % 1009) as f32 - 504.0) / 97.0;
            let values = |count| (0..count).map(value).collect();
            Case {
                depth,
                left: values(ROWS * depth),
                panels: values(PANELS * depth * COLUMNS),
                before: values(ROWS * STRIDE),
            }
        }

        fn compute(&self, kernels: Kernels, size: (usize, usize), write: Write) -> Vec<f32> {
            let mut out = self.before.clone();
            let tile = Tile {
                depth: self.depth,
                rows: &std::array::from_fn(|row| self.left[row * self.depth..].as_ptr()),
                panels: self.panels.as_ptr(),
                apart: self.depth * COLUMNS,
                out: out.as_mut_ptr(),
                stride: STRIDE,
                height: size.0,
                width: size.1,
                write,
            };
            // SAFETY: rows and panels have `depth` values, `out` has room for every tile.
            unsafe { kernels.compute(&tile) };
            out
        }

        /// One chain of fused multiply-adds from zero.
        fn chain(&self, row: usize, column: usize) -> f32 {
            let panel = &self.panels[column / COLUMNS * self.depth * COLUMNS..];
            (0..self.depth).fold(0.0_f32, |sum, k| {
                let right = panel[k * COLUMNS + column % COLUMNS];
                self.left[row * self.depth + k].mul_add(right, sum)
            })
        }
    }

    /// Every size of a tile under every set of the machine: an element has the bits of its chain,
    /// and nothing beside the tile is written.
    #[test]
    fn an_element_is_one_chain_of_fused_multiply_adds() {
        for set in InstructionSet::present().filter(|set| *set > InstructionSet::Portable) {
            let kernels = set.pool(1).unwrap().install(Kernels::in_use);
            let widths = 1..=kernels.most() * COLUMNS;
            let sizes = (1..=ROWS).flat_map(|height| widths.clone().map(move |w| (height, w)));
            for (case, size) in [0, 1, 2, 7, 33]
                .map(Case::new)
                .iter()
                .flat_map(|case| sizes.clone().map(move |size| (case, size)))
            {
                for write in [Write::Store, Write::Add] {
                    let out = case.compute(kernels, size, write);
                    for (index, (value, before)) in out.iter().zip(&case.before).enumerate() {
                        let (row, column) = (index / STRIDE, index % STRIDE);
                        let expected = match write {
                            _ if row >= size.0 || column >= size.1 => *before,
                            Write::Store => case.chain(row, column),
                            Write::Add => before + case.chain(row, column),
                        };
                        let place = format!("{set}, {size:?} of depth {}", case.depth);
                        assert_eq!(value.to_bits(), expected.to_bits(), "{place}: {row} {column}");
                    }
                }
            }
        }
    }

    #[test]
    fn groups_are_even_and_hold_every_panel() {
        let kernels = Kernels { most: 4, ..Kernels::PORTABLE };
        let expected: [&[usize]; 10] =
            [&[], &[1], &[2], &[3], &[4], &[3, 2], &[3, 3], &[4, 3], &[4, 4], &[3, 3, 3]];
        for (count, expected) in expected.into_iter().enumerate() {
            let groups: Vec<_> = kernels.groups(3..3 + count).collect();
            assert_eq!(groups.iter().map(Range::len).collect::<Vec<_>>(), expected);
            assert!(groups.into_iter().flatten().eq(3..3 + count), "{count} panels");
        }
    }
}
