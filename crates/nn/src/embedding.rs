//! Sinusoidal embeddings of timesteps and of positions.

use std::collections::BTreeMap;

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

/// Cosines and sines for `kernels::rope`, `[B, T, P]` each, or `[1, T, P]` where all samples have the
/// same positions `[B, axes, T, 2]`.
///
/// Axis `i` rotates the next `pairs[i]` pairs of a head by where the token begins, at frequencies that
/// fall from 1 towards 1/10,000; `P` is the sum of `pairs`. Angles are f64 until they are cosines and sines.
pub fn rope_angles(positions: &Tensor<4>, pairs: &[usize]) -> [Tensor<3>; 2] {
    let [batch, axes, tokens, _] = positions.dims();
    let starts = host(positions.clone().slice([0..batch, 0..axes, 0..tokens, 0..1]));
    let mut samples = starts.chunks(axes * tokens);
    let alike = samples.next().is_none_or(|first| samples.all(|sample| sample == first));
    let shape = [if alike { batch.min(1) } else { batch }, tokens, pairs.iter().sum()];
    let elements = shape.iter().product();
    let (mut cosines, mut sines) = (Vec::with_capacity(elements), Vec::with_capacity(elements));
    // A grid has few distinct coordinates: one rotation serves many tokens.
    let mut known = vec![BTreeMap::new(); pairs.len()];
    for row in 0..shape[0] * tokens {
        let (sample, token) = (row / tokens, row % tokens);
        for (axis, (known, &pairs)) in known.iter_mut().zip(pairs).enumerate() {
            let start = starts[(sample * axes + axis) * tokens + token];
            let (cosine, sine) =
                known.entry(start.to_bits()).or_insert_with(|| rotations(start, pairs));
            cosines.extend_from_slice(cosine);
            sines.extend_from_slice(sine);
        }
    }
    let device = positions.device().inner();
    [cosines, sines].map(|values| Tensor::from_data(TensorData::new(values, shape), &device))
}

/// The cosines and sines of one position on one axis.
fn rotations(position: f32, pairs: usize) -> (Vec<f32>, Vec<f32>) {
    let angle =
        |pair: usize| f64::from(position) * (1.0 / 10_000.0_f64.powf(pair as f64 / pairs as f64));
    let angles = || (0..pairs).map(angle);
    (angles().map(|x| x.cos() as f32).collect(), angles().map(|x| x.sin() as f32).collect())
}

/// Positions `[batch, A, T, 2]` of a grid of patches, one axis for each of its sides in the order
/// given, in units of `scale`; the tokens go through the last side first.
pub fn grid_positions<const A: usize>(
    grid: [usize; A],
    scale: [f64; A],
    batch: usize,
    device: &Device,
) -> Tensor<4> {
    let tokens = grid.iter().product();
    let mut values = Vec::with_capacity(2 * A * tokens);
    for axis in 0..A {
        let stride = grid[axis + 1..].iter().product::<usize>();
        for token in 0..tokens {
            let place = token / stride % grid[axis];
            values.extend([place, place + 1].map(|at| (at as f64 * scale[axis]) as f32));
        }
    }
    let positions = Tensor::<4>::from_data(TensorData::new(values, [1, A, tokens, 2]), device);
    positions.expand([batch, A, tokens, 2])
}

/// The values of a tensor on the host, as f32.
fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    let tensor = tensor.inner();
    let data = tensor.into_data().convert::<f32>();
    data.try_to_vec().expect("the data was just converted to f32")
}
