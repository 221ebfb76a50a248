//! The sampler: makes what is free in a scene, whatever is given beside it.
//!
//! `generate`, validation, exams and rollouts are scenes that this one sampler runs. It knows neither a
//! network nor a file: a prediction is a closure, which may be one device, many ranks or two experts.

use burn::tensor::Tensor;
use nn::{Context, Inputs, Prediction, Tracks};

use crate::scene::{NoiseLevels, Scene, Track, TrackKind};
use crate::{
    Branch, Draw, Error, Guidance, Process, Result, SchedulerConfig, Solver, SolverState, Step,
    denoise,
};

/// How scenes are sampled: a solver's steps, and the guidance at each of them.
#[derive(Clone, Debug)]
pub struct Sampler {
    process: Process,
    solver: Solver,
    guidance: Vec<Guidance>,
    /// Whether the solver follows velocities, whatever the network predicts.
    velocities: bool,
}

/// What a run starts from: all noise belongs to (seed, sample).
#[derive(Clone, Debug)]
pub struct Noise {
    /// The seed of all noise.
    pub seed: u64,
    /// The number of each sample of the scene.
    pub samples: Vec<u64>,
    /// Tokens to start from instead, `[B, N, C]`.
    pub initial: Tracks<Tensor<3>>,
}

/// What a run leaves, `[B, N, C]` per track.
#[derive(Clone, Debug)]
pub struct Sampled {
    /// What is given is as it was.
    pub tokens: Tracks<Tensor<3>>,
    /// As the network and the solver leave all tokens: nothing that was given is put back.
    pub unpasted: Tracks<Tensor<3>>,
}

/// The tokens of a track with the solver's memory of them.
type Moving = (Tensor<3>, SolverState);

impl Sampler {
    /// So many steps of a scheduler over scenes of `tokens` tokens, without guidance.
    ///
    /// # Errors
    /// The scheduler cannot take so many steps.
    pub fn scheduled(
        process: Process,
        scheduler: &SchedulerConfig,
        steps: usize,
        tokens: usize,
    ) -> Result<Sampler> {
        let solver = scheduler.solver(steps, tokens)?;
        Ok(Sampler { process, solver, guidance: Vec::new(), velocities: true }.unguided())
    }

    /// The few steps of a distilled network, without guidance: at each timestep clean tokens are
    /// predicted and noised again to the next.
    ///
    /// # Errors
    /// The timesteps do not fall, or the process has no such.
    pub fn renoising(process: Process, timesteps: &[f64]) -> Result<Sampler> {
        let solver = Solver::renoise(&process, timesteps)?;
        Ok(Sampler { process, solver, guidance: Vec::new(), velocities: false }.unguided())
    }

    fn unguided(self) -> Sampler {
        self.guided(|_| Guidance::NONE)
    }

    /// The same with the guidance that `of` gives for the timestep of a step.
    pub fn guided(self, of: impl Fn(f64) -> Guidance) -> Sampler {
        let guidance = self.solver.steps().iter().map(|step| of(step.timestep)).collect();
        Sampler { guidance, ..self }
    }

    /// Its steps, from the noisiest to the last.
    pub fn steps(&self) -> &[Step] {
        self.solver.steps()
    }

    /// Whether any step needs the unconditional prediction.
    pub fn is_guided(&self) -> bool {
        self.guidance.iter().any(|own| own.branches().contains(&Branch::Unconditional))
    }

    /// Samples what is free in a scene.
    ///
    /// `unconditional` is the text `[1 | B, L, D]` that guidance pushes away from. `predict` is asked for
    /// each step, which counts from 0, and for each branch of its guidance.
    ///
    /// # Errors
    /// The scene does not fit the solver, a text is missing, or whatever `predict` reports: an
    /// interruption is such an error.
    pub fn run<E: From<Error>>(
        &self,
        scene: &Scene,
        unconditional: Option<&Context>,
        noise: &Noise,
        mut predict: impl FnMut(usize, &Inputs) -> std::result::Result<Prediction, E>,
    ) -> std::result::Result<Sampled, E> {
        let without = match (self.is_guided(), unconditional) {
            (false, _) => None,
            (true, Some(text)) => Some(scene.with_text(text)),
            (true, None) => return Err(Error::NoUnconditional.into()),
        };
        let start = scene.tracks().beside(noise.initial.clone()).named();
        let start = start.map(|(name, (track, given))| {
            let initial = given.unwrap_or_else(|| noise.draw(track, name, "initial-noise", 0));
            (initial * self.solver.initial_scale(), self.solver.state())
        });
        let end = denoise(0..self.steps().len(), vec![start], |place, tracks| {
            let step = place.step;
            let branches = [Some(scene), without.as_ref()];
            let prediction = self.predict(branches, &tracks, step, &mut predict)?;
            Ok::<_, E>(self.advance(scene, (tracks, prediction), step, noise)?)
        })?;
        let end = end.into_iter().next().expect("one patch goes in and comes out");
        let unpasted = end.map(|(tokens, _)| tokens);
        let made = scene.tracks().zip(unpasted.clone());
        Ok(Sampled { tokens: made.map(|(track, tokens)| track.keep(tokens)), unpasted })
    }

