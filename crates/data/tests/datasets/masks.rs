//! Masks: they stay on the pixels of their clips, hide all that they should, and are told apart.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use burn::tensor::{DType, TensorData};
use data::Clip;
use data::preprocess::{
    Buckets, Cause, DoctorReport, Encode, Frames, MaskKind, Media, Probe, RgbFrame, Rules, Summary,
    doctor, find_sources, preprocess,
};
use data::store::{Dataset, Fingerprint, LATENTS, MASK, TEXT, Writer, hash_parts};

/// Clips as text files: `frames height width rate`, then white boxes on black: `frames rows columns`,
/// each from (included) and to (excluded).
struct Boxes;

struct Drawing {
    probe: Probe,
    boxes: Vec<[Range<usize>; 3]>,
}

impl Drawing {
    fn read(path: &Path) -> Result<Drawing, Cause> {
        let text = fs::read_to_string(path)?;
        let numbers: Result<Vec<usize>, _> = text.split_whitespace().map(str::parse).collect();
        let numbers = numbers.map_err(|_| "it is not a drawing")?;
        let probe = Probe {
            frames: numbers[0],
            height: numbers[1],
            width: numbers[2],
            fps: numbers[3] as f64,
        };
        let boxes =
            numbers[4..].chunks_exact(6).map(|at| [at[0]..at[1], at[2]..at[3], at[4]..at[5]]);
        Ok(Drawing { probe, boxes: boxes.collect() })
    }
}

impl Media for Boxes {
    fn probe(&self, path: &Path) -> Result<Probe, Cause> {
        Ok(Drawing::read(path)?.probe)
    }

    fn frames(&self, path: &Path) -> Result<Frames<'_>, Cause> {
        let Drawing { probe: Probe { frames, height, width, .. }, boxes } = Drawing::read(path)?;
        let draw = move |frame: usize| {
            let is_white = |row: usize, column: usize| {
                boxes.iter().any(|[frames, rows, columns]| {
                    frames.contains(&frame) && rows.contains(&row) && columns.contains(&column)
                })
            };
            let pixels = (0..height * width * 3)
                .map(|at| if is_white(at / 3 / width, at / 3 % width) { 255 } else { 0 });
            Ok(RgbFrame { height, width, pixels: pixels.collect() })
        };
        Ok(Box::new((0..frames).map(draw)))
    }
}

/// The factors of the encoder below.
const FACTORS: [usize; 3] = [4, 8, 8];

/// The brightest value of every block as latents, with the blocks of a causal VAE: the first frame
/// alone, then four by four.
struct Brightest(DType);

impl Encode for Brightest {
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::new([("video", "brightest".to_owned())])
    }

    fn factors(&self) -> [usize; 3] {
        FACTORS
    }

    fn clip(&mut self, clip: &Clip) -> Result<TensorData, Cause> {
        let [frames, height, width] = clip.size();
        let groups = std::iter::once(0..1).chain((1..frames).step_by(4).map(|from| from..from + 4));
        let mut latents = Vec::new();
        for group in groups {
            for (row, column) in
                (0..height / 8 * (width / 8)).map(|at| (at / (width / 8), at % (width / 8)))
            {
                let block =
                    group.clone().flat_map(|frame| (0..64).map(move |at| (frame, at / 8, at % 8)));
                let values =
                    block.map(|(frame, y, x)| clip.pixel(frame, row * 8 + y, column * 8 + x)[0]);
                latents.push(values.fold(0.0, f32::max));
            }
        }
        let shape = [1, 1 + (frames - 1) / 4, height / 8, width / 8];
        Ok(TensorData::new(latents, shape).convert_dtype(self.0))
    }

    fn text(&mut self, _caption: &str) -> Result<BTreeMap<String, TensorData>, Cause> {
        Ok(BTreeMap::from([(TEXT.to_owned(), TensorData::new(vec![1.0f32], [1, 1]))]))
    }
}

