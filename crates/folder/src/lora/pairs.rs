//! Tensors of a LoRA file, put together by layer and checked against the model.

use std::collections::BTreeMap;

use burn::tensor::DType;
use nn::{Change, LowRank, Parameter, Patch, Store};

use super::alphas::Alphas;
use super::key::LoraTensor;

/// What a file holds for each layer.
#[derive(Default)]
pub(super) struct Pairs(BTreeMap<String, Layer>);

/// The tensors of one layer with their keys.
type Layer = BTreeMap<LoraTensor, (String, Parameter)>;

impl Pairs {
    /// Adds a tensor.
    ///
    /// # Errors
    /// The layer has this part already, under another name.
    pub(super) fn add(
        &mut self,
        layer: &str,
        part: LoraTensor,
        key: &str,
        values: &Parameter,
    ) -> Result<(), String> {
        let parts = self.0.entry(layer.to_owned()).or_default();
        match parts.insert(part, (key.to_owned(), values.clone())) {
            None => Ok(()),
            Some((other, _)) => {
                Err(format!("`{other}` and `{key}` are the same part of `{layer}`"))
            }
        }
    }

    /// The changes of every layer, `scale` times as strong as they were trained.
    ///
    /// # Errors
    /// One of a pair is missing, or shapes do not fit each other or the model.
    pub(super) fn patches(
        self,
        store: &Store,
        alphas: &Alphas,
        scale: f32,
    ) -> Result<Vec<Patch>, String> {
        let mut patches = Vec::new();
        for (layer, parts) in &self.0 {
            patches.extend(layer_patches(layer, parts, store, alphas, scale)?);
        }
        Ok(patches)
    }
}

fn layer_patches(
    layer: &str,
    parts: &Layer,
    store: &Store,
    alphas: &Alphas,
    scale: f32,
) -> Result<Vec<Patch>, String> {
    let [weight, bias] = ["weight", "bias"].map(|name| format!("{layer}.{name}"));
    let mut patches = Vec::new();
    if let Some((down, up)) = pair(parts)? {
        let rank = down.1.shape[0];
        let alpha = parts.get(&LoraTensor::Alpha).map(alpha).transpose()?;
        let factor = f64::from(scale) * alphas.factor(layer, rank, alpha);
        let change = low_rank(down, up, factor as f32)?;
        patches.push(patch(&weight, &up.0, Change::LowRank(change), store)?);
        if let Some((key, values)) = parts.get(&LoraTensor::UpBias) {
            let change = Change::Dense(values.values.clone(), factor as f32);
            patches.push(patch(&bias, key, change, store)?);
        }
    }
    for (part, parameter) in [(LoraTensor::Weight, &weight), (LoraTensor::Bias, &bias)] {
        if let Some((key, values)) = parts.get(&part) {
            let change = Change::Dense(values.values.clone(), scale);
            patches.push(patch(parameter, key, change, store)?);
        }
    }
    Ok(patches)
}

type Named = (String, Parameter);

/// Both matrices, or neither if the layer changes in another way.
fn pair(parts: &Layer) -> Result<Option<(&Named, &Named)>, String> {
    match (parts.get(&LoraTensor::Down), parts.get(&LoraTensor::Up)) {
        (Some(down), Some(up)) => Ok(Some((down, up))),
        (Some((key, _)), None) | (None, Some((key, _))) => {
            Err(format!("`{key}` has no partner: a layer needs both `lora_A` and `lora_B`"))
        }
        (None, None) => match parts.get(&LoraTensor::Alpha).or(parts.get(&LoraTensor::UpBias)) {
            Some((key, _)) => Err(format!("`{key}` belongs to no `lora_A` and `lora_B`")),
            None => Ok(None),
        },
    }
}

fn alpha((key, parameter): &Named) -> Result<f64, String> {
    let values = parameter.values.clone().cast(DType::F32).into_data();
    match values.try_to_vec::<f32>().as_deref() {
        Ok(&[alpha]) => Ok(f64::from(alpha)),
        _ => Err(format!("`{key}` has shape {:?}, but an alpha is one number", parameter.shape)),
    }
}

/// The pair as matrices; a convolution's have more dims.
fn low_rank((down_key, down): &Named, (up_key, up): &Named, scale: f32) -> Result<LowRank, String> {
    for (key, parameter) in [(down_key, down), (up_key, up)] {
        if parameter.shape.len() < 2 || parameter.shape.contains(&0) {
            return Err(format!("`{key}` has shape {:?}, but must be a matrix", parameter.shape));
        }
    }
    let [rank, outputs] = [down.shape[0], up.shape[0]];
    let [inputs, narrow] = [down, up].map(|side| side.shape[1..].iter().product::<usize>());
    if narrow != rank {
        return Err(format!(
            "the ranks of `{down_key}` {:?} and `{up_key}` {:?} differ",
            down.shape, up.shape
        ));
    }
    Ok(LowRank {
        down: down.values.clone().reshape([rank, inputs]),
        up: up.values.clone().reshape([outputs, rank]),
        scale,
    })
}

/// A patch that fits its parameter; `key` is named if it does not.
fn patch(parameter: &str, key: &str, change: Change, store: &Store) -> Result<Patch, String> {
    let Some(shape) = store.shape(parameter) else {
        return Err(format!("`{key}` changes `{parameter}`, which the model does not have"));
    };
    let outputs = shape.first().copied().unwrap_or(1);
    let inputs = shape.iter().skip(1).product::<usize>();
    let (got, fits) = match &change {
        Change::LowRank(LowRank { down, up, .. }) => {
            let got = [up.dims()[0], down.dims()[1]];
            (format!("{got:?}"), got == [outputs, inputs])
        }
        Change::Dense(values, _) => {
            let elements = values.dims()[0];
            (format!("{elements} values"), elements == outputs * inputs)
        }
    };
    match fits {
        true => Ok(Patch { parameter: parameter.to_owned(), change }),
        false => Err(format!(
            "`{key}` changes {got}, but `{parameter}` is {shape:?}; the LoRA is for a model of another size"
        )),
    }
}
