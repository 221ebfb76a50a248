//! Diffusion on tokens: processes, noise schedules, solvers, timestep samplers, guidance,
//! counter-based noise and the one denoise loop. No model, no rank, no file: schedules are read from JSON text.
//!
//! Latents are tokens for the whole loop, `[batch, tokens, channels]`. A solver is a table of
//! numbers fixed before the first step; what it remembers between steps lives in a [`SolverState`]
//! that belongs to a range of tokens, so that a patch or a shard is denoised alone and the
//! result is the same, to the bit, as denoising the whole.
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use diffusion::{Draw, SchedulerConfig, denoise};
//!
//! # fn main() -> diffusion::Result<()> {
//! let config = SchedulerConfig::from_json(r#"{ "_class_name": "DDIMScheduler" }"#)?;
//! let solver = config.solver(4, 16)?;
//! let noise = Draw::new(7).stream("initial-noise").sample(0);
//! let latents: Tensor<3> = noise.normal_tensor([1, 16, 4], &Device::flex());
//!
//! let start = vec![(latents, solver.state())];
//! let end = denoise(0..solver.steps().len(), start, |place, (latents, mut state)| {
//!     let prediction = latents.zeros_like(); // a network goes here
//!     let latents = solver.step(place.step, &mut state, latents, prediction, None)?;
//!     Ok::<_, diffusion::Error>((latents, state))
//! })?;
//! assert_eq!(end[0].0.dims(), [1, 16, 4]);
//! # Ok(())
//! # }
//! ```

mod process;

mod scene;

mod config;

mod betas;
mod grid;
mod sigmas;

mod ddim;
mod ddpm;
mod dpm_config;
mod dpm_solver;
mod flow_euler;
mod renoise;
mod solver;
mod state;
mod unipc;
mod unipc_config;
mod update;

mod denoise;
mod guidance;
mod random;
mod sampler;
mod timestep_sampler;

mod error;

pub use config::SchedulerConfig;
pub use denoise::{Place, denoise};
pub use error::{Error, Result};
pub use guidance::{Branch, Guidance, Terms};
pub use process::{Process, VpPrediction};
pub use random::Draw;
pub use sampler::{Moving, Noise, Sampled, Sampler};
pub use scene::{
    AudioClock, Coordinates, Geometry, Grouping, NoiseLevels, Reference, ReferenceScale, Region,
    Scene, Time, Tokens, Track, TrackKind, align_reference, pool_mask,
};
pub use sigmas::{shifted_level, unshifted_level};
pub use solver::{Solver, Step};
pub use state::SolverState;
pub use timestep_sampler::TimestepSampler;
