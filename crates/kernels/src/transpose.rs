//! Columns transposed into rows, eight at a time: the one transposition that packing, attention's
//! backward pass and gradients of weights share.

use crate::instruction_set::InstructionSet;

/// How many columns are transposed together: the floats of one vector.
pub(crate) const SIDE: usize = 8;

/// `to[k * stride + c] = columns[c][k]` for every `k < depth`.
///
/// # Safety
/// Every column is readable for `depth` floats; `to` is writable for `depth` groups of [`SIDE`]
/// floats, `stride` floats apart, and overlaps no column.
pub(crate) type Transpose =
    unsafe fn(depth: usize, columns: &[*const f32; SIDE], to: *mut f32, stride: usize);

/// The best way to transpose in the set in use.
pub(crate) fn transpose_columns() -> Transpose {
    match InstructionSet::in_use() {
        InstructionSet::Portable => portable,
        #[cfg(target_arch = "x86_64")]
        _ => avx,
        #[cfg(not(target_arch = "x86_64"))]
        _ => portable,
    }
}

/// Eight vectors of eight at a time, transposed within registers.
///
/// # Safety
/// As [`Transpose`]; the machine has AVX.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn avx(depth: usize, columns: &[*const f32; SIDE], to: *mut f32, stride: usize) {
    use std::arch::x86_64::{
        _mm256_loadu_ps, _mm256_permute2f128_ps, _mm256_setzero_ps, _mm256_shuffle_ps,
        _mm256_storeu_ps, _mm256_unpackhi_ps, _mm256_unpacklo_ps,
    };
    let whole = depth / SIDE * SIDE;
    // SAFETY: every access stays within the extents promised by the caller.
    unsafe {
        for k in (0..whole).step_by(SIDE) {
            let rows = columns.map(|column| _mm256_loadu_ps(column.add(k)));
            // Pairs of columns interleaved, then fours, then the halves exchanged.
            let mut pairs = [_mm256_setzero_ps(); SIDE];
            let mut fours = pairs;
            for i in 0..SIDE / 2 {
                pairs[2 * i] = _mm256_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
                pairs[2 * i + 1] = _mm256_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
            }
            for (pairs, fours) in pairs.chunks_exact(4).zip(fours.chunks_exact_mut(4)) {
                fours[0] = _mm256_shuffle_ps::<0b01_00_01_00>(pairs[0], pairs[2]);
                fours[1] = _mm256_shuffle_ps::<0b11_10_11_10>(pairs[0], pairs[2]);
                fours[2] = _mm256_shuffle_ps::<0b01_00_01_00>(pairs[1], pairs[3]);
                fours[3] = _mm256_shuffle_ps::<0b11_10_11_10>(pairs[1], pairs[3]);
            }
            for i in 0..SIDE / 2 {
                let low = _mm256_permute2f128_ps::<0x20>(fours[i], fours[i + 4]);
                let high = _mm256_permute2f128_ps::<0x31>(fours[i], fours[i + 4]);
                _mm256_storeu_ps(to.add((k + i) * stride), low);
                _mm256_storeu_ps(to.add((k + i + 4) * stride), high);
            }
        }
        let rest = columns.map(|column| column.add(whole));
        portable(depth - whole, &rest, to.add(whole * stride), stride);
    }
}

/// Element by element.
///
/// # Safety
/// As [`Transpose`].
unsafe fn portable(depth: usize, columns: &[*const f32; SIDE], to: *mut f32, stride: usize) {
    for k in 0..depth {
        for (c, column) in columns.iter().enumerate() {
            // SAFETY: the access stays within the extents promised by the caller.
            unsafe { *to.add(k * stride + c) = *column.add(k) };
        }
    }
}
