//! What keys are called elsewhere: users of kohya's trainers, musubi-tuner, diffusers' scripts and others
//! search for these names.

/// Names of others, and where the same is said here.
const ELSEWHERE: [(&[&str], &str); 42] = [
    (
        &["learning_rate", "lr", "unet_lr", "optimizer.rate", "optimizer.lr"],
        "models.student.rate.peak",
    ),
    (&["lr_scheduler", "lr_scheduler_type", "scheduler", "lr_power"], "models.student.rate.decay"),
    (&["lr_warmup_steps", "warmup_steps", "num_warmup_steps"], "models.student.rate.warmup"),
    (
        &["lr_scheduler_num_cycles", "lr_num_cycles", "num_cycles"],
        "models.student.rate.decay: {kind: cosine-restarts, cycles: N}",
    ),
    (&["optimizer_type", "optimizer", "optim"], "models.student.optimizer"),
    (&["use_8bit_adam", "use_8bit_adamw"], "models.student.optimizer: {kind: adamw8bit}"),
    (&["adam_beta1", "adam_beta2", "betas"], "models.student.optimizer.betas"),
    (&["adam_weight_decay", "weight_decay"], "models.student.optimizer.weight_decay"),
    (&["adam_epsilon", "eps"], "models.student.optimizer.epsilon"),
    (&["network_dim", "lora_rank", "rank", "lora_r", "r"], "models.student.learns.rank"),
    (&["network_alpha", "lora_alpha", "alpha"], "models.student.learns.alpha"),
    (&["network_dropout", "lora_dropout"], "models.student.learns.dropout"),
    (&["network_weights", "lora_weights", "resume_lora"], "models.student.learns.from"),
    (&["network_module", "network_args", "lora"], "models.student.learns"),
    (&["target_modules", "lora_layers"], "models.student.learns.targets"),
    (
        &["pretrained_model_name_or_path", "model_path", "model", "dit", "base_model"],
        "models.student.from",
    ),
    (&["gradient_checkpointing", "blocks_to_swap"], "models.student.recompute"),
    (&["max_train_steps", "max_steps", "steps", "num_train_steps", "train_steps"], "loop.steps"),
    (
        &["max_train_epochs", "num_train_epochs", "epochs"],
        "loop.steps: steps are counted here, and an epoch is samples / (data.batch x loop.accumulation) of them",
    ),
    (&["gradient_accumulation_steps", "accumulate_grad_batches"], "loop.accumulation"),
    (&["max_grad_norm", "gradient_clip_val", "clip_grad_norm"], "loop.clip"),
    (&["seed"], "loop.seed"),
    (&["train_batch_size", "batch_size", "per_device_train_batch_size"], "data.batch"),
    (
        &["caption_dropout_rate", "cfg_drop", "dropout_prob", "proportion_empty_prompts"],
        "data.caption_dropout",
    ),
    (
        &["dataset_config", "train_data_dir", "instance_data_root", "dataset", "data_root"],
        "data.source.path, a folder that `moviola preprocess` made",
    ),
    (&["num_repeats", "repeats"], "data.source: {kind: mix, of: [{path: .., repeats: N}]}"),
    (
        &[
            "timestep_sampling",
            "weighting_scheme",
            "discrete_flow_shift",
            "flow_shift",
            "sigmoid_scale",
            "logit_mean",
        ],
        "levels.video",
    ),
    (
        &["save_every_n_steps", "save_steps", "checkpointing_steps", "save_every_n_epochs"],
        "checkpoint.every",
    ),
    (&["checkpoints_total_limit", "save_last_n_steps", "save_total_limit"], "checkpoint.keep_last"),
    (
        &[
            "sample_every_n_steps",
            "sample_prompts",
            "validation_prompt",
            "validation_prompts",
            "num_validation_videos",
            "validation_steps",
            "eval_steps",
        ],
        "callbacks.validation",
    ),
    (&["use_ema", "ema_decay", "ema"], "callbacks.ema"),
    (
        &["mixed_precision", "fp8_base", "full_bf16", "precision"],
        "models.student.products: bf16; weights and updates stay f32",
    ),
    (&["timestep_boundary", "dit_high_noise"], "models.student.expert"),
    (&["base_weights", "transformer_weights"], "models.student.weights"),
    (
        &["resolution", "num_frames", "target_frames", "enable_bucket"],
        "not a key of training: --bucket WIDTHxHEIGHTxFRAMES of `moviola preprocess`",
    ),
    (
        &["instance_prompt", "trigger_word"],
        "not a key of training: --trigger of `moviola preprocess`",
    ),
    (&["optimizer_args"], "models.student.optimizer, whose settings are keys of it"),
    (
        &["vae", "t5", "text_encoder"],
        "models.student.from, a folder that has its own VAE and text encoder",
    ),
    (&["max_data_loader_n_workers", "dataloader_num_workers", "num_workers"], "data.prefetch"),
    (
        &["resume_from_checkpoint", "resume"],
        "not a key but an argument: --resume PATH; without it a run goes on by itself",
    ),
    (
        &["report_to", "log_with", "wandb_project"],
        "nothing to switch on: TensorBoard's files are always written, and tools/wandb/bridge.py is for Weights & Biases",
    ),
    (
        &["output_dir", "output_name", "logging_dir"],
        "not a key but an argument: --run DIR, and `moviola export --output`",
    ),
];

/// What to say of an unknown key that is known elsewhere, by its dotted name or by its last part.
pub(crate) fn elsewhere(path: &str) -> Option<&'static str> {
    let last = path.rsplit('.').next().unwrap_or(path);
    let find = |name: &str| {
        let row = ELSEWHERE.iter().find(|(names, _)| names.contains(&name));
        row.map(|(_, here)| *here)
    };
    // What is said here under the same name in another section is no synonym of itself.
    find(path).or_else(|| find(last)).filter(|here| *here != path)
}

/// What to say of a choice that is another here, by the dotted name of its key.
pub(crate) fn chosen_elsewhere(path: &str, name: &str) -> Option<&'static str> {
    match (path, name) {
        ("strategy.name", "image_to_video" | "image-to-video" | "i2v" | "ti2v") => Some(
            "image to video is text_to_video here: of a folder that is shown a picture as it is, of others with \
             first_frame_probability",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{ELSEWHERE, elsewhere};

    #[test]
    fn names_are_known_once() {
        let all: Vec<&str> = ELSEWHERE.iter().flat_map(|(names, _)| *names).copied().collect();
        let distinct: std::collections::BTreeSet<&str> = all.iter().copied().collect();
        assert_eq!(distinct.len(), all.len(), "{all:?}");
        assert_eq!(elsewhere("loop.learning_rate"), Some("models.student.rate.peak"));
        assert_eq!(elsewhere("loop.seed"), None);
        assert_eq!(elsewhere("frobnicate"), None);
    }
}
