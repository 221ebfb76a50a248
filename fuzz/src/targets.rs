//! Readers of what users bring, each called with whatever bytes there are.

use std::fs;
use std::path::Path;

use burn::tensor::Device;
use folder::lora::LoraSource;
use folder::tokenizer::Tokenizer;
use nn::{Parameter, Store};
use recipe::Recipe;

use crate::{configs, probed};

/// A reader and what it begins with.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// Folders of the repository with good input, beside the corpus.
    pub(crate) seeds: &'static [&'static str],
    /// How the names of good input end.
    endings: &'static [&'static str],
    /// Calls it with an input; the folder is for files, which it may leave.
    pub(crate) call: fn(&Path, &[u8]),
}

impl Target {
    /// Whether a file is good input.
    pub(crate) fn takes(&self, file: &Path) -> bool {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        self.endings.iter().any(|ending| name.ends_with(ending))
    }
}

/// All of them.
pub(crate) const TARGETS: [Target; 20] = [
    Target {
        name: "safetensors",
        seeds: &["goldens/lora"],
        endings: &[".safetensors"],
        call: safetensors,
    },
    Target { name: "gguf", seeds: &["goldens/gguf"], endings: &[".gguf"], call: gguf },
    Target {
        name: "config",
        seeds: &[
            "goldens/configs",
            "goldens/wan-tiny",
            "goldens/wan-tiny-i2v",
            "goldens/pixart-tiny",
            "goldens/ltx2-tiny",
            "goldens/ltx23-tiny",
        ],
        endings: &["config.json"],
        call: config,
    },
    Target {
        name: "index",
        seeds: &[
            "goldens/wan-tiny",
            "goldens/pixart-tiny",
            "goldens/wan-tiny-experts",
            "goldens/ltx2-tiny",
        ],
        endings: &["model_index.json"],
        call: index,
    },
    Target {
        name: "tokenizer",
        seeds: &["goldens/tokenizer-umt5"],
        endings: &["tokenizer.json"],
        call: tokenizer,
    },
    Target {
        name: "tokenizer-settings",
        seeds: &["goldens/tokenizer-spiece", "goldens/wan-tiny", "goldens/ltx2-tiny"],
        endings: &["tokenizer_config.json"],
        call: tokenizer_settings,
    },
    Target {
        name: "spiece",
        seeds: &["goldens/tokenizer-spiece"],
        endings: &[".model"],
        call: spiece,
    },
    Target { name: "recipe", seeds: &["recipes"], endings: &[".yaml"], call: recipe },
    Target { name: "foreign-config", seeds: &[], endings: &[".yaml"], call: foreign_config },
    Target { name: "torch", seeds: &["goldens/torch"], endings: &[".pt"], call: torch },
    Target { name: "lora", seeds: &["goldens/lora"], endings: &[".safetensors"], call: lora },
    Target { name: "names", seeds: &[], endings: &[".txt"], call: names },
    Target { name: "csv", seeds: &[], endings: &[".csv", ".tsv"], call: csv },
    Target { name: "json-table", seeds: &[], endings: &[".json"], call: json_table },
    Target { name: "jsonl-table", seeds: &[], endings: &[".jsonl"], call: jsonl_table },
    Target { name: "manifest", seeds: &[], endings: &[".json"], call: manifest },
    Target {
        name: "picture",
        seeds: &["goldens/pictures"],
        endings: &[".png", ".jpg", ".webp"],
        call: picture,
    },
    Target { name: "sound", seeds: &[], endings: &[".wav"], call: sound },
    Target { name: probed::NAME, seeds: &[], endings: &[".json", ".ppm"], call: probed::call },
    Target { name: "clip", seeds: &[], endings: &[".mp4", ".webm", ".gif"], call: clip },
];

/// Writes an input under a name; a full disk is no finding.
fn file(place: &Path, name: &str, input: &[u8]) -> std::path::PathBuf {
    let path = place.join(name);
    let _ = fs::write(&path, input);
    path
}

fn safetensors(place: &Path, input: &[u8]) {
    let path = file(place, "x.safetensors", input);
    if let Ok(found) = engine::inspect(&path) {
        let _ = found.to_string();
    }
    let _ = Store::open(&[path], nn::Precision::Stored, &Device::flex());
}

fn torch(place: &Path, input: &[u8]) {
    let _ = data::torch::Object::read(&file(place, "x.pt", input));
}

fn foreign_config(place: &Path, input: &[u8]) {
    let _ = recipe::convert(&file(place, "x.yaml", input), &recipe::Places::default());
}

