//! Counter-based noise: every number is a function of what it is for, never of who draws it.
//!
//! A draw is keyed by (seed, stream name, step, sample) and the index of the element in the
//! *global* tensor is the counter. So any rank draws the part it holds, and it equals that part
//! of the whole. The generator is Philox 4x32-10 (Salmon et al. 2011); normal numbers come from
//! Box and Muller's method in f64 with `libm`, the same on every machine.

use burn::tensor::{Device, Tensor, TensorData};
use rand_philox::{philox4x32_10, splitmix64};
use std::ops::Range;

/// Philox makes this many words at a time.
const WORDS: usize = 4;

/// A named source of random numbers.
///
/// ```
/// # use diffusion::Draw;
/// let noise = Draw::new(7).stream("initial-noise").step(0).sample(3);
/// assert_eq!(noise.normal(10..14), noise.normal(0..20)[10..14]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draw {
    key: u64,
    step: u64,
    sample: Option<u64>,
}

/// Uniform and normal numbers of one draw must not come from the same words.
#[derive(Clone, Copy)]
enum Distribution {
    Uniform = 1,
    Normal = 2,
}

impl Draw {
    /// The root of all draws of a run.
    pub fn new(seed: u64) -> Draw {
        Draw { key: absorb(0, seed), step: 0, sample: None }
    }

    /// What the numbers are for. Streams nest: `a` of `b` is neither `a` nor `b` nor `ab`.
    pub fn stream(self, name: &str) -> Draw {
        let length = absorb(self.key, name.len() as u64);
        let word = |bytes: &[u8]| {
            bytes.iter().rev().fold(0, |word: u64, byte| word << 8 | u64::from(*byte))
        };
        let key = name.as_bytes().chunks(8).map(word).fold(length, absorb);
        Draw { key, ..self }
    }

    /// The step of training or sampling; 0 unless it is said.
    pub fn step(self, step: u64) -> Draw {
        Draw { step, ..self }
    }

    /// The global index of the sample. A draw that decides which network runs, or how often,
    /// goes without, so that every rank decides the same.
    pub fn sample(self, sample: u64) -> Draw {
        Draw { sample: Some(sample), ..self }
    }

    /// Uniform numbers, 0 included and 1 not, for a range of elements.
    pub fn uniform(&self, elements: Range<usize>) -> Vec<f32> {
        let unit = |words: [u32; WORDS]| words.map(|word| (word >> 8) as f32 / (1 << 24) as f32);
        self.fill(Distribution::Uniform, elements, unit)
    }

    /// Normal numbers of mean 0 and variance 1, for a range of elements.
    pub fn normal(&self, elements: Range<usize>) -> Vec<f32> {
        self.fill(Distribution::Normal, elements, |[a, b, c, d]| {
            let ([first, second], [third, fourth]) = (normal_pair(a, b), normal_pair(c, d));
            [first, second, third, fourth]
        })
    }

    /// A whole tensor of normal numbers, of any shape.
    pub fn normal_tensor<const D: usize>(&self, shape: [usize; D], device: &Device) -> Tensor<D> {
        let values = self.normal(0..shape.iter().product());
        Tensor::from_data(TensorData::new(values, shape), device)
    }

    /// The rows `tokens` of a `[all tokens, channels]` tensor of normal numbers.
    pub fn normal_tokens(
        &self,
        tokens: Range<usize>,
        channels: usize,
        device: &Device,
    ) -> Tensor<2> {
        let values = self.normal(tokens.start * channels..tokens.end * channels);
        Tensor::from_data(TensorData::new(values, [tokens.len(), channels]), device)
    }

    fn fill(
        &self,
        distribution: Distribution,
        elements: Range<usize>,
        numbers: impl Fn([u32; WORDS]) -> [f32; WORDS],
    ) -> Vec<f32> {
        let (first, last) = (elements.start / WORDS, elements.end.div_ceil(WORDS));
        let words = self.words(distribution);
        (first..last)
            .flat_map(|block| numbers(words(block as u64)))
            .skip(elements.start % WORDS)
            .take(elements.len())
            .collect()
    }

    /// The words of each block of this draw. Step and sample are in the counter as far as it
    /// has room for them, so neighbours cannot collide.
    fn words(&self, distribution: Distribution) -> impl Fn(u64) -> [u32; WORDS] {
        let sample = self.sample.unwrap_or(0);
        // No sample is different from the first one.
        let high_sample = self.sample.map_or(0, |sample| (sample >> 32) + 1);
        let key =
            [distribution as u64, self.step >> 32, high_sample].into_iter().fold(self.key, absorb);
        let (key, place) = (halves(key), [halves(self.step)[0], halves(sample)[0]]);
        move |block| {
            let [low, high] = halves(block);
            philox4x32_10([low, high, place[0], place[1]], key)
        }
    }
}

/// Mixes one more word into a key.
fn absorb(key: u64, word: u64) -> u64 {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    splitmix64(key.wrapping_add(GOLDEN) ^ word)
}

/// The low and the high word.
fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

/// Two independent normal numbers from two words.
fn normal_pair(radius: u32, angle: u32) -> [f32; 2] {
    let unit = |word: u32| (f64::from(word) + 0.5) / 2f64.powi(32);
    let radius = libm::sqrt(-2.0 * libm::log(unit(radius)));
    let (sine, cosine) = libm::sincos(std::f64::consts::TAU * unit(angle));
    [(radius * cosine) as f32, (radius * sine) as f32]
}
