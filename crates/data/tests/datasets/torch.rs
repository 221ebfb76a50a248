//! Files of `torch.save`, held to what torch itself read from them, and folders of another trainer's tensors.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use burn::tensor::{DType, TensorData};
use data::import::{Features, Finish, Preprocessed};
use data::preprocess::{Cause, Summary};
use data::store::{Dataset, Fingerprint, Writer};
use data::torch::Object;
use safetensors::SafeTensors;

fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens")
}

/// What torch read, in f32.
fn expected() -> BTreeMap<String, (Vec<usize>, Vec<f32>)> {
    let bytes = std::fs::read(goldens().join("torch.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let values = |own: &[u8]| -> Vec<f32> {
        own.chunks_exact(4)
            .map(|own| f32::from_le_bytes([own[0], own[1], own[2], own[3]]))
            .collect()
    };
    file.iter()
        .map(|(name, own)| (name.to_owned(), (own.shape().to_vec(), values(own.data()))))
        .collect()
}

fn floats(own: &TensorData) -> (Vec<usize>, Vec<f32>) {
    (own.shape().to_vec(), own.clone().convert::<f32>().try_to_vec().unwrap())
}

#[test]
fn every_type_and_view_is_read_as_torch_reads_it() {
    let map = Object::read(&goldens().join("torch/kinds.pt")).unwrap().map().unwrap();
    let types = [
        ("f64", DType::F64),
        ("f32", DType::F32),
        ("f16", DType::F16),
        ("bf16", DType::BF16),
        ("i64", DType::I64),
        ("i32", DType::I32),
        ("i16", DType::I16),
        ("i8", DType::I8),
        ("u8", DType::U8),
        ("bool", DType::U8),
    ];
    let expected = expected();
    for name in
        ["turned", "part", "repeated", "scalar", "empty"].into_iter().chain(types.map(|own| own.0))
    {
        let Object::Tensor(found) = &map[name] else { panic!("{name} is no tensor") };
        assert_eq!(&floats(found), &expected[&format!("kinds.{name}")], "{name}");
        let dtype = types.iter().find(|own| own.0 == name).map_or(DType::F32, |own| own.1);
        assert_eq!(found.dtype(), dtype, "{name}");
    }
    let plain = map["plain"].clone().map().unwrap();
    assert_eq!(plain["text"], Object::Text("clip ä".to_owned()));
    assert_eq!((&plain["yes"], &plain["no"]), (&Object::Truth(true), &Object::None));
    let many = vec![Object::Integer(1), Object::Number(2.5), Object::Integer(-(1 << 40))];
    assert_eq!(plain["many"], Object::List(many));
    assert_eq!(plain["pair"], Object::List(vec![Object::Integer(7)]));
}

#[test]
fn nothing_is_run_and_what_would_be_is_named() {
    let message = Object::read(&goldens().join("torch/runs-code.pt")).unwrap_err().to_string();
    assert!(message.contains("would run Python's `os.getenv`"), "{message}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.pt");
    std::fs::write(&path, b"\x80\x02}q\x00.").unwrap();
    let message = Object::read(&path).unwrap_err().to_string();
    assert!(message.contains("no ZIP archive"), "{message}");
    assert!(Object::read(&folder.path().join("none.pt")).is_err());
}

/// A model that reads features as they are.
struct AsItIs;

impl Finish for AsItIs {
    fn factors(&self) -> [usize; 3] {
        [8, 32, 32]
    }

    fn text(&mut self, _: &Features) -> Result<Option<TensorData>, Cause> {
        Ok(None)
    }
}

fn import(from: &str, to: &Path) -> Summary {
    let folder = Preprocessed::open(&goldens().join(from)).unwrap();
    let fingerprint = Fingerprint::new([("video", "v".to_owned())]);
    let mut writer = Writer::open(to, &fingerprint, 1 << 20).unwrap();
    folder.import(&mut AsItIs, &mut writer, &mut |_| {}, &AtomicBool::new(false)).unwrap()
}

#[test]
fn a_preprocessed_folder_becomes_a_dataset() {
    let folder = tempfile::tempdir().unwrap();
    let summary = import("torch/preprocessed", folder.path());
    assert_eq!((summary.written, summary.failed.len()), (2, 0), "{:?}", summary.failed);
    let dataset = Dataset::open(folder.path()).unwrap();
    let expected = expected();
    for index in 0..2 {
        let sample = dataset.read(index).unwrap();
        let name = &sample.origin.id;
        assert_eq!(*name, ["clips/a", "clips/b"][index]);
        assert_eq!(sample.origin.bucket.to_string(), "128x64x17");
        assert_eq!(sample.origin.fps, 24.0);
        let reference = sample.origin.reference.unwrap();
        assert_eq!((reference.bucket.to_string(), reference.fps), ("128x32x17".to_owned(), 12.0));
        let keys: Vec<&str> = sample.tensors.keys().map(String::as_str).collect();
        assert_eq!(keys, ["audio_latents", "latents", "mask", "ref_latents", "text", "text_audio"]);
        for (key, own) in &sample.tensors {
            assert_eq!(&floats(own), &expected[&format!("{name}.{key}")], "{name}.{key}");
        }
    }
    let again = import("torch/preprocessed", folder.path());
    assert_eq!((again.written, again.kept), (0, 2));
}

#[test]
fn older_names_and_layouts_are_read_too() {
    let folder = tempfile::tempdir().unwrap();
    let summary = import("torch/older", folder.path());
    assert_eq!((summary.written, summary.failed.len()), (1, 0), "{:?}", summary.failed);
    let sample = Dataset::open(folder.path()).unwrap().read(0).unwrap();
    assert_eq!(sample.origin.id, "0");
    let expected = expected();
    for key in ["latents", "text"] {
        assert_eq!(&floats(&sample.tensors[key]), &expected[&format!("0.{key}")], "{key}");
    }
}

#[test]
fn a_sample_that_is_not_whole_is_skipped_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let copy = |from: &str, to: &str| {
        let to = folder.path().join("from").join(to);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(goldens().join("torch").join(from), to).unwrap();
    };
    let latents = "preprocessed/latents/clips/a.pt";
    let conditions = "preprocessed/conditions/clips/a.pt";
    for name in ["whole", "danger", "lonely"] {
        copy(latents, &format!("latents/{name}.pt"));
    }
    copy(conditions, "conditions/whole.pt");
    copy("runs-code.pt", "conditions/danger.pt");
    copy(conditions, "conditions/alone.pt");
    copy(conditions, "audio_masks/whole.pt");
    let from = Preprocessed::open(&folder.path().join("from")).unwrap();
    assert_eq!(from.left_out, ["audio_masks"]);
    let fingerprint = Fingerprint::default();
    let mut writer = Writer::open(&folder.path().join("to"), &fingerprint, 1 << 20).unwrap();
    let summary =
        from.import(&mut AsItIs, &mut writer, &mut |_| {}, &AtomicBool::new(false)).unwrap();
    assert_eq!(summary.written, 1);
    let reasons: Vec<String> =
        summary.failed.iter().map(|own| format!("{}: {}", own.id, own.reason)).collect();
    for (at, want) in [
        "alone: it cannot be read: it has no file in `latents`",
        "os.getenv",
        "no file in `conditions`",
    ]
    .into_iter()
    .enumerate()
    {
        assert!(reasons[at].contains(want), "{reasons:?}");
    }
    assert!(Preprocessed::open(&goldens().join("pictures")).is_err());
}