fn gguf(place: &Path, input: &[u8]) {
    let path = file(place, "x.gguf", input);
    if let Ok(found) = engine::inspect(&path) {
        let _ = found.to_string();
    }
    if let Ok(store) = Store::open(&[path], nn::Precision::Stored, &Device::flex()) {
        let _ = store.first_not_finite();
        store.names().into_iter().for_each(|name| drop(store.as_floats(name)));
    }
}

fn config(_: &Path, input: &[u8]) {
    configs::read(&String::from_utf8_lossy(input));
}

fn index(place: &Path, input: &[u8]) {
    file(place, "model_index.json", input);
    if let Ok(own) = folder::ModelFolder::open(place) {
        let _ = families::describe(&own);
    }
}

fn tokenizer(place: &Path, input: &[u8]) {
    file(place, "tokenizer.json", input);
    if let Ok(own) = Tokenizer::open(place) {
        let _ = own.encode("a red fox, 1 & <b>two</b>", 16);
    }
}

/// The settings beside a tokenizer that is whole.
fn tokenizer_settings(place: &Path, input: &[u8]) {
    file(
        place,
        "tokenizer.json",
        include_bytes!("../../goldens/wan-tiny/tokenizer/tokenizer.json"),
    );
    file(place, "tokenizer_config.json", input);
    if let Ok(own) = Tokenizer::open(place) {
        let _ = own.encode("a red fox", 16);
    }
}

fn spiece(place: &Path, input: &[u8]) {
    file(place, "spiece.model", input);
    if let Ok(own) = Tokenizer::open(place) {
        let _ = own.encode("a red fox", 16);
    }
}

fn recipe(_: &Path, input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    match Recipe::parse(&text, Path::new("recipe.yaml"), &[]) {
        Ok(recipe) => {
            let _ = recipe.to_yaml();
        }
        Err(err) => {
            let _ = err.to_string();
        }
    }
}

/// A network that some LoRAs of the goldens are for, in shape.
fn network() -> Store {
    let mut store = Store::new("the network");
    for layer in
        ["attn1.to_q", "attn1.to_k", "attn1.to_v", "attn1.to_out.0", "attn2.to_q", "ffn.net.0.proj"]
    {
        for (part, shape) in [("weight", vec![24, 24]), ("bias", vec![24])] {
            let count: usize = shape.iter().product();
            let values = burn::tensor::Tensor::<1>::zeros([count], &Device::flex());
            store.insert(format!("blocks.0.{layer}.{part}"), Parameter { values, shape });
        }
    }
    store
}

fn lora(place: &Path, input: &[u8]) {
    let path = file(place, "lora.safetensors", input);
    let source = LoraSource { path, scale: 1.0 };
    let family = families::family("wan").map(families::Family::lora_names);
    if let Some(names) = family {
        let _ = folder::lora::patches(&source, &network(), names, &Device::flex());
    }
}

/// What layers and tensors are called, in every family's own code, diffusers' and LoRAs'.
fn names(_: &Path, input: &[u8]) {
    for family in families::FAMILIES {
        for name in String::from_utf8_lossy(input).lines() {
            let _ = (family.diffusers_parameter(name), family.original_parameter(name));
            let _ = family.transformer_parameter(name);
        }
    }
}

fn csv(place: &Path, input: &[u8]) {
    let _ = data::preprocess::find_sources(&file(place, "x.csv", input));
}

fn json_table(place: &Path, input: &[u8]) {
    let _ = data::preprocess::find_sources(&file(place, "x.json", input));
}

fn jsonl_table(place: &Path, input: &[u8]) {
    let _ = data::preprocess::find_sources(&file(place, "x.jsonl", input));
}

fn manifest(place: &Path, input: &[u8]) {
    file(place, "manifest.json", input);
    let _ = train::checkpoint::read_manifest(place);
    let text = String::from_utf8_lossy(input);
    if let Ok(value) = text.parse::<serde_json::Value>() {
        let _ = train::checkpoint::Recipe(value).told("loop.steps");
    }
}

fn picture(place: &Path, input: &[u8]) {
    let _ = data::media::DecodedClip::read(&file(place, "x.png", input));
}

fn sound(place: &Path, input: &[u8]) {
    if let Ok(own) = data::media::Waveform::read(&file(place, "x.wav", input)) {
        let _ = (own.split(), own.mixed());
    }
}

/// By the real programs, where they are installed.
fn clip(place: &Path, input: &[u8]) {
    let _ = data::media::DecodedClip::read(&file(place, "x.mp4", input));
}
