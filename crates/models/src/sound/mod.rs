//! Sound: between waveforms and the latents that a diffusion model works on.
//!
//! A waveform becomes a log-mel spectrogram ([`mel`]), which an audio VAE ([`audio_vae`]) turns into latents; back,
//! a [`vocoder`] makes a waveform of the spectrogram that the VAE decodes. [`SpectrogramCodec`] is all of it.

pub mod audio_vae;
mod codec;
pub mod mel;
pub mod resample;
pub mod vocoder;

pub use codec::{SoundCodec, SoundWeights, SpectrogramCodec};
