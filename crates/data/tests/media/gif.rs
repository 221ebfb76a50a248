//! GIFs, read back by the `image` crate.

use super::{Frame, Path, frames, psnr, rate, write};
use image::AnimationDecoder;
use image::codecs::gif::GifDecoder;
use std::fs::File;
use std::io::BufReader;

/// The frames as RGB, and the delay of each in hundredths of a second.
fn read(path: &Path) -> (Vec<Vec<u8>>, Vec<u32>) {
    let decoder = GifDecoder::new(BufReader::new(File::open(path).unwrap())).unwrap();
    let frames = decoder.into_frames().collect_frames().unwrap();
    let delays = frames.iter().map(|frame| {
        let (numerator, denominator) = frame.delay().numer_denom_ms();
        numerator / denominator / 10
    });
    let delays = delays.collect();
    let rgb = |frame: image::Frame| image::DynamicImage::from(frame.into_buffer()).into_rgb8();
    (frames.into_iter().map(|frame| rgb(frame).into_raw()).collect(), delays)
}

fn written(frames: &[Frame], fps: &str) -> (Vec<Vec<u8>>, Vec<u32>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clip.gif");
    write(&path, frames, rate(fps));
    read(&path)
}

#[test]
fn a_clip_of_many_colours_is_close_to_its_source() {
    let frames = frames(9, 60, 84);
    let (found, _) = written(&frames, "8");
    assert_eq!(found.len(), 9);
    let worst = found
        .iter()
        .zip(&frames)
        .map(|(found, want)| psnr(found, &want.bytes()))
        .fold(f64::INFINITY, f64::min);
    println!("GIF: {worst:.1} dB");
    assert!(worst > 34.3, "{worst} dB");
    // The grain makes nothing brighter or darker.
    let mean =
        |bytes: &[u8]| bytes.iter().map(|byte| f64::from(*byte)).sum::<f64>() / bytes.len() as f64;
    for (found, want) in found.iter().zip(&frames) {
        let off = mean(found) - mean(&want.bytes());
        assert!(off.abs() < 1.0, "{off} levels brighter");
    }
}

#[test]
fn a_clip_of_few_colours_is_exact() {
    let colours = [[250, 20, 30], [20, 240, 10], [0, 30, 255], [255, 255, 255], [17, 17, 17]];
    let frame = |index: usize| {
        let pixels = (0..7 * 9).flat_map(|place| colours[(place * (index + 1) / 3) % 5]);
        Frame::from_bytes(7, 9, &pixels.collect::<Vec<u8>>()).unwrap()
    };
    let frames: Vec<Frame> = (0..5).map(frame).collect();
    let (found, _) = written(&frames, "8");
    let want: Vec<Vec<u8>> = frames.iter().map(Frame::bytes).collect();
    assert_eq!(found, want);
}

#[test]
fn delays_keep_the_rate() {
    assert_eq!(written(&frames(7, 8, 8), "24").1, [4, 4, 5, 4, 4, 4, 4]);
    assert_eq!(written(&frames(3, 8, 8), "12.5").1, [8, 8, 8]);
    assert_eq!(written(&frames(3, 8, 8), "100").1, [2, 2, 2]);
    let total: u32 = written(&frames(24, 4, 4), "23.976").1.iter().sum();
    assert_eq!(total, 100);
}

#[test]
fn a_gif_loops_forever() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clip.gif");
    write(&path, &frames(2, 8, 8), rate("8"));
    let bytes = std::fs::read(path).unwrap();
    let forever = b"NETSCAPE2.0\x03\x01\0\0\0";
    assert!(bytes.windows(forever.len()).any(|window| window == forever));
}
