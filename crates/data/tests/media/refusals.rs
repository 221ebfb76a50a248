//! What is refused, in which words, and that nothing is left behind.

use super::{Path, frame, names, rate};
use data::media::{ClipWriter, DecodedClip, Format, Frame};

const PATHS: [&str; 7] =
    ["clip.mp4", "clip.gif", "clip.webp", "clip.png", "clip.jpg", "clip.safetensors", "frames"];

fn refusal(path: &Path) -> String {
    match ClipWriter::create(path, rate("16")) {
        Ok(_) => panic!("{} was not refused", path.display()),
        Err(error) => error.to_string(),
    }
}

fn contains(message: &str, words: &[&str]) {
    for word in words {
        assert!(message.contains(word), "`{word}` is not in: {message}");
    }
    assert!(!message.ends_with('.'), "{message}");
    assert!(message.chars().next().unwrap().is_lowercase(), "{message}");
}

/// What is misspelt or of a kind that is not written gets a name that serves; anything else gets none,
/// rather than one that is merely spelt a little like it.
#[test]
fn unknown_extensions_list_the_known_ones() {
    for (path, instead) in [
        ("x.mp5", Some("`.mp4`")),
        ("x.giff", Some("`.gif`")),
        ("x.jpgg", Some("`.jpg`")),
        ("x.mov", Some("`.mp4`")),
        ("a/b.tiff", Some("`.png`")),
        ("x.npy", Some("`.safetensors`")),
        ("x.docx", None),
    ] {
        let message = refusal(Path::new(path));
        let extension = path.rsplit('.').next().unwrap();
        contains(&message, &[path, &format!("`.{extension}`")]);
        contains(&message, &[".mp4, .webm, .gif, .webp, .png, .jpg, .jpeg, .safetensors"]);
        contains(&message, &["folder of frames"]);
        assert_eq!(message.contains("instead"), instead.is_some(), "{message}");
        contains(&message, &[instead.unwrap_or_default()]);
    }
    assert_eq!(Format::of(Path::new("x.MP4")).unwrap(), Format::Mp4);
    assert_eq!(Format::of(Path::new("x")).unwrap(), Format::Folder);
    assert_eq!(Format::of(Path::new("x.5/")).unwrap(), Format::Folder);
}

#[test]
fn folders_that_do_not_exist_are_named() {
    let folder = tempfile::tempdir().unwrap();
    for path in PATHS {
        contains(&refusal(&folder.path().join("no/where").join(path)), &["no folder", "no/where"]);
    }
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn places_that_are_taken_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("frames/inside")).unwrap();
    std::fs::create_dir(folder.path().join("clip.mp4")).unwrap();
    std::fs::write(folder.path().join("file"), "mine").unwrap();
    contains(&refusal(&folder.path().join("frames")), &["frames", "not empty"]);
    contains(&refusal(&folder.path().join("clip.mp4")), &["clip.mp4", "a folder of this name"]);
    contains(&refusal(&folder.path().join("file")), &["file", "a file of this name"]);
    contains(&refusal(&folder.path().join("file/clip.mp4")), &["no folder"]);
    assert_eq!(names(folder.path()), ["clip.mp4", "file", "frames"]);
}

/// Dropped before the end, without frames, or after an error: nothing appears, and what was
/// there stays.
#[test]
fn nothing_half_written_is_left() {
    for path in PATHS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(path);
        let mut dropped = ClipWriter::create(&path, rate("16")).unwrap();
        assert_eq!(names(folder.path()).len(), 1, "it is written beside its target");
        dropped.push(&frame(0, 16, 24)).unwrap();
        drop(dropped);
        assert_eq!(names(folder.path()), [""; 0], "{}", path.display());

        let empty = ClipWriter::create(&path, rate("16")).unwrap();
        contains(&empty.finish().unwrap_err().to_string(), &["no frames"]);
        assert_eq!(names(folder.path()), [""; 0], "{}", path.display());
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old.gif");
    std::fs::write(&path, "old").unwrap();
    let mut writer = ClipWriter::create(&path, rate("16")).unwrap();
    writer.push(&frame(0, 4, 4)).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    drop(writer);
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    let mut writer = ClipWriter::create(&path, rate("16")).unwrap();
    writer.push(&frame(0, 4, 4)).unwrap();
    writer.finish().unwrap();
    assert_eq!(std::fs::read(&path).unwrap()[..3], *b"GIF");
    assert_eq!(names(folder.path()), ["old.gif"]);
}

#[test]
fn frames_of_another_size_are_refused() {
    for path in PATHS {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = ClipWriter::create(&folder.path().join(path), rate("16")).unwrap();
        writer.push(&frame(0, 16, 24)).unwrap();
        let message = writer.push(&frame(1, 24, 16)).unwrap_err().to_string();
        contains(&message, &[path, "frame 1 is 16x24", "24x16"]);
        // The clip goes on without it.
        writer.push(&frame(1, 16, 24)).unwrap();
        assert_eq!(writer.frames(), 2);
        writer.finish().unwrap();
    }
}

#[test]
fn a_frame_too_large_for_h264_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = ClipWriter::create(&folder.path().join("x.mp4"), rate("16")).unwrap();
    let large = Frame::new(2, 4000, vec![0.0; 2 * 4000 * 3]).unwrap();
    let message = writer.push(&large).unwrap_err().to_string();
    contains(&message, &["4000x2", "3840x2160", "folder of frames"]);
}

#[cfg(unix)]
#[test]
fn what_is_written_can_be_read_by_others() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "").unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let path = folder.path().join("x.gif");
    super::write(&path, &[frame(0, 4, 4)], rate("16"));
    assert_eq!(mode(&path), mode(&plain), "the mode of any new file");
    let path = folder.path().join("frames");
    super::write(&path, &[frame(0, 4, 4)], rate("16"));
    assert_eq!(mode(&path) & 0o444, mode(&plain) & 0o444);
}

#[test]
fn files_that_are_no_clips_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none.png");
    contains(&DecodedClip::read(&missing).unwrap_err().to_string(), &["cannot read", "none.png"]);
    let broken = folder.path().join("broken.jpg");
    std::fs::write(&broken, "this is text").unwrap();
    contains(&DecodedClip::read(&broken).unwrap_err().to_string(), &["cannot read", "broken.jpg"]);
}
