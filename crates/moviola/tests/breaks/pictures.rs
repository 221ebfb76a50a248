//! Pictures that are small as files and enormous in memory.

use std::fs;
use std::path::PathBuf;

use crate::place::{Place, golden};
use crate::process::{Run, text};

/// A sound picture in a file of many zeros.
const SPARSE: &str = "sparse.png";

/// Writes a bomb.
fn plant(place: &Place, folder: &str, (name, bytes): &(&str, Vec<u8>)) -> PathBuf {
    let path = place.write(&format!("{folder}/{name}"), bytes);
    if *name == SPARSE {
        fs::File::options().write(true).open(&path).unwrap().set_len(600 << 20).unwrap();
    }
    fs::write(path.with_extension("txt"), name).unwrap();
    path
}

/// Files by name. Each says that it is far larger than it is.
fn bombs(place: &Place) -> Vec<(&'static str, Vec<u8>)> {
    let mut jpeg = fs::read(place.picture("seed.jpg", [16, 16], 1)).unwrap();
    let frame = jpeg.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    jpeg[frame + 5..frame + 9].copy_from_slice(&[0xff, 0xdc, 0xff, 0xdc]);
    let sparse = fs::read(place.picture("seed.png", [16, 16], 1)).unwrap();
    vec![
        ("bomb.jpg", jpeg),
        ("bomb.png", png(50_000, 50_000, [8, 2], &[])),
        ("bits.png", png(65_535, 65_535, [1, 0], &[])),
        ("long.png", png(1 << 30, 1, [8, 2], &[])),
        ("bomb.bmp", bmp(60_000)),
        ("bomb.webp", webp(place)),
        (SPARSE, sparse),
    ]
}

/// A PNG of that width and height, with nothing behind its header but `chunks`.
fn png(
    width: u32,
    height: u32,
    [depth, colour]: [u8; 2],
    chunks: &[(&[u8; 4], Vec<u8>)],
) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = [width.to_be_bytes(), height.to_be_bytes()].concat();
    header.extend([depth, colour, 0, 0, 0]);
    let data = vec![0x78, 0x9c, 3, 0, 0, 0, 0, 1];
    let first = (b"IHDR", header);
    let last = [(b"IDAT", data), (b"IEND", Vec::new())];
    for (name, content) in [first].iter().chain(chunks).chain(&last) {
        bytes.extend((content.len() as u32).to_be_bytes());
        let start = bytes.len();
        bytes.extend(*name);
        bytes.extend(content);
        bytes.extend(crc(&bytes[start..]).to_be_bytes());
    }
    bytes
}

fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1)))
    })
}

/// A gigabyte of zeros as a zlib stream: one zero, then matches of 258 bytes at distance 1.
fn gigabyte() -> Vec<u8> {
    let mut bits = vec![1, 1, 0];
    bits.extend([0, 0, 1, 1, 0, 0, 0, 0]);
    let matched = [1, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0];
    bits.extend(matched.repeat((1 << 30) / 258));
    let byte = |eight: &[u8]| eight.iter().rev().fold(0, |byte, bit| byte << 1 | bit);
    [0x78, 0x9c].into_iter().chain(bits.chunks(8).map(byte)).collect()
}

fn bmp(side: u32) -> Vec<u8> {
    let mut bytes = b"BM".to_vec();
    for number in [54, 0, 54, 40, side, side] {
        bytes.extend(u32::to_le_bytes(number));
    }
    bytes.extend([1, 0, 24, 0]);
    bytes.resize(54, 0);
    bytes
}

/// A sound picture whose EXIF block says that it has 4 GB.
fn webp(place: &Place) -> Vec<u8> {
    let plain = fs::read(place.picture("seed.webp", [16, 16], 1)).unwrap();
    let mut bytes = b"RIFF\xff\xff\xff\xf0WEBPVP8X\x0a\0\0\0\x08\0\0\0\x0f\0\0\x0f\0\0".to_vec();
    bytes.extend(&plain[12..]);
    bytes.extend(b"EXIF\xf0\xff\xff\xf0");
    bytes
}

#[test]
fn a_picture_bomb_is_skipped_and_the_rest_is_encoded() {
    let place = Place::new();
    place.picture("clips/good.png", [32, 32], 1);
    // A profile that is a bomb says nothing of the picture, which is decoded.
    let profile = [b"a\0\0".to_vec(), gigabyte()].concat();
    let icc = png(32, 32, [8, 2], &[(b"iCCP", profile)]);
    let bombs: Vec<_> = bombs(&place).into_iter().chain([("icc.png", icc)]).collect();
    for bomb in &bombs {
        plant(&place, "clips", bomb);
    }
    let (model, clips, dataset) =
        (golden("pixart-tiny"), place.text("clips"), place.text("dataset"));
    let bucket = ["--bucket", "32x32x1", "--enlarge", "2", "--data", &clips];
    let preprocess = ["preprocess", "--model", text(&model), "--output", &dataset];
    let ended = Run::of([&preprocess[..], &bucket].concat()).ended();
    ended.ended_with(0, &["1 samples"]);
    let doctor = Run::of([&["doctor", "--decode"], &bucket[..]].concat()).ended();
    doctor.ended_with(1, &["1 of 9 clips would be encoded"]);
    for (name, _) in &bombs {
        let skipped = format!("skipped {name}: it cannot be read: ");
        assert!(ended.complained.contains(&skipped), "{name}: {}", ended.complained);
        assert!(doctor.said.contains(&skipped), "{name}: {}", doctor.said);
    }
    for words in ["65500x65500", "50000x50000", "65535x65535", "60000x60000", "100 million pixels"]
    {
        assert!(doctor.said.contains(words), "{words}: {}", doctor.said);
    }
}

#[test]
fn a_picture_bomb_is_refused_as_a_condition() {
    let place = Place::new();
    let model = golden("wan-tiny-i2v");
    let output = place.text("out.gif");
    for bomb in bombs(&place) {
        let (name, bomb) = (bomb.0, plant(&place, "given", &bomb));
        let ended = Run::of([
            "generate",
            "--model",
            text(&model),
            "--prompt",
            "a fox",
            "--steps",
            "1",
            "--output",
            &output,
            "--image",
            text(&bomb),
        ])
        .ended();
        // BMP is no format of ours here.
        ended.refused(&["--image", name]);
        fs::remove_file(&bomb).unwrap();
    }
    assert!(!place.names("").iter().any(|name| name.contains("out")), "{:?}", place.names(""));
}

/// The image encoder would stretch it to 13 million pixels in width.
#[test]
fn a_picture_that_is_one_line_is_refused_as_a_condition() {
    let place = Place::new();
    let line = place.picture("line.png", [60_000, 1], 1);
    let model = place.model("wan-tiny-i2v", "model");
    let config = model.join("image_processor/preprocessor_config.json");
    let sizes = r#"{"size": {"shortest_edge": 224}, "crop_size": {"height": 28, "width": 28}}"#;
    fs::write(config, sizes).unwrap();
    let output = place.text("out.gif");
    let words = ["generate", "--model", text(&model), "--prompt", "a fox", "--steps", "1"];
    let files = ["--output", &output, "--image", text(&line)];
    let ended = Run::of(words.into_iter().chain(files)).ended();
    ended.refused(&["--image", "60000x1", "no clip follows such proportions"]);
    let sizes = ["--height", "32", "--width", "32", "--fit", "stretch"];
    let ended = Run::of(words.into_iter().chain(files).chain(sizes)).ended();
    ended.refused(&["--image", "60000x1", "100 million pixels"]);
    ended.within(20);
}
