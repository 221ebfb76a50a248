//! How a run is spread over ranks.

use std::sync::Arc;

use comm::{Axis, Mesh, MeshShape};
use nn::{OneDevice, Recompute, Schedule, Tracks};
use parallel::{Layout, Plan, Refusal, Sharded, Splits, Workload};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use train::STUDENT;

use crate::error::{Error, Result};
use crate::model::Model;
use crate::schema::{LearnsConfig, ModelsConfig, Recipe, TrainedConfig};

/// How a run is spread over ranks. Whatever is chosen, a step has the same samples and learns the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ParallelConfig {
    /// Replicas: each works on an equal part of every batch, and gradients are added up once a step; all ranks that
    /// there are, as far as tokens are not shared, if it is not said.
    #[schemars(range(min = 1))]
    pub data: Option<usize>,
    /// Ranks of a replica that trade tokens for heads around attention; 1 if it is not said.
    #[schemars(range(min = 1))]
    pub ulysses: Option<usize>,
    /// Ranks of a replica that pass keys and values around; 1 if it is not said.
    #[schemars(range(min = 1))]
    pub ring: Option<usize>,
    /// Ranks of a replica that share the matrices of every network, each with some of the heads and channels; 1 if it
    /// is not said.
    #[schemars(range(min = 1))]
    pub tensor: Option<usize>,
    /// Ranks that hold the parameters of every network together, with gradients, optimizer and average: all of them if
    /// it is not said, 1 for whole networks on every rank. It must divide the number of ranks, and changes no bit.
    #[schemars(range(min = 1))]
    pub shard: Option<usize>,
}

impl ParallelConfig {
    /// Ranks that work on the same samples.
    fn of_a_replica(&self) -> usize {
        let degrees = [self.ulysses, self.ring, self.tensor];
        degrees.into_iter().fold(1, |all, degree| all.saturating_mul(degree.unwrap_or(1).max(1)))
    }

    /// What is asked for, in words.
    fn told(&self) -> String {
        let all = [
            ("data", self.data),
            ("ulysses", self.ulysses),
            ("ring", self.ring),
            ("tensor", self.tensor),
        ];
        let told = all.iter().filter_map(|(key, degree)| Some((key, (*degree)?)));
        told.map(|(key, degree)| format!("parallel.{key} is {degree}"))
            .collect::<Vec<_>>()
            .join(", ")
    }
}

impl Recipe {
    /// The ranks of this run on their axes, where the user asks for `ranks` or leaves it to the recipe.
    ///
    /// # Errors
    /// The degrees do not make that number of ranks, or a batch cannot be cut into equal parts.
    pub fn mesh(&self, ranks: Option<usize>) -> Result<MeshShape> {
        let config = self.parallel;
        let replica = config.of_a_replica();
        let replicas = config.data.unwrap_or(ranks.map_or(1, |ranks| ranks / replica).max(1));
        let all = replicas.saturating_mul(replica);
        if let Some(ranks) = ranks.filter(|ranks| *ranks != all) {
            let told = config.told();
            return Err(Error::Recipe(match replica {
                1 => format!(
                    "{told}, but there are {ranks} ranks; set it to {ranks} or leave it out"
                ),
                _ => format!("{told}, but there are {ranks} ranks; that takes a multiple of {all}"),
            }));
        }
        self.check_batch(replicas)?;
        self.check_dropout(replica)?;
        self.shard(all)?;
        let [ulysses, ring, tensor] =
            [config.ulysses, config.ring, config.tensor].map(|degree| degree.unwrap_or(1));
        Ok(MeshShape::default()
            .with(Axis::Tensor, tensor)
            .with(Axis::Ulysses, ulysses)
            .with(Axis::Ring, ring)
            .with(Axis::Data, replicas))
    }

    /// How many of so many ranks hold the parameters together.
    ///
    /// # Errors
    /// They are no whole number of copies.
    pub fn shard(&self, ranks: usize) -> Result<usize> {
        let shard = self.parallel.shard.unwrap_or(ranks);
        if shard > 0 && ranks.is_multiple_of(shard) {
            return Ok(shard);
        }
        let all: Vec<String> = (1..=ranks)
            .filter(|own| ranks.is_multiple_of(*own))
            .map(|own| own.to_string())
            .collect();
        Err(Error::Recipe(format!(
            "parallel.shard is {shard}, which does not divide the {ranks} ranks; choose one of {}",
            all.join(", ")
        )))
    }

