//! `moviola preprocess` and `moviola doctor`: from files to encoded samples.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use burn::tensor::{DType, Device, FloatDType};
use data::media::{ClipWriter, Frame, FrameRate};
use data::preprocess::Encode;
use data::store::{Dataset, LATENTS, MASK, REF_LATENTS, Sample, TEXT};
use engine::{EncoderSetup, FolderEncoder};
use tempfile::TempDir;

use crate::folder::{goldens, run};

/// A folder with `clips/` and, once it is preprocessed, `dataset/`.
pub(crate) struct Workplace(TempDir);

impl Workplace {
    pub(crate) fn new() -> Workplace {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("clips")).unwrap();
        Workplace(root)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// A picture with a caption beside it; `seed` makes its pixels.
    pub(crate) fn picture(&self, name: &str, [width, height]: [u32; 2], seed: u32, caption: &str) {
        let path = self.path("clips").join(name);
        let pixels = (0..width * height * 3).map(|at| ((at * 31 + seed * 97) % 251) as u8);
        let image = image::RgbImage::from_raw(width, height, pixels.collect()).unwrap();
        image.save(&path).unwrap();
        fs::write(path.with_extension("txt"), caption).unwrap();
    }

    /// A video of 8 frames a second with a caption beside it.
    pub(crate) fn video(&self, name: &str, size: [usize; 2], frames: usize, caption: &str) {
        self.video_at(8, name, size, frames, caption);
    }

    /// The same at another rate.
    pub(crate) fn video_at(
        &self,
        rate: u32,
        name: &str,
        [width, height]: [usize; 2],
        frames: usize,
        caption: &str,
    ) {
        let path = self.path("clips").join(name);
        let mut writer = ClipWriter::create(&path, FrameRate::new(rate, 1).unwrap()).unwrap();
        for frame in 0..frames {
            let value = |at: usize| ((at * 7 + frame * 50) % 256) as f32 / 255.0;
            let pixels = (0..width * height * 3).map(value).collect();
            writer.push(&Frame::new(height, width, pixels).unwrap()).unwrap();
        }
        writer.finish().unwrap();
        fs::write(path.with_extension("txt"), caption).unwrap();
    }

    pub(crate) fn preprocess(&self, model: &str, data: &str, more: &[&str]) -> Output {
        let model = goldens().join(model);
        let (data, output) = (self.text(data), self.text("dataset"));
        let usual = ["preprocess", "--model", model.to_str().unwrap(), "--data", &data];
        run(&[&usual[..], &["--output", &output], more].concat())
    }

    /// Runs, expects success, and returns the summary.
    #[track_caller]
    pub(crate) fn encoded(&self, model: &str, data: &str, more: &[&str]) -> String {
        let output = self.preprocess(model, data, more);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The samples by name.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        let dataset = Dataset::open(&self.path("dataset")).unwrap();
        (0..dataset.len()).map(|at| dataset.read(at).unwrap()).collect()
    }
}

/// Whether ffmpeg is there; says so if it is not.
pub(crate) fn has_ffmpeg() -> bool {
    let is_there = |program| Command::new(program).arg("-version").output().is_ok();
    let both = is_there("ffmpeg") && is_there("ffprobe");
    if !both {
        eprintln!("not checked with ffmpeg, which is not installed");
    }
    both
}

pub(crate) fn encoder(model: &str) -> FolderEncoder {
    let setup = EncoderSetup { device: Device::flex(), dtype: FloatDType::F32 };
    FolderEncoder::open(&goldens().join(model), &setup).unwrap()
}

pub(crate) fn ids(samples: &[Sample]) -> Vec<&str> {
    samples.iter().map(|sample| sample.origin.id.as_str()).collect()
}

const PIXART: [&str; 4] = ["--bucket", "32x32x1", "--bucket", "64x32x1"];

