//! The `config.json` of published models, key by key: all of them are read, and no misspelt key
//! of theirs passes for a default.

use models::dit::duet::DuetConfig;
use models::dit::pixart::PixartConfig;
use models::dit::wan::WanConfig;
use models::text::t5::T5Config;
use models::vae::kl::KlConfig;
use models::vae::wan::WanVaeConfig;
use models::vision::clip::ClipVisionConfig;
use serde_json::{Value, json};

/// A reader, without what it read.
type Reader = fn(&str) -> nn::Result<()>;

const PIXART: Reader = |text| PixartConfig::from_json(text).map(drop);
const WAN: Reader = |text| WanConfig::from_json(text).map(drop);
const DUET: Reader = |text| DuetConfig::from_json(text).map(drop);
const KL: Reader = |text| KlConfig::from_json(text).map(drop);
const WAN_VAE: Reader = |text| WanVaeConfig::from_json(text).map(drop);
const T5: Reader = |text| T5Config::from_json(text).map(drop);
const CLIP: Reader = |text| ClipVisionConfig::from_json(text).map(drop);

/// PixArt-XL-2 at a sample size, as the hub has it.
fn pixart(sample_size: usize) -> Value {
    json!({
        "_class_name": "Transformer2DModel", "_diffusers_version": "0.22.0.dev0",
        "activation_fn": "gelu-approximate", "attention_bias": true, "attention_head_dim": 72,
        "attention_type": "default", "caption_channels": 4096, "cross_attention_dim": 1152,
        "double_self_attention": false, "dropout": 0.0, "in_channels": 4,
        "norm_elementwise_affine": false, "norm_eps": 1e-6, "norm_num_groups": 32,
        "norm_type": "ada_norm_single", "num_attention_heads": 16, "num_embeds_ada_norm": 1000,
        "num_layers": 28, "num_vector_embeds": null, "only_cross_attention": false,
        "out_channels": 8, "patch_size": 2, "sample_size": sample_size, "upcast_attention": false,
        "use_linear_projection": false,
    })
}

/// The same as today's diffusers writes it.
fn pixart_today() -> Value {
    json!({
        "_class_name": "PixArtTransformer2DModel", "_diffusers_version": "0.42.1",
        "_name_or_path": "PixArt-alpha/PixArt-XL-2-1024-MS", "activation_fn": "gelu-approximate",
        "attention_bias": true, "attention_head_dim": 72, "attention_type": "default",
        "caption_channels": 4096, "cross_attention_dim": 1152, "dropout": 0.0, "in_channels": 4,
        "interpolation_scale": null, "norm_elementwise_affine": false, "norm_eps": 1e-6,
        "norm_num_groups": 32, "norm_type": "ada_norm_single", "num_attention_heads": 16,
        "num_embeds_ada_norm": 1000, "num_layers": 28, "out_channels": 8, "patch_size": 2,
        "sample_size": 128, "upcast_attention": false, "use_additional_conditions": null,
    })
}

/// A Wan transformer of these heads, blocks and widths.
fn wan(heads: usize, depth: usize, feed: usize, channels: [usize; 2], image: [Value; 2]) -> Value {
    let [image_dim, added] = image;
    json!({
        "_class_name": "WanTransformer3DModel", "_diffusers_version": "0.35.0.dev0",
        "added_kv_proj_dim": added, "attention_head_dim": 128, "cross_attn_norm": true,
        "eps": 1e-6, "ffn_dim": feed, "freq_dim": 256, "image_dim": image_dim,
        "in_channels": channels[0], "num_attention_heads": heads, "num_layers": depth,
        "out_channels": channels[1], "patch_size": [1, 2, 2], "pos_embed_seq_len": null,
        "qk_norm": "rms_norm_across_heads", "rope_max_seq_len": 1024, "text_dim": 4096,
    })
}

/// The VAE of Stable Diffusion, which PixArt has too.
fn kl() -> Value {
    json!({
        "_class_name": "AutoencoderKL", "_diffusers_version": "0.22.0.dev0",
        "_name_or_path": "stabilityai/sd-vae-ft-ema", "act_fn": "silu",
        "block_out_channels": [128, 256, 512, 512],
        "down_block_types": ["DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D",
            "DownEncoderBlock2D"],
        "force_upcast": true, "in_channels": 3, "latent_channels": 4, "layers_per_block": 2,
        "norm_num_groups": 32, "out_channels": 3, "sample_size": 256, "scaling_factor": 0.18215,
        "up_block_types": ["UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D",
            "UpDecoderBlock2D"],
    })
}

/// The VAE of Wan 2.1.
fn wan_vae() -> Value {
    json!({
        "_class_name": "AutoencoderKLWan", "_diffusers_version": "0.33.0.dev0", "attn_scales": [],
        "base_dim": 96, "dim_mult": [1, 2, 4, 4], "dropout": 0.0, "latents_mean": vec![0.1; 16],
        "latents_std": vec![2.0; 16], "num_res_blocks": 2, "temperal_downsample": [false, true, true],
        "z_dim": 16,
    })
}

