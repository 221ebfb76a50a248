//! A folder of numbered PNG files.

use super::sheet::png;
use super::write::Sink;
use super::{Error, Frame, Result, failure};
use crate::aside::{AsideFolder, Existing};
use std::path::{Path, PathBuf};

/// Writes `0000.png`, `0001.png`, …
pub(super) struct FolderSink {
    path: PathBuf,
    folder: AsideFolder,
    frames: usize,
}

impl FolderSink {
    pub(super) fn create(path: &Path) -> Result<FolderSink> {
        let folder = AsideFolder::create(path, Existing::Replace).map_err(failure(path))?;
        Ok(FolderSink { path: path.to_owned(), folder, frames: 0 })
    }
}

impl Sink for FolderSink {
    fn push(&mut self, frame: &Frame) -> Result<()> {
        let (height, width) = frame.size();
        let refused = |reason| Error::Encode { path: self.path.clone(), reason };
        let bytes = png(&frame.bytes(), height, width).map_err(refused)?;
        let name = format!("{:04}.png", self.frames);
        std::fs::write(self.folder.path().join(name), bytes).map_err(failure(&self.path))?;
        self.frames += 1;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.folder.commit().map_err(failure(&self.path))
    }
}
