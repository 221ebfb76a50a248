//! Wan 2.1 and 2.2: text and pictures to video.
//!
//! One description serves all published folders. What differs between them is data: how a picture
//! enters, whether two experts share the steps, and which VAE there is.

use std::sync::Arc;

use diffusion::{Geometry, Process, SchedulerConfig};
use folder::{Error, ModelFolder, agree};
use models::dit::wan::{Wan, WanConfig};
use models::vae::wan::{AutoencoderKlWan, WanVaeConfig};
use nn::Split;

use crate::conditions::{Condition, Conditions, EntersAs};
use crate::description::{Defaults, Description, Family, Ladder, Text, Transformer};
use crate::error::Result;
use crate::text::{EncoderRules, Padding, Preparation, TextRules};

/// The family.
pub(crate) static FAMILY: Family = Family {
    name: "wan",
    title: "Wan",
    classes: &["WanPipeline", "WanImageToVideoPipeline"],
    options: &["boundary_ratio", "expand_timesteps"],
    text: &[EncoderRules {
        class: "UMT5EncoderModel",
        rules: TextRules {
            preparation: Preparation::Repaired,
            max_tokens: 512,
            padding: Padding::Zeroed,
        },
    }],
    kept: &Wan::KEPT,
    original_name,
    diffusers_name,
    architecture: "wan",
    other_parts: &[],
    lora_signs: &["self_attn", "cross_attn", "condition_embedder", "blocks."],
    splits: &[
        ("to_q", Split::Columns),
        ("to_k", Split::Columns),
        ("to_v", Split::Columns),
        ("add_k_proj", Split::Columns),
        ("add_v_proj", Split::Columns),
        ("to_out.0", Split::Rows),
        ("ffn.net.0.proj", Split::Columns),
        ("ffn.net.2", Split::Rows),
        ("norm_q", Split::Channels),
        ("norm_k", Split::Channels),
        ("norm_added_k", Split::Channels),
    ],
    extension: "mp4",
    describe,
    distilled: None,
    upsampler: None,
    scratch: None,
};

/// The timesteps that Wan counts from no noise to pure noise.
const TIMESTEPS: f64 = 1000.0;
/// Channels beside the noise that say which frames are given: the frames of a latent frame.
const MASK_CHANNELS: usize = 4;

fn describe(family: &'static Family, folder: &ModelFolder) -> Result<Description> {
    let scheduler = folder.text("scheduler", "scheduler_config.json")?;
    let scheduler = SchedulerConfig::from_json(&scheduler)?;
    if scheduler.process() != Process::Flow {
        return Err(Error::Unfit(format!(
            "the scheduler {} of this folder is not set up for flows, which Wan needs; give it \
             `prediction_type` \"flow_prediction\" and `use_flow_sigmas` true",
            scheduler.class()
        ))
        .into());
    }
    let vae = WanVaeConfig::from_json(&folder.text("vae", "config.json")?)?;
    let (transformers, config, boundary) = experts(folder)?;
    let conditions = conditions(folder, &config, vae.latent_channels)?;
    let factors = [vae.temporal_factor(), vae.spatial_factor(), vae.spatial_factor()];
    let first_frame = conditions.enters(Condition::Image) == Some(EntersAs::CleanTokens);
    Ok(Description {
        family,
        transformers,
        boundary,
        process: Process::Flow,
        scheduler,
        ladder: Ladder::Scheduler,
        timesteps: None,
        geometry: Geometry { factors, ..Geometry::indices(config.patch) },
        text: Text::Encoders { key: "text_dim", width: config.text_width },
        conditions,
        image_tokens: config.picture.map(|picture| picture.tokens),
        vae: Arc::new(AutoencoderKlWan::new(vae)),
        sound: None,
        defaults: Defaults {
            steps: 50,
            guidance: 5.0,
            terms: None,
            size: [81, 480, 832],
            frame_rate: if first_frame { 24.0 } else { 16.0 },
        },
        trained_sizes: Vec::new(),
    })
}