#[test]
fn pictures_become_samples_and_are_encoded_once() {
    let place = Workplace::new();
    place.picture("square.png", [32, 32], 1, " A red Fox \n");
    place.picture("wide.jpg", [130, 66], 2, "an owl");
    place.picture("tiny.png", [16, 16], 3, "too small");
    let summary = place.encoded("pixart-tiny", "clips", &PIXART);
    assert!(summary.ends_with("2 samples (2 encoded now, 0 kept, 0 removed), 1 clips skipped\n"));
    let samples = place.samples();
    assert_eq!(ids(&samples), ["square.png", "wide.jpg"]);
    assert_eq!(samples[0].origin.caption, "A red Fox");
    assert_eq!(samples[0].tensors[LATENTS].shape()[..], [4, 1, 4, 4]);
    assert_eq!(samples[1].tensors[LATENTS].shape()[..], [4, 1, 4, 8]);
    assert_eq!(samples[1].origin.bucket.to_string(), "64x32x1");

    // The picture has the size of its bucket, so nothing is scaled: the encoder says what it becomes.
    let pixels = image::open(place.path("clips/square.png")).unwrap().to_rgb8().into_raw();
    let pixels = pixels.into_iter().map(|byte| f32::from(byte) / 255.0).collect();
    let clip = data::Clip::new([1, 32, 32], pixels).unwrap();
    let mut encoder = encoder("pixart-tiny");
    assert_eq!(samples[0].tensors[LATENTS], encoder.clip(&clip).unwrap());
    assert_eq!(samples[0].tensors[TEXT], encoder.text("a red fox").unwrap()[TEXT]);
    let dataset = Dataset::open(&place.path("dataset")).unwrap();
    dataset.check_encoders(&encoder.fingerprint()).unwrap();
    assert_eq!(dataset.null_text().unwrap(), encoder.null_text().unwrap());

    let summary = place.encoded("pixart-tiny", "clips", &PIXART);
    assert!(summary.contains("2 samples (0 encoded now, 2 kept, 0 removed)"), "{summary}");
    fs::write(place.path("clips/wide.txt"), "another owl").unwrap();
    fs::remove_file(place.path("clips/square.png")).unwrap();
    let summary = place.encoded("pixart-tiny", "clips", &PIXART);
    assert!(summary.contains("1 samples (1 encoded now, 0 kept, 1 removed)"), "{summary}");
    assert_eq!(place.samples()[0].origin.caption, "another owl");
}

#[test]
fn videos_and_references_become_samples() {
    if !has_ffmpeg() {
        return;
    }
    let place = Workplace::new();
    place.video("a.mp4", [48, 32], 7, "");
    place.video("b.mp4", [32, 32], 6, "");
    place.video("r.mp4", [64, 48], 5, "");
    place.picture("c.png", [40, 32], 1, "");
    let table = "path,caption,reference\na.mp4,a red fox,r.mp4\nb.mp4,an owl,\nc.png,a picture,\n";
    fs::write(place.path("clips/list.csv"), table).unwrap();
    let buckets = ["--bucket", "48x32x5", "--bucket", "32x32x5", "--bucket", "32x32x1"];
    place.encoded("wan-tiny", "clips/list.csv", &buckets);
    let samples = place.samples();
    assert_eq!(ids(&samples), ["a.mp4", "b.mp4", "c.png"]);
    let shape = |at: usize, key: &str| samples[at].tensors[key].shape().to_vec();
    assert_eq!(shape(0, LATENTS), [4, 2, 4, 6]);
    assert_eq!(shape(0, REF_LATENTS), [4, 2, 4, 6]);
    assert_eq!(shape(1, LATENTS), [4, 2, 4, 4]);
    assert_eq!(shape(2, LATENTS), [4, 1, 4, 4]);
    assert!(!samples[1].tensors.contains_key(REF_LATENTS));
    assert_eq!(samples[0].origin.fps, 8.0);
    let mut encoder = encoder("wan-tiny");
    assert_eq!(samples[0].tensors[TEXT], encoder.text("a red fox").unwrap()[TEXT]);

    // The first five frames, as ffmpeg reads them.
    let video = data::media::DecodedClip::read(&place.path("clips/b.mp4")).unwrap();
    let pixels = video.bytes()[..5 * 32 * 32 * 3].iter().map(|byte| f32::from(*byte) / 255.0);
    let clip = data::Clip::new([5, 32, 32], pixels.collect()).unwrap();
    assert_eq!(samples[1].tensors[LATENTS], encoder.clip(&clip).unwrap());
}

