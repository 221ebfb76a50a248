//! Programs that read clips and mean us harm: `ffmpeg` and `ffprobe` are scripts here.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::place::{Place, golden};
use crate::process::{Ended, Run, is_thorough, text};
use crate::training::train;

/// What a sound ffprobe says of a clip.
const STREAM: &str = r#"echo '{"streams": [{"width": 32, "height": 32, "avg_frame_rate": "8/1", "nb_frames": "5"}]}'"#;

/// Five black frames.
const FRAMES: &str =
    "for i in 1 2 3 4 5; do printf 'P6\\n32 32\\n255\\n'; head -c 3072 /dev/zero; done";

/// Black frames without end.
const ENDLESS: &str = "while :; do printf 'P6\\n32 32\\n255\\n'; head -c 3072 /dev/zero; done";

/// A place with one clip and two scripts, each of which leaves its number behind.
fn stage(probe: &str, read: &str) -> Place {
    let place = Place::new();
    place.write("clips/a.mp4", "whatever");
    place.write("clips/a.txt", "a fox");
    for (name, script) in [("ffprobe", probe), ("ffmpeg", read)] {
        let numbers = place.text("numbers");
        let words = place.text(&format!("{name}.words"));
        let script = format!("#!/bin/sh\necho $$ >> {numbers}\necho \"$@\" > {words}\n{script}\n");
        let path = place.write(&format!("programs/{name}"), script);
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    place
}

/// `doctor --decode` or `preprocess` in such a place; whatever it starts must be gone after it.
#[track_caller]
fn run(place: &Place, command: &str) -> Ended {
    let (model, clips, dataset) = (golden("wan-tiny"), place.text("clips"), place.text("dataset"));
    let usual = [command, "--data", &clips, "--bucket", "32x32x5", "--model", text(&model)];
    let more: &[&str] = match command {
        "doctor" => &["--decode"],
        _ => &["--output", &dataset],
    };
    let mut path: OsString = place.path("programs").into();
    path.push(":/usr/bin:/bin");
    let ended = Run::of([&usual[..], more].concat()).with("PATH", path).ended();
    for number in fs::read_to_string(place.path("numbers")).unwrap_or_default().lines() {
        assert!(!fs::exists(format!("/proc/{number}/exe")).unwrap(), "{number} is left: {ended:?}");
    }
    ended
}

#[test]
fn sound_programs_are_believed() {
    let place = stage(STREAM, FRAMES);
    run(&place, "doctor").ended_with(0, &["1 of 1 clips would be encoded"]);
    run(&place, "preprocess").ended_with(0, &["1 samples"]);
}

/// Nothing but files, and no playlist.
#[test]
fn only_containers_are_opened() {
    let place = stage(STREAM, FRAMES);
    run(&place, "doctor").ended_with(0, &[]);
    for name in ["ffprobe", "ffmpeg"] {
        let words = fs::read_to_string(place.path(&format!("{name}.words"))).unwrap();
        assert!(words.contains("-protocol_whitelist file -format_whitelist mov,mp4"), "{words}");
        assert!(!words.contains("hls") && !words.contains("concat"), "{words}");
    }
}

#[test]
fn programs_that_write_garbage_or_without_end() {
    let huge = STREAM.replace("32", "65500");
    let stages = [
        ("exec yes", FRAMES),
        ("exec yes >&2", "exit 0"),
        ("echo no json", FRAMES),
        ("kill -9 $$", FRAMES),
        ("yes why | head -c 10000000 >&2; exit 1", FRAMES),
        (&huge, FRAMES),
        // Our end of the pipe is closed, and the program goes on writing.
        (STREAM, "exec yes"),
        (STREAM, "printf 'P6\\n60000 60000\\n255\\n'; exec cat /dev/zero"),
        (STREAM, "printf 'P6\\n4000000000 4000000000\\n255\\n'; exec cat /dev/zero"),
        (STREAM, ENDLESS),
        (STREAM, "exec head -c 3000 /dev/zero"),
        (STREAM, "printf 'P6\\n32 32\\n255\\n'; exit 0"),
        (STREAM, "yes why | head -c 10000000 >&2; exit 1"),
        (STREAM, "kill -9 $$"),
    ];
    for (probe, read) in stages {
        // The second says nothing at all, and is waited for.
        if probe.ends_with(">&2") && !is_thorough() {
            continue;
        }
        let place = stage(probe, read);
        let doctor = run(&place, "doctor");
        doctor.ended_with(1, &["skipped a.mp4: it cannot be read"]);
        // Of a clip that does not end, the first frames are all that is wanted.
        match read == ENDLESS {
            true => run(&place, "preprocess").ended_with(0, &["1 samples"]),
            false => run(&place, "preprocess").refused(&["skipped a.mp4"]),
        }
        assert!(doctor.said.len() < 1000, "{}", doctor.said);
    }
}

/// A minute of silence is the end; it takes a minute, so only `cargo xtask break` waits for it.
#[test]
fn programs_that_hang() {
    if !is_thorough() {
        return;
    }
    for (probe, read) in [("exec sleep 1000", FRAMES), (STREAM, "exec sleep 1000")] {
        let place = stage(probe, read);
        run(&place, "doctor").ended_with(1, &["skipped a.mp4", "did nothing for 60 s"]);
    }
}

/// Of a clip that is given, as many frames are read as are wanted.
#[test]
fn a_clip_without_end_is_given() {
    let place = stage(STREAM, ENDLESS);
    train(&place, &["loop.steps=1"]).ended().ended_with(0, &[]);
    let (run, model) = (place.text("run"), place.text("model"));
    Run::of(["export", &run, "--output", &model]).ended().ended_with(0, &[]);
    let mut path: OsString = place.path("programs").into();
    path.push(":/usr/bin:/bin");
    let (clip, output) = (place.text("clips/a.mp4"), place.text("out.gif"));
    let words =
        ["generate", "--model", &model, "--prompt", "a red circle moves left", "--steps", "1"];
    let more = ["--video-prefix", &clip, "--output", &output];
    let ended = Run::of([&words[..], &more].concat()).with("PATH", path).ended();
    ended.refused(&["--video-prefix", "nothing would be left to make"]);
    ended.within(20);
}

/// Ctrl-C in a terminal reaches ffmpeg as well: a clip that it had no time to read is not a damaged one.
#[test]
fn a_program_that_is_interrupted_with_us_damages_no_clip() {
    // Whether it can be started is asked before anybody listens to signals.
    let asked = "[ \"$1\" = -version ] && exit";
    let place = stage(STREAM, &format!("{asked}; kill -HUP $PPID; sleep 1; kill -9 $$"));
    let ended = run(&place, "preprocess");
    ended.ended_with(130, &["interrupted: 0 clips were encoded"]);
    assert!(!ended.complained.contains("skipped"), "{ended:?}");
}
