//! What `doctor` says of clips, and what `preprocess` takes of them.

use std::fs;
use std::process::Command;

use data::media::DecodedClip;
use data::preprocess::Encode;
use data::store::{LATENTS, TEXT};

use crate::folder::goldens;
use crate::preprocess::{Workplace, doctor, encoder, has_ffmpeg, ids, refuses};

const WAN: [&str; 2] = ["--bucket", "32x32x5"];

/// 4 kB of a video are overwritten: a decoder mends that, and the doctor must not.
#[test]
fn a_damaged_frame_is_found_and_named() {
    if !has_ffmpeg() {
        return;
    }
    let place = Workplace::new();
    place.video_at(8, "sound.mp4", [160, 96], 25, "sound");
    place.video_at(8, "torn.mp4", [160, 96], 24, "torn");
    let path = place.path("clips/torn.mp4");
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..][..4096].fill(0x5a);
    fs::write(&path, bytes).unwrap();
    let clips = place.path("clips");
    assert_eq!(doctor(&clips, &WAN).0, Some(0), "what a file says of itself is believed");
    let (code, text) = doctor(&clips, &[&WAN[..], &["--decode"]].concat());
    assert_eq!(code, Some(1), "{text}");
    let line = text.lines().find(|line| line.contains("skipped torn.mp4")).unwrap_or_default();
    let frame = line.split("frame ").nth(1).and_then(|rest| rest.split(' ').next());
    let frame: usize = frame.and_then(|frame| frame.parse().ok()).unwrap_or(0);
    assert!(line.contains("is damaged") && (1..24).contains(&frame), "{text}");
    assert!(!text.contains("skipped sound.mp4"), "{text}");
}

/// Without the programs that read videos there is one line about it, not one for each clip.
#[test]
fn missing_programs_are_said_once() {
    let place = Workplace::new();
    for name in ["a.mp4", "b.mp4", "c.mp4"] {
        place.video_at(8, name, [32, 32], 5, name);
    }
    let model = goldens().join("wan-tiny");
    let clips = place.text("clips");
    let dataset = place.text("dataset");
    let model = model.to_str().unwrap();
    for command in [
        vec!["doctor", "--data", &clips, "--bucket", "32x32x5"],
        vec!["preprocess", "--data", &clips, "--model", model, "--output", &dataset],
    ] {
        let mut program = Command::new(assert_cmd::cargo::cargo_bin!("moviola"));
        let output = program.args(&command).env("PATH", "").output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert_eq!(text.matches("ffprobe` reads").count(), 1, "{text}");
        assert!(text.contains("3 of the files are videos"), "{text}");
    }
    assert!(!place.path("dataset").exists());
}