/// `transformer` and, where the index lists it, `transformer_2`, with the timestep between them.
fn experts(folder: &ModelFolder) -> Result<(Vec<Transformer>, WanConfig, Option<f64>)> {
    let read = |name| -> Result<WanConfig> {
        Ok(WanConfig::from_json(&folder.text(name, "config.json")?)?)
    };
    let transformer = |component, config: WanConfig| {
        let network = Wan { config };
        let ignored = network.ignored();
        Transformer { component, network: Arc::new(network), meeting: None, ignored }
    };
    let config = read("transformer")?;
    let first = transformer("transformer", config.clone());
    match (folder.has("transformer_2"), folder.option::<f64>("boundary_ratio")?) {
        (false, None) => Ok((vec![first], config, None)),
        (true, Some(ratio)) if (0.0..=1.0).contains(&ratio) => {
            let second = read("transformer_2")?;
            if second != config {
                let reason = "transformer and transformer_2 differ in their config; two experts must be alike";
                return Err(Error::Unfit(reason.to_owned()).into());
            }
            let second = transformer("transformer_2", second);
            Ok((vec![first, second], config, Some(ratio * TIMESTEPS)))
        }
        (_, ratio) => Err(Error::Json {
            path: folder.path().join("model_index.json"),
            reason: format!(
                "`transformer_2` and a `boundary_ratio` from 0 to 1 come together, but the ratio is {}",
                ratio.map_or("missing".to_owned(), |ratio| ratio.to_string())
            ),
        }
        .into()),
    }
}

/// How pictures enter, read off the channels: as the clean first latent frame (2.2 TI2V), as channels
/// beside the noise (2.1 I2V, 2.2 I2V A14B), or not at all.
fn conditions(folder: &ModelFolder, config: &WanConfig, latent: usize) -> Result<Conditions> {
    agree(("out_channels of transformer", config.out_channels), ("z_dim of vae", latent))?;
    let expanded = folder.option::<bool>("expand_timesteps")?.unwrap_or(false);
    let beside = 2 * latent + MASK_CHANNELS;
    match config.in_channels {
        channels if channels == latent && expanded => {
            Ok(Conditions::none().taking(&[Condition::Image], EntersAs::CleanTokens))
        }
        channels if channels == latent => Ok(Conditions::none()),
        channels if channels == beside => {
            let both = [Condition::Image, Condition::LastImage];
            let mut taken = Conditions::none().taking(&both, EntersAs::Channels);
            (taken.required, taken.mask_channels) = (Some(Condition::Image), MASK_CHANNELS);
            Ok(taken)
        }
        channels => Err(Error::Unfit(format!(
            "in_channels of transformer is {channels}, but with z_dim {latent} of the vae it should \
             be {latent} (text to video) or {beside} (image to video)"
        ))
        .into()),
    }
}

/// Layers within a block: in diffusers, in Wan's own code, which ComfyUI and kohya's trainers use.
const BLOCK: [(&str, &str); 19] = [
    ("attn1.to_q", "self_attn.q"),
    ("attn1.to_k", "self_attn.k"),
    ("attn1.to_v", "self_attn.v"),
    ("attn1.to_out.0", "self_attn.o"),
    ("attn1.norm_q", "self_attn.norm_q"),
    ("attn1.norm_k", "self_attn.norm_k"),
    ("attn2.to_q", "cross_attn.q"),
    ("attn2.to_k", "cross_attn.k"),
    ("attn2.to_v", "cross_attn.v"),
    ("attn2.to_out.0", "cross_attn.o"),
    ("attn2.norm_q", "cross_attn.norm_q"),
    ("attn2.norm_k", "cross_attn.norm_k"),
    ("attn2.add_k_proj", "cross_attn.k_img"),
    ("attn2.add_v_proj", "cross_attn.v_img"),
    ("attn2.norm_added_k", "cross_attn.norm_k_img"),
    ("norm2", "norm3"),
    ("ffn.net.0.proj", "ffn.0"),
    ("ffn.net.2", "ffn.2"),
    ("scale_shift_table", "modulation"),
];

