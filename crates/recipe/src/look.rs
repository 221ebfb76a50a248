//! What a look at the student leaves: clips, small ones to be shown, and a list of them.

use std::path::{Path, PathBuf};

use data::media::{ClipWriter, Frame, FrameRate};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The folder of all looks within that of a run.
const FOLDER: &str = "validation";

/// The list of a look's clips.
const LIST: &str = "clips.json";

/// No such list is longer.
const LONGEST_LIST: u64 = 16 << 20;

/// No clip that is shown is longer.
const LONGEST_CLIP: u64 = 256 << 20;

/// The longest side of a clip that is shown, and the most frames of it: a page holds many.
const SIDE: usize = 192;
const FRAMES: usize = 24;

/// What a look at the student found.
pub struct Look<'a> {
    /// The last step that is over.
    pub step: u64,
    /// Names and values.
    pub numbers: &'a [(&'a str, f64)],
    /// The clips that were made.
    pub clips: &'a [SeenClip],
}

/// A clip of a look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenClip {
    /// What it was to show.
    pub caption: String,
    /// Its file, within the folder of the look.
    pub file: String,
    /// A small animated GIF or PNG of it there, which may be the same file.
    pub preview: String,
    /// Whether a judge saw in it what it was to show, where there is one.
    pub right: Option<bool>,
    /// Where both are.
    #[serde(skip)]
    pub folder: PathBuf,
}

impl SeenClip {
    /// The bytes of what is shown.
    ///
    /// # Errors
    /// The file is gone.
    pub fn shown(&self) -> Result<Vec<u8>> {
        let path = self.folder.join(&self.preview);
        kernels::read_file(&path, LONGEST_CLIP).map_err(|err| Error::file("read", &path, err))
    }
}

/// The folder of the look after a step.
pub(crate) fn folder(run: &Path, step: u64) -> PathBuf {
    run.join(FOLDER).join(format!("{step:08}"))
}

/// All looks of a run up to a step, with their clips.
///
/// # Errors
/// A list cannot be read.
pub fn looks(run: &Path, last: u64) -> Result<Vec<(u64, Vec<SeenClip>)>> {
    let entries = std::fs::read_dir(run.join(FOLDER)).into_iter().flatten().flatten();
    let step = |name: &str| name.parse::<u64>().ok().filter(|step| *step <= last);
    let steps = entries.filter_map(|entry| step(entry.file_name().to_str()?));
    let mut steps: Vec<u64> = steps.collect();
    steps.sort_unstable();
    let mut all = Vec::new();
    for step in steps {
        let folder = folder(run, step);
        let path = folder.join(LIST);
        // Looks of earlier versions, and those that made no clip, have no list.
        let Ok(text) = kernels::read_text(&path, LONGEST_LIST) else { continue };
        let mut clips: Vec<SeenClip> = serde_json::from_str(&text)
            .map_err(|err| Error::Recipe(format!("{} is damaged: {err}", path.display())))?;
        clips.iter_mut().for_each(|clip| clip.folder.clone_from(&folder));
        all.push((step, clips));
    }
    Ok(all)
}

/// Writes the list of a look's clips.
pub(crate) fn write_list(folder: &Path, clips: &[SeenClip]) -> Result<()> {
    let path = folder.join(LIST);
    let text = serde_json::to_string_pretty(clips).expect("a list is JSON") + "\n";
    data::aside::write_whole(&path, text.as_bytes()).map_err(|err| Error::file("write", &path, err))
}

/// Writes what is shown of a clip and returns its name: the clip itself if it is a GIF that is small, or a
/// smaller one beside it.
pub(crate) fn write_preview(
    folder: &Path,
    file: &str,
    frames: &[Frame],
    rate: FrameRate,
) -> Result<String> {
    let (height, width) = frames.first().map_or((1, 1), Frame::size);
    let shrink = height.max(width).div_ceil(SIDE);
    let every = frames.len().div_ceil(FRAMES).max(1);
    let is_shown = file.ends_with(".gif") || (file.ends_with(".png") && frames.len() == 1);
    if shrink == 1 && every == 1 && is_shown {
        return Ok(file.to_owned());
    }
    let stem = file.split('.').next().unwrap_or(file);
    let extension = if frames.len() == 1 { "png" } else { "gif" };
    let name = format!("{stem}-small.{extension}");
    let path = folder.join(&name);
    let fault = |err: data::media::Error| Error::from(engine::Error::from(err));
    let rate = FrameRate::from_number(rate.per_second() / every as f64).map_err(fault)?;
    let mut writer = ClipWriter::create(&path, rate).map_err(fault)?;
    for frame in frames.iter().step_by(every) {
        writer.push(&frame.shrunk(shrink).map_err(fault)?).map_err(fault)?;
    }
    writer.finish().map_err(fault)?;
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long and large clips are shown small, every so many frames, as long as they are.
    #[test]
    fn previews_are_small_and_last_as_long() {
        let folder = tempfile::tempdir().unwrap();
        let frame = Frame::new(200, 400, vec![0.5; 200 * 400 * 3]).unwrap();
        let rate = FrameRate::new(16, 1).unwrap();
        let frames = vec![frame.clone(); 49];
        let name = write_preview(folder.path(), "000.mp4", &frames, rate).unwrap();
        assert_eq!(name, "000-small.gif");
        let bytes = std::fs::read(folder.path().join(name)).unwrap();
        let at = |place: usize| u16::from_le_bytes([bytes[place], bytes[place + 1]]);
        assert_eq!((at(6), at(8)), (133, 66));
        let picture = write_preview(folder.path(), "001.png", &[frame], rate).unwrap();
        assert_eq!(picture, "001-small.png");
        let small = Frame::new(32, 32, vec![0.5; 32 * 32 * 3]).unwrap();
        let own = write_preview(folder.path(), "002.gif", &vec![small; 8], rate).unwrap();
        assert_eq!(own, "002.gif");
    }
}
