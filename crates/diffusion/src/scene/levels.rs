//! How noisy the tokens of a track are.

use burn::tensor::{Device, Tensor, TensorData};

/// Noise levels from 0 (clean) to 1: few distinct ones per sample, and which of them a token has.
#[derive(Clone, Debug, PartialEq)]
pub struct NoiseLevels {
    /// The distinct levels of every sample; all samples have the same number.
    distinct: Vec<Vec<f32>>,
    /// Which of them each token has; `None` where a sample has one.
    index: Option<Vec<usize>>,
    /// The network's timestep of the one level there is, where a solver says it.
    timestep: Option<f32>,
}

impl NoiseLevels {
    /// One level per sample.
    pub fn per_sample(levels: Vec<f32>) -> NoiseLevels {
        let distinct = levels.into_iter().map(|level| vec![level]).collect();
        NoiseLevels { distinct, index: None, timestep: None }
    }

    /// One level for all samples, at which a solver tells the network `timestep`: exactly that, not what
    /// a process makes of the rounded level.
    pub fn at_timestep(level: f32, timestep: f64, samples: usize) -> NoiseLevels {
        let timestep = Some(timestep as f32);
        NoiseLevels { timestep, ..NoiseLevels::per_sample(vec![level; samples]) }
    }

    /// Several levels per sample; `index` says which of them a token has, in every sample alike.
    ///
    /// # Panics
    /// Panics if an index points past the levels of a sample.
    pub fn per_group(distinct: Vec<Vec<f32>>, index: Vec<usize>) -> NoiseLevels {
        let count = distinct.first().map_or(0, Vec::len);
        assert!(distinct.iter().all(|levels| levels.len() == count), "one number of levels");
        assert!(index.iter().all(|level| *level < count), "every token has one of the levels");
        NoiseLevels { distinct, index: Some(index), timestep: None }
    }

    /// The number of samples.
    pub fn samples(&self) -> usize {
        self.distinct.len()
    }

    /// The distinct levels of one sample.
    pub fn distinct(&self, sample: usize) -> &[f32] {
        &self.distinct[sample]
    }

    /// The network's timestep of all tokens, where a solver says it.
    pub(crate) fn timestep(&self) -> Option<f32> {
        self.timestep
    }

    /// Which of the distinct levels a token has.
    pub fn group(&self, token: usize) -> usize {
        self.index.as_ref().map_or(0, |index| index[token])
    }

    /// The level of a token.
    pub fn of(&self, sample: usize, token: usize) -> f32 {
        self.distinct[sample][self.group(token)]
    }

    /// The level of a sample as a whole: the mean over its tokens.
    pub fn of_sample(&self, sample: usize) -> f32 {
        match &self.index {
            None => self.distinct[sample][0],
            Some(index) => {
                let levels = index.iter().map(|level| f64::from(self.distinct[sample][*level]));
                (levels.sum::<f64>() / index.len().max(1) as f64) as f32
            }
        }
    }

    /// The levels of all tokens, `[B, T, 1]`.
    pub fn tensor(&self, tokens: usize, device: &Device) -> Tensor<3> {
        let samples = self.samples();
        let values: Vec<f32> = (0..samples)
            .flat_map(|sample| (0..tokens).map(move |token| self.of(sample, token)))
            .collect();
        Tensor::from_data(TensorData::new(values, [samples, tokens, 1]), device)
    }
}
