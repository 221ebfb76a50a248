//! Parameters by name, outside any model.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::backend::AllocationProperty;
use burn::tensor::{Bytes, DType, Device, Tensor, TensorData};
use safetensors::{Dtype, SafeTensors};

use crate::adapted::Adapters;
use crate::error::{Error, Result};
use crate::gguf::GgufHeader;
use crate::quantized::QuantizedMatrix;

/// In which type matrices are held. Vectors and tables keep their stored type; activations and sums
/// are f32 in every case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// As the file has them: mapped, never copied.
    Stored,
    /// bf16.
    Bf16,
}

/// How the matrices of linear layers are held beyond a float type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantization {
    /// Bytes with one scale per output; inputs are rounded to bytes row by row.
    Int8,
}

/// One named tensor: its values in a row, and its shape.
///
/// Keeping the values flat lets one type hold every rank; giving them their shape again is free.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// The values, `[elements]`.
    pub values: Tensor<1>,
    /// Their shape.
    pub shape: Vec<usize>,
}

impl Parameter {
    /// A tensor as a parameter.
    pub fn new<const D: usize>(tensor: Tensor<D>) -> Parameter {
        let shape = tensor.dims().to_vec();
        let elements = shape.iter().product::<usize>();
        Parameter { values: tensor.reshape([elements]), shape }
    }

    /// The tensor again.
    ///
    /// # Panics
    /// Panics if `D` is not the rank of the parameter.
    pub fn tensor<const D: usize>(&self) -> Tensor<D> {
        let shape: [usize; D] = self.shape[..].try_into().expect("the rank of the parameter");
        self.values.clone().reshape(shape)
    }

    /// Bytes it occupies.
    pub fn bytes(&self) -> usize {
        self.values.dims()[0] * self.values.dtype().size()
    }
}

/// Parameters by name: mapped from files, or held in memory.
#[derive(Clone, Debug, Default)]
pub struct Store {
    parameters: BTreeMap<String, Parameter>,
    /// Matrices of linear layers that are held in fewer bits.
    pub(crate) quantized: BTreeMap<String, QuantizedMatrix>,
    /// Low-rank changes of those, which nothing can be added to.
    pub(crate) beside: Adapters,
    /// Whether leading dims of a shape may be one in the file.
    pub(crate) merges_dims: bool,
    origin: String,
}

