//! Whole runs equal diffusers' from the same noise.

use std::fs;

use serde_json::Value;

use crate::folder::{Copy, Tensors, distance, goldens, read, values, write};

struct Golden {
    tensors: Tensors,
    cases: Value,
}

/// PixArt-alpha's cases.
fn golden() -> Golden {
    golden_of("pixart_pipeline")
}

fn golden_of(name: &str) -> Golden {
    let path = goldens().join(format!("{name}.safetensors"));
    let bytes = fs::read(&path).unwrap();
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let config: Value =
        serde_json::from_str(&header.metadata().as_ref().unwrap()["config"]).unwrap();
    Golden { tensors: read(&path), cases: config["cases"].clone() }
}

/// A copy of the case's folder with its scheduler, and the arguments of its request.
fn prepare(golden: &Golden, name: &str) -> (Copy, Vec<String>) {
    let case = &golden.cases[name];
    let copy = Copy::of(case["folder"].as_str().unwrap());
    if case["scheduler"] == "ddim" {
        let scheduler = copy.path("model/scheduler/scheduler_config.json");
        fs::copy(goldens().join("configs/ddim_scheduler.json"), scheduler).unwrap();
    }
    let noise = copy.path("given-noise.safetensors");
    let tensor = golden.tensors[&format!("{name}.noise")].clone();
    // Other keys are ignored.
    let other = tensor.clone();
    write(&noise, &[("noise".to_owned(), tensor), ("other".to_owned(), other)].into());

    let mut arguments = Vec::new();
    let mut add = |key: &str, value: String| arguments.extend([format!("--{key}"), value]);
    for prompt in case["prompts"].as_array().unwrap() {
        add("prompt", prompt.as_str().unwrap().to_owned());
    }
    add("negative", case["negative"].as_str().unwrap().to_owned());
    for key in ["steps", "guidance", "height", "width"] {
        add(key, case[key].to_string());
    }
    add("noise", noise.to_str().unwrap().to_owned());
    add("save-latents", copy.path("latents.safetensors").to_str().unwrap().to_owned());
    (copy, arguments)
}

fn run(copy: &Copy, arguments: &[String], more: &[&str]) -> Vec<f32> {
    let mut all: Vec<&str> = arguments.iter().map(String::as_str).collect();
    all.extend(more);
    let output = copy.generate(&all);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    values(&read(&copy.path("latents.safetensors"))["latents"])
}

/// The pictures as values from 0 to 1 in the order of the golden, `[B, 3, H, W]`.
fn pictures(copy: &Copy, count: usize) -> Vec<f32> {
    let mut all = Vec::new();
    for index in 0..count {
        let name = if count == 1 { "out.png".to_owned() } else { format!("out-{index:03}.png") };
        let image = image::open(copy.path(&name)).unwrap().to_rgb8();
        for channel in 0..3 {
            all.extend(image.pixels().map(|pixel| f32::from(pixel[channel]) / 255.0));
        }
    }
    all
}

#[test]
fn every_pipeline_case_equals_diffusers() {
    for (file, count) in [("pixart_pipeline", 8), ("pixart_sigma_pipeline", 2)] {
        let golden = golden_of(file);
        let names: Vec<String> = golden.cases.as_object().unwrap().keys().cloned().collect();
        assert_eq!(names.len(), count, "{file}");
        names.iter().for_each(|name| equals_diffusers(&golden, name));
    }
}

fn equals_diffusers(golden: &Golden, name: &str) {
    let (copy, arguments) = prepare(golden, name);
    let want = values(&golden.tensors[&format!("{name}.latents")]);
    let off = distance(&run(&copy, &arguments, &[]), &want);
    assert!(off < 1e-4, "{name}: latents are off by {off:.2e} of their std");

    let count = golden.cases[name]["prompts"].as_array().unwrap().len();
    let want = values(&golden.tensors[&format!("{name}.pixels")]);
    for (ours, want) in pictures(&copy, count).iter().zip(&want) {
        // A picture has 256 levels: half of one, and the 1e-3 that is promised.
        assert!((ours - want).abs() < 0.5 / 255.0 + 1e-3, "{name}: a pixel is {ours}, not {want}");
    }
}