/// A folder of drawings with the table `t.csv`.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.0.path().join(name), text).unwrap();
    }

    /// Rows of `path,mask`.
    fn list(&self, rows: &[[&str; 2]]) {
        let rows = rows.iter().map(|[path, mask]| format!("{path},a caption,{mask}\n"));
        self.put("t.csv", &format!("path,caption,mask\n{}", rows.collect::<String>()));
    }

    fn examine(&self) -> DoctorReport {
        let buckets = Buckets::new(vec!["32x32x9".parse().unwrap()], Rules::default()).unwrap();
        doctor(&find_sources(&self.0.path().join("t.csv")).unwrap(), &Boxes, &buckets)
    }

    fn run(&self) -> Summary {
        let mut encode = Brightest(DType::F32);
        let store = self.0.path().join("store");
        let mut writer = Writer::open(&store, &encode.fingerprint(), 1).unwrap();
        let (planned, stop) = (self.examine().planned, AtomicBool::new(false));
        preprocess(&planned, &Boxes, &mut encode, &mut writer, &mut |_| {}, &stop).unwrap()
    }

    fn tensor(&self, index: usize, key: &str) -> (Vec<usize>, Vec<f32>) {
        let dataset = Dataset::open(&self.0.path().join("store")).unwrap();
        let tensor = dataset.read(index).unwrap().tensors.remove(key).unwrap();
        (tensor.shape().to_vec(), tensor.try_to_vec().unwrap())
    }

    /// The mask of a clip of nine frames of the given size, `[3, 4, 4]`, as it is stored.
    fn pooled(&self, clip: &str, mask: &str) -> Vec<f32> {
        self.put("clip.mp4", clip);
        self.put("mask.mp4", mask);
        self.list(&[["clip.mp4", "mask.mp4"]]);
        let summary = self.run();
        assert_eq!((summary.written, &summary.failed[..]), (1, &[][..]), "{mask}");
        let (shape, values) = self.tensor(0, MASK);
        assert_eq!(shape, [3, 4, 4]);
        values
    }
}

/// Where a mask `[3, 4, 4]` is to be generated.
fn generated(mask: &[f32]) -> Vec<[usize; 3]> {
    assert!(mask.iter().all(|value| [0.0, 1.0].contains(value)), "{mask:?}");
    let all = (0..mask.len()).filter(|at| mask[*at] == 1.0);
    all.map(|at| [at / 16, at / 4 % 4, at % 4]).collect()
}

/// The law: a clip that is its own mask. What is bright in the latents is generated and nothing else,
/// so frames, crop and size are those of the clip.
#[test]
fn a_mask_stays_on_the_pixels_of_its_clip() {
    let place = Place::new();
    // As it is; cut at the sides; cut above and below; scaled down; both.
    for [height, width, step] in
        [[32, 32, 1], [32, 48, 1], [80, 32, 1], [64, 64, 2], [64, 120, 2], [144, 96, 3]]
    {
        let [top, left] = [height, width].map(|side| (side - 32 * step) / 2);
        for (seed, frames) in [[0, 1], [1, 3], [4, 6], [8, 9], [2, 9]].into_iter().enumerate() {
            // In pixels of the bucket, so that what is scaled keeps sharp edges.
            let (row, column) = (seed * 7 % 25, (seed * 11 + 3) % 27);
            let [row, column] = [top + row * step, left + column * step];
            let [from, to] = frames;
            let (bottom, right) = (row + 6 * step, column + 3 * step);
            let text = format!(
                "11 {height} {width} 24 {from} {to} {row} {bottom} {column} {right} 0 11 0 {top} 0 {left}"
            );
            place.put("clip.mp4", &text);
            place.list(&[["clip.mp4", "clip.mp4"]]);
            assert_eq!(place.run().written, 1);
            let (shape, latents) = place.tensor(0, LATENTS);
            let (mask_shape, mask) = place.tensor(0, MASK);
            assert_eq!(mask_shape, shape[1..]);
            let bright: Vec<f32> =
                latents.iter().map(|value| if *value >= 0.5 { 1.0 } else { 0.0 }).collect();
            assert_eq!(mask, bright, "{text}");
            assert!(mask.contains(&0.0) && mask.contains(&1.0), "{text}");
        }
    }
}

