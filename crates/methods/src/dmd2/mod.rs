//! DMD2 (Yin et al. 2024): a student of few steps, whose samples a frozen teacher and a critic score.
//!
//! The student makes samples. The critic learns, as by finetuning, what their distribution is; where
//! the teacher would rather have something else, the student follows. Roles are fields: the teacher
//! has no parameters to hand out.
//!
//! This follows FastVideo's `DMD2Method`. It differs where that one is wrong or wasteful: scores are
//! normalised per sample and over the tokens that count, so that accumulation changes nothing; the
//! student runs only as far as its exit, which all ranks share; the critic learns from the sample the
//! student has just made instead of a second one; and what is not a number is not hidden.

mod config;
mod draws;

use std::collections::BTreeMap;

use burn::tensor::Tensor;
use diffusion::{Guidance, NoiseLevels, Process, Scene, Solver, denoise};
use nn::{Context, Prediction, Tracks};
use train::{
    Batch, Error, Frozen, LossReport, Losses, Method, MethodReport, ModelInputs, Noised, Pass,
    Result, STUDENT, Strategy, Trained,
};

pub use config::{Dmd2Config, Rollout, Unconditional};
pub use draws::Dmd2Draws;

use config::CRITIC;

/// Below this a sample and what the teacher makes of it are the same.
const SMALLEST_DISTANCE: f64 = 1e-6;

/// The networks of DMD2.
pub struct Dmd2Roles {
    /// Learns to sample in few steps.
    pub student: Trained,
    /// Knows the data.
    pub teacher: Frozen,
    /// Learns what the student's samples look like.
    pub critic: Trained,
}

/// Distribution matching distillation.
pub struct Dmd2 {
    /// The networks.
    pub roles: Dmd2Roles,
    strategy: Box<dyn Strategy>,
    process: Process,
    config: Dmd2Config,
    solver: Solver,
    guidance: Guidance,
    negative: Option<Context>,
}

impl Dmd2 {
    /// Three roles of one family. `negative` is the embedded negative prompt, `[1, L, D]`, if
    /// [`Dmd2Config::needs_negative_prompt`] says so.
    ///
    /// # Errors
    /// Roles of other names, a number that cannot be, timesteps that do not fall, a missing prompt.
    pub fn new(
        roles: Dmd2Roles,
        strategy: Box<dyn Strategy>,
        process: Process,
        config: Dmd2Config,
        negative: Option<Context>,
    ) -> Result<Dmd2> {
        config.check()?;
        for (role, want) in [(&roles.student, STUDENT), (&roles.critic, CRITIC)] {
            if role.name() != want {
                let want = format!("it must be called `{want}`");
                return Err(Error::setting("role", role.name(), want));
            }
        }
        if config.needs_negative_prompt() && negative.is_none() {
            let want = "guidance needs the encoded negative prompt, or `unconditional: zero`";
            return Err(Error::setting("negative prompt", "missing", want));
        }
        let solver = Solver::renoise(&process, &config.student_timesteps(&process))?;
        let guidance = Guidance::new(config.guidance)?;
        Ok(Dmd2 { roles, strategy, process, config, solver, guidance, negative })
    }

    /// Adds the gradients for a scene with all choices made.
    ///
    /// # Errors
    /// The scene does not fit a network.
    pub fn accumulate_with(
        &mut self,
        scene: &Scene,
        draws: &Dmd2Draws,
        pass: &Pass,
    ) -> Result<MethodReport> {
        let start = self.start(scene, draws)?;
        let mut report = MethodReport::default();
        let sample = match self.config.updates(pass.iteration).contains(&STUDENT) {
            true => {
                report.tokens += start.count();
                let (values, sample) = self.teach_student(&start, draws, pass)?;
                let sigmas = None;
                let loss = LossReport { role: STUDENT, name: "loss.student", values, sigmas };
                report.losses.push(loss);
                sample
            }
            false => start.clean(&self.roles.student.predict(&start.inputs)?),
        };
        let (levels, noise) = &draws.critic;
        let scored = scene.with_clean(sample);
        let inputs = self.strategy.inputs(&self.process, &scored, levels, noise);
        let strategy = &*self.strategy;
        let values =
            self.roles.critic.accumulate(&inputs.seen.inputs, pass, &mut |prediction| {
                Ok(strategy.loss(prediction, &inputs).total())
            })?;
        let sigmas = inputs.targets.as_ref().first().map(|target| target.sigma.clone());
        report.losses.push(LossReport { role: CRITIC, name: "loss.critic", values, sigmas });
        report.tokens += inputs.seen.count();
        Ok(report)
    }

    /// What the student is given at its exit.
    fn start(&self, scene: &Scene, draws: &Dmd2Draws) -> Result<Noised> {
        let exit = draws.exit;
        let levels = self.levels(scene, exit);
        if self.config.rollout == Rollout::Data {
            return Ok(ModelInputs::new(&self.process, scene, &levels, &draws.rollout[exit]).seen);
        }
        let first = vec![(draws.rollout[0].clone(), scene.each(|_, _| self.solver.state()))];
        let end = denoise(0..exit, first, |place, (tokens, states)| {
            let levels = self.levels(scene, place.step);
            let seen = Noised::new(&self.process, scene, tokens, &levels);
            let prediction = seen.own(&self.roles.student.predict(&seen.inputs)?);
            let noise = draws.rollout[place.step + 1].clone();
            let all = states.zip(seen.tokens).zip(prediction.zip(noise));
            let moved = all.try_map(|((mut state, tokens), (prediction, noise))| {
                let step = place.step;
                let tokens = self.solver.step(step, &mut state, tokens, prediction, Some(noise))?;
                Ok::<_, Error>((tokens, state))
            })?;
            let tokens = moved.clone().map(|(tokens, _)| tokens);
            Ok::<_, Error>((tokens, moved.map(|(_, state)| state)))
        })?;
        let (tokens, _) = end.into_iter().next().expect("one patch goes in and comes out");
        Ok(Noised::new(&self.process, scene, tokens, &levels))
    }

