//! LoRA files against diffusers and PEFT.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use folder::lora::{LoraSource, Names, load};
use nn::{Adapted, Merge, Parameter, Precision, Store, Weights};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use tempfile::TempDir;

const SCALE: f32 = 0.7;
const DIALECTS: [&str; 4] =
    ["wan_diffusers.safetensors", "wan_peft", "wan_comfy.safetensors", "wan_kohya.safetensors"];

fn goldens() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../goldens"))
}

/// What layers are called in a family.
fn names(family: &str) -> Names {
    families::family(family).expect("a family").lora_names()
}

/// Whether these are names of a family that has some of its own.
fn is_wan(names: Names) -> bool {
    (names.original)("proj_out").is_some()
}

fn source(file: &str, scale: f32) -> LoraSource {
    LoraSource { path: goldens().join("lora").join(file), scale }
}

/// The tensors below `<prefix>.` of the golden.
fn golden(prefix: &str) -> Store {
    let path = goldens().join("lora.safetensors");
    let file = Store::open(&[path], Precision::Stored, &Device::flex()).expect("a golden");
    let below = |name: &str| Some(name.strip_prefix(prefix)?.strip_prefix('.')?.to_owned());
    file.renamed(below)
}

fn values(parameter: &Parameter) -> Vec<f32> {
    parameter.values.clone().cast(DType::F32).into_data().try_to_vec().expect("f32")
}

fn all(store: &Store) -> BTreeMap<String, Vec<f32>> {
    store.iter().map(|(name, parameter)| (name.to_owned(), values(parameter))).collect()
}

fn merged(sources: &[LoraSource], mut store: Store, names: Names) -> folder::Result<Store> {
    load(sources, &mut store, names, Merge::Into, &Device::flex())?;
    Ok(store)
}

/// Every tensor of `wanted` agrees, and every other one is that of `base`.
#[track_caller]
fn check(ours: &Store, base: &Store, wanted: &Store) {
    for (name, _) in wanted.iter() {
        assert!(base.get(name).is_some(), "{name} is none of the model's");
    }
    for (name, parameter) in ours.iter() {
        let expected = wanted.get(name).or(base.get(name)).expect(name);
        let off = values(parameter)
            .iter()
            .zip(values(expected))
            .fold(0.0_f32, |off, (a, b)| off.max((a - b).abs()));
        let bound = if wanted.get(name).is_some() { 2e-6 } else { 0.0 };
        assert!(off <= bound, "{name} is off by {off:e}");
    }
}

#[test]
fn four_dialects_give_the_same_bits_and_those_of_diffusers() {
    let base = golden("wan.weights");
    let first = merged(&[source(DIALECTS[0], SCALE)], base.clone(), names("wan")).expect("fits");
    check(&first, &base, &golden("wan.fused"));
    for dialect in &DIALECTS[1..] {
        let other = merged(&[source(dialect, SCALE)], base.clone(), names("wan")).expect(dialect);
        assert_eq!(all(&other), all(&first), "{dialect}");
    }
}

#[test]
fn layers_around_the_blocks_and_biases_change_too() {
    let base = golden("wan.weights");
    let source = [source("wan_extra.safetensors", SCALE)];
    let ours = merged(&source, base.clone(), names("wan")).expect("it fits");
    check(&ours, &base, &golden("wan.extra"));
}

#[test]
fn a_lora_of_pixart_equals_peft() {
    let folder = goldens().join("pixart-tiny/transformer/diffusion_pytorch_model.safetensors");
    let base = Store::open(&[folder], Precision::Stored, &Device::flex()).expect("a folder");
    let ours = merged(&[source("pixart_peft", 1.0)], base.clone(), names("pixart"));
    check(&ours.expect("it fits"), &base, &golden("pixart.fused"));
}

#[test]
fn several_add_up_and_can_be_taken_back() {
    let base = golden("wan.weights");
    let twice = merged(
        &[source(DIALECTS[2], 0.5), source("wan_extra.safetensors", 1.0), source(DIALECTS[3], 0.2)],
        base.clone(),
        names("wan"),
    );
    let back = [source("wan_extra.safetensors", -1.0)];
    let ours = merged(&back, twice.expect("they fit"), names("wan")).expect("it fits");
    let mut wanted = golden("wan.fused");
    for (name, parameter) in base.iter().filter(|(name, _)| name.ends_with("bias")) {
        wanted.insert(name, parameter.clone());
    }
    for (name, parameter) in golden("wan.extra").iter() {
        if wanted.get(name).is_none() {
            wanted.insert(name, base.get(name).unwrap_or(parameter).clone());
        }
    }
    check(&ours, &base, &wanted);
}

