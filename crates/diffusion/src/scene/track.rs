//! One modality of a scene.
//!
//! Shape letters: `B` samples, `N` tokens of the track, `R` tokens of its references, `C` channels.

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use nn::{Context, Levels, Modality, Positions, SizeCondition, patchify, unpatchify};

use super::{NoiseLevels, Tokens};
use crate::{Draw, Process};

/// Whether a track is made or given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackKind {
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
    pub kind: TrackKind,
    /// The clean tokens, `[B, N, C]`.
    pub clean: Tensor<3>,
    /// How its tokens are laid out: frames, rows, columns.
    pub grid: [usize; 3],
    /// Latent frames, rows and columns of a token.
    pub patch: [usize; 3],
    /// Where its tokens are, `[B, axes, N, 2]`.
    pub positions: Tensor<4>,
    /// What it is about.
    pub context: Context,
    /// The size of the picture, for families that are told it.
    pub size: Option<SizeCondition>,
    /// Channels that stand beside those of the noisy tokens, `[B, N, C']`, for families that are
    /// shown pictures so.
    pub beside: Option<Tensor<3>>,
    /// Blocks in which its tokens do not look at each other.
    pub skipped: Vec<usize>,
    fixed: Option<Fixed>,
    references: Vec<Reference>,
    /// Where all tokens are, those of the references first.
    places: Positions,
    /// Which of two levels each of them has: 0 for noisy ones, 1 for clean ones, `[B, R + N]`. None
    /// where all are noisy.
    clean_index: Option<Tensor<2, Int>>,
}

/// Which tokens are fixed, sample by sample: on the host, and as a mask `[B, N]`.
#[derive(Clone, Debug)]
struct Fixed {
    values: Vec<bool>,
    mask: Tensor<2, Bool>,
}

impl Track {
    /// A track without fixed tokens or references.
    ///
    /// # Panics
    /// Panics if the grid does not have as many tokens as there are.
    pub fn new(kind: TrackKind, tokens: Tokens, context: Context) -> Track {
        let Tokens { values: clean, positions, grid, patch } = tokens;
        assert_eq!(grid.iter().product::<usize>(), clean.dims()[1], "the grid holds every token");
        let mut track = Track {
            kind,
            clean,
            grid,
            patch,
            places: positions.clone().into(),
            positions,
            context,
            size: None,
            beside: None,
            skipped: Vec::new(),
            fixed: None,
            references: Vec::new(),
            clean_index: None,
        };
        track.clean_index = track.find_clean();
        track
    }

    /// `B`.
    pub fn samples(&self) -> usize {
        self.clean.dims()[0]
    }

    /// `N`.
    pub fn tokens(&self) -> usize {
        self.clean.dims()[1]
    }

    /// Fixes the tokens that `mask` `[B, N]` holds, besides those that are fixed already.
    ///
    /// # Panics
    /// Panics if the mask does not have one entry per sample and token.
    pub fn fix(&mut self, mask: &[bool]) {
        let shape = [self.samples(), self.tokens()];
        assert_eq!(mask.len(), shape[0] * shape[1], "a mask has one entry per token");
        let earlier = self.fixed.take().map(|fixed| fixed.values);
        let mut values = earlier.unwrap_or_else(|| vec![false; mask.len()]);
        values.iter_mut().zip(mask).for_each(|(fixed, more)| *fixed |= more);
        if values.contains(&true) {
            let mask = Tensor::from_data(TensorData::new(values.clone(), shape), &self.device());
            self.fixed = Some(Fixed { values, mask });
            self.clean_index = self.find_clean();
        }
    }

    /// Which tokens of a sample are fixed, `[N]`.
    pub fn fixed(&self, sample: usize) -> Vec<bool> {
        let tokens = self.tokens();
        match &self.fixed {
            Some(fixed) => fixed.values[sample * tokens..][..tokens].to_vec(),
            None => vec![false; tokens],
        }
    }