    /// The levels of one of the student's steps.
    fn levels(&self, scene: &Scene, step: usize) -> Tracks<NoiseLevels> {
        let level = self.process.level(self.solver.steps()[step].timestep) as f32;
        scene.each(|_, track| NoiseLevels::per_sample(vec![level; track.samples()]))
    }

    /// Adds the student's gradients; returns its losses and its sample, outside any graph.
    fn teach_student(
        &mut self,
        start: &Noised,
        draws: &Dmd2Draws,
        pass: &Pass,
    ) -> Result<(Vec<f32>, Tracks<Tensor<3>>)> {
        let Dmd2 { roles, process, guidance, negative, config, .. } = self;
        let judges = Judges {
            teacher: &roles.teacher,
            critic: &roles.critic,
            process,
            guidance: *guidance,
            unconditional: match config.unconditional {
                Unconditional::NegativePrompt => negative.as_ref(),
                Unconditional::Zero => None,
            },
        };
        let mut made = None;
        let student = &mut roles.student;
        let values = student.accumulate(&start.inputs, pass, &mut |prediction| {
            let sample = start.clean(prediction);
            let plain = sample.clone().map(Tensor::inner);
            made = Some(plain.clone());
            let (levels, noise) = &draws.score;
            let scored = start.scene().with_clean(plain);
            let inputs = ModelInputs::new(judges.process, &scored, levels, noise);
            judges.losses(prediction, &sample, &inputs)
        })?;
        Ok((values, made.expect("a backward pass asks for the loss")))
    }
}

/// Whoever scores a sample.
struct Judges<'a> {
    teacher: &'a Frozen,
    critic: &'a Trained,
    process: &'a Process,
    guidance: Guidance,
    /// The text of the unconditional prediction; zeros if there is none.
    unconditional: Option<&'a Context>,
}

impl Judges<'_> {
    /// The loss of every sample whose gradient is where critic and teacher differ.
    ///
    /// `sample` belongs to the student's graph; `inputs` is the same sample, noised, and does not.
    fn losses(
        &self,
        prediction: &Prediction,
        sample: &Tracks<Tensor<3>>,
        inputs: &ModelInputs,
    ) -> Result<Tensor<1>> {
        let fake = inputs.seen.clean(&self.critic.predict(&inputs.seen.inputs)?);
        let real = self.real(inputs)?;
        let loss = |target: &train::Target, sample: &Tensor<3>, [fake, real]: [Tensor<3>; 2]| {
            let plain = sample.clone().inner();
            let distance = (plain.clone() - real.clone()).abs().mean_dim(2);
            let [samples, tokens, _] = distance.dims();
            let distance = target.mean(distance.reshape([samples, tokens]));
            let distance = distance.clamp_min(SMALLEST_DISTANCE).reshape([samples, 1, 1]);
            let pull = (fake - real) / distance;
            target.error(sample.clone(), plain - pull) * 0.5
        };
        let all = inputs.targets.as_ref().zip(sample.as_ref()).zip(fake.zip(real));
        let losses = all.map(|((target, sample), (fake, real))| {
            target.counts.then(|| loss(target, sample, [fake, real]))
        });
        let weights = losses.as_ref().map(|_| 1.0);
        Ok(Losses::new(prediction, losses, weights).total())
    }

    /// The clean tokens that the teacher sees, pushed away from what it would see without the text.
    fn real(&self, inputs: &ModelInputs) -> Result<Tracks<Tensor<3>>> {
        let seen = &inputs.seen;
        let with = seen.clean(&self.teacher.predict(&seen.inputs)?);
        if self.guidance.scale() == 1.0 {
            return Ok(with);
        }
        let mut other = seen.inputs.clone();
        let replace = |own: &mut Context| match self.unconditional {
            Some(text) => {
                let [samples, _, _] = own.tokens.dims();
                let [_, words, width] = text.tokens.dims();
                own.tokens = text.tokens.clone().expand([samples, words, width]);
                own.mask = text.mask.clone().map(|mask| mask.expand([samples, words]));
            }
            None => own.tokens = own.tokens.zeros_like(),
        };
        other.as_mut().into_iter().for_each(|own| replace(&mut own.context));
        let without = seen.clean(&self.teacher.predict(&other)?);
        Ok(with.zip(without).map(|(with, without)| self.guidance.combine(with, without)))
    }
}

impl Method for Dmd2 {
    fn name(&self) -> &'static str {
        "dmd2"
    }

    fn accumulate(&mut self, batch: &Batch, pass: &Pass) -> Result<MethodReport> {
        let scene = self.strategy.scene(batch, &pass.draws)?;
        let draws = Dmd2Draws::new(&self.config, &scene, &pass.draws);
        self.accumulate_with(&scene, &draws, pass)
    }

    fn updates(&self, iteration: u64) -> Vec<&'static str> {
        self.config.updates(iteration)
    }

    /// The critic always, the student when it is updated.
    fn clipped(&self, iteration: u64) -> Vec<&'static str> {
        self.config.updates(iteration)
    }

    fn metadata(&self) -> BTreeMap<String, String> {
        self.strategy.metadata()
    }

    fn trained(&self) -> Vec<&Trained> {
        vec![&self.roles.student, &self.roles.critic]
    }

    fn trained_mut(&mut self) -> Vec<&mut Trained> {
        vec![&mut self.roles.student, &mut self.roles.critic]
    }
}
