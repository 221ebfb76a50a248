//! From clips to a dataset: what is listed, what the doctor finds, what is encoded and what is not
//! encoded again.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::tensor::TensorData;
use data::Clip;
use data::preprocess::{
    Buckets, Cause, DoctorReport, Encode, Extract, Frames, ManifestEntry, Media, Probe, Reason,
    RgbFrame, Rules, Summary, doctor, find_sources, preprocess,
};
use data::store::{Dataset, Fingerprint, LATENTS, REF_LATENTS, TEXT, Writer};

/// Clips as text files: `frames height width grey`, and maybe how many frames can really be read.
struct TextMedia;

fn numbers(path: &Path) -> Result<Vec<usize>, Cause> {
    let text = fs::read_to_string(path)?;
    let numbers: Result<Vec<usize>, _> = text.split_whitespace().map(str::parse).collect();
    numbers.map_err(|_| "it is not a clip".into())
}

impl Media for TextMedia {
    fn probe(&self, path: &Path) -> Result<Probe, Cause> {
        let numbers = numbers(path)?;
        Ok(Probe { frames: numbers[0], height: numbers[1], width: numbers[2], fps: 24.0 })
    }

    fn frames(&self, path: &Path) -> Result<Frames<'_>, Cause> {
        let numbers = numbers(path)?;
        let (height, width, grey) = (numbers[1], numbers[2], numbers[3]);
        let frame = move |at: usize| {
            let pixels = vec![(grey + at) as u8; height * width * 3];
            Ok(RgbFrame { height, width, pixels })
        };
        Ok(Box::new((0..*numbers.get(4).unwrap_or(&numbers[0])).map(frame)))
    }
}

/// The means of the frames as latents, the lengths of the words as text.
#[derive(Default)]
struct Means {
    calls: RefCell<Vec<[usize; 3]>>,
}

impl Encode for Means {
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::new([("video", "means".to_owned())])
    }

    /// One latent for a whole frame, of every size that is used here.
    fn factors(&self) -> [usize; 3] {
        [1, 64, 64]
    }

    fn clip(&mut self, clip: &Clip) -> Result<TensorData, Cause> {
        let [frames, height, width] = clip.size();
        self.calls.borrow_mut().push(clip.size());
        let mean = |frame| {
            let values = clip.frame(frame);
            values.iter().map(|value| value * 255.0).sum::<f32>() / (height * width * 3) as f32
        };
        Ok(TensorData::new((0..frames).map(mean).collect::<Vec<f32>>(), [1, frames, 1, 1]))
    }

    fn text(&mut self, caption: &str) -> Result<BTreeMap<String, TensorData>, Cause> {
        if caption == "unspeakable" {
            return Err("the tokenizer gave up".into());
        }
        let lengths: Vec<f32> = caption.split(' ').map(|word| word.len() as f32).collect();
        let shape = [lengths.len(), 1];
        Ok(BTreeMap::from([(TEXT.to_owned(), TensorData::new(lengths, shape))]))
    }
}

fn buckets() -> Buckets {
    let list = ["64x32x5", "32x32x9", "32x32x1"].map(|text| text.parse().unwrap());
    Buckets::new(list.to_vec(), Rules::default()).unwrap()
}

/// A folder with eight good clips among eleven bad ones.
fn clips(root: &Path) {
    let put = |name: &str, text: &str| fs::write(root.join(name), text).unwrap();
    fs::create_dir(root.join("deeper")).unwrap();
    fs::create_dir(root.join(".hidden")).unwrap();
    put("wide.mp4", "7 100 200 10");
    put("wide.txt", " a wide one \n");
    put("deeper/square.MP4", "20 64 64 20");
    put("deeper/square.txt", "a square one");
    put("picture.png", "1 40 50 30");
    put("picture.txt", "a picture");
    put(".hidden/x.mp4", "7 100 200 10");
    put("notes.md", "not a clip");
    put("broken.mp4", "no clip at all");
    put("broken.txt", "broken");
    put("silent.mp4", "9 64 64 1");
    put("blank.mp4", "9 64 64 2");
    put("blank.txt", "  \n");
    put("tiny.mp4", "9 20 20 3");
    put("tiny.txt", "tiny");
    put("copy.mp4", "20 64 64 20");
    put("copy.txt", "a square one");
    put("nothing.mp4", "0 64 64 3");
    put("nothing.txt", "nothing");
}

