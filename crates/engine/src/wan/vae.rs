//! The VAE of a folder, from clips to latents.

use burn::tensor::{Device, Tensor};
use models::vae::wan::{AutoencoderKlWan, WanVaeConfig};
use nn::Weights;

use crate::component::{Component, Holding};
use crate::error::Result;
use crate::finite;
use crate::folder::ModelFolder;

/// The network with its weights.
pub(crate) type Vae = (AutoencoderKlWan, Component);

/// Opens `vae`; its weights stay on disk, in the type they are stored in.
///
/// # Errors
/// It is missing, damaged or unsupported.
pub(crate) fn open_vae(folder: &ModelFolder) -> Result<Vae> {
    let vae = AutoencoderKlWan::new(WanVaeConfig::from_json(&folder.text("vae", "config.json")?)?);
    let weights = Component::new(folder.weights("vae")?, Holding::STORED, &[], |weights| {
        vae.declare(weights)
    })?;
    Ok((vae, weights))
}

/// Latents `[1, C, f, h, w]` of a clip `[1, 3, F, H, W]` from -1 to 1, as the transformer sees them: the
/// mode of the posterior, of mean 0 and deviation 1 per channel.
///
/// # Errors
/// The clip does not fit the VAE, or its latents are not finite.
pub(crate) fn encode_clip(
    (vae, component): &mut Vae,
    clip: Tensor<5>,
    device: &Device,
) -> Result<Tensor<5>> {
    let store = component.open(device)?;
    let moments = vae.encode(&Weights::new(store), clip, None, &mut |_, _| {})?;
    let latents = moments.mean;
    finite::check(&latents, "the encoder of the VAE", store)?;
    Ok(vae.standardised(latents))
}