/// The first frame alone, then four by four: never 0 to 3, 4 to 7.
#[test]
fn frames_are_grouped_as_a_causal_vae_groups_them() {
    let place = Place::new();
    for (frame, group) in [0, 1, 1, 1, 1, 2, 2, 2, 2].into_iter().enumerate() {
        let mask = format!("9 32 32 24 {frame} {} 9 10 17 18", frame + 1);
        let mask = place.pooled("9 32 32 24", &mask);
        assert_eq!(generated(&mask), [[group, 1, 2]], "frame {frame}");
    }
}

/// One white pixel makes its latent generated, wherever it is, and no other one. It does so where the
/// picture is shrunk by four too, where scaling as of a picture would make it too dark to count.
#[test]
fn a_single_pixel_is_enough() {
    let place = Place::new();
    for scale in [1, 4] {
        let (side, cell) = (32 * scale, 8 * scale);
        for (row, column) in
            [(0, 0), (0, cell - 1), (cell - 1, 0), (cell, cell), (side - 1, side - 1)]
        {
            let (below, right) = (row + 1, column + 1);
            let mask = format!("9 {side} {side} 24 3 4 {row} {below} {column} {right}");
            let mask = place.pooled(&format!("9 {side} {side} 24"), &mask);
            assert_eq!(generated(&mask), [[1, row / cell, column / cell]], "{row} {column}");
        }
    }
    // All but one pixel of a cell is white: all is to be generated.
    let mask = place.pooled("9 32 32 24", "9 32 32 24 0 9 0 32 1 32 0 9 1 32 0 1");
    assert_eq!(generated(&mask).len(), 48);
}

#[test]
fn a_picture_stands_for_every_frame_and_all_may_be_white() {
    let place = Place::new();
    let mask = place.pooled("9 32 32 24", "1 32 32 1 0 1 0 8 24 32");
    assert_eq!(generated(&mask), [[0, 0, 3], [1, 0, 3], [2, 0, 3]]);
    assert_eq!(place.examine().planned[0].mask.as_ref().unwrap().kind, MaskKind::Still);
    let mask = place.pooled("9 32 32 24", "1 32 32 1 0 1 0 32 0 32");
    assert_eq!(generated(&mask).len(), 48);
    // Longer than its clip is fine, and so is a rate that was rounded.
    let mask = place.pooled("9 32 32 24", "12 32 32 25 0 1 0 8 0 8");
    assert_eq!(generated(&mask), [[0, 0, 0]]);
    assert_eq!(place.examine().planned[0].mask.as_ref().unwrap().kind, MaskKind::Moving);
}

#[test]
fn masks_that_do_not_fit_are_told() {
    let place = Place::new();
    let clip = "11 40 60 24";
    let cases = [
        ("gone", None, "there is no such file"),
        ("notes", Some("no drawing"), "it cannot be read: it is not a drawing"),
        ("small", Some("11 32 32 24"), "it is 32x32, but its clip is 60x40; a mask is drawn on"),
        ("turned", Some("11 60 40 24"), "it is 40x60, but its clip is 60x40"),
        ("short", Some("10 40 60 24"), "it has 10 frames, but its clip has 11"),
        ("slow", Some("11 40 60 12"), "it has 12 frames per second, but its clip has 24"),
        ("fast", Some("11 40 60 26"), "it has 26 frames per second, but its clip has 24"),
        ("picture", Some("1 32 32 1 0 1 0 9 0 9"), "it is 32x32, but its clip is 60x40"),
    ];
    for (name, mask, _) in &cases {
        // Clips that differ, so that none is a copy.
        place.put(&format!("{name}.mp4"), &format!("{clip} 0 1 0 1 0 {}", name.len()));
        mask.iter().for_each(|mask| place.put(&format!("{name}.mask"), mask));
    }
    let names: Vec<_> =
        cases.iter().map(|(name, ..)| [format!("{name}.mp4"), format!("{name}.mask")]).collect();
    let rows: Vec<[&str; 2]> = names.iter().map(|row| [row[0].as_str(), row[1].as_str()]).collect();
    place.list(&rows);
    let report = place.examine();
    assert_eq!((report.planned.len(), report.skipped.len()), (0, cases.len()));
    for (skipped, (name, _, expected)) in report.skipped.iter().zip(cases) {
        let reason = skipped.reason.to_string();
        assert!(reason.starts_with("its mask ") && reason.contains(expected), "{reason}");
        assert!(reason.contains(&format!("{name}.mask: ")) && !reason.ends_with('.'), "{reason}");
    }
}