fn reasons(report: &DoctorReport) -> BTreeMap<&str, String> {
    report.skipped.iter().map(|it| (it.id.as_str(), it.reason.to_string())).collect()
}

#[test]
fn the_doctor_says_what_is_skipped_and_why() {
    let folder = tempfile::tempdir().unwrap();
    clips(folder.path());
    let entries = find_sources(folder.path()).unwrap();
    let report = doctor(&entries, &TextMedia, &buckets());
    let planned: Vec<_> =
        report.planned.iter().map(|it| (it.id.as_str(), it.bucket.to_string())).collect();
    let expected = [("copy.mp4", "32x32x9"), ("picture.png", "32x32x1"), ("wide.mp4", "64x32x5")];
    assert_eq!(planned, expected.map(|(id, bucket)| (id, bucket.to_owned())));
    assert_eq!(report.planned[2].caption, "a wide one");
    assert_eq!(report.buckets().values().sum::<usize>(), 3);
    let expected = [
        ("blank.mp4", "its caption is empty"),
        ("broken.mp4", "it cannot be read: it is not a clip"),
        ("deeper/square.MP4", "it is the same as copy.mp4"),
        ("nothing.mp4", "it cannot be read: it says 0 frames of 64x64 at 24 per second"),
        ("silent.mp4", "it has no caption: there is no text file beside it"),
        ("tiny.mp4", "it is 20x20, but the smallest bucket for it is 32x32x9"),
    ];
    let expected = expected.map(|(id, reason)| (id, reason.to_owned()));
    assert_eq!(reasons(&report), BTreeMap::from(expected));
}

/// A text that is there and cannot be a caption is told as what it is.
#[test]
fn captions_that_are_no_texts_are_told() {
    let folder = tempfile::tempdir().unwrap();
    clips(folder.path());
    let utf32: Vec<u8> =
        "a fox".chars().flat_map(|letter| u32::from(letter).to_le_bytes()).collect();
    fs::write(folder.path().join("silent.txt"), utf32).unwrap();
    fs::write(folder.path().join("wide.txt"), "fox ".repeat(20_000)).unwrap();
    let report = doctor(&find_sources(folder.path()).unwrap(), &TextMedia, &buckets());
    for (name, why) in
        [("silent.mp4", "it holds the sign"), ("wide.mp4", "it has more than 65536 bytes")]
    {
        let said = &reasons(&report)[name];
        assert!(said.starts_with("its caption cannot be read: ") && said.contains(why), "{said}");
    }
}

/// A table is read whatever the case of its heads and the spaces around them.
#[test]
fn heads_of_tables_may_be_written_large() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table.csv");
    fs::write(&path, "Path, Caption\n1.mp4, a fox\n").unwrap();
    let entries = find_sources(&path).unwrap();
    assert_eq!((entries[0].id.as_str(), entries[0].caption.as_deref()), ("1.mp4", Some("a fox")));
}

