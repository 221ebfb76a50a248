//! One modality of a scene.
//!
//! Shape letters: `B` samples, `N` tokens of the track, `R` tokens of its references, `C` channels.

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use nn::{Context, Frame, Levels, Modality};

use super::NoiseLevels;
use crate::Process;

/// Whether a track is made or given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It starts as noise and is learnt.
    Generated,
    /// It is clean from the start and only looked at.
    Given,
}

/// Clean tokens beside a track, with places of their own.
#[derive(Clone, Debug)]
pub struct Reference {
    /// `[B, R, C]`.
    pub tokens: Tensor<3>,
    /// `[B, axes, R, 2]`.
    pub positions: Tensor<4>,
}

/// One modality of a scene.
#[derive(Clone, Debug)]
pub struct Track {
    /// Whether it is made or given.
    pub part: Part,
    /// The clean tokens, `[B, N, C]`.
    pub clean: Tensor<3>,
    /// How its tokens are laid out: frames, rows, columns.
    pub grid: [usize; 3],
    /// Where its tokens are, `[B, axes, N, 2]`.
    pub positions: Tensor<4>,
    /// What it is about.
    pub context: Context,
    /// The size of the picture, for families that are told it.
    pub frame: Option<Frame>,
    /// Which tokens are fixed, sample by sample.
    fixed: Vec<bool>,
    references: Vec<Reference>,
}

impl Track {
    /// A track without fixed tokens or references.
    ///
    /// # Panics
    /// Panics if the grid does not have as many tokens as there are.
    pub fn new(
        part: Part,
        clean: Tensor<3>,
        grid: [usize; 3],
        positions: Tensor<4>,
        context: Context,
    ) -> Track {
        let [samples, tokens, _] = clean.dims();
        assert_eq!(grid.iter().product::<usize>(), tokens, "the grid holds every token");
        let fixed = vec![false; samples * tokens];
        Track { part, clean, grid, positions, context, frame: None, fixed, references: Vec::new() }
    }

    /// `B`.
    pub fn samples(&self) -> usize {
        self.clean.dims()[0]
    }

    /// `N`.
    pub fn tokens(&self) -> usize {
        self.clean.dims()[1]
    }

    /// Fixes the tokens of one sample that `mask` holds, besides those that are fixed already.
    ///
    /// # Panics
    /// Panics if the mask does not have one entry per token.
    pub fn fix(&mut self, sample: usize, mask: &[bool]) {
        let tokens = self.tokens();
        assert_eq!(mask.len(), tokens, "a mask has one entry per token");
        let own = &mut self.fixed[sample * tokens..][..tokens];
        own.iter_mut().zip(mask).for_each(|(fixed, more)| *fixed |= more);
    }

    /// Which tokens of a sample are fixed.
    pub fn fixed(&self, sample: usize) -> &[bool] {
        &self.fixed[sample * self.tokens()..][..self.tokens()]
    }

    /// Puts a reference before those it has already.
    pub fn refer(&mut self, reference: Reference) {
        self.references.insert(0, reference);
    }

    /// `R`, over all references.
    pub fn reference_tokens(&self) -> usize {
        self.references.iter().map(|reference| reference.tokens.dims()[1]).sum()
    }

    /// The same track about another text, `[1 | B, L, D]`; what pictures it looks at stays.
    pub fn with_text(&self, text: &Context) -> Track {
        let samples = self.samples();
        let [_, words, width] = text.tokens.dims();
        let context = Context {
            tokens: text.tokens.clone().expand([samples, words, width]),
            mask: text.mask.clone().map(|mask| mask.expand([samples, words])),
            image: self.context.image.clone(),
        };
        Track { context, ..self.clone() }
    }

    /// The same track around other clean tokens; those that are fixed stay, and so does a track that
    /// is given.
    pub fn with_clean(&self, clean: Tensor<3>) -> Track {
        Track { clean: self.keep(clean), ..self.clone() }
    }

    /// `tokens` `[B, N, C]`, inside or outside a graph, where they are free; the clean ones where they
    /// are fixed.
    pub fn keep(&self, tokens: Tensor<3>) -> Tensor<3> {
        let device = tokens.device();
        let clean = match device.is_autodiff() {
            true => Tensor::from_inner(self.clean.clone()),
            false => self.clean.clone(),
        };
        match self.part {
            Part::Given => clean,
            Part::Generated if self.fixed.contains(&true) => {
                tokens.mask_where(self.fixed_mask(&device), clean)
            }
            Part::Generated => tokens,
        }
    }

