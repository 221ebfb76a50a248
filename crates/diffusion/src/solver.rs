//! Solvers: schedules fixed before the first step, and steps that are pure functions of
//! (schedule, step, region state, sample, prediction, noise).

use crate::dpm_solver::DpmSolver;
use crate::unipc::UniPc;
use crate::update::{Scales, Update};
use crate::{Error, Result, SolverState};
use burn::tensor::{FloatDType, Tensor};

/// One step of a schedule: where its sample is on the way from noise to data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// The timestep that the network is told.
    pub timestep: f64,
    /// How much signal the sample holds: `sample = alpha clean + sigma epsilon`.
    pub alpha: f64,
    /// How much noise the sample holds.
    pub sigma: f64,
}

impl Step {
    pub(crate) fn new(timestep: f64, scales: Scales) -> Step {
        Step { timestep, alpha: scales.alpha.into(), sigma: scales.sigma.into() }
    }
}

/// A schedule and the rule that takes its steps. Built by [`crate::SchedulerConfig::solver`] or
/// [`Solver::renoise`].
#[derive(Debug, Clone, PartialEq)]
pub struct Solver {
    steps: Vec<Step>,
    rule: Rule,
}

#[derive(Debug, Clone, PartialEq)]
enum Rule {
    /// DDIM, DDPM, Euler and renoise: each step stands alone.
    WithoutMemory(Vec<Update>),
    DpmSolver(DpmSolver),
    UniPc(UniPc),
}

impl Solver {
    /// The schedule, from the noisiest step to the last.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The standard deviation of the initial noise. All solvers so far start from unit noise.
    pub fn initial_scale(&self) -> f64 {
        1.0
    }

    /// The state of a region before its first step.
    pub fn state(&self) -> SolverState {
        SolverState::default()
    }

    /// Whether `step` adds fresh noise, which its caller draws.
    pub fn wants_noise(&self, step: usize) -> bool {
        let weight = match &self.rule {
            Rule::WithoutMemory(updates) => updates.get(step).map(|update| update.noise),
            Rule::DpmSolver(solver) => solver.noise(step),
            Rule::UniPc(_) => None,
        };
        weight.is_some_and(|weight| weight != 0.0)
    }

    /// The sample after `step`, in f32.
    ///
    /// `sample`, `prediction` and `noise` are `[batch, tokens, channels]` of one region, and
    /// `state` is that region's. A fresh state may start at any step. `noise` has unit variance
    /// and is only looked at where [`Solver::wants_noise`] says so.
    pub fn step(
        &self,
        step: usize,
        state: &mut SolverState,
        sample: Tensor<3>,
        prediction: Tensor<3>,
        noise: Option<Tensor<3>>,
    ) -> Result<Tensor<3>> {
        let noise = self.check(step, state, [&sample, &prediction], noise)?;
        let [sample, prediction] = [sample, prediction].map(|x| x.cast(FloatDType::F32));
        let noise = noise.map(|noise| noise.cast(FloatDType::F32));
        let next = match &self.rule {
            Rule::WithoutMemory(updates) => updates[step].apply(sample, prediction, noise),
            Rule::DpmSolver(solver) => {
                solver.step(step, &mut state.history, (sample, prediction), noise)
            }
            Rule::UniPc(solver) => solver.step(step, state, sample, prediction),
        };
        state.next = Some(step + 1);
        Ok(next)
    }

    /// Refuses a step that cannot be taken; the noise is dropped if it is not wanted.
    fn check(
        &self,
        step: usize,
        state: &SolverState,
        [sample, prediction]: [&Tensor<3>; 2],
        noise: Option<Tensor<3>>,
    ) -> Result<Option<Tensor<3>>> {
        if step >= self.steps.len() {
            return Err(Error::NoStep { step, steps: self.steps.len() });
        }
        if let Some(next) = state.next.filter(|next| *next != step) {
            return Err(Error::OutOfOrder { step, next });
        }
        same_shape("prediction", prediction, sample)?;
        for earlier in state.tensors() {
            same_shape("region's history", earlier, sample)?;
        }
        match noise {
            _ if !self.wants_noise(step) => Ok(None),
            None => Err(Error::NoNoise { step }),
            Some(noise) => same_shape("noise", &noise, sample).map(|()| Some(noise)),
        }
    }

    /// A solver whose steps stand alone.
    pub(crate) fn without_memory(
        class: &'static str,
        steps: Vec<Step>,
        updates: Vec<Update>,
    ) -> Result<Solver> {
        match updates.iter().position(|update| !update.is_finite()) {
            Some(step) => Err(Error::NotFinite { class, step, steps: steps.len() }),
            None => Ok(Solver { steps, rule: Rule::WithoutMemory(updates) }),
        }
    }

    /// A multistep solver.
    pub(crate) fn dpm_solver(
        class: &'static str,
        steps: Vec<Step>,
        solver: DpmSolver,
    ) -> Result<Solver> {
        match solver.first_not_finite() {
            Some(step) => Err(Error::NotFinite { class, step, steps: steps.len() }),
            None => Ok(Solver { steps, rule: Rule::DpmSolver(solver) }),
        }
    }

    /// A multistep solver with a corrector.
    pub(crate) fn unipc(class: &'static str, steps: Vec<Step>, solver: UniPc) -> Result<Solver> {
        match solver.first_not_finite() {
            Some(step) => Err(Error::NotFinite { class, step, steps: steps.len() }),
            None => Ok(Solver { steps, rule: Rule::UniPc(solver) }),
        }
    }
}

fn same_shape(what: &'static str, tensor: &Tensor<3>, sample: &Tensor<3>) -> Result<()> {
    let (found, sample) = (tensor.dims(), sample.dims());
    if found == sample { Ok(()) } else { Err(Error::Shape { what, found, sample }) }
}

#[cfg(test)]
mod tests {
    use crate::SchedulerConfig;
    use burn::tensor::{Device, Tensor};

    /// What the state holds after each of the steps: predictions, and samples to be corrected.
    fn remembered(options: &str, steps: usize) -> Vec<(usize, usize)> {
        let text = format!(r#"{{{options}}}"#);
        let solver = SchedulerConfig::from_json(&text).unwrap().solver(steps, 4).unwrap();
        let mut state = solver.state();
        let mut sample = Tensor::<3>::ones([1, 4, 2], &Device::flex());
        let step = |step| {
            let prediction = sample.clone();
            let next = solver.step(step, &mut state, sample.clone(), prediction, None);
            sample = next.unwrap();
            (state.history.len(), usize::from(state.before.is_some()))
        };
        (0..steps).map(step).collect()
    }

    /// A video's latents are large; none is kept longer than the order needs it.
    #[test]
    fn the_history_is_one_shorter_than_the_order() {
        for order in 1..=3 {
            let options =
                format!(r#""_class_name": "DPMSolverMultistepScheduler", "solver_order": {order}"#);
            let want: Vec<_> = (0..8).map(|step| ((step + 1).min(order - 1), 0)).collect();
            assert_eq!(remembered(&options, 8), want);
        }
    }

    /// A corrector needs one more prediction, and the sample; neither is kept where it is off.
    #[test]
    fn a_corrector_needs_the_sample_and_as_many_predictions_as_its_order() {
        let options = r#""_class_name": "UniPCMultistepScheduler", "disable_corrector": [3]"#;
        assert_eq!(remembered(options, 6), [(1, 1), (2, 1), (2, 1), (1, 0), (2, 1), (1, 0)]);
    }
}
