//! Makes a folder of a Wan of any size with weights that look random, for measurements:
//! `cargo run --release --workspace --example wide_wan -- goldens/wan-tiny TARGET LAYERS HEADS HEAD_WIDTH FEED_FORWARD`.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use folder::ModelFolder;
use nn::Store;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use testkit::numbers::parameter;

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &target),
            false => _ = fs::copy(&path, &target).unwrap(),
        }
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [golden, target, layers, heads, head_width, feed] = &words[..] else {
        panic!("FOLDER TARGET LAYERS HEADS HEAD_WIDTH FEED_FORWARD");
    };
    let number = |word: &String| -> usize { word.parse().unwrap() };
    let target = Path::new(target);
    copy(Path::new(golden), target);
    let config = target.join("transformer").join("config.json");
    let mut value: Value = serde_json::from_str(&fs::read_to_string(&config).unwrap()).unwrap();
    for (key, size) in [
        ("num_layers", layers),
        ("num_attention_heads", heads),
        ("attention_head_dim", head_width),
        ("ffn_dim", feed),
    ] {
        value[key] = json!(number(size));
    }
    value["freq_dim"] = json!(256);
    fs::write(config, value.to_string()).unwrap();
    let description = families::describe(&ModelFolder::open(target).unwrap()).unwrap();
    let network = &description.transformers[0].network;
    let store = Store::declared(|weights| network.declare(weights), parameter).unwrap();
    let data: Vec<_> = store
        .iter()
        .map(|(name, own)| (name.to_owned(), own.shape.clone(), own.values.clone().into_data()))
        .collect();
    let views = data.iter().map(|(name, shape, data)| {
        (name, TensorView::new(Dtype::F32, shape.clone(), data.as_bytes()).unwrap())
    });
    let file = target.join("transformer").join("diffusion_pytorch_model.safetensors");
    safetensors::serialize_to_file(views, None, &file).unwrap();
}
