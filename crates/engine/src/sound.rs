//! The codec of a model's sound with its parameters.

use burn::tensor::{Device, Tensor};
use data::media::Waveform;
use families::{Description, Sound};
use folder::{Component, ModelFolder, Storage, Weight};
use models::sound::SoundWeights;
use nn::{Store, Weights};

use crate::error::{Error, Result};
use crate::finite;

/// The parameters of a codec: those of its VAE and of its vocoder.
#[derive(Clone)]
pub(crate) struct SoundParts {
    vae: Component,
    vocoder: Component,
}

impl SoundParts {
    /// Opens the parts that a description names and checks them; weights stay on disk.
    ///
    /// # Errors
    /// One is missing or damaged.
    pub(crate) fn open(folder: &ModelFolder, description: &Description) -> Result<SoundParts> {
        let Some((sound, [vae, vocoder])) =
            description.sound.as_ref().and_then(|own| Some((own, own.components?)))
        else {
            return Ok(SoundParts::none());
        };
        let open = |name: &str, declare: &dyn Fn(&Weights<'_>) -> nn::Result<()>| {
            Component::new(folder.weights(name)?, Storage::STORED, &[], declare)
        };
        Ok(SoundParts {
            vae: open(vae, &|weights| sound.codec.declare_vae(weights))?,
            vocoder: open(vocoder, &|weights| sound.codec.declare_vocoder(weights))?,
        })
    }

    /// Of a codec without parameters.
    pub(crate) fn none() -> SoundParts {
        let empty = || Component::of(Store::new("no parameters"));
        SoundParts { vae: empty(), vocoder: empty() }
    }

    pub(crate) fn open_weights(&mut self, device: &Device) -> Result<()> {
        self.vae.open(device)?;
        Ok(self.vocoder.open(device).map(drop)?)
    }

    pub(crate) fn weights(&self) -> Vec<Weight> {
        [self.vae.weights(), self.vocoder.weights()].concat()
    }

    pub(crate) fn close(&mut self) {
        self.vae.close();
        self.vocoder.close();
    }

    /// Latents `[1, C, L, bins]` of a sound, exactly `steps` of them: what is too much is cut, and the last one
    /// stands for what rounding leaves out.
    ///
    /// # Errors
    /// The codec refuses it.
    pub(crate) fn encode(
        &mut self,
        sound: &Sound,
        (channels, rate): (&[Vec<f32>], u32),
        steps: usize,
        device: &Device,
    ) -> Result<Tensor<4>> {
        let store = self.vae.open(device)?;
        let latents = sound.codec.encode(&Weights::new(store), channels, rate)?;
        finite::check(&latents, "the encoder of the sound", store)?;
        let made = latents.dims()[2];
        if made >= steps {
            return Ok(latents.slice_dim(2, 0..steps));
        }
        let last = latents.clone().slice_dim(2, made - 1..made).repeat_dim(2, steps - made);
        Ok(Tensor::cat(vec![latents, last], 2))
    }

    /// The waveforms of latents `[B, C, L, bins]`.
    ///
    /// # Errors
    /// The latents do not fit the codec.
    pub(crate) fn decode(
        &mut self,
        sound: &Sound,
        latents: Tensor<4>,
        device: &Device,
    ) -> Result<Vec<Waveform>> {
        let (vae, vocoder) = (self.vae.open(device)?, self.vocoder.open(device)?);
        let weights = SoundWeights { vae: Weights::new(vae), vocoder: Weights::new(vocoder) };
        let waves = sound.codec.decode(&weights, latents)?;
        finite::check(&waves, "the decoder of the sound", vocoder)?;
        let (sample_rate, _) = sound.codec.decoded();
        let [count, channels, length] = waves.dims();
        let values = waves.swap_dims(1, 2).into_data().convert::<f32>();
        let values: Vec<f32> =
            values.try_to_vec().map_err(|err| Error::Unknown(format!("{err:?}")))?;
        let one = |at: usize| Waveform {
            sample_rate,
            channels,
            samples: values[at * channels * length..][..channels * length].to_vec(),
        };
        Ok((0..count).map(one).collect())
    }

    /// Latents `[B, C, L, bins]` as diffusers hands them out.
    ///
    /// # Errors
    /// A parameter is missing.
    pub(crate) fn released(
        &mut self,
        sound: &Sound,
        latents: Tensor<4>,
        device: &Device,
    ) -> Result<Tensor<4>> {
        Ok(sound.codec.released(&Weights::new(self.vae.open(device)?), latents)?)
    }
}
