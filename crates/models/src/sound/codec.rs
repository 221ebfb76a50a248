//! The whole way from a waveform to latents and back, behind one object.

use burn::tensor::{Device, Tensor, TensorData};
use nn::{Error, Result, Weights};

use super::audio_vae::AudioVae;
use super::mel::Spectrogram;
use super::resample::resample;
use super::vocoder::Vocoder;

/// The parameters of both parts of a codec, which are folders of their own.
pub struct SoundWeights<'a> {
    /// Of the audio VAE.
    pub vae: Weights<'a>,
    /// Of the vocoder.
    pub vocoder: Weights<'a>,
}

/// Sounds to latents and back. Latents are in the scale that the diffusion model sees.
pub trait SoundCodec: Send + Sync {
    /// Asks for every parameter of the VAE once.
    ///
    /// # Errors
    /// One is missing or misshapen.
    fn declare_vae(&self, weights: &Weights<'_>) -> Result<()>;

    /// Asks for every parameter of the vocoder once.
    ///
    /// # Errors
    /// One is missing or misshapen.
    fn declare_vocoder(&self, weights: &Weights<'_>) -> Result<()>;

    /// Channels and frequency bins of a latent.
    fn latent_shape(&self) -> [usize; 2];

    /// Latent frames per second: samples per second of what is encoded, samples per spectrum, spectra per latent.
    fn clock(&self) -> [usize; 3];

    /// Samples per second, and channels, of what is decoded.
    fn decoded(&self) -> (u32, usize);

    /// Whether it hears sounds of a rate.
    ///
    /// # Errors
    /// It does not, and says what it hears.
    fn accepts(&self, _sample_rate: u32) -> Result<()> {
        Ok(())
    }

    /// Latents `[1, C, L, bins]` of a waveform, given channel by channel at any rate.
    ///
    /// # Errors
    /// There is no sound, or a parameter is missing.
    fn encode(
        &self,
        weights: &Weights<'_>,
        channels: &[Vec<f32>],
        sample_rate: u32,
    ) -> Result<Tensor<4>>;

    /// Latents `[B, C, L, bins]` as diffusers hands them out: some models' in the VAE's own scale.
    ///
    /// # Errors
    /// A parameter is missing.
    fn released(&self, _: &Weights<'_>, latents: Tensor<4>) -> Result<Tensor<4>> {
        Ok(latents)
    }

    /// Waveforms `[B, channels, samples]` of latents `[B, C, L, bins]`.
    ///
    /// # Errors
    /// The latents do not fit the model, or a parameter is missing.
    fn decode(&self, weights: &SoundWeights<'_>, latents: Tensor<4>) -> Result<Tensor<3>>;
}

/// A codec over log-mel spectrograms, as LTX-2's.
pub struct SpectrogramCodec {
    /// Waveforms to spectrograms.
    pub spectrogram: Spectrogram,
    /// Spectrograms to latents and back.
    pub vae: AudioVae,
    /// Spectrograms to waveforms.
    pub vocoder: Vocoder,
}

impl SpectrogramCodec {
    /// The codec of the configs of both parts.
    ///
    /// # Errors
    /// They are not such configs, or do not belong together.
    pub fn from_json(vae: &str, vocoder: &str) -> Result<SpectrogramCodec> {
        let (vae, vocoder) = (AudioVae::from_json(vae)?, Vocoder::from_json(vocoder)?);
        let made = vae.config.out_channels * vae.config.mel_bins;
        let taken = vocoder.in_channels();
        if made != taken {
            return Err(Error::Shape {
                what: "a spectrogram of the audio VAE",
                got: format!(
                    "{} channels of {} bins",
                    vae.config.out_channels, vae.config.mel_bins
                ),
                want: format!("the vocoder's `in_channels` is {taken}, their product"),
            });
        }
        let spectrogram = Spectrogram {
            sample_rate: vae.config.sample_rate,
            hop: vae.config.hop,
            bins: vae.config.mel_bins,
        };
        Ok(SpectrogramCodec { spectrogram, vae, vocoder })
    }
}

impl SoundCodec for SpectrogramCodec {
    fn declare_vae(&self, weights: &Weights<'_>) -> Result<()> {
        self.vae.declare(weights)
    }

    fn declare_vocoder(&self, weights: &Weights<'_>) -> Result<()> {
        self.vocoder.declare(weights)
    }

    fn latent_shape(&self) -> [usize; 2] {
        [self.vae.config.latent_channels, self.vae.config.latent_bins()]
    }

    fn clock(&self) -> [usize; 3] {
        let config = &self.vae.config;
        [config.sample_rate as usize, config.hop, config.factor()]
    }

    fn decoded(&self) -> (u32, usize) {
        (self.vocoder.sample_rate(), self.vocoder.channels())
    }

    fn encode(
        &self,
        weights: &Weights<'_>,
        channels: &[Vec<f32>],
        sample_rate: u32,
    ) -> Result<Tensor<4>> {
        let channels = mixed(channels, self.vae.config.in_channels);
        if channels.iter().any(Vec::is_empty) || sample_rate == 0 {
            return Err(Error::Shape {
                what: "a sound",
                got: format!("of no samples, or of {sample_rate} in a second"),
                want: "there must be some of both".to_owned(),
            });
        }
        let own = self.spectrogram.sample_rate;
        let spectra: Vec<Vec<f32>> = channels
            .iter()
            .map(|samples| self.spectrogram.of(&resample(samples, sample_rate, own)))
            .collect();
        let (count, bins) = (spectra.len(), self.spectrogram.bins);
        let frames = spectra[0].len() / bins;
        let data = TensorData::new(spectra.concat(), [1, count, frames, bins]);
        self.vae.encode(weights, Tensor::from_data(data, &Device::flex()))
    }

    fn released(&self, weights: &Weights<'_>, latents: Tensor<4>) -> Result<Tensor<4>> {
        self.vae.restored(weights, latents)
    }

    fn decode(&self, weights: &SoundWeights<'_>, latents: Tensor<4>) -> Result<Tensor<3>> {
        self.vocoder.apply(&weights.vocoder, self.vae.decode(&weights.vae, latents)?)
    }
}

/// So many channels of those that a sound has: one is repeated, two stay, surround sound is folded to both sides with
/// its middle and back at -3 dB, and of any other number all are averaged.
fn mixed(channels: &[Vec<f32>], count: usize) -> Vec<Vec<f32>> {
    let sum = |parts: &[(usize, f32)]| {
        let length = channels.first().map_or(0, Vec::len);
        let total: f32 = parts.iter().map(|(_, weight)| weight).sum();
        (0..length)
            .map(|at| parts.iter().map(|&(from, weight)| channels[from][at] * weight).sum::<f32>())
            .map(|value| value / total)
            .collect::<Vec<f32>>()
    };
    const FOLDED: f32 = std::f32::consts::FRAC_1_SQRT_2;
    match (channels.len(), count) {
        (0, _) => vec![Vec::new(); count],
        (own, count) if own == count => channels.to_vec(),
        // Left, right, middle, bass, and the back left and right, perhaps also the sides.
        (6, 2) => [0, 1].map(|side| sum(&[(side, 1.0), (2, FOLDED), (4 + side, FOLDED)])).to_vec(),
        (8, 2) => [0, 1]
            .map(|side| sum(&[(side, 1.0), (2, FOLDED), (4 + side, FOLDED), (6 + side, FOLDED)]))
            .to_vec(),
        (own, count) => {
            let all: Vec<(usize, f32)> = (0..own).map(|from| (from, 1.0)).collect();
            vec![sum(&all); count]
        }
    }
}
