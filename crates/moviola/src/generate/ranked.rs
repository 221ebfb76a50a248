//! A part of a run on several ranks.

use std::sync::{Mutex, PoisonError};

use data::media::Frame;
use engine::{Frames, Pipeline, PipelineOutput, Plan, Silent};

use super::arguments::Arguments;
use crate::failure::Outcome;

/// Carries a plan out on the ranks of a layout; `first` does what the first of them does.
///
/// # Errors
/// Whatever a rank reports first.
pub(super) fn carry_out(
    ask: &Arguments,
    pipeline: &mut Pipeline,
    (plan, layout): (&Plan, &parallel::Plan),
    first: &(dyn Fn(&mut Pipeline) -> Outcome<PipelineOutput> + Sync),
) -> Outcome<PipelineOutput> {
    if !ask.offload {
        pipeline.open_all()?;
    }
    let shared = Mutex::new(pipeline.clone());
    ask.layout.run(layout, ask.threads, |group| {
        let rank = group.rank();
        let mesh = layout.mesh(group).map_err(engine::Error::from)?;
        let mut own = shared.lock().unwrap_or_else(PoisonError::into_inner).on(mesh, layout);
        match rank {
            0 => first(&mut own),
            _ => Ok(own.carry_out(plan, &mut Silent, &mut Nobody)?),
        }
    })
}

/// Takes what is made and keeps nothing: on ranks that own nothing.
struct Nobody;

impl Frames for Nobody {
    fn begin(&mut self, _: usize, _: usize) -> engine::Result<()> {
        Ok(())
    }

    fn frame(&mut self, _: usize, _: Frame) -> engine::Result<()> {
        Ok(())
    }
}