    /// What the network says about every track, `[B, N, C]`, guided if the step asks for it.
    fn predict<E: From<Error>>(
        &self,
        [with, without]: [Option<&Scene>; 2],
        tracks: &Tracks<Moving>,
        step: usize,
        predict: &mut impl FnMut(usize, &Inputs) -> std::result::Result<Prediction, E>,
    ) -> std::result::Result<Tracks<Tensor<3>>, E> {
        let (level, timestep) = (self.level(step), self.steps()[step].timestep);
        let mut ask = |scene: &Scene| -> std::result::Result<Tracks<Tensor<3>>, E> {
            let levels =
                scene.each(|_, track| NoiseLevels::at_timestep(level, timestep, track.samples()));
            let tokens = tracks.clone().map(|(tokens, _)| tokens);
            let prediction = predict(step, &scene.inputs(&self.process, tokens, &levels))?;
            scene.tracks().beside(prediction.as_ref()).named().try_map(
                |(name, (track, said))| match said.is_none() && track.kind == TrackKind::Generated {
                    true => Err(Error::NoPrediction { track: name }),
                    false => Ok(()),
                },
            )?;
            Ok(scene.tracks().zip(prediction).map(|(track, said)| track.own(said)))
        };
        let conditional = ask(with.expect("there is always a scene"))?;
        let guidance = self.guidance[step];
        let Some(without) = without.filter(|_| guidance.branches().len() > 1) else {
            return Ok(conditional);
        };
        let both = conditional.zip(ask(without)?);
        Ok(both.map(|(with, without)| guidance.combine(with, without)))
    }

    /// Every track one step on.
    fn advance(
        &self,
        scene: &Scene,
        (tracks, prediction): (Tracks<Moving>, Tracks<Tensor<3>>),
        step: usize,
        noise: &Noise,
    ) -> Result<Tracks<Moving>> {
        let all = scene.tracks().zip(tracks).beside(prediction).named();
        all.try_map(|(name, ((track, (tokens, mut state)), said))| {
            let Some(said) = said.filter(|_| track.kind == TrackKind::Generated) else {
                return Ok((tokens, state));
            };
            let said = match self.velocities {
                true => {
                    let level = Tensor::from_floats([[[self.level(step)]]], &tokens.device());
                    self.process.for_solver(tokens.clone(), said, level)
                }
                false => said,
            };
            let fresh = self.solver.wants_noise(step);
            let fresh = fresh.then(|| noise.draw(track, name, "solver-noise", step as u64));
            let tokens = self.solver.step(step, &mut state, tokens, said, fresh)?;
            Ok((tokens, state))
        })
    }

    fn level(&self, step: usize) -> f32 {
        self.process.level(self.steps()[step].timestep) as f32
    }
}

impl Noise {
    /// Noise from a seed for samples that are numbered from `first` on.
    pub fn from_seed(seed: u64, first: u64, samples: usize) -> Noise {
        Noise {
            seed,
            samples: (first..first + samples as u64).collect(),
            initial: Tracks::default(),
        }
    }

    /// Standard normal noise `[B, N, C]` for a track.
    fn draw(&self, track: &Track, name: &str, stream: &str, step: u64) -> Tensor<3> {
        let draw = Draw::new(self.seed).stream(stream).step(step);
        // The video has the stream to itself, as it had before there was sound.
        let draw = if name == "video" { draw } else { draw.stream(name) };
        let each = self.samples.iter().map(|sample| track.noise(draw.sample(*sample)));
        Tensor::cat(each.collect(), 0)
    }
}
