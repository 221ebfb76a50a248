//! What keys are called elsewhere: users of kohya's trainers, musubi-tuner, diffusers' scripts and others
//! search for these names.

/// Names of others, and where the same is said here.
const ELSEWHERE: [(&[&str], &str); 32] = [
    (
        &["learning_rate", "lr", "unet_lr", "optimizer.rate", "optimizer.lr"],
        "models.student.rate.peak",
    ),
    (&["lr_scheduler", "lr_scheduler_type", "scheduler"], "models.student.rate.decay"),
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
    (&["network_weights", "lora_weights"], "models.student.learns.from"),
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
            "validation_steps",
            "eval_steps",
        ],
        "callbacks.validation",
    ),
    (&["use_ema", "ema_decay", "ema"], "callbacks.ema"),
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
