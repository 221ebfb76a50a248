//! Where tokens are, and what networks make of it: embeddings and rotary angles.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::{Device, Tensor, TensorData};

use crate::bands::Bands;
use crate::embedding::host;
use crate::error::Result;
use crate::packed::{Bag, Entry, Packed};

/// Where each token begins and ends on each axis, `[B, axes, T, 2]`, in the family's own units.
///
/// What a network makes of them is kept with them: the steps of a run and the blocks of a backward pass
/// ask for it again. Clones share what is kept.
#[derive(Clone, Debug)]
pub struct Positions {
    values: Tensor<4>,
    kept: Arc<Mutex<Kept>>,
}

/// What was made of positions, by what was asked for.
#[derive(Debug, Default)]
struct Kept {
    ropes: Shelf<(Vec<usize>, f64), Rope>,
    bands: Shelf<Bands, Rope>,
    embeddings: Shelf<(Vec<usize>, usize, f64), Tensor<3>>,
    parts: Shelf<Vec<Range<usize>>, Positions>,
}

/// A few answers by their questions.
type Shelf<K, V> = Vec<(K, V)>;

impl From<Tensor<4>> for Positions {
    fn from(values: Tensor<4>) -> Positions {
        Positions { values, kept: Arc::default() }
    }
}

impl Positions {
    /// The numbers, `[B, axes, T, 2]`.
    pub fn values(&self) -> &Tensor<4> {
        &self.values
    }

    /// `[B, axes, T, 2]`.
    pub fn dims(&self) -> [usize; 4] {
        self.values.dims()
    }

    /// Those of some of the tokens, range after range.
    pub fn part(&self, tokens: &[Range<usize>]) -> Positions {
        let make = || {
            let cut =
                |range: &Range<usize>| self.values.clone().narrow(2, range.start, range.len());
            Positions::from(Tensor::cat(tokens.iter().map(cut).collect(), 2))
        };
        self.keep(|kept| &mut kept.parts, tokens.to_vec(), make)
    }

    /// The angles of `kernels::rope`, with positions in units of `1 / scale`: axis `i` rotates the next
    /// `pairs[i]` pairs of a head.
    pub fn rope(&self, pairs: &[usize], scale: f64) -> Rope {
        let make = || {
            let [cosine, sine] = rope_angles(&self.scaled(scale), pairs);
            Rope { cosine, sine }
        };
        self.keep(|kept| &mut kept.ropes, (pairs.to_vec(), scale), make)
    }

    /// Angles of which every head has a band of its own, for [`Rope::rotate_bands`].
    pub fn bands(&self, bands: &Bands) -> Rope {
        self.keep(|kept| &mut kept.bands, bands.clone(), || bands.angles(&self.values))
    }

    /// Where the tokens begin, in units of `1 / scale`, as `[B, T, width]`: for each of `axes`, in the
    /// order given, an equal share of the width with sines first, then cosines.
    pub fn embedding(&self, axes: &[usize], width: usize, scale: f64) -> Tensor<3> {
        let make = || position_embedding(&self.scaled(scale), axes, width);
        self.keep(|kept| &mut kept.embeddings, (axes.to_vec(), width, scale), make)
    }

    fn scaled(&self, scale: f64) -> Tensor<4> {
        match scale == 1.0 {
            true => self.values.clone(),
            false => self.values.clone() * scale,
        }
    }

    /// What was kept under `key`, or else what `make` makes, from now on.
    fn keep<K: PartialEq, V: Clone>(
        &self,
        shelf: impl FnOnce(&mut Kept) -> &mut Shelf<K, V>,
        key: K,
        make: impl FnOnce() -> V,
    ) -> V {
        // Nothing is left half made by a panic: an entry is pushed whole.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let shelf = shelf(&mut kept);
        if let Some((_, value)) = shelf.iter().find(|(own, _)| *own == key) {
            return value.clone();
        }
        let value = make();
        shelf.push((key, value.clone()));
        value
    }
}

/// The angles by which the pairs of a head are rotated; they have no gradient.
#[derive(Clone, Debug)]
pub struct Rope {
    /// `[B | 1, T, H / 2]`, or `[B | 1, T, N H / 2]` of bands: one row where all samples have the same
    /// positions.
    pub cosine: Tensor<3>,
    /// The same shape.
    pub sine: Tensor<3>,
}

impl Bag for Rope {
    fn pack(self) -> Packed {
        let (cosine, sine) = (Entry::constant(self.cosine), Entry::constant(self.sine));
        Packed::of([("cosine", cosine), ("sine", sine)])
    }

    fn unpack(mut packed: Packed) -> Result<Rope> {
        let rope = Rope { cosine: packed.constant("cosine")?, sine: packed.constant("sine")? };
        packed.finish().map(|()| rope)
    }
}

impl Rope {
    /// The heads `[B, T, N, H]` rotated by where their tokens are.
    pub fn rotate(&self, x: Tensor<4>) -> Tensor<4> {
        let graph = x.device().is_autodiff();
        let [cosine, sine] = [&self.cosine, &self.sine].map(|table| match graph {
            true => Tensor::from_inner(table.clone()),
            false => table.clone(),
        });
        kernels::rope(x, cosine, sine)
    }
}

/// Where the tokens begin (`positions` `[B, axes, T, 2]`) to `[B, T, width]`: for each of `axes`, in the
/// order given, an equal share of the width with sines first, then cosines.
fn position_embedding(positions: &Tensor<4>, axes: &[usize], width: usize) -> Tensor<3> {
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
fn rope_angles(positions: &Tensor<4>, pairs: &[usize]) -> [Tensor<3>; 2] {
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
) -> Positions {
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
    positions.expand([batch, A, tokens, 2]).into()
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::grid_positions;

    fn values<const D: usize>(tensor: &burn::tensor::Tensor<D>) -> Vec<f32> {
        super::host(tensor.clone())
    }

    /// What is kept under one question is no answer to another.
    #[test]
    fn what_is_kept_is_what_would_be_made() {
        let positions = || grid_positions([3, 4], [1.0, 0.5], 2, &Device::flex());
        let kept = positions();
        for (pairs, scale) in [([2, 1], 1.0), ([1, 2], 1.0), ([2, 1], 3.0), ([2, 1], 1.0)] {
            let (own, anew) = (kept.rope(&pairs, scale), positions().rope(&pairs, scale));
            assert_eq!(values(&own.cosine), values(&anew.cosine));
            assert_eq!(values(&own.sine), values(&anew.sine));
        }
        for (axes, width, scale) in [([0, 1], 8, 1.0), ([1, 0], 8, 1.0), ([0, 1], 4, 1.0)] {
            let own = kept.embedding(&axes, width, scale);
            assert_eq!(values(&own), values(&positions().embedding(&axes, width, scale)));
        }
        for range in [0..5, 5..12, 0..5] {
            let whole = positions().values().clone().slice([0..2, 0..2, range.clone(), 0..2]);
            assert_eq!(values(kept.part(&[range]).values()), values(&whole));
        }
        let apart = kept.part(&[9..11, 2..3]);
        let whole = positions().values().clone();
        let tokens = burn::tensor::Tensor::from_ints([9, 10, 2], &Device::flex());
        assert_eq!(values(apart.values()), values(&whole.select(2, tokens)));
    }
}
