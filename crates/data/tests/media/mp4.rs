//! MP4: the container by its demuxer, the pictures by OpenH264's decoder, both by ffmpeg.

use super::{Command, Frame, Path, frames, has_ffmpeg, psnr, rate, write};
use data::media::DecodedClip;
use openh264::decoder::Decoder;
use openh264::formats::YUVSource;
use shiguredo_mp4::TrackKind;
use shiguredo_mp4::boxes::{Avc1Box, SampleEntry};
use shiguredo_mp4::demux::{Input, Mp4FileDemuxer};

/// What is in a file.
struct Movie {
    timescale: u32,
    /// Of every frame, in ticks.
    durations: Vec<u32>,
    keyframes: Vec<usize>,
    entry: Avc1Box,
    /// The frames' pictures as Annex B, the first with its parameter sets.
    pictures: Vec<Vec<u8>>,
}

fn demux(path: &Path) -> Movie {
    let bytes = std::fs::read(path).unwrap();
    let mut demuxer = Mp4FileDemuxer::new();
    demuxer.handle_input(Input { position: 0, data: &bytes });
    let tracks = demuxer.tracks().unwrap().to_vec();
    assert_eq!(tracks.len(), 1);
    assert_eq!(tracks[0].kind, TrackKind::Video);
    let mut movie = Movie {
        timescale: tracks[0].timescale.get(),
        durations: Vec::new(),
        keyframes: Vec::new(),
        entry: sample_entry(&bytes),
        pictures: Vec::new(),
    };
    while let Some(sample) = demuxer.next_sample().unwrap() {
        if sample.keyframe {
            movie.keyframes.push(movie.durations.len());
        }
        movie.durations.push(sample.duration);
        let start = sample.data_offset as usize;
        movie.pictures.push(annex_b(&bytes[start..start + sample.data_size]));
    }
    let sets = movie.entry.avcc_box.sps_list.iter().chain(&movie.entry.avcc_box.pps_list);
    let sets: Vec<u8> = sets.flat_map(|set| [&[0, 0, 0, 1], &set[..]].concat()).collect();
    movie.pictures[0].splice(0..0, sets);
    movie
}

fn sample_entry(bytes: &[u8]) -> Avc1Box {
    let mut demuxer = Mp4FileDemuxer::new();
    demuxer.handle_input(Input { position: 0, data: bytes });
    let sample = demuxer.next_sample().unwrap().unwrap();
    match sample.sample_entry {
        Some(SampleEntry::Avc1(entry)) => entry.clone(),
        other => panic!("{other:?} is not H.264"),
    }
}

/// Lengths become start codes.
fn annex_b(mut sample: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    while let Some((length, rest)) = sample.split_first_chunk::<4>() {
        let (unit, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        assert!(!matches!(unit[0] & 31, 7 | 8), "parameter sets belong into the index");
        stream.extend([&[0, 0, 0, 1], unit].concat());
        sample = rest;
    }
    stream
}

/// The pictures as RGB, cut to `height` and `width`.
fn decode(movie: &Movie, height: usize, width: usize) -> Vec<Vec<u8>> {
    let mut decoder = Decoder::new().unwrap();
    let picture = |stream: &Vec<u8>| {
        let yuv = decoder.decode(stream).unwrap().expect("every sample is a picture");
        let at = |plane: &[u8], stride: usize, row: usize, column: usize| {
            f32::from(plane[row * stride + column])
        };
        let (strides, mut bytes) = (yuv.strides(), Vec::new());
        for row in 0..height {
            for column in 0..width {
                let luma = (at(yuv.y(), strides.0, row, column) - 16.0) / 219.0;
                let blue = (at(yuv.u(), strides.1, row / 2, column / 2) - 128.0) / 224.0;
                let red = (at(yuv.v(), strides.2, row / 2, column / 2) - 128.0) / 224.0;
                // The inverse of BT.709, as the standard prints it.
                let green = luma - 0.187_324 * blue - 0.468_124 * red;
                let rgb = [luma + 1.5748 * red, green, luma + 1.8556 * blue];
                bytes.extend(rgb.map(|channel| (channel * 255.0).round() as u8));
            }
        }
        bytes
    };
    movie.pictures.iter().map(picture).collect()
}

/// How bright every pixel is.
fn grey(rgb: &[u8]) -> Vec<u8> {
    let luma = |pixel: &[u8]| {
        let [red, green, blue] = [0, 1, 2].map(|channel| f32::from(pixel[channel]));
        (0.2126 * red + 0.7152 * green + 0.0722 * blue).round() as u8
    };
    rgb.chunks(3).map(luma).collect()
}

/// Writes frames and holds all that can be read back against them.
fn check(count: usize, (height, width): (usize, usize), fps: &str, ticks: (u32, u32)) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clip.mp4");
    let frames = frames(count, height, width);
    write(&path, &frames, rate(fps));
    let what = format!("{count} frames of {width}x{height} at {fps}");

    let movie = demux(&path);
    assert_eq!(movie.timescale, ticks.0, "{what}");
    assert_eq!(movie.durations, vec![ticks.1; count], "{what}");
    let coded = |length: usize| (length.next_multiple_of(2).max(16)) as u16;
    let size = (movie.entry.visual.height, movie.entry.visual.width);
    assert_eq!(size, (coded(height), coded(width)), "{what}");
    let every = (2.0 * rate(fps).per_second()).ceil() as usize;
    let want: Vec<usize> = (0..count).step_by(every).collect();
    assert_eq!(movie.keyframes, want, "{what}");

    let decoded = decode(&movie, height, width);
    let worst = |likeness: &dyn Fn(&[u8], &Frame) -> f64| {
        let pairs = decoded.iter().zip(&frames);
        pairs.map(|(found, want)| likeness(found, want)).fold(f64::INFINITY, f64::min)
    };
    let colours = worst(&|found, want| psnr(found, &want.bytes()));
    let greys = worst(&|found, want| psnr(&grey(found), &grey(&want.bytes())));
    let bytes = std::fs::metadata(&path).unwrap().len();
    println!("{what}: {colours:.1} dB, grey {greys:.1} dB, {bytes} bytes");
    assert!(greys > 40.0, "{what}: {greys} dB without colour");
    // On few pixels, halving the resolution of the colours is all that is lost.
    assert!(colours > 30.0 || height.min(width) < 32, "{what}: {colours} dB");
    if has_ffmpeg() {
        check_with_ffmpeg(&path, &frames, fps);
    }
}

