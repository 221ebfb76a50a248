//! The configs of the published Wan transformers, and those that are refused.

use models::dit::wan::{PictureConfig, WanConfig};

/// What the published files share, then the given keys.
fn json(keys: &str) -> String {
    format!(
        r#"{{"_class_name": "WanTransformer3DModel", "_diffusers_version": "0.33.0",
        "attention_head_dim": 128, "cross_attn_norm": true, "eps": 1e-06, "freq_dim": 256,
        "patch_size": [1, 2, 2], "qk_norm": "rms_norm_across_heads", "rope_max_seq_len": 1024,
        "text_dim": 4096, "window_size": [-1, -1], {keys}}}"#
    )
}

#[test]
fn the_published_models_are_read() {
    let small = r#""num_attention_heads": 12, "ffn_dim": 8960, "num_layers": 30,
        "in_channels": 16, "out_channels": 16, "image_dim": null, "added_kv_proj_dim": null"#;
    let config = WanConfig::from_json(&json(small)).unwrap();
    assert_eq!(config, WanConfig::t2v_1_3b());
    assert_eq!((config.width(), config.pairs()), (1536, [22, 21, 21]));

    let wide = r#""num_attention_heads": 40, "ffn_dim": 13824, "num_layers": 40, "in_channels": 36,
        "out_channels": 16, "added_kv_proj_dim": 5120, "image_dim": 1280"#;
    let image = WanConfig::from_json(&json(wide)).unwrap();
    assert_eq!(image.picture, Some(PictureConfig { width: 1280, tokens: None }));
    let frames = WanConfig::from_json(&json(&format!(r#"{wide}, "pos_embed_seq_len": 514"#)));
    assert_eq!(frames.unwrap().picture, Some(PictureConfig { width: 1280, tokens: Some(514) }));

    // Defaults are those of the library: Wan 14B.
    let bare = WanConfig::from_json("{}").unwrap();
    let in_channels = 16;
    assert_eq!(bare, WanConfig { in_channels, picture: None, ..image });
}

/// `null` is not the default: it means what comes in.
#[test]
fn outputs_may_be_as_many_as_inputs() {
    let read = |keys: &str| WanConfig::from_json(keys).unwrap().out_channels;
    assert_eq!(read(r#"{"in_channels": 48, "out_channels": null}"#), 48);
    assert_eq!(read(r#"{"in_channels": 48}"#), 16);
}

#[test]
fn what_is_not_supported_is_named() {
    for (text, parts) in [
        (
            r#"{"_class_name": "WanVACETransformer3DModel"}"#,
            ["_class_name", "WanTransformer3DModel"],
        ),
        (r#"{"qk_norm": "layer_norm"}"#, ["qk_norm", "rms_norm_across_heads"]),
        (r#"{"patch_size": [2, 2]}"#, ["patch_size", "[2,2]"]),
        (r#"{"patch_size": [1, 0, 2]}"#, ["patch_size", "from 1"]),
        (r#"{"num_layers": 0}"#, ["num_layers", "from 1"]),
        (r#"{"attention_head_dim": 9}"#, ["attention_head_dim", "even"]),
        (r#"{"image_dim": 1280}"#, ["added_kv_proj_dim", "5120"]),
        (r#"{"image_dim": 1280, "added_kv_proj_dim": 64}"#, ["64", "5120"]),
        (r#"{"added_kv_proj_dim": 5120}"#, ["added_kv_proj_dim", "image_dim is null"]),
        (r#"{"patch_size": 2}"#, ["transformer/config.json", "lists of whole numbers"]),
        ("[", ["transformer/config.json", "EOF"]),
    ] {
        let message = WanConfig::from_json(text).unwrap_err().to_string();
        assert!(parts.iter().all(|part| message.contains(part)), "{text}: {message}");
    }
}
