//! Models that make video with its sound: what is written, recorded and made again.

use std::fs;

use crate::folder::{Copy, read, values};

const ASKED: [&str; 16] = [
    "--prompt",
    "a golden fox",
    "--height",
    "32",
    "--width",
    "32",
    "--frames",
    "5",
    "--fps",
    "10",
    "--steps",
    "2",
    "--max-tokens",
    "16",
    "--stg-blocks",
    "0,1",
];

/// Guidance is recorded with every default, and a replay makes the same bytes.
#[test]
fn guidance_is_recorded_and_replayed() {
    let copy = Copy::of("ltx2-tiny");
    let latents = copy.path("latents.safetensors");
    let saved = ["--save-latents", latents.to_str().unwrap(), "--cross-timestep", "other"];
    let done = copy.generate_to("out.gif", &[&ASKED[..], &saved].concat());
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let made = read(&latents);
    assert_eq!(made["latents"].1, [1, 4, 2, 2, 2]);
    // Half a second is twelve and a half latents, and the even number is taken.
    assert_eq!(made["audio_latents"].1, [1, 2, 12, 4]);
    assert!(values(&made["audio_latents"]).iter().all(|value| value.is_finite()));
    let more = &copy.record("out.gif")["more_guidance"];
    for (key, want) in [
        ("audio_guidance", 7.0),
        ("stg", 1.0),
        ("modality_guidance", 3.0),
        ("audio_guidance_rescale", 0.7),
    ] {
        assert_eq!(more[key].as_f64(), Some(want), "{key}");
    }
    assert_eq!(more["stg_blocks"], serde_json::json!([0, 1]));
    assert_eq!(more["cross_timestep"], "other");
    let record = copy.path("out.gif.json");
    let again = crate::folder::run(&[
        "generate",
        "--replay",
        record.to_str().unwrap(),
        "--output",
        copy.path("again.gif").to_str().unwrap(),
    ]);
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    for ending in ["gif", "wav"] {
        let bytes = |name: &str| fs::read(copy.path(&format!("{name}.{ending}"))).unwrap();
        assert_eq!(bytes("again"), bytes("out"), "{ending}");
    }
    let wave = data::media::Waveform::read(&copy.path("out.wav")).unwrap();
    assert_eq!((wave.channels, wave.sample_rate), (2, 800));
}

/// An option of a two-stream model is refused by one that has a scale alone.
#[test]
fn other_models_refuse_it_by_the_name_of_the_flag() {
    let copy = Copy::of("wan-tiny");
    for (flag, value) in [("--stg", "1"), ("--audio-guidance", "3"), ("--cross-timestep", "own")] {
        let done = copy.generate(&["--prompt", "a fox", flag, value]);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(!done.status.success() && said.contains(flag), "{said}");
    }
}

/// A file of LTX-2's own code, with its own names and its other parts, is the same transformer.
#[test]
fn a_single_file_of_the_original_is_the_same_model() {
    let copy = Copy::of("ltx23-tiny");
    let weights = read(&copy.path("model/transformer/diffusion_pytorch_model.safetensors"));
    let renames = [
        ("audio_proj_in.", "audio_patchify_proj."),
        ("proj_in.", "patchify_proj."),
        ("audio_time_embed.", "audio_adaln_single."),
        ("time_embed.", "adaln_single."),
        ("audio_prompt_adaln.", "audio_prompt_adaln_single."),
        ("prompt_adaln.", "prompt_adaln_single."),
        ("av_cross_attn_video_scale_shift.", "av_ca_video_scale_shift_adaln_single."),
        ("av_cross_attn_audio_scale_shift.", "av_ca_audio_scale_shift_adaln_single."),
        ("av_cross_attn_video_a2v_gate.", "av_ca_a2v_gate_adaln_single."),
        ("av_cross_attn_audio_v2a_gate.", "av_ca_v2a_gate_adaln_single."),
    ];
    let original = |name: &str| {
        let root = renames.iter().find(|(from, _)| name.starts_with(from));
        let name = root.map_or(name.to_owned(), |(from, to)| name.replacen(from, to, 1));
        let name = name
            .replace("video_a2v_cross_attn_scale_shift_table", "scale_shift_table_a2v_ca_video")
            .replace("audio_a2v_cross_attn_scale_shift_table", "scale_shift_table_a2v_ca_audio")
            .replace(".norm_q.", ".q_norm.")
            .replace(".norm_k.", ".k_norm.");
        format!("model.diffusion_model.{name}")
    };
    let mut file: crate::folder::Tensors =
        weights.iter().map(|(name, own)| (original(name), own.clone())).collect();
    assert!(file.keys().all(|name| !weights.contains_key(name)));
    let any = weights.values().next().unwrap().clone();
    file.insert("vae.decoder.conv_in.weight".to_owned(), any.clone());
    file.insert(
        "model.diffusion_model.video_embeddings_connector.learnable_registers".to_owned(),
        any,
    );
    crate::folder::write(&copy.path("single.safetensors"), &file);
    let asked = [&ASKED[..14], &["--stg", "0", "--audio-stg", "0"]].concat();
    let latents = copy.path("latents.safetensors");
    let saved = ["--save-latents", latents.to_str().unwrap()];
    let run = |more: &[&str]| {
        let done = copy.generate_to("out.gif", &[&asked[..], &saved, more].concat());
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        values(&read(&latents)["latents"])
    };
    let own = run(&[]);
    let single = copy.path("single.safetensors");
    assert_eq!(run(&["--transformer", single.to_str().unwrap()]), own);
}