/// An encoder looks at references of their own size, and the doctor at them before.
#[test]
fn references_may_be_smaller_than_their_clips() {
    let place = Workplace::new();
    place.picture("a.png", [64, 32], 1, "");
    place.picture("r.png", [64, 32], 2, "");
    place.picture("tiny.png", [16, 16], 3, "");
    let list = |reference: &str| {
        let table = format!("path,caption,reference\na.png,a fox,{reference}\n");
        fs::write(place.path("clips/list.csv"), table).unwrap();
    };
    list("r.png");
    let sizes = ["--bucket", "64x32x1", "--reference-scale", "2"];
    let (code, text) = doctor(&place.path("clips/list.csv"), &sizes);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("32x16x1          1 (references)"), "{text}");
    place.encoded("wan-tiny", "clips/list.csv", &sizes);
    let samples = place.samples();
    let shape = |key: &str| samples[0].tensors[key].shape().to_vec();
    assert_eq!((shape(LATENTS), shape(REF_LATENTS)), (vec![4, 1, 4, 8], vec![4, 1, 2, 4]));
    let recorded = samples[0].origin.reference.unwrap();
    assert_eq!((recorded.bucket.to_string().as_str(), recorded.fps), ("32x16x1", 1.0));
    // Another scale is another sample.
    let whole = place.encoded("wan-tiny", "clips/list.csv", &sizes[..2]);
    assert!(whole.contains("1 samples (1 encoded now, 0 kept"), "{whole}");
    assert_eq!(place.samples()[0].tensors[REF_LATENTS].shape()[..], [4, 1, 4, 8]);

    let refused = |scale: &str, bucket: &str| {
        let sizes = ["--bucket", bucket, "--reference-scale", scale];
        doctor(&place.path("clips/list.csv"), &sizes)
    };
    let (code, text) = refused("2", "48x32x1");
    assert!(code == Some(2) && text.contains("multiples of 32"), "{text}");
    let (code, text) = refused("0", "64x32x1");
    assert!(code == Some(2) && text.contains("--reference-scale <N>"), "{text}");
    list("tiny.png");
    let (code, text) = refused("2", "64x32x1");
    assert!(code == Some(1) && text.contains("its reference"), "{text}");
    list("");
    let (code, text) = refused("2", "64x32x1");
    assert!(code == Some(2) && text.contains("has a reference"), "{text}");
}

/// A picture that is white where `is_white(row, column)`.
fn mask(path: &Path, [width, height]: [u32; 2], is_white: fn(u32, u32) -> bool) {
    let white = |x: u32, y: u32| image::Rgb([if is_white(y, x) { 255 } else { 0 }; 3]);
    image::RgbImage::from_fn(width, height, white).save(path).unwrap();
}

