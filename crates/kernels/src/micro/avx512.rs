//! The tiles with vectors of sixteen words, one per panel.

use std::arch::x86_64::{
    __m512, _mm512_add_epi32, _mm512_add_ps, _mm512_castps_si512, _mm512_castsi512_ps,
    _mm512_dpbf16_ps, _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_madd_epi16,
    _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps, _mm512_set1_ps, _mm512_setzero_ps,
    _mm512_storeu_ps,
};

use super::{COLUMNS, ROWS, Tile, Write};

/// A kind of tile by what it does to a word: how a row's word and a panel's are multiplied into a
/// sum, and how two sums are added.
macro_rules! tile {
    ($(#[$about:meta])* $name:ident, $features:literal, $multiply:ident, $add:ident) => {
        $(#[$about])*
        ///
        /// Of `PANELS` panels, the last may have fewer columns.
        ///
        /// # Safety
        /// As [`super::Kernel`]; the machine has the features.
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $name<const PANELS: usize>(tile: &Tile<'_>) {
            let mut sums = [[_mm512_setzero_ps(); PANELS]; ROWS];
            let [r0, r1, r2, r3, r4, r5] = *tile.rows;
            // SAFETY: every access stays within the extents promised by the caller; lanes outside a
            // mask are not touched.
            unsafe {
                for k in 0..tile.depth {
                    let group: [_; PANELS] = std::array::from_fn(|panel| {
                        _mm512_loadu_ps(tile.panels.add(panel * tile.apart + k * COLUMNS))
                    });
                    for (sums, row) in sums.iter_mut().zip([r0, r1, r2, r3, r4, r5]) {
                        let value = _mm512_set1_ps(*row.add(k));
                        for (sum, values) in sums.iter_mut().zip(group) {
                            *sum = $multiply(value, values, *sum);
                        }
                    }
                }
                for (r, sums) in sums.into_iter().enumerate() {
                    // Not `take`: a loop of unknown length would move the sums out of their registers.
                    if r == tile.height {
                        break;
                    }
                    for (panel, sum) in sums.into_iter().enumerate() {
                        let place = tile.out.add(r * tile.stride + COLUMNS * panel);
                        match (tile.width - COLUMNS * panel, tile.write) {
                            (COLUMNS.., Write::Store) => _mm512_storeu_ps(place, sum),
                            (COLUMNS.., Write::Add) => {
                                _mm512_storeu_ps(place, $add(_mm512_loadu_ps(place), sum));
                            }
                            (columns, write) => {
                                let mask = (1 << columns) - 1;
                                let value = match write {
                                    Write::Store => sum,
                                    Write::Add => $add(_mm512_maskz_loadu_ps(mask, place), sum),
                                };
                                _mm512_mask_storeu_ps(place, mask, value);
                            }
                        }
                    }
                }
            }
        }
    };
}

tile! {
    /// Words are floats.
    floats, "avx512f", _mm512_fmadd_ps, _mm512_add_ps
}
tile! {
    /// Words are pairs of bf16, sums are floats.
    pairs_of_bf16, "avx512f,avx512bf16", multiply_bf16, _mm512_add_ps
}
tile! {
    /// Words are pairs of 16-bit integers, sums are integers.
    shorts, "avx512f,avx512bw", multiply_shorts, add_integers
}
tile! {
    /// Words are four bytes, unsigned in a row and signed in a panel; sums are integers.
    bytes, "avx512f,avx512vnni", multiply_bytes, add_integers
}

#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn multiply_bf16(row: __m512, panel: __m512, sum: __m512) -> __m512 {
    // SAFETY: vectors of the same size, in which every pattern of bits is a value.
    let [row, panel] = [row, panel].map(|words| unsafe { std::mem::transmute(words) });
    _mm512_dpbf16_ps(sum, row, panel)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn multiply_shorts(row: __m512, panel: __m512, sum: __m512) -> __m512 {
    let products = _mm512_madd_epi16(_mm512_castps_si512(row), _mm512_castps_si512(panel));
    _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(sum), products))
}

#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
fn multiply_bytes(row: __m512, panel: __m512, sum: __m512) -> __m512 {
    let [row, panel, sum] = [row, panel, sum].map(|words| _mm512_castps_si512(words));
    _mm512_castsi512_ps(_mm512_dpbusd_epi32(sum, row, panel))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn add_integers(a: __m512, b: __m512) -> __m512 {
    _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)))
}
