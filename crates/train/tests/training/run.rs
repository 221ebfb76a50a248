//! The smallest run: the toy family learns to predict noise it can nearly see.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use burn::tensor::Tensor;
use nn::{Context, Inputs, Levels, Modality};
use parallel::Sharding;
use serde_json::json;
use testkit::numbers::{bits, tensor};
use testkit::toy::Toy;
use train::checkpoint::{CheckpointConfig, Checkpoints, Recipe};
use train::{
    AdamWConfig, Averaged, Batch, Callback, Cursor, Decay, Draws, Ema, EmaConfig, Error, Event,
    Feed, Field, LearningRateSchedule, Learns, LoopConfig, LossReport, Method, MethodReport,
    OptimizerConfig, Parts, Pass, Ranks, Result, STUDENT, Share, StateDict, StepReport, Trained,
    Trainer, Training, Value,
};

pub(crate) const TOKENS: usize = 6;

/// Samples by number; a sample is a function of its number alone.
pub(crate) struct Numbers {
    /// Samples of the whole batch.
    pub(crate) batch: usize,
    pub(crate) position: u64,
    /// Which part of it is ours, of how many.
    pub(crate) part: (usize, usize),
}

impl Numbers {
    /// Our places in the whole.
    fn places(&self) -> std::ops::Range<u64> {
        let std::ops::Range { start, end } = comm::share(self.batch, self.part.0, self.part.1);
        start as u64..end as u64
    }
}

impl Feed for Numbers {
    fn next(&mut self) -> Result<Batch> {
        let std::ops::Range { start, end } = self.places();
        let samples = self.position + start..self.position + end;
        self.position += self.batch as u64;
        let toy = Toy::small();
        let words = |at: u64| tensor(&format!("text {at}"), [1, 3, toy.text_width]);
        let text = samples.map(words).collect();
        let context = Context { tokens: Tensor::cat(text, 0), mask: None, image: None };
        let fields = [("text".to_owned(), Field::Text(context))].into();
        Ok(Batch { samples: (end - start) as usize, fields, beside: None })
    }

    fn ahead(&mut self, batches: u64) -> Result<Vec<Share>> {
        let share = Share { first: self.places().start, whole: self.batch as u64 };
        Ok(vec![share; batches as usize])
    }

    fn cursor(&self) -> Cursor {
        Cursor { epoch: 0, position: self.position }
    }

    fn seek(&mut self, cursor: Cursor) -> Result<()> {
        self.position = cursor.position;
        Ok(())
    }
}

/// What a method under test does on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Fault {
    #[default]
    None,
    /// The loss is not a number at this iteration.
    Loss(u64),
    /// The loss is fine, but a gradient is not.
    Gradient(u64),
}

/// Two roles that learn the same: the student always, the critic every second step.
pub(crate) struct Pair {
    pub(crate) student: Trained,
    pub(crate) critic: Trained,
    pub(crate) fault: Fault,
    pub(crate) clips: Clips,
}

/// Who is clipped at an iteration.
pub(crate) type Clips = fn(u64) -> Vec<&'static str>;

impl Method for Pair {
    fn name(&self) -> &'static str {
        "pair"
    }

    fn accumulate(&mut self, batch: &Batch, pass: &Pass) -> Result<MethodReport> {
        let (inputs, target) = inputs(batch, &pass.draws)?;
        let sigmas = inputs.video.as_ref().unwrap().sigma.to_data().iter::<f32>().collect();
        let fault = self.fault;
        let iteration = pass.iteration;
        let mut loss = |prediction: &nn::Prediction| {
            let target = train::beside(prediction.video.as_ref().unwrap(), target.clone());
            let error = prediction.video.as_ref().unwrap().clone() - target;
            let samples = error.dims()[0];
            let each = (error.clone() * error).sum_dim(2).sum_dim(1).reshape([samples]);
            Ok(match fault {
                Fault::Loss(at) if at == iteration => each * f32::NAN,
                // The root has an infinite slope at zero.
                Fault::Gradient(at) if at == iteration => (each * 0.0).sqrt(),
                _ => each,
            })
        };
        let values = self.student.accumulate(&inputs, pass, &mut loss)?;
        let mut losses =
            vec![LossReport { role: STUDENT, name: "loss", values, sigmas: Some(sigmas) }];
        if self.updates(pass.iteration).contains(&"critic") {
            let mut loss = |prediction: &nn::Prediction| {
                let samples = prediction.video.as_ref().unwrap().dims()[0];
                let square = prediction.video.as_ref().unwrap().clone()
                    * prediction.video.as_ref().unwrap().clone();
                Ok(square.sum_dim(2).sum_dim(1).reshape([samples]))
            };
            let values = self.critic.accumulate(&inputs, pass, &mut loss)?;
            losses.push(LossReport { role: "critic", name: "critic", values, sigmas: None });
        }
        Ok(MethodReport { losses, tokens: (batch.samples * TOKENS) as u64 })
    }

    fn updates(&self, iteration: u64) -> Vec<&'static str> {
        match iteration % 2 {
            0 => vec![STUDENT, "critic"],
            _ => vec![STUDENT],
        }
    }

    fn clipped(&self, iteration: u64) -> Vec<&'static str> {
        (self.clips)(iteration)
    }

    fn trained(&self) -> Vec<&Trained> {
        vec![&self.student, &self.critic]
    }

    fn trained_mut(&mut self) -> Vec<&mut Trained> {
        vec![&mut self.student, &mut self.critic]
    }
}

