//! The tile with vectors of eight floats.

use std::arch::x86_64::{
    _mm256_add_ps, _mm256_broadcast_ss, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_setzero_ps,
    _mm256_storeu_ps,
};

use super::{COLUMNS, ROWS, Tile, Write};

/// Floats of a vector.
const LANES: usize = 8;

/// A tile of at most `VECTORS` vectors of one panel.
///
/// # Safety
/// As [`super::Kernel`]; the machine has AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn tile<const VECTORS: usize>(tile: &Tile<'_>) {
    let mut sums = [[_mm256_setzero_ps(); VECTORS]; ROWS];
    let [r0, r1, r2, r3, r4, r5] = *tile.rows;
    // SAFETY: every access stays within the extents promised by the caller.
    unsafe {
        for k in 0..tile.depth {
            let group: [_; VECTORS] =
                std::array::from_fn(|v| _mm256_loadu_ps(tile.panels.add(k * COLUMNS + LANES * v)));
            for (sums, row) in sums.iter_mut().zip([r0, r1, r2, r3, r4, r5]) {
                let value = _mm256_broadcast_ss(&*row.add(k));
                for (sum, values) in sums.iter_mut().zip(group) {
                    *sum = _mm256_fmadd_ps(value, values, *sum);
                }
            }
        }
        if (tile.height, tile.width) != (ROWS, VECTORS * LANES) {
            let mut values = [[0.0; COLUMNS]; ROWS];
            for (values, sums) in values.iter_mut().zip(sums) {
                for (v, sum) in sums.into_iter().enumerate() {
                    _mm256_storeu_ps(values[v * LANES..].as_mut_ptr(), sum);
                }
            }
            return tile.put(0, &values);
        }
        for (r, sums) in sums.into_iter().enumerate() {
            for (v, sum) in sums.into_iter().enumerate() {
                let place = tile.out.add(r * tile.stride + LANES * v);
                let value = match tile.write {
                    Write::Store => sum,
                    Write::Add => _mm256_add_ps(_mm256_loadu_ps(place), sum),
                };
                _mm256_storeu_ps(place, value);
            }
        }
    }
}
