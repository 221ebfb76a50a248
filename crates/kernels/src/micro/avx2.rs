//! The tiles with vectors of eight words.

use std::arch::x86_64::{
    __m256, _mm256_add_epi32, _mm256_add_ps, _mm256_broadcast_ss, _mm256_castps_si256,
    _mm256_castsi256_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_madd_epi16, _mm256_setzero_ps,
    _mm256_storeu_ps,
};

use super::{COLUMNS, ROWS, Sum, Tile, Write};

/// Words of a vector.
const LANES: usize = 8;

/// A kind of tile by what it does to a word: how a row's word and a panel's are multiplied into a
/// sum, and how two sums are added, as vectors and as what [`Sum`] says.
macro_rules! tile {
    ($(#[$about:meta])* $name:ident, $features:literal, $multiply:ident, $add:ident, $sum:expr) => {
        $(#[$about])*
        ///
        /// At most `VECTORS` vectors of one panel.
        ///
        /// # Safety
        /// As [`super::Kernel`]; the machine has the features.
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $name<const VECTORS: usize>(tile: &Tile<'_>) {
            let mut sums = [[_mm256_setzero_ps(); VECTORS]; ROWS];
            let [r0, r1, r2, r3, r4, r5] = *tile.rows;
            // SAFETY: every access stays within the extents promised by the caller.
            unsafe {
                for k in 0..tile.depth {
                    let group: [_; VECTORS] = std::array::from_fn(|v| {
                        _mm256_loadu_ps(tile.panels.add(k * COLUMNS + LANES * v))
                    });
                    for (sums, row) in sums.iter_mut().zip([r0, r1, r2, r3, r4, r5]) {
                        let value = _mm256_broadcast_ss(&*row.add(k));
                        for (sum, values) in sums.iter_mut().zip(group) {
                            *sum = $multiply(value, values, *sum);
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
                    return tile.put(&values, $sum);
                }
                for (r, sums) in sums.into_iter().enumerate() {
                    for (v, sum) in sums.into_iter().enumerate() {
                        let place = tile.out.add(r * tile.stride + LANES * v);
                        let value = match tile.write {
                            Write::Store => sum,
                            Write::Add => $add(_mm256_loadu_ps(place), sum),
                        };
                        _mm256_storeu_ps(place, value);
                    }
                }
            }
        }
    };
}

tile! {
    /// Words are floats.
    floats, "avx2,fma", _mm256_fmadd_ps, _mm256_add_ps, Sum::Float
}
tile! {
    /// Words are pairs of 16-bit integers, sums are integers.
    shorts, "avx2", multiply_shorts, add_integers, Sum::Integer
}

#[inline]
#[target_feature(enable = "avx2")]
fn multiply_shorts(row: __m256, panel: __m256, sum: __m256) -> __m256 {
    let products = _mm256_madd_epi16(_mm256_castps_si256(row), _mm256_castps_si256(panel));
    _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(sum), products))
}

#[inline]
#[target_feature(enable = "avx2")]
fn add_integers(a: __m256, b: __m256) -> __m256 {
    _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)))
}
