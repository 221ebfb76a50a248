//! Guidance beyond the scale, for models that are pushed away from more than a prompt.

use clap::ValueEnum;
use engine::MoreGuidance;
use families::CrossLevels;
use serde::{Deserialize, Serialize};

/// What a run is asked for, and what its record tells.
#[derive(clap::Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[command(next_help_heading = "Guidance of models with sound")]
#[serde(default, deny_unknown_fields)]
pub(super) struct MoreArguments {
    /// Guidance scale of the sound [default: the model's]
    #[arg(long, value_name = "G")]
    audio_guidance: Option<f64>,
    /// Spatio-temporal guidance: how far from what is predicted without some attention; 0 is off [default:
    /// the model's]
    #[arg(long, value_name = "S")]
    stg: Option<f64>,
    /// The same of the sound [default: the model's]
    #[arg(long, value_name = "S")]
    audio_stg: Option<f64>,
    /// The blocks whose attention it leaves out, from 0, like 28 or 10,20 [default: the model's]
    #[arg(long, value_name = "N,..", value_delimiter = ',')]
    stg_blocks: Option<Vec<usize>>,
    /// How far the video is pushed from what is predicted without the sound; 1 is off [default: the model's]
    #[arg(long, value_name = "M")]
    modality_guidance: Option<f64>,
    /// How far the sound is pushed from what is predicted without the video; 1 is off [default: the model's]
    #[arg(long, value_name = "M")]
    audio_modality_guidance: Option<f64>,
    /// How much of the contrast that guidance adds is taken back, 0 to 1 [default: the model's]
    #[arg(long, value_name = "R")]
    guidance_rescale: Option<f64>,
    /// The same of the sound [default: the model's]
    #[arg(long, value_name = "R")]
    audio_guidance_rescale: Option<f64>,
    /// Whose noise levels count where video and sound meet: as the model was published (original), or as
    /// diffusers has it with use_cross_timestep (other) or without (own) [default: as it was trained]
    #[arg(long, value_enum)]
    cross_timestep: Option<CrossTimestep>,
}

/// Whose noise levels count where video and sound meet.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CrossTimestep {
    Original,
    Own,
    Other,
}

/// Our name of each rule.
const RULES: [(CrossTimestep, CrossLevels); 3] = [
    (CrossTimestep::Original, CrossLevels::Original),
    (CrossTimestep::Own, CrossLevels::Own),
    (CrossTimestep::Other, CrossLevels::Other),
];

impl MoreArguments {
    /// What a request asks for.
    pub(super) fn asked(&self) -> MoreGuidance {
        let rule = |own: CrossTimestep| RULES.into_iter().find(|(name, _)| *name == own);
        MoreGuidance {
            audio_scale: self.audio_guidance,
            stg: self.stg,
            audio_stg: self.audio_stg,
            stg_blocks: self.stg_blocks.clone(),
            modality: self.modality_guidance,
            audio_modality: self.audio_modality_guidance,
            rescale: self.guidance_rescale,
            audio_rescale: self.audio_guidance_rescale,
            cross_levels: self.cross_timestep.and_then(rule).map(|(_, levels)| levels),
        }
    }

    /// What a request was guided by.
    pub(super) fn of(used: &MoreGuidance) -> MoreArguments {
        let rule = |own: CrossLevels| RULES.into_iter().find(|(_, levels)| *levels == own);
        MoreArguments {
            audio_guidance: used.audio_scale,
            stg: used.stg,
            audio_stg: used.audio_stg,
            stg_blocks: used.stg_blocks.clone(),
            modality_guidance: used.modality,
            audio_modality_guidance: used.audio_modality,
            guidance_rescale: used.rescale,
            audio_guidance_rescale: used.audio_rescale,
            cross_timestep: used.cross_levels.and_then(rule).map(|(name, _)| name),
        }
    }
}
