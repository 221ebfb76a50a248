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

/// What `inspect` says of a path, as JSON.
#[track_caller]
fn told(path: &std::path::Path, more: &[&str]) -> serde_json::Value {
    let output = run(&[&["inspect", path.to_str().unwrap(), "--json"], more].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The values of a fact.
fn facts(found: &serde_json::Value, name: &str) -> Vec<String> {
    let all = found["about"].as_array().unwrap().iter();
    all.filter(|own| own[0] == name).map(|own| own[1].as_str().unwrap().to_owned()).collect()
}

/// A LoRA in each dialect, a VAE, a dataset and its shard, a run and its checkpoint.
#[test]
fn everything_that_lies_around() {
    let own = crate::experts::Trained::new("wan-tiny", "32x32x1");
    let out = own.train("wan-lora.yaml", "run", &["callbacks={}", "data.held_out=0"]);
    assert!(out.status.success(), "{}", crate::training::words(&out));
    for (dialect, names) in [("diffusers", "diffusers"), ("comfyui", "ComfyUI"), ("kohya", "kohya")]
    {
        let file = own.export("run", &format!("{dialect}.safetensors"), &["--dialect", dialect]);
        let found = told(file.as_ref(), &[]);
        assert_eq!(found["title"], "LoRA");
        for (name, value) in [("rank", "32"), ("alpha", "32"), ("names", names)] {
            assert_eq!(facts(&found, name), [value], "{dialect}: {name}");
        }
        assert!(facts(&found, "base model")[0].ends_with("wan-tiny"), "{found}");
        assert!(facts(&found, "looks like one for")[0].contains("Wan"), "{found}");
        assert!(facts(&found, "changes").iter().any(|own| own.contains('*')), "{found}");
        assert!(found["metadata"]["recipe"].as_str().unwrap().contains("finetune"));
    }
    let dataset = own.place.path("dataset");
    let found = told(&dataset, &[]);
    assert_eq!((found["title"].as_str(), &facts(&found, "samples")[0][..]), (Some("dataset"), "3"));
    assert_eq!(facts(&found, "bucket"), ["32x32x1 (3)"]);
    let shard = std::fs::read_dir(dataset.join("shards")).unwrap().next().unwrap().unwrap().path();
    let found = told(&shard, &[]);
    assert_eq!(found["title"], "shard of a dataset");
    assert_eq!(facts(&found, "keys"), ["latents, text"]);
    let found = told(&own.place.path("run"), &[]);
    assert_eq!(found["title"], "training run");
    assert_eq!(facts(&found, "checkpoints after step"), ["2"]);
    assert_eq!(facts(&found, "what learns"), ["a LoRA of rank 32"]);
    let found = told(&own.place.path("run/checkpoints/checkpoint-00000002"), &["--tensors"]);
    assert_eq!(found["title"], "checkpoint of a run");
    let tensors = found["tensors"].as_array().unwrap();
    assert!(tensors.iter().any(|own| own["name"].as_str().unwrap().contains("lora_A")));
    // A part is told as the whole that it belongs to, and a folder as PEFT writes it as the LoRA in it.
    let state = own.place.path("run/checkpoints/checkpoint-00000002/state.safetensors");
    assert_eq!(told(&state, &[])["title"], "checkpoint of a run");
    assert_eq!(told(&own.place.path("run/checkpoints"), &[])["title"], "training run");
    let found = told(&own.place.path("run/recipe.yaml"), &[]);
    assert_eq!(
        (found["title"].as_str(), facts(&found, "method")),
        (Some("recipe"), vec!["finetune".to_owned()])
    );
    let adapter = own.place.path("adapter");
    std::fs::create_dir(&adapter).unwrap();
    std::fs::copy(
        own.place.path("diffusers.safetensors"),
        adapter.join("adapter_model.safetensors"),
    )
    .unwrap();
    assert_eq!(told(&adapter, &[])["title"], "LoRA");
    let output = run(&["inspect", own.place.path("clips").to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("moviola doctor --data"));
    let vae = goldens().join("wan-tiny/vae/diffusion_pytorch_model.safetensors");
    let found = told(&vae, &[]);
    assert_eq!(found["title"], "VAE");
    assert_eq!(facts(&found, "decodes"), ["clips from 4 channels"]);
    let output = run(&["inspect", vae.to_str().unwrap(), "--tensors"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("decoder.conv_in.weight") && text.contains(" x "), "{text}");
}

/// The header of a GGUF file is told, and a torn or hostile one refused.
#[test]
fn gguf_headers() {
    let folder = tempfile::tempdir().unwrap();
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3u32.to_le_bytes());
    bytes.extend([1u64, 1].map(u64::to_le_bytes).concat());
    bytes.extend(text("general.architecture"));
    bytes.extend(8u32.to_le_bytes());
    bytes.extend(text("wan\u{1b}[2J"));
    bytes.extend(text("blocks.0.weight"));
    bytes.extend(2u32.to_le_bytes());
    bytes.extend([64u64, 32].map(u64::to_le_bytes).concat());
    bytes.extend(14u32.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, &bytes).unwrap();
    let output = run(&["inspect", path.to_str().unwrap(), "--tensors"]);
    let said = String::from_utf8(output.stdout).unwrap();
    for word in ["GGUF file", "q6_k (1)", "general.architecture: wan\\u{1b}", "32 x 64"] {
        assert!(said.contains(word), "no `{word}` in {said}");
    }
    assert!(!said.contains('\u{1b}'), "no control character reaches the terminal");
    for (name, bytes) in [
        ("torn.gguf", bytes[..40].to_vec()),
        ("huge.gguf", [&bytes[..8], &[0xff; 16], &bytes[24..]].concat()),
        ("other.gguf", b"GGML1234".to_vec()),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let output = run(&["inspect", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2), "{name}");
    }
}

/// Shells complete every command, and each has its page.
#[test]
fn completions_and_manual() {
    for shell in ["bash", "zsh", "fish"] {
        let text = String::from_utf8(run(&["completions", shell]).stdout).unwrap();
        for word in ["generate", "preprocess", "num-inference-steps", "resume"] {
            assert!(text.contains(word), "{shell} lacks {word}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    assert!(run(&["man", pages.to_str().unwrap()]).status.success());
    let page = std::fs::read_to_string(pages.join("moviola-generate.1")).unwrap();
    assert!(page.contains(".TH") && page.contains("prompt"), "{page}");
    assert!(pages.join("moviola.1").is_file() && pages.join("moviola-train.1").is_file());
}
