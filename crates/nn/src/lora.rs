//! Low-rank changes to parameters: merged into them, or kept beside.
//!
//! A LoRA (Hu et al. 2021) changes a matrix `W` to `W + s B A`, where `A` and `B` are narrow. Merged,
//! it costs nothing when the model runs and a copy of each matrix it touches; beside, it costs two
//! small products per layer and no copy, so the file that `W` is mapped from stays shared.

use std::collections::BTreeMap;

use burn::tensor::{DType, Tensor};
use kernels::Activation;

use crate::error::{Error, Result, most_similar};
use crate::layers::{Linear, Project};
use crate::store::{Parameter, Store};
use crate::weights::{Bias, Provider};

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
    /// The change as a matrix `[outputs, inputs]` in f32.
    pub fn delta(&self) -> Tensor<2> {
        let up = self.up.clone().cast(DType::F32);
        let product =
            kernels::linear(up, self.down.clone().transpose(), None, Activation::Identity);
        product * self.scale
    }

    /// What it adds to a layer's output: `[rows, inputs]` to `[rows, outputs]`.
    fn project(&self, x: Tensor<2>) -> Tensor<2> {
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

/// Low-rank changes that are kept beside their matrices, by the matrix's name.
#[derive(Clone, Debug, Default)]
pub struct Adapters(BTreeMap<String, Vec<LowRank>>);

impl Adapters {
    /// Whether nothing is kept beside.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Store {
    /// Applies changes, those to one parameter in their order, summed in f32 and rounded once to the
    /// parameter's own type. Parameters without a change stay as they are, mapped if they were.
    ///
    /// With [`Merge::Beside`] low-rank changes to matrices are handed back, for [`Adapted`]; all
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
            let matrix = self.get(&parameter).is_some_and(|known| known.shape.len() == 2);
            match change {
                Change::LowRank(change) if matrix && merge == Merge::Beside => {
                    adapters.0.entry(parameter).or_default().push(change);
                }
                change => merged.entry(parameter).or_default().push(change),
            }
        }
        for (name, changes) in merged {
            if let Some(parameter) = self.get(&name) {
                let changed = changed(parameter, &changes);
                self.insert(name, changed);
            }
        }
        Ok(adapters)
    }

    fn check(&self, patch: &Patch) -> Result<()> {
        let parameter = self.get(&patch.parameter).ok_or_else(|| Error::Missing {
            name: patch.parameter.clone(),
            origin: self.origin().to_owned(),
            near: most_similar(&patch.parameter, self.iter().map(|(name, _)| name)),
        })?;
        let outputs = parameter.shape.first().copied().unwrap_or(1);
        let inputs = parameter.shape.iter().skip(1).product::<usize>();
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
                want: format!("`{}` has {:?}", patch.parameter, parameter.shape),
            }),
        }
    }
}

/// The parameter with its changes, in its own type.
fn changed(parameter: &Parameter, changes: &[Change]) -> Parameter {
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

/// A provider whose linear layers have [`Adapters`] beside them.
///
/// A changed matrix that is asked for as values rather than as a layer comes merged.
#[derive(Clone, Copy)]
pub struct Adapted<'a> {
    base: &'a dyn Provider,
    adapters: &'a Adapters,
}

impl<'a> Adapted<'a> {
    /// The layers of `base` with `adapters` beside them.
    pub fn new(base: &'a dyn Provider, adapters: &'a Adapters) -> Adapted<'a> {
        Adapted { base, adapters }
    }
}

impl Provider for Adapted<'_> {
    fn values(&self, name: &str, shape: &[usize]) -> Result<Tensor<1>> {
        let values = self.base.values(name, shape)?;
        let Some(adapters) = self.adapters.0.get(name) else { return Ok(values) };
        let changes: Vec<Change> = adapters.iter().cloned().map(Change::LowRank).collect();
        Ok(changed(&Parameter { values, shape: shape.to_vec() }, &changes).values)
    }

    fn has(&self, name: &str) -> bool {
        self.base.has(name)
    }

    fn linear(&self, name: &str, inputs: usize, outputs: usize, bias: Bias) -> Result<Linear> {
        let base = self.base.linear(name, inputs, outputs, bias)?;
        Ok(match self.adapters.0.get(&format!("{name}.weight")) {
            None => base,
            Some(adapters) => Linear::of(Beside { base, adapters: adapters.clone() }),
        })
    }
}

struct Beside {
    base: Linear,
    adapters: Vec<LowRank>,
}

impl Project for Beside {
    fn project(&self, x: Tensor<2>, activation: Activation) -> Tensor<2> {
        let out = self.base.apply(x.clone());
        let adapters = self.adapters.iter();
        activation.apply(adapters.fold(out, |out, adapter| out + adapter.project(x.clone())))
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device, Tensor};
    use kernels::Activation;

    use super::{Adapted, Change, LowRank, Merge, Patch};
    use crate::{Bias, Parameter, Provider, Store};

    fn tensor<const D: usize>(shape: [usize; D], seed: usize) -> Tensor<D> {
        let elements = shape.iter().product::<usize>();
        let value = |index: usize| ((index * 37 + seed * 11) % 23) as f32 / 7.0 - 1.5;
        let values: Vec<f32> = (0..elements).map(value).collect();
        Tensor::<1>::from_floats(&values[..], &Device::flex()).reshape(shape)
    }

    fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
        tensor.cast(DType::F32).into_data().try_to_vec().expect("f32")
    }

    fn store() -> Store {
        let mut store = Store::new("the test");
        store.insert("layer.weight", Parameter::new(tensor([5, 3], 1)));
        store.insert("layer.bias", Parameter::new(tensor([5], 2)));
        store.insert("kernel.weight", Parameter::new(tensor([4, 3, 2], 3)));
        store.insert("half.weight", Parameter::new(tensor([5, 3], 4).cast(DType::BF16)));
        store
    }

    fn low_rank([outputs, inputs]: [usize; 2], seed: usize, scale: f32) -> LowRank {
        LowRank { down: tensor([2, inputs], seed), up: tensor([outputs, 2], seed + 1), scale }
    }

    fn patch(parameter: &str, change: Change) -> Patch {
        Patch { parameter: parameter.to_owned(), change }
    }

    fn patches() -> Vec<Patch> {
        vec![
            patch("layer.weight", Change::LowRank(low_rank([5, 3], 5, 0.5))),
            patch("kernel.weight", Change::LowRank(low_rank([4, 6], 7, -1.0))),
            patch("layer.bias", Change::Dense(tensor([5], 8), 2.0)),
            patch("layer.weight", Change::LowRank(low_rank([5, 3], 9, 3.0))),
            patch("half.weight", Change::LowRank(low_rank([5, 3], 10, 1.0))),
        ]
    }

    /// `W + sum of s B A` by hand, in f64.
    fn by_hand(weight: &[f32], changes: &[LowRank], inputs: usize) -> Vec<f32> {
        let mut out: Vec<f64> = weight.iter().copied().map(f64::from).collect();
        for change in changes {
            let (down, up) = (values(change.down.clone()), values(change.up.clone()));
            for (index, value) in out.iter_mut().enumerate() {
                let (row, column) = (index / inputs, index % inputs);
                let product: f64 = (0..2)
                    .map(|k| f64::from(up[row * 2 + k]) * f64::from(down[k * inputs + column]))
                    .sum();
                *value += f64::from(change.scale) * product;
            }
        }
        out.into_iter().map(|value| value as f32).collect()
    }

    #[track_caller]
    fn close(ours: &[f32], wanted: &[f32], bound: f32) {
        assert_eq!(ours.len(), wanted.len());
        for (ours, wanted) in ours.iter().zip(wanted) {
            assert!((ours - wanted).abs() <= bound, "{ours} instead of {wanted}");
        }
    }

    #[test]
    fn merged_changes_add_up_and_touch_nothing_else() {
        let (before, mut store) = (store(), store());
        assert!(store.adapt(patches(), Merge::Into).expect("they fit").is_empty());
        let get = |store: &Store, name| values(store.get(name).expect(name).values.clone());
        let twice = [low_rank([5, 3], 5, 0.5), low_rank([5, 3], 9, 3.0)];
        let wanted = by_hand(&get(&before, "layer.weight"), &twice, 3);
        close(&get(&store, "layer.weight"), &wanted, 1e-5);
        let wanted = by_hand(&get(&before, "kernel.weight"), &[low_rank([4, 6], 7, -1.0)], 6);
        close(&get(&store, "kernel.weight"), &wanted, 1e-5);
        assert_eq!(store.get("kernel.weight").expect("it is there").shape, [4, 3, 2]);
        let shifted = values(before.get("layer.bias").expect("a bias").values.clone());
        let shifted: Vec<f32> =
            shifted.iter().zip(values(tensor([5], 8))).map(|(b, d)| b + 2.0 * d).collect();
        close(&get(&store, "layer.bias"), &shifted, 1e-6);
        let half = store.get("half.weight").expect("it is there");
        assert_eq!(half.values.dtype(), DType::BF16);
        let wanted = by_hand(&get(&before, "half.weight"), &[low_rank([5, 3], 10, 1.0)], 3);
        close(&get(&store, "half.weight"), &wanted, 0.03);
    }

    #[test]
    fn beside_is_the_same_layer() {
        let (mut merged, mut kept) = (store(), store());
        merged.adapt(patches(), Merge::Into).expect("they fit");
        let adapters = kept.adapt(patches(), Merge::Beside).expect("they fit");
        let untouched = values(store().get("layer.weight").expect("there").values.clone());
        assert_eq!(values(kept.get("layer.weight").expect("there").values.clone()), untouched);
        let adapted = Adapted::new(&kept, &adapters);
        let x = tensor([2, 7, 3], 12);
        for activation in [Activation::Identity, Activation::Silu] {
            let ours = adapted.linear("layer", 3, 5, Bias::With).expect("a layer");
            let wanted = merged.linear("layer", 3, 5, Bias::With).expect("a layer");
            let ours = values(ours.apply_with(x.clone(), activation));
            close(&ours, &values(wanted.apply_with(x.clone(), activation)), 1e-4);
        }
        // Asked for as values, it is merged too; so is what is no matrix.
        for (name, shape) in [("layer.weight", &[5, 3][..]), ("kernel.weight", &[4, 3, 2])] {
            let ours = values(adapted.values(name, shape).expect("values"));
            assert_eq!(ours, values(merged.values(name, shape).expect("values")), "{name}");
        }
    }

    #[test]
    fn changes_that_do_not_fit_leave_the_store_alone() {
        let refused = [
            ("layer.weigth", Change::LowRank(low_rank([5, 3], 1, 1.0)), "`layer.weight`"),
            ("layer.weight", Change::LowRank(low_rank([5, 4], 1, 1.0)), "[5, 2] x [2, 4]"),
            ("layer.bias", Change::Dense(tensor([4], 1), 1.0), "[4]"),
        ];
        for (name, change, words) in refused {
            let mut store = store();
            let before = values(store.get("layer.weight").expect("there").values.clone());
            let mut patches = patches();
            patches.push(patch(name, change));
            let error = store.adapt(patches, Merge::Into).expect_err(name).to_string();
            assert!(error.contains(words), "{error}");
            assert_eq!(values(store.get("layer.weight").expect("there").values.clone()), before);
        }
    }
}
