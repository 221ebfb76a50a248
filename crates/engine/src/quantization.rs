//! What rounding a folder's matrices to bytes would cost, layer by layer.

use std::path::Path;

use burn::tensor::{DType, Device, Tensor};
use folder::ModelFolder;
use kernels::Int8Matrix;
use nn::{Precision, Store};

use crate::error::Result;

/// One matrix of a transformer's linear layers, as it would be held in bytes.
#[derive(Clone, Debug)]
pub struct RoundedMatrix {
    /// Where it is.
    pub component: &'static str,
    /// Its name.
    pub name: String,
    /// `[outputs, inputs]`.
    pub shape: [usize; 2],
    /// The deviation of the difference, as a share of the matrix's own.
    pub error: f64,
    /// Bytes in f32.
    pub before: usize,
    /// Bytes after.
    pub after: usize,
}

/// Every matrix of a folder that `--quantize int8` holds in bytes.
///
/// # Errors
/// The folder is of no family we have, or its weights cannot be read.
pub fn quantization(path: &Path) -> Result<Vec<RoundedMatrix>> {
    let folder = ModelFolder::open(path)?;
    let description = families::describe(&folder)?;
    let kept = description.family.kept;
    let mut all = Vec::new();
    for expert in &description.transformers {
        let files = folder.weights(expert.component)?;
        let store = Store::open(&files, Precision::Stored, &Device::flex())?;
        let ignored: Vec<&str> = expert.ignored.iter().map(String::as_str).collect();
        for name in store.agree(&ignored, |weights| expert.network.declare(weights))? {
            let kept = name.split('.').any(|module| kept.contains(&module));
            if let Some(parameter) = store.get(&name).filter(|_| !kept) {
                let weight: Tensor<2> = parameter.tensor();
                let rounded = Int8Matrix::nearest(weight.clone());
                let weight = weight.cast(DType::F32);
                let difference = rounded.widened(&Device::flex()) - weight.clone();
                let power = kernels::sum_squares::<2>;
                all.push(RoundedMatrix {
                    component: expert.component,
                    shape: rounded.shape(),
                    error: (power(difference) / power(weight).max(f64::MIN_POSITIVE)).sqrt(),
                    before: rounded.shape().iter().product::<usize>() * size_of::<f32>(),
                    after: rounded.bytes(),
                    name,
                });
            }
        }
    }
    Ok(all)
}