/// A mask is cut as its clip is, and the files of masks are told apart.
#[test]
fn masks_become_samples() {
    let place = Workplace::new();
    let clips = place.path("clips");
    place.picture("a.png", [48, 32], 1, "");
    place.picture("b.png", [48, 32], 2, "");
    // Eight columns are cut off at either side.
    mask(&clips.join("corner.png"), [48, 32], |row, column| row == 9 && column < 9);
    mask(&clips.join("small.png"), [32, 32], |_, _| true);
    let list = |second: &str| {
        let table = format!("path,caption,mask\na.png,a fox,corner.png\nb.png,an owl,{second}\n");
        fs::write(clips.join("list.csv"), table).unwrap();
    };
    let bucket = ["--bucket", "32x32x1"];
    list("small.png");
    let (code, text) = doctor(&clips.join("list.csv"), &bucket);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("skipped b.png: its mask") && text.contains("small.png"), "{text}");
    assert!(text.contains("it is 32x32, but its clip is 48x32"), "{text}");
    place.encoded("wan-tiny", "clips/list.csv", &bucket);
    let samples = place.samples();
    assert_eq!(ids(&samples), ["a.png"]);
    let grid = &samples[0].tensors[LATENTS].shape()[1..];
    let stored = &samples[0].tensors[MASK];
    assert_eq!((&stored.shape()[..], grid), (&[1, 4, 4][..], grid));
    let expected: Vec<f32> = (0..16).map(|at| if at == 4 { 1.0 } else { 0.0 }).collect();
    assert_eq!(stored.try_to_vec::<f32>().unwrap(), expected);

    // A new mask is a new sample; one without white is none.
    mask(&clips.join("corner.png"), [48, 32], |row, column| row == 31 && column == 39);
    mask(&clips.join("edge.png"), [48, 32], |_, column| column == 40);
    list("edge.png");
    let output = place.preprocess("wan-tiny", "clips/list.csv", &bucket);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        told.contains("skipped b.png: its mask") && told.contains("nothing is white"),
        "{told}"
    );
    let expected: Vec<f32> = (0..16).map(|at| if at == 15 { 1.0 } else { 0.0 }).collect();
    assert_eq!(place.samples()[0].tensors[MASK].try_to_vec::<f32>().unwrap(), expected);
}

/// The frames of a video mask belong to the latents of the same frames of its clip.
#[test]
fn masks_move() {
    if !has_ffmpeg() {
        return;
    }
    let place = Workplace::new();
    place.video("a.mp4", [32, 32], 7, "");
    let path = place.path("clips/m.mp4");
    let mut writer = ClipWriter::create(&path, FrameRate::new(8, 1).unwrap()).unwrap();
    for frame in 0..7 {
        let white = |at: usize| if frame == 1 && at / 3 % 32 >= 16 { 1.0 } else { 0.0 };
        let pixels = (0..32 * 32 * 3).map(white).collect();
        writer.push(&Frame::new(32, 32, pixels).unwrap()).unwrap();
    }
    writer.finish().unwrap();
    fs::write(place.path("clips/list.csv"), "path,caption,mask\na.mp4,a fox,m.mp4\n").unwrap();
    place.encoded("wan-tiny", "clips/list.csv", &["--bucket", "32x32x5"]);
    let stored = &place.samples()[0].tensors[MASK];
    assert_eq!(stored.shape()[..], [2, 4, 4]);
    let expected: Vec<f32> =
        (0..32).map(|at| if at >= 16 && at % 4 >= 2 { 1.0 } else { 0.0 }).collect();
    assert_eq!(stored.try_to_vec::<f32>().unwrap(), expected);
}

#[test]
fn bf16_is_stored_and_not_mixed() {
    let place = Workplace::new();
    place.picture("a.png", [32, 32], 1, "a fox");
    place.encoded("pixart-tiny", "clips", &[&PIXART[..], &["--dtype", "bf16"]].concat());
    for tensor in place.samples()[0].tensors.values() {
        assert_eq!(tensor.dtype(), DType::BF16);
    }
    refuses(&place.preprocess("pixart-tiny", "clips", &PIXART), &["holds bf16", "asks for f32"]);
}

/// Bad input: one clear error and exit code 2.
#[track_caller]
pub(crate) fn refuses(output: &Output, words: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("error:")).count(), 1, "{text}");
    for word in words {
        assert!(text.contains(word), "no `{word}` in: {text}");
    }
}

