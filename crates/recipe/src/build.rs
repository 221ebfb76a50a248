//! From a checked recipe to a run: networks, data, method, callbacks.

use std::path::Path;
use std::sync::Arc;

use burn::tensor::{Device, FloatDType};
use comm::Mesh;
use data::loader::{self, Replica};
use data::world::{Colour, MovingShape, Rendered, World};
use diffusion::{Process, TimestepSampler};
use engine::PromptSetup;
use folder::Hub;
use folder::lora::{self, LoraSource};
use kernels::InstructionSet;
use methods::{DiffusionForcing, Dmd2, Dmd2Roles, Expert, Finetune, FinetuneExperts, Turns};
use nn::{Change, Context, LowRank, MixedPrecision, Network, Parameter, Patch, Recompute, Tracks};
use parallel::Sharding;
use strategies::Flexible;
use train::checkpoint::{self, Checkpoints};
use train::{
    Averaged, Callback, Feed, Frozen, LearningRateSchedule, Learns, LoraConfig, Method, Parts,
    STUDENT, Trained, Trainer, Training,
};

use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::feed::{LoaderFeed, Picked, Source};
use crate::mix::{self, MixConfig, PartConfig, Stored};
use crate::model::{self, Model};
use crate::prepare::{Models, Prepared};
use crate::schema::{
    DataConfig, ExpertConfig, LearnsConfig, MethodConfig, NegativePromptConfig, ProductsConfig,
    Recipe, SamplerConfig, ShapesConfig, SourceConfig, StoreConfig, TrainedConfig,
};
use crate::students::Learner;
use crate::values::within;

/// Keys of a recipe that may change between the parts of one run: how long it goes, what is kept, on how many
/// ranks, and who looks on.
pub const FREE: [&str; 5] =
    ["loop.steps", "checkpoint", "callbacks.validation", "data.prefetch", "parallel"];

/// Keys that may change as well where the user says so: a run goes on with all that it remembers, and does
/// other things with it.
pub const CHANGEABLE: [&str; 10] = [
    "models.student.rate",
    "models.student.optimizer",
    "models.student.recompute",
    "models.critic.rate",
    "models.critic.optimizer",
    "models.critic.recompute",
    "loop.accumulation",
    "loop.clip",
    "data.caption_dropout",
    "levels",
];

/// A run that is ready to begin or to go on.
pub struct Run {
    /// The loop with everything in it.
    pub trainer: Trainer,
    /// The running average of the student, if there is one.
    pub average: Option<Averaged>,
    /// What the run is about.
    pub facts: Facts,
}

/// What a run is about, for those who show it.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The student's family.
    pub family: &'static str,
    /// Parameters of the student.
    pub parameters: u64,
    /// Parameters of the student that learn.
    pub learning: u64,
    /// Samples to learn from.
    pub samples: usize,
    /// Floating-point operations that a token takes forward and back, those of attention aside: six
    /// for each parameter of a matrix that learns, four for one that only hands gradients on.
    pub flops_per_token: f64,
    /// What there is to say of the samples, and of the clips that validation makes: words that are not known, pictures
    /// that are cropped. Each begins with the key that it is about.
    pub notes: Vec<String>,
}

