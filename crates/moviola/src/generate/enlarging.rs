//! Two stages: how a smaller clip becomes a larger one, as arguments.

use std::path::PathBuf;

use engine::Enlarging;
use folder::lora::LoraSource;

use crate::failure::Outcome;
use crate::hub;
use crate::voice::Voice;

/// Where `--help` lists these.
const STAGES: &str = "Two stages";

/// The second of two stages.
#[derive(clap::Args, Clone, Debug, Default, PartialEq)]
pub(super) struct EnlargingArguments {
    /// What makes latents larger, as diffusers saves it: the clip is made smaller first (half as high and wide, for an
    /// upsampler of two), and goes on from there at its own size, without guidance
    #[arg(long, help_heading = STAGES, value_name = "DIR|ORG/NAME")]
    pub(super) upsampler: Option<String>,
    /// Noise levels of the steps that follow [default: those of the distilled checkpoints of the model's family]
    #[arg(long, help_heading = STAGES, value_name = "S,..", value_delimiter = ',', requires = "upsampler")]
    pub(super) upsampler_sigmas: Option<Vec<f64>>,
    /// How far the mean and deviation of each channel go back to what they were before, 0 to 10 [default: 0]
    #[arg(long, help_heading = STAGES, value_name = "F", requires = "upsampler")]
    pub(super) upsampler_adain: Option<f64>,
    /// How strongly large values of the larger latents are drawn in, 0 to 1 [default: 0]
    #[arg(long, help_heading = STAGES, value_name = "R", requires = "upsampler")]
    pub(super) upsampler_tone_map: Option<f64>,
    /// A low-rank adapter for the steps that follow, beside --lora, and how strongly it applies; repeat it for several
    #[arg(long, help_heading = STAGES, value_name = "FILE[:SCALE]", requires = "upsampler")]
    pub(super) upsampler_lora: Vec<LoraSource>,
}

impl EnlargingArguments {
    /// Where the upsampler is, if one is asked for.
    ///
    /// # Errors
    /// The hub does not have it.
    pub(super) fn folder(&self, voice: Voice) -> Outcome<Option<PathBuf>> {
        let name = self.upsampler.as_deref();
        let folder = name.map(|name| folder::locate(name, &hub::from_environment(voice)));
        Ok(folder.transpose()?.map(|folder| engine::upsampler_folder(&folder)))
    }

    /// What a request asks for.
    pub(super) fn asked(&self) -> Option<Enlarging> {
        self.upsampler.as_ref().map(|_| Enlarging {
            levels: self.upsampler_sigmas.clone(),
            adain: self.upsampler_adain.unwrap_or(0.0),
            tone_map: self.upsampler_tone_map.unwrap_or(0.0),
        })
    }
}