#[test]
fn tables_of_every_kind_list_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let expected = vec![
        ManifestEntry {
            id: "a/1.mp4".into(),
            path: folder.path().join("a/1.mp4"),
            caption: Some("red, and round".into()),
            caption_fault: None,
            reference: Some(folder.path().join("r.mp4")),
            mask: None,
            sound: None,
        },
        ManifestEntry {
            id: "2.mp4".into(),
            path: folder.path().join("2.mp4"),
            caption: Some(String::new()),
            caption_fault: None,
            reference: None,
            mask: Some(folder.path().join("a/m.png")),
            sound: Some(folder.path().join("s.wav")),
        },
    ];
    let csv = "caption,other,path,reference,mask,audio\n\"red, and round\",x,a/1.mp4,r.mp4,,\n\
               ,,2.mp4,,a/m.png,s.wav\n";
    let json = r#"[{"path": "a/1.mp4", "caption": "red, and round", "reference": "r.mp4"},
                   {"caption": null, "video": "2.mp4", "mask": "a/m.png", "sound": "s.wav"}]"#;
    let jsonl = "{\"media_path\": \"a/1.mp4\", \"text\": \"red, and round\", \"reference_video\": \"r.mp4\"}\n\n\
                 {\"path\": \"2.mp4\", \"caption\": \"\", \"mask\": \"a/m.png\", \"audio\": \"s.wav\"}\n";
    for (name, text) in [("t.csv", csv), ("t.json", json), ("t.jsonl", jsonl)] {
        assert_eq!(find_sources(&put(name, text)).unwrap(), expected, "{name}");
    }
    let faults = [
        (
            "a.csv",
            "pth,caption\nx,y\n",
            "row 1 has no `path` (or `video`, `media_path`, `file_name`, `video_path`), but pth, caption; did you mean `pth`?",
        ),
        ("b.csv", "path,captions\nx,y\n", "did you mean `captions`?"),
        ("c.csv", "", "its first line names the columns"),
        ("d.json", "{}", "not a list of objects"),
        (
            "e.jsonl",
            "{\"path\": \"x\", \"caption\": \"y\"}\nnothing\n",
            "line 2 is not an object: expected ident at column 2",
        ),
        ("f.json", "[{\"path\": \" \", \"caption\": \"y\"}]", "entry 1 has an empty path"),
        ("g.txt", "x", "ends in .csv, .tsv, .json or .jsonl"),
    ];
    for (name, text, expected) in faults {
        let message = find_sources(&put(name, text)).unwrap_err().to_string();
        assert!(message.contains(name) && message.contains(expected), "{message}");
    }
    assert!(find_sources(&folder.path().join("missing.csv")).is_err());
}

#[test]
fn references_and_repeated_paths_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    put("a.mp4", "9 64 64 1");
    put("b.mp4", "9 64 64 1");
    put("short.mp4", "4 64 64 1");
    put(
        "t.csv",
        "path,caption,reference\na.mp4,one,b.mp4\n./a.mp4,two,\nb.mp4,one,\nb.mp4,two,\n\
         gone.mp4,three,\nc.mp4,four,\n",
    );
    put("c.mp4", "9 64 64 7");
    let entries = find_sources(&folder.path().join("t.csv")).unwrap();
    let mut more = entries.clone();
    more.push(ManifestEntry {
        id: "d".into(),
        reference: Some(folder.path().join("gone")),
        ..entries[5].clone()
    });
    let short = Some(folder.path().join("short.mp4"));
    more.push(ManifestEntry { id: "e".into(), reference: short, ..entries[5].clone() });
    let report = doctor(&more, &TextMedia, &buckets());
    // Copies differ in what they are made from or in their caption, so both stay.
    let planned: Vec<_> = report.planned.iter().map(|it| it.id.as_str()).collect();
    assert_eq!(planned, ["a.mp4", "b.mp4", "c.mp4"]);
    let reasons = reasons(&report);
    assert_eq!(reasons["./a.mp4"], "it is the same as a.mp4");
    assert_eq!(reasons["b.mp4"], "it is the same as b.mp4");
    assert_eq!(reasons["gone.mp4"], "there is no such file");
    assert!(reasons["d"].starts_with("its reference") && reasons["d"].ends_with("no such file"));
    assert!(reasons["e"].ends_with("it has 4 frames, but the shortest bucket has 9"));
}

struct Run {
    folder: tempfile::TempDir,
    encode: Means,
}

