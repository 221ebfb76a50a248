//! Rotary angles of which every head has a band of its own.
//!
//! Frequencies rise from the first pair of the first head to the last pair of the last one, and the axes
//! of a place take turns. Heads are thus not alike: a rank that holds some of them says which.

use std::ops::Range;

use burn::tensor::{Tensor, TensorData};

use crate::embedding::host;
use crate::positions::Rope;

/// Which two values of a head turn together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// Neighbours: `2 i` and `2 i + 1`.
    Interleaved,
    /// One of each half: `i` and `i + H / 2`.
    Split,
}

/// What bands are made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Bands {
    /// Where an axis ends: a place is measured as a fraction of it. As many as there are axes in use.
    pub extents: Vec<f32>,
    /// Pairs of all heads together.
    pub pairs: usize,
    /// The highest frequency over the lowest.
    pub theta: f64,
}

impl Bands {
    /// Cosines and sines `[B, T, pairs]`, or `[1, T, pairs]` where all samples have the same places, of
    /// `positions` `[B, axes, T, 2]`.
    ///
    /// A token lies in the middle between its beginning and its end. Frequencies are computed in f64 and
    /// rounded; angles are f32, as in the reference, since at the highest of them a rounding shows.
    pub(crate) fn angles(&self, positions: &Tensor<4>) -> Rope {
        let [batch, axes, tokens, _] = positions.dims();
        let places = host(positions.clone());
        let mut samples = places.chunks(axes * tokens * 2);
        let alike = samples.next().is_none_or(|first| samples.all(|sample| sample == first));
        let shape = [if alike { batch.min(1) } else { batch }, tokens, self.pairs];
        let frequencies = self.frequencies();
        let idle = self.pairs - frequencies.len() * self.extents.len();
        let elements = shape.iter().product();
        let (mut cosines, mut sines) = (Vec::with_capacity(elements), Vec::with_capacity(elements));
        for row in 0..shape[0] * tokens {
            let (sample, token) = (row / tokens, row % tokens);
            let place = |axis: usize, extent: f32| {
                let at = ((sample * axes + axis) * tokens + token) * 2;
                (places[at] + places[at + 1]) / 2.0 / extent * 2.0 - 1.0
            };
            let places: Vec<f32> = self
                .extents
                .iter()
                .enumerate()
                .map(|(axis, extent)| place(axis, *extent))
                .collect();
            cosines.resize(cosines.len() + idle, 1.0);
            sines.resize(sines.len() + idle, 0.0);
            for (frequency, place) in frequencies
                .iter()
                .flat_map(|frequency| places.iter().map(move |place| (frequency, place)))
            {
                let (sine, cosine) = f64::from(place * frequency).sin_cos();
                cosines.push(cosine as f32);
                sines.push(sine as f32);
            }
        }
        let device = positions.device().inner();
        let [cosine, sine] = [cosines, sines]
            .map(|values| Tensor::from_data(TensorData::new(values, shape), &device));
        Rope { cosine, sine }
    }

    /// From a quarter of a turn to `theta` times that, evenly in their logarithm; each serves one pair of
    /// every axis.
    fn frequencies(&self) -> Vec<f32> {
        let count = self.pairs / self.extents.len();
        let last = count.saturating_sub(1).max(1) as f64;
        let frequency =
            |index: usize| self.theta.powf(index as f64 / last) * std::f64::consts::FRAC_PI_2;
        (0..count).map(|index| frequency(index) as f32).collect()
    }
}

impl Pairing {
    /// Heads `[B, T, N, H]` in which those that turn together are neighbours.
    fn neighbours(self, x: Tensor<4>) -> Tensor<4> {
        let [batch, tokens, heads, width] = x.dims();
        match self {
            Pairing::Interleaved => x,
            Pairing::Split => {
                let halves: Tensor<5> = x.reshape([batch, tokens, heads, 2, width / 2]);
                halves.swap_dims(3, 4).reshape([batch, tokens, heads, width])
            }
        }
    }
}

impl Rope {
    /// The heads `heads` of all, `[B, T, N, H]`, rotated by bands.
    ///
    /// Pairs of halves come back as neighbours: queries and keys that are rotated alike still meet as they
    /// should, and nothing else looks into a head.
    pub fn rotate_bands(&self, x: Tensor<4>, heads: Range<usize>, pairing: Pairing) -> Tensor<4> {
        let [batch, tokens, own, width] = x.dims();
        let graph = x.device().is_autodiff();
        let [cosine, sine] = [&self.cosine, &self.sine].map(|table| {
            let table = table.clone().narrow(2, heads.start * width / 2, own * width / 2);
            if graph { Tensor::from_inner(table) } else { table }
        });
        let row = pairing.neighbours(x).reshape([batch, tokens, 1, own * width]);
        kernels::rope(row, cosine, sine).reshape([batch, tokens, own, width])
    }

    /// The heads `[B, T, N, H]`, all rotated alike; pairs come back as in [`Rope::rotate_bands`].
    pub fn rotate_pairs(&self, x: Tensor<4>, pairing: Pairing) -> Tensor<4> {
        self.rotate(pairing.neighbours(x))
    }
}
