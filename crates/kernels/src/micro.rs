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
/// writable for `ROWS` rows of `COLUMNS` floats, `stride` floats apart.
pub(crate) type Kernel = unsafe fn(
    depth: usize,
    rows: &[*const f32; ROWS],
    panel: *const f32,
    out: *mut f32,
    stride: usize,
    write: Write,
);

/// The best kernel of this machine.
pub(crate) fn kernel() -> Kernel {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        return avx2;
    }
    portable
}

/// Two vectors of eight columns for each of six rows: twelve accumulators, two panel registers and
/// one broadcast fill the sixteen registers of AVX2.
///
/// # Safety
/// As [`Kernel`]; the machine has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2(
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
    let mut sums = [[_mm256_setzero_ps(); 2]; ROWS];
    let [r0, r1, r2, r3, r4, r5] = *rows;
    // SAFETY: every access stays within the extents promised by the caller.
    unsafe {
        for k in 0..depth {
            let left = _mm256_loadu_ps(panel.add(k * COLUMNS));
            let right = _mm256_loadu_ps(panel.add(k * COLUMNS + 8));
            for (sum, row) in sums.iter_mut().zip([r0, r1, r2, r3, r4, r5]) {
                let value = _mm256_broadcast_ss(&*row.add(k));
                sum[0] = _mm256_fmadd_ps(value, left, sum[0]);
                sum[1] = _mm256_fmadd_ps(value, right, sum[1]);
            }
        }
        for (r, sum) in sums.iter().enumerate() {
            let place = out.add(r * stride);
            for (half, sum) in sum.iter().enumerate() {
                let place = place.add(half * 8);
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
unsafe fn portable(
    depth: usize,
    rows: &[*const f32; ROWS],
    panel: *const f32,
    out: *mut f32,
    stride: usize,
    write: Write,
) {
    let mut sums = [[0.0_f32; COLUMNS]; ROWS];
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
