//! What a run does in another way from some step on: `train --change`, kept in the run.

use std::io::ErrorKind;
use std::path::Path;

use recipe::{CHANGEABLE, Recipe};
use serde::{Deserialize, Serialize};
use train::Resumed;
use train::checkpoint::{self, differences};

use crate::failure::{Failure, Outcome};
use crate::voice::Voice;

/// Where a run keeps what was changed.
const FILE: &str = "changes.jsonl";

/// No list of changes is longer.
const LONGEST: u64 = 16 << 20;

/// Keys that the user wants to change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes(Vec<String>);

/// A change as a run keeps it.
#[derive(Serialize, Deserialize)]
struct Change {
    /// The step after which it holds.
    step: u64,
    /// The dotted name of the key.
    key: String,
    was: String,
    is: String,
}

impl Changes {
    /// The keys of arguments like `key.key=value`.
    ///
    /// # Errors
    /// One may not change: what a run remembers would no longer fit.
    pub(crate) fn asked(arguments: &[String]) -> Outcome<Changes> {
        let key = |argument: &String| {
            let key = argument.split('=').next().unwrap_or_default().to_owned();
            let within = |own: &str| key == own || key.starts_with(&format!("{own}."));
            match CHANGEABLE.iter().any(|own| within(own)) && !key.ends_with("optimizer.kind") {
                true => Ok(key),
                false => Err(Failure::Refused(format!(
                    "--change: `{key}` cannot change within a run; what can is below {}; the number of \
                     steps, checkpoints and validation may be --set",
                    CHANGEABLE.join(", ")
                ))),
            }
        };
        Ok(Changes(arguments.iter().map(key).collect::<Outcome<_>>()?))
    }

    /// Whether there are any.
    pub(crate) fn are_asked(&self) -> bool {
        !self.0.is_empty()
    }

    /// The keys in which a run may differ from its checkpoints: those of now, and those that were changed
    /// before, which the newest checkpoint may be older than.
    ///
    /// # Errors
    /// What the run keeps cannot be read.
    pub(crate) fn keys_of(&self, folder: &Path) -> Outcome<Vec<String>> {
        let earlier = read(folder)?.into_iter().map(|change| change.key);
        Ok(self.0.iter().cloned().chain(earlier).collect())
    }

    /// Keeps in the run what is no longer as its checkpoint was made with, and says it. What was changed after the step
    /// that it goes on from has not happened any more: what holds of it now holds from there on.
    ///
    /// # Errors
    /// There is no checkpoint to go on from, or the disk is full.
    pub(crate) fn record(
        &self,
        folder: &Path,
        resumed: Option<&Resumed>,
        recipe: &Recipe,
        voice: Voice,
    ) -> Outcome {
        let Some(resumed) = resumed else {
            return match self.are_asked() {
                false => Ok(()),
                true => Err(Failure::refused(
                    "--change is for a run that goes on, and there is no checkpoint yet; use --set",
                )),
            };
        };
        let (mut all, undone): (Vec<Change>, Vec<Change>) =
            read(folder)?.into_iter().partition(|change| change.step <= resumed.step);
        if !self.are_asked() && undone.is_empty() {
            return Ok(());
        }
        let then = checkpoint::read_manifest(&resumed.path)?.recipe;
        let now = checkpoint::Recipe(recipe.resolved()?);
        let is_below =
            |key: &str, asked: &str| key == asked || key.starts_with(&format!("{asked}."));
        let own = |key: &String| {
            let asked = self.0.iter().any(|asked| is_below(key, asked));
            asked || undone.iter().any(|change| is_below(key, &change.key))
        };
        for key in differences(&then.0, &now.0).into_iter().filter(own) {
            let (was, is) = (then.told(&key), now.told(&key));
            voice.say(&format!("from step {} on {key} is {is}; it was {was}", resumed.step + 1));
            all.retain(|change| change.step < resumed.step || change.key != key);
            all.push(Change { step: resumed.step, key, was, is });
        }
        let line =
            |change: &Change| serde_json::to_string(change).expect("a change is JSON") + "\n";
        let lines: String = all.iter().map(line).collect();
        Ok(crate::output::write(&folder.join(FILE), lines.as_bytes())?)
    }
}

/// What was changed in a run, in the words of its page.
///
/// # Errors
/// It cannot be read.
pub(crate) fn told(folder: &Path) -> Outcome<Vec<String>> {
    let line = |Change { step, key, was, is }: Change| {
        format!("{key} from {was} to {is} after step {step}")
    };
    Ok(read(folder)?.into_iter().map(line).collect())
}

fn read(folder: &Path) -> Outcome<Vec<Change>> {
    let path = folder.join(FILE);
    let text = match kernels::read_text(&path, LONGEST) {
        Err(err) if err.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        text => {
            text.map_err(|err| Failure::Refused(format!("cannot read {}: {err}", path.display())))?
        }
    };
    let line = |line: &str| {
        serde_json::from_str(line)
            .map_err(|err| Failure::Refused(format!("{}: {err}", path.display())))
    };
    text.lines().filter(|line| !line.trim().is_empty()).map(line).collect()
}
