//! LoRA files of users, in the dialects that trainers write.
//!
//! | dialect | a key |
//! |---|---|
//! | diffusers | `transformer.blocks.0.attn1.to_q.lora_A.weight`, the prefix may be missing |
//! | PEFT | `base_model.model.blocks.0.attn1.to_q.lora_A.weight` |
//! | ComfyUI | `diffusion_model.blocks.0.self_attn.q.lora_down.weight`, names of the original code |
//! | kohya | `lora_unet_blocks_0_self_attn_q.lora_down.weight` |
//!
//! The names of a layer are looked up among those of the model itself ([`Names`]), so the dialects
//! may mix and a family needs no more than a table of its original names. Alphas come from `.alpha`
//! keys, from the metadata that diffusers writes, or from an `adapter_config.json` beside the file.
//! Changes of whole weights and biases (`.diff`, `.diff_b`) are taken too. A key that finds no layer is
//! an error: half a LoRA is not the LoRA.

mod alphas;
mod key;
mod names;
mod pairs;
mod summary;

use std::path::{Path, PathBuf};
use std::str::FromStr;

use burn::tensor::Device;
use nn::{Adapters, Merge, Patch, Precision, Store};

use self::alphas::Alphas;
use self::key::Key;
use self::names::Layers;
pub use self::names::Names;
use self::pairs::Pairs;
pub use self::summary::{Summary, summary};
use crate::error::{Error, Result};

/// A LoRA to load: `FILE` or `FILE:SCALE`.
#[derive(Clone, Debug, PartialEq)]
pub struct LoraSource {
    /// The safetensors file, or a folder that holds one.
    pub path: PathBuf,
    /// How strongly it applies; 1 is as it was trained.
    pub scale: f32,
}

impl FromStr for LoraSource {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<LoraSource, String> {
        let whole = LoraSource { path: PathBuf::from(text), scale: 1.0 };
        let Some((path, scale)) = text.rsplit_once(':') else { return Ok(whole) };
        match scale.parse::<f32>() {
            Ok(scale) if scale.is_finite() && !path.is_empty() => {
                Ok(LoraSource { path: PathBuf::from(path), scale })
            }
            // A colon may belong to the path.
            Err(_)
                if scale.contains(['/', '\\'])
                    || scale.to_ascii_lowercase().ends_with(".safetensors") =>
            {
                Ok(whole)
            }
            _ => Err(format!("`{scale}` is not a scale; write FILE or FILE:SCALE, as in x:0.8")),
        }
    }
}

/// Applies LoRAs to the parameters of a model, in the order given; their changes add up.
///
/// With [`Merge::Into`] the result is empty and the store holds changed copies of the matrices that
/// are touched, each rounded once to its own type. With [`Merge::Beside`] give the result and the
/// store to [`nn::Adapted`].
///
/// # Errors
/// A file cannot be read, is no LoRA or not one of this model. The store is then unchanged.
pub fn load(
    sources: &[LoraSource],
    store: &mut Store,
    names: Names,
    merge: Merge,
    device: &Device,
) -> Result<Adapters> {
    let mut all = Vec::new();
    for source in sources {
        all.extend(patches(source, store, names, device)?);
    }
    Ok(store.adapt(all, merge)?)
}

/// What a LoRA would change, checked against the parameters of a model.
///
/// # Errors
/// As [`load`].
pub fn patches(
    source: &LoraSource,
    store: &Store,
    names: Names,
    device: &Device,
) -> Result<Vec<Patch>> {
    let path = self::file(&source.path)?;
    let wrong = |reason: String| Error::Lora { path: path.clone(), reason };
    let tensors = Store::open(std::slice::from_ref(&path), Precision::Stored, device)?;
    if tensors.iter().next().is_none() {
        return Err(wrong("it holds no tensors".to_owned()));
    }
    let layers = Layers::new(store, names);
    let mut pairs = Pairs::default();
    let mut unknown = Vec::new();
    for (name, values) in tensors.iter() {
        let key = Key::parse(name).map_err(|reason| wrong(reason.words(name)))?;
        match layers.find(&key) {
            Some(module) => pairs.add(module, key.part, name, values).map_err(wrong)?,
            None => unknown.push((name, key)),
        }
    }
    if !unknown.is_empty() {
        return Err(wrong(no_layer(&unknown, &layers, tensors.iter().count())));
    }
    if let Some(name) = tensors.first_not_finite() {
        return Err(wrong(format!("`{name}` holds a value that is not finite")));
    }
    let alphas = Alphas::read(&path).map_err(wrong)?;
    pairs.patches(store, &alphas, source.scale).map_err(wrong)
}

/// What to say of keys that find no layer: some of a file, or all that it has.
fn no_layer(unknown: &[(&str, Key<'_>)], layers: &Layers, all: usize) -> String {
    let (name, key) = &unknown[0];
    let count = unknown.len();
    if count == all {
        let family = unknown.iter().find_map(|(name, _)| (layers.likely)(name));
        let likely = family.map(|family| format!("; it looks like a LoRA for {family}"));
        let likely = likely.unwrap_or_default();
        return format!(
            "none of its {all} keys belongs to this model{likely}; the first is `{name}`"
        );
    }
    let nearest = layers.nearest(key).map(|near| format!("; the nearest is `{near}`"));
    let more = if count > 1 { format!(" ({} more like it)", count - 1) } else { String::new() };
    format!("the model has no layer for `{name}`{}{more}", nearest.unwrap_or_default())
}

/// The file itself, or the one in a folder as diffusers and PEFT save it.
///
/// # Errors
/// The folder holds none.
pub fn file(path: &Path) -> Result<PathBuf> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let names = ["adapter_model.safetensors", "pytorch_lora_weights.safetensors"];
    let found = names.map(|name| path.join(name)).into_iter().find(|file| file.is_file());
    found.ok_or_else(|| Error::Lora {
        path: path.to_owned(),
        reason: format!("the folder holds neither `{}` nor `{}`", names[0], names[1]),
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::LoraSource;

    #[test]
    fn a_scale_may_follow_the_file() {
        let cases = [
            ("a.safetensors", "a.safetensors", 1.0),
            ("a.safetensors:0.8", "a.safetensors", 0.8),
            ("a.safetensors:-1", "a.safetensors", -1.0),
            ("folder:2", "folder", 2.0),
            (r"C:\loras\a.safetensors", r"C:\loras\a.safetensors", 1.0),
            ("odd:name.safetensors", "odd:name.safetensors", 1.0),
            ("odd:name.safetensors:0", "odd:name.safetensors", 0.0),
        ];
        for (text, path, scale) in cases {
            let wanted = LoraSource { path: PathBuf::from(path), scale };
            assert_eq!(text.parse::<LoraSource>().expect(text), wanted);
        }
        for text in ["a.safetensors:much", "a.safetensors:", "a:nan", "a:inf", ":1"] {
            let error = text.parse::<LoraSource>().expect_err(text);
            assert!(error.contains("FILE:SCALE"), "{error}");
        }
    }
}