#[test]
fn bad_arguments_are_refused_before_any_work() {
    let place = Workplace::new();
    place.picture("a.png", [32, 32], 1, "a fox");
    let pixart = |data: &str, more: &[&str]| place.preprocess("pixart-tiny", data, more);
    refuses(&pixart("clips", &["--bucket", "32x32x5"]), &["1 frame", "nearest is 32x32x1"]);
    refuses(&pixart("clips", &["--bucket", "40x32x1"]), &["multiples of 16", "48x32x1"]);
    refuses(&pixart("clips", &["--bucket", "32x32"]), &["WIDTHxHEIGHTxFRAMES"]);
    refuses(&pixart("clips", &["--bucket", "32x32x1", "--enlarge", "NaN"]), &["--enlarge is NaN"]);
    refuses(&pixart("clips", &["--bucket", "32x32x1", "--enlarge", "0"]), &["--enlarge is 0"]);
    let vast = pixart("clips", &["--bucket", "32x32x1", "--enlarge", "1e300"]);
    refuses(&vast, &["--enlarge is 1e300", "above 0 and up to 64"]);
    if cfg!(target_os = "linux") {
        let words = ["--bucket 65536x65536x1: a clip of that size takes", "--force"];
        refuses(&pixart("clips", &["--bucket", "65536x65536x1"]), &words);
    }
    refuses(&pixart("clips", &["--device", "abacus"]), &["abacus"]);
    refuses(&pixart("clips", &["--threads", "0"]), &["--threads"]);
    refuses(&pixart("nowhere.csv", &PIXART), &["cannot read", "nowhere.csv"]);
    refuses(&pixart("clips/a.txt", &PIXART), &[".csv, .tsv, .json or .jsonl"]);
    refuses(&place.preprocess("nowhere", "clips", &PIXART), &["there is no folder"]);
    refuses(&place.preprocess("pixart-tiny/vae", "clips", &PIXART), &["model_index.json"]);
    // Without a bucket it is the model's own, and the picture is smaller.
    refuses(&pixart("clips", &[]), &["skipped a.png", "128x128x1", "none of the 1 clips"]);
    fs::create_dir(place.path("none")).unwrap();
    refuses(&pixart("none", &PIXART), &["there are no clips in", "none"]);
    assert!(!place.path("dataset").exists());
    fs::create_dir(place.path("dataset")).unwrap();
    fs::write(place.path("dataset/thesis.txt"), "precious").unwrap();
    refuses(&pixart("clips", &PIXART), &["is no dataset", "thesis.txt"]);
}

#[test]
fn a_dataset_of_other_encoders_is_refused() {
    let place = Workplace::new();
    place.picture("a.png", [32, 32], 1, "a fox");
    place.encoded("pixart-tiny", "clips", &PIXART);
    let other = place.preprocess("pixart-tiny-conditions", "clips", &PIXART);
    refuses(&other, &["was made with another text encoder", "T5EncoderModel"]);
    assert_eq!(place.samples().len(), 1);
}