/// A sample that would train nothing is not made. What is cut away does not count.
#[test]
fn a_mask_without_white_is_refused() {
    let place = Place::new();
    place.put("a.mp4", "11 32 48 24");
    place.list(&[["a.mp4", "mask"]]);
    for mask in ["11 32 48 24", "11 32 48 24 0 11 0 32 0 8", "11 32 48 24 9 11 0 32 0 48"] {
        place.put("mask", mask);
        let summary = place.run();
        assert_eq!((summary.written, summary.failed.len()), (0, 1), "{mask}");
        let reason = summary.failed[0].reason.to_string();
        assert!(reason.contains("mask: nothing is white"), "{reason}");
    }
    for mask in ["11 32 48 24 0 11 0 32 0 9", "11 32 48 24 8 11 0 32 0 48"] {
        place.put("mask", mask);
        assert_eq!(place.run().written, 1, "{mask}");
    }
}

#[test]
fn another_mask_is_another_sample() {
    let place = Place::new();
    place.put("a.mp4", "9 32 32 24");
    place.put("b.mp4", "9 32 32 24");
    place.put("m", "9 32 32 24 0 9 0 8 0 8");
    place.put("n", "9 32 32 24 0 9 8 16 0 8");
    // A copy with a mask of its own is no duplicate.
    place.list(&[["a.mp4", "m"], ["b.mp4", "n"]]);
    let outcome = |place: &Place| {
        let Summary { written, kept, .. } = place.run();
        (written, kept)
    };
    assert_eq!(outcome(&place), (2, 0));
    assert_eq!(outcome(&place), (0, 2));
    place.put("n", "9 32 32 24 0 9 16 24 0 8");
    assert_eq!(outcome(&place), (1, 1));
    assert_eq!(generated(&place.tensor(1, MASK).1)[0], [0, 2, 0]);
    place.list(&[["a.mp4", "m"], ["b.mp4", ""]]);
    assert_eq!(outcome(&place), (1, 1));
    let dataset = Dataset::open(&place.0.path().join("store")).unwrap();
    let message = dataset.require(&[MASK], "inpainting").unwrap_err().to_string();
    assert!(message.contains("1 of 2 samples have none, the first is `b.mp4`"), "{message}");
    // Datasets from before there were masks go on: their samples keep their hash.
    let own = blake3::hash(b"9 32 32 24");
    let parts: [&[u8]; 5] = [own.as_bytes(), &[], b"a caption", b"32x32x9", &24f64.to_le_bytes()];
    assert_eq!(dataset.origin(1).source_hash, hash_parts(&parts));
}

/// A mask is stored in the type of its latents.
#[test]
fn masks_are_rounded_as_latents_are() {
    let place = Place::new();
    place.put("a.mp4", "9 32 32 24");
    place.put("m", "9 32 32 24 0 9 0 8 0 8");
    place.list(&[["a.mp4", "m"]]);
    let mut encode = Brightest(DType::BF16);
    let store = place.0.path().join("store");
    let mut writer = Writer::open(&store, &encode.fingerprint(), 1).unwrap();
    let (planned, stop) = (place.examine().planned, AtomicBool::new(false));
    preprocess(&planned, &Boxes, &mut encode, &mut writer, &mut |_| {}, &stop).unwrap();
    let mask = Dataset::open(&store).unwrap().read(0).unwrap().tensors.remove(MASK).unwrap();
    assert_eq!(mask.dtype(), DType::BF16);
    assert_eq!(mask.convert::<f32>().iter::<f32>().sum::<f32>(), 3.0);
}