impl Run {
    fn new() -> Run {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("clips")).unwrap();
        clips(&folder.path().join("clips"));
        Run { folder, encode: Means::default() }
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join("clips").join(name), text).unwrap();
    }

    /// Preprocesses all clips of the folder; it is told to stop after so many.
    fn run(&mut self, stop_after: usize) -> data::Result<Summary> {
        let root = self.folder.path();
        let entries = find_sources(&root.join("clips")).unwrap();
        let planned = doctor(&entries, &TextMedia, &buckets()).planned;
        let mut writer = Writer::open(&root.join("store"), &self.encode.fingerprint(), 1 << 20)?;
        let stop = AtomicBool::new(stop_after == 0);
        let mut told = Vec::new();
        let mut progress = |it: data::preprocess::Progress<'_>| {
            assert_eq!((it.done, it.total), (told.len(), planned.len()));
            told.push(it.id.to_owned());
            stop.store(told.len() >= stop_after, Ordering::Relaxed);
        };
        preprocess(&planned, &TextMedia, &mut self.encode, &mut writer, &mut progress, &stop)
    }

    fn dataset(&self) -> Dataset {
        Dataset::open(&self.folder.path().join("store")).unwrap()
    }

    fn latents(&self, id: &str) -> Vec<f32> {
        let dataset = self.dataset();
        let index = (0..dataset.len()).find(|at| dataset.origin(*at).id == id).unwrap();
        dataset.read(index).unwrap().tensors[LATENTS].try_to_vec().unwrap()
    }
}

#[test]
fn clips_become_samples_and_are_not_encoded_twice() {
    let mut run = Run::new();
    let summary = run.run(99).unwrap();
    assert_eq!((summary.written, summary.kept, summary.interrupted), (3, 0, false));
    // The first frames, cut to the size of the bucket.
    assert_eq!(run.latents("wide.mp4"), [10.0, 11.0, 12.0, 13.0, 14.0]);
    assert_eq!(run.latents("picture.png"), [30.0]);
    assert_eq!(*run.encode.calls.borrow(), [[9, 32, 32], [1, 32, 32], [5, 32, 64]]);
    let dataset = run.dataset();
    let origin = dataset.origin(2);
    assert_eq!((origin.caption.as_str(), origin.fps), ("a wide one", 24.0));
    assert_eq!(origin.bucket.to_string(), "64x32x5");
    assert_eq!(
        dataset.read(2).unwrap().tensors[TEXT].try_to_vec::<f32>().unwrap(),
        [1.0, 4.0, 3.0]
    );

    let summary = run.run(99).unwrap();
    assert_eq!((summary.written, summary.kept), (0, 3));
    // A new caption, a new clip, one that is gone.
    run.put("wide.txt", "a wider one");
    run.put("picture.png", "1 40 50 31");
    run.put("new.mp4", "9 64 64 50");
    run.put("new.txt", "new");
    run.put("copy.txt", "");
    run.put("deeper/square.txt", "");
    let summary = run.run(99).unwrap();
    assert_eq!((summary.written, summary.kept, summary.removed), (3, 0, 1));
    let dataset = run.dataset();
    let ids: Vec<_> = (0..dataset.len()).map(|at| dataset.origin(at).id.as_str()).collect();
    assert_eq!(ids, ["new.mp4", "picture.png", "wide.mp4"]);
    assert_eq!(dataset.origin(2).caption, "a wider one");
    assert_eq!(run.latents("picture.png"), [31.0]);
}

#[test]
fn an_interrupted_run_goes_on_where_it_stopped() {
    let mut run = Run::new();
    for expected in [(1, 0, true), (1, 1, true), (1, 2, false), (0, 3, false)] {
        let summary = run.run(expected.0 + expected.1).unwrap();
        // Told to stop at the last clip, there is nothing left to interrupt.
        let interrupted = expected.2;
        assert_eq!(
            (summary.written, summary.kept, summary.interrupted),
            (expected.0, expected.1, interrupted)
        );
        assert_eq!((summary.removed, run.dataset().len()), (0, expected.0 + expected.1));
    }
    assert_eq!(run.encode.calls.borrow().len(), 3);
}

#[test]
fn a_clip_that_fails_late_is_told_and_an_encoder_that_fails_stops() {
    let mut run = Run::new();
    run.put("wide.mp4", "7 100 200 10 3");
    let summary = run.run(99).unwrap();
    assert_eq!((summary.written, summary.failed.len()), (2, 1));
    let expected = "only 3 frames could be read, but 5 are needed";
    assert_eq!(summary.failed[0].reason, Reason::Unreadable(expected.to_owned()));
    run.put("wide.mp4", "7 100 200 10");
    run.put("wide.txt", "unspeakable");
    run.put("a.mp4", "9 64 64 99");
    run.put("a.txt", "encoded before it");
    let message = run.run(99).unwrap_err().to_string();
    assert_eq!(message, "cannot encode `wide.mp4`: the tokenizer gave up");
    assert_eq!(run.dataset().len(), 3, "what was encoded before stays");
}

