//! Networks, each written once, for one device, to read like its paper.
//!
//! A family is a folder: `config` (what its JSON says, checked), `model` (the fold), `blocks`.
//! Nothing here can name a rank, a file or a solver.

pub mod dit;
mod pretrained;
pub mod sound;
pub mod text;
pub mod vae;
pub mod vision;