    /// Refuses dropout of adapters where tokens or channels are shared: what is hidden belongs to a place in the whole
    /// sample, and a layer sees neither the place nor the sample.
    fn check_dropout(&self, replica: usize) -> Result<()> {
        let ModelsConfig { student, critic, .. } = &self.models;
        let drops = |config: &TrainedConfig| match &config.learns {
            LearnsConfig::Lora(lora) => lora.dropout > 0.0,
            LearnsConfig::All | LearnsConfig::Only { .. } => false,
        };
        let roles = [(STUDENT, Some(student)), ("critic", critic.as_ref())];
        match roles.into_iter().find(|(_, config)| config.is_some_and(drops)) {
            Some((role, _)) if replica > 1 => Err(Error::Recipe(format!(
                "models.{role}.learns.dropout is above 0, but {replica} ranks share the tokens or the channels of a \
                 sample, and an adapter cannot tell which it sees; set it to 0, or leave parallel.ulysses, \
                 parallel.ring and parallel.tensor out"
            ))),
            _ => Ok(()),
        }
    }

    /// Refuses ranks that have no head of a network or no token of some sample.
    ///
    /// # Errors
    /// It names the degree and the nearest that would do.
    pub(crate) fn check_layout(
        &self,
        mesh: MeshShape,
        (role, model): (&str, &Model),
        tokens: Tracks<usize>,
    ) -> Result<()> {
        let mesh = mesh.with(Axis::Data, 1);
        let network = model.network();
        let workload = Workload {
            depth: network.depth(),
            heads: network.heads(),
            tokens,
            own_tokens: tokens,
            latent_rows: None,
            tiled: false,
            caches_steps: false,
            whole_rows: false,
            needs_whole: None,
            branches: 1,
            samples: 1,
        };
        let layout = Layout::new(mesh.size().unwrap_or(usize::MAX), mesh);
        let plan = Plan::new(&layout, &workload);
        plan.map(drop).map_err(|Refusal { axis, reason }| {
            let whose = if role == STUDENT { String::new() } else { format!("the {role}: ") };
            Error::Recipe(format!("parallel.{axis}: {whose}{reason}"))
        })
    }

    /// How a rank runs a network: alone, or its part of every sequence and matrix.
    pub(crate) fn schedule(mesh: &Mesh, splits: Splits, recompute: Recompute) -> Arc<dyn Schedule> {
        match mesh.sequence().size() * mesh.axis(Axis::Tensor).size() {
            1 => Arc::new(OneDevice { recompute }),
            _ => Arc::new(Sharded::learning(mesh, splits, recompute)),
        }
    }

    /// # Errors
    /// A batch cannot be cut into so many equal parts.
    pub(crate) fn check_batch(&self, replicas: usize) -> Result<()> {
        let batch = self.data.batch;
        if replicas > 0 && batch.is_multiple_of(replicas) {
            return Ok(());
        }
        let above = batch.next_multiple_of(replicas.max(1));
        let near = match above.saturating_sub(replicas) {
            0 => above.to_string(),
            below => format!("{below} or {above}"),
        };
        let divides = |count: &usize| batch.is_multiple_of(*count);
        let fewer = (1..replicas).rev().find(divides).unwrap_or(1);
        let more = (replicas + 1..=batch).find(divides);
        let degrees = match more {
            Some(more) => format!("{fewer} or {more}"),
            None => fewer.to_string(),
        };
        Err(Error::Recipe(format!(
            "data.batch is {batch}, of which {replicas} replicas cannot take equal parts; the nearest that can be cut \
             is {near}, or choose {degrees} replicas (--ranks, parallel.data)"
        )))
    }

    /// What one of so many replicas works on: the same recipe with its part of every batch.
    pub(crate) fn of_one_replica(&self, replicas: usize) -> Recipe {
        let mut own = self.clone();
        own.data.batch /= replicas.max(1);
        own
    }
}
