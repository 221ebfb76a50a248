//! The sampler: makes what is free in a scene, whatever is given beside it.
//!
//! `generate`, validation, exams and rollouts are scenes that this one sampler runs. It knows neither a
//! network nor a file: a prediction is a closure, which may be one device, many ranks or two experts.

use burn::tensor::Tensor;
use nn::{Context, Inputs, Prediction, Tracks};

use crate::guidance::Noisy;
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
    /// Blocks that the poorer prediction of spatio-temporal guidance skips.
    skipped: Vec<usize>,
    /// Whether the solver follows velocities, whatever the network predicts.
    velocities: bool,
}

/// What a run starts from: all noise belongs to (seed, sample).
#[derive(Clone, Debug)]
pub struct Noise {
    /// The seed and the number of each sample of the scene.
    pub samples: Vec<(u64, u64)>,
    /// Tokens to start from instead, `[B, N, C]`.
    pub initial: Tracks<Tensor<3>>,
    /// Clean tokens `[B, N, C]` to begin with, which are noised to the level of the first step; noise alone where there
    /// are none.
    pub clean: Tracks<Tensor<3>>,
    /// How many runs of the same samples came before, each of which has noise of its own.
    pub round: u64,
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
pub type Moving = (Tensor<3>, SolverState);

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
        Ok(Sampler::by(process, scheduler.solver(steps, tokens)?, true))
    }

    /// Steps of a scheduler at noise levels of one's own, falling from at most 1 to above 0, which it shifts
    /// for scenes of `tokens` tokens; without guidance.
    ///
    /// # Errors
    /// The scheduler takes no levels, or they do not fall.
    pub fn at_levels(
        process: Process,
        scheduler: &SchedulerConfig,
        levels: &[f64],
        tokens: usize,
    ) -> Result<Sampler> {
        Ok(Sampler::by(process, scheduler.solver_at(levels, tokens)?, true))
    }

    /// Steps of a scheduler at noise levels that are meant as they are, falling from at most 1 to above 0; without
    /// guidance.
    ///
    /// # Errors
    /// The scheduler takes no levels, or they do not fall.
    pub fn exactly_at(
        process: Process,
        scheduler: &SchedulerConfig,
        levels: &[f64],
    ) -> Result<Sampler> {
        Ok(Sampler::by(process, scheduler.solver_exactly_at(levels)?, true))
    }

    /// The few steps of a distilled network, without guidance: at each timestep clean tokens are
    /// predicted and noised again to the next.
    ///
    /// # Errors
    /// The timesteps do not fall, or the process has no such.
    pub fn renoising(process: Process, timesteps: &[f64]) -> Result<Sampler> {
        let solver = Solver::renoise(&process, timesteps)?;
        Ok(Sampler::by(process, solver, false))
    }

    fn by(process: Process, solver: Solver, velocities: bool) -> Sampler {
        let guidance = vec![Guidance::NONE; solver.steps().len()];
        Sampler { process, solver, guidance, skipped: Vec::new(), velocities }
    }

    /// The same with the guidance that `of` gives for the timestep of a step.
    pub fn guided(self, of: impl Fn(f64) -> Guidance) -> Sampler {
        let guidance = self.solver.steps().iter().map(|step| of(step.timestep)).collect();
        Sampler { guidance, ..self }
    }

    /// The same, whose spatio-temporal guidance skips these blocks.
    pub fn skipping(self, blocks: Vec<usize>) -> Sampler {
        Sampler { skipped: blocks, ..self }
    }

    /// Its steps, from the noisiest to the last.
    pub fn steps(&self) -> &[Step] {
        self.solver.steps()
    }

    /// Whether any step needs the unconditional prediction for a scene with these tracks.
    pub fn is_guided<T>(&self, tracks: &Tracks<T>) -> bool {
        self.kinds(tracks).contains(&Branch::Unconditional)
    }

    /// Whether a whole track must be seen to guide any of its tokens.
    pub fn sees_whole_tracks<T>(&self, tracks: &Tracks<T>) -> bool {
        self.guidance.iter().any(|own| own.sees_whole_tracks(tracks))
    }

    /// How many different predictions steps need for a scene with these tracks.
    pub fn most_predictions<T>(&self, tracks: &Tracks<T>) -> usize {
        self.kinds(tracks).len()
    }

    /// How many predictions a step needs for a scene with these tracks.
    pub fn predictions<T>(&self, tracks: &Tracks<T>, step: usize) -> usize {
        self.guidance[step].branches(tracks).len()
    }

    /// Which of [`Sampler::branches`] each step is about, in the order of [`Sampler::inputs`].
    pub fn places<T>(&self, tracks: &Tracks<T>) -> impl Iterator<Item = Vec<usize>> {
        let all = self.kinds(tracks);
        self.guidance.iter().map(move |guidance| {
            let own = guidance.branches(tracks);
            (0..all.len()).filter(|place| own.contains(&all[*place])).collect()
        })
    }

    /// The branches that any step needs for a scene with these tracks, the conditional one first.
    fn kinds<T>(&self, tracks: &Tracks<T>) -> Vec<Branch> {
        // There may be very many steps, and most are guided as the one before.
        let alike = self.guidance.chunk_by(|one, next| one == next);
        let mut all: Vec<Branch> = alike.flat_map(|own| own[0].branches(tracks)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Samples what is free in a scene.
    ///
    /// `unconditional` is the text `[1 | B, L, D]` that guidance pushes away from. `predict` is asked for
    /// each step, which counts from 0, with the inputs of all branches of its guidance.
    ///
    /// # Errors
    /// The scene does not fit the solver, a text is missing, or whatever `predict` reports: an
    /// interruption is such an error.
    pub fn run<E: From<Error>>(
        &self,
        scene: &Scene,
        unconditional: Option<&Context>,
        noise: &Noise,
        mut predict: impl FnMut(usize, &[Inputs]) -> std::result::Result<Vec<Prediction>, E>,
    ) -> std::result::Result<Sampled, E> {
        let branches = self.branches(scene, unconditional)?;
        let start = self.start(scene, noise);
        let end = denoise(0..self.steps().len(), vec![start], |place, tracks| {
            let step = place.step;
            let tokens = tracks.clone().map(|(tokens, _)| tokens);
            let predictions = predict(step, &self.inputs(&branches, &tokens, step))?;
            let prediction = self.guide(scene, predictions, &tokens, step)?;
            Ok::<_, E>(self.advance(scene, tracks, prediction, step, noise)?)
        })?;
        let end = end.into_iter().next().expect("one patch goes in and comes out");
        Ok(self.finish(scene, end.map(|(tokens, _)| tokens)))
    }

    /// The scene as every branch that any step needs sees it, the conditional one first.
    ///
    /// # Errors
    /// A text is missing.
    pub fn branches(&self, scene: &Scene, unconditional: Option<&Context>) -> Result<Vec<Scene>> {
        let kinds = self.kinds(&scene.tracks()).into_iter();
        let seen = kinds.map(|kind| match kind {
            Branch::Conditional => Ok(scene.clone()),
            Branch::Unconditional => {
                Ok(scene.with_text(unconditional.ok_or(Error::NoUnconditional)?))
            }
            Branch::Skipped => Ok(scene.skipping(&self.skipped)),
            Branch::VideoAlone => Ok(Scene { audio: None, ..scene.clone() }),
            Branch::AudioAlone => Ok(Scene { video: None, ..scene.clone() }),
        });
        seen.collect()
    }

    /// What a run starts from.
    pub fn start(&self, scene: &Scene, noise: &Noise) -> Tracks<Moving> {
        let start = scene.tracks().beside(noise.initial.clone()).beside(noise.clean.clone());
        start.named().map(|(name, ((track, given), clean))| {
            let initial = given.unwrap_or_else(|| noise.draw(track, name, "initial-noise", 0));
            let begun = match clean {
                None => initial * self.solver.initial_scale(),
                Some(clean) => {
                    let level = Tensor::from_floats([[[self.level(0)]]], &clean.device());
                    self.process.noise(clean, initial, level)
                }
            };
            (begun, self.solver.state())
        })
    }

    /// What the network is asked at a step, branch by branch, for tokens `[B, N, C]`.
    pub fn inputs(
        &self,
        branches: &[Scene],
        tokens: &Tracks<Tensor<3>>,
        step: usize,
    ) -> Vec<Inputs> {
        let (level, timestep) = (self.level(step), self.steps()[step].timestep);
        let own = self.guidance[step].branches(tokens);
        let one = |scene: &Scene| {
            let levels =
                scene.each(|_, track| NoiseLevels::at_timestep(level, timestep, track.samples()));
            scene.inputs(&self.process, tokens.clone(), &levels)
        };
        let all = self.kinds(tokens).into_iter().zip(branches);
        all.filter(|(kind, _)| own.contains(kind)).map(|(_, scene)| one(scene)).collect()
    }

    /// What the branches of a step, which starts from `tokens`, say together about every track, `[B, N, C]`.
    ///
    /// # Errors
    /// Something is to be generated that the network says nothing about.
    pub fn guide(
        &self,
        scene: &Scene,
        predictions: Vec<Prediction>,
        tokens: &Tracks<Tensor<3>>,
        step: usize,
    ) -> Result<Tracks<Tensor<3>>> {
        // A deviation is one of all tokens, those of references too.
        let whole = |prediction: Prediction| {
            scene.tracks().zip(prediction).map(|(track, said)| track.without_variance(said))
        };
        if let Some(first) = predictions.first() {
            scene.tracks().beside(first.as_ref()).named().try_map(|(name, (track, said))| {
                match said.is_none() && track.kind == TrackKind::Generated {
                    true => Err(Error::NoPrediction { track: name }),
                    false => Ok(()),
                }
            })?;
        }
        let noisy = scene.tracks().zip(tokens.clone());
        let noisy = noisy.map(|(track, tokens)| track.sequence(tokens));
        let guided = self.combine(predictions.into_iter().map(whole).collect(), &noisy, step)?;
        Ok(scene.tracks().zip(guided).map(|(track, said)| track.own(said)))
    }

    /// What the predictions of a step say the video's latents will be, `[B, C, F, h, w]`: for those who look on while it is
    /// made. `inputs` are those of the conditional branch.
    ///
    /// # Errors
    /// As [`Sampler::guide`].
    pub fn glimpse(
        &self,
        scene: &Scene,
        inputs: &Inputs,
        predictions: Vec<Prediction>,
        step: usize,
    ) -> Result<Option<Tensor<5>>> {
        // Channels beside the noise are what was given.
        let shown = Tracks {
            video: inputs.video.as_ref().map(|own| own.tokens.clone()),
            audio: inputs.audio.as_ref().map(|own| own.tokens.clone()),
        };
        let noisy = scene.tracks().zip(shown).map(|(track, tokens)| track.own(tokens));
        let said = self.guide(scene, predictions, &noisy, step)?;
        let (Some(track), Some(noisy), Some(said)) =
            (scene.tracks().video, noisy.video, said.video)
        else {
            return Ok(None);
        };
        let batch = said.dims()[0];
        let level = Tensor::full([batch, 1, 1], self.level(step), &noisy.device());
        Ok(Some(track.latents(self.process.clean(noisy, said, level))))
    }

    /// The branches of a step as one, token by token, the conditional one first, for the `noisy` tokens that
    /// they are about.
    ///
    /// # Errors
    /// There are none.
    pub fn combine(
        &self,
        branches: Vec<Tracks<Tensor<3>>>,
        noisy: &Tracks<Tensor<3>>,
        step: usize,
    ) -> Result<Tracks<Tensor<3>>> {
        let guidance = &self.guidance[step];
        let kinds = guidance.branches(noisy);
        let asked = branches.first().ok_or(Error::NoPrediction { track: "video" })?;
        let asked = asked.as_ref().zip(noisy.as_ref()).named();
        Ok(asked.map(|(name, (_, tokens))| {
            let of = |own: &Tracks<Tensor<3>>| match name {
                "video" => own.video.clone(),
                _ => own.audio.clone(),
            };
            let said = kinds.iter().zip(&branches);
            let said = said.filter_map(|(kind, own)| Some((*kind, of(own)?))).collect();
            guidance.join(name, said, || Noisy { tokens: tokens.clone(), level: self.level(step) })
        }))
    }

    /// The noise `[B, N, C]` that the solver adds to a track at a step, if it adds any.
    pub fn fresh_noise(
        &self,
        track: &Track,
        name: &str,
        step: usize,
        noise: &Noise,
    ) -> Option<Tensor<3>> {
        let wanted = self.solver.wants_noise(step);
        wanted.then(|| noise.draw(track, name, "solver-noise", step as u64))
    }

    /// Every track one step on.
    ///
    /// # Errors
    /// The solver cannot take the step.
    pub fn advance(
        &self,
        scene: &Scene,
        tracks: Tracks<Moving>,
        prediction: Tracks<Tensor<3>>,
        step: usize,
        noise: &Noise,
    ) -> Result<Tracks<Moving>> {
        let all = scene.tracks().zip(tracks).beside(prediction).named();
        all.try_map(|(name, ((track, moving), said))| {
            let Some(said) = said.filter(|_| track.kind == TrackKind::Generated) else {
                return Ok(moving);
            };
            let fresh = self.fresh_noise(track, name, step, noise);
            self.step(moving, said, step, fresh)
        })
    }

    /// Some tokens of a track one step on, by what was predicted for them and by `fresh` noise if the
    /// solver wants any.
    ///
    /// # Errors
    /// The solver cannot take the step.
    pub fn step(
        &self,
        (tokens, mut state): Moving,
        said: Tensor<3>,
        step: usize,
        fresh: Option<Tensor<3>>,
    ) -> Result<Moving> {
        let said = match self.velocities {
            true => {
                let level = Tensor::from_floats([[[self.level(step)]]], &tokens.device());
                self.process.for_solver(tokens.clone(), said, level)
            }
            false => said,
        };
        let tokens = self.solver.step(step, &mut state, tokens, said, fresh)?;
        Ok((tokens, state))
    }

    /// What a run leaves.
    pub fn finish(&self, scene: &Scene, unpasted: Tracks<Tensor<3>>) -> Sampled {
        let made = scene.tracks().zip(unpasted.clone());
        Sampled { tokens: made.map(|(track, tokens)| track.keep(tokens)), unpasted }
    }

    fn level(&self, step: usize) -> f32 {
        self.process.level(self.steps()[step].timestep) as f32
    }
}

impl Noise {
    /// Noise from a seed for samples that are numbered from `first` on.
    pub fn from_seed(seed: u64, first: u64, samples: usize) -> Noise {
        Noise {
            samples: (first..first + samples as u64).map(|sample| (seed, sample)).collect(),
            initial: Tracks::default(),
            clean: Tracks::default(),
            round: 0,
        }
    }

    /// Standard normal noise `[B, N, C]` for a track.
    fn draw(&self, track: &Track, name: &str, stream: &str, step: u64) -> Tensor<3> {
        let draw = |seed: u64| {
            let draw = Draw::new(seed).stream(stream).step(step);
            let draw = match self.round {
                0 => draw,
                round => draw.stream(&format!("round-{round}")),
            };
            // The video has the stream to itself, as it had before there was sound.
            if name == "video" { draw } else { draw.stream(name) }
        };
        let each =
            self.samples.iter().map(|(seed, sample)| track.noise(draw(*seed).sample(*sample)));
        Tensor::cat(each.collect(), 0)
    }
}
