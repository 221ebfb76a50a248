//! Clips and captions to what a model is trained on, with the encoders of its folder.

mod fingerprint;
mod sizes;

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::{Device, FloatDType, Tensor, TensorData};
use data::Clip;
use data::preprocess::{Cause, Encode};
use data::store::{Fingerprint, TEXT};
use families::{Description, Text, TextRules};
use folder::{Component, ModelFolder, Storage, agree};
use nn::Weights;

pub use self::sizes::ClipSizes;
use crate::error::{Error, Result};
use crate::finite;
use crate::text::TextEncoder;

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
    description: Description,
    text: TextEncoder,
    vae: Component,
    sizes: ClipSizes,
    fingerprint: Fingerprint,
}

impl FolderEncoder {
    /// Opens the encoders of a folder and checks them against their configs and the transformer's.
    ///
    /// # Errors
    /// The folder is of no family we have, or a part of it is missing, damaged or unsupported.
    pub fn open(model: &Path, setup: &EncoderSetup) -> Result<FolderEncoder> {
        let folder = ModelFolder::open(model)?;
        let description = families::describe(&folder)?;
        let sizes = sizes::of(&description)?;
        let text = TextEncoder::open(&folder, 0)?;
        if let Text::Encoders { key, width } = &description.text {
            let key = format!("{key} of transformer");
            agree(("d_model of text_encoder", text.width()), (&key, *width))?;
        }
        let vae = Component::new(folder.weights("vae")?, Storage::STORED, &[], |weights| {
            description.vae.declare(weights)
        })?;
        let fingerprint = fingerprint::of(&folder, text.rules())?;
        Ok(FolderEncoder { setup: setup.clone(), description, text, vae, sizes, fingerprint })
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
        self.vae.close();
    }

    fn embedded(&mut self, caption: &str) -> Result<BTreeMap<String, TensorData>> {
        let EncoderSetup { device, dtype } = &self.setup;
        let rules = self.text.rules();
        let tokens = self.text.embed(caption, &rules, device)?.valid();
        Ok(BTreeMap::from([(TEXT.to_owned(), tokens.cast(*dtype).into_data())]))
    }

    fn latents(&mut self, clip: &Clip) -> Result<TensorData> {
        let EncoderSetup { device, dtype } = &self.setup;
        let frames = self.description.geometry.latent_frames(clip.size()[0]);
        frames.map_err(|err| Error::Unknown(err.to_string()))?;
        let pixels: Tensor<5> = clip.to_tensor(device).permute([3, 0, 1, 2]).unsqueeze_dim(0);
        let store = self.vae.open(device)?;
        let vae = &self.description.vae;
        let latents = vae.encode_clip(&Weights::new(store), pixels * 2.0 - 1.0)?;
        finite::check(&latents, "the encoder of the VAE", store)?;
        Ok(latents.squeeze_dim::<4>(0).cast(*dtype).into_data())
    }
}

impl Encode for FolderEncoder {
    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint.clone()
    }

    fn factors(&self) -> [usize; 3] {
        self.description.geometry.factors
    }

    fn clip(&mut self, clip: &Clip) -> Result<TensorData, Cause> {
        Ok(self.latents(clip)?)
    }

    fn text(&mut self, caption: &str) -> Result<BTreeMap<String, TensorData>, Cause> {
        Ok(self.embedded(caption)?)
    }
}