/// What is lost of each clip, which rates are mixed, and which sizes would suit them.
#[test]
fn the_doctor_says_what_is_cropped_and_proposes_buckets() {
    if !has_ffmpeg() {
        return;
    }
    let place = Workplace::new();
    for at in 0..4 {
        place.video_at(8, &format!("wide{at}.mp4"), [96, 48], 9 + at, &format!("wide {at}"));
    }
    for at in 0..3 {
        place.video_at(16, &format!("tall{at}.mp4"), [48, 96], 12 + at, &format!("tall {at}"));
    }
    let clips = place.path("clips");
    let (code, text) = doctor(&clips, &["--bucket", "48x48x5"]);
    assert_eq!(code, Some(0), "{text}");
    for part in [
        "wide0.mp4: 96x48 to 48x48x5, 50.0 % cropped, the first 5 of its 9 frames at 8",
        "tall2.mp4: 48x96 to 48x48x5, 50.0 % cropped, the first 5 of its 14 frames at 16",
        "frame rates are mixed: 8 a second (4), 16 a second (3); add --fps 8",
    ] {
        assert!(text.contains(part), "no `{part}` in: {text}");
    }
    let (code, text) = doctor(&clips, &["--suggest-buckets"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("suggested: --bucket 96x48x9 --bucket 48x96x9"), "{text}");
    assert!(text.contains("wide0.mp4: 96x48 to 96x48x9, 0.0 % cropped"), "{text}");
    // At one rate nothing is mixed, and frames are fewer.
    let (code, text) = doctor(&clips, &["--bucket", "48x48x5", "--fps", "8"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(!text.contains("mixed") && text.contains("the first 5 of its 7 frames at 8"), "{text}");
    let (code, text) = doctor(&clips, &["--bucket", "48x48x5", "--fps", "16"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("skipped wide0.mp4: it cannot be read: it has 8 frames per second"));
    // `auto` takes what is proposed.
    let summary = place.encoded("wan-tiny", "clips", &["--bucket", "auto"]);
    assert!(summary.contains("7 samples"), "{summary}");
    let buckets: Vec<String> =
        place.samples().iter().map(|own| own.origin.bucket.to_string()).collect();
    let wanted = ["48x96x9", "48x96x13", "48x96x13", "96x48x9", "96x48x9", "96x48x9", "96x48x9"];
    assert_eq!(buckets, wanted);
}

/// Several samples of a long video, each the frames that it should be.
#[test]
fn pieces_of_a_long_video() {
    if !has_ffmpeg() {
        return;
    }
    let place = Workplace::new();
    place.video_at(8, "long.mp4", [32, 32], 18, "a fox");
    place.encoded("wan-tiny", "clips", &[&WAN[..], &["--extract", "chunk"]].concat());
    let samples = place.samples();
    assert_eq!(ids(&samples), ["long.mp4", "long.mp4@10", "long.mp4@5"]);
    let frames = DecodedClip::read(&place.path("clips/long.mp4")).unwrap();
    let mut encoder = encoder("wan-tiny");
    let mut latents = |places: &[usize]| {
        let bytes = places.iter().flat_map(|at| frames.frame(*at).bytes());
        let pixels = bytes.map(|byte| f32::from(byte) / 255.0).collect();
        encoder.clip(&data::Clip::new([places.len(), 32, 32], pixels).unwrap()).unwrap()
    };
    for (sample, first) in samples.iter().zip([0, 10, 5]) {
        let places: Vec<usize> = (first..first + 5).collect();
        assert_eq!(sample.tensors[LATENTS], latents(&places), "{}", sample.origin.id);
    }
    // Head is what it always was, and the first piece need not be encoded again.
    let summary = place.encoded("wan-tiny", "clips", &WAN);
    assert!(summary.contains("1 samples (0 encoded now, 1 kept, 2 removed)"), "{summary}");
    let more = [&WAN[..], &["--extract", "uniform:3", "--fps", "4"]].concat();
    place.encoded("wan-tiny", "clips", &more);
    let samples = place.samples();
    assert_eq!(ids(&samples), ["long.mp4", "long.mp4@2", "long.mp4@4"]);
    assert_eq!(samples[1].tensors[LATENTS], latents(&[4, 6, 8, 10, 12]));
    assert_eq!(samples[1].origin.fps, 4.0);
    refuses(
        &place.preprocess("wan-tiny", "clips", &["--extract", "tail"]),
        &["head, chunk, slide[:STRIDE] and uniform[:PIECES]"],
    );
    refuses(&place.preprocess("wan-tiny", "clips", &["--fps", "0"]), &["--fps"]);
}

/// A word that all captions share.
#[test]
fn a_trigger_word_begins_every_caption() {
    let place = Workplace::new();
    place.picture("a.png", [32, 32], 1, "a fox");
    place.picture("b.png", [32, 32], 2, "the snw style, an owl");
    place.picture("c.png", [32, 32], 3, "");
    place.encoded("pixart-tiny", "clips", &["--bucket", "32x32x1", "--trigger", "snw style"]);
    let samples = place.samples();
    let captions: Vec<&str> = samples.iter().map(|own| own.origin.caption.as_str()).collect();
    assert_eq!(captions, ["snw style, a fox", "the snw style, an owl", "snw style"]);
    let mut encoder = encoder("pixart-tiny");
    assert_eq!(samples[0].tensors[TEXT], encoder.text("snw style, a fox").unwrap()[TEXT]);
    refuses(
        &place.preprocess("pixart-tiny", "clips", &["--trigger", " "]),
        &["--trigger is empty"],
    );
}

/// Captions alone are a dataset for a student that makes its own clips, and for nobody else.
#[test]
fn texts_alone_are_distilled_from() {
    let place = Workplace::new();
    fs::write(place.path("prompts.txt"), "a fox\n\n# not this\nan owl\na fox\na cat\n").unwrap();
    let more = ["--texts", "--bucket", "32x32x5", "--trigger", "tour"];
    let summary = place.encoded("wan-tiny", "prompts.txt", &more);
    assert!(summary.contains("3 samples (3 encoded now"), "{summary}");
    let summary = place.encoded("wan-tiny", "prompts.txt", &more);
    assert!(summary.contains("3 samples (0 encoded now, 3 kept"), "{summary}");
    let samples = place.samples();
    let mut captions: Vec<&str> = samples.iter().map(|own| own.origin.caption.as_str()).collect();
    captions.sort_unstable();
    assert_eq!(captions, ["tour, a cat", "tour, a fox", "tour, an owl"]);
    assert!(samples.iter().all(|own| !own.tensors.contains_key(LATENTS)));
    let model = goldens().join("wan-tiny");
    let train = |name: &str, roles: &[&str], more: &[&str]| {
        let recipe = crate::training::recipe(name);
        let (run_folder, dataset) = (place.text(name), place.text("dataset"));
        let mut all = vec!["train".to_owned(), recipe, "--run".to_owned(), run_folder];
        let mut set = |text: String| all.extend(["--set".to_owned(), text]);
        roles.iter().for_each(|role| set(format!("models.{role}.from={}", model.display())));
        set(format!("data.source.path={dataset}"));
        set("loop={steps: 2, seed: 1}".to_owned());
        set("callbacks={}".to_owned());
        more.iter().for_each(|own| set((*own).to_owned()));
        crate::folder::run(&all.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let roles = ["student", "teacher", "critic"];
    let rates = [
        "models.student.rate={peak: 1.0e-4}",
        "models.critic.rate={peak: 1.0e-4}",
        "method.rollout=simulate",
    ];
    let out = train("dmd2.yaml", &roles, &rates);
    assert!(out.status.success(), "{}", crate::training::words(&out));
    refuses(
        &train("wan-full.yaml", &["student"], &["models.student.rate={peak: 1.0e-4}"]),
        &["holds texts alone, and method finetune learns from clips"],
    );
    refuses(
        &place.preprocess("wan-tiny", "prompts.txt", &["--texts", "--extract", "chunk"]),
        &["--texts"],
    );
}