#[test]
fn kept_beside_a_layer_computes_the_same() {
    let base = golden("wan.weights");
    let sources = [source(DIALECTS[0], SCALE), source("wan_extra.safetensors", 0.3)];
    let into = merged(&sources, base.clone(), names("wan")).expect("they fit");
    let mut store = base.clone();
    let adapters =
        load(&sources, &mut store, names("wan"), Merge::Beside, &Device::flex()).expect("they fit");
    let name = "blocks.0.attn1.to_q.weight";
    assert_eq!(values(store.get(name).expect(name)), values(base.get(name).expect(name)));
    let beside = Adapted::new(&store, adapters);
    let x = Tensor::<1, Int>::arange(0..60, &Device::flex()).float().sin().reshape([1, 5, 12]);
    for layer in ["blocks.0.attn1.to_q", "blocks.0.attn2.add_v_proj", "proj_out"] {
        let shape = base.get(&format!("{layer}.weight")).expect(layer).shape.clone();
        let run = |weights: &Weights<'_>| {
            let out: Tensor<3> = weights
                .linear(layer, shape[1], shape[0])
                .expect(layer)
                .apply(x.clone())
                .expect(layer);
            out.into_data().try_to_vec::<f32>().expect("f32")
        };
        let (ours, wanted) = (run(&Weights::new(&beside)), run(&Weights::new(&into)));
        let off = ours.iter().zip(&wanted).fold(0.0_f32, |off, (a, b)| off.max((a - b).abs()));
        assert!(off < 1e-5, "{layer} is off by {off:e}");
    }
}

#[test]
fn untouched_matrices_stay_where_they_are() {
    let mut store = golden("wan.weights");
    for name in ["blocks.0.attn1.to_q.weight", "proj_out.weight"] {
        let parameter = store.get(name).expect(name).clone();
        let values = parameter.values.cast(DType::BF16);
        store.insert(name, Parameter { values, shape: parameter.shape });
    }
    let ours = merged(&[source(DIALECTS[1], SCALE)], store, names("wan")).expect("it fits");
    let dtype = |name: &str| ours.get(name).expect(name).values.dtype();
    assert_eq!(dtype("blocks.0.attn1.to_q.weight"), DType::BF16);
    assert_eq!(dtype("blocks.0.attn1.to_k.weight"), DType::F32);
    let near = values(golden("wan.fused").get("blocks.0.attn1.to_q.weight").expect("fused"));
    let ours = values(ours.get("blocks.0.attn1.to_q.weight").expect("merged"));
    assert!(ours.iter().zip(near).all(|(a, b)| (a - b).abs() < 2e-2));
}

/// A copy of a dialect's file, changed.
fn changed(file: &str, change: impl Fn(&mut BTreeMap<String, Parameter>)) -> (TempDir, PathBuf) {
    let path = goldens().join("lora").join(file);
    let store = Store::open(&[path], Precision::Stored, &Device::flex()).expect("a golden");
    let mut tensors: BTreeMap<String, Parameter> =
        store.iter().map(|(name, parameter)| (name.to_owned(), parameter.clone())).collect();
    change(&mut tensors);
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("changed.safetensors");
    write(&path, &tensors);
    (folder, path)
}

fn write(path: &Path, tensors: &BTreeMap<String, Parameter>) {
    let bytes: BTreeMap<&str, Vec<u8>> = tensors
        .iter()
        .map(|(name, parameter)| {
            (name.as_str(), values(parameter).iter().flat_map(|x| x.to_le_bytes()).collect())
        })
        .collect();
    let views = tensors.iter().map(|(name, parameter)| {
        let view = TensorView::new(Dtype::F32, parameter.shape.clone(), &bytes[name.as_str()]);
        (name.clone(), view.expect("as many bytes as the shape says"))
    });
    safetensors::serialize_to_file(views, None, path).expect("a file");
    SafeTensors::deserialize(&std::fs::read(path).expect("bytes")).expect("a safetensors file");
}

fn tensor(shape: &[usize], value: f32) -> Parameter {
    let elements = shape.iter().product::<usize>();
    let data = TensorData::new(vec![value; elements], [elements]);
    Parameter { values: Tensor::from_data(data, &Device::flex()), shape: shape.to_vec() }
}

