//! Low-rank changes to parameters: merged into them, or kept beside.
//!
//! A LoRA (Hu et al. 2021) changes a matrix `W` to `W + s B A`, where `A` and `B` are narrow. Merged,
//! it costs nothing when the model runs and a copy of each matrix it touches; beside, it costs two
//! small products per layer and no copy, so the file that `W` is mapped from stays shared.

use std::collections::{BTreeMap, BTreeSet};

use burn::tensor::{DType, Tensor};
use kernels::Activation;

use crate::adapted::{Adapter, Adapters};
use crate::error::{Error, Result, most_similar};
use crate::part::Part;
use crate::store::{Parameter, Store};

/// How the names of `A` and `B` end.
const DOWN: &str = ".lora_A.weight";
const UP: &str = ".lora_B.weight";

/// `scale * up * down`.
#[derive(Clone, Debug)]
pub struct LowRank {
    /// `A`, `[rank, inputs]`.
    pub down: Tensor<2>,
    /// `B`, `[outputs, rank]`.
    pub up: Tensor<2>,
    /// What their product is multiplied with.
    pub scale: f32,
}

impl LowRank {
    /// What the two matrices of a layer's change are called beside the layer's own parameters: `A`, `B`.
    pub fn names(layer: &str) -> [String; 2] {
        [DOWN, UP].map(|part| format!("{layer}{part}"))
    }

    /// The change of a part of the matrix.
    pub(crate) fn part(self, part: &Part) -> LowRank {
        let rows = Part { outputs: part.outputs.clone(), inputs: None };
        let columns = Part { outputs: None, inputs: part.inputs.clone() };
        LowRank { down: columns.of(self.down), up: rows.of(self.up), scale: self.scale }
    }

    /// The change as a matrix `[outputs, inputs]` in f32.
    pub fn delta(&self) -> Tensor<2> {
        let up = self.up.clone().cast(DType::F32);
        let product =
            kernels::linear(up, self.down.clone().transpose(), None, Activation::Identity);
        product * self.scale
    }

    /// What it adds to a layer's output: `[rows, inputs]` to `[rows, outputs]`.
    pub(crate) fn project(&self, x: Tensor<2>) -> Tensor<2> {
        let inner = kernels::linear(x, self.down.clone(), None, Activation::Identity);
        kernels::linear(inner * self.scale, self.up.clone(), None, Activation::Identity)
    }
}

/// A change to one parameter.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "one per layer, beside tensors that are far larger")]
pub enum Change {
    /// A narrow product is added to a matrix, or to a kernel taken as `[outputs, the rest]`.
    LowRank(LowRank),
    /// Values `[elements]` times a scale are added one by one.
    Dense(Tensor<1>, f32),
}

/// A [`Change`] and the parameter it belongs to.
#[derive(Clone, Debug)]
pub struct Patch {
    /// The whole name, such as `blocks.0.to_q.weight`.
    pub parameter: String,
    /// What is added.
    pub change: Change,
}

/// What becomes of low-rank changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// They are added to their matrices, once.
    Into,
    /// They run beside their layers.
    Beside,
}

impl Store {
    /// Applies changes, those to one parameter in their order, summed in f32 and rounded once to the
    /// parameter's own type. Parameters without a change stay as they are, mapped if they were. Low-rank changes to a
    /// matrix that is quantized stay beside it, here in the store.
    ///
    /// With [`Merge::Beside`] low-rank changes to matrices are handed back, for [`Adapted`](crate::Adapted); all
    /// others are made here.
    ///
    /// # Errors
    /// A change has no parameter, or another size than it. The store is then unchanged.
    pub fn adapt(&mut self, patches: Vec<Patch>, merge: Merge) -> Result<Adapters> {
        for patch in &patches {
            self.check(patch)?;
        }
        let mut adapters = Adapters::default();
        let mut merged: BTreeMap<String, Vec<Change>> = BTreeMap::new();
        for Patch { parameter, change } in patches {
            let matrix = self.shape(&parameter).is_some_and(|shape| shape.len() == 2);
            match change {
                Change::LowRank(change) if matrix && merge == Merge::Beside => {
                    adapters.push(parameter, Adapter::held(change));
                }
                // Nothing can be added to fewer bits.
                Change::LowRank(change) if self.quantized(&parameter).is_some() => {
                    self.beside.push(parameter, Adapter::held(change));
                }
                change => merged.entry(parameter).or_default().push(change),
            }
        }
        for (name, changes) in merged {
            if let Some(parameter) = self.as_floats(&name) {
                let changed = changed(&parameter, &changes);
                self.quantized.remove(&name);
                self.beside.forget(&name);
                self.insert(name, changed);
            }
        }
        Ok(adapters)
    }

