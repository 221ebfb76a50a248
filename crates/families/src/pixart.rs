//! PixArt-alpha: text to pictures.

use std::sync::Arc;

use diffusion::{AudioClock, Coordinates, Geometry, Grouping, SchedulerConfig, Time};
use folder::{Error, ModelFolder, agree};
use models::dit::pixart::{Pixart, PixartConfig};
use models::vae::kl::{AutoencoderKl, KlConfig};
use nn::Split;

use crate::conditions::Conditions;
use crate::description::{Defaults, Description, Family, Ladder, Text, Transformer};
use crate::error::Result;
use crate::text::{EncoderRules, Padding, Preparation, TextRules};

/// The family.
pub(crate) static FAMILY: Family = ALPHA;

/// What later PixArts differ from.
pub(crate) const ALPHA: Family = Family {
    name: "pixart",
    title: "PixArt-alpha",
    classes: &["PixArtAlphaPipeline"],
    options: &[],
    text: &[EncoderRules {
        class: "T5EncoderModel",
        rules: TextRules {
            preparation: Preparation::Plain,
            max_tokens: 120,
            padding: Padding::Masked,
        },
    }],
    kept: &Pixart::KEPT,
    original_name: |_| None,
    diffusers_name: |_| None,
    architecture: "pixart",
    other_parts: &[],
    lora_signs: &["transformer_blocks"],
    splits: &[
        ("to_q", Split::Columns),
        ("to_k", Split::Columns),
        ("to_v", Split::Columns),
        ("to_out.0", Split::Rows),
        ("ff.net.0.proj", Split::Columns),
        ("ff.net.2", Split::Rows),
    ],
    extension: "png",
    describe,
    distilled: None,
    upsampler: None,
    scratch: None,
};

fn describe(family: &'static Family, folder: &ModelFolder) -> Result<Description> {
    let scheduler = folder.text("scheduler", "scheduler_config.json")?;
    let scheduler = SchedulerConfig::from_json(&scheduler)?;
    let config = PixartConfig::from_json(&folder.text("transformer", "config.json")?)?;
    let vae = KlConfig::from_json(&folder.text("vae", "config.json")?)?;
    agree(
        ("latent_channels of vae", vae.latent_channels),
        ("in_channels of transformer", config.in_channels),
    )?;
    if vae.out_channels != 3 {
        let channels = vae.out_channels;
        let reason = format!("out_channels of vae is {channels}, but a picture has 3");
        return Err(Error::Unfit(reason).into());
    }
    let (factor, side) = (vae.factor(), config.sample_size * vae.factor());
    let span = (config.sample_size / config.patch) as f64 / config.interpolation_scale;
    Ok(Description {
        family,
        process: scheduler.process(),
        scheduler,
        boundary: None,
        ladder: Ladder::Scheduler,
        timesteps: None,
        geometry: Geometry {
            patch: [1, config.patch, config.patch],
            factors: [1, factor, factor],
            grouping: Grouping::Picture,
            coordinates: Coordinates { time: Time::Absent, scale: [1.0; 3], span: Some(span) },
            clock: AudioClock::usual(),
            told_size: config.takes_size,
        },
        text: Text::Encoders { key: "caption_channels", width: config.caption_width },
        conditions: Conditions::none(),
        image_tokens: None,
        vae: Arc::new(AutoencoderKl::new(vae)),
        sound: None,
        defaults: Defaults {
            steps: 20,
            guidance: 4.5,
            terms: None,
            size: [1, side, side],
            frame_rate: 1.0,
        },
        trained_sizes: trained_sizes(config.sample_size),
        transformers: vec![Transformer {
            component: "transformer",
            network: Arc::new(Pixart { config }),
            // A table that the network computes instead.
            meeting: None,
            ignored: vec!["pos_embed.pos_embed".to_owned()],
        }],
    })
}

/// Heights and widths of the training by their proportion; none are known for other sample sizes.
fn trained_sizes(sample_size: usize) -> Vec<(f64, [usize; 2])> {
    match sample_size {
        32 | 64 | 128 => {
            let unit = sample_size * 8 / 16;
            let scaled = |(proportion, sides): (f64, [usize; 2])| {
                (proportion, sides.map(|sixteenths| sixteenths * unit))
            };
            TRAINED.into_iter().map(scaled).collect()
        }
        _ => Vec::new(),
    }
}

/// Proportions of the training with their heights and widths, in sixteenths of the base size.
pub(crate) const TRAINED: [(f64, [usize; 2]); 33] = [
    (0.25, [8, 32]),
    (0.28, [8, 29]),
    (0.32, [9, 28]),
    (0.33, [9, 27]),
    (0.35, [9, 26]),
    (0.4, [10, 25]),
    (0.42, [10, 24]),
    (0.48, [11, 23]),
    (0.5, [11, 22]),
    (0.52, [11, 21]),
    (0.57, [12, 21]),
    (0.6, [12, 20]),
    (0.68, [13, 19]),
    (0.72, [13, 18]),
    (0.78, [14, 18]),
    (0.82, [14, 17]),
    (0.88, [15, 17]),
    (0.94, [15, 16]),
    (1.0, [16, 16]),
    (1.07, [16, 15]),
    (1.13, [17, 15]),
    (1.21, [17, 14]),
    (1.29, [18, 14]),
    (1.38, [18, 13]),
    (1.46, [19, 13]),
    (1.67, [20, 12]),
    (1.75, [21, 12]),
    (2.0, [22, 11]),
    (2.09, [23, 11]),
    (2.4, [24, 10]),
    (2.5, [25, 10]),
    (3.0, [27, 9]),
    (4.0, [32, 8]),
];
