//! A folder of numbered PNG files.

use super::aside::AsideFolder;
use super::sheet::png;
use super::write::Sink;
use super::{Error, Frame, Result};
use std::path::{Path, PathBuf};

/// Writes `0000.png`, `0001.png`, …
pub(super) struct FolderSink {
    path: PathBuf,
    folder: AsideFolder,
    frames: usize,
}

impl FolderSink {
    pub(super) fn create(path: &Path) -> Result<FolderSink> {
        Ok(FolderSink { path: path.to_owned(), folder: AsideFolder::create(path)?, frames: 0 })
    }
}

impl Sink for FolderSink {
    fn push(&mut self, frame: &Frame) -> Result<()> {
        let (height, width) = frame.size();
        let refused = |reason| Error::Encode { path: self.path.clone(), reason };
        let bytes = png(&frame.bytes(), height, width).map_err(refused)?;
        self.folder.add(&format!("{:04}.png", self.frames), &bytes)?;
        self.frames += 1;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.folder.commit()
    }
}
