//! LTX-2: text, pictures and sound to video with its sound.
//!
//! One description serves LTX-2.0 and 2.3. What differs between them is data: who projects captions, whether
//! attention is gated, and which vocoder there is. A caption is embedded once for both streams, the video's part
//! first.

use std::sync::Arc;

use diffusion::{
    AudioClock, Coordinates, Geometry, Grouping, Process, SchedulerConfig, Terms, Time,
};
use folder::{Error, ModelFolder, agree};
use models::dit::ltx2::{CrossLevels, Ltx2, Ltx2Config};
use models::sound::{SoundCodec, SpectrogramCodec};
use models::vae::Vae;
use models::vae::ltx2_upsampler::Ltx2Upsampler;
use models::vae::ltx2_video::{AutoencoderKlLtx2Video, Ltx2VideoVaeConfig};
use nn::{Network, Split};

use crate::conditions::{Condition, Conditions, EntersAs, Resampling};
use crate::description::{
    Defaults, Description, Distilled, Family, GuidanceTerms, Ladder, Meeting, Sound, Text,
    Transformer,
};
use crate::error::Result;
use crate::text::{EncoderRules, Padding, Preparation, TextRules};

/// The family.
pub(crate) static FAMILY: Family = Family {
    name: "ltx2",
    title: "LTX-2",
    classes: &["LTX2Pipeline", "LTX2ImageToVideoPipeline", "LTX2ConditionPipeline"],
    options: &[],
    text: &[EncoderRules {
        class: "Gemma3ForConditionalGeneration",
        rules: TextRules {
            preparation: Preparation::Stripped,
            max_tokens: 1024,
            padding: Padding::Filled,
        },
    }],
    kept: &Ltx2::KEPT,
    original_name,
    diffusers_name,
    architecture: "ltxv",
    other_parts: &OTHER_PARTS,
    lora_signs: &["audio_attn", "audio_ff", "audio_to_video_attn", "video_to_audio_attn"],
    splits: &[
        ("to_q", Split::Columns),
        ("to_k", Split::Columns),
        ("to_v", Split::Columns),
        ("to_gate_logits", Split::Columns),
        ("to_out.0", Split::Rows),
        ("ff.net.0.proj", Split::Columns),
        ("ff.net.2", Split::Rows),
        ("audio_ff.net.0.proj", Split::Columns),
        ("audio_ff.net.2", Split::Rows),
        ("norm_q", Split::Channels),
        ("norm_k", Split::Channels),
    ],
    extension: "mp4",
    describe,
    distilled: Some(Distilled {
        levels: &[1.0, 0.99375, 0.9875, 0.98125, 0.975, 0.909375, 0.725, 0.421875],
        enlarged: &[0.909375, 0.725, 0.421875],
    }),
    upsampler: Some(|config| Ok(Arc::new(Ltx2Upsampler::from_json(config)?))),
    scratch: None,
};

/// What a single file of LTX-2's own code holds beside the transformer.
const OTHER_PARTS: [&str; 6] = [
    "vae.",
    "audio_vae.",
    "vocoder.",
    "text_embedding_projection.",
    "model.diffusion_model.video_embeddings_connector.",
    "model.diffusion_model.audio_embeddings_connector.",
];

/// Parts that only LTX-2.5 has.
const LATER: [&str; 2] = ["duration_head", "prompt_enhancer"];

