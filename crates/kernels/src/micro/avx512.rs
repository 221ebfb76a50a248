//! The tile with vectors of sixteen floats, one per panel.

use std::arch::x86_64::{
    __m512, __mmask16, _mm512_add_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mask_storeu_ps,
    _mm512_maskz_loadu_ps, _mm512_set1_ps, _mm512_setzero_ps, _mm512_storeu_ps,
};

use super::{COLUMNS, ROWS, Tile, Write};

/// A tile of `PANELS` panels, the last of which may have fewer columns.
///
/// # Safety
/// As [`super::Kernel`]; the machine has AVX-512F.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn tile<const PANELS: usize>(tile: &Tile<'_>) {
    let mut sums = [[_mm512_setzero_ps(); PANELS]; ROWS];
    let [r0, r1, r2, r3, r4, r5] = *tile.rows;
    // SAFETY: every access stays within the extents promised by the caller.
    unsafe {
        for k in 0..tile.depth {
            let group: [_; PANELS] = std::array::from_fn(|panel| {
                _mm512_loadu_ps(tile.panels.add(panel * tile.apart + k * COLUMNS))
            });
            for (sums, row) in sums.iter_mut().zip([r0, r1, r2, r3, r4, r5]) {
                let value = _mm512_set1_ps(*row.add(k));
                for (sum, values) in sums.iter_mut().zip(group) {
                    *sum = _mm512_fmadd_ps(value, values, *sum);
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
                match tile.width - COLUMNS * panel {
                    COLUMNS.. => put(sum, place, tile.write),
                    columns => put_part((1 << columns) - 1, sum, place, tile.write),
                }
            }
        }
    }
}

/// # Safety
/// `place` is writable for a vector; the machine has AVX-512F.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn put(sum: __m512, place: *mut f32, write: Write) {
    // SAFETY: by the caller's promise.
    unsafe {
        match write {
            Write::Store => _mm512_storeu_ps(place, sum),
            Write::Add => _mm512_storeu_ps(place, _mm512_add_ps(_mm512_loadu_ps(place), sum)),
        }
    }
}

/// # Safety
/// `place` is writable for the columns in `mask`; the machine has AVX-512F.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn put_part(mask: __mmask16, sum: __m512, place: *mut f32, write: Write) {
    // SAFETY: by the caller's promise; lanes outside the mask are not touched.
    unsafe {
        let value = match write {
            Write::Store => sum,
            Write::Add => _mm512_add_ps(_mm512_maskz_loadu_ps(mask, place), sum),
        };
        _mm512_mask_storeu_ps(place, mask, value);
    }
}
