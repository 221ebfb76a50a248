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
