//! The VAE of a folder, from pictures to latents.

use burn::tensor::{Device, Tensor};
use models::vae::kl::{AutoencoderKl, KlConfig};
use nn::Weights;

use crate::component::{Component, Holding};
use crate::error::Result;
use crate::finite;
use crate::folder::ModelFolder;

/// The network with its weights.
pub(crate) type Vae = (AutoencoderKl, Component);

/// Opens `vae`; its weights stay on disk, in the type they are stored in. (Pixels show what bf16 does
/// to a VAE, and its weights are few.)
///
/// # Errors
/// It is missing, damaged or unsupported.
pub(crate) fn open_vae(folder: &ModelFolder) -> Result<Vae> {
    let vae = AutoencoderKl::new(KlConfig::from_json(&folder.text("vae", "config.json")?)?);
    let weights = Component::new(folder.weights("vae")?, Holding::STORED, &[], |weights| {
        vae.declare(weights)
    })?;
    Ok((vae, weights))
}

/// Latents `[1, C, h, w]` of a picture `[1, 3, H, W]` from -1 to 1, as the transformer sees them: the
/// mode of the posterior times the scaling factor.
///
/// # Errors
/// The picture does not fit the VAE, or its latents are not finite.
pub(crate) fn encode_picture(
    (vae, component): &mut Vae,
    picture: Tensor<4>,
    device: &Device,
) -> Result<Tensor<4>> {
    let store = component.open(device)?;
    let moments = vae.encode(&Weights::new(store), picture, None, &mut |_, _| {})?;
    let latents = moments.mean;
    finite::check(&latents, "the encoder of the VAE", store)?;
    Ok(latents * vae.config.scaling_factor)
}