impl Recipe {
    /// Builds everything. Nothing is learnt yet; what can be wrong is found here.
    ///
    /// # Errors
    /// A model, the data, the strategy or the method refuses.
    pub fn build(&self, environment: Environment<'_>) -> Result<Run> {
        let device = environment.device;
        let ranks = environment.ranks;
        let (rank, world) = ranks.replica();
        let mesh = ranks.mesh().clone();
        let place = (Replica { rank, world }, mesh.shape());
        let prepared = self.prepare(&device, environment.hub, place)?;
        let folder = environment.folder.filter(|_| ranks.is_first());
        let Prepared { learners, turns, feed, others, validation } = prepared;
        let family = learners[0].model.description.family.name;
        let process = learners[0].model.description.process.clone();
        let (samples, identity) = (feed.source().samples.count(), feed.source().identity.clone());
        let sharding = Sharding::over(&mesh, self.shard(mesh.world().size())?);
        let spread = Spread { mesh: &mesh, sharding: sharding.as_ref() };

        let mut callbacks: Vec<Box<dyn Callback>> = Vec::new();
        let (mut students, mut looked, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
        for Learner { role, model, strategy, updates } in learners {
            let average = self.averages_of(role, &mut callbacks)?;
            looked.push(self.looked(role, &model, average)?);
            let parameters = model.store.numbers();
            let role = self.trained(role, model, (&self.models.student, updates), spread)?;
            sizes.push([parameters, role.learning()]);
            students.push(Expert { role, strategy: Box::new(strategy) });
        }
        let average = looked[0].average.clone();
        callbacks.extend(environment.callbacks);
        let of = |key: &'static str| move |note: &String| format!("{key}: {note}");
        let mut notes: Vec<String> = feed.source().notes.iter().map(of("data.source")).collect();
        let looked_at = validation.iter().flat_map(|look| &look.notes);
        notes.extend(looked_at.map(of("callbacks.validation")));
        let looks = validation.filter(|_| environment.folder.is_some());
        let looks = looks.map(|look| look.on(mesh.world())).transpose()?;
        match (looks, folder) {
            (Some(look), Some(folder)) => {
                let look =
                    look.validation(looked, folder, (environment.record, environment.watched));
                callbacks.push(Box::new(look));
            }
            (Some(look), None) => {
                callbacks.push(Box::new(look.assistant(looked, environment.watched)))
            }
            (None, _) => {}
        }
        let others = others.map(|models| self.roles(models, spread)).transpose()?;
        let task = Task { students, turns, process };
        let method = self.method(others, task, environment.negative, &device)?;
        // Ranks compare what they were made from, and checkpoints record it.
        let compared = folder.is_some() || ranks.world().size() > 1;
        let origins = compared.then(|| self.origins(identity, environment.hub)).transpose()?;
        let origins = origins.unwrap_or_default();
        let told = self.told(&origins)?;
        let checkpoints = match folder {
            Some(folder) => {
                let recipe = checkpoint::Recipe(self.resolved()?);
                let own = Checkpoints::new(folder.join("checkpoints"), self.checkpoint, recipe)?;
                Some(own.made_from(origins))
            }
            None => None,
        };
        let parts = Parts { method, feed: Box::new(feed), callbacks, checkpoints };
        let trainer = Trainer::new(self.run, parts)?.with_ranks(ranks).made_from(told);
        let [own, learns] = sizes[0];
        let flops_per_token = 4.0 * own as f64 + 2.0 * learns.min(own) as f64;
        let [parameters, learning] = [0, 1].map(|at| sizes.iter().map(|size| size[at]).sum());
        let facts = Facts { family, parameters, learning, samples, flops_per_token, notes };
        Ok(Run { trainer, average, facts })
    }

    /// Encodes the negative prompt with the student's own encoder, if the method looks at one; the
    /// encoder is freed again. A method that needs none loads none.
    ///
    /// # Errors
    /// The folder has no such encoder, or it cannot be used.
    pub fn negative(&self, device: &Device, hub: &Hub) -> Result<Option<Context>> {
        let Some((prompt, from)) = self.negative_prompt_wanted() else { return Ok(None) };
        let setup = PromptSetup {
            encoder_index: prompt.encoder_index,
            device: device.clone(),
            dtype: FloatDType::F32,
        };
        let folder = model::locate(STUDENT, &self.located(from), hub)?;
        let embedding = engine::encode_negative_prompt(&folder, &prompt.text, &setup)?;
        Ok(Some(embedding.context()))
    }

    /// The negative prompt and the model whose encoder embeds it, if the method looks at one.
    pub(crate) fn negative_prompt_wanted(&self) -> Option<(&NegativePromptConfig, &str)> {
        let needed = match &self.method {
            MethodConfig::Dmd2(config) => config.needs_negative_prompt(),
            MethodConfig::Finetune(_) | MethodConfig::DiffusionForcing(_) => false,
        };
        let encoded = match self.data.source {
            SourceConfig::Shapes(_) => false,
            SourceConfig::Store(_) | SourceConfig::Mix(_) => needed,
        };
        let own = self.negative_prompt.as_ref().zip(self.models.student.from.as_deref());
        own.filter(|_| encoded)
    }

    /// The network of a role, new or from a folder; of a folder with two experts the one that is named.
    pub(crate) fn model(
        &self,
        role: &str,
        (config, expert): (&TrainedConfig, Option<ExpertConfig>),
        device: &Device,
        hub: &Hub,
    ) -> Result<Model> {
        let model = match (&config.new, &config.from, &config.weights) {
            (Some(new), _, _) => Model::new(new, self.run.seed, device),
            (None, Some(from), None) => {
                Model::of_role(role, (&self.located(from), expert), device, hub)
            }
            (None, Some(from), Some(file)) => {
                let model = Model::of_role(role, (&self.located(from), expert), device, hub)?;
                let model = model.with_weights(Path::new(&self.located(file)), device);
                model.map_err(|err| Error::Recipe(format!("models.{role}.weights: {err}")))
            }
            (None, None, _) => Err(Error::Recipe(format!("models.{role} comes from nowhere"))),
        };
        model?.meeting_by(role, self.models.cross_timestep)
    }

    fn trained(
        &self,
        role: &'static str,
        model: Model,
        (config, updates): (&TrainedConfig, u64),
        Spread { mesh, sharding }: Spread<'_>,
    ) -> Result<Trained> {
        let learning_rate = self.learning_rate(role, config, updates)?;
        let learns = self.learns(&config.learns);
        let recompute = self.recompute(&model, config.recompute)?;
        let layout = Recipe::schedule(mesh, model.description.family.splits, recompute);
        let (optimizer, sharding) = (config.optimizer.clone(), sharding.cloned());
        let training = Training { learns, optimizer, learning_rate, layout, sharding };
        let begun = self.begins(role, &config.learns, &model)?;
        let network = network(role, Arc::clone(model.network()), config.products)?;
        let mut trained = Trained::new(role, network, model.store, training)?;
        for (name, parameter) in begun {
            trained.begin_with(&name, parameter)?;
        }
        Ok(trained)
    }

    /// What a role learns.
    pub(crate) fn learns(&self, config: &LearnsConfig) -> Learns {
        match config {
            LearnsConfig::All => Learns::All,
            LearnsConfig::Only { patterns } => Learns::Only(patterns.clone()),
            LearnsConfig::Lora(config) => {
                Learns::Adapters { config: config.clone(), seed: self.run.seed }
            }
        }
    }

    /// The learning rate of a role that has so many updates.
    ///
    /// # Errors
    /// A number that cannot be; the error names its key.
    pub(crate) fn learning_rate(
        &self,
        role: &str,
        TrainedConfig { rate, .. }: &TrainedConfig,
        updates: u64,
    ) -> Result<LearningRateSchedule> {
        LearningRateSchedule::new(rate.peak, rate.warmup, rate.decay.clone(), updates)
            .map_err(|err| Error::Recipe(format!("models.{role}.{err}")))
    }

    /// The networks beside the student as what they are in the method.
    fn roles(
        &self,
        Models { teacher, critic, config }: Models<'_>,
        spread: Spread<'_>,
    ) -> Result<Others> {
        let splits = teacher.description.family.splits;
        let layout = Recipe::schedule(spread.mesh, splits, Recompute::default());
        let teacher = Frozen::new(Arc::clone(teacher.network()), teacher.store, layout)?;
        let teacher = match spread.sharding {
            Some(sharding) => teacher.sharded("teacher", sharding),
            None => teacher,
        };
        let updates = self.method.horizon("critic", self.run.steps);
        Ok(Others { teacher, critic: self.trained("critic", critic, (config, updates), spread)? })
    }

    fn method(
        &self,
        others: Option<Others>,
        task: Task,
        negative: Option<Context>,
        device: &Device,
    ) -> Result<Box<dyn Method>> {
        let Task { students, turns, process } = task;
        if let (MethodConfig::Finetune(config), Some(turns)) = (&self.method, turns) {
            let both = students.try_into().map_err(|_| one_student())?;
            return Ok(Box::new(FinetuneExperts::new(both, turns, process, *config)?));
        }
        let [Expert { role: student, strategy }] =
            students.try_into().map_err(|_| one_student())?;
        Ok(match &self.method {
            MethodConfig::Finetune(config) => {
                Box::new(Finetune::new(student, strategy, process, *config)?)
            }
            MethodConfig::DiffusionForcing(config) => {
                Box::new(DiffusionForcing::new(student, strategy, process, *config)?)
            }
            MethodConfig::Dmd2(config) => {
                if config.warp && matches!(process, Process::Vp { .. }) {
                    return Err(Error::Recipe(
                        "`method.warp` would do nothing: the student's process has timesteps of its \
                         own, which no shift moves; remove it"
                            .to_owned(),
                    ));
                }
                let missing = "dmd2 lacks models.teacher or models.critic";
                let Others { teacher, critic } =
                    others.ok_or_else(|| Error::Recipe(missing.to_owned()))?;
                let roles = Dmd2Roles { student, teacher, critic };
                let negative = match &self.data.source {
                    SourceConfig::Shapes(shapes) => Some(shapes.no_caption(device)?),
                    SourceConfig::Store(_) | SourceConfig::Mix(_) => negative,
                };
                Box::new(Dmd2::new(roles, strategy, process, config.clone(), negative)?)
            }
        })
    }

    /// What the student learns; an expert learns at its own levels.
    pub(crate) fn strategy(&self, student: &Model) -> Result<Flexible> {
        let video = self.levels.video.sampler()?;
        let audio = self.levels.audio.map_or(Ok(video), |audio| audio.sampler())?;
        let of_sound = if self.levels.audio.is_some() { "levels.audio" } else { "levels.video" };
        let samplers = Tracks {
            video: Some(within("levels.video", video, student.levels())?),
            audio: Some(within(of_sound, audio, student.levels())?),
        };
        let strategy = Flexible::new(&self.strategy, student.description.geometry, samplers)?;
        Ok(if self.levels.stratified { strategy.stratified() } else { strategy })
    }

    /// The batches that a student learns from, as its strategy is given them.
    ///
    /// # Errors
    /// There are no samples, they are of other encoders, or cannot be batched.
    pub fn feed(&self, student: &Model, device: Device) -> Result<Box<dyn Feed>> {
        Ok(Box::new(LoaderFeed::new(self.source(student)?, device)?))
    }

    /// The samples, and what stands for a dropped caption.
    pub(crate) fn source(&self, student: &Model) -> Result<Source> {
        let DataConfig { batch, caption_dropout, partial, prefetch, .. } = self.data;
        let seed = self.run.seed;
        let options = loader::LoaderOptions { batch, seed, partial, caption_dropout, prefetch };
        let stored = match &self.data.source {
            SourceConfig::Shapes(config) => {
                let rendered = config.rendered()?;
                let null = rendered.null();
                Stored {
                    samples: Arc::new(rendered),
                    null,
                    identity: config.identity()?,
                    parts: vec![],
                    notes: vec![],
                }
            }
            SourceConfig::Store(StoreConfig { path }) => {
                let path = self.located(path);
                let part = PartConfig { path, repeats: None, weight: None };
                self.stored(&[part], student)?
            }
            SourceConfig::Mix(MixConfig { of }) => {
                let placed = |part: &PartConfig| PartConfig {
                    path: self.located(&part.path),
                    ..part.clone()
                };
                self.stored(&of.iter().map(placed).collect::<Vec<_>>(), student)?
            }
        };
        let Stored { samples, null, identity, parts, notes } = stored;
        let (text, patch) = (student.text, student.description.geometry.patch);
        let learnt = samples.count().saturating_sub(self.data.held_out);
        if learnt == 0 && samples.count() > 0 {
            return Err(Error::Recipe(format!(
                "data.held_out is {}, but there are {} samples; leave some to learn from",
                self.data.held_out,
                samples.count()
            )));
        }
        let all = samples.count();
        let held_out = Picked::of(&samples, learnt..all);
        let samples = Picked::of(&samples, mix::places(&parts, learnt));
        let shown = student.shown();
        Ok(Source { samples, held_out, identity, null, options, text, patch, shown, notes })
    }
}

/// A role's network, whose products are made as is asked for.
///
/// # Errors
/// This machine cannot.
fn network(
    role: &str,
    network: Arc<dyn Network>,
    products: ProductsConfig,
) -> Result<Arc<dyn Network>> {
    match products {
        ProductsConfig::F32 => Ok(network),
        ProductsConfig::Bf16 if InstructionSet::in_use().multiplies_bf16() => {
            Ok(Arc::new(MixedPrecision(network)))
        }
        ProductsConfig::Bf16 => Err(Error::Recipe(format!(
            "models.{role}.products: bf16 needs {}, and {} is in use here; remove it, or train on another machine",
            InstructionSet::Avx512Bf16,
            InstructionSet::in_use(),
        ))),
    }
}

impl Recipe {
    /// What the adapters of a role begin as, if not as nothing.
    ///
    /// # Errors
    /// The file that they are to begin as cannot be read, or is not of these layers.
    pub(crate) fn begins(
        &self,
        role: &str,
        learns: &LearnsConfig,
        model: &Model,
    ) -> Result<Vec<(String, Parameter)>> {
        let LearnsConfig::Lora(lora) = learns else { return Ok(Vec::new()) };
        let Some(path) = &lora.from else { return Ok(Vec::new()) };
        begun(&self.located(path), lora, model)
            .map_err(|err| Error::Recipe(format!("models.{role}.learns.from: {err}")))
    }
}

/// The adapters of a LoRA file as parameters that learn, as strong as they were.
fn begun(path: &str, config: &LoraConfig, model: &Model) -> Result<Vec<(String, Parameter)>> {
    let own =
        ["high", "low"].get(model.expert).filter(|_| model.description.transformers.len() > 1);
    let said = folder::metadata(&lora::file(Path::new(path))?)?;
    if let (Some(own), Some(said)) = (own, said.get("expert"))
        && said != own
    {
        return Err(Error::Recipe(format!(
            "{path} learnt as the {said} expert, and this is the {own} one"
        )));
    }
    let source = LoraSource { path: path.into(), scale: 1.0 };
    let names = model.description.family.lora_names();
    let device =
        model.store.iter().next().map_or_else(Device::flex, |(_, own)| own.values.device());
    let mut all = Vec::new();
    for Patch { parameter, change } in lora::patches(&source, &model.store, names, &device)? {
        let Change::LowRank(LowRank { down, up, scale }) = change else {
            return Err(Error::Recipe(format!(
                "it changes `{parameter}` as a whole, which adapters cannot begin as"
            )));
        };
        let (layer, [rank, _]) = (parameter.trim_end_matches(".weight"), down.dims());
        if rank != config.rank {
            return Err(Error::Recipe(format!(
                "it has rank {rank}, but `learns.rank` is {}; set it to {rank}",
                config.rank
            )));
        }
        let up = up.cast(FloatDType::F32) * (f64::from(scale) / config.strength());
        for (part, matrix) in [("A", down), ("B", up)] {
            let shape = matrix.dims().to_vec();
            let values = matrix.reshape([shape.iter().product::<usize>()]);
            all.push((format!("{layer}.lora_{part}.weight"), Parameter { values, shape }));
        }
    }
    Ok(all)
}

/// How roles are spread over ranks.
#[derive(Clone, Copy)]
struct Spread<'a> {
    mesh: &'a Mesh,
    /// Who holds their parameters; each rank all of them if nobody is said.
    sharding: Option<&'a Sharding>,
}

