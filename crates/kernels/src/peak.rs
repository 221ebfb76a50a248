//! What the machine could do at best: the yardstick of every benchmark.

use std::hint::black_box;
use std::time::Instant;

use rayon::prelude::*;

use crate::micro::{COLUMNS, Kernels, ROWS, Write};

/// Floating-point operations per second of the micro-kernel on data that never leaves the first
/// level cache, on `threads` threads at once: the practical peak of fused multiply-adds.
pub fn measure_fma_peak(threads: usize) -> f64 {
    const DEPTH: usize = 256;
    const CALLS: usize = 40_000;
    let (kernel, _) = Kernels::best().of(COLUMNS);
    let best = (0..5)
        .map(|_| {
            let start = Instant::now();
            (0..threads).into_par_iter().for_each(|_| {
                let rows = vec![0.5_f32; ROWS * DEPTH];
                let panel = vec![0.25_f32; COLUMNS * DEPTH];
                let mut out = [0.0_f32; ROWS * COLUMNS];
                let pointers = std::array::from_fn(|row| rows[row * DEPTH..].as_ptr());
                for _ in 0..CALLS {
                    // SAFETY: six rows and one panel of DEPTH values, and a whole tile of output.
                    unsafe {
                        kernel(
                            DEPTH,
                            &pointers,
                            panel.as_ptr(),
                            out.as_mut_ptr(),
                            COLUMNS,
                            Write::Store,
                        );
                    }
                    black_box(&mut out);
                }
            });
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min);
    (2 * ROWS * COLUMNS * DEPTH * CALLS * threads) as f64 / best
}
