//! A sound as AAC-LC, which every player of MP4 files knows.

use super::Waveform;
use super::resample::resampled;
use shiguredo_mp4::bitstream::aac::{
    Mp4aSampleEntryConfig, build_mp4a_box, parse_audio_specific_config,
};
use shiguredo_mp4::boxes::SampleEntry;
use syom::{EncodeOptions, Encoder};

/// Samples of a frame.
const FRAME: u32 = 1024;

/// The sample rates that AAC has. 7350 is left out: hardly anything plays it.
const RATES: [u32; 12] =
    [8000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 64_000, 88_200, 96_000];

/// Bits of a sample. Hardly anyone hears a difference at 4.
const BITS: u32 = 4;

/// Bits a second of a channel at the most.
const MOST_BITS: u32 = 160_000;

/// An encoded sound.
pub(super) struct Aac {
    /// Samples per second.
    pub(super) rate: u32,
    /// What a player must know before the first frame.
    pub(super) entry: SampleEntry,
    /// Frames of so many samples each.
    pub(super) frames: Vec<Vec<u8>>,
    /// Samples of silence that the first frames begin with.
    pub(super) priming: u32,
    /// Samples of the sound itself, of each channel.
    pub(super) samples: u64,
}

impl Aac {
    /// How many samples of a frame are heard: of the last one, those that are not filled up.
    pub(super) fn lasts(&self, frame: usize) -> u32 {
        let before = frame as u64 * u64::from(FRAME);
        let left = (u64::from(self.priming) + self.samples).saturating_sub(before);
        left.clamp(1, u64::from(FRAME)) as u32
    }
}

impl Aac {
    /// Encodes a sound of one or two channels; of more, the mean of all. A rate that AAC has not is brought to the next
    /// higher one that it has.
    ///
    /// # Errors
    /// The encoder refuses.
    pub(super) fn encode(sound: &Waveform) -> Result<Aac, String> {
        let planes = match sound.channels {
            1 | 2 => sound.split(),
            _ => vec![sound.mixed()],
        };
        let rate = RATES.into_iter().find(|rate| *rate >= sound.sample_rate);
        let rate = rate.unwrap_or(RATES[RATES.len() - 1]);
        let cut = |plane: Vec<f32>| -> Vec<f32> {
            let plane = resampled(&plane, sound.sample_rate, rate);
            // What is no number is silence.
            plane.iter().map(|own| if own.is_nan() { 0.0 } else { own.clamp(-1.0, 1.0) }).collect()
        };
        let planes: Vec<Vec<f32>> = planes.into_iter().map(cut).collect();
        let views: Vec<&[f32]> = planes.iter().map(Vec::as_slice).collect();
        let mut options = EncodeOptions::raw();
        options.bitrate_bps = (rate * BITS).min(MOST_BITS) * planes.len() as u32;
        let refused = |error: syom::AacError| error.to_string();
        let mut encoder = Encoder::new(rate, planes.len(), &options).map_err(refused)?;
        let mut frames = Vec::new();
        let mut keep = |frame: syom::EncodedFrame<'_>| {
            frames.push(frame.payload.to_vec());
            Ok(())
        };
        encoder.feed(&views, &mut keep).map_err(refused)?;
        let info = encoder.finish(&mut keep).map_err(refused)?;
        let config = parse_audio_specific_config(encoder.asc()).map_err(|own| own.to_string())?;
        let longest = frames.iter().map(Vec::len).max().unwrap_or(0);
        let described = Mp4aSampleEntryConfig {
            es_id: 1,
            buffer_size_db: longest as u32,
            max_bitrate: options.bitrate_bps,
            avg_bitrate: options.bitrate_bps,
        };
        let entry = build_mp4a_box(&config, &described).map_err(|own| own.to_string())?;
        let (priming, samples) = (info.priming as u32, planes[0].len() as u64);
        Ok(Aac { rate, entry: SampleEntry::Mp4a(entry), frames, priming, samples })
    }
}
