//! Whole Wan runs equal diffusers' from the same noise, and what Wan refuses.

use std::fs;

use serde_json::Value;

use crate::folder::{Copy, Tensors, distance, goldens, read, values, write};

struct Golden {
    tensors: Tensors,
    cases: Value,
}

fn golden() -> Golden {
    let path = goldens().join("wan_pipeline.safetensors");
    let bytes = fs::read(&path).unwrap();
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let config: Value =
        serde_json::from_str(&header.metadata().as_ref().unwrap()["config"]).unwrap();
    Golden { tensors: read(&path), cases: config["cases"].clone() }
}

const EULER: &str = r#"{"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 5.0}"#;

/// A copy of the case's folder and the arguments of its request.
fn prepare(golden: &Golden, name: &str) -> (Copy, Vec<String>) {
    let case = &golden.cases[name];
    let copy = Copy::of(case["folder"].as_str().unwrap());
    if case["scheduler"] == "euler" {
        fs::write(copy.path("model/scheduler/scheduler_config.json"), EULER).unwrap();
    }
    let noise = copy.path("given-noise.safetensors");
    let tensor = golden.tensors[&format!("{name}.noise")].clone();
    write(&noise, &[("noise".to_owned(), tensor)].into());
    let mut arguments = Vec::new();
    let mut add = |key: &str, value: String| arguments.extend([format!("--{key}"), value]);
    for key in ["prompt", "negative"] {
        add(key, case[key].as_str().unwrap().to_owned());
    }
    for key in ["steps", "guidance", "height", "width", "frames"] {
        add(key, case[key].to_string());
    }
    add("max-tokens", case["tokens"].to_string());
    if let Some(image) = case["image"].as_str() {
        add("image", goldens().join(image).to_str().unwrap().to_owned());
        // As diffusers does it.
        add("fit", "stretch".to_owned());
    }
    add("noise", noise.to_str().unwrap().to_owned());
    add("save-latents", copy.path("latents.safetensors").to_str().unwrap().to_owned());
    (copy, arguments)
}

/// Runs into `output` and returns the final latents.
fn run(copy: &Copy, arguments: &[String], output: &str, more: &[&str]) -> Vec<f32> {
    let mut all: Vec<&str> = arguments.iter().map(String::as_str).collect();
    all.extend(more);
    let done = copy.generate_to(output, &all);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    values(&read(&copy.path("latents.safetensors"))["latents"])
}

#[test]
fn every_pipeline_case_equals_diffusers() {
    let golden = golden();
    for name in golden.cases.as_object().unwrap().keys() {
        let (copy, arguments) = prepare(&golden, name);
        let latents = run(&copy, &arguments, "out.safetensors", &[]);
        let off = distance(&latents, &values(&golden.tensors[&format!("{name}.latents")]));
        assert!(off < 1e-4, "{name}: latents are off by {off:.2e}");
        let frames = values(&read(&copy.path("out.safetensors"))["frames"]);
        let off = distance(&frames, &values(&golden.tensors[&format!("{name}.frames")]));
        assert!(off < 1e-4, "{name}: frames are off by {off:.2e}");
    }
}

#[test]
fn in_bf16_latents_stay_close() {
    let golden = golden();
    for name in golden.cases.as_object().unwrap().keys() {
        let (copy, arguments) = prepare(&golden, name);
        let latents = run(&copy, &arguments, "out.png", &["--dtype", "bf16"]);
        let off = distance(&latents, &values(&golden.tensors[&format!("{name}.latents")]));
        assert!(off < 3e-2, "{name}: latents are off by {off:.2e}");
    }
}

#[test]
fn threads_offload_and_the_kind_of_file_change_nothing() {
    let golden = golden();
    let (copy, arguments) = prepare(&golden, "experts");
    let plain = run(&copy, &arguments, "out.png", &["--threads", "1"]);
    assert_eq!(run(&copy, &arguments, "out.gif", &["--threads", "3"]), plain);
    assert_eq!(run(&copy, &arguments, "frames", &["--offload"]), plain);
    assert_eq!(run(&copy, &arguments, "out.mp4", &["--fps", "24"]), plain);
    assert_eq!(fs::read_dir(copy.path("frames")).unwrap().count(), 5);
    for file in
        ["out.png", "out.png.json", "out.gif.json", "out.mp4", "out.mp4.json", "frames.json"]
    {
        assert!(copy.path(file).is_file(), "{file}");
    }
}