#[test]
fn bf16_weights_stay_close() {
    let golden = golden();
    for name in ["dpm_20_guided", "ddim_20_guided", "conditions_dpm_20_guided"] {
        let (copy, arguments) = prepare(&golden, name);
        let want = values(&golden.tensors[&format!("{name}.latents")]);
        let off = distance(&run(&copy, &arguments, &["--dtype", "bf16"]), &want);
        assert!(off < 3e-2, "{name}: latents are off by {off:.2e} of their std");
        assert!(off > 1e-6, "{name}: bf16 changed nothing, so it was not used");
    }
}

#[test]
fn threads_and_offload_change_nothing() {
    let golden = golden();
    let (copy, arguments) = prepare(&golden, "dpm_2_unguided");
    let one = run(&copy, &arguments, &["--threads", "1"]);
    let picture = fs::read(copy.path("out.png")).unwrap();
    for more in [&["--threads", "3"][..], &["--offload"][..], &["--threads", "2", "--offload"][..]]
    {
        assert_eq!(run(&copy, &arguments, more), one, "{more:?}");
        assert_eq!(fs::read(copy.path("out.png")).unwrap(), picture, "{more:?}");
    }
}

/// The same seed gives the same picture alone and among others, and the record repeats it.
#[test]
fn a_seed_is_a_picture() {
    let copy = Copy::of("pixart-tiny");
    let common = ["--steps", "2", "--height", "32", "--width", "48", "--seed", "7"];
    let make = |more: &[&str]| {
        let output = copy.generate(&[&common[..], more].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    make(&["--prompt", "a fox", "--prompt", "an owl", "--count", "2"]);
    let names = ["out-000.png", "out-000.png.json", "out-001.png", "out-001.png.json"];
    assert_eq!(copy.written()[..4], names);
    let several = fs::read(copy.path("out-000.png")).unwrap();
    assert_ne!(several, fs::read(copy.path("out-001.png")).unwrap(), "noise differs by sample");
    make(&["--prompt", "a fox"]);
    assert_eq!(fs::read(copy.path("out.png")).unwrap(), several);

    let record = copy.record("out.png");
    assert_eq!(record["prompt"], "a fox");
    assert_eq!((&record["seed"], &record["steps"]), (&7.into(), &2.into()));
    assert_eq!((&record["height"], &record["width"]), (&32.into(), &48.into()));
}

/// Embeddings given by file are the embeddings the pipeline makes.
#[test]
fn embeddings_can_be_given() {
    let golden = golden();
    let name = "dpm_20_guided";
    let (copy, arguments) = prepare(&golden, name);
    let tensor = |key: &str| golden.tensors[&format!("{name}.{key}")].clone();
    let embeds = copy.path("given-embeds.safetensors");
    let tensors = [
        ("prompt_embeds".to_owned(), tensor("prompt_embeds")),
        ("prompt_attention_mask".to_owned(), tensor("prompt_mask")),
        ("negative_prompt_embeds".to_owned(), tensor("negative_prompt_embeds")),
        ("negative_prompt_attention_mask".to_owned(), tensor("negative_prompt_mask")),
    ];
    write(&embeds, &tensors.into());
    let kept = arguments.chunks(2).filter(|pair| pair[0] != "--prompt" && pair[0] != "--negative");
    let kept: Vec<String> = kept.flatten().cloned().collect();
    let ours = run(&copy, &kept, &["--prompt-embeds", embeds.to_str().unwrap()]);
    let off = distance(&ours, &values(&golden.tensors[&format!("{name}.latents")]));
    assert!(off < 1e-4, "off by {off:.2e}");
}
