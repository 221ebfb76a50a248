//! The page of a run as it goes: written whenever there is something new to see.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;

use journal::Page;
use recipe::{Facts, Recipe};
use train::{Callback, Event, Method};

use crate::failure::Outcome;
use crate::report::{self, Told};
use crate::session::Learnt;

/// What the page of a run is called unless an exam gives it a name.
pub(crate) const TITLE: &str = "A training run";

/// Writes the page of a run. Clones write the same one.
#[derive(Clone)]
pub(crate) struct Reporter(Rc<Inner>);

struct Inner {
    recipe: Recipe,
    name: String,
    folder: PathBuf,
    begun: Instant,
    /// What is known once the run is built, and the step it goes on after.
    built: RefCell<Option<(Facts, u64)>>,
}

impl Reporter {
    /// Of a run by a recipe of this name.
    pub(crate) fn new(recipe: &Recipe, name: &str, folder: PathBuf) -> Reporter {
        let (recipe, name) = (recipe.clone(), name.to_owned());
        let (begun, built) = (Instant::now(), RefCell::new(None));
        Reporter(Rc::new(Inner { recipe, name, folder, begun, built }))
    }

    /// Tells what the run is about. Nothing is written before.
    pub(crate) fn built(&self, facts: Facts, from: u64) {
        *self.0.built.borrow_mut() = Some((facts, from));
    }

    /// Writes the page as it is after a step.
    ///
    /// # Errors
    /// The log or a clip cannot be read, or the page cannot be written.
    pub(crate) fn write(&self, step: u64) -> Outcome {
        let Inner { recipe, name, folder, begun, built } = &*self.0;
        let Some((facts, from)) = built.borrow().clone() else { return Ok(()) };
        let seconds = begun.elapsed().as_secs_f64();
        let learnt = Learnt { facts, seconds, from, step };
        let told = Told { recipe, name, learnt: &learnt, folder };
        report::write(report::with_run(Page::new(TITLE), &told)?, folder)
    }

    /// The same for whoever tells the trainer.
    pub(crate) fn tell(&self, step: u64) -> train::Result<()> {
        self.write(step).map_err(|err| train::Error::Callback {
            name: "report".to_owned(),
            reason: err.to_string(),
        })
    }
}

impl Callback for Reporter {
    fn name(&self) -> &str {
        "report"
    }

    fn on(&mut self, event: &Event<'_>, _: &dyn Method) -> train::Result<()> {
        match event {
            Event::Saved { step, .. } | Event::Finished { step } => self.tell(*step),
            Event::Started { .. }
            | Event::Updated { .. }
            | Event::Stepped { .. }
            | Event::Resting { .. } => Ok(()),
        }
    }
}
