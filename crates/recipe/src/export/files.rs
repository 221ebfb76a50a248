//! Files of an export, as they are copied and written.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use burn::tensor::{DType, FloatDType, TensorData};
use data::aside::{AsideFile, Existing};
use nn::{Parameter, Store};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::Value;

use super::Student;
use crate::error::{Error, Result};

/// Copies a folder's files that `wanted` accepts by their path within it.
pub(super) fn copy(from: &Path, to: &Path, wanted: &dyn Fn(&str) -> bool) -> Result<()> {
    let (mut folders, mut seen) = (vec![PathBuf::new()], BTreeSet::new());
    while let Some(inner) = folders.pop() {
        let folder = from.join(&inner);
        let fault = |err| Error::file("read", &folder, err);
        // Links may lead in circles.
        if !seen.insert(std::fs::canonicalize(&folder).map_err(fault)?) {
            continue;
        }
        for entry in std::fs::read_dir(&folder).map_err(fault)? {
            let entry = entry.map_err(fault)?;
            let relative = inner.join(entry.file_name());
            if entry.path().is_dir() {
                folders.push(relative);
            } else if wanted(&relative.to_string_lossy()) {
                let target = to.join(&relative);
                make_parent(&target)?;
                copy_bytes(&entry.path(), &target)
                    .map_err(|err| Error::file("write", &target, err))?;
            }
        }
    }
    Ok(())
}

/// The bytes alone: the copy has the permissions of any new file, whatever those of a cache are.
fn copy_bytes(from: &Path, to: &Path) -> std::io::Result<()> {
    let (mut from, mut to) = (kernels::open_file(from)?, File::create(to)?);
    std::io::copy(&mut from, &mut to).map(drop)
}

pub(super) fn make_parent(path: &Path) -> Result<()> {
    let parent = path.parent().unwrap_or(Path::new("."));
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    std::fs::create_dir_all(parent).map_err(|err| Error::file("make", parent, err))
}

pub(super) fn write_json(path: &Path, value: &Value) -> Result<()> {
    make_parent(path)?;
    let text = serde_json::to_string_pretty(value).expect("a value is JSON");
    std::fs::write(path, text + "\n").map_err(|err| Error::file("write", path, err))
}

impl Student {
    /// Writes parameters as safetensors: beside the file first, so that no one sees half of it.
    pub(super) fn write_store(
        &self,
        store: Store,
        path: &Path,
        facts: BTreeMap<String, String>,
    ) -> Result<()> {
        make_parent(path)?;
        let fault = |err| Error::file("write", path, err);
        let mut file = AsideFile::create(path, Existing::Refuse).map_err(fault)?;
        let data = store.names().into_iter().filter_map(|name| {
            // What is quantized is written as floats.
            let own = store.as_floats(name)?;
            Some(self.data(name, &own).map(|data| (name, own.shape, data)))
        });
        let data: Vec<(&str, Vec<usize>, TensorData)> = data.collect::<Result<_>>()?;
        let views = data.iter().map(|(name, shape, data)| {
            let dtype = match data.dtype() {
                DType::BF16 => Dtype::BF16,
                DType::F16 => Dtype::F16,
                _ => Dtype::F32,
            };
            Ok((*name, TensorView::new(dtype, shape.clone(), data.bytes())?))
        });
        let wrong =
            |err: safetensors::SafeTensorError| Error::Recipe(format!("{}: {err}", path.display()));
        let views = views.collect::<std::result::Result<Vec<_>, _>>().map_err(wrong)?;
        data::write_tensors(&mut file, views, Some(&facts)).map_err(fault)?;
        file.commit().map_err(fault)
    }

    /// The values of a parameter in the type that was asked for.
    fn data(&self, name: &str, own: &Parameter) -> Result<TensorData> {
        let Some(dtype) = self.dtype else { return Ok(own.values.to_data()) };
        let values = own.values.clone().cast(dtype);
        let lost = dtype == FloatDType::F16 && {
            let widened = values.clone().cast(FloatDType::F32).into_data();
            widened.as_slice::<f32>().is_ok_and(|all| all.iter().any(|value| value.is_infinite()))
        };
        match lost {
            true => Err(Error::Recipe(format!(
                "`{name}` holds a value beyond 65504, which f16 cannot hold; choose bf16"
            ))),
            false => Ok(values.into_data()),
        }
    }
}