/// Ctrl-C stops after the clip at hand, and the same command makes the rest.
#[cfg(unix)]
#[test]
fn an_interrupted_run_goes_on() {
    let place = Workplace::new();
    for at in 0..30 {
        place.picture(&format!("{at:02}.png"), [160, 160], at, &format!("picture {at}"));
    }
    let model = goldens().join("pixart-tiny");
    let dataset = place.path("dataset");
    let mut child = Command::new(assert_cmd::cargo::cargo_bin("moviola"))
        .args(["preprocess", "--bucket", "160x160x1", "--threads", "1", "--model"])
        .arg(&model)
        .arg("--data")
        .arg(place.path("clips"))
        .arg("--output")
        .arg(&dataset)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    // It listens to Ctrl-C by the time this file is there.
    while !dataset.join("null.safetensors").exists() {
        assert_eq!(child.try_wait().unwrap(), None, "it ended early");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let told = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(told.unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("run the same command again"), "{said}");

    let before = Dataset::open(&dataset).map_or(0, |dataset| dataset.len());
    assert!(before < 30, "it did not stop");
    let summary = place.encoded("pixart-tiny", "clips", &["--bucket", "160x160x1"]);
    let wanted = format!("30 samples ({} encoded now, {before} kept", 30 - before);
    assert!(summary.contains(&wanted), "{summary}, not {wanted}");
}

pub(crate) fn doctor(data: &Path, more: &[&str]) -> (Option<i32>, String) {
    let output = run(&[&["doctor", "--data", data.to_str().unwrap()], more].concat());
    let mut text = String::from_utf8(output.stdout).unwrap();
    text.push_str(&String::from_utf8(output.stderr).unwrap());
    (output.status.code(), text)
}

#[test]
fn the_doctor_lists_what_would_be_skipped() {
    let place = Workplace::new();
    place.picture("a.png", [64, 32], 1, "a fox");
    place.picture("b.png", [32, 32], 2, "an owl");
    let clips = place.path("clips");
    let (code, text) = doctor(&clips, &PIXART);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("2 of 2 clips would be encoded\n  32x32x1"), "{text}");

    place.picture("c.png", [16, 16], 3, "small");
    place.picture("d.png", [32, 32], 4, "");
    fs::write(clips.join("e.png"), "no picture").unwrap();
    let half = fs::read(clips.join("a.png")).unwrap();
    fs::write(clips.join("f.png"), &half[..half.len() / 2]).unwrap();
    fs::write(clips.join("f.txt"), "half a fox").unwrap();
    let (code, text) = doctor(&clips, &PIXART);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("skipped c.png: it is 16x16, but the smallest bucket"), "{text}");
    assert!(text.contains("skipped d.png: its caption is empty"), "{text}");
    assert!(text.contains("skipped e.png: it cannot be read"), "{text}");
    assert!(text.contains("3 of 6 clips would be encoded"), "{text}");
    // Enlarged, the small one will do; read to its end, the half one will not.
    let (code, text) = doctor(&clips, &[&PIXART[..], &["--enlarge", "2", "--decode"]].concat());
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("skipped f.png: it cannot be read"), "{text}");
    assert!(text.contains("3 of 6 clips would be encoded"), "{text}");
    assert!(!place.path("dataset").exists());
}

#[test]
fn the_doctor_knows_the_sizes_of_a_model() {
    let place = Workplace::new();
    place.picture("a.png", [64, 32], 1, "a fox");
    let clips = place.path("clips");
    let model = goldens().join("pixart-tiny-conditions");
    let model = ["--model", model.to_str().unwrap()];
    // Multiples of 8 are legal for this model, but not without it.
    let bucket = ["--bucket", "24x24x1"];
    assert_eq!(doctor(&clips, &[&model[..], &bucket[..]].concat()).0, Some(0));
    let (code, text) = doctor(&clips, &bucket);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("multiples of 16"), "{text}");
    let (code, text) = doctor(&clips, &model);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("512x512x1"), "{text}");
    let (code, text) = doctor(&clips, &[]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("give --bucket"), "{text}");
    assert_eq!(doctor(&clips, &["--bucket", "x"]).0, Some(2));
    assert_eq!(doctor(&place.path("none"), &bucket).0, Some(2));
}