fn describe(family: &'static Family, folder: &ModelFolder) -> Result<Description> {
    if let Some(part) = LATER.into_iter().find(|part| folder.has(part)) {
        let reason = format!("`{part}` is a part of LTX-2.5, of which LTX-2.0 and 2.3 are here");
        return Err(Error::Unfit(reason).into());
    }
    let scheduler = folder.text("scheduler", "scheduler_config.json")?;
    let scheduler = SchedulerConfig::from_json(&scheduler)?;
    if scheduler.process() != Process::Flow {
        let class = scheduler.class();
        let reason = format!("the scheduler {class} is not one of flows, which LTX-2 needs");
        return Err(Error::Unfit(reason).into());
    }
    let config = Ltx2Config::from_json(&folder.text("transformer", "config.json")?)?;
    let vae = Ltx2VideoVaeConfig::from_json(&folder.text("vae", "config.json")?)?;
    let sound = SpectrogramCodec::from_json(
        &folder.text("audio_vae", "config.json")?,
        &folder.text("vocoder", "config.json")?,
    )?;
    let geometry = geometry(&config, &vae, &sound)?;
    let vae = AutoencoderKlLtx2Video::new(vae);
    agree(
        ("in_channels of transformer", config.video.channels),
        ("latent_channels of vae", vae.latent_channels()),
    )?;
    let sound = Sound { codec: Arc::new(sound), components: Some(["audio_vae", "vocoder"]) };
    agree(
        ("audio_in_channels of transformer", config.audio.channels),
        ("values of a latent of audio_vae", sound.channels()),
    )?;
    let beside = [Condition::LastImage, Condition::Keyframe];
    let mut conditions = Conditions::none()
        .taking(&beside, EntersAs::TokensBeside)
        .taking(&Condition::ALL, EntersAs::CleanTokens);
    conditions.resampling = Resampling::Bilinear;
    Ok(Description {
        family,
        boundary: None,
        process: Process::Flow,
        scheduler,
        ladder: Ladder::Even,
        timesteps: None,
        geometry,
        text: Text::Encoders { key: "captions", width: config.caption_widths() },
        conditions,
        image_tokens: None,
        vae: Arc::new(vae),
        sound: Some(sound),
        defaults: defaults(&config),
        trained_sizes: Vec::new(),
        transformers: vec![transformer(config)],
    })
}

/// Places are seconds and pixels; the sound's clock is its codec's.
fn geometry(
    config: &Ltx2Config,
    vae: &Ltx2VideoVaeConfig,
    sound: &SpectrogramCodec,
) -> Result<Geometry> {
    let factors = [vae.temporal_factor(), vae.spatial_factor(), vae.spatial_factor()];
    let names = ["frames", "rows", "columns"];
    for (axis, name) in names.into_iter().enumerate() {
        let ours = format!("vae_scale_factors of transformer ({name})");
        agree((&ours, config.factors[axis]), ("that of vae", factors[axis]))?;
    }
    let clock = sound.clock();
    let keys = ["audio_sampling_rate", "audio_hop_length", "audio_scale_factor"];
    for (at, key) in keys.into_iter().enumerate() {
        let ours = format!("{key} of transformer");
        agree((&ours, config.clock[at]), ("that of audio_vae", clock[at]))?;
    }
    let [rate, hop, factor] = clock.map(|number| number as u32);
    Ok(Geometry {
        patch: [1, 1, 1],
        factors,
        grouping: Grouping::Causal,
        coordinates: Coordinates {
            time: Time::CausalSeconds,
            scale: factors.map(|factor| factor as f64),
            span: None,
        },
        clock: AudioClock { rate, hop, factor },
        told_size: false,
    })
}

fn transformer(config: Ltx2Config) -> Transformer {
    let of = move |cross_levels| -> Arc<dyn Network> {
        Arc::new(Ltx2 { config: config.clone(), cross_levels })
    };
    Transformer {
        component: "transformer",
        network: of(CrossLevels::default()),
        meeting: Some(Meeting { usual: CrossLevels::default(), make: Arc::new(of) }),
        ignored: Vec::new(),
    }
}

/// diffusers' defaults. The block that is skipped is 29 of LTX-2.0's 48 and 28 of LTX-2.3's.
fn defaults(config: &Ltx2Config) -> Defaults {
    let block = if config.video.gated { 28 } else { 29 };
    let video = Terms { scale: 3.0, skip: 1.0, modality: 3.0, rescale: 0.7 };
    Defaults {
        steps: 30,
        guidance: video.scale,
        terms: Some(GuidanceTerms {
            video,
            audio: Terms { scale: 7.0, ..video },
            skipped: config.depth * block / 48,
        }),
        size: [121, 512, 768],
        frame_rate: 24.0,
    }
}

/// Names within a block and around the blocks: in diffusers, in LTX-2's own code.
const BLOCK: [(&str, &str); 2] = [
    ("video_a2v_cross_attn_scale_shift_table", "scale_shift_table_a2v_ca_video"),
    ("audio_a2v_cross_attn_scale_shift_table", "scale_shift_table_a2v_ca_audio"),
];

