//! Copies of golden folders that a test may change.

use std::fs;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use serde_json::Value;
use tempfile::TempDir;

/// The folder of all goldens.
pub(crate) fn goldens() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../goldens"))
}

/// A copy of a golden model.
pub(crate) struct Copy(TempDir);

impl Copy {
    /// Copies `goldens/<name>`.
    pub(crate) fn of(name: &str) -> Copy {
        let root = tempfile::tempdir().expect("a folder");
        copy(&goldens().join(name), root.path());
        Copy(root)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Puts a folder of another golden model into this one.
    pub(crate) fn take(&self, from: &str, name: &str) {
        copy(&goldens().join(from), &self.path().join(name));
    }

    /// Changes a JSON file.
    pub(crate) fn json(&self, file: &str, change: impl FnOnce(&mut Value)) {
        let path = self.path().join(file);
        let text = fs::read_to_string(&path).expect("a file");
        let mut value: Value = serde_json::from_str(&text).expect("JSON");
        change(&mut value);
        fs::write(path, value.to_string()).expect("a file");
    }

    /// Adds a byte to the middle of a file by xor.
    pub(crate) fn flip(&self, file: &str) {
        let path = self.path().join(file);
        let mut bytes = fs::read(&path).expect("a file");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(path, bytes).expect("a file");
    }

    /// Replaces the VAE by case `case` of `goldens/<file>.safetensors`, and returns the case's config.
    pub(crate) fn use_vae(&self, file: &str, case: &str) -> Value {
        let golden = Golden::open(file);
        let config = golden.config[case].clone();
        let mut published = config.clone();
        for note in ["golden", "tiling"] {
            published.as_object_mut().expect("an object").remove(note);
        }
        fs::write(self.path().join("vae/config.json"), published.to_string()).expect("a file");
        let all = SafeTensors::deserialize(&golden.bytes).expect("a safetensors file");
        let prefix = format!("{case}.weights.");
        let ours = all.iter().filter_map(|(name, view)| Some((name.strip_prefix(&prefix)?, view)));
        let ours: Vec<(&str, TensorView<'_>)> = ours.collect();
        let bytes = safetensors::serialize(ours, None).expect("tensors");
        fs::write(self.path().join("vae/diffusion_pytorch_model.safetensors"), bytes)
            .expect("a file");
        config
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).expect("a file")),
        }
    }
}

/// A golden file.
pub(crate) struct Golden {
    bytes: Vec<u8>,
    /// The JSON of its metadata.
    pub(crate) config: Value,
}

impl Golden {
    /// Opens `goldens/<name>.safetensors`.
    pub(crate) fn open(name: &str) -> Golden {
        let bytes = fs::read(goldens().join(format!("{name}.safetensors"))).expect("a golden");
        let (_, header) = SafeTensors::read_metadata(&bytes).expect("a header");
        let config = &header.metadata().as_ref().expect("metadata")["config"];
        let config = serde_json::from_str(config).expect("JSON");
        Golden { bytes, config }
    }

    /// The shape and the numbers of a tensor, which may be of f32 or i64.
    pub(crate) fn tensor(&self, key: &str) -> (Vec<usize>, Vec<f32>) {
        let file = SafeTensors::deserialize(&self.bytes).expect("a safetensors file");
        let view = file.tensor(key).expect(key);
        let values = match view.dtype() {
            safetensors::Dtype::F32 => {
                let four = view.data().chunks_exact(4);
                four.map(|it| f32::from_le_bytes(it.try_into().expect("four"))).collect()
            }
            safetensors::Dtype::I64 => {
                let eight = view.data().chunks_exact(8);
                eight.map(|it| i64::from_le_bytes(it.try_into().expect("eight")) as f32).collect()
            }
            other => panic!("{key} is {other:?}"),
        };
        (view.shape().to_vec(), values)
    }
}

/// Largest difference over the standard deviation of what is wanted.
pub(crate) fn distance(ours: &[f32], wanted: &[f32]) -> f64 {
    assert_eq!(ours.len(), wanted.len());
    let count = wanted.len() as f64;
    let mean = wanted.iter().map(|x| f64::from(*x)).sum::<f64>() / count;
    let variance = wanted.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / count;
    let differences = ours.iter().zip(wanted).map(|(a, b)| f64::from((a - b).abs()));
    differences.fold(0.0, |most: f64, it| if it.is_nan() { it } else { most.max(it) })
        / variance.sqrt()
}