/// Noisy tokens at a drawn level, and the noise.
pub(crate) fn inputs(batch: &Batch, draws: &Draws) -> Result<(Inputs, Tensor<3>)> {
    let toy = Toy::small();
    let device = burn::tensor::Device::flex();
    let noise = draws.normal("noise", TOKENS, toy.channels, &device);
    let levels = draws.uniform("level");
    let sigma = Tensor::<1>::from_floats(levels.as_slice(), &device);
    let video = Modality {
        tokens: noise.clone() * sigma.clone().reshape([batch.samples, 1, 1]),
        levels: Levels::per_sample(sigma.clone() * 1000.0),
        sigma,
        positions: nn::grid_positions([TOKENS, 1], [1.0, 1.0], batch.samples, &device),
        context: batch.text("pair", "text")?.clone(),
        size: None,
        enabled: true,
        skipped: Vec::new(),
    };
    Ok((Inputs::video(video), noise))
}

/// Remembers every report.
#[derive(Clone, Default)]
pub(crate) struct Log(pub(crate) Arc<Mutex<Vec<StepReport>>>, pub(crate) Arc<Mutex<Vec<String>>>);

impl Callback for Log {
    fn name(&self) -> &str {
        "log"
    }

    fn on(&mut self, event: &Event<'_>, _: &dyn Method) -> Result<()> {
        if let Event::Stepped { report } = event {
            self.0.lock().unwrap().push((*report).clone());
        }
        let word = format!("{event:?}");
        let word = word.split([' ', '{']).next().unwrap_or_default().to_owned();
        self.1.lock().unwrap().push(word);
        Ok(())
    }
}

/// Sets a flag in a step.
struct Signal {
    stop: Arc<AtomicBool>,
    at: Option<u64>,
}

impl Callback for Signal {
    fn name(&self) -> &str {
        "signal"
    }

    fn on(&mut self, event: &Event<'_>, _: &dyn Method) -> Result<()> {
        if let Event::Stepped { report } = event {
            self.stop.fetch_or(self.at == Some(report.step), Ordering::Relaxed);
        }
        Ok(())
    }
}

/// How a test run differs from the plain one.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) steps: u64,
    pub(crate) batch: usize,
    pub(crate) accumulation: u64,
    pub(crate) clip: Option<f64>,
    pub(crate) clips: Clips,
    pub(crate) layout: Arc<dyn nn::Schedule>,
    /// How many ranks hold the parameters together.
    pub(crate) shard: usize,
    pub(crate) learns: Learns,
    pub(crate) optimizer: OptimizerConfig,
    pub(crate) fault: Fault,
    pub(crate) every: u64,
    /// A signal comes in this step.
    pub(crate) signal: Option<u64>,
    pub(crate) recipe: serde_json::Value,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            steps: 4,
            batch: 2,
            accumulation: 1,
            clip: Some(1.0),
            clips: |_| vec![STUDENT],
            layout: Arc::new(nn::OneDevice::default()),
            shard: 1,
            learns: Learns::All,
            optimizer: OptimizerConfig::AdamW(AdamWConfig::default()),
            fault: Fault::None,
            every: 2,
            signal: None,
            recipe: json!({ "loop": { "steps": 4 } }),
        }
    }
}

