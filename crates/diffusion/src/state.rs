//! What a solver remembers about a range of tokens between two steps.

use crate::{Error, Result};
use burn::tensor::Tensor;
use std::ops::Range;

/// The history of one region: the tokens that one tensor of latents holds.
///
/// Splitting a state along the tokens, stepping the parts and joining them again gives the same
/// bits as stepping the whole.
#[derive(Debug, Clone, Default)]
pub struct SolverState {
    /// The step that must come next; any, for a fresh region.
    pub(crate) next: Option<usize>,
    /// Earlier predictions, newest first, each `[batch, tokens, channels]`.
    pub(crate) history: Vec<Tensor<3>>,
    /// The sample that the last step started from, of the same shape, if it will be corrected.
    pub(crate) before: Option<Tensor<3>>,
}

impl SolverState {
    /// The states of token ranges of this region, which may overlap or leave gaps.
    pub fn split(&self, regions: &[Range<usize>]) -> Result<Vec<SolverState>> {
        regions.iter().map(|region| self.part(region)).collect()
    }

    /// One state for the regions in the given order, along the tokens.
    pub fn join(regions: Vec<SolverState>) -> Result<SolverState> {
        let Some(first) = regions.first() else { return Ok(SolverState::default()) };
        let form = |state: &SolverState| (state.next, state.history.len(), state.before.is_some());
        let (next, depth, has_before) = form(first);
        if let Some(other) = regions.iter().find(|other| form(other) != form(first)) {
            return Err(Error::Join { first: next, other: other.next });
        }
        let joined = |age: usize| {
            Tensor::cat(regions.iter().map(|region| region.history[age].clone()).collect(), 1)
        };
        let history = (0..depth).map(joined).collect();
        let before = regions.iter().filter_map(|region| region.before.clone()).collect();
        let before = has_before.then(|| Tensor::cat(before, 1));
        Ok(SolverState { next, history, before })
    }

    /// Everything that is remembered.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = &Tensor<3>> {
        self.history.iter().chain(&self.before)
    }

    fn part(&self, region: &Range<usize>) -> Result<SolverState> {
        let tokens = self.tensors().next().map(|tensor| tensor.dims()[1]);
        if let Some(tokens) = tokens
            && (region.start > region.end || region.end > tokens)
        {
            return Err(Error::Region { start: region.start, end: region.end, tokens });
        }
        let slice = |tensor: &Tensor<3>| tensor.clone().slice_dim(1, region.clone());
        let history = self.history.iter().map(slice).collect();
        Ok(SolverState { next: self.next, history, before: self.before.as_ref().map(slice) })
    }
}