#[test]
fn references_are_encoded_beside_their_clips() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    put("a.mp4", "9 64 64 1");
    put("r.mp4", "12 200 64 100");
    put("t.csv", "path,caption,reference\na.mp4,one,r.mp4\n");
    let planned =
        doctor(&find_sources(&folder.path().join("t.csv")).unwrap(), &TextMedia, &buckets())
            .planned;
    let mut encode = Means::default();
    let store = folder.path().join("store");
    let go = |encode: &mut Means| {
        let mut writer = Writer::open(&store, &encode.fingerprint(), 1).unwrap();
        let stop = AtomicBool::new(false);
        preprocess(&planned, &TextMedia, encode, &mut writer, &mut |_| {}, &stop).unwrap().written
    };
    assert_eq!(go(&mut encode), 1);
    let dataset = Dataset::open(&store).unwrap();
    dataset.require(&[LATENTS, REF_LATENTS], "video-to-video").unwrap();
    let sample = dataset.read(0).unwrap();
    let reference = sample.tensors[REF_LATENTS].try_to_vec::<f32>().unwrap();
    assert_eq!(reference, (100..109).map(|x| x as f32).collect::<Vec<_>>());
    // Another reference is another sample.
    assert_eq!(go(&mut encode), 0);
    put("r.mp4", "12 200 64 101");
    assert_eq!(go(&mut encode), 1);
}

/// Frames of text, counted as they are read.
#[derive(Default)]
struct Counted(Cell<usize>);

impl Media for Counted {
    fn probe(&self, path: &Path) -> Result<Probe, Cause> {
        TextMedia.probe(path)
    }

    fn frames(&self, path: &Path) -> Result<Frames<'_>, Cause> {
        let frames = TextMedia.frames(path)?.collect::<Vec<_>>();
        Ok(Box::new(frames.into_iter().inspect(move |_| self.0.set(self.0.get() + 1))))
    }
}

/// A clip and its reference are read once, however many pieces of them become samples.
#[test]
fn pieces_are_those_of_the_whole_clip_and_read_it_once() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    put("a.mp4", "60 64 64 1");
    put("r.mp4", "60 64 64 101");
    put("t.csv", "path,caption,reference\na.mp4,one,r.mp4\n");
    let entries = find_sources(&folder.path().join("t.csv")).unwrap();
    for (text, last) in [("chunk", 45), ("slide:4", 48), ("uniform:3", 51)] {
        let extract: Extract = text.parse().unwrap();
        let planned = doctor(&entries, &TextMedia, &buckets()).extracted(extract).planned;
        let (media, mut encode) = (Counted::default(), Means::default());
        let store = folder.path().join(text.replace(':', "-"));
        let mut writer = Writer::open(&store, &encode.fingerprint(), 1).unwrap();
        let stop = AtomicBool::new(false);
        let made =
            preprocess(&planned, &media, &mut encode, &mut writer, &mut |_| {}, &stop).unwrap();
        assert_eq!((made.written, made.failed.len()), (planned.len(), 0), "{text}");
        drop(writer);
        assert_eq!(media.0.get(), 2 * (last + 9), "{text}: frames are read more than once");
        let dataset = Dataset::open(&store).unwrap();
        for piece in &planned {
            let at = (0..dataset.len()).find(|at| dataset.origin(*at).id == piece.id).unwrap();
            let tensors = dataset.read(at).unwrap().tensors;
            for (key, grey) in [(LATENTS, 1), (REF_LATENTS, 101)] {
                let wanted: Vec<f32> =
                    (0..9).map(|frame| (grey + piece.first + frame) as f32).collect();
                let found = tensors[key].try_to_vec::<f32>().unwrap();
                let found: Vec<f32> = found.into_iter().map(f32::round).collect();
                assert_eq!(found, wanted, "{text} {key}");
            }
        }
    }
}