    /// 1 where a token is learnt and 0 where it is fixed or given, sample by sample.
    pub fn learnt(&self) -> Vec<f32> {
        let learnt = |fixed: &bool| (self.part == Part::Generated && !fixed) as u8 as f32;
        self.fixed.iter().map(learnt).collect()
    }

    /// The level of every token, `[B, N, 1]`: 0 where it is fixed or given.
    pub fn levels(&self, levels: &NoiseLevels) -> Tensor<3> {
        let (samples, tokens, device) = (self.samples(), self.tokens(), self.device());
        let learnt = TensorData::new(self.learnt(), [samples, tokens, 1]);
        levels.tensor(tokens, &device) * Tensor::from_data(learnt, &device)
    }

    /// What the network is given: `noisy` `[B, N, C]` where tokens are free, references first.
    ///
    /// `noisy` may belong to a graph; fixed tokens and references do not.
    pub fn modality(&self, process: &Process, noisy: Tensor<3>, levels: &NoiseLevels) -> Modality {
        let device = self.device();
        let mut tokens: Vec<_> = self.references.iter().map(|one| one.tokens.clone()).collect();
        tokens.push(self.keep(noisy));
        let mut places: Vec<_> = self.references.iter().map(|one| one.positions.clone()).collect();
        places.push(self.positions.clone());
        let samples = self.samples();
        let whole = |sample| match self.part {
            Part::Generated => levels.of_sample(sample),
            Part::Given => 0.0,
        };
        let sigma: Vec<f32> = (0..samples).map(whole).collect();
        Modality {
            tokens: joined(tokens, 1),
            levels: self.network_levels(process, levels),
            sigma: Tensor::from_data(TensorData::new(sigma, [samples]), &device),
            positions: joined(places, 2),
            context: self.context.clone(),
            frame: self.frame.clone(),
            enabled: true,
        }
    }

    /// The part of a prediction `[B, R + N, C]` that belongs to the track, `[B, N, C]`. A learned
    /// variance, which some networks say after the rest of a token, is left out.
    pub fn own(&self, prediction: Tensor<3>) -> Tensor<3> {
        let channels = self.clean.dims()[2];
        let own = match self.reference_tokens() {
            0 => prediction,
            references => prediction.narrow(1, references, self.tokens()),
        };
        if own.dims()[2] > channels { own.narrow(2, 0, channels) } else { own }
    }

    /// The device it lies on.
    pub fn device(&self) -> Device {
        self.clean.device()
    }

    /// Few distinct timesteps and an index: the last one is 0, for clean tokens.
    fn network_levels(&self, process: &Process, levels: &NoiseLevels) -> Levels {
        let (samples, tokens, references) =
            (self.samples(), self.tokens(), self.reference_tokens());
        let device = self.device();
        let count = levels.distinct(0).len();
        let clean = self.part == Part::Given || self.fixed.contains(&true) || references > 0;
        let distinct = (0..samples).flat_map(|sample| {
            let zero = clean.then_some(0.0);
            levels.distinct(sample).iter().copied().chain(zero)
        });
        let wide = count + usize::from(clean);
        let values = TensorData::new(distinct.collect::<Vec<f32>>(), [samples, wide, 1]);
        let timesteps = process.timestep(Tensor::from_data(values, &device));
        let distinct = timesteps.reshape([samples, wide]);
        if wide == 1 {
            return Levels { distinct, index: None };
        }
        let learnt = self.learnt();
        let index = (0..samples).flat_map(|sample| {
            let own = &learnt[sample * tokens..][..tokens];
            let own = own.iter().enumerate().map(|(token, learnt)| match *learnt > 0.0 {
                true => levels.group(token) as i64,
                false => count as i64,
            });
            std::iter::repeat_n(count as i64, references).chain(own).collect::<Vec<_>>()
        });
        let index = TensorData::new(index.collect::<Vec<_>>(), [samples, references + tokens]);
        Levels { distinct, index: Some(Tensor::<2, Int>::from_data(index, &device)) }
    }

    fn fixed_mask(&self, device: &Device) -> Tensor<3, Bool> {
        let [samples, tokens, channels] = self.clean.dims();
        let mask = TensorData::new(self.fixed.clone(), [samples, tokens, 1]);
        Tensor::<3, Bool>::from_data(mask, device).expand([samples, tokens, channels])
    }
}

fn joined<const D: usize>(mut parts: Vec<Tensor<D>>, dim: usize) -> Tensor<D> {
    match parts.len() {
        1 => parts.remove(0),
        _ => Tensor::cat(parts, dim),
    }
}
