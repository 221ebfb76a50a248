//! Reads the files of `goldens/`: tensors by key, weights by prefix, the config in the metadata.

use std::path::PathBuf;

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use nn::{Parameter, Store};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

/// One golden file.
pub(crate) struct Golden {
    name: String,
    bytes: Vec<u8>,
    config: Value,
}

/// The folder of all goldens.
pub(crate) fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../goldens"))
}

impl Golden {
    /// Opens `goldens/<name>.safetensors`.
    pub(crate) fn open(name: &str) -> Golden {
        let path = folder().join(format!("{name}.safetensors"));
        let bytes = std::fs::read(&path).expect("the golden file can be read");
        let (_, header) = SafeTensors::read_metadata(&bytes).expect("a golden has a header");
        let metadata = header.metadata().as_ref().expect("a golden has metadata");
        let config = serde_json::from_str(&metadata["config"]).expect("the config is JSON");
        Golden { name: name.to_owned(), bytes, config }
    }

    /// The JSON of the metadata.
    pub(crate) fn config(&self) -> &Value {
        &self.config
    }

    /// The config of a network as the reference wrote it, without the notes of our script.
    pub(crate) fn network(&self, name: &str) -> Value {
        let mut config = self.config[name].clone();
        for note in ["block", "golden", "tiling"] {
            config.as_object_mut().expect("a config is an object").remove(note);
        }
        config
    }

    /// Whether there is a tensor `key`.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.file().tensor(key).is_ok()
    }

    /// The float tensor `key`.
    pub(crate) fn tensor<const D: usize>(&self, key: &str) -> Tensor<D> {
        let file = self.file();
        let view = file.tensor(key).unwrap_or_else(|_| panic!("{} has no `{key}`", self.name));
        assert_eq!(view.dtype(), Dtype::F32, "{}: `{key}`", self.name);
        let shape: [usize; D] = view.shape().try_into().expect("the rank of the tensor");
        let data = TensorData::from_bytes_vec(view.data().to_vec(), shape, DType::F32);
        Tensor::from_data(data, &Device::flex())
    }

    /// The integer tensor `key`.
    pub(crate) fn integers<const D: usize>(&self, key: &str) -> Tensor<D, Int> {
        let file = self.file();
        let view = file.tensor(key).unwrap_or_else(|_| panic!("{} has no `{key}`", self.name));
        assert_eq!(view.dtype(), Dtype::I64, "{}: `{key}`", self.name);
        let shape: [usize; D] = view.shape().try_into().expect("the rank of the tensor");
        let data = TensorData::from_bytes_vec(view.data().to_vec(), shape, DType::I64);
        Tensor::from_data(data, &Device::flex())
    }

    /// Every float tensor below `<prefix>.`, under the rest of its name.
    pub(crate) fn store(&self, prefix: &str) -> Store {
        let mut store = Store::new(format!("golden {} {prefix}", self.name));
        for (key, view) in self.file().iter() {
            let Some(name) = key.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('.'))
            else {
                continue;
            };
            let stored = match view.dtype() {
                Dtype::F32 => DType::F32,
                Dtype::F16 => DType::F16,
                other => panic!("{}: `{key}` is {other:?}", self.name),
            };
            let shape = view.shape().to_vec();
            let elements: usize = shape.iter().product();
            let data = TensorData::from_bytes_vec(view.data().to_vec(), [elements], stored);
            let data = data.convert::<f32>();
            let values = Tensor::from_data(data, &Device::flex());
            store.insert(name, Parameter { values, shape });
        }
        assert!(store.iter().next().is_some(), "{} has nothing below `{prefix}`", self.name);
        store
    }

    fn file(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.bytes).expect("a golden is a safetensors file")
    }
}

/// The values of a tensor in f32.
pub(crate) fn values<const D: usize>(tensor: &Tensor<D>) -> Vec<f32> {
    tensor.clone().cast(DType::F32).into_data().try_to_vec::<f32>().expect("f32 values")
}

/// Fails unless `max|ours - golden| < bound * std(golden)` and the shapes are equal.
#[track_caller]
pub(crate) fn check<const D: usize>(what: &str, ours: &Tensor<D>, golden: &Tensor<D>, bound: f64) {
    assert_eq!(ours.dims(), golden.dims(), "{what}: shape");
    let off = distance(&values(ours), &values(golden));
    assert!(off < bound, "{what} is off by {off:.3e} of the golden's std, allowed is {bound:.0e}");
}

/// Fails unless `norm(ours - golden) < bound * norm(golden)` and the shapes are equal.
#[track_caller]
pub(crate) fn check_norm<const D: usize>(
    what: &str,
    ours: &Tensor<D>,
    golden: &Tensor<D>,
    bound: f64,
) {
    assert_eq!(ours.dims(), golden.dims(), "{what}: shape");
    let (ours, golden) = (values(ours), values(golden));
    let difference = ours.iter().zip(&golden).map(|(a, b)| f64::from(a - b)).collect::<Vec<_>>();
    let off = norm(difference) / norm(golden.into_iter().map(f64::from));
    assert!(off < bound, "{what} is off by {off:.3e} of the golden's norm, allowed is {bound:.0e}");
}

/// A matrix `[rows, ..]` given flat, seen from both sides, `[rows + columns]`; whatever is no matrix
/// stays as it is. The goldens hold gradients in this form (`sketch` in `tools/goldens/tiny.py`).
pub(crate) fn sketch(tensor: &Tensor<1>, shape: &[usize]) -> Tensor<1> {
    let [rows, .., _] = shape else { return tensor.clone() };
    let matrix = values(tensor);
    let columns = matrix.len() / rows;
    let sign = |index: usize| if ((index * 2_654_435_761) >> 16) & 1 == 1 { 1.0 } else { -1.0 };
    let at = |row: usize, column: usize| f64::from(matrix[row * columns + column]);
    let across = (0..*rows).map(|row| (0..columns).map(|c| at(row, c) * sign(c)).sum::<f64>());
    let down = (0..columns).map(|column| (0..*rows).map(|r| at(r, column) * sign(r)).sum::<f64>());
    let sketch: Vec<f32> = across.chain(down).map(|sum| sum as f32).collect();
    Tensor::from_floats(&sketch[..], &tensor.device())
}

/// `max|ours - golden| / std(golden)`; not a number if any value is not.
fn distance(ours: &[f32], golden: &[f32]) -> f64 {
    let count = golden.len() as f64;
    let mean = golden.iter().copied().map(f64::from).sum::<f64>() / count;
    let spread = golden.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / count;
    let largest = ours.iter().zip(golden).fold(0.0, |largest: f64, (&a, &b)| {
        let off = (f64::from(a) - f64::from(b)).abs();
        if off.is_nan() || off > largest { off } else { largest }
    });
    largest / spread.sqrt()
}

fn norm(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().map(|x| x * x).sum::<f64>().sqrt()
}
