//! Rows scaled to one length, with gain and activation: the norm of channels-last convolutions.

use burn::backend::Flex;
use burn::tensor::Tensor;

use crate::activation::Activation;
use crate::lanes::{map, sum};
use crate::operation::Operand;
use crate::rows::write_rows;
use crate::{oracle, storage};

/// Below this length a row counts as this long, so that a row of zeros stays one.
pub(crate) const SHORTEST: f32 = 1e-12;

/// `activation(x / |x| * sqrt(C) * gain)` over the last dim `C` of `x`, `gain` being `[C]`.
///
/// This is an RMS norm whose epsilon bounds the length of a row instead of adding to its square.
///
/// # Panics
/// Panics if the gain's size is not the last dim of `x`.
pub fn unit_norm<const D: usize>(
    x: Tensor<D>,
    gain: Tensor<1>,
    activation: Activation,
) -> Tensor<D> {
    let shape = x.dims();
    let width = shape[D - 1];
    assert_eq!(gain.dims(), [width], "a norm of {width} channels has as many gains");
    let (Some(Operand::Plain(values)), Some(Operand::Plain(gains))) =
        (Operand::new(&x), Operand::new(&gain))
    else {
        return oracle::unit_norm(x, gain, activation);
    };
    let (values, gains) = (storage::contiguous(values), storage::contiguous(gains));
    let (values, gains) = (storage::values(&values), storage::values(&gains));
    let root = (width as f32).sqrt();
    let out = write_rows(
        values.len(),
        width,
        #[inline(always)]
        |row, slots| {
            let row = &values[row * width..][..width];
            let length = sum([row], |[x]| x * x).sqrt();
            let factor = root / length.max(SHORTEST);
            let out = map(slots, [row, gains], |[x, gain]| x * factor * gain);
            activation.apply_slice(out);
            out
        },
    );
    Tensor::from_primitive::<Flex>(storage::tensor(out, shape))
}
