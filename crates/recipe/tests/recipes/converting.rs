//! Every key of a config is mapped, left out by name or refused by name.

use recipe::{Converted, Places, Result, convert};
use serde_json::{Value, json};

/// A config with every section, numbers as PyYAML takes them for texts.
const WHOLE: &str = "
model: { model_path: models/two.safetensors, text_encoder_path: gemma, training_mode: lora, load_checkpoint: null }
lora: { rank: 32, alpha: 16, dropout: 0.1, target_modules: [attn1.to_k, ff.net.2] }
training_strategy:
  name: flexible
  video:
    is_generated: true
    latents_dir: latents
    conditions:
      - { type: reference, latents_dir: reference_latents }
      - { type: first_frame, probability: 0.2 }
      - { type: prefix, temporal_boundary: 8, probability: 0.5 }
      - { type: spatial_crop, spatial_region: [0, 32, 288, 576] }
      - { type: mask, mask_dir: video_masks }
  audio: { is_generated: false, latents_dir: audio_latents }
optimization:
  learning_rate: 1e-4
  steps: 2000
  batch_size: 1
  gradient_accumulation_steps: 2
  max_grad_norm: 0.0
  optimizer_type: adamw
  scheduler_type: linear
  scheduler_params: {}
  enable_gradient_checkpointing: true
acceleration: { mixed_precision_mode: bf16, quantization: null, load_text_encoder_in_8bit: false, offload_optimizer_during_validation: false }
data: { preprocessed_data_root: /clips/ready/, num_dataloader_workers: 3 }
validation:
  samples:
    - { prompt: one, conditions: [{ type: reference, video: a.mp4, downscale_factor: 2, include_in_output: true }] }
    - { prompt: two, conditions: [{ type: reference, video: b.mp4 }] }
  negative_prompt: blurry
  video_dims: [960, 544, 89]
  interval: 50
  video_cfg_scale: 4.0
  audio_cfg_scale: 7.0
checkpoints: { interval: 250, keep_last_n: -1, precision: bfloat16 }
flow_matching: { timestep_sampling_mode: shifted_logit_normal, timestep_sampling_params: { std: 1.5 } }
hub: { push_to_hub: false, hub_model_id: null }
wandb: { enabled: false, project: p, entity: null, tags: [a], log_validation_videos: true }
seed: 7
output_dir: outputs/one
";

fn converted(text: &str) -> Result<Converted> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    std::fs::write(&path, text).unwrap();
    convert(&path, &Places::default())
}

fn refusal(text: &str) -> String {
    converted(text).err().expect("a refusal").to_string()
}

/// The smallest config, with something more.
fn small(more: &str) -> String {
    format!(
        "model: {{ model_path: two.safetensors }}\nlora: {{ rank: 8 }}\ndata: {{ preprocessed_data_root: ready }}\n{more}"
    )
}

#[test]
fn a_whole_config_becomes_a_recipe() {
    let Converted { recipe, yaml, left_out } = converted(WHOLE).unwrap();
    let made: Value = recipe.resolved().unwrap();
    for (path, want) in [
        ("/models/student/from", json!("models")),
        ("/models/student/weights", json!("models/two.safetensors")),
        ("/models/student/learns/rank", json!(32)),
        ("/models/student/learns/alpha", json!(16.0)),
        ("/models/student/learns/dropout", json!(0.1)),
        ("/models/student/learns/targets", json!(["attn1.to_k", "ff.net.2"])),
        ("/models/student/rate/peak", json!(1e-4)),
        ("/models/student/rate/decay", json!({ "kind": "linear", "end": 0.1 })),
        ("/models/student/optimizer/weight_decay", json!(0.01)),
        ("/models/student/recompute/kind", json!("per-block")),
        ("/strategy/video/conditions/0/source", json!("ref_latents")),
        ("/strategy/video/conditions/1/probability", json!(0.2)),
        ("/strategy/video/conditions/2/frames", json!(8)),
        ("/strategy/video/conditions/3/rows", json!([0, 288])),
        ("/strategy/video/conditions/3/columns", json!([32, 576])),
        ("/strategy/video/conditions/4/source", json!("mask")),
        ("/strategy/audio/generated", json!(false)),
        ("/strategy/audio/text", json!("text")),
        ("/levels/video/deviation", json!(1.5)),
        ("/levels/video/floor", json!(1e-3)),
        ("/data/source/path", json!("/clips/ready-dataset")),
        ("/data/batch", json!(1)),
        ("/data/prefetch", json!(3)),
        ("/loop/steps", json!(2000)),
        ("/loop/accumulation", json!(2)),
        ("/loop/clip", Value::Null),
        ("/loop/seed", json!(7)),
        ("/checkpoint/every", json!(250)),
        ("/checkpoint/keep_every", json!(250)),
        ("/callbacks/validation/every", json!(50)),
        ("/callbacks/validation/size", json!([89, 544, 960])),
        ("/callbacks/validation/prompts", json!(["one"])),
        ("/callbacks/validation/given/reference", json!("a.mp4")),
        ("/callbacks/validation/guidance", json!(4.0)),
        ("/callbacks/validation/seed", json!(42)),
    ] {
        assert_eq!(made.pointer(path), Some(&want), "{path}");
    }
    let left: Vec<&str> = left_out.iter().map(|(key, _)| key.as_str()).collect();
    for key in [
        "model.text_encoder_path",
        "data.preprocessed_data_root",
        "validation.samples[1]",
        "validation.samples[0].conditions[0].downscale_factor",
        "validation.audio_cfg_scale",
        "checkpoints.precision",
        "acceleration.mixed_precision_mode",
        "output_dir",
    ] {
        assert!(left.contains(&key), "{key} is not among {left:?}");
        assert!(yaml.contains(&format!("# Left out: {key}: ")), "{key} is not said in the file");
    }
}

