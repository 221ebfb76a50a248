//! A transformer as one GGUF file, which stable-diffusion.cpp and ComfyUI-GGUF read.

use std::collections::BTreeMap;
use std::io::BufWriter;
use std::path::Path;

use burn::tensor::{DType, FloatDType};
use data::aside::{AsideFile, Existing};
use folder::OWN_KEYS;
use kernels::BlockType;
use nn::{GgufTensor, GgufType, GgufValue, GgufWriter, Parameter, QuantizedMatrix, Store};

use super::files::make_parent;
use super::{Dialect, Student};
use crate::error::{Error, Result};

/// How ggml numbers files by what most of their matrices are.
fn file_type(kind: GgufType) -> i128 {
    match kind {
        GgufType::F32 => 0,
        GgufType::F16 => 1,
        GgufType::Bf16 => 32,
        GgufType::Blocks(BlockType::Q8_0) => 7,
        // "Mostly q4_k, small".
        GgufType::Blocks(_) | GgufType::Other(_) => 14,
    }
}

impl Student {
    /// Writes the whole transformer as a GGUF file, two experts as [`Student::files`] says: matrices of linear layers as `kind` says, those whose rows are no
    /// whole blocks and those that the family keeps in f16, vectors and tables in f32.
    ///
    /// # Errors
    /// No matrix has rows of whole blocks, a value does not fit, something stands there already, or the disk is full.
    pub fn write_gguf(&self, path: &Path, dialect: Option<Dialect>, kind: GgufType) -> Result<()> {
        self.parts_that_may_be(path)?
            .into_iter()
            .try_for_each(|(path, own)| own.write_own_gguf(&path, dialect, kind))
    }

    fn write_own_gguf(&self, path: &Path, dialect: Option<Dialect>, kind: GgufType) -> Result<()> {
        let family = self.model.description.family;
        let mut names = self.model.store.names().into_iter();
        let has_own = names.any(|name| family.original_parameter(name).is_some());
        // Those who read such files know the names of the model's own code.
        let dialect = dialect.unwrap_or(match has_own {
            true => Dialect::ComfyUi,
            false => Dialect::Diffusers,
        });
        let store = self.renamed(self.store()?, dialect)?;
        let kept = |name: &str| {
            let name = family.diffusers_parameter(name);
            name.split('.').any(|module| family.kept.contains(&module))
        };
        let tensors = store.names().into_iter().map(|name| {
            let shape = store.shape(name).unwrap_or_default();
            GgufTensor::new(name, written_as(kind, name, &shape, kept(name)), shape)
        });
        let tensors: Vec<GgufTensor> = tensors.collect();
        if !tensors.iter().any(|own| own.kind == kind) {
            return Err(Error::Recipe(format!(
                "no matrix of this model can be written as {}: their rows are no whole blocks of {} values; choose \
                 another type",
                kind.name(),
                match kind {
                    GgufType::Blocks(own) => own.length(),
                    _ => 1,
                }
            )));
        }
        make_parent(path)?;
        let fault = |err| Error::file("write", path, err);
        let mut file = AsideFile::create(path, Existing::Refuse).map_err(fault)?;
        let mut to = BufWriter::new(&mut file);
        let mut writer =
            GgufWriter::begin(&mut to, self.gguf_metadata(kind), &tensors).map_err(fault)?;
        for own in &tensors {
            writer.put(&bytes(&store, own)?).map_err(fault)?;
        }
        to.into_inner().map_err(|err| fault(err.into_error()))?;
        file.commit().map_err(fault)
    }

    /// What readers look for, and what a safetensors file would say.
    fn gguf_metadata(&self, kind: GgufType) -> BTreeMap<String, GgufValue> {
        let architecture = self.model.description.family.architecture;
        let own = self.metadata(&self.record()).into_iter().filter(|(key, _)| key != "format");
        let own = own.map(|(key, value)| (format!("{OWN_KEYS}{key}"), GgufValue::Text(value)));
        let general = [
            ("general.architecture", GgufValue::Text(architecture.to_owned())),
            ("general.file_type", GgufValue::Whole(file_type(kind))),
            ("general.quantization_version", GgufValue::Whole(2)),
        ];
        own.chain(general.map(|(key, value)| (key.to_owned(), value))).collect()
    }
}

/// How a tensor is written where matrices are `kind`.
fn written_as(kind: GgufType, name: &str, shape: &[usize], is_kept: bool) -> GgufType {
    let small = match kind {
        GgufType::F32 | GgufType::Bf16 => kind,
        _ => GgufType::F16,
    };
    match (shape, kind) {
        _ if shape.len() < 2 || !name.ends_with(".weight") => GgufType::F32,
        ([_, inputs], GgufType::Blocks(own)) if !is_kept && inputs.is_multiple_of(own.length()) => {
            kind
        }
        _ => small,
    }
}

/// The values of a tensor as they are written. Blocks that nothing has changed are copied.
fn bytes(store: &Store, own: &GgufTensor) -> Result<Vec<u8>> {
    let name = &own.name;
    let wrong = |reason: &str| Error::Recipe(format!("`{name}` {reason}"));
    if let (Some(QuantizedMatrix::Blocks(matrix)), GgufType::Blocks(kind)) =
        (store.quantized(name), own.kind)
        && matrix.kind() == kind
        && !store.has_changes(name)
        && let Some(whole) = matrix.whole()
    {
        return Ok(whole.to_vec());
    }
    let Parameter { values, .. } =
        store.as_floats(name).ok_or_else(|| wrong("is not in the model"))?;
    let values = values.cast(DType::F32);
    let dtype = match own.kind {
        GgufType::Blocks(kind) => {
            let values = values.into_data();
            let values = values.as_slice::<f32>().map_err(|_| wrong("is not of floats"))?;
            let rounded = kind.nearest(values);
            let beyond = "holds a value that no block can hold; choose f32 or bf16";
            return rounded.ok_or_else(|| wrong(beyond));
        }
        GgufType::F16 => FloatDType::F16,
        GgufType::Bf16 => FloatDType::BF16,
        GgufType::F32 | GgufType::Other(_) => FloatDType::F32,
    };
    let narrow = values.cast(dtype);
    let widened = narrow.clone().cast(FloatDType::F32).into_data();
    let finite =
        widened.as_slice::<f32>().is_ok_and(|all| all.iter().all(|value| value.is_finite()));
    match finite || dtype == FloatDType::F32 {
        true => Ok(narrow.into_data().bytes().to_vec()),
        false => {
            Err(wrong("holds a value beyond 65504, which f16 cannot hold; choose bf16 or f32"))
        }
    }
}
