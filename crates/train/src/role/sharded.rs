//! A role of whose parameters each rank holds some.

use kernels::sum_squares;
use nn::{Provider, Store};
use parallel::{Gathered, Sharding, merge};

use super::{MODULE, Trained};
use crate::error::Result;
use crate::lora::Dropout;

impl Trained {
    /// Who holds its parameters, if they are spread.
    pub(crate) fn sharding(&self) -> Option<&Sharding> {
        self.shards.as_ref().map(parallel::Shards::sharding)
    }

    /// Whether this rank holds a parameter.
    pub(super) fn holds(&self, name: &str) -> bool {
        self.shards.as_ref().is_none_or(|shards| shards.owns(name))
    }

    /// What other ranks lend for one pass, if parameters are spread.
    pub(super) fn lent(&self) -> Option<Gathered<'_>> {
        self.shards.as_ref().map(|shards| shards.provider(&self.store))
    }

    /// Lets `run` have the layers, adapters beside them.
    pub(super) fn with_layers<T>(
        &self,
        lent: Option<&Gathered<'_>>,
        dropout: Option<Dropout>,
        run: impl FnOnce(&dyn Provider) -> T,
    ) -> T {
        let base = lent.map_or(&self.store as &dyn Provider, |lent| lent);
        match &self.adapters {
            None => run(base),
            Some(adapters) => run(&adapters.beside(base, dropout)),
        }
    }

    /// The parameters of all ranks, of which `own` holds this rank's.
    pub(super) fn whole(&self, own: Store) -> Result<Store> {
        match &self.shards {
            None => Ok(own),
            Some(shards) => Ok(shards.on_all(&own).map_err(nn::Error::from)?),
        }
    }

    /// Adds up what is left of the gradients over all ranks: each then has those of what it holds. False if parameters
    /// are not spread.
    pub(crate) fn add_up(&mut self) -> Result<bool> {
        let Some(shards) = &self.shards else { return Ok(false) };
        let rest = std::mem::take(&mut self.gradients);
        let more = shards.add_up(rest, "all that is left").map_err(nn::Error::from)?;
        self.gradients = std::mem::take(&mut self.sums);
        merge(&mut self.gradients, more);
        Ok(true)
    }

    /// The squares of the gradients of every parameter that learns, in order of name; below 0 where there is none
    /// here.
    pub(crate) fn squares(&self) -> Vec<f64> {
        let square = |name| self.gradients.get(name).map_or(-1.0, |own| sum_squares(own.clone()));
        self.learning.keys().map(square).collect()
    }

    /// The norm of all gradients, where `rows` are the squares that each rank of a copy knows. They are added up by
    /// name, as one rank adds them.
    pub(crate) fn norm_of(&self, rows: &[Vec<f64>]) -> f64 {
        let owner = |name: &str| self.shards.as_ref().and_then(|shards| shards.owner(name));
        let squares = self.learning.keys().enumerate().map(|(at, name)| {
            owner(name).and_then(|owner| rows.get(owner)).map_or(-1.0, |row| row[at])
        });
        squares.filter(|square| square.is_nan() || *square >= 0.0).sum::<f64>().sqrt()
    }

    /// Whether a rank other than this one keeps what a checkpoint calls `key`. None if it is about no parameter of
    /// this role that is spread.
    pub(crate) fn is_of_another(&self, key: &str) -> Option<bool> {
        let shards = self.shards.as_ref()?;
        let role = self.name;
        let below = |prefix: &str| key.strip_prefix(prefix).map(str::to_owned);
        // An average may have its decay in its name, and with it a dot.
        let of_callback = || {
            let (_, name) = key.strip_prefix("callbacks.")?.split_once(&format!(".{role}."))?;
            Some(name.to_owned())
        };
        let name = below(&format!("roles.{role}.{MODULE}."))
            .or_else(|| below(&format!("optimizers.{role}.")))
            .or_else(of_callback)?;
        // An optimizer keeps several things of a parameter, below its name.
        let known = |name: &str| self.learning.contains_key(name);
        let parameter = match name.rsplit_once('.') {
            _ if known(&name) => name.as_str(),
            Some((parameter, _)) if known(parameter) => parameter,
            _ => return None,
        };
        Some(!shards.owns(parameter))
    }
}
