//! Clips and captions to what a model is trained on, with the encoders of its folder.

mod fingerprint;
mod sizes;

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::{Device, FloatDType, Tensor, TensorData};
use data::Clip;
use data::preprocess::{Cause, Encode};
use data::store::{Fingerprint, TEXT};
use models::dit::pixart::PixartConfig;
use models::dit::wan::WanConfig;

pub use self::sizes::ClipSizes;
use crate::error::{Error, Result};
use crate::folder::{self, ModelFolder};
use crate::text::{TextEncoder, TextRules};
use crate::{pixart, wan};

/// How a folder's encoders are opened.
#[derive(Clone, Debug)]
pub struct EncoderSetup {
    /// Where to compute.
    pub device: Device,
    /// The type of what is encoded. The encoders compute as in inference, with the weights as they
    /// are stored.
    pub dtype: FloatDType,
}

/// The VAE and the text encoder of a diffusers folder. Weights are read when they are first needed.
pub struct FolderEncoder {
    setup: EncoderSetup,
    text: TextEncoder,
    vae: Vae,
    sizes: ClipSizes,
    fingerprint: Fingerprint,
}

/// The VAEs of the families.
enum Vae {
    Pictures(pixart::Vae),
    Clips(wan::Vae),
}

/// The family of a folder, with what its transformer takes.
enum Family {
    Pixart(PixartConfig),
    Wan(WanConfig),
}

impl Family {
    /// Reads the config of the transformer.
    fn of(folder: &ModelFolder) -> Result<Family> {
        let config = || folder.text("transformer", "config.json");
        if pixart::Pipeline::CLASSES.contains(&folder.class()) {
            return Ok(Family::Pixart(PixartConfig::from_json(&config()?)?));
        }
        if wan::Pipeline::CLASSES.contains(&folder.class()) {
            return Ok(Family::Wan(WanConfig::from_json(&config()?)?));
        }
        Err(crate::pipeline::unsupported(folder))
    }

    /// Opens the VAE and checks that it and the text encoder fit the transformer.
    fn vae(&self, folder: &ModelFolder, text: &TextEncoder) -> Result<Vae> {
        let text_width = ("d_model of text_encoder", text.width());
        match self {
            Family::Pixart(config) => {
                let vae = pixart::open_vae(folder)?;
                folder::agree(
                    text_width,
                    ("caption_channels of transformer", config.caption_width),
                )?;
                folder::agree(
                    ("latent_channels of vae", vae.0.config.latent_channels),
                    ("in_channels of transformer", config.in_channels),
                )?;
                Ok(Vae::Pictures(vae))
            }
            Family::Wan(config) => {
                let vae = wan::open_vae(folder)?;
                folder::agree(text_width, ("text_dim of transformer", config.text_width))?;
                folder::agree(
                    ("z_dim of vae", vae.0.config.latent_channels),
                    ("out_channels of transformer", config.out_channels),
                )?;
                Ok(Vae::Clips(vae))
            }
        }
    }
}

impl Vae {
    /// Frames, rows and columns of pixels of one latent.
    fn factors(&self) -> [usize; 3] {
        match self {
            Vae::Pictures((vae, _)) => [1, vae.config.factor(), vae.config.factor()],
            Vae::Clips((vae, _)) => {
                let side = vae.config.spatial_factor();
                [vae.config.temporal_factor(), side, side]
            }
        }
    }

    /// Latents `[C, f, h, w]` of a clip `[1, 3, F, H, W]` from -1 to 1, in the model's own scaling.
    fn encode(&mut self, clip: Tensor<5>, device: &Device) -> Result<Tensor<4>> {
        match self {
            Vae::Clips(vae) => Ok(wan::encode_clip(vae, clip, device)?.squeeze_dim::<4>(0)),
            Vae::Pictures(vae) => {
                let frames = clip.dims()[2];
                if frames != 1 {
                    return Err(Error::Request(format!(
                        "PixArt-alpha makes pictures, but the clip has {frames} frames; use \
                         buckets of 1 frame"
                    )));
                }
                let picture = clip.squeeze_dim::<4>(2);
                let latents = pixart::encode_picture(vae, picture, device)?;
                Ok(latents.squeeze_dim::<3>(0).unsqueeze_dim::<4>(1))
            }
        }
    }
}

impl FolderEncoder {
    /// Opens the encoders of a folder and checks them against their configs and the transformer's.
    ///
    /// # Errors
    /// The folder is of no family we have, or a part of it is missing, damaged or unsupported.
    pub fn open(model: &Path, setup: &EncoderSetup) -> Result<FolderEncoder> {
        let folder = ModelFolder::open(model)?;
        let family = Family::of(&folder)?;
        let text = TextEncoder::open(&folder, 0)?;
        let vae = family.vae(&folder, &text)?;
        let sizes = sizes::of(&folder, &family)?;
        let fingerprint = fingerprint::of(&folder, text.rules())?;
        Ok(FolderEncoder { setup: setup.clone(), text, vae, sizes, fingerprint })
    }

    /// What clips the model takes.
    pub fn sizes(&self) -> ClipSizes {
        self.sizes
    }

    /// How captions are embedded. [`TextRules::context`] makes of stored tokens what the transformer is
    /// given.
    pub fn text_rules(&self) -> TextRules {
        self.text.rules()
    }

    /// What stands for a dropped caption: the empty one, embedded, by key.
    ///
    /// # Errors
    /// It cannot be encoded.
    pub fn null_text(&mut self) -> Result<BTreeMap<String, TensorData>> {
        self.embedded("")
    }

    /// Lets go of the weights; they are read again when they are next needed.
    pub fn close(&mut self) {
        self.text.close();
        match &mut self.vae {
            Vae::Pictures((_, component)) | Vae::Clips((_, component)) => component.close(),
        }
    }

    fn embedded(&mut self, caption: &str) -> Result<BTreeMap<String, TensorData>> {
        let EncoderSetup { device, dtype } = &self.setup;
        let rules = self.text.rules();
        let tokens = self.text.embed(caption, &rules, device)?.valid();
        Ok(BTreeMap::from([(TEXT.to_owned(), tokens.cast(*dtype).into_data())]))
    }

    fn latents(&mut self, clip: &Clip) -> Result<TensorData> {
        let EncoderSetup { device, dtype } = &self.setup;
        let pixels = clip.to_tensor(device).permute([3, 0, 1, 2]).unsqueeze_dim::<5>(0);
        let latents = self.vae.encode(pixels * 2.0 - 1.0, device)?;
        Ok(latents.cast(*dtype).into_data())
    }
}

impl Encode for FolderEncoder {
    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint.clone()
    }

    fn factors(&self) -> [usize; 3] {
        self.vae.factors()
    }

    fn clip(&mut self, clip: &Clip) -> Result<TensorData, Cause> {
        Ok(self.latents(clip)?)
    }

    fn text(&mut self, caption: &str) -> Result<BTreeMap<String, TensorData>, Cause> {
        Ok(self.embedded(caption)?)
    }
}
