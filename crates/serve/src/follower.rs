//! A process that makes runs together with the one that serves: it has the models and LoRAs, and neither the port nor
//! the jobs.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Component, Path, PathBuf};

use data::aside::{AsideFolder, Existing};
use engine::{Error, Pipeline, Plan, Request, Result};

use crate::ask::Ask;
use crate::error::Refusal;
use crate::model::{Loras, Model, Models};
use crate::order::{Order, Told};
use crate::pipelines::Pipelines;

/// What a process makes runs with.
pub struct Follower {
    models: Models,
    loras: Loras,
    pipelines: Pipelines,
    /// Beside this, what is given to a run is kept for as long as it is made.
    given: PathBuf,
}

impl Follower {
    /// One that has these models and a folder of LoRAs, and may write beside `given`.
    pub fn new(models: Vec<Model>, loras: Option<PathBuf>, given: &Path) -> Follower {
        let models = Models(models);
        let pipelines = Pipelines::of(&models);
        Follower { loras: Loras::of(loras), pipelines, models, given: given.to_owned() }
    }

    /// Does `work` with what an order asks for. What is wrong is told without the paths of this machine.
    ///
    /// # Errors
    /// The order cannot be followed here, or the work fails.
    pub fn follow(
        &mut self,
        order: &Order,
        work: impl FnOnce(&mut Pipeline, &Request, &Plan) -> Result<()>,
    ) -> Result<()> {
        let mut place = None;
        let done = catch_unwind(AssertUnwindSafe(|| self.try_follow(order, &mut place, work)));
        let done = done.unwrap_or_else(|_| {
            // What it has left half-changed is not used again.
            self.pipelines = Pipelines::of(&self.models);
            let reason = "the model failed in a way that is our fault; the log says where";
            Err(Error::Unknown(reason.to_owned()))
        });
        done.map_err(|error| match error {
            Error::Interrupted | Error::Ranks(_) => error,
            other => self.hidden(other, place.as_ref().map(AsideFolder::path)),
        })
    }

    fn try_follow(
        &mut self,
        order: &Order,
        place: &mut Option<AsideFolder>,
        work: impl FnOnce(&mut Pipeline, &Request, &Plan) -> Result<()>,
    ) -> Result<()> {
        let told: Told = serde_json::from_str(&order.text).map_err(|error| damaged(&error))?;
        let Some(first) = told.asks.first() else {
            return Err(damaged(&"it asks for nothing"));
        };
        let unfit = |refusal: Refusal| Error::Unknown(refusal.message().to_owned());
        let own = self.loras.fingerprints(&first.loras).map_err(unfit)?;
        if own.len() != told.loras.len() {
            return Err(damaged(&"it does not tell all LoRAs"));
        }
        let mut all = first.loras.iter().zip(own.iter().zip(&told.loras));
        if let Some((lora, _)) = all.find(|(_, (own, told))| own != told) {
            return Err(Error::Unknown(format!(
                "lora: `{}` is another file here than on the process that serves; give all processes the same",
                lora.name
            )));
        }
        let folder = private_folder(&self.given)?;
        let folder = place.insert(folder).path().to_owned();
        let mut files = order.files.iter();
        let mut folders = Vec::new();
        for (at, ask) in told.asks.iter().enumerate() {
            let folder = folder.join(at.to_string());
            fs::create_dir(&folder).map_err(|source| unwritten(&folder, source))?;
            for given in &ask.given {
                let bytes = files.next().ok_or_else(|| damaged(&"a file is missing"))?;
                let path = folder.join(plain(&given.file)?);
                fs::write(&path, bytes).map_err(|source| unwritten(&path, source))?;
            }
            folders.push(folder);
        }
        let asks = told.asks.iter().zip(folders.iter().map(PathBuf::as_path));
        let request = Ask::shared_request(&asks.collect::<Vec<_>>());
        let pipeline = self.pipelines.of_ask(first, &self.loras)?;
        let plan = pipeline.plan(&request)?;
        work(pipeline, &request, &plan)
    }

    /// What is said of a failure, without where things are.
    fn hidden(&self, error: Error, place: Option<&Path>) -> Error {
        let mut refusal = self.loras.hide(Refusal::body(error.to_string()));
        for path in self.models.0.iter().flat_map(Model::places).chain(place) {
            refusal = refusal.without(path);
        }
        Error::Unknown(refusal.message().to_owned())
    }
}

/// A folder of this process alone, which goes when it is dropped; those of processes that were killed are removed.
fn private_folder(beside: &Path) -> Result<AsideFolder> {
    let folder = AsideFolder::create(beside, Existing::Refuse);
    let folder = folder.map_err(|source| unwritten(beside, source))?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let only_ours = fs::Permissions::from_mode(0o700);
        fs::set_permissions(folder.path(), only_ours)
            .map_err(|source| unwritten(folder.path(), source))?;
    }
    Ok(folder)
}

/// The name of a file within a folder, which is no path.
fn plain(name: &str) -> Result<&str> {
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(only)), None) if only == name => Ok(name),
        _ => Err(damaged(&"a file has no name of ours")),
    }
}

fn unwritten(path: &Path, source: std::io::Error) -> Error {
    Error::File { verb: "write", path: path.to_owned(), source }
}

fn damaged(reason: &dyn std::fmt::Display) -> Error {
    Error::Unknown(format!(
        "a process was told of a run in words that it cannot read ({reason}); are all of one version?"
    ))
}