#[test]
fn what_is_not_written_has_the_other_trainers_default() {
    let made = converted(&small("")).unwrap().recipe.resolved().unwrap();
    for (path, want) in [
        ("/models/student/rate/peak", json!(5e-4)),
        ("/models/student/rate/decay/end", json!(0.1)),
        ("/models/student/learns/targets", json!(["to_k", "to_q", "to_v", "to_out.0"])),
        ("/models/student/recompute/kind", json!("never")),
        ("/strategy/name", json!("text_to_video")),
        ("/strategy/first_frame_probability", json!(0.1)),
        ("/levels/video/kind", json!("shifted_logit_normal")),
        ("/data/batch", json!(2)),
        ("/loop/steps", json!(3000)),
        ("/loop/seed", json!(42)),
        ("/checkpoint/every", json!(0)),
        ("/callbacks/validation", Value::Null),
    ] {
        assert_eq!(made.pointer(path), Some(&want), "{path}");
    }
}

#[test]
fn schedules_fall_as_they_did_there() {
    let decay = |more: &str| {
        let text = small(&format!("optimization: {{ steps: 100, learning_rate: 1e-3, {more} }}"));
        converted(&text).unwrap().recipe.resolved().unwrap()["models"]["student"]["rate"]["decay"]
            .clone()
    };
    assert_eq!(
        decay("scheduler_type: constant, scheduler_params: {}"),
        json!({ "kind": "constant" })
    );
    assert_eq!(decay("scheduler_type: cosine"), json!({ "kind": "cosine", "end": 0.0 }));
    let restarts = decay("scheduler_type: cosine_with_restarts");
    assert_eq!(restarts, json!({ "kind": "cosine-restarts", "cycles": 4, "end": 0.05 }));
    assert_eq!(decay("scheduler_type: polynomial")["power"], json!(1.0));
    let steps = decay("scheduler_type: step, scheduler_params: { step_size: 40, gamma: 0.5 }");
    assert_eq!(steps["steps"], json!([[40, 0.5], [80, 0.25]]));
}

#[test]
fn what_cannot_be_converted_is_named_with_its_place() {
    for (more, want) in [
        ("optimisation: { steps: 3 }", "config.yaml:4:1: `optimisation`: there is no such key"),
        ("optimization: { step: 3 }", "did you mean `optimization.steps`"),
        ("optimization: { steps: many }", "`optimization.steps`: it is text"),
        ("optimization: { optimizer_type: lion }", "`optimization.optimizer_type`: it is `adamw`"),
        ("optimization: { scheduler_params: { T_max: 3 } }", "scheduler_params.T_max`"),
        ("optimization: { scheduler_params: { total_iters: 3 } }", "as long as the run, 3000"),
        ("acceleration: { quantization: int8-quanto }", "`acceleration.quantization`: a model"),
        ("acceleration: { mixed_precision_mode: fp16 }", "computes in f32"),
        ("hub: { push_to_hub: true, hub_model_id: a/b }", "`hub.push_to_hub`: nothing is uploaded"),
        ("training_strategy: { name: other }", "`training_strategy.name`: it is"),
        (
            "training_strategy: { name: flexible, audio: { is_generated: true, latents_dir: audio_latents, \
             conditions: [{ type: reference, latents_dir: reference_audio_latents }] } }",
            "does not read `reference_audio_latents`",
        ),
        (
            "training_strategy: { name: flexible, video: { is_generated: true, latents_dir: latents, \
             conditions: [{ type: prefix, frames: 3 }] } }",
            "there is no key `frames` in `prefix`",
        ),
        ("model: { model_path: a }", "key `model` stands twice in its section"),
        (
            "flow_matching: { timestep_sampling_params: { mean: 3 } }",
            "timestep_sampling_params.mean`",
        ),
    ] {
        let found = refusal(&small(more));
        assert!(found.contains(want), "{more}: {found}");
    }
    let several = refusal("model: { training_mode: some }");
    for key in ["model.model_path", "model.training_mode", "data.preprocessed_data_root"] {
        assert!(several.contains(key), "{several}");
    }
}
