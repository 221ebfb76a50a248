//! Adapters folded into the layers they adapt.

use burn::tensor::DType;
use nn::{Parameter, Store};

use crate::error::{Error, Result};

/// The store with every pair `<layer>.lora_A.weight`, `<layer>.lora_B.weight` folded into
/// `<layer>.weight`, `strength` times; a store without pairs is left as it is.
///
/// # Errors
/// A pair lacks its half or its layer.
pub(crate) fn merge(mut store: Store, strength: f64) -> Result<Store> {
    let ends = |name: &str| name.strip_suffix(".lora_A.weight").map(str::to_owned);
    let layers: Vec<String> = store.iter().filter_map(|(name, _)| ends(name)).collect();
    for layer in layers {
        let mut take = |name: &str| {
            let missing = || Error::Recipe(format!("the adapter of `{layer}` lacks `{name}`"));
            store.remove(&format!("{layer}.{name}")).ok_or_else(missing)
        };
        let (down, up) = (take("lora_A.weight")?, take("lora_B.weight")?);
        let base = take("weight")?;
        let change = up.tensor::<2>().matmul(down.tensor::<2>()) * strength;
        let sum = base.tensor::<2>().cast(DType::F32) + change;
        store.insert(format!("{layer}.weight"), Parameter::new(sum));
    }
    Ok(store)
}
