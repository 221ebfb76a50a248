//! Readers of the configs of a model's folder, each given every text: a config in the wrong place is damaged too.

use diffusion::SchedulerConfig;
use engine::ClipPreprocessor;
use models::dit::{duet::DuetConfig, ltx2::Ltx2Config, pixart::PixartConfig, wan::WanConfig};
use models::sound::SpectrogramCodec;
use models::sound::audio_vae::{AudioVae, AudioVaeConfig};
use models::sound::vocoder::{Vocoder, VocoderConfig};
use models::text::{connectors::ConnectorsConfig, gemma::GemmaConfig, t5::T5Config};
use models::vae::{
    kl::KlConfig, ltx2_upsampler::Ltx2Upsampler, ltx2_video::Ltx2VideoVaeConfig, wan::WanVaeConfig,
};
use models::vision::clip::ClipVisionConfig;

/// The sound of an LTX-2 folder has two configs; one stays whole here while the other is damaged.
const WHOLE: [&str; 2] = [
    include_str!("../../goldens/ltx2-tiny/audio_vae/config.json"),
    include_str!("../../goldens/ltx2-tiny/vocoder/config.json"),
];

/// Readers, each of any text.
const READERS: [fn(&str); 20] = [
    |text| drop(WanConfig::from_json(text)),
    |text| drop(PixartConfig::from_json(text)),
    |text| drop(DuetConfig::from_json(text)),
    |text| drop(Ltx2Config::from_json(text)),
    |text| drop(T5Config::from_json(text)),
    |text| drop(GemmaConfig::from_json(text)),
    |text| drop(ConnectorsConfig::from_json(text)),
    |text| drop(KlConfig::from_json(text)),
    |text| drop(WanVaeConfig::from_json(text)),
    |text| drop(Ltx2VideoVaeConfig::from_json(text)),
    |text| drop(Ltx2Upsampler::from_json(text)),
    |text| drop(AudioVaeConfig::from_json(text)),
    |text| drop(AudioVae::from_json(text)),
    |text| drop(VocoderConfig::from_json(text)),
    |text| drop(Vocoder::from_json(text)),
    |text| drop(SpectrogramCodec::from_json(text, WHOLE[1])),
    |text| drop(SpectrogramCodec::from_json(WHOLE[0], text)),
    |text| drop(ClipVisionConfig::from_json(text)),
    |text| drop(ClipPreprocessor::from_json(text)),
    |text| drop(SchedulerConfig::from_json(text).map(|own| own.process())),
];

/// A third of the readers, which the text itself draws.
pub(crate) fn read(text: &str) {
    let sum =
        text.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    READERS.iter().skip(sum % 3).step_by(3).for_each(|read| read(text));
}
