//! From noise to latents, sample by sample: what every family does alike around the one denoise
//! loop.

use burn::tensor::{Device, Tensor};
use diffusion::{Draw, SchedulerConfig, Solver, denoise};

use crate::error::{Error, Result};
use crate::lattice::Lattice;
use crate::progress::{self, Progress};
use crate::request::Request;

/// What a prediction is made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    pub(crate) sample: usize,
    pub(crate) step: usize,
}

/// The solver of a request: few explicit timesteps if it asks for them, or if the folder is of a
/// distilled model that records its own and no number of steps is asked for; else the scheduler's.
pub(crate) fn solver(
    request: &Request,
    recorded: Option<&[f64]>,
    (scheduler, steps): (&SchedulerConfig, usize),
    tokens: usize,
) -> Result<Solver> {
    match request.few_timesteps(recorded) {
        Some(timesteps) => Ok(Solver::renoise(&scheduler.process(), timesteps)?),
        None => Ok(scheduler.solver(request.steps.unwrap_or(steps), tokens)?),
    }
}

/// A checked plan for all samples of a request.
pub(crate) struct Course {
    pub(crate) solver: Solver,
    pub(crate) lattice: Lattice,
    pub(crate) samples: usize,
    pub(crate) seed: u64,
    /// Initial latents `[samples, C, F, h, w]`, if they were given.
    pub(crate) noise: Option<Tensor<5>>,
}

impl Course {
    /// Denoises every sample; returns latents `[samples, C, F, h, w]`.
    ///
    /// `predict` gives the guided prediction `[1, T, C]` for the tokens at a spot. There is one
    /// forward pass per guidance branch and sample, so a sample never depends on its neighbours.
    ///
    /// # Errors
    /// Whatever `predict` or the solver reports, or an interruption.
    pub(crate) fn run(
        &self,
        device: &Device,
        progress: &mut dyn Progress,
        mut predict: impl FnMut(Spot, &Tensor<3>) -> Result<Tensor<3>>,
    ) -> Result<Tensor<5>> {
        let steps = self.solver.steps().len();
        progress.begin("denoise", self.samples * steps);
        let mut latents = Vec::with_capacity(self.samples);
        for sample in 0..self.samples {
            let patch = vec![(self.initial(sample, device), self.solver.state())];
            let patches = denoise(0..steps, patch, |place, (tokens, mut state)| {
                progress::check(progress)?;
                let step = place.step;
                let prediction = predict(Spot { sample, step }, &tokens)?;
                let noise = self.solver.wants_noise(step).then(|| {
                    let draw = Draw::new(self.seed).stream("solver-noise").step(step as u64);
                    self.lattice.noise(draw.sample(sample as u64), device)
                });
                let tokens = self.solver.step(step, &mut state, tokens, prediction, noise)?;
                progress.reach(sample * steps + step + 1);
                Ok::<_, Error>((tokens, state))
            })?;
            let (tokens, _) = patches.into_iter().next().expect("one patch went in");
            latents.push(self.lattice.unpatchify(tokens));
        }
        Ok(Tensor::cat(latents, 0))
    }

    /// The tokens `[1, T, C]` that a sample starts from.
    fn initial(&self, sample: usize, device: &Device) -> Tensor<3> {
        let tokens = match &self.noise {
            Some(noise) => self.lattice.patchify(noise.clone().slice_dim(0, sample..sample + 1)),
            None => {
                let draw = Draw::new(self.seed).stream("initial-noise");
                self.lattice.noise(draw.sample(sample as u64), device)
            }
        };
        tokens * self.solver.initial_scale()
    }
}
