//! `moviola inspect` tells what a path is.

use crate::folder::{goldens, run};

#[track_caller]
fn check(path: &str, words: &[&str]) {
    let path = goldens().join(path);
    let output = run(&["inspect", path.to_str().unwrap()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for word in words {
        assert!(text.contains(word), "no `{word}` in:\n{text}");
    }
}

#[test]
fn folders_components_files_and_configs() {
    check(
        "pixart-tiny",
        &["PixArtAlphaPipeline", "transformer", "AutoencoderKL", "f32", "parameters"],
    );
    check("pixart-tiny/vae", &["AutoencoderKL", "tensors"]);
    check("t5.safetensors", &["safetensors file", "f32"]);
    check("pixart-tiny/scheduler/scheduler_config.json", &["DPMSolverMultistepScheduler"]);
    check("pixart-tiny/text_encoder/config.json", &["T5EncoderModel"]);
    check("pixart-tiny/scheduler", &["DPMSolverMultistepScheduler", "no weights"]);
    check("pixart-tiny/tokenizer", &["T5Tokenizer", "no weights"]);
}

#[test]
fn what_is_not_there_is_an_error() {
    let output = run(&["inspect", "no/such/path"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no/such/path"));
}

/// What a folder can do is asked of the table; one that nobody knows is told apart, not refused.
#[test]
fn what_a_model_is_for() {
    check("pixart-tiny", &["family: PixArt-alpha", "makes: pictures of", "DPMSolverMultistep"]);
    check("pixart-sigma-tiny", &["family: PixArt-Sigma"]);
    check(
        "wan-tiny-i2v",
        &["family: Wan", "clips of 81 frames of 480 x 832", "prompt: image, last_image"],
    );
    check("wan-tiny-experts", &["experts: 2, from timestep 875 on"]);
    let copy = crate::folder::Copy::of("pixart-tiny");
    copy.replace("model_index.json", "PixArtAlphaPipeline", "OtherPipeline");
    let output = run(&["inspect", copy.path("model").to_str().unwrap()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("cannot be used here: "), "{text}");
    assert!(text.contains("AutoencoderKL"), "{text}");
}
