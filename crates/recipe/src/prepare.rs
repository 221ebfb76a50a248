//! What a run begins with: all that can be wrong with a recipe, its networks and its data is found here,
//! before anything is loaded for good. A run and a dry run begin alike.

use burn::tensor::Device;
use comm::MeshShape;
use data::loader::Replica;
use folder::Hub;
use methods::Turns;
use nn::Inputs;
use strategies::Flexible;
use train::{Batch, Draws, Ema, STUDENT, Strategy};

use crate::error::{Error, Result};
use crate::feed::{LoaderFeed, Picked, Source};
use crate::model::Model;
use crate::roles::Kind;
use crate::schema::{Recipe, TrainedConfig};
use crate::students::Learner;
use crate::validation::ValidationSetup;

/// What a run begins with.
pub(crate) struct Prepared<'a> {
    /// The student, or two experts that take turns.
    pub(crate) learners: Vec<Learner>,
    pub(crate) turns: Option<Turns>,
    pub(crate) feed: LoaderFeed,
    /// The networks beside the student, if the method has any.
    pub(crate) others: Option<Models<'a>>,
    pub(crate) validation: Option<ValidationSetup>,
}

/// Networks beside the student, each of the student's kind.
pub(crate) struct Models<'a> {
    pub(crate) teacher: Model,
    pub(crate) critic: Model,
    /// How the critic is trained.
    pub(crate) config: &'a TrainedConfig,
}

impl Recipe {
    /// Opens the networks and the data of one replica, and tries them out.
    ///
    /// # Errors
    /// A network, the data or the strategy refuses, or a number cannot be.
    pub(crate) fn prepare(
        &self,
        device: &Device,
        hub: &Hub,
        (replica, mesh): (Replica, MeshShape),
    ) -> Result<Prepared<'_>> {
        self.run.check()?;
        self.check_batch(replica.world)?;
        for (name, config) in self.callbacks.averages() {
            Ema::new(name, STUDENT, config)?;
        }
        let (learners, turns) = self.learners(device, hub)?;
        // Two experts differ in their weights and their levels alone.
        let Learner { model: student, strategy, .. } = &learners[0];
        let source = self.source(student)?;
        self.shown_once(student)?;
        let trials = try_out(&source, strategy, device)?;
        let others = match trials.first() {
            Some(trial) => self.others(student, trial, strategy, device, hub)?,
            None => None,
        };
        let each =
            others.iter().flat_map(|own| [("teacher", &own.teacher), ("critic", &own.critic)]);
        let roles: Vec<_> = [(STUDENT, student)].into_iter().chain(each).collect();
        for trial in &trials {
            let tokens = inputs_of(student, trial, strategy)?.map(|own| own.tokens.dims()[1]);
            for role in &roles {
                self.check_layout(mesh, *role, tokens)?;
            }
        }
        let record = self.record(student, &strategy.metadata());
        let validation = self.validation_setup(student, record, (&source, mesh), device)?;
        let feed = LoaderFeed::of_replica(source, replica, device.clone())?;
        Ok(Prepared { learners, turns, feed, others, validation })
    }

    /// Refuses conditions of the strategy for a student that is shown pictures in another way: it would be
    /// taught what it is never asked.
    fn shown_once(&self, student: &Model) -> Result<()> {
        let strategy = self.strategy.flexible();
        let own = strategy.video.iter().flat_map(|video| &video.conditions).next();
        match own.filter(|_| student.description.shows_channels()) {
            None => Ok(()),
            Some(_) => Err(Error::Recipe(
                "strategy: the student is shown the first frame of every clip as channels beside the \
                 noise, so first frames, prefixes and masks as clean tokens are none of its conditions; \
                 leave them out"
                    .to_owned(),
            )),
        }
    }

    /// The networks beside the student that the method has, each of the student's kind.
    ///
    /// # Errors
    /// One cannot be opened, or is of another kind.
    fn others(
        &self,
        student: &Model,
        trial: &Batch,
        strategy: &Flexible,
        device: &Device,
        hub: &Hub,
    ) -> Result<Option<Models<'_>>> {
        let (Some(teacher), Some(config)) = (&self.models.teacher, &self.models.critic) else {
            return Ok(None);
        };
        self.learning_rate("critic", config, self.method.horizon("critic", self.run.steps))?;
        let kind = Kind::of(student);
        let inputs = inputs_of(student, trial, strategy)?;
        let teacher = Model::of_role("teacher", (&self.located(&teacher.from), None), device, hub)?;
        let teacher = teacher.meeting_by("teacher", self.models.cross_timestep)?;
        kind.check("teacher", &teacher, &inputs)?;
        let critic = self.model("critic", (config, config.expert), device, hub)?;
        kind.check("critic", &critic, &inputs)?;
        self.begins("critic", &config.learns, &critic)?;
        Ok(Some(Models { teacher, critic, config }))
    }
}

/// What the student is given of a batch.
fn inputs_of(student: &Model, trial: &Batch, strategy: &Flexible) -> Result<Inputs> {
    let draws = Draws::new(0, 0, 0, trial.samples);
    Ok(strategy.prepare(&student.description.process, trial, &draws)?.seen.inputs)
}

/// Refuses data that the strategy cannot use: one sample of each kind is looked at, and returned.
fn try_out(source: &Source, strategy: &dyn Strategy, device: &Device) -> Result<Vec<Batch>> {
    let mut trials = Vec::new();
    for samples in [&source.samples, &source.held_out] {
        let kinds = Source { samples: Picked::kinds(samples), ..source.clone() };
        for batch in LoaderFeed::whole(kinds, device.clone())? {
            let optional = strategy.optional();
            for name in strategy.sources().iter().filter(|own| optional.as_ref() != Some(*own)) {
                batch.field(strategy.name(), name)?;
            }
            strategy.scene(&batch, &Draws::new(0, 0, 0, batch.samples))?;
            trials.push(batch);
        }
    }
    Ok(trials)
}
