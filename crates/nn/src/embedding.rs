//! The sinusoidal embedding of timesteps.

use burn::tensor::{Tensor, TensorData};

/// Timesteps `[B, K]` to `[B, K, width]`: cosines first, then sines, periods up to 10,000.
///
/// The frequencies are rounded to f32 as PyTorch rounds them; at a timestep of 999 that decides the
/// fifth digit.
pub fn timestep_embedding(timesteps: &Tensor<2>, width: usize) -> Tensor<3> {
    let [batch, levels] = timesteps.dims();
    let half = width / 2;
    let frequencies: Vec<f32> = (0..half)
        .map(|index| -(10_000.0_f64.ln() as f32) * index as f32 / half as f32)
        .map(|exponent| f64::from(exponent).exp() as f32)
        .collect();
    let mut values = Vec::with_capacity(batch * levels * width);
    for timestep in host(timesteps.clone()) {
        let angles = || frequencies.iter().map(|frequency| f64::from(timestep * frequency));
        values.extend(angles().map(|angle| angle.cos() as f32));
        values.extend(angles().map(|angle| angle.sin() as f32));
        values.resize(values.len() + width % 2, 0.0);
    }
    let data = TensorData::new(values, [batch, levels, width]);
    Tensor::from_data(data, &timesteps.device().inner())
}

/// The values of a tensor on the host, as f32.
pub(crate) fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    let tensor = tensor.inner();
    let data = tensor.into_data().convert::<f32>();
    data.try_to_vec().expect("the data was just converted to f32")
}
