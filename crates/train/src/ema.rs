//! A running average of a role's parameters, kept by a callback.

use kernels::blend;
use nn::Parameter;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::event::{Callback, Event};
use crate::method::Method;
use crate::role::{Averaged, Shadow, Trained};
use crate::state::StateDict;

/// How the average moves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EmaConfig {
    /// How much of the average stays at each update.
    #[schemars(extend("minimum" = 0, "exclusiveMaximum" = 1))]
    pub decay: f64,
    /// Whether the decay starts low and rises: `(1 + n) / (10 + n)` after `n` updates.
    pub warm_up: bool,
    /// The average follows the role exactly until it has had this many updates.
    pub start: u64,
}

impl Default for EmaConfig {
    fn default() -> EmaConfig {
        EmaConfig { decay: 0.999, warm_up: true, start: 0 }
    }
}

/// Averages a role after each of its updates.
pub struct Ema {
    name: String,
    role: String,
    config: EmaConfig,
    average: Averaged,
}

impl Ema {
    /// An average of `role`, and a handle for whoever validates or exports it.
    ///
    /// # Errors
    /// A decay outside 0 to 1.
    pub fn new(
        name: impl Into<String>,
        role: impl Into<String>,
        config: EmaConfig,
    ) -> Result<(Ema, Averaged)> {
        if !(0.0..1.0).contains(&config.decay) {
            let want = "it lies between 0 and 1, 1 not included";
            return Err(Error::setting("ema.decay", config.decay, want));
        }
        let average = Averaged::default();
        let handle = average.clone();
        Ok((Ema { name: name.into(), role: role.into(), config, average }, handle))
    }

    /// The decay of the update after `done` updates of the average.
    fn decay(&self, done: u64) -> f64 {
        match self.config.warm_up {
            true => self.config.decay.min((1 + done) as f64 / (10 + done) as f64),
            false => self.config.decay,
        }
    }

    fn follow(&self, shadow: &mut Shadow, role: &Trained) {
        let exact = role.updates() <= self.config.start;
        let decay = self.decay(shadow.updates);
        for (name, live) in role.learnt() {
            let earlier = shadow.parameters.remove(name).filter(|_| !exact);
            let values = match earlier {
                Some(earlier) => blend(earlier.values, decay, &live.values, 1.0 - decay),
                None => live.values.clone(),
            };
            let parameter = Parameter { values, shape: live.shape.clone() };
            shadow.parameters.insert(name.to_owned(), parameter);
        }
        if !exact {
            shadow.updates += 1;
        }
    }
}

/// The average holds what the role learns, no more and no less.
fn agree(shadow: &Shadow, role: &Trained) -> Result<()> {
    let fault = |fault, key: &str| Error::State { fault, key: key.to_owned(), near: None };
    for (name, live) in role.learnt() {
        match shadow.parameters.get(name) {
            None => return Err(fault("lacks the average of", name)),
            Some(own) if own.shape != live.shape => {
                return Err(fault("holds in another shape the average of", name));
            }
            Some(_) => {}
        }
    }
    let unknown = shadow.parameters.keys().find(|name| !role.learnt().any(|(own, _)| own == *name));
    unknown.map_or(Ok(()), |name| Err(fault("holds an average of the unknown", name)))
}

impl Callback for Ema {
    fn name(&self) -> &str {
        &self.name
    }

    fn on(&mut self, event: &Event<'_>, method: &dyn Method) -> Result<()> {
        match event {
            Event::Started { .. } => self.average.with(|shadow| {
                let role = method.role(&self.role)?;
                if shadow.parameters.is_empty() {
                    let own = role.learnt().map(|(name, value)| (name.to_owned(), value.clone()));
                    shadow.parameters = own.collect();
                }
                agree(shadow, role)
            }),
            Event::Updated { role, .. } if *role == self.role => {
                let role = method.role(&self.role)?;
                self.average.with(|shadow| self.follow(shadow, role));
                Ok(())
            }
            Event::Updated { .. }
            | Event::Stepped { .. }
            | Event::Saved { .. }
            | Event::Resting { .. }
            | Event::Finished { .. } => Ok(()),
        }
    }

    fn state(&self) -> StateDict {
        let mut state = StateDict::new();
        self.average.with(|shadow| {
            state.number("updates", shadow.updates);
            for (name, parameter) in &shadow.parameters {
                state.tensor(format!("{}.{name}", self.role), parameter.clone());
            }
        });
        state
    }

    fn restore(&mut self, mut state: StateDict) -> Result<()> {
        let updates = state.take_number("updates")?;
        let mut own = state.take(&self.role);
        state.finish()?;
        let parameters = own.drain_tensors();
        own.finish()?;
        self.average.with(|shadow| *shadow = Shadow { parameters, updates });
        Ok(())
    }
}