/// What is learnt, by whom, and the process of the networks that learn it.
struct Task {
    students: Vec<Expert>,
    /// Whose turn it is, where there are two.
    turns: Option<Turns>,
    process: Process,
}

fn one_student() -> Error {
    Error::Recipe("two experts take turns, and nobody else does".to_owned())
}

/// The networks beside the student.
struct Others {
    teacher: Frozen,
    critic: Trained,
}

impl MethodConfig {
    /// The timesteps that a student of few steps is sampled at, where it is looked at and exported.
    pub(crate) fn student_timesteps(&self, process: &Process) -> Option<Vec<f64>> {
        match self {
            MethodConfig::Finetune(_) | MethodConfig::DiffusionForcing(_) => None,
            MethodConfig::Dmd2(config) => Some(config.student_timesteps(process)),
        }
    }

    /// How often a role is updated in so many steps: the horizon of its schedule.
    pub(crate) fn horizon(&self, role: &str, steps: u64) -> u64 {
        match self {
            MethodConfig::Finetune(_) | MethodConfig::DiffusionForcing(_) => steps,
            MethodConfig::Dmd2(config) => config.horizon(role, steps),
        }
    }
}

impl SamplerConfig {
    pub(crate) fn sampler(self) -> Result<TimestepSampler> {
        let (sampler, shift) = match self {
            SamplerConfig::Uniform { lowest, highest, shift } => {
                (TimestepSampler::uniform(lowest, highest)?, shift)
            }
            SamplerConfig::LogitNormal { mean, deviation, shift } => {
                (TimestepSampler::logit_normal(mean, deviation)?, shift)
            }
            SamplerConfig::ShiftedLogitNormal { deviation, floor, uniform } => {
                (TimestepSampler::shifted_logit_normal(deviation, floor, uniform)?, 1.0)
            }
            SamplerConfig::Mode { scale, shift } => (TimestepSampler::mode(scale)?, shift),
        };
        Ok(sampler.with_shift(shift)?)
    }
}