/// A run, its log and its average.
pub(crate) struct Run {
    pub(crate) trainer: Trainer,
    pub(crate) log: Log,
    pub(crate) average: Averaged,
    /// Who holds a copy of the parameters together, if several do.
    pub(crate) copy: Option<comm::Group>,
}

impl Setup {
    pub(crate) fn role(&self, name: &'static str) -> Result<Trained> {
        self.role_on(name, None)
    }

    fn role_on(&self, name: &'static str, sharding: Option<&Sharding>) -> Result<Trained> {
        let toy = Toy::small();
        let learning_rate = LearningRateSchedule::new(0.01, 1, Decay::Cosine { end: 0.1 }, 8)?;
        let training = Training {
            learns: self.learns.clone(),
            optimizer: self.optimizer.clone(),
            learning_rate,
            layout: Arc::clone(&self.layout),
            sharding: sharding.cloned(),
        };
        Trained::new(name, Arc::new(toy), toy.store(), training)
    }

    pub(crate) fn build(&self, folder: Option<&Path>) -> Result<Run> {
        self.build_on(Ranks::alone(), folder)
    }

    /// One of several ranks; the first keeps checkpoints.
    pub(crate) fn build_on(&self, ranks: Ranks, folder: Option<&Path>) -> Result<Run> {
        let sharding = Sharding::over(ranks.mesh(), self.shard);
        let role = |name| self.role_on(name, sharding.as_ref());
        let (student, critic) = (role(STUDENT)?, role("critic")?);
        let method = Pair { student, critic, fault: self.fault, clips: self.clips };
        let (ema, average) =
            Ema::new("ema", STUDENT, EmaConfig { decay: 0.9, ..Default::default() })?;
        let log = Log::default();
        let config = CheckpointConfig { every: self.every, keep_last: 2, keep_every: 0 };
        let recipe = Recipe(self.recipe.clone());
        let folder = folder.filter(|_| ranks.is_first());
        let checkpoints =
            folder.map(|folder| Checkpoints::new(folder, config, recipe)).transpose()?;
        let stop = Arc::default();
        let signal = Signal { stop: Arc::clone(&stop), at: self.signal };
        let parts = Parts {
            method: Box::new(method),
            feed: Box::new(Numbers { batch: self.batch, position: 0, part: ranks.replica() }),
            callbacks: vec![Box::new(ema), Box::new(log.clone()), Box::new(signal)],
            checkpoints,
        };
        let (steps, accumulation, clip) = (self.steps, self.accumulation, self.clip);
        let trainer = Trainer::new(LoopConfig { steps, accumulation, seed: 7, clip }, parts)?;
        let copy = sharding.map(|own| own.copy().clone());
        Ok(Run { trainer: trainer.with_ranks(ranks).stopping_at(stop), log, average, copy })
    }

    /// Runs to the end without checkpoints.
    pub(crate) fn run(&self) -> Run {
        let mut run = self.build(None).unwrap();
        run.trainer.run().unwrap();
        run
    }
}

impl Run {
    pub(crate) fn reports(&self) -> Vec<StepReport> {
        self.log.0.lock().unwrap().clone()
    }

    /// Everything a report says but the time it took.
    pub(crate) fn numbers(&self) -> Vec<StepReport> {
        let timeless = |report: StepReport| StepReport { seconds: 0.0, ..report };
        self.reports().into_iter().map(timeless).collect()
    }

    pub(crate) fn role(&self, name: &str) -> &Trained {
        self.trainer.method().role(name).unwrap()
    }
}

/// A state as comparable bits.
pub(crate) fn fingerprint(state: &StateDict) -> Vec<(String, Vec<u32>)> {
    let value = |value: &Value| match value {
        Value::Tensor(tensor) => bits(&tensor.values),
        Value::Number(number) => vec![*number as u32, (*number >> 32) as u32],
    };
    state.iter().map(|(name, own)| (name.to_owned(), value(own))).collect()
}

#[track_caller]
pub(crate) fn error_of<T>(result: Result<T, Error>) -> String {
    match result {
        Ok(_) => panic!("this should be refused"),
        Err(error) => error.to_string(),
    }
}
