//! What a LoRA file is, without a model to hold it against.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use safetensors::{Dtype, SafeTensors};

use super::alphas::Alphas;
use super::key::{Key, LoraTensor};

/// What a LoRA file says.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Whose names it has.
    pub dialect: &'static str,
    /// How many layers it changes.
    pub layers: usize,
    /// The ranks that occur.
    pub ranks: Vec<usize>,
    /// The alphas that occur; none if nobody says, and then they are the ranks.
    pub alphas: Vec<f64>,
    /// Layers by their names with `*` for numbers, and how many there are of each.
    pub modules: BTreeMap<String, usize>,
    /// The family of models that its names give away, by whoever knows families.
    pub first_key: String,
}

/// What a safetensors file is as a LoRA; none if it is no LoRA.
pub fn summary(path: &Path, file: &SafeTensors<'_>) -> Option<Summary> {
    let keys = file.iter().filter_map(|(name, view)| Some((name, Key::parse(name).ok()?, view)));
    let keys: Vec<_> = keys.collect();
    let downs = || keys.iter().filter(|(_, key, _)| key.part == LoraTensor::Down);
    let (first, _, _) = downs().next()?;
    let ranks: BTreeSet<usize> =
        downs().filter_map(|(_, _, view)| view.shape().first().copied()).collect();
    let layers: BTreeSet<&str> = keys.iter().map(|(_, key, _)| key.layer).collect();
    let mut modules: BTreeMap<String, usize> = BTreeMap::new();
    layers.iter().for_each(|layer| *modules.entry(pattern(layer)).or_default() += 1);
    let own = keys.iter().filter(|(_, key, _)| key.part == LoraTensor::Alpha);
    let mut alphas: Vec<f64> = own.filter_map(|(_, _, view)| number(view)).collect();
    if alphas.is_empty() {
        alphas.extend(Alphas::read(path).ok().and_then(|alphas| alphas.usual()));
    }
    alphas.sort_by(f64::total_cmp);
    alphas.dedup();
    Some(Summary {
        dialect: dialect(first),
        layers: layers.len(),
        ranks: ranks.into_iter().collect(),
        alphas,
        modules,
        first_key: (*first).to_owned(),
    })
}

fn dialect(key: &str) -> &'static str {
    const NAMES: [(&str, &str); 7] = [
        ("lora_unet_", "kohya"),
        ("lora_transformer_", "kohya"),
        ("lycoris_", "LyCORIS"),
        ("base_model.model.", "PEFT"),
        ("transformer.", "diffusers"),
        ("diffusion_model.", "ComfyUI"),
        ("model.diffusion_model.", "ComfyUI"),
    ];
    let found = NAMES.iter().find(|(prefix, _)| key.starts_with(prefix));
    found.map_or("bare names of layers", |(_, name)| name)
}

/// A name with `*` for every number in it.
fn pattern(layer: &str) -> String {
    let mut text = String::new();
    for letter in layer.chars() {
        match letter.is_ascii_digit() {
            true if text.ends_with('*') => {}
            // The number of an attention belongs to its name.
            true if text.ends_with(|last: char| last.is_ascii_alphabetic()) => text.push(letter),
            true => text.push('*'),
            false => text.push(letter),
        }
    }
    text
}

/// The one number of a tensor.
fn number(view: &safetensors::tensor::TensorView<'_>) -> Option<f64> {
    let bytes = view.data();
    match (view.dtype(), bytes.len()) {
        (Dtype::F32, 4) => Some(f64::from(f32::from_le_bytes(bytes.try_into().ok()?))),
        (Dtype::F64, 8) => Some(f64::from_le_bytes(bytes.try_into().ok()?)),
        (Dtype::BF16, 2) => {
            let bits = u16::from_le_bytes(bytes.try_into().ok()?);
            Some(f64::from(f32::from_bits(u32::from(bits) << 16)))
        }
        (Dtype::F16, 2) => Some(half_float(u16::from_le_bytes(bytes.try_into().ok()?))),
        _ => None,
    }
}

/// An f16 from its bits, subnormal ones and all that is no number aside.
fn half_float(bits: u16) -> f64 {
    let sign = if bits >> 15 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff) / 1024.0);
    match exponent {
        0 => sign * fraction * 2f64.powi(-14),
        _ => sign * (1.0 + fraction) * 2f64.powi(exponent - 15),
    }
}

#[cfg(test)]
mod tests {
    use super::pattern;

    #[test]
    fn numbers_of_blocks_are_left_out() {
        assert_eq!(pattern("blocks.17.attn1.to_q"), "blocks.*.attn1.to_q");
        assert_eq!(pattern("blocks_3_self_attn_q"), "blocks_*_self_attn_q");
        assert_eq!(pattern("ffn.net.0.proj"), "ffn.net.*.proj");
        assert_eq!([0x4c00, 0x3800, 0xc000].map(super::half_float), [16.0, 0.5, -2.0]);
    }
}
