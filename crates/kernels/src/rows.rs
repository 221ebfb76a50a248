//! Row-wise work over all threads: cut by shape only, run with the machine's best instructions.
//!
//! Results are written into memory that nobody zeroed first: at the sizes of a transformer's
//! activations, touching a page once more costs as much as the arithmetic.

use std::mem::MaybeUninit;
use std::ops::Range;

use rayon::prelude::*;

use crate::work::dispatch;

/// How many elements one task writes: enough to pay for handing it to a thread, few enough to stay
/// in the second-level cache.
const TASK: usize = 16 * 1024;

/// The width of a row where the work is per element and has no rows of its own.
const ELEMENTS: usize = 4096;

/// The values of one row, not yet written.
pub(crate) type Slots<'a> = &'a mut [MaybeUninit<f32>];

/// `length` values in rows of `width`; `kernel` writes the row of the given index.
///
/// The kernel hands its slots back as values, which proves that it wrote them all.
pub(crate) fn write_rows(
    length: usize,
    width: usize,
    kernel: impl for<'a> Fn(usize, Slots<'a>) -> &'a mut [f32] + Sync,
) -> Vec<f32> {
    let tasks = tasks(length.div_ceil(width.max(1)), width);
    let cut = Cut { length, width, tasks: &tasks };
    write(
        &cut,
        0,
        #[inline(always)]
        |row, slots, _| kernel(row, slots),
    )
    .0
}

/// [`write_rows`] for work without rows: `kernel` writes the elements of the given range.
pub(crate) fn write_elements(
    length: usize,
    kernel: impl for<'a> Fn(Range<usize>, Slots<'a>) -> &'a mut [f32] + Sync,
) -> Vec<f32> {
    write_rows(
        length,
        ELEMENTS,
        #[inline(always)]
        |row, slots| {
            let first = row * ELEMENTS;
            kernel(first..first + slots.len(), slots)
        },
    )
}

/// Changes `values` in rows of `width` where they are; `kernel` changes the row of the given index.
pub(crate) fn update_rows(
    values: &mut [f32],
    width: usize,
    kernel: impl Fn(usize, &mut [f32]) + Sync,
) {
    let step = step(width);
    let run = |(task, values): (usize, &mut [f32])| {
        dispatch(
            (task, values),
            #[inline(always)]
            |(task, values)| {
                for (row, values) in values.chunks_mut(width.max(1)).enumerate() {
                    kernel(task * step + row, values);
                }
            },
        );
    };
    values.par_chunks_mut(step * width.max(1)).enumerate().for_each(run);
}

/// How `length` values are cut into rows of `width` (the last may be shorter) and the rows into
/// tasks, which lie one after the other and hold every row.
pub(crate) struct Cut<'a> {
    pub(crate) length: usize,
    pub(crate) width: usize,
    pub(crate) tasks: &'a [Range<usize>],
}

/// Writes the rows of every task, and adds up `partial` values beside them, from zero, per task.
///
/// Within a task the rows come in order, so what is added up depends on the cut alone.
pub(crate) fn write(
    cut: &Cut<'_>,
    partial: usize,
    kernel: impl for<'a> Fn(usize, Slots<'a>, &mut [f32]) -> &'a mut [f32] + Sync,
) -> (Vec<f32>, Vec<Vec<f32>>) {
    let mut values = Vec::with_capacity(cut.length);
    let slots = &mut values.spare_capacity_mut()[..cut.length];
    let run = |(rows, slots): (Range<usize>, Slots<'_>)| {
        let mut sums = vec![0.0; partial];
        dispatch(
            (rows, slots, &mut sums),
            #[inline(always)]
            |(rows, slots, sums)| {
                for (row, slots) in rows.zip(slots.chunks_mut(cut.width.max(1))) {
                    let expected = (slots.as_ptr().cast::<f32>(), slots.len());
                    let written = kernel(row, slots, sums);
                    assert_eq!((written.as_ptr(), written.len()), expected, "row {row} is written");
                }
            },
        );
        sums
    };
    let tasks = split(cut, slots);
    let sums = match tasks.len() {
        // Not worth waking a thread for.
        0 | 1 => tasks.into_iter().map(run).collect(),
        _ => tasks.into_par_iter().map(run).collect(),
    };
    // SAFETY: `split` gave every slot to a row of some task, and every row came back as written.
    unsafe { values.set_len(cut.length) };
    (values, sums)
}

/// Whole rows in tasks of about [`TASK`] elements.
pub(crate) fn tasks(rows: usize, width: usize) -> Vec<Range<usize>> {
    let step = step(width);
    (0..rows).step_by(step).map(|first| first..rows.min(first + step)).collect()
}

/// How many rows of `width` are one task.
fn step(width: usize) -> usize {
    (TASK / width.max(1)).max(1)
}

/// The slots of every task.
fn split<'a>(cut: &Cut<'_>, mut slots: Slots<'a>) -> Vec<(Range<usize>, Slots<'a>)> {
    let mut next = 0;
    let mut parts = Vec::with_capacity(cut.tasks.len());
    for rows in cut.tasks {
        assert_eq!(rows.start, next, "tasks lie one after the other");
        next = rows.end;
        let (part, rest) = slots.split_at_mut(slots.len().min(rows.len() * cut.width));
        assert_eq!(part.len().div_ceil(cut.width.max(1)), rows.len(), "tasks hold only rows");
        parts.push((rows.clone(), part));
        slots = rest;
    }
    assert!(slots.is_empty(), "tasks hold every row");
    parts
}