fn check_with_ffmpeg(path: &Path, frames: &[Frame], fps: &str) {
    let entries = "stream=codec_name,pix_fmt,color_range,color_space,color_transfer,\
                   color_primaries,r_frame_rate,avg_frame_rate,nb_read_frames,width,height";
    let output = Command::new("ffprobe")
        .args(["-v", "error", "-count_frames", "-show_entries", entries])
        .args(["-of", "default=noprint_wrappers=1"])
        .arg(path)
        .output()
        .unwrap();
    let (text, complaints) = (String::from_utf8_lossy(&output.stdout), output.stderr);
    assert!(complaints.is_empty(), "{}", String::from_utf8_lossy(&complaints));
    let (numerator, denominator) = (rate(fps).numerator(), rate(fps).denominator());
    let (height, width) = frames[0].size();
    let coded = |length: usize| length.next_multiple_of(2).max(16);
    for line in [
        "codec_name=h264".to_owned(),
        "pix_fmt=yuv420p".to_owned(),
        "color_range=tv".to_owned(),
        "color_space=bt709".to_owned(),
        "color_transfer=bt709".to_owned(),
        "color_primaries=bt709".to_owned(),
        format!("r_frame_rate={numerator}/{denominator}"),
        format!("avg_frame_rate={numerator}/{denominator}"),
        format!("nb_read_frames={}", frames.len()),
        format!("width={}", coded(width)),
        format!("height={}", coded(height)),
    ] {
        assert!(text.lines().any(|found| found == line), "no {line} in {text}");
    }
    let clip = DecodedClip::read(path).unwrap();
    assert_eq!((clip.frames(), clip.rate()), (frames.len(), Some(rate(fps))));
    assert_eq!(clip.size(), (coded(height), coded(width)));
    if clip.size() == (height, width) && height.min(width) >= 32 {
        let like =
            |(index, frame): (usize, &Frame)| psnr(&clip.frame(index).bytes(), &frame.bytes());
        let worst = frames.iter().enumerate().map(like).fold(f64::INFINITY, f64::min);
        assert!(worst > 30.0, "{worst} dB");
    }
}

#[test]
fn a_clip_plays_as_it_was_written() {
    check(13, (48, 80), "24", (24, 1));
}

#[test]
fn fractional_rates_are_exact() {
    check(5, (36, 52), "23.976", (24_000, 1001));
    check(3, (36, 52), "12.5", (25, 2));
}

#[test]
fn one_frame_and_several_seconds() {
    check(1, (64, 64), "16", (16, 1));
    check(40, (16, 16), "8", (8, 1));
}

/// There is room for the index of some hundred frames; that of more stands at the end.
#[test]
fn a_very_long_clip_has_its_index_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clip.mp4");
    let one = frames(1, 16, 16).remove(0);
    write(&path, &vec![one; 1200], rate("24"));
    let bytes = std::fs::read(&path).unwrap();
    assert!(place(&bytes, b"moov") > place(&bytes, b"mdat"));
    let movie = demux(&path);
    assert_eq!((movie.durations.len(), movie.keyframes.len()), (1200, 1200usize.div_ceil(48)));
}

#[test]
fn odd_and_small_sizes_are_padded_by_their_edges() {
    check(4, (33, 47), "8", (8, 1));
    check(3, (5, 9), "8", (8, 1));
}

/// Where a box is.
fn place(bytes: &[u8], name: &[u8]) -> usize {
    bytes.windows(4).position(|window| window == name).unwrap()
}

/// The index stands before the pictures, so that a browser need not wait for all of them.
#[test]
fn a_player_can_start_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clip.mp4");
    write(&path, &frames(4, 32, 32), rate("16"));
    let bytes = std::fs::read(&path).unwrap();
    assert!(place(&bytes, b"moov") < place(&bytes, b"mdat"));
    assert_eq!(place(&bytes, b"ftyp"), 4);
    let colours = b"colrnclx\0\x01\0\x01\0\x01\0";
    assert!(bytes.windows(colours.len()).any(|window| window == colours));
}

/// The same frames give the same file, on any machine and at any time.
#[test]
fn writing_twice_gives_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = |name: &str| {
        let path = folder.path().join(name);
        write(&path, &frames(6, 40, 64), rate("16"));
        std::fs::read(path).unwrap()
    };
    assert_eq!(bytes("a.mp4"), bytes("b.mp4"));
}
