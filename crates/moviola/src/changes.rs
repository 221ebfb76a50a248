//! What a run does in another way from some step on: `train --change`, kept in the run.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use data::aside;
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
            match CHANGEABLE.iter().any(|own| within(own)) && !key.ends_with(KIND) {
                true => Ok(key),
                false => Err(refused(&key)),
            }
        };
        Ok(Changes(arguments.iter().map(key).collect::<Outcome<_>>()?))
    }

    /// Refuses another kind of optimizer than that of the checkpoint, or the run, that is gone on from, however it was
    /// said.
    ///
    /// # Errors
    /// There is one.
    pub(crate) fn check(&self, from: &Path, recipe: &Recipe) -> Outcome {
        if !self.are_asked() {
            return Ok(());
        }
        let all = checkpoint::list(&from.join("checkpoints")).unwrap_or_default();
        let newest = all.last().map_or(from, |(_, path)| path.as_path());
        // Who goes on from one that cannot be read tells of it.
        let Ok(manifest) = checkpoint::read_manifest(newest) else { return Ok(()) };
        let then = manifest.recipe;
        let now = recipe.resolved()?;
        let differing = differences(&then.0, &now);
        let kind = differing.into_iter().find(|key| key.ends_with(KIND) && self.are_of(key));
        kind.map_or(Ok(()), |key| Err(refused(&key)))
    }

    /// Whether a key was asked for, by its own name or as a part of another.
    fn are_of(&self, key: &str) -> bool {
        self.0.iter().any(|asked| key == asked || key.starts_with(&format!("{asked}.")))
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
        let own = |key: &String| {
            let is_of = |change: &Change| {
                *key == change.key || key.starts_with(&format!("{}.", change.key))
            };
            self.are_of(key) || undone.iter().any(is_of)
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
        let path = path_of(folder);
        let written = aside::write_whole(&path, lines.as_bytes());
        written.map_err(|err| Failure::Refused(format!("cannot write {}: {err}", path.display())))
    }
}

/// What never changes: an optimizer remembers what another kind does not.
const KIND: &str = "optimizer.kind";

/// The refusal of a key that cannot change.
fn refused(key: &str) -> Failure {
    // What other trainers call it.
    let is_rate = key.split('.').any(|part| matches!(part, "rate" | "lr" | "learning_rate"));
    let meant = if is_rate { "; how fast is learnt is `models.student.rate.peak`" } else { "" };
    Failure::Refused(format!(
        "--change: `{key}` cannot change within a run{meant}; what can is below {}; the number of steps, checkpoints and \
         validation may be --set",
        CHANGEABLE.join(", ")
    ))
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
    let text = lines_of(folder)?;
    let line = |(at, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|err| {
            Failure::Refused(format!(
                "{}: line {} is no change as `train --change` writes it ({err}); remove the line, or put the file back",
                path_of(folder).display(),
                at + 1
            ))
        })
    };
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(line).collect()
}

fn path_of(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

/// The lines that a run keeps, all of them whole. Earlier versions wrote one after the other, and one that was killed
/// left half a line: what it was to say did not come to be.
fn lines_of(folder: &Path) -> Outcome<String> {
    let path = path_of(folder);
    let mut text = match kernels::read_text(&path, LONGEST) {
        Err(err) if err.kind() == ErrorKind::NotFound => return Ok(String::new()),
        text => {
            text.map_err(|err| Failure::Refused(format!("cannot read {}: {err}", path.display())))?
        }
    };
    let begun = text.rfind('\n').map_or(0, |end| end + 1);
    if begun < text.len() {
        match serde_json::from_str::<Change>(&text[begun..]) {
            Ok(_) => text.push('\n'),
            Err(_) => text.truncate(begun),
        }
    }
    Ok(text)
}
