//! The random numbers of one micro-batch, keyed by what they are for.

use burn::tensor::{Device, Tensor, TensorData};
use diffusion::Draw;
use rayon::prelude::*;

/// Numbers keyed by (seed, step, stream, sample), where a sample is known by its index in the whole
/// step: how the step is cut into micro-batches or over ranks changes nothing.
#[derive(Clone, Copy, Debug)]
pub struct Draws {
    draw: Draw,
    first: u64,
    samples: usize,
    whole: Option<u64>,
}

impl Draws {
    /// The draws of `samples` samples from `first` on, in `step` of a run with `seed`.
    pub fn new(seed: u64, step: u64, first: u64, samples: usize) -> Draws {
        Draws { draw: Draw::new(seed).step(step), first, samples, whole: None }
    }

    /// The same, knowing how many samples the whole step has.
    pub fn of_whole(self, whole: u64) -> Draws {
        Draws { whole: Some(whole), ..self }
    }

    /// Which part of the step's samples a sample stands for, and how many there are, if that is
    /// known: every sample another one, dealt anew at each step.
    pub fn part(&self, sample: usize) -> Option<(u64, u64)> {
        let whole = self.whole.filter(|whole| *whole > 0)?;
        let offset = f64::from(self.shared("parts").uniform(0..1)[0]) * whole as f64;
        Some(((self.first + sample as u64 + offset as u64) % whole, whole))
    }

    /// The global index of the first sample.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// How many samples there are.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// The same samples below a name.
    pub fn below(&self, name: &str) -> Draws {
        Draws { draw: self.draw.stream(name), ..*self }
    }

    /// A draw that knows no sample: for decisions that all samples and ranks must share.
    pub fn shared(&self, stream: &str) -> Draw {
        self.draw.stream(stream)
    }

    /// The draw everything of `name` is keyed below, without a sample.
    pub fn root(&self, name: &str) -> Draw {
        self.draw.stream(name)
    }

    /// The draw of one sample.
    pub fn sample(&self, stream: &str, sample: usize) -> Draw {
        self.draw.stream(stream).sample(self.first + sample as u64)
    }

    /// One number from 0 to 1, 1 not included, per sample.
    pub fn uniform(&self, stream: &str) -> Vec<f32> {
        (0..self.samples).map(|sample| self.sample(stream, sample).uniform(0..1)[0]).collect()
    }

    /// Normal noise `[B, tokens, channels]`.
    pub fn normal(
        &self,
        stream: &str,
        tokens: usize,
        channels: usize,
        device: &Device,
    ) -> Tensor<3> {
        let elements = tokens * channels;
        let each: Vec<Vec<f32>> = (0..self.samples)
            .into_par_iter()
            .map(|sample| self.sample(stream, sample).normal(0..elements))
            .collect();
        let values = TensorData::new(each.concat(), [self.samples, tokens, channels]);
        Tensor::from_data(values, device)
    }
}
