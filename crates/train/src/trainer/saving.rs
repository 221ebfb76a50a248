//! When a run takes snapshots, and how ranks that hold parameters together make one checkpoint of them.

use std::path::{Path, PathBuf};

use super::Trainer;
use crate::checkpoint::{FileSum, PartWriter, Progress};
use crate::error::{ELSEWHERE, Error, Result};
use crate::event::Event;
use crate::state::StateDict;

impl Trainer {
    /// Takes a snapshot if one is due, and commits what the writer has finished. While updates have to be
    /// skipped none is taken: the run may have come to nothing.
    pub(super) fn save_if_due(&mut self) -> Result<()> {
        let step = self.step;
        let own = self.parts.checkpoints.as_ref();
        let due = own.is_some_and(|own| own.is_due(step) || self.is_owed && !own.holds(step));
        self.is_owed = due && self.most_skipped() > 0;
        self.save(due && !self.is_owed, true)?;
        self.commit(false)
    }

    /// Saves the last step, unless it is saved already, and waits for the writer.
    pub(super) fn save_last(&mut self) -> Result<()> {
        let step = self.step;
        let due = self.parts.checkpoints.as_ref().is_some_and(|own| !own.holds(step));
        let is_sound = self.most_skipped() == 0;
        self.save(due && step > 0, is_sound)?;
        self.commit(true)
    }

    /// Finishes the checkpoint that was begun before the run failed, where all ranks know of the failure.
    pub(super) fn save_what_was_begun(&mut self, error: &Error) -> Result<()> {
        match (self.sharding().is_some(), error) {
            // Ranks hold it together, and only this one may have failed: the others would not come.
            (true, Error::Diverged { .. }) | (false, _) => self.commit(true),
            (true, _) => Ok(()),
        }
    }

    /// Begins a checkpoint, if one `is_due` on the first rank.
    fn save(&mut self, is_due: bool, is_sound: bool) -> Result<()> {
        let is_spread = self.sharding().is_some();
        let is_due = match is_spread {
            false => is_due,
            true => self.ranks.any("whether a checkpoint is due", is_due)?,
        };
        if !is_due {
            return Ok(());
        }
        let state = self.sound_state()?;
        if is_spread {
            // One at a time: the one before gets its name first.
            self.commit(true)?;
            self.begin_part(&state)?;
        }
        let (step, facts) = (self.step, self.parts.method.metadata());
        if let Some(checkpoints) = &mut self.parts.checkpoints {
            checkpoints.begin(step, state, facts, is_sound)?;
        }
        self.writing = is_spread.then_some(step);
        Ok(())
    }

    /// Begins to write what this rank, which is not the first, has to write of a checkpoint.
    fn begin_part(&mut self, state: &StateDict) -> Result<()> {
        let folder = self.parts.checkpoints.as_ref().map(|own| own.folder().to_string_lossy());
        let folder = self.ranks.told_by_first("where checkpoints go", folder.as_deref())?;
        let copy = self.sharding().filter(|own| own.is_first_copy()).map(|own| own.copy().clone());
        let (Some(copy), Some(folder), false) = (copy, folder, self.ranks.is_first()) else {
            return Ok(());
        };
        let mut own = state.clone();
        own.retain(|key| self.is_of_another(key) == Some(false));
        let part = self.part.get_or_insert_with(|| PartWriter::new(copy.rank(), copy.size()));
        part.begin(Path::new(&folder), self.step, own)
    }

    /// Gives what is written its name; waits for all of it if that is asked.
    fn commit(&mut self, waits: bool) -> Result<()> {
        let committed = match self.sharding().is_some() {
            true => self.commit_together(waits)?,
            false => match &mut self.parts.checkpoints {
                Some(checkpoints) => checkpoints.commit(waits)?,
                None => Vec::new(),
            },
        };
        committed.into_iter().try_for_each(|(step, path)| self.tell(&Event::Saved { step, path }))
    }

    /// The same where each rank has written a part: all agree whether it is there.
    fn commit_together(&mut self, waits: bool) -> Result<Vec<(u64, PathBuf)>> {
        let Some(step) = self.writing else { return Ok(Vec::new()) };
        let busy = self.ranks.busy("writing a checkpoint").filter(|_| waits);
        let own = self.progress(waits);
        drop(busy);
        let told = own.as_ref().map_or(&Progress::Failed, |progress| progress);
        let all = self.ranks.progress(told)?;
        if let Some(rank) = all.iter().position(|told| *told == Progress::Failed) {
            self.let_go();
            own?;
            return Err(Error::Unwritten { rank, step });
        }
        if all.contains(&Progress::Writing) {
            return Ok(Vec::new());
        }
        let copy = self.sharding().map_or(1, |own| own.copy().size());
        let sums = all.into_iter().take(copy).skip(1).map(|told| match told {
            Progress::Done(sum) => sum,
            Progress::Writing | Progress::Failed => FileSum::default(),
        });
        let committed = match &mut self.parts.checkpoints {
            Some(checkpoints) => checkpoints.commit_parts(sums.collect()),
            None => Ok(Vec::new()),
        };
        let has_failed = self.ranks.any("whether a checkpoint has its name", committed.is_err())?;
        self.let_go();
        match has_failed && committed.is_ok() {
            true => Err(Error::Unwritten { rank: 0, step }),
            false => committed,
        }
    }

    /// How far this rank is with its part.
    fn progress(&mut self, waits: bool) -> Result<Progress> {
        let written = match (&mut self.parts.checkpoints, &mut self.part) {
            (Some(checkpoints), _) => checkpoints.progress(waits)?,
            (None, Some(part)) => part.progress(waits)?,
            (None, None) => Some(FileSum::default()),
        };
        Ok(written.map_or(Progress::Writing, Progress::Done))
    }

    /// Lets go of parts that have found their place, or never will.
    fn let_go(&mut self) {
        self.writing = None;
        self.parts.checkpoints.iter_mut().for_each(|own| own.abandon());
        self.part.iter_mut().for_each(PartWriter::let_go);
    }

    /// A state that is worth keeping; of what ranks hold together this rank's part.
    fn sound_state(&self) -> Result<StateDict> {
        let state = self.state();
        let own = state.not_finite();
        let has_diverged = match self.sharding() {
            None => own.is_some(),
            Some(_) => self.ranks.any("whether a checkpoint is finite", own.is_some())?,
        };
        if !has_diverged {
            return Ok(state);
        }
        let what = own.unwrap_or_else(|| ELSEWHERE[1].to_owned());
        let roles = self.parts.method.trained();
        let (role, rate) = roles.first().map_or(("student", 0.0), |own| (own.name(), own.rate()));
        Err(Error::Diverged { step: self.step, what, role, rate })
    }
}