/// Captions as other tools and editors leave them.
#[test]
fn captions_in_other_encodings_and_columns() {
    let place = Workplace::new();
    let caption = "größer – „rot“";
    let units = caption.encode_utf16().flat_map(u16::to_le_bytes);
    let utf16: Vec<u8> = [0xff, 0xfe].into_iter().chain(units).collect();
    let files = [
        ("a.txt", [b"\xef\xbb\xbf", caption.as_bytes()].concat()),
        ("b.txt", b"gr\xf6\xdfer \x96 \x84rot\x93".to_vec()),
        ("c.txt", utf16),
        ("d.caption", caption.as_bytes().to_vec()),
    ];
    for (at, (file, bytes)) in files.iter().enumerate() {
        let picture = file.replace(".txt", ".png").replace(".caption", ".png");
        place.picture(&picture, [32, 32], at as u32, "");
        fs::remove_file(place.path("clips").join(&picture).with_extension("txt")).unwrap();
        fs::write(place.path("clips").join(file), bytes).unwrap();
    }
    place.encoded("pixart-tiny", "clips", &PIXART);
    let captions: Vec<String> =
        place.samples().into_iter().map(|sample| sample.origin.caption).collect();
    assert_eq!(captions, [caption; 4]);
    fs::remove_dir_all(place.path("dataset")).unwrap();
    for (table, text) in [
        ("semicolons.csv", "\u{feff}file_name;caption\nclips/a.png;\"a; b, c\"\n"),
        ("tabs.tsv", "video_path\ttext\nclips/a.png\ta; b, c\n"),
        ("marked.json", "\u{feff}[{\"file_name\": \"clips/a.png\", \"caption\": \"a; b, c\"}]"),
        ("marked.jsonl", "\u{feff}{\"video_path\": \"clips/a.png\", \"caption\": \"a; b, c\"}\n"),
    ] {
        fs::write(place.path(table), text).unwrap();
        place.encoded("pixart-tiny", table, &PIXART);
        assert_eq!(place.samples()[0].origin.caption, "a; b, c", "{table}");
    }
    fs::write(place.path("wrong.csv"), "clip,caption\nclips/a.png,x\n").unwrap();
    let names =
        "no `path` (or `video`, `media_path`, `file_name`, `video_path`), but clip, caption";
    refuses(&place.preprocess("pixart-tiny", "wrong.csv", &PIXART), &[names]);
}

/// Texts alone come out of tables as well, and are refused at once where no run could be trained on them.
#[test]
fn texts_alone_may_be_a_table() {
    let place = Workplace::new();
    let more = ["--texts", "--bucket", "32x32x5", "--trigger", "lip"];
    for (table, text) in [
        ("texts.jsonl", "{\"caption\": \"a clip\"}\n{\"caption\": \"my lip\"}\n"),
        ("texts.csv", "caption\na clip\nmy lip\n"),
    ] {
        fs::write(place.path(table), text).unwrap();
        place.encoded("wan-tiny", table, &more);
        let samples = place.samples();
        let mut captions: Vec<&str> =
            samples.iter().map(|own| own.origin.caption.as_str()).collect();
        captions.sort_unstable();
        assert_eq!(captions, ["lip, a clip", "my lip"], "{table}");
    }
    fs::remove_dir_all(place.path("dataset")).unwrap();
    let refused = place.preprocess("wan-tiny-i2v", "texts.csv", &["--texts"]);
    refuses(&refused, &["--texts", "is shown the first picture of every clip"]);
    assert!(!place.path("dataset").exists());
}

/// Pieces that overlap are those of the whole clip, frame for frame.
#[test]
fn pieces_that_overlap_are_exact() {
    if !has_ffmpeg() {
        return;
    }
    let place = Workplace::new();
    place.video("long.mp4", [32, 32], 18, "a fox");
    let more = ["--bucket", "32x32x5", "--extract", "slide:3"];
    place.encoded("wan-tiny", "clips", &more);
    let frames = data::media::DecodedClip::read(&place.path("clips/long.mp4")).unwrap();
    let mut encoder = encoder("wan-tiny");
    let samples = place.samples();
    assert_eq!(samples.len(), 5);
    for sample in samples {
        let first = sample.origin.id.split_once('@').map_or(0, |(_, first)| first.parse().unwrap());
        let length = 32 * 32 * 3;
        let bytes = &frames.bytes()[first * length..(first + 5) * length];
        let pixels = bytes.iter().map(|byte| f32::from(*byte) / 255.0).collect();
        let clip = data::Clip::new([5, 32, 32], pixels).unwrap();
        let id = &sample.origin.id;
        assert_eq!(sample.tensors[LATENTS], encoder.clip(&clip).unwrap(), "{id}");
    }
}
