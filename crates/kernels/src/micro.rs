//! The innermost product: six rows times one packed panel of sixteen columns.
//!
//! Everything in this crate that multiplies matrices ends here. The left-hand rows are read where
//! they lie, through one pointer each, so a linear layer, an attention tile and a convolution (whose
//! "rows" are pixels under a tap) share one kernel and no left-hand copy is made. Each element is
//! one chain of fused multiply-adds over the depth, whatever the machine's vector width.

/// Rows of a tile.
pub(crate) const ROWS: usize = 6;
/// Columns of a tile and of a packed panel.
pub(crate) const COLUMNS: usize = 16;

/// What a tile does with what stands in its place already.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Write {
    /// Overwrite it.
    Store,
    /// Add to it.
    Add,
}

/// `out[r][c] (+)= sum over k < depth of rows[r][k] * panel[k][c]`, `out` having rows `stride` apart.
///
/// # Safety
/// Every row pointer is readable for `depth` floats, `panel` for `depth * COLUMNS`, and `out` is
/// writable for `ROWS` rows of the kernel's columns, `stride` floats apart.
pub(crate) type Kernel = unsafe fn(
    depth: usize,
    rows: &[*const f32; ROWS],
    panel: *const f32,
    out: *mut f32,
    stride: usize,
    write: Write,
);

/// The best kernels of this machine. Both compute an element in the same way.
#[derive(Clone, Copy)]
pub(crate) struct Kernels {
    whole: Kernel,
    half: Kernel,
}

impl Kernels {
    /// Asks the machine.
    pub(crate) fn best() -> Kernels {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
        {
            return Kernels { whole: avx2::<2>, half: avx2::<1> };
        }
        Kernels { whole: portable::<COLUMNS>, half: portable::<{ COLUMNS / 2 }> }
    }

    /// The kernel for a panel of which the first `columns` exist, and how many it writes.
    #[inline(always)]
    pub(crate) fn of(self, columns: usize) -> (Kernel, usize) {
        if columns <= COLUMNS / 2 { (self.half, COLUMNS / 2) } else { (self.whole, COLUMNS) }
    }
}

/// Vectors of eight columns, two for a whole panel, for each of six rows: twelve accumulators, two
/// panel registers and one broadcast fill the sixteen registers of AVX2.
///
/// # Safety
/// As [`Kernel`]; the machine has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2<const VECTORS: usize>(
    depth: usize,
    rows: &[*const f32; ROWS],
    panel: *const f32,
    out: *mut f32,
    stride: usize,
    write: Write,
) {
    use std::arch::x86_64::{
        _mm256_add_ps, _mm256_broadcast_ss, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_setzero_ps,
        _mm256_storeu_ps,
    };
    let mut sums = [[_mm256_setzero_ps(); VECTORS]; ROWS];
    let [r0, r1, r2, r3, r4, r5] = *rows;
    // SAFETY: every access stays within the extents promised by the caller.
    unsafe {
        for k in 0..depth {
            let group: [_; VECTORS] =
                std::array::from_fn(|v| _mm256_loadu_ps(panel.add(k * COLUMNS + 8 * v)));
            for (sums, row) in sums.iter_mut().zip([r0, r1, r2, r3, r4, r5]) {
                let value = _mm256_broadcast_ss(&*row.add(k));
                for (sum, values) in sums.iter_mut().zip(group) {
                    *sum = _mm256_fmadd_ps(value, values, *sum);
                }
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            for (v, sum) in sums.iter().enumerate() {
                let place = out.add(r * stride + 8 * v);
                let value = match write {
                    Write::Store => *sum,
                    Write::Add => _mm256_add_ps(_mm256_loadu_ps(place), *sum),
                };
                _mm256_storeu_ps(place, value);
            }
        }
    }
}

/// The same sums in plain Rust, which LLVM vectorises for the target's baseline.
///
/// # Safety
/// As [`Kernel`].
unsafe fn portable<const WIDTH: usize>(
    depth: usize,
    rows: &[*const f32; ROWS],
    panel: *const f32,
    out: *mut f32,
    stride: usize,
    write: Write,
) {
    let mut sums = [[0.0_f32; WIDTH]; ROWS];
    // SAFETY: every access stays within the extents promised by the caller.
    unsafe {
        for k in 0..depth {
            for (sum, row) in sums.iter_mut().zip(rows) {
                let value = *row.add(k);
                for (c, sum) in sum.iter_mut().enumerate() {
                    *sum = fused(value, *panel.add(k * COLUMNS + c), *sum);
                }
            }
        }
        for (r, sum) in sums.iter().enumerate() {
            for (c, sum) in sum.iter().enumerate() {
                let place = out.add(r * stride + c);
                *place = match write {
                    Write::Store => *sum,
                    Write::Add => *place + *sum,
                };
            }
        }
    }
}

/// `a * b + c`, rounded once where the target has an instruction for it. A machine without one
/// would call a slow library function, so it rounds twice.
#[inline(always)]
fn fused(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
        a.mul_add(b, c)
    } else {
        a * b + c
    }
}

/// As `kernel`, for a tile of which only the first `size.0` rows and `size.1` columns exist.
///
/// # Safety
/// As [`Kernel`], but `out` need only hold the existing part.
pub(crate) unsafe fn partial(
    kernel: Kernel,
    depth: usize,
    operands: (&[*const f32; ROWS], *const f32),
    (out, stride): (*mut f32, usize),
    size: (usize, usize),
    write: Write,
) {
    let mut tile = [0.0_f32; ROWS * COLUMNS];
    // SAFETY: the tile has room for a whole result, of which only the existing part is copied.
    unsafe {
        kernel(depth, operands.0, operands.1, tile.as_mut_ptr(), COLUMNS, Write::Store);
        for r in 0..size.0 {
            for c in 0..size.1 {
                let place = out.add(r * stride + c);
                let value = tile[r * COLUMNS + c];
                *place = match write {
                    Write::Store => value,
                    Write::Add => *place + value,
                };
            }
        }
    }
}