/// The same low-rank change in two dialects is the same change, and it is one.
#[test]
fn a_lora_changes_the_clip_alike_in_every_dialect() {
    let golden = golden();
    let (copy, arguments) = prepare(&golden, "one_frame");
    let plain = run(&copy, &arguments, "out.png", &[]);
    let matrix = |rows: usize, columns: usize| {
        let bytes = (0..rows * columns).flat_map(|i| ((i % 7) as f32 * 0.1 - 0.3).to_le_bytes());
        (safetensors::Dtype::F32, vec![rows, columns], bytes.collect::<Vec<u8>>())
    };
    let alpha = (safetensors::Dtype::F32, vec![], 2f32.to_le_bytes().to_vec());
    let diffusers = "transformer.blocks.0.attn1.to_q";
    let comfy = "diffusion_model.blocks.0.self_attn.q";
    let kohya = "lora_unet_blocks_0_self_attn_q";
    let peft = "base_model.model.blocks.0.attn1.to_q";
    let dialects = [
        (diffusers, ["lora_A", "lora_B"]),
        (peft, ["lora_A", "lora_B"]),
        (comfy, ["lora_down", "lora_up"]),
        (kohya, ["lora_down", "lora_up"]),
    ];
    let path = copy.path("given-lora.safetensors");
    let found = dialects.map(|(module, [down, up])| {
        let file = [
            (format!("{module}.{down}.weight"), matrix(2, 24)),
            (format!("{module}.{up}.weight"), matrix(24, 2)),
            (format!("{module}.alpha"), alpha.clone()),
        ];
        write(&path, &file.into());
        let lora = format!("{}:0.5", path.display());
        run(&copy, &arguments, "out.png", &["--lora", &lora])
    });
    assert!(found.iter().all(|latents| *latents == found[0]), "dialects differ");
    assert!(distance(&found[0], &plain) > 1e-3, "the LoRA changes nothing");
}

#[test]
fn what_does_not_fit_is_refused() {
    let golden = golden();
    let (copy, arguments) = prepare(&golden, "one_frame");
    let small = ["--prompt", "a fox", "--steps", "1", "--height", "16", "--width", "16"];
    let refuses = |copy: &Copy, arguments: &[&str], word: &str| {
        let done = copy.generate_to("out.mp4", &[&small[..], arguments].concat());
        let text = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(2), "{arguments:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains(word), "{arguments:?}: {text}");
        assert_eq!(copy.written(), Vec::<String>::new());
    };
    drop(arguments);
    refuses(&copy, &["--frames", "8"], "the nearest is 5 or 9");
    refuses(&copy, &["--frames", "0"], "the nearest is 1");
    let photo = goldens().join("pictures/photo.png");
    let photo = photo.to_str().unwrap();
    refuses(&copy, &["--frames", "5", "--image", photo], "prompts alone");
    refuses(&copy, &["--frames", "5", "--guidance-2", "3"], "one expert");
    refuses(&copy, &["--frames", "5", "--fps", "0"], "0");
    refuses(&copy, &["--frames", "5", "--eta", "0.5"], "--eta");
    let text = copy.path("given-text.png");
    fs::write(&text, "no picture").unwrap();
    let i2v = Copy::of("wan-tiny-i2v");
    refuses(&i2v, &["--frames", "5"], "--image: this model makes clips from a picture; give one");
    refuses(&i2v, &["--frames", "5", "--image", text.to_str().unwrap()], "not a picture");
    let lora = copy.path("given-lora.safetensors");
    let stray = (safetensors::Dtype::F32, vec![2, 24], vec![0; 192]);
    let key = "transformer.transformer_blocks.0.attn1.to_q.lora_A.weight".to_owned();
    write(&lora, &[(key, stray)].into());
    refuses(&copy, &["--frames", "5", "--lora", lora.to_str().unwrap()], "belongs to this model");
}
