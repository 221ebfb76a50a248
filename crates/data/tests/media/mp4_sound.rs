//! MP4 and WebM with sound: the container by its demuxer, the sound by decoders, its tone by the judge of the shapes world.

use super::{Command, Path, frames, has_ffmpeg, rate};
use data::media::{ClipWriter, Waveform};
use data::world::{Colour, Follows, Judge, MovingShape, Tone, WorldOptions};
use shiguredo_mp4::bitstream::aac::{
    AdtsEncodeConfig, AdtsMpegVersion, parse_audio_specific_config, wrap_raw_aac_in_adts,
};
use shiguredo_mp4::boxes::{MoovBox, Mp4aBox, SampleEntry};
use shiguredo_mp4::demux::{Input, Mp4FileDemuxer};
use shiguredo_mp4::{Decode, TrackKind};
use syom::DecodeOptions;

/// The tone of one scene and the place of its pitch.
pub(crate) fn tone(sample_rate: u32, seconds: f64) -> (Vec<f32>, usize) {
    let scene = MovingShape::of(&Colour::KNOWN)[5];
    let tone = Tone { follows: Follows::Direction, sample_rate };
    (tone.waveform(&scene, seconds), tone.pitch(&scene))
}

pub(crate) fn heard(samples: &[f32], rate: u32) -> Option<usize> {
    Judge::new(&WorldOptions::default()).read_tone(samples, rate)
}

pub(crate) fn write(path: &Path, count: usize, fps: &str, sound: &Waveform) {
    let mut writer = ClipWriter::create(path, rate(fps)).unwrap();
    for frame in frames(count, 32, 48) {
        writer.push(&frame).unwrap();
    }
    writer.sound(sound).unwrap();
    writer.finish().unwrap();
}

/// What a file says of its sound, and the sound itself.
struct Heard {
    rate: u32,
    channels: u16,
    /// Where the edit list begins and how long it lasts, in samples.
    edit: (i64, f64),
    /// Samples of each channel, all that were decoded.
    planes: Vec<Vec<f32>>,
}

fn demux(path: &Path) -> Heard {
    let bytes = std::fs::read(path).unwrap();
    let mut demuxer = Mp4FileDemuxer::new();
    demuxer.handle_input(Input { position: 0, data: &bytes });
    let tracks = demuxer.tracks().unwrap().to_vec();
    assert_eq!(
        tracks.iter().map(|own| own.kind).collect::<Vec<_>>(),
        [TrackKind::Video, TrackKind::Audio]
    );
    let mut entry: Option<Mp4aBox> = None;
    let (mut raw, mut durations) = (Vec::new(), Vec::new());
    while let Some(sample) = demuxer.next_sample().unwrap() {
        if sample.track.kind == TrackKind::Audio {
            if let Some(SampleEntry::Mp4a(own)) = sample.sample_entry {
                entry = Some(own.clone());
            }
            durations.push(sample.duration);
            let start = sample.data_offset as usize;
            raw.push(bytes[start..start + sample.data_size].to_vec());
        }
    }
    let entry = entry.unwrap();
    let (last, others) = durations.split_last().unwrap();
    assert!(*last <= 1024 && others.iter().all(|own| *own == 1024), "{durations:?}");
    let config = entry.esds_box.es.dec_config_descr.dec_specific_info.unwrap().payload;
    let config = parse_audio_specific_config(&config).unwrap();
    let adts = AdtsEncodeConfig {
        mpeg_version: AdtsMpegVersion::Mpeg4,
        original_copy: false,
        home: false,
    };
    let framed = |own: &Vec<u8>| wrap_raw_aac_in_adts(own, &config, &adts).unwrap();
    let stream: Vec<u8> = raw.iter().flat_map(framed).collect();
    let decoded = syom::decode_with(&stream, &DecodeOptions::unbounded()).unwrap();
    let at = bytes.windows(4).position(|own| own == b"moov").unwrap() - 4;
    let (moov, _) = MoovBox::decode(&bytes[at..]).unwrap();
    let list = moov.trak_boxes[1].edts_box.as_ref().unwrap().elst_box.as_ref().unwrap();
    let lasts = list.entries[0].edit_duration as f64 / f64::from(moov.mvhd_box.timescale.get());
    let rate = tracks[1].timescale.get();
    Heard {
        rate,
        channels: entry.audio.channelcount,
        edit: (list.entries[0].media_time, lasts * f64::from(rate)),
        planes: decoded.channels,
    }
}