/// Refused with all of these words, and the store stays as it was.
#[track_caller]
fn refuses(path: PathBuf, names: Names, words: &[&str]) {
    let mut store = golden("wan.weights");
    let before = all(&store);
    let sources = [source("wan_extra.safetensors", 1.0), LoraSource { path, scale: 1.0 }];
    let sources = if is_wan(names) { &sources[..] } else { &sources[1..] };
    let error = load(sources, &mut store, names, Merge::Into, &Device::flex());
    let error = error.expect_err("it must be refused").to_string();
    for word in words {
        assert!(error.contains(word), "no `{word}` in: {error}");
    }
    assert_eq!(all(&store), before);
}

#[test]
fn files_that_do_not_fit_are_refused_by_key() {
    const DOWN: &str = "diffusion_model.blocks.0.ffn.2.lora_down.weight";
    const UP: &str = "diffusion_model.blocks.0.ffn.2.lora_up.weight";
    type Tensors = BTreeMap<String, Parameter>;
    type Case<'a> = (&'a dyn Fn(&mut Tensors), &'a [&'a str]);
    let insert = |tensors: &mut Tensors, key: &str, shape: &[usize], value: f32| {
        tensors.insert(key.to_owned(), tensor(shape, value));
    };
    let cases: [Case<'_>; 12] = [
        (
            &|t| insert(t, &DOWN.replace("ffn.2", "ffn.3"), &[3, 14], 0.0),
            &["ffn.3", "`blocks.0.ffn.2`"],
        ),
        (&|t| drop(t.remove(UP)), &[DOWN, "no partner"]),
        (&|t| drop(t.remove(DOWN)), &[UP, "no partner"]),
        (&|t| drop((t.remove(DOWN), t.remove(UP))), &["ffn.2.alpha"]),
        (&|t| insert(t, DOWN, &[2, 14], 0.0), &[DOWN, UP, "[2, 14]", "ranks"]),
        (&|t| insert(t, DOWN, &[3, 15], 0.0), &["[12, 15]", "[12, 14]", "another size"]),
        (&|t| insert(t, DOWN, &[3, 14], f32::NAN), &[DOWN, "not finite"]),
        (&|t| insert(t, "diffusion_model.blocks.0.ffn.2.alpha", &[2], 1.0), &["one number"]),
        (
            &|t| insert(t, "transformer.blocks.0.ffn.net.2.lora_A.weight", &[3, 14], 0.0),
            &["same part"],
        ),
        (&|t| insert(t, "text_encoder.q.lora_A.weight", &[2, 2], 0.0), &["text encoder"]),
        (&|t| insert(t, "diffusion_model.blocks.0.ffn.2.dora_scale", &[12], 0.0), &["DoRA"]),
        (
            &|t| insert(t, "diffusion_model.blocks.0.norm3.diff", &[11], 0.0),
            &["norm3.diff", "[12]"],
        ),
    ];
    for (change, words) in cases {
        let (_folder, path) = changed("wan_comfy.safetensors", change);
        refuses(path, names("wan"), words);
    }
    let key = "lora_unet_blocks_0_cross_attn_kk.lora_up.weight";
    let (_folder, path) = changed("wan_kohya.safetensors", |t| {
        t.insert(key.to_owned(), tensor(&[2, 2], 0.0));
    });
    refuses(path, names("wan"), &[key, "`blocks_0_cross_attn_k`"]);
}

#[test]
fn a_lora_for_another_family_is_told() {
    let pixart = goldens().join("lora/pixart_peft");
    refuses(pixart, names("wan"), &["none of its 8 keys", "for PixArt", "adaln_single"]);
    // Wan's own names mean nothing to a family that does not know them.
    let wan = goldens().join("lora/wan_kohya.safetensors");
    refuses(wan, names("pixart"), &["none of its 36 keys", "looks like a LoRA for Wan"]);
}

#[test]
fn files_that_are_none_are_refused() {
    let folder = TempDir::new().expect("a folder");
    refuses(folder.path().to_owned(), names("wan"), &["adapter_model.safetensors"]);
    refuses(folder.path().join("none.safetensors"), names("wan"), &["none.safetensors"]);
    let text = folder.path().join("text.safetensors");
    std::fs::write(&text, "a red fox").expect("written");
    refuses(text, names("wan"), &["text.safetensors"]);
}
