//! Rotary position embedding over interleaved pairs.

use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;

use crate::lanes::copy;
use crate::operation::{Operand, Operation, apply};
use crate::rows::{update_rows, write_rows};
use crate::{oracle, storage};

/// Rotates each pair `(2i, 2i + 1)` of the last dim of `x` `[B, T, N, H]` by its token's `i`-th
/// angle: `cosine` and `sine` are `[B, T, H / 2]`, or `[1, T, H / 2]` for all samples alike.
///
/// # Panics
/// Panics if `H` is odd or the shapes do not belong together.
pub fn rope(x: Tensor<4>, cosine: Tensor<3>, sine: Tensor<3>) -> Tensor<4> {
    let [batch, tokens, _, width] = x.dims();
    let [samples, ..] = cosine.dims();
    assert!(samples == batch || samples == 1, "angles of {samples} samples for a batch of {batch}");
    assert_eq!(cosine.dims(), [samples, tokens, width / 2], "one angle for every pair of a token");
    assert_eq!(cosine.dims(), sine.dims(), "cosine and sine have one shape");
    assert_eq!(width % 2, 0, "a head of odd width {width} has no pairs");
    let operands = (Operand::new(&x), Operand::new(&cosine), Operand::new(&sine));
    let (Some(values), Some(cosines), Some(sines)) = operands else {
        return oracle::rope(x, cosine, sine);
    };
    // The last handle of the caller's: the rotation may happen in place.
    drop(x);
    apply(&Rope, [values, cosines, sines])
}

#[derive(Clone, Debug)]
struct Rope;

impl Operation<3> for Rope {
    type Saved = [FlexTensor; 3];

    fn plain(&self, inputs: [FlexTensor; 3]) -> FlexTensor {
        let [mut x, cosine, sine] = inputs.map(storage::contiguous);
        let [_, _, heads, head] = storage::sizes(&x)[..] else { panic!("x has four dims") };
        let angles = Angles::new([&cosine, &sine], head, Rotation::Forward);
        let Some(values) = storage::own(&mut x) else {
            return rotated(&x, [&cosine, &sine], Rotation::Forward);
        };
        update_rows(
            values,
            heads * head,
            #[inline(always)]
            |row, values| angles.rotate(row, values),
        );
        x
    }

    fn forward(&self, inputs: [FlexTensor; 3]) -> (FlexTensor, [FlexTensor; 3]) {
        let [x, cosine, sine] = inputs.map(storage::contiguous);
        (rotated(&x, [&cosine, &sine], Rotation::Forward), [x, cosine, sine])
    }

    fn backward(
        &self,
        [x, cosine, sine]: [FlexTensor; 3],
        gradient: FlexTensor,
        wanted: [bool; 3],
    ) -> [Option<FlexTensor>; 3] {
        let gradient = storage::contiguous(gradient);
        [
            wanted[0].then(|| rotated(&gradient, [&cosine, &sine], Rotation::Backward)),
            wanted[1].then(|| angles(&x, &gradient, &cosine, |x, g| g[0] * x[0] + g[1] * x[1])),
            wanted[2].then(|| angles(&x, &gradient, &cosine, |x, g| g[1] * x[0] - g[0] * x[1])),
        ]
    }
}

#[derive(Clone, Copy)]
enum Rotation {
    Forward,
    Backward,
}

/// The angles of all tokens, and which way to rotate.
struct Angles<'a> {
    cosines: &'a [f32],
    sines: &'a [f32],
    half: usize,
    sign: f32,
}

impl Angles<'_> {
    /// The angles of heads of width `head`.
    fn new([cosine, sine]: [&FlexTensor; 2], head: usize, rotation: Rotation) -> Angles<'_> {
        let sign = match rotation {
            Rotation::Forward => 1.0,
            Rotation::Backward => -1.0,
        };
        let (cosines, sines) = (storage::values(cosine), storage::values(sine));
        Angles { cosines, sines, half: head / 2, sign }
    }

    /// Rotates all heads of the token `row`. Where the angles are those of one sample, they start anew
    /// with each.
    #[inline(always)]
    fn rotate(&self, row: usize, heads: &mut [f32]) {
        let half = self.half;
        let first = row % (self.cosines.len() / half.max(1)) * half;
        let (cosine, sine) = (&self.cosines[first..][..half], &self.sines[first..][..half]);
        for head in heads.chunks_exact_mut(2 * half) {
            rotate(head, cosine, sine, self.sign);
        }
    }
}

/// The pairs of `x` rotated by their angles.
fn rotated(x: &FlexTensor, angles: [&FlexTensor; 2], rotation: Rotation) -> FlexTensor {
    let (values, shape) = (storage::values(x), storage::sizes(x));
    let width = shape[2] * shape[3];
    let angles = Angles::new(angles, shape[3], rotation);
    let out = write_rows(
        values.len(),
        width,
        #[inline(always)]
        |row, slots| {
            let out = copy(slots, &values[row * width..][..width]);
            angles.rotate(row, out);
            out
        },
    );
    storage::tensor(out, shape)
}

#[inline(always)]
fn rotate(head: &mut [f32], cosine: &[f32], sine: &[f32], sign: f32) {
    let (pairs, _) = head.as_chunks_mut::<2>();
    for (pair, (cosine, sine)) in pairs.iter_mut().zip(cosine.iter().zip(sine)) {
        let [first, second] = *pair;
        let sine = sign * sine;
        *pair = [first.mul_add(*cosine, -(second * sine)), first.mul_add(sine, second * cosine)];
    }
}

/// The gradient of a table of angles: `term` of every pair and its gradient, added up over heads,
/// and over samples where the table has one for all.
fn angles(
    x: &FlexTensor,
    gradient: &FlexTensor,
    table: &FlexTensor,
    term: impl Fn([f32; 2], [f32; 2]) -> f32 + Sync,
) -> FlexTensor {
    let (values, upstream) = (storage::values(x), storage::values(gradient));
    let (shape, sizes) = (storage::sizes(x), storage::sizes(table));
    let (width, half) = (shape[2] * shape[3], shape[3] / 2);
    let (rows, angles) = (shape[0] * shape[1], sizes[0] * sizes[1]);
    let zeros = vec![0.0; half];
    let out = write_rows(
        angles * half,
        half,
        #[inline(always)]
        |angle, slots| {
            let sums = copy(slots, &zeros);
            for row in (angle..rows).step_by(angles) {
                let (x, _) = values[row * width..][..width].as_chunks::<2>();
                let (gradient, _) = upstream[row * width..][..width].as_chunks::<2>();
                for (x, gradient) in x.chunks_exact(half).zip(gradient.chunks_exact(half)) {
                    for (sum, (x, gradient)) in sums.iter_mut().zip(x.iter().zip(gradient)) {
                        *sum += term(*x, *gradient);
                    }
                }
            }
            sums
        },
    );
    storage::tensor(out, sizes)
}