    /// Folds every pair of parameters called [`LowRank::names`] into `<layer>.weight`, `scale` times, as
    /// [`Store::adapt`] folds any change; the pairs are then gone. A store without pairs stays as it is.
    ///
    /// # Errors
    /// A pair lacks its half or its layer, or does not fit it. The store is then unchanged.
    pub fn merge_pairs(&mut self, scale: f32) -> Result<()> {
        let ends = |name: &str| {
            name.strip_suffix(DOWN).or_else(|| name.strip_suffix(UP)).map(str::to_owned)
        };
        let layers: BTreeSet<String> = self.iter().filter_map(|(name, _)| ends(name)).collect();
        let mut patches = Vec::new();
        for layer in &layers {
            let matrix = |name: &str| {
                let own = self.known(name)?;
                let outputs = own.shape.first().copied().unwrap_or(1);
                let inputs = own.shape.iter().skip(1).product();
                Ok(own.values.clone().reshape([outputs, inputs]))
            };
            let [down, up] = LowRank::names(layer);
            let change = LowRank { down: matrix(&down)?, up: matrix(&up)?, scale };
            let parameter = format!("{layer}.weight");
            patches.push(Patch { parameter, change: Change::LowRank(change) });
        }
        self.adapt(patches, Merge::Into)?;
        for name in layers.iter().flat_map(|layer| LowRank::names(layer)) {
            self.remove(&name);
        }
        Ok(())
    }

    /// A parameter that must be there.
    fn known(&self, name: &str) -> Result<&Parameter> {
        self.get(name).ok_or_else(|| Error::Missing {
            name: name.to_owned(),
            origin: self.origin().to_owned(),
            near: most_similar(name, self.names().into_iter()),
        })
    }

    fn check(&self, patch: &Patch) -> Result<()> {
        let shape = match self.shape(&patch.parameter) {
            Some(shape) => shape,
            None => self.known(&patch.parameter)?.shape.clone(),
        };
        let outputs = shape.first().copied().unwrap_or(1);
        let inputs = shape.iter().skip(1).product::<usize>();
        let (got, fits) = match &patch.change {
            Change::LowRank(LowRank { down, up, .. }) => {
                let ([rank, width], [height, narrow]) = (down.dims(), up.dims());
                let got = format!("[{height}, {narrow}] x [{rank}, {width}]");
                (got, rank == narrow && [height, width] == [outputs, inputs])
            }
            Change::Dense(values, _) => {
                let elements = values.dims()[0];
                (format!("[{elements}]"), elements == outputs * inputs)
            }
        };
        match fits {
            true => Ok(()),
            false => Err(Error::Shape {
                what: "the shape of a change",
                got,
                want: format!("`{}` has {shape:?}", patch.parameter),
            }),
        }
    }
}

/// The parameter with its changes, in its own type.
pub(crate) fn changed(parameter: &Parameter, changes: &[Change]) -> Parameter {
    let dtype = parameter.values.dtype();
    let elements = parameter.values.dims()[0];
    let mut values = parameter.values.clone().cast(DType::F32);
    for change in changes {
        values = values
            + match change {
                Change::LowRank(change) => change.delta().reshape([elements]),
                Change::Dense(delta, scale) => delta.clone().cast(DType::F32) * *scale,
            };
    }
    Parameter { values: values.cast(dtype), shape: parameter.shape.clone() }
}
