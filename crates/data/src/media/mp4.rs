//! H.264 by OpenH264, and perhaps a sound as AAC, in an MP4 file whose index comes first, so that browsers start
//! at once.

use super::aac::Aac;
use super::mp4_index::head_with_edits;
use super::write::Sink;
use super::yuv::Yuv;
use super::{Error, Frame, FrameRate, Place, Result, Waveform, begin, failure};
use crate::aside::AsideFile;
use openh264::OpenH264API;
use openh264::encoder::{
    BitRate, Complexity, Encoder, EncoderConfig, FrameRate as EncoderRate, FrameType,
    IntraFramePeriod, QpRange, RateControlMode, VuiConfig,
};
use shiguredo_mp4::bitstream::h264::{
    H264NalUnitType, H264SampleEntryConfig, LengthSize, build_avc1_box_from_annexb,
    parse_annexb_nal_units,
};
use shiguredo_mp4::boxes::{SampleEntry, UnknownBox};
use shiguredo_mp4::mux::{Mp4FileMuxer, Mp4FileMuxerOptions, Sample};
use shiguredo_mp4::{BoxSize, BoxType, TrackKind};
use std::io::Write;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

/// How coarsely all frames are quantised, of 51. Hardly anyone sees a difference at 18.
const QUANTISER: u8 = 18;

/// The longest and the shorter side that OpenH264 encodes.
const LARGEST: (usize, usize) = (3840, 2160);

/// Room for the index of about 300 frames and their sound; a longer clip has it at its end.
const INDEX_BYTES: usize = 4 << 10;

/// What `colr` says: BT.709 primaries, transfer and matrix, limited range.
const BT709: &[u8] = b"nclx\0\x01\0\x01\0\x01\0";

/// Writes an MP4 file.
pub(super) struct Mp4Sink {
    path: PathBuf,
    rate: FrameRate,
    file: AsideFile,
    muxer: Mp4FileMuxer,
    encoder: Option<Encoder>,
    /// Where the next sample goes.
    position: u64,
    sound: Option<Aac>,
}

impl Mp4Sink {
    pub(super) fn create(place: Place<'_>, rate: FrameRate) -> Result<Mp4Sink> {
        let path = place.0;
        let mut file = begin(place)?;
        let options =
            Mp4FileMuxerOptions { reserved_moov_box_size: INDEX_BYTES, ..Default::default() };
        let muxer = Mp4FileMuxer::with_options(options).map_err(|error| refused(path, error))?;
        file.write_all(muxer.initial_boxes_bytes()).map_err(failure(path))?;
        let position = muxer.initial_boxes_bytes().len() as u64;
        Ok(Mp4Sink {
            path: path.to_owned(),
            rate,
            file,
            muxer,
            encoder: None,
            position,
            sound: None,
        })
    }

    fn encoder(&mut self, size: (usize, usize)) -> Result<&mut Encoder> {
        if self.encoder.is_none() {
            let (long, short) = (size.0.max(size.1), size.0.min(size.1));
            if long > LARGEST.0 || short > LARGEST.1 {
                let limit = "H.264 (3840x2160)";
                return Err(Error::TooLarge { path: self.path.clone(), size, limit });
            }
            let config = config(self.rate, size);
            let made = Encoder::with_api_config(OpenH264API::from_source(), config);
            self.encoder = Some(made.map_err(|error| refused(&self.path, error))?);
        }
        let missing = || refused(&self.path, "there is no encoder");
        self.encoder.as_mut().ok_or_else(missing)
    }

    /// Writes a sample behind the last one.
    fn append(&mut self, sample: &Sample, data: &[u8]) -> Result<()> {
        self.muxer.append_sample(sample).map_err(|error| refused(&self.path, error))?;
        self.position += data.len() as u64;
        self.file.write_all(data).map_err(failure(&self.path))
    }
}

impl Sink for Mp4Sink {
    fn push(&mut self, frame: &Frame) -> Result<()> {
        let path = self.path.clone();
        let yuv = Yuv::new(frame);
        let encoded = self.encoder(frame.size())?.encode(&yuv);
        let encoded = encoded.map_err(|error| refused(&path, error))?;
        let kind = encoded.frame_type();
        if !matches!(kind, FrameType::IDR | FrameType::I | FrameType::P) {
            return Err(refused(&path, format!("the encoder left out a frame ({kind:?})")));
        }
        let stream = encoded.to_vec();
        let data = pictures(&stream).map_err(|error| refused(&path, error))?;
        let entry = match self.position == self.muxer.initial_boxes_bytes().len() as u64 {
            true => Some(sample_entry(&stream).map_err(|error| refused(&path, error))?),
            false => None,
        };
        let sample = Sample {
            track_kind: TrackKind::Video,
            sample_entry: entry,
            keyframe: matches!(kind, FrameType::IDR),
            timescale: NonZeroU32::new(self.rate.numerator()).unwrap_or(NonZeroU32::MIN),
            duration: self.rate.denominator(),
            composition_time_offset: None,
            data_offset: self.position,
            data_size: data.len(),
        };
        self.append(&sample, &data)
    }

