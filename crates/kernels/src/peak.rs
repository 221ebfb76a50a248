//! What the machine could do at best: the yardstick of every benchmark.

use std::hint::black_box;
use std::time::Instant;

use rayon::prelude::*;

use crate::instruction_set::Operands;
use crate::micro::{COLUMNS, Kernels, PANELS, ROWS, Tile, Write};

/// Floating-point operations per second of the micro-kernel in use on data that never leaves the
/// first-level cache, on `threads` threads of this pool at once: the practical peak of fused
/// multiply-adds.
pub fn measure_fma_peak(threads: usize) -> f64 {
    measure_peak(Operands::F32, threads).expect("every set multiplies floats")
}

/// The same for other operands, a multiplication and an addition each; none where the set in use
/// does not multiply them.
pub fn measure_peak(operands: Operands, threads: usize) -> Option<f64> {
    const OPERATIONS: usize = 2_000_000_000;
    // Rows and panels together are half of a first-level cache.
    const DEPTH: usize = 64;
    let (kernels, of_word) = Kernels::of(operands)?;
    let width = kernels.most() * COLUMNS;
    let operations = 2 * ROWS * width * DEPTH * of_word;
    let calls = OPERATIONS / operations;
    let best = (0..5)
        .map(|_| {
            let start = Instant::now();
            (0..threads).into_par_iter().for_each(|_| {
                let rows = vec![0.5_f32; ROWS * DEPTH];
                let panels = vec![0.25_f32; PANELS * COLUMNS * DEPTH];
                let mut out = [0.0_f32; ROWS * PANELS * COLUMNS];
                let pointers = std::array::from_fn(|row| rows[row * DEPTH..].as_ptr());
                for _ in 0..calls {
                    let tile = Tile {
                        depth: DEPTH,
                        rows: &pointers,
                        panels: panels.as_ptr(),
                        apart: COLUMNS * DEPTH,
                        out: out.as_mut_ptr(),
                        stride: width,
                        height: ROWS,
                        width,
                        write: Write::Store,
                    };
                    // SAFETY: rows and panels have DEPTH values each, `out` holds a whole tile.
                    unsafe { kernels.compute(&tile) };
                    black_box(&mut out);
                }
            });
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min);
    Some((operations * calls * threads) as f64 / best)
}