/// Modules around the blocks.
const ROOT: [(&str, &str); 10] = [
    ("proj_in", "patchify_proj"),
    ("audio_proj_in", "audio_patchify_proj"),
    ("time_embed", "adaln_single"),
    ("audio_time_embed", "audio_adaln_single"),
    ("prompt_adaln", "prompt_adaln_single"),
    ("audio_prompt_adaln", "audio_prompt_adaln_single"),
    ("av_cross_attn_video_scale_shift", "av_ca_video_scale_shift_adaln_single"),
    ("av_cross_attn_audio_scale_shift", "av_ca_audio_scale_shift_adaln_single"),
    ("av_cross_attn_video_a2v_gate", "av_ca_a2v_gate_adaln_single"),
    ("av_cross_attn_audio_v2a_gate", "av_ca_v2a_gate_adaln_single"),
];

/// The last part of the name of a norm.
const NORM: [(&str, &str); 2] = [("norm_q", "q_norm"), ("norm_k", "k_norm")];

/// The name of a layer or table in LTX-2's own code, where it is another.
fn original_name(layer: &str) -> Option<String> {
    translated(layer, |(ours, theirs)| (*ours, *theirs))
}

/// The name that diffusers has for a layer or table of LTX-2's own code.
fn diffusers_name(layer: &str) -> Option<String> {
    translated(layer, |(ours, theirs)| (*theirs, *ours))
}

/// A name in one vocabulary by that in the other, which `pair` orders.
fn translated(
    layer: &str,
    pair: impl Fn(&(&'static str, &'static str)) -> (&'static str, &'static str),
) -> Option<String> {
    let find = |table: &[(&'static str, &'static str)], name: &str| {
        table.iter().map(&pair).find(|(from, _)| *from == name).map(|(_, to)| to)
    };
    let Some(rest) = layer.strip_prefix("transformer_blocks.") else {
        let (module, rest) = layer.split_once('.').map_or((layer, ""), |(own, rest)| (own, rest));
        let renamed = find(&ROOT, module)?;
        return Some(if rest.is_empty() {
            renamed.to_owned()
        } else {
            format!("{renamed}.{rest}")
        });
    };
    let (index, rest) = rest.split_once('.')?;
    if let Some(table) = find(&BLOCK, rest) {
        return Some(format!("transformer_blocks.{index}.{table}"));
    }
    let (attention, part) = rest.rsplit_once('.')?;
    let norm = find(&NORM, part)?;
    Some(format!("transformer_blocks.{index}.{attention}.{norm}"))
}

#[cfg(test)]
mod tests {
    use super::FAMILY;

    /// Every parameter comes back from its other name.
    #[test]
    fn names_go_both_ways() {
        let parameters = [
            ("proj_in.weight", "patchify_proj.weight"),
            (
                "audio_time_embed.emb.timestep_embedder.linear_1.bias",
                "audio_adaln_single.emb.timestep_embedder.linear_1.bias",
            ),
            (
                "av_cross_attn_audio_v2a_gate.linear.weight",
                "av_ca_v2a_gate_adaln_single.linear.weight",
            ),
            (
                "transformer_blocks.3.attn1.norm_q.weight",
                "transformer_blocks.3.attn1.q_norm.weight",
            ),
            (
                "transformer_blocks.3.video_to_audio_attn.norm_k.weight",
                "transformer_blocks.3.video_to_audio_attn.k_norm.weight",
            ),
            (
                "transformer_blocks.3.video_a2v_cross_attn_scale_shift_table",
                "transformer_blocks.3.scale_shift_table_a2v_ca_video",
            ),
            ("transformer_blocks.3.scale_shift_table", "transformer_blocks.3.scale_shift_table"),
            (
                "transformer_blocks.3.ff.net.0.proj.weight",
                "transformer_blocks.3.ff.net.0.proj.weight",
            ),
            ("scale_shift_table", "scale_shift_table"),
            ("caption_projection.linear_1.weight", "caption_projection.linear_1.weight"),
        ];
        for (name, original) in parameters {
            let other = FAMILY.original_parameter(name).unwrap_or_else(|| name.to_owned());
            assert_eq!(other, original);
            for prefix in ["", "diffusion_model.", "model.diffusion_model."] {
                assert_eq!(FAMILY.diffusers_parameter(&format!("{prefix}{other}")), name);
            }
            assert_eq!(FAMILY.diffusers_parameter(name), name, "diffusers' own stays");
        }
    }
}
