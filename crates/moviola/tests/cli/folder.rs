//! Copies of golden folders that a test may change, and runs of the command on them.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use tempfile::TempDir;

/// The folder of all goldens.
pub(crate) fn goldens() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../goldens"))
}

/// A temporary folder with a copy of a golden model in `model/`.
pub(crate) struct Copy {
    root: TempDir,
}

impl Copy {
    /// Copies `goldens/<name>`.
    pub(crate) fn of(name: &str) -> Copy {
        let root = tempfile::tempdir().unwrap();
        copy(&goldens().join(name), &root.path().join("model"));
        Copy { root }
    }

    /// A path in the temporary folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Replaces `from` by `to` in a text file of the model.
    pub(crate) fn replace(&self, file: &str, from: &str, to: &str) {
        let path = self.path("model").join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file} has no {from}");
        fs::write(path, text.replace(from, to)).unwrap();
    }

    /// Rewrites a weight file of the model; `change` may drop, rename or replace tensors.
    pub(crate) fn rewrite(&self, file: &str, change: impl FnOnce(&mut Tensors)) {
        let path = self.path("model").join(file);
        let mut tensors = read(&path);
        change(&mut tensors);
        write(&path, &tensors);
    }

    /// Runs `moviola generate` on the copy with `--output out.png` and more arguments.
    pub(crate) fn generate(&self, arguments: &[&str]) -> Output {
        self.generate_to("out.png", arguments)
    }

    /// The same with another `--output`. What an earlier run left there is replaced.
    pub(crate) fn generate_to(&self, output: &str, arguments: &[&str]) -> Output {
        self.generate_new(output, &[&["--overwrite"], arguments].concat())
    }

    /// The same for an output that must not be there yet.
    pub(crate) fn generate_new(&self, output: &str, arguments: &[&str]) -> Output {
        let model = self.path("model");
        let output = self.path(output);
        let mut all = vec!["generate", "--model", model.to_str().unwrap()];
        all.extend(["--output", output.to_str().unwrap()]);
        all.extend(arguments);
        run(&all)
    }

    /// The record beside an output.
    pub(crate) fn record(&self, output: &str) -> serde_json::Value {
        let path = self.path(&format!("{output}.json"));
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }

    /// The files of the temporary folder beside the model.
    pub(crate) fn written(&self) -> Vec<String> {
        let entries = fs::read_dir(self.root.path()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.retain(|name| name != "model" && !name.starts_with("given"));
        names.sort();
        names
    }
}

/// Runs the binary.
pub(crate) fn run(arguments: &[&str]) -> Output {
    assert_cmd::Command::cargo_bin("moviola").unwrap().args(arguments).output().unwrap()
}

/// Tensors as (type, shape, bytes) by name.
pub(crate) type Tensors = HashMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

/// All tensors of a file.
pub(crate) fn read(path: &Path) -> Tensors {
    let bytes = fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = |view: TensorView<'_>| (view.dtype(), view.shape().to_vec(), view.data().to_vec());
    file.iter().map(|(name, view)| (name.to_owned(), tensor(view))).collect()
}

/// Writes a file of tensors.
pub(crate) fn write(path: &Path, tensors: &Tensors) {
    let views = tensors.iter().map(|(name, (dtype, shape, bytes))| {
        (name.clone(), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

/// The values of an f32 tensor.
pub(crate) fn values((dtype, _, bytes): &(Dtype, Vec<usize>, Vec<u8>)) -> Vec<f32> {
    assert_eq!(*dtype, Dtype::F32);
    bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
}

/// Writes a LoRA for the tiny Wan folders that changes one layer, by names of diffusers.
pub(crate) fn write_lora(path: &Path) {
    let matrix = |rows: usize, columns: usize| {
        let bytes = (0..rows * columns).flat_map(|i| ((i % 7) as f32 * 0.1 - 0.3).to_le_bytes());
        (Dtype::F32, vec![rows, columns], bytes.collect::<Vec<u8>>())
    };
    let layer = "transformer.blocks.0.attn1.to_q";
    let tensors = [
        (format!("{layer}.lora_A.weight"), matrix(2, 24)),
        (format!("{layer}.lora_B.weight"), matrix(24, 2)),
    ];
    write(path, &tensors.into());
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Largest difference over the standard deviation of the golden.
pub(crate) fn distance(ours: &[f32], golden: &[f32]) -> f64 {
    assert_eq!(ours.len(), golden.len());
    let count = golden.len() as f64;
    let mean = golden.iter().map(|x| f64::from(*x)).sum::<f64>() / count;
    let variance = golden.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / count;
    let largest = ours.iter().zip(golden).map(|(a, b)| f64::from((a - b).abs()));
    largest.fold(0.0, f64::max) / variance.sqrt()
}
