//! Sinusoidal embeddings of timesteps and of positions.

use burn::tensor::{Device, Tensor, TensorData};

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

/// Where the tokens begin (`positions` `[B, axes, T, 2]`) to `[B, T, width]`: for each of `axes`, in the
/// order given, an equal share of the width with sines first, then cosines.
pub fn position_embedding(positions: &Tensor<4>, axes: &[usize], width: usize) -> Tensor<3> {
    let [batch, all, tokens, _] = positions.dims();
    let share = width / axes.len();
    let half = share / 2;
    let frequencies: Vec<f64> =
        (0..half).map(|index| 10_000.0_f64.powf(-(index as f64) / half as f64)).collect();
    let starts = host(positions.clone().slice([0..batch, 0..all, 0..tokens, 0..1]));
    let mut values = Vec::with_capacity(batch * tokens * width);
    for sample in 0..batch {
        for token in 0..tokens {
            for axis in axes {
                let start = f64::from(starts[(sample * all + axis) * tokens + token]);
                values.extend(frequencies.iter().map(|frequency| (start * frequency).sin() as f32));
                values.extend(frequencies.iter().map(|frequency| (start * frequency).cos() as f32));
            }
        }
    }
    let data = TensorData::new(values, [batch, tokens, width]);
    Tensor::from_data(data, &positions.device().inner())
}

/// Positions `[batch, 2, rows * columns, 2]` of a grid of patches: axis 0 counts rows and axis 1
/// columns, in units of `scale`.
pub fn grid_positions(
    [rows, columns]: [usize; 2],
    scale: [f64; 2],
    batch: usize,
    device: &Device,
) -> Tensor<4> {
    let tokens = rows * columns;
    let mut values = Vec::with_capacity(4 * tokens);
    for token in 0..tokens {
        let row = token / columns;
        values.extend([row as f64 * scale[0], (row + 1) as f64 * scale[0]].map(|x| x as f32));
    }
    for token in 0..tokens {
        let column = token % columns;
        values.extend([column as f64 * scale[1], (column + 1) as f64 * scale[1]].map(|x| x as f32));
    }
    let positions = Tensor::<4>::from_data(TensorData::new(values, [1, 2, tokens, 2]), device);
    positions.expand([batch, 2, tokens, 2])
}

/// The values of a tensor on the host, as f32.
fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    let tensor = tensor.inner();
    let data = tensor.into_data().convert::<f32>();
    data.try_to_vec().expect("the data was just converted to f32")
}
