//! How a run is spread over ranks.

use comm::{Axis, MeshShape};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::schema::Recipe;

/// How a run is spread over ranks. Whatever is chosen, a step has the same samples and learns the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ParallelConfig {
    /// Replicas: each holds the whole of every network and works on an equal part of every batch, and gradients are
    /// added up once a step; all ranks that there are if it is not said.
    #[schemars(range(min = 1))]
    pub data: Option<usize>,
}

impl Recipe {
    /// The ranks of this run on their axes, where the user asks for `ranks` or leaves it to the recipe.
    ///
    /// # Errors
    /// The degrees do not make that number of ranks, or a batch cannot be cut into equal parts.
    pub fn mesh(&self, ranks: Option<usize>) -> Result<MeshShape> {
        let ParallelConfig { data } = self.parallel;
        let replicas = data.or(ranks).unwrap_or(1);
        if let Some(ranks) = ranks.filter(|ranks| *ranks != replicas) {
            return Err(Error::Recipe(format!(
                "parallel.data is {replicas}, but there are {ranks} ranks; set it to {ranks} or leave it out"
            )));
        }
        self.check_batch(replicas)?;
        Ok(MeshShape::default().with(Axis::Data, replicas))
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
    pub fn of_one_replica(&self, replicas: usize) -> Recipe {
        let mut own = self.clone();
        own.data.batch /= replicas.max(1);
        own
    }
}