    /// Puts a reference before those it has already.
    pub fn refer(&mut self, reference: Reference) {
        self.references.insert(0, reference);
        let references = self.references.iter().map(|one| one.positions.clone());
        let places = references.chain([self.positions.clone()]).collect();
        self.places = joined(places, 2).into();
        self.clean_index = self.find_clean();
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

    /// The same track, whose tokens do not look at each other in these blocks.
    pub fn skipping(&self, blocks: &[usize]) -> Track {
        Track { skipped: blocks.to_vec(), ..self.clone() }
    }

    /// The same track around other clean tokens; those that are fixed stay, and so does a track that
    /// is given.
    pub fn with_clean(&self, clean: Tensor<3>) -> Track {
        Track { clean: self.keep(clean), ..self.clone() }
    }

    /// `tokens` `[B, N, C]`, inside or outside a graph, where they are free; the clean ones where they
    /// are fixed.
    pub fn keep(&self, tokens: Tensor<3>) -> Tensor<3> {
        let clean = || match tokens.device().is_autodiff() {
            true => Tensor::from_inner(self.clean.clone()),
            false => self.clean.clone(),
        };
        match (self.kind, &self.fixed) {
            (TrackKind::Given, _) => clean(),
            (TrackKind::Generated, None) => tokens,
            (TrackKind::Generated, Some(fixed)) => {
                let [samples, count, channels] = self.clean.dims();
                let mask = match tokens.device().is_autodiff() {
                    true => Tensor::<2, Bool>::from_inner(fixed.mask.clone()),
                    false => fixed.mask.clone(),
                };
                let mask = mask.reshape([samples, count, 1]).expand([samples, count, channels]);
                let clean = clean();
                tokens.mask_where(mask, clean)
            }
        }
    }

    /// 1 where a token is learnt and 0 where it is fixed or given, sample by sample.
    pub fn learnt(&self) -> Vec<f32> {
        let free = |fixed: &bool| if *fixed { 0.0 } else { 1.0 };
        match (self.kind, &self.fixed) {
            (TrackKind::Given, _) => vec![0.0; self.samples() * self.tokens()],
            (TrackKind::Generated, None) => vec![1.0; self.samples() * self.tokens()],
            (TrackKind::Generated, Some(fixed)) => fixed.values.iter().map(free).collect(),
        }
    }

    /// The level of every token, `[B, N, 1]`: 0 where it is fixed or given.
    pub fn levels(&self, levels: &NoiseLevels) -> Tensor<3> {
        let (samples, tokens, device) = (self.samples(), self.tokens(), self.device());
        let learnt = TensorData::new(self.learnt(), [samples, tokens, 1]);
        levels.tensor(tokens, &device) * Tensor::from_data(learnt, &device)
    }

    /// What the network is given: `noisy` `[B, N, C]` where tokens are free, references first.
    ///
    /// `noisy` may belong to a graph; fixed tokens, references and channels beside do not. `sigma` is the
    /// level of a sample as a whole, from 0 to 1.
    pub fn modality(&self, process: &Process, noisy: Tensor<3>, levels: &NoiseLevels) -> Modality {
        let samples = self.samples();
        let whole = |sample| match self.kind {
            TrackKind::Generated => levels.of_sample(sample),
            TrackKind::Given => 0.0,
        };
        let sigma: Vec<f32> = (0..samples).map(whole).collect();
        let tokens = self.sequence(noisy);
        let tokens = match &self.beside {
            Some(beside) => joined(vec![tokens, beside.clone()], 2),
            None => tokens,
        };
        Modality {
            tokens,
            levels: self.network_levels(process, levels),
            sigma: Tensor::from_data(TensorData::new(sigma, [samples]), &self.device()),
            positions: self.places.clone(),
            context: self.context.clone(),
            size: self.size.clone(),
            enabled: true,
            skipped: self.skipped.clone(),
        }
    }

    /// All tokens `[B, R + N, C]`: `noisy` `[B, N, C]` where they are free, references first.
    pub fn sequence(&self, noisy: Tensor<3>) -> Tensor<3> {
        let mut tokens: Vec<_> = self.references.iter().map(|one| one.tokens.clone()).collect();
        tokens.push(self.keep(noisy));
        joined(tokens, 1)
    }

    /// The part of a prediction `[B, R + N, C]` that belongs to the track, `[B, N, C]`. A learned
    /// variance, which some networks say after the rest of a token, is left out.
    pub fn own(&self, prediction: Tensor<3>) -> Tensor<3> {
        let own = match self.reference_tokens() {
            0 => prediction,
            references => prediction.narrow(1, references, self.tokens()),
        };
        self.without_variance(own)
    }

    /// A prediction about some of the tokens without a learned variance.
    pub fn without_variance(&self, prediction: Tensor<3>) -> Tensor<3> {
        let channels = self.clean.dims()[2];
        match prediction.dims()[2] > channels {
            true => prediction.narrow(2, 0, channels),
            false => prediction,
        }
    }

    /// Standard normal noise `[1, N, C]` for one sample. A number belongs to the element of the latents,
    /// so it does not depend on how tokens are cut.
    pub fn noise(&self, draw: Draw) -> Tensor<3> {
        let [channels, frames, rows, columns] = self.latent_shape();
        let latents = draw.normal_tensor([1, channels, frames, rows, columns], &self.device());
        patchify(latents, self.patch)
    }

    /// Tokens `[B, N, C]` as latents `[B, channels, frames, rows, columns]`.
    pub fn latents(&self, tokens: Tensor<3>) -> Tensor<5> {
        unpatchify(tokens, self.grid, self.patch)
    }

    /// Channels, frames, rows and columns of its latents.
    pub fn latent_shape(&self) -> [usize; 4] {
        let pixels = self.patch.iter().product::<usize>();
        let side = |axis: usize| self.grid[axis] * self.patch[axis];
        [self.clean.dims()[2] / pixels, side(0), side(1), side(2)]
    }

    /// The device it lies on.
    pub fn device(&self) -> Device {
        self.clean.device()
    }

    /// Few distinct timesteps and an index: the last one is 0, for clean tokens.
    fn network_levels(&self, process: &Process, levels: &NoiseLevels) -> Levels {
        let samples = self.samples();
        let count = levels.distinct(0).len();
        let clean = self.clean_index.is_some();
        let wide = count + usize::from(clean);
        let zero = || clean.then_some(0.0);
        let told = |values: Vec<f32>| {
            Tensor::from_data(TensorData::new(values, [samples, wide, 1]), &self.device())
        };
        let distinct = match levels.timestep() {
            Some(timestep) => {
                let row: Vec<f32> = std::iter::once(timestep).chain(zero()).collect();
                told(row.repeat(samples))
            }
            None => {
                let rows = (0..samples)
                    .flat_map(|sample| levels.distinct(sample).iter().copied().chain(zero()));
                process.timestep(told(rows.collect()))
            }
        };
        let distinct: Tensor<2> = distinct.reshape([samples, wide]);
        let index = match count {
            1 => self.clean_index.clone(),
            _ => Some(self.level_index(|token| levels.group(token) as i64, count as i64)),
        };
        Levels { distinct, index }
    }

    /// Which tokens are clean from the start, if any are.
    fn find_clean(&self) -> Option<Tensor<2, Int>> {
        let given = self.kind == TrackKind::Given;
        let any = given || self.fixed.is_some() || self.reference_tokens() > 0;
        any.then(|| self.level_index(|_| 0, 1))
    }

    /// Which of the distinct levels each token has, `[B, R + N]`: `noisy` of a noisy one, `clean` of a
    /// clean one.
    fn level_index(&self, noisy: impl Fn(usize) -> i64, clean: i64) -> Tensor<2, Int> {
        let (samples, tokens, references) =
            (self.samples(), self.tokens(), self.reference_tokens());
        let learnt = self.learnt();
        let index = (0..samples).flat_map(|sample| {
            let own = &learnt[sample * tokens..][..tokens];
            let own = own.iter().enumerate().map(|(token, learnt)| match *learnt > 0.0 {
                true => noisy(token),
                false => clean,
            });
            std::iter::repeat_n(clean, references).chain(own).collect::<Vec<_>>()
        });
        let index = TensorData::new(index.collect::<Vec<_>>(), [samples, references + tokens]);
        Tensor::from_data(index, &self.device())
    }
}

fn joined<const D: usize>(mut parts: Vec<Tensor<D>>, dim: usize) -> Tensor<D> {
    match parts.len() {
        1 => parts.remove(0),
        _ => Tensor::cat(parts, dim),
    }
}
