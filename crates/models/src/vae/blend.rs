//! How neighbouring tiles become one picture.

use burn::tensor::{Tensor, TensorData};

/// Fades from what the tile before made of the first pixels of `tile` to `tile` itself.
pub(super) fn blend(before: Option<Tensor<4>>, tile: Tensor<4>, axis: usize) -> Tensor<4> {
    let Some(before) = before else { return tile };
    let (extent, side) = (before.dims()[axis], tile.dims()[axis]);
    let ramp = |weight: fn(f64) -> f64| {
        let weights = (0..extent).map(|pixel| weight(pixel as f64 / extent as f64) as f32);
        let mut shape = [1; 4];
        shape[axis] = extent;
        let weights = TensorData::new(weights.collect::<Vec<_>>(), shape);
        Tensor::<4>::from_data(weights, &tile.device())
    };
    let fading = before * ramp(|share| 1.0 - share);
    let rising = tile.clone().slice_dim(axis, 0..extent) * ramp(|share| share);
    let blended = fading + rising;
    match extent < side {
        true => Tensor::cat(vec![blended, tile.slice_dim(axis, extent..side)], axis),
        false => blended,
    }
}