/// The sound of a file by ffmpeg, which obeys the edit list: interleaved samples.
fn decoded_by_ffmpeg(path: &Path) -> Vec<f32> {
    let output = Command::new("ffmpeg")
        .args(["-v", "error", "-i"])
        .arg(path)
        .args(["-map", "0:a", "-f", "f32le", "-c:a", "pcm_f32le", "pipe:1"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
        .stdout
        .chunks_exact(4)
        .map(|own| f32::from_le_bytes([own[0], own[1], own[2], own[3]]))
        .collect()
}

#[test]
fn a_clip_holds_its_sound_to_the_sample() {
    let folder = tempfile::tempdir().unwrap();
    // 7993 is no rate of AAC, and becomes 8000.
    for (given, kept, count, fps) in [
        (8000, 8000, 8, "16"),
        (16_000, 16_000, 25, "24"),
        (44_100, 44_100, 13, "23.976"),
        (48_000, 48_000, 12, "12.5"),
        (7993, 8000, 10, "10"),
    ] {
        let path = folder.path().join(format!("{given}.mp4"));
        let seconds = count as f64 / rate(fps).per_second();
        let (samples, pitch) = tone(given, seconds);
        write(&path, count, fps, &Waveform::mono(given, samples.clone()));
        let found = demux(&path);
        assert_eq!((found.rate, found.channels), (kept, 1), "{given}");
        let want = (samples.len() as f64 * f64::from(kept) / f64::from(given)).round();
        assert!(
            (found.edit.1 - want).abs() < 1.0 / 1024.0,
            "{given}: {} is not {want}",
            found.edit.1
        );
        let plane = &found.planes[0][found.edit.0 as usize..][..want as usize];
        assert_eq!(heard(plane, kept), Some(pitch), "{given}");
        if given == kept {
            let error: f64 =
                plane.iter().zip(&samples).map(|(a, b)| f64::from(a - b).powi(2)).sum();
            let power: f64 = samples.iter().map(|own| f64::from(*own).powi(2)).sum();
            let decibel = 10.0 * (power / error).log10();
            println!("{given} Hz: {decibel:.1} dB");
            assert!(decibel > 20.0, "{given} Hz: the sound is {decibel} dB above its error");
        }
        if has_ffmpeg() {
            // ffmpeg begins where the edit list says, and plays the last frame whole, of its own files too.
            let own = decoded_by_ffmpeg(&path);
            assert!(
                (0..1024).contains(&(own.len() as i64 - want as i64)),
                "{given}: {}",
                own.len()
            );
            let own = &own[..want as usize];
            assert_eq!(heard(own, kept), Some(pitch), "{given}");
        }
    }
}

#[test]
fn channels_stay_apart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stereo.mp4");
    let (left, pitch) = tone(48_000, 0.5);
    let samples = left.iter().flat_map(|own| [*own, 0.0]).collect();
    write(&path, 8, "16", &Waveform { sample_rate: 48_000, channels: 2, samples });
    let found = demux(&path);
    let start = found.edit.0 as usize;
    assert_eq!((found.channels, found.planes.len()), (2, 2));
    assert_eq!(heard(&found.planes[0][start..start + 24_000], 48_000), Some(pitch));
    let loudest = found.planes[1][start..start + 24_000]
        .iter()
        .fold(0.0_f32, |most, own| most.max(own.abs()));
    assert!(loudest < 0.02, "the silent side has {loudest}");
}

#[test]
fn the_same_sound_gives_the_same_bytes_and_starts_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = |name: &str| {
        let path = folder.path().join(name);
        write(&path, 24, "24", &Waveform::mono(24_000, tone(24_000, 1.0).0));
        std::fs::read(path).unwrap()
    };
    let own = bytes("a.mp4");
    assert_eq!(own, bytes("b.mp4"));
    let place = |name: &[u8]| own.windows(4).position(|part| part == name).unwrap();
    assert!(place(b"moov") < place(b"mdat"));
}

/// An index without room at the beginning goes to the end, edit list and all.
#[test]
fn a_long_sound_has_its_index_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.mp4");
    let (samples, pitch) = tone(48_000, 20.0);
    write(&path, 480, "24", &Waveform::mono(48_000, samples));
    let bytes = std::fs::read(&path).unwrap();
    let place = |name: &[u8]| bytes.windows(4).position(|part| part == name).unwrap();
    assert!(place(b"moov") > place(b"mdat"));
    let found = demux(&path);
    let start = found.edit.0 as usize;
    assert_eq!(heard(&found.planes[0][start..start + 48_000], 48_000), Some(pitch));
    if has_ffmpeg() {
        assert!((960_000..961_024).contains(&decoded_by_ffmpeg(&path).len()));
    }
}

#[test]
fn silence_noise_and_what_is_no_number_are_written() {
    let folder = tempfile::tempdir().unwrap();
    for (name, value) in [("silence", 0.0), ("loud", 7.0), ("none", f32::NAN)] {
        let path = folder.path().join(format!("{name}.mp4"));
        write(&path, 8, "16", &Waveform::mono(8000, vec![value; 4000]));
        assert_eq!(demux(&path).planes.len(), 1, "{name}");
    }
}

#[test]
fn a_webm_has_its_sound_as_opus() {
    if !has_ffmpeg() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clip.webm");
    let (samples, pitch) = tone(8000, 0.5);
    write(&path, 8, "16", &Waveform::mono(8000, samples.clone()));
    let own = decoded_by_ffmpeg(&path);
    assert_eq!(heard(&own, 48_000), Some(pitch));
    let seconds = own.len() as f64 / 48_000.0;
    assert!((seconds - 0.5).abs() < 0.03, "{seconds} s");
    let again = folder.path().join("again.webm");
    write(&again, 8, "16", &Waveform::mono(8000, samples));
    assert_eq!(std::fs::read(&path).unwrap(), std::fs::read(again).unwrap());
}
