//! Makes what is free in a scene: the one way from noise to tokens for whatever is given beside them,
//! first frames, references, masks or the other modality.

use burn::tensor::Tensor;
use diffusion::{
    Branch, Draw, Guidance, NoiseLevels, Part, Process, Scene, SchedulerConfig, Solver, State,
    Track, Tracks, denoise,
};
use nn::{Context, Inputs, Prediction};

use crate::error::{Error, Result};
use crate::progress::{self, Progress};

/// A network, however its parameters are held.
pub type Predict<'a> = &'a mut dyn FnMut(&Inputs) -> Result<Prediction>;

/// How scenes are made.
#[derive(Clone, Debug)]
pub struct SceneSampler {
    process: Process,
    solver: Solver,
    guidance: Guidance,
    /// Whether the solver follows velocities, whatever the network predicts.
    velocities: bool,
    /// What the video starts from instead of noise from the seed, `[B, N, C]`.
    start: Option<Tensor<3>>,
}

/// Which samples of a run a batch holds: all noise belongs to (seed, sample).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The seed of all noise.
    pub seed: u64,
    /// The number of the first sample.
    pub first: u64,
}

/// The tokens of a track with the solver's memory of them.
type Moving = (Tensor<3>, State);

impl SceneSampler {
    /// So many steps of a scheduler.
    ///
    /// # Errors
    /// The scheduler cannot take so many steps.
    pub fn scheduled(
        process: Process,
        (scheduler, steps): (&SchedulerConfig, usize),
        tokens: usize,
        guidance: Guidance,
    ) -> Result<SceneSampler> {
        let solver = scheduler.solver(steps, tokens)?;
        Ok(SceneSampler { process, solver, guidance, velocities: true, start: None })
    }

    /// The few steps of a distilled network: at each timestep clean tokens are predicted and noised
    /// again to the next.
    ///
    /// # Errors
    /// The timesteps do not fall, or the process has no such.
    pub fn renoising(
        process: Process,
        timesteps: &[f64],
        guidance: Guidance,
    ) -> Result<SceneSampler> {
        let solver = Solver::renoise(&process, timesteps)?;
        Ok(SceneSampler { process, solver, guidance, velocities: false, start: None })
    }

    /// The same, whose video starts from given noise, `[B, N, C]`.
    pub fn starting_from(self, start: Option<Tensor<3>>) -> SceneSampler {
        SceneSampler { start, ..self }
    }

    /// How many steps it takes.
    pub fn steps(&self) -> usize {
        self.solver.steps().len()
    }

    /// The tokens of every track, `[B, N, C]`, those that are given as they are. `null` is the text of
    /// the unconditional prediction, which guidance above 1 needs.
    ///
    /// # Errors
    /// The scene does not fit the network, a text is missing, or the user interrupted.
    pub fn run(
        &self,
        scene: &Scene,
        null: Option<&Context>,
        batch: Batch,
        progress: &mut dyn Progress,
        predict: Predict<'_>,
    ) -> Result<Tracks<Tensor<3>>> {
        let without = match (self.guidance.branches().contains(&Branch::Unconditional), null) {
            (false, _) => None,
            (true, Some(null)) => Some(scene.with_text(null)),
            (true, None) => {
                let reason = "guidance above 1 needs the text of the unconditional prediction";
                return Err(Error::Request(reason.to_owned()));
            }
        };
        let start = scene.each(|name, track| {
            let given = self.start.clone().filter(|_| name == "video");
            let drawn = || noise(track, batch.draw("initial-noise", name), batch.first);
            (given.unwrap_or_else(drawn), self.solver.state())
        });
        let end = denoise(0..self.steps(), vec![start], |place, tracks| {
            progress::check(progress)?;
            let said =
                self.predict([Some(scene), without.as_ref()], &tracks, place.step, predict)?;
            let next = self.advance(scene, (tracks, said), place.step, batch)?;
            progress.reach(place.step + 1);
            Ok::<_, Error>(next)
        })?;
        let end = end.into_iter().next().expect("one patch goes in and comes out");
        let sound = scene.audio.as_ref().zip(end.audio);
        Ok(Tracks {
            video: scene.video.keep(end.video.0),
            audio: sound.map(|(track, (tokens, _))| track.keep(tokens)),
        })
    }

    /// What the network says about every track, `[B, N, C]`, guided if there is a second scene.
    fn predict(
        &self,
        [with, without]: [Option<&Scene>; 2],
        tracks: &Tracks<Moving>,
        step: usize,
        predict: Predict<'_>,
    ) -> Result<Tracks<Tensor<3>>> {
        let level = self.level(step);
        let mut ask = |scene: &Scene| -> Result<Tracks<Tensor<3>>> {
            let levels =
                scene.each(|_, track| NoiseLevels::per_sample(vec![level; track.samples()]));
            let tokens = tracks.clone().map(|(tokens, _)| tokens);
            let said = predict(&scene.inputs(&self.process, tokens, &levels))?;
            let sound = scene.audio.as_ref().zip(said.audio);
            Ok(Tracks {
                video: scene.video.own(said.video),
                audio: sound.map(|(track, said)| track.own(said)),
            })
        };
        let conditional = ask(with.expect("there is always a scene"))?;
        let Some(without) = without else { return Ok(conditional) };
        let both = conditional.zip(ask(without)?);
        Ok(both.map(|(with, without)| self.guidance.combine(with, without)))
    }

    /// Every track one step on.
    fn advance(
        &self,
        scene: &Scene,
        (tracks, said): (Tracks<Moving>, Tracks<Tensor<3>>),
        step: usize,
        batch: Batch,
    ) -> Result<Tracks<Moving>> {
        let one = |name: &str, track: &Track, moving: Moving, said: Tensor<3>| -> Result<Moving> {
            let (tokens, mut state) = moving;
            if track.part == Part::Given {
                return Ok((tokens, state));
            }
            let said = match self.velocities {
                true => {
                    let level = Tensor::from_floats([[[self.level(step)]]], &tokens.device());
                    self.process.for_solver(tokens.clone(), said, level)
                }
                false => said,
            };
            let noise = self.solver.wants_noise(step).then(|| {
                let draw = batch.draw("solver-noise", name).step(step as u64);
                noise(track, draw, batch.first)
            });
            let tokens = self.solver.step(step, &mut state, tokens, said, noise)?;
            Ok((tokens, state))
        };
        let video = one("video", &scene.video, tracks.video, said.video)?;
        let sound = scene.audio.as_ref().zip(tracks.audio).zip(said.audio);
        let audio = sound.map(|((track, moving), said)| one("audio", track, moving, said));
        Ok(Tracks { video, audio: audio.transpose()? })
    }

    fn level(&self, step: usize) -> f32 {
        self.process.level(self.solver.steps()[step].timestep) as f32
    }
}

impl Batch {
    fn draw(self, stream: &str, track: &str) -> Draw {
        Draw::new(self.seed).stream(stream).stream(track)
    }
}

/// Normal noise `[B, N, C]` for a track, sample by sample.
fn noise(track: &Track, draw: Draw, first: u64) -> Tensor<3> {
    let [samples, tokens, channels] = track.clean.dims();
    let each = (0..samples as u64).map(|sample| {
        draw.sample(first + sample).normal_tensor([1, tokens, channels], &track.device())
    });
    Tensor::cat(each.collect(), 0)
}