/// The VAE of Wan 2.2 with 5 billion parameters.
fn wan_vae_residual() -> Value {
    json!({
        "_class_name": "AutoencoderKLWan", "_diffusers_version": "0.35.0.dev0", "attn_scales": [],
        "base_dim": 160, "clip_output": false, "decoder_base_dim": 256, "dim_mult": [1, 2, 4, 4],
        "dropout": 0.0, "in_channels": 12, "is_residual": true, "latents_mean": vec![0.1; 48],
        "latents_std": vec![2.0; 48], "num_res_blocks": 2, "out_channels": 12, "patch_size": 2,
        "scale_factor_spatial": 16, "scale_factor_temporal": 4,
        "temperal_downsample": [false, true, true], "z_dim": 48,
    })
}

/// T5-XXL v1.1 and UMT5-XXL.
fn t5(family: &str, vocabulary: usize) -> Value {
    json!({
        "_name_or_path": "google/xxl", "architectures": ["EncoderModel"],
        "classifier_dropout": 0.0, "d_ff": 10240, "d_kv": 64, "d_model": 4096,
        "decoder_start_token_id": 0, "dense_act_fn": "gelu_new", "dropout_rate": 0.1,
        "eos_token_id": 1, "feed_forward_proj": "gated-gelu", "initializer_factor": 1.0,
        "is_encoder_decoder": true, "is_gated_act": true, "layer_norm_epsilon": 1e-6,
        "model_type": family, "num_decoder_layers": 24, "num_heads": 64, "num_layers": 24,
        "output_past": true, "pad_token_id": 0, "relative_attention_max_distance": 128,
        "relative_attention_num_buckets": 32, "scalable_attention": true,
        "tie_word_embeddings": false, "tokenizer_class": "T5Tokenizer", "torch_dtype": "bfloat16",
        "transformers_version": "4.44.2", "use_cache": true, "vocab_size": vocabulary,
    })
}

/// The image encoder of Wan 2.1.
fn clip() -> Value {
    json!({
        "_name_or_path": "laion/CLIP-ViT-H-14", "architectures": ["CLIPVisionModel"],
        "attention_dropout": 0.0, "dropout": 0.0, "hidden_act": "gelu", "hidden_size": 1280,
        "image_size": 224, "initializer_factor": 1.0, "initializer_range": 0.02,
        "intermediate_size": 5120, "layer_norm_eps": 1e-5, "model_type": "clip_vision_model",
        "num_attention_heads": 16, "num_channels": 3, "num_hidden_layers": 32, "patch_size": 14,
        "projection_dim": 1024, "torch_dtype": "float32", "transformers_version": "4.48.0.dev0",
    })
}

/// The same with all that version 4 wrote into the config of a part of a model.
fn clip_in_full() -> Value {
    let mut config = clip();
    for key in "add_cross_attention bad_words_ids begin_suppress_tokens bos_token_id \
                chunk_size_feed_forward cross_attention_hidden_size decoder_start_token_id \
                diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size \
                eos_token_id exponential_decay_length_penalty finetuning_task \
                forced_bos_token_id forced_eos_token_id id2label is_decoder is_encoder_decoder \
                label2id length_penalty max_length min_length no_repeat_ngram_size \
                num_beam_groups num_beams num_return_sequences output_attentions \
                output_hidden_states output_scores pad_token_id prefix problem_type \
                remove_invalid_values repetition_penalty return_dict return_dict_in_generate \
                sep_token_id suppress_tokens task_specific_params temperature tf_legacy_loss \
                tie_encoder_decoder tie_word_embeddings tokenizer_class top_k top_p torchscript \
                typical_p use_bfloat16"
        .split_whitespace()
    {
        config[key] = json!(1);
    }
    config["pruned_heads"] = json!({});
    config
}

fn duet() -> Value {
    json!({
        "_class_name": "DuetTransformer", "heads": 6, "head_width": 32, "depth": 4,
        "feed_factor": 2, "video_channels": 48, "audio_channels": null, "audio_rate": 32.0,
        "text_width": 64, "prediction": "clean",
    })
}