    fn sound(&mut self, sound: &Waveform) -> Result<()> {
        let encoded = Aac::encode(sound).map_err(|reason| refused(&self.path, reason))?;
        for (at, data) in encoded.frames.iter().enumerate() {
            let sample = Sample {
                track_kind: TrackKind::Audio,
                sample_entry: (at == 0).then(|| encoded.entry.clone()),
                keyframe: true,
                timescale: NonZeroU32::new(encoded.rate).unwrap_or(NonZeroU32::MIN),
                duration: encoded.lasts(at),
                composition_time_offset: None,
                data_offset: self.position,
                data_size: data.len(),
            };
            self.append(&sample, data)?;
        }
        self.sound = Some(encoded);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        let failure = failure(&self.path);
        let refused = |error: &dyn ToString| refused(&self.path, error.to_string());
        let boxes = self.muxer.finalize().map_err(|error| refused(&error))?;
        let parts: Vec<(u64, Vec<u8>)> = match &self.sound {
            None => boxes.offset_and_bytes_pairs().map(|(at, own)| (at, own.to_vec())).collect(),
            Some(sound) => {
                let parts = head_with_edits(boxes, sound, self.position);
                parts.map_err(|error| refused(&error))?
            }
        };
        for (position, bytes) in parts {
            self.file.overwrite(position, &bytes).map_err(&failure)?;
        }
        self.file.commit().map_err(failure)
    }
}

/// Every frame in the same quality, none left out, a place to seek to every two seconds.
///
/// The mode is the one that takes a fixed quantiser and says nothing: the others warn on
/// standard error that they cannot hold a bit rate without leaving frames out.
fn config(rate: FrameRate, (height, width): (usize, usize)) -> EncoderConfig {
    // With a fixed quantiser the bit rate decides nothing but the level that is declared.
    let bits = (height * width) as f64 * rate.per_second().min(60.0) * 0.2;
    EncoderConfig::new()
        .rate_control_mode(RateControlMode::Bufferbased)
        .qp(QpRange::new(QUANTISER, QUANTISER))
        .bitrate(BitRate::from_bps((bits as u32).max(100_000)))
        .max_frame_rate(EncoderRate::from_hz(rate.per_second().min(60.0) as f32))
        .skip_frames(false)
        .scene_change_detect(false)
        .complexity(Complexity::High)
        .adaptive_quantization(false)
        .background_detection(false)
        .intra_frame_period(IntraFramePeriod::from_num_frames(
            (2.0 * rate.per_second()).ceil().max(1.0) as u32,
        ))
        .num_threads(1)
        .vui(VuiConfig::bt709())
}

/// The pictures of an Annex B stream with their lengths before them; what describes the stream
/// stands in the index.
fn pictures(stream: &[u8]) -> shiguredo_mp4::Result<Vec<u8>> {
    let mut data = Vec::with_capacity(stream.len());
    for unit in parse_annexb_nal_units(stream)? {
        if !matches!(unit.nal_unit_type, H264NalUnitType::Sps | H264NalUnitType::Pps) {
            data.extend((unit.data.len() as u32).to_be_bytes());
            data.extend(unit.data);
        }
    }
    Ok(data)
}

/// What a player must know before the first picture.
fn sample_entry(stream: &[u8]) -> shiguredo_mp4::Result<SampleEntry> {
    let config = H264SampleEntryConfig { length_size: LengthSize::FourBytes };
    let mut entry = build_avc1_box_from_annexb(stream, &config)?;
    let colr = BoxType::Normal(*b"colr");
    entry.unknown_boxes.push(UnknownBox {
        box_type: colr,
        box_size: BoxSize::with_payload_size(colr, BT709.len() as u64),
        payload: BT709.to_vec(),
    });
    Ok(SampleEntry::Avc1(entry))
}

fn refused(path: &Path, reason: impl ToString) -> Error {
    Error::Encode { path: path.to_owned(), reason: reason.to_string() }
}
