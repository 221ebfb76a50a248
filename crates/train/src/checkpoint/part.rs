//! A part of a checkpoint, which one of several ranks writes by itself.
//!
//! Nothing is exchanged while parts are written: each rank has a thread of its own, and a file of its own beside the
//! place of the checkpoint. Between two steps the ranks tell each other how far they are; when all are done the first
//! one moves the files into its folder, says in the manifest what they are, and gives the folder its name.

use std::path::{Path, PathBuf};

use super::file::FileSum;
use super::folder;
use super::writer::{Target, Writer};
use crate::error::Result;
use crate::state::StateDict;

/// How far a rank is with what it writes of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It is not done yet.
    Writing,
    /// All of it is on the disk. A rank that holds no part has written nothing.
    Done(FileSum),
    /// It cannot be written.
    Failed,
}

/// Letters of a hash.
const HASH: usize = 2 * blake3::OUT_LEN;

impl Progress {
    /// It as it travels: always as many numbers.
    pub(crate) fn numbers(&self) -> Vec<f64> {
        let (code, sum) = match self {
            Progress::Writing => (0.0, None),
            Progress::Done(sum) => (1.0, Some(sum)),
            Progress::Failed => (2.0, None),
        };
        let bytes = sum.map_or(0, |sum| sum.bytes);
        let letters = sum.map_or("", |sum| &sum.hash).bytes().map(f64::from);
        let letters = letters.chain(std::iter::repeat(0.0)).take(HASH);
        [code, bytes as f64].into_iter().chain(letters).collect()
    }

    /// What was sent.
    pub(crate) fn of(numbers: &[f64]) -> Progress {
        match numbers {
            [1.0, bytes, letters @ ..] => {
                let letters = letters.iter().filter(|letter| **letter > 0.0);
                let hash = letters.map(|letter| char::from(*letter as u8)).collect();
                Progress::Done(FileSum { bytes: *bytes as u64, hash })
            }
            [0.0, ..] => Progress::Writing,
            _ => Progress::Failed,
        }
    }
}

/// Writes the parts of one rank that is not the first.
pub(crate) struct PartWriter {
    writer: Writer,
    part: usize,
    parts: usize,
}

impl PartWriter {
    /// The writer of the part with this number of so many.
    pub(crate) fn new(part: usize, parts: usize) -> PartWriter {
        PartWriter { writer: Writer::start(), part, parts }
    }

    /// Begins to write this rank's part of the checkpoint after `step`.
    ///
    /// # Errors
    /// The thread that writes has died.
    pub(crate) fn begin(&mut self, folder: &Path, step: u64, state: StateDict) -> Result<()> {
        let path = loose(folder, step, (self.part, self.parts));
        self.writer.begin(step, Target::File(path), state)
    }

    /// How far it is; waits for the end of it if that is asked.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn progress(&mut self, waits: bool) -> Result<Option<FileSum>> {
        self.writer.progress(waits)
    }

    /// Lets go of what was written: it has its place, or nobody wants it. What is still where it was written is
    /// removed.
    pub(crate) fn let_go(&mut self) {
        self.writer.take();
    }
}

/// Where a rank writes its part until the first one moves it: a name that is swept if nobody does.
pub(super) fn loose(folder: &Path, step: u64, (part, parts): (usize, usize)) -> PathBuf {
    folder::unfinished(folder, step, &format!("{:05}-of-{parts:05}", part + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_of_a_part_arrives() {
        let hash = blake3::hash(b"a part").to_hex().to_string();
        let done = Progress::Done(FileSum { bytes: (1 << 40) + 3, hash });
        for told in [Progress::Writing, Progress::Failed, Progress::Done(FileSum::default()), done]
        {
            assert_eq!(told.numbers().len(), 2 + HASH);
            assert_eq!(Progress::of(&told.numbers()), told);
        }
    }
}