fn published() -> Vec<(&'static str, Reader, Value)> {
    let null = || [Value::Null, Value::Null];
    vec![
        ("PixArt-XL-2-512x512", PIXART, pixart(64)),
        ("PixArt-XL-2-1024-MS", PIXART, pixart(128)),
        ("PixArt as it is written today", PIXART, pixart_today()),
        ("Wan2.1-T2V-1.3B", WAN, wan(12, 30, 8960, [16, 16], null())),
        ("Wan2.1-I2V-14B-480P", WAN, wan(40, 40, 13824, [36, 16], [json!(1280), json!(5120)])),
        ("Wan2.2-TI2V-5B", WAN, wan(24, 30, 14336, [48, 48], null())),
        ("Wan2.2-I2V-A14B", WAN, wan(40, 40, 13824, [36, 16], null())),
        ("AutoencoderKL", KL, kl()),
        ("AutoencoderKLWan 2.1", WAN_VAE, wan_vae()),
        ("AutoencoderKLWan 2.2", WAN_VAE, wan_vae_residual()),
        ("T5-XXL v1.1", T5, t5("t5", 32_128)),
        ("UMT5-XXL", T5, t5("umt5", 256_384)),
        ("CLIP-ViT-H", CLIP, clip()),
        ("CLIP-ViT-H in full", CLIP, clip_in_full()),
        ("Duet", DUET, duet()),
    ]
}

#[test]
fn the_configs_of_published_models_are_read() {
    for (name, read, config) in published() {
        read(&config.to_string()).unwrap_or_else(|err| panic!("{name}: {err}"));
    }
}

/// Every key of every model, with a letter too many: none of them may mean a default.
#[test]
fn a_misspelt_key_is_refused_with_the_nearest() {
    for (name, read, config) in published() {
        let keys = config.as_object().unwrap().keys().filter(|key| !key.starts_with('_'));
        for key in keys {
            let mut planted = config.clone();
            let value = planted.as_object_mut().unwrap().remove(key).unwrap();
            let misspelt = format!("{key}x");
            planted[&misspelt] = value;
            let Err(error) = read(&planted.to_string()) else {
                panic!("{name}: `{misspelt}` for `{key}` was read")
            };
            // A key without a default is missing, and its misspelling is not looked at any more.
            let missing = format!("`{key}` is missing");
            let unknown = format!("unknown key `{misspelt}`; the nearest known one is `{key}`");
            let error = error.to_string();
            assert!(error.contains(&unknown) || error.contains(&missing), "{name}: {error}");
        }
    }
}

/// What would be computed otherwise and is not: named, whatever else the file says.
#[test]
fn what_would_change_the_arithmetic_is_refused_by_name() {
    let quantized = json!({"bits": 8});
    let cases = [
        (PIXART, pixart(64), "num_vector_embeds", json!(8)),
        (PIXART, pixart(64), "attention_bias", json!(false)),
        (PIXART, pixart(64), "attention_bias", Value::Null),
        (PIXART, pixart(64), "norm_type", json!("ada_norm")),
        (PIXART, pixart(64), "caption_channels", Value::Null),
        (
            WAN,
            wan(12, 30, 8960, [16, 16], [Value::Null, Value::Null]),
            "window_size",
            json!([3, 3]),
        ),
        (WAN, wan(12, 30, 8960, [16, 16], [Value::Null, Value::Null]), "vace_layers", json!([0])),
        (KL, kl(), "act_fn", json!("mish")),
        (KL, kl(), "double_z", json!(false)),
        (WAN_VAE, wan_vae(), "attn_scales", json!([0.5])),
        (T5, t5("t5", 9), "pruned_heads", json!({"0": [1]})),
        (T5, t5("t5", 9), "model_type", json!("mt5")),
        (CLIP, clip(), "pruned_heads", json!({"0": [1]})),
        (CLIP, clip(), "hidden_act", json!("relu")),
        (DUET, duet(), "qk_norm", json!(false)),
        (DUET, duet(), "prediction", json!("noise")),
    ];
    let readers = [
        (PIXART, pixart(64)),
        (WAN, wan(12, 30, 8960, [16, 16], [Value::Null, Value::Null])),
        (KL, kl()),
        (WAN_VAE, wan_vae()),
        (T5, t5("t5", 9)),
        (CLIP, clip()),
    ];
    let quantized = readers
        .into_iter()
        .map(|(read, config)| (read, config, "quantization_config", quantized.clone()));
    for (read, mut config, key, value) in cases.into_iter().chain(quantized) {
        config[key] = value.clone();
        let error = read(&config.to_string()).expect_err(key).to_string();
        assert!(error.contains(&format!("`{key}`")), "{key} {value}: {error}");
    }
}

/// What a Duet writes is what it reads, whether as a file or in a recipe.
#[test]
fn a_duet_reads_what_it_writes() {
    let config = DuetConfig { depth: 7, audio_channels: Some(5), ..DuetConfig::new(4, None, 3) };
    let text = serde_json::to_string(&config).unwrap();
    assert_eq!(DuetConfig::from_json(&text).unwrap(), config);
    assert_eq!(serde_json::from_str::<DuetConfig>(&text).unwrap(), config);
    let keys = serde_json::to_value(&config).unwrap();
    let bare = r#"{"video_channels": 4, "text_width": 3}"#;
    let [file, recipe] =
        [DuetConfig::from_json(bare).unwrap(), serde_json::from_str(bare).unwrap()];
    assert_eq!(file, recipe);
    assert_eq!(keys.as_object().unwrap().len(), duet().as_object().unwrap().len());
}
