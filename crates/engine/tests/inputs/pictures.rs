//! Pictures of users against Pillow, transformers and diffusers.

use std::fs;
use std::path::PathBuf;

use burn::tensor::{Device, Tensor};
use engine::{ClipPreprocessor, Filter, SourceImage};
use safetensors::SafeTensors;
use serde_json::Value;
use tempfile::TempDir;

fn goldens() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../goldens"))
}

fn picture(file: &str) -> SourceImage {
    SourceImage::read(&goldens().join("pictures").join(file)).expect("a picture")
}

/// The shape and the bytes of a tensor, and the config of the file.
fn golden(key: &str) -> (Vec<usize>, Vec<u8>, Value) {
    let bytes = fs::read(goldens().join("pictures.safetensors")).expect("a golden");
    let (_, header) = SafeTensors::read_metadata(&bytes).expect("a header");
    let config = &header.metadata().as_ref().expect("metadata")["config"];
    let config = serde_json::from_str(config).expect("JSON");
    let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    let view = file.tensor(key).expect(key);
    (view.shape().to_vec(), view.data().to_vec(), config)
}

/// The same values, to the bit.
#[track_caller]
fn check(key: &str, ours: Tensor<4>) {
    let (shape, bytes, _) = golden(key);
    assert_eq!(ours.dims().to_vec(), shape, "{key}");
    let ours = ours.into_data().try_to_vec::<f32>().expect("f32");
    let wanted = bytes.chunks_exact(4);
    let wanted = wanted.map(|four| f32::from_le_bytes(four.try_into().expect("four bytes")));
    let different = ours.iter().zip(wanted).filter(|(ours, wanted)| *ours != wanted).count();
    assert_eq!(different, 0, "{key}: of {} values", ours.len());
}

/// How far the levels are from what Pillow reads, at most.
fn distance(file: &str) -> u8 {
    let (shape, wanted, _) = golden(&format!("{file}.levels"));
    let image = picture(file);
    assert_eq!([&image.size()[..], &[3]].concat(), shape, "{file}");
    let pairs = image.levels().iter().zip(&wanted);
    pairs.map(|(ours, wanted)| ours.abs_diff(*wanted)).max().expect("levels")
}

#[test]
fn every_format_is_read_as_pillow_reads_it() {
    let lossless = ["alpha.png", "gray.png", "gray_alpha.png", "palette.png", "photo.webp"];
    for file in lossless {
        assert_eq!(distance(file), 0, "{file}");
    }
    // Decoders of JPEG may round differently; where colour is halved they may also blend it
    // differently.
    for (file, most) in [("turned.jpg", 2), ("halved.jpg", 3)] {
        assert!(distance(file) <= most, "{file}: {} levels", distance(file));
    }
}

#[test]
fn clip_sees_what_transformers_shows_it() {
    let (.., config) = golden("clip.shrunk");
    let image = picture("photo.png");
    for case in ["shrunk", "grown", "padded", "exact"] {
        let preprocessor = ClipPreprocessor::from_json(&config[case].to_string()).expect(case);
        check(&format!("clip.{case}"), preprocessor.apply(&image, &Device::flex()));
    }
}

#[test]
fn the_conditioning_picture_is_that_of_diffusers() {
    let image = picture("photo.png");
    let cases =
        [("shrunk", [16, 24]), ("tall", [56, 16]), ("wide", [8, 64]), ("one_way", [40, 16])];
    for (case, size) in cases {
        check(
            &format!("conditioning.{case}"),
            image.conditioning(size, Filter::Lanczos, &Device::flex()),
        );
    }
}

#[test]
fn what_is_no_picture_is_refused_by_name() {
    let folder = TempDir::new().expect("a folder");
    let whole = fs::read(goldens().join("pictures/photo.png")).expect("a picture");
    let cases: [(&str, &[u8], &str); 4] = [
        ("empty.png", b"", "not a picture; give a PNG, JPEG or WebP file"),
        ("notes.txt", b"a red fox", "not a picture"),
        ("cut.png", &whole[..whole.len() / 2], "cannot be read as a PNG, JPEG or WebP picture"),
        ("cartoon.gif", b"GIF89a\x01\x00\x01\x00\x00\x00\x00;", "PNG, JPEG or WebP"),
    ];
    for (name, bytes, words) in cases {
        let path = folder.path().join(name);
        fs::write(&path, bytes).expect("written");
        let error = SourceImage::read(&path).expect_err(name).to_string();
        assert!(error.contains(words) && error.contains(name), "{error}");
    }
    let error = SourceImage::read(folder.path()).expect_err("a folder").to_string();
    assert!(error.contains("it is a folder"), "{error}");
    let error = SourceImage::read(&folder.path().join("none.png")).expect_err("no file");
    assert!(error.to_string().contains("none.png"), "{error}");
}

/// The name of a file does not decide what it is.
#[test]
fn the_contents_decide_the_format() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("really_a_png.jpg");
    fs::copy(goldens().join("pictures/photo.png"), &path).expect("copied");
    assert_eq!(SourceImage::read(&path).expect("a picture"), picture("photo.png"));
}