/// Layers around the blocks.
const ROOT: [(&str, &str); 12] = [
    ("condition_embedder.time_embedder.linear_1", "time_embedding.0"),
    ("condition_embedder.time_embedder.linear_2", "time_embedding.2"),
    ("condition_embedder.time_proj", "time_projection.1"),
    ("condition_embedder.text_embedder.linear_1", "text_embedding.0"),
    ("condition_embedder.text_embedder.linear_2", "text_embedding.2"),
    ("condition_embedder.image_embedder.norm1", "img_emb.proj.0"),
    ("condition_embedder.image_embedder.ff.net.0.proj", "img_emb.proj.1"),
    ("condition_embedder.image_embedder.ff.net.2", "img_emb.proj.3"),
    ("condition_embedder.image_embedder.norm2", "img_emb.proj.4"),
    ("condition_embedder.image_embedder.pos_embed", "img_emb.emb_pos"),
    ("proj_out", "head.head"),
    ("scale_shift_table", "head.modulation"),
];

/// The name of a layer or table in Wan's own code, where it is another.
fn original_name(layer: &str) -> Option<String> {
    translated(layer, |(ours, theirs), name| (*ours == name).then_some(*theirs))
}

/// The name that diffusers has for a layer or table of Wan's own code.
fn diffusers_name(layer: &str) -> Option<String> {
    translated(layer, |(ours, theirs), name| (*theirs == name).then_some(*ours))
}

/// A name in one vocabulary by that in the other.
fn translated(
    layer: &str,
    row: impl Fn(&(&'static str, &'static str), &str) -> Option<&'static str>,
) -> Option<String> {
    let find = |table: &[(&'static str, &'static str)], name: &str| {
        table.iter().find_map(|pair| row(pair, name))
    };
    match layer.strip_prefix("blocks.").and_then(|rest| rest.split_once('.')) {
        None => find(&ROOT, layer).map(str::to_owned),
        Some((index, rest)) => find(&BLOCK, rest).map(|name| format!("blocks.{index}.{name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::{FAMILY, original_name};

    #[test]
    fn layers_have_names_of_their_own() {
        let cases = [
            ("blocks.17.attn1.to_out.0", Some("blocks.17.self_attn.o")),
            ("blocks.0.attn2.add_k_proj", Some("blocks.0.cross_attn.k_img")),
            ("blocks.0.norm2", Some("blocks.0.norm3")),
            ("proj_out", Some("head.head")),
            ("patch_embedding", None),
        ];
        for (layer, wanted) in cases {
            assert_eq!(original_name(layer).as_deref(), wanted, "{layer}");
        }
    }

    /// Every parameter comes back from its other name.
    #[test]
    fn names_go_both_ways() {
        let parameters = [
            "blocks.3.attn1.to_out.0.weight",
            "blocks.3.scale_shift_table",
            "blocks.3.ffn.net.0.proj.bias",
            "condition_embedder.image_embedder.pos_embed",
            "scale_shift_table",
            "proj_out.weight",
            "patch_embedding.weight",
        ];
        for name in parameters {
            let other = FAMILY.original_parameter(name).unwrap_or_else(|| name.to_owned());
            for prefix in ["", "diffusion_model.", "model.diffusion_model."] {
                assert_eq!(FAMILY.diffusers_parameter(&format!("{prefix}{other}")), name);
            }
            assert_eq!(FAMILY.diffusers_parameter(name), name, "diffusers' own stays");
        }
        assert_eq!(
            FAMILY.original_parameter("blocks.3.scale_shift_table").as_deref(),
            Some("blocks.3.modulation")
        );
    }
}
