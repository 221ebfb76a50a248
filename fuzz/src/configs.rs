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

/// All of them.
pub(crate) fn read(text: &str) {
    let _ = WanConfig::from_json(text);
    let _ = PixartConfig::from_json(text);
    let _ = DuetConfig::from_json(text);
    let _ = Ltx2Config::from_json(text);
    let _ = T5Config::from_json(text);
    let _ = GemmaConfig::from_json(text);
    let _ = ConnectorsConfig::from_json(text);
    let _ = KlConfig::from_json(text);
    let _ = WanVaeConfig::from_json(text);
    let _ = Ltx2VideoVaeConfig::from_json(text);
    let _ = Ltx2Upsampler::from_json(text);
    let _ = AudioVaeConfig::from_json(text);
    let _ = AudioVae::from_json(text);
    let _ = VocoderConfig::from_json(text);
    let _ = Vocoder::from_json(text);
    let _ = SpectrogramCodec::from_json(text, WHOLE[1]);
    let _ = SpectrogramCodec::from_json(WHOLE[0], text);
    let _ = ClipVisionConfig::from_json(text);
    let _ = ClipPreprocessor::from_json(text);
    if let Ok(own) = SchedulerConfig::from_json(text) {
        let _ = own.process();
    }
}
