//! Files as preprocessing sees them: what they say of themselves, and what is in them.

use std::ops::ControlFlow;

use super::read::ffmpeg;
use super::{Path, frame, frames, has_ffmpeg, rate, write};
use data::preprocess::{Decoded, Media, MediaFiles, Probe};

/// The bytes of the first frames that are read, `most` at the most.
fn read(path: &Path, most: usize) -> Vec<(usize, usize, Vec<u8>)> {
    let mut found = Vec::new();
    let read = MediaFiles.read(path, &mut |frame| {
        found.push((frame.height, frame.width, frame.pixels));
        if found.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    read.unwrap();
    found
}

#[test]
fn a_picture_is_a_clip_of_one_frame() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.png");
    let picture = frame(2, 24, 40);
    image::RgbImage::from_raw(40, 24, picture.bytes()).unwrap().save(&path).unwrap();
    let probe = Probe { frames: 1, height: 24, width: 40, fps: 1.0 };
    assert_eq!(MediaFiles.probe(&path).unwrap(), probe);
    assert_eq!(Decoded(&MediaFiles).probe(&path).unwrap(), probe);
    assert_eq!(read(&path, 9), [(24, 40, picture.bytes())]);
    // Half of it says the same of itself, but cannot be read.
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    assert_eq!(MediaFiles.probe(&path).unwrap(), probe);
    assert!(Decoded(&MediaFiles).probe(&path).is_err());
    // Reasons do not repeat the path.
    std::fs::write(&path, "this is text").unwrap();
    let reason = MediaFiles.probe(&path).unwrap_err().to_string();
    assert!(!reason.contains("a.png") && !reason.is_empty(), "{reason}");
}

/// A photograph that was taken upright is stored lying, with a tag that says so.
#[test]
fn a_turned_picture_has_the_size_that_it_is_shown_in() {
    let goldens = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../goldens/pictures"));
    for name in ["turned.jpg", "halved.jpg", "photo.webp"] {
        let path = goldens.join(name);
        let shown = MediaFiles.probe(&path).unwrap();
        let [(height, width, _)] = &read(&path, 9)[..] else { panic!("one frame") };
        assert_eq!((shown.height, shown.width), (*height, *width), "{name}");
    }
    let (width, height) = image::image_dimensions(goldens.join("turned.jpg")).unwrap();
    let shown = MediaFiles.probe(&goldens.join("turned.jpg")).unwrap();
    assert_eq!((shown.height, shown.width), (width as usize, height as usize));
}

#[test]
fn videos_say_how_long_they_are() {
    if !has_ffmpeg() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.mp4", "a.gif"] {
        write(&folder.path().join(name), &frames(7, 32, 48), rate("8"));
    }
    // Matroska does not say how many frames it has.
    ffmpeg(
        &["-i", folder.path().join("a.mp4").to_str().unwrap(), "-c", "copy"],
        &folder.path().join("a.mkv"),
    );
    for name in ["a.mp4", "a.gif", "a.mkv"] {
        let path = folder.path().join(name);
        let probe = MediaFiles.probe(&path).unwrap();
        assert_eq!((probe.frames, probe.height, probe.width), (7, 32, 48), "{name}");
        assert!((probe.fps - 8.0).abs() < 0.35, "{name}: {}", probe.fps);
        assert_eq!(Decoded(&MediaFiles).probe(&path).unwrap().frames, 7, "{name}");
        let all = read(&path, 99);
        assert_eq!(all.len(), 7, "{name}");
        assert_eq!(read(&path, 3), all[..3], "{name}");
    }
    let path = folder.path().join("text.mp4");
    std::fs::write(&path, "this is text").unwrap();
    let reason = MediaFiles.probe(&path).unwrap_err().to_string();
    assert!(reason.contains("Invalid data"), "{reason}");
    assert!(MediaFiles.read(&path, &mut |_| ControlFlow::Continue(())).is_err());
}

/// What was cut off says of itself that it is whole.
#[test]
fn decoding_finds_what_is_cut_off() {
    if !has_ffmpeg() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mp4");
    write(&path, &frames(12, 64, 96), rate("8"));
    // With the table of frames in front, as files for the web have it.
    let front = folder.path().join("front.mp4");
    let arguments = ["-i", path.to_str().unwrap(), "-c", "copy", "-movflags", "+faststart"];
    ffmpeg(&arguments, &front);
    let bytes = std::fs::read(&front).unwrap();
    std::fs::write(&front, &bytes[..bytes.len() * 3 / 4]).unwrap();
    assert_eq!(MediaFiles.probe(&front).unwrap().frames, 12);
    let found = Decoded(&MediaFiles).probe(&front);
    assert!(found.as_ref().map_or(true, |probe| probe.frames < 12), "{found:?}");
}