impl ShapesConfig {
    /// The scenes that occur.
    ///
    /// # Errors
    /// A caption or colour that the world does not have, or nothing is left.
    pub fn scenes(&self) -> Result<Vec<MovingShape>> {
        let colour = |word: &String| {
            let known = Colour::KNOWN.into_iter().find(|colour| colour.word() == word);
            known.ok_or_else(|| {
                let all = Colour::KNOWN.map(Colour::word).join(", ");
                Error::Recipe(format!("data.source.colours has `{word}`, which is none of {all}"))
            })
        };
        let colours: Vec<Colour> = match self.colours.is_empty() {
            true => Colour::ALL.to_vec(),
            false => self.colours.iter().map(colour).collect::<Result<_>>()?,
        };
        let all = MovingShape::of(&colours);
        for caption in &self.withheld {
            if !all.iter().any(|scene| scene.to_string() == *caption) {
                return Err(Error::Recipe(format!(
                    "data.source.withheld has `{caption}`, which is no caption of this world; one is \
                     `{}`",
                    all[0]
                )));
            }
        }
        let seen = |scene: &MovingShape| !self.withheld.contains(&scene.to_string());
        Ok(all.into_iter().filter(seen).collect())
    }

    /// What stands for no caption at all, `[1, L, D]`.
    fn no_caption(&self, device: &Device) -> Result<Context> {
        Ok(Context::text(self.rendered()?.words.null(device).unsqueeze(), None))
    }

    /// The world itself.
    ///
    /// # Errors
    /// A world that cannot be.
    pub fn world(&self) -> Result<World> {
        Ok(World::new(self.world, self.seed)?.with_scenes(self.scenes()?)?)
    }

    /// The world's clips as samples.
    ///
    /// # Errors
    /// A world that cannot be.
    pub fn rendered(&self) -> Result<Rendered> {
        let rendered = Rendered::new(self.world()?, self.clips)?;
        Ok(if self.recoloured { rendered.recoloured() } else { rendered })
    }
}