/// In which precision matrices are held, and the modules whose matrices are not.
pub(crate) type Held<'a> = (Precision, &'a [&'a str]);

impl Store {
    /// An empty store; `origin` names it in messages.
    pub fn new(origin: impl Into<String>) -> Store {
        Store { origin: origin.into(), ..Store::default() }
    }

    /// Maps the given safetensors or GGUF files. Nothing is read until it is used or cast.
    ///
    /// # Errors
    /// A file that cannot be read or is damaged, a name that occurs twice, a type we do not know.
    pub fn open(paths: &[PathBuf], precision: Precision, device: &Device) -> Result<Store> {
        Store::open_keeping(paths, precision, &[], device)
    }

    /// The same, but the matrices of modules called one of `kept`, at any depth, stay in their
    /// stored type: what a family says its reference never rounds.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_keeping(
        paths: &[PathBuf],
        precision: Precision,
        kept: &[&str],
        device: &Device,
    ) -> Result<Store> {
        Store::open_some(paths, (precision, kept), &|_| true, device)
    }

    /// The same, but only tensors whose names are needed: a rank that runs a part of a network holds that part.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_some(
        paths: &[PathBuf],
        held: (Precision, &[&str]),
        needed: &dyn Fn(&str) -> bool,
        device: &Device,
    ) -> Result<Store> {
        let origin = match paths {
            [path] => path.display().to_string(),
            [first, ..] => first.parent().unwrap_or(Path::new("")).display().to_string(),
            [] => String::new(),
        };
        let mut store = Store::new(origin);
        for path in paths {
            store.map(path, held, needed, device)?;
        }
        Ok(store)
    }

    fn map(
        &mut self,
        path: &Path,
        held: Held<'_>,
        needed: &dyn Fn(&str) -> bool,
        device: &Device,
    ) -> Result<()> {
        let corrupt = |reason: String| Error::Corrupt { path: path.to_owned(), reason };
        let file = kernels::map_file(path)
            .map_err(|source| Error::Read { path: path.to_owned(), source })?;
        if GgufHeader::is_of(&file) {
            return self.map_gguf(path, &file, held, device);
        }
        let tensors = SafeTensors::deserialize(&file).map_err(|err| corrupt(err.to_string()))?;
        for (name, view) in tensors.iter().filter(|(name, _)| needed(name)) {
            let dtype = float_type(view.dtype()).ok_or_else(|| Error::Dtype {
                name: name.to_owned(),
                origin: path.display().to_string(),
                dtype: format!("{:?}", view.dtype()),
            })?;
            let shape = view.shape().to_vec();
            let values = mapped(file.slice_ref(view.data()), dtype, device);
            let values = hold(values, name, &shape, held);
            if self.has_any(name) {
                return Err(corrupt(format!("tensor `{name}` occurs in another file too")));
            }
            self.parameters.insert(name.to_owned(), Parameter { values, shape });
        }
        Ok(())
    }

    /// Where the parameters come from, for messages.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Adds or replaces a parameter.
    pub fn insert(&mut self, name: impl Into<String>, parameter: Parameter) {
        self.parameters.insert(name.into(), parameter);
    }

    /// A parameter, if it is there.
    pub fn get(&self, name: &str) -> Option<&Parameter> {
        self.parameters.get(name)
    }

    /// Takes a parameter out.
    pub fn remove(&mut self, name: &str) -> Option<Parameter> {
        self.parameters.remove(name)
    }

    /// All names with their parameters, in order of name; matrices that are quantized are not among them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Parameter)> {
        self.parameters.iter().map(|(name, parameter)| (name.as_str(), parameter))
    }

    /// The same parameters under the names `rename` gives; `None` drops one.
    pub fn renamed(self, rename: impl Fn(&str) -> Option<String>) -> Store {
        fn renamed<T>(
            all: BTreeMap<String, T>,
            rename: impl Fn(&str) -> Option<String>,
        ) -> BTreeMap<String, T> {
            let all = all.into_iter();
            all.filter_map(|(name, value)| rename(&name).map(|name| (name, value))).collect()
        }
        Store {
            parameters: renamed(self.parameters, &rename),
            quantized: renamed(self.quantized, &rename),
            beside: self.beside.renamed(&rename),
            ..self
        }
    }

    /// The first tensor with a value that is not finite.
    pub fn first_not_finite(&self) -> Option<&str> {
        let broken = |values: Tensor<1>| {
            let values = values.cast(DType::F32).into_data();
            values.as_slice::<f32>().is_ok_and(|values| values.iter().any(|x| !x.is_finite()))
        };
        let found = self.iter().find(|(_, own)| broken(own.values.clone()));
        let in_blocks = || {
            let widened = |own: &QuantizedMatrix| own.widened(&Device::flex()).flatten(0, 1);
            self.quantized.iter().find(|(_, own)| broken(widened(own)))
        };
        found.map(|(name, _)| name).or_else(|| in_blocks().map(|(name, _)| name.as_str()))
    }
}

fn float_type(dtype: Dtype) -> Option<DType> {
    match dtype {
        Dtype::F32 => Some(DType::F32),
        Dtype::BF16 => Some(DType::BF16),
        Dtype::F16 => Some(DType::F16),
        _ => None,
    }
}

/// A tensor over mapped bytes; copied only if the file does not align it.
pub(crate) fn mapped(bytes: bytes::Bytes, dtype: DType, device: &Device) -> Tensor<1> {
    let elements = bytes.len() / dtype.size();
    let aligned = bytes.as_ptr().align_offset(dtype.size()) == 0;
    let bytes = match aligned {
        true => Bytes::from_shared(bytes, AllocationProperty::File),
        false => Bytes::from_bytes_vec(bytes.to_vec()),
    };
    Tensor::from_data(TensorData::from_bytes(bytes, [elements], dtype), (device, dtype))
}

/// Matrices and convolution kernels in the asked precision, everything else and modules that are
/// kept as they are.
pub(crate) fn hold(
    values: Tensor<1>,
    name: &str,
    shape: &[usize],
    (precision, kept): Held<'_>,
) -> Tensor<1> {
    let matrix = shape.len() >= 2 && name.ends_with(".weight");
    let rounded = matrix && !name.split('.').any(|module| kept.contains(&module));
    match precision {
        Precision::Bf16 if rounded && values.dtype() != DType::BF16 => values.cast(DType::BF16),
        _ => values,
    }
}
