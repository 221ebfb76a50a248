//! *How* something is learnt: finetuning, diffusion forcing, distribution matching distillation.
//!
//! A method owns its networks as fields whose types say what may happen to them. It adds gradients;
//! the trainer does everything else.

mod dmd2;
mod experts;
mod finetune;
mod forcing;
mod report;

pub use dmd2::{Dmd2, Dmd2Config, Dmd2Draws, Dmd2Roles, Rollout, Unconditional};
pub use experts::{EXPERTS, Expert, FinetuneExperts, Turns};
pub use finetune::{Finetune, FinetuneConfig, Weighting};
pub use forcing::{DiffusionForcing, DiffusionForcingConfig};
