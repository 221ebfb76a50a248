//! What may go into a dataset that is there, and what is said of clips that cannot.

use std::fs;

use burn::tensor::DType;

use crate::preprocess::{Workplace, ids, refuses};

const TEXTS: [&str; 3] = ["--texts", "--bucket", "32x32x5"];
const CLIPS: [&str; 2] = ["--bucket", "32x32x1"];

/// Texts are stored in one type, as clips are.
#[test]
fn texts_are_not_mixed_either() {
    let place = Workplace::new();
    fs::write(place.path("texts.txt"), "a fox\n").unwrap();
    place.encoded("wan-tiny", "texts.txt", &TEXTS);
    fs::write(place.path("texts.txt"), "a fox\nan owl\n").unwrap();
    let mixed =
        place.preprocess("wan-tiny", "texts.txt", &[&TEXTS[..], &["--dtype", "bf16"]].concat());
    refuses(&mixed, &["holds f32", "asks for bf16"]);
    place.encoded("wan-tiny", "texts.txt", &TEXTS);
    assert_eq!(place.samples().len(), 2);
    let types = place.samples().into_iter().flat_map(|own| own.tensors.into_values());
    assert!(types.map(|own| own.dtype()).all(|own| own == DType::F32));
}

/// Hours of encoding are not thrown away for one wrong argument.
#[test]
fn what_would_be_emptied_is_refused() {
    let place = Workplace::new();
    place.picture("a.png", [32, 32], 1, "a fox");
    place.encoded("wan-tiny", "clips", &CLIPS);
    fs::write(place.path("texts.txt"), "a fox\n").unwrap();
    for more in [&[][..], &["--overwrite"]] {
        let texts = place.preprocess("wan-tiny", "texts.txt", &[&TEXTS[..], more].concat());
        refuses(&texts, &["holds clips", "leave it out, or give another folder"]);
    }
    fs::create_dir(place.path("others")).unwrap();
    for name in ["b.png", "b.txt"] {
        let from = place.path("clips/a").with_extension(&name[2..]);
        fs::copy(from, place.path("others").join(name)).unwrap();
    }
    let others = place.preprocess("wan-tiny", "others", &CLIPS);
    refuses(&others, &["holds 1 samples", "all would be removed", "--overwrite", "another folder"]);
    assert_eq!(ids(&place.samples()), ["a.png"]);
    let told = place.encoded("wan-tiny", "others", &[&CLIPS[..], &["--overwrite"]].concat());
    assert!(told.contains("1 encoded now, 0 kept, 1 removed"), "{told}");
    fs::remove_dir_all(place.path("dataset")).unwrap();
    place.encoded("wan-tiny", "texts.txt", &TEXTS);
    let clips = place.preprocess("wan-tiny", "clips", &CLIPS);
    refuses(&clips, &["holds captions alone", "add --texts, or give another folder"]);
}

/// What does nothing beside `--texts` is refused; a pipe is called one; a table that nobody reads is named.
#[test]
fn what_does_nothing_or_is_no_clip_is_named() {
    let place = Workplace::new();
    fs::write(place.path("texts.txt"), "a fox\n").unwrap();
    for more in [&["--enlarge", "3"][..], &["--force"]] {
        let texts = place.preprocess("wan-tiny", "texts.txt", &[&TEXTS[..], more].concat());
        refuses(&texts, &["--texts", more[0], "leave it out"]);
    }
    place.picture("a.png", [32, 32], 1, "a fox");
    fs::remove_file(place.path("clips/a.txt")).unwrap();
    fs::write(
        place.path("clips/metadata.jsonl"),
        "{\"file_name\": \"a.png\", \"text\": \"a fox\"}\n",
    )
    .unwrap();
    let table = place.text("clips/metadata.jsonl");
    let hint = format!("--data {table}");
    refuses(&place.preprocess("wan-tiny", "clips", &CLIPS), &["it has no caption", &hint]);
    let told = place.encoded("wan-tiny", "clips/metadata.jsonl", &CLIPS);
    assert!(told.contains("1 samples"), "{told}");
    #[cfg(unix)]
    {
        let made = std::process::Command::new("mkfifo").arg(place.path("clips/b.png")).status();
        assert!(made.unwrap().success());
        fs::write(place.path("clips/b.txt"), "an owl").unwrap();
        let piped = place.preprocess("wan-tiny", "clips", &CLIPS);
        refuses(&piped, &["skipped b.png: it cannot be read: it is a pipe or a device"]);
    }
}

/// Before anything is encoded there is nothing to keep, and that is said.
#[cfg(unix)]
#[test]
fn a_signal_while_clips_are_looked_at() {
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Command, Stdio};
    let place = Workplace::new();
    fs::write(place.path("clips/a.mp4"), "slow").unwrap();
    fs::write(place.path("clips/a.txt"), "a fox").unwrap();
    fs::create_dir(place.path("tools")).unwrap();
    for name in ["ffmpeg", "ffprobe"] {
        let tool = place.path("tools").join(name);
        fs::write(&tool, "#!/bin/sh\n[ \"$1\" = -version ] || sleep 5\n").unwrap();
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let model = crate::folder::goldens().join("wan-tiny");
    let mut child = Command::new(assert_cmd::cargo::cargo_bin!("moviola"))
        .args(["preprocess", "--data", &place.text("clips"), "--output", &place.text("dataset")])
        .args(CLIPS)
        .arg("--model")
        .arg(model)
        .env("PATH", format!("{}:/usr/bin:/bin", place.text("tools")))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.by_ref().any(|line| line.starts_with("look")));
    let told = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(told.unwrap().success());
    let said: Vec<String> = lines.collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said:?}");
    assert_eq!(said, ["error: interrupted; nothing was written"]);
    assert!(!place.path("dataset").exists());
}
