//! What a GGUF file holds, read off its header.

use std::collections::BTreeMap;
use std::path::Path;

use nn::{GgufHeader, GgufValue};

use super::{ComponentReport, Inspection, TensorReport, Totals, name_of, shortened};
use crate::error::{Error, Result};

/// Tells what a file is; its values are not read.
///
/// # Errors
/// It cannot be read, or is no GGUF.
pub(super) fn inspect(path: &Path) -> Result<Inspection> {
    let file = kernels::map_file(path).map_err(|source| Error::read(path, source))?;
    let header = GgufHeader::parse(&file)
        .map_err(|reason| Error::Unknown(format!("{}: {reason}", path.display())))?;
    let mut types: BTreeMap<String, usize> = BTreeMap::new();
    let mut sums = Totals { tensors: header.tensors.len(), ..Totals::default() };
    let mut tensors = Vec::new();
    for own in &header.tensors {
        let (name, dtype) = (own.name.clone(), own.kind.name());
        *types.entry(dtype.clone()).or_default() += 1;
        let parameters = own.shape.iter().fold(1_usize, |all, dim| all.saturating_mul(*dim));
        sums.parameters = sums.parameters.saturating_add(parameters);
        let sum = sums.types.entry(dtype.clone()).or_default();
        *sum = sum.saturating_add(parameters);
        tensors.push(TensorReport { name, dtype, shape: own.shape.clone() });
    }
    sums.bytes = file.len();
    let types: Vec<String> =
        types.into_iter().map(|(name, count)| format!("{name} ({count})")).collect();
    let fact = |name: &str, value: String| (name.to_owned(), value);
    let architecture = header.metadata.get("general.architecture").and_then(GgufValue::text);
    let here = match header.check(file.len()) {
        Ok(()) => "a transformer is loaded by `generate --transformer FILE` and by a recipe's `weights`, its \
                   blocks as they are"
            .to_owned(),
        Err(reason) => {
            let reason: String = reason.chars().flat_map(char::escape_debug).collect();
            format!("it cannot be loaded: {reason}")
        }
    };
    let about = vec![
        fact("version", header.version.to_string()),
        fact("architecture", shortened(architecture.unwrap_or("not said"))),
        fact("tensors", header.tensors.len().to_string()),
        fact("types", types.join(", ")),
        fact("here", here),
    ];
    let only = ComponentReport { name: name_of(path), class: None, weights: Some(sums) };
    let metadata = header.metadata.iter().map(|(key, value)| (key.clone(), value.to_string()));
    let (title, metadata) = ("GGUF file".to_owned(), metadata.collect());
    Ok(Inspection { title, about, components: vec![only], metadata, tensors })
}
