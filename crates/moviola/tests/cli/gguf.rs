//! GGUF files as users have them and want them: generated from, trained beside, written.

use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::{DType, Device};
use nn::{Precision, QuantizedMatrix, Store};
use safetensors::Dtype;

use crate::folder::{Copy, Tensors, goldens, read, run, values, write};
use crate::training::{recipe, words};

/// The tiny Wan, 32 wide, whose weights are the golden GGUF; and the same numbers as floats.
struct Model(Copy);

fn open(path: &Path) -> Store {
    Store::open(&[path.to_owned()], Precision::Stored, &Device::flex()).unwrap()
}

/// The values of a tensor of a GGUF file that is no blocks.
pub(crate) fn floats(path: &Path, name: &str) -> Vec<f32> {
    let parameter = open(path).as_floats(name).unwrap();
    parameter.values.cast(DType::F32).into_data().try_to_vec().unwrap()
}

impl Model {
    fn new() -> Model {
        let own = Model(Copy::of("wan-tiny"));
        let config = goldens().join("gguf/config.json");
        fs::copy(config, own.0.path("model").join("transformer/config.json")).unwrap();
        let store = open(&goldens().join("gguf/wan.gguf"));
        let floats = store.names().into_iter().map(|name| {
            let parameter = store.as_floats(name).unwrap();
            let data = parameter.values.cast(DType::F32).into_data();
            // As the model wants it: a GGUF has no leading dims of one.
            let shape = match name {
                "blocks.0.modulation" => vec![1, 6, 32],
                _ => parameter.shape,
            };
            (name.to_owned(), (Dtype::F32, shape, data.bytes().to_vec()))
        });
        let floats: Tensors = floats.collect();
        write(&own.path("floats.safetensors"), &floats);
        own
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// The final latents of a small request with a transformer from a file.
    #[track_caller]
    fn latents(&self, transformer: &str, more: &[&str]) -> Vec<f32> {
        let latents = self.text("latents");
        let usual = ["--prompt", "a fox", "--steps", "2", "--frames", "1", "--height", "32"];
        let sizes = ["--width", "32", "--max-tokens", "8", "--save-latents", &latents];
        let own = ["--transformer", transformer];
        let output = self.0.generate(&[&usual[..], &sizes, &own, more].concat());
        assert!(output.status.success(), "{transformer} {more:?}: {}", words(&output));
        values(&read(&self.path("latents"))["latents"])
    }

    /// Trains on two pictures beside the weights of a file.
    fn train(&self, weights: &str, learns: &str, name: &str) -> std::process::Output {
        self.preprocess();
        let model = self.text("model");
        let sets = [
            format!("models.student.from={model}"),
            format!("models.student.weights={weights}"),
            format!("models.student.learns={learns}"),
            "models.student.rate={peak: 0.05, warmup: 0, decay: {kind: constant}}".to_owned(),
            format!("data.source.path={}", self.text("dataset")),
            "loop={steps: 3, seed: 1}".to_owned(),
            "checkpoint={every: 3}".to_owned(),
            "callbacks={}".to_owned(),
        ];
        let (recipe, folder) = (recipe("wan-lora.yaml"), self.text(name));
        let mut train = vec!["train", &recipe, "--run", &folder];
        sets.iter().for_each(|set| train.extend(["--set", set]));
        run(&train)
    }

    fn preprocess(&self) {
        if self.path("dataset").exists() {
            return;
        }
        fs::create_dir(self.path("clips")).unwrap();
        for (name, level) in [("a", 40), ("b", 200)] {
            let picture = image::RgbImage::from_fn(32, 32, |x, y| {
                image::Rgb([level, (8 * x) as u8, (8 * y) as u8])
            });
            picture.save(self.path(&format!("clips/{name}.png"))).unwrap();
            fs::write(self.path(&format!("clips/{name}.txt")), "a fox").unwrap();
        }
        let (model, clips, dataset) =
            (self.text("model"), self.text("clips"), self.text("dataset"));
        let own = ["preprocess", "--model", &model, "--data", &clips, "--output", &dataset];
        let output = run(&[&own[..], &["--bucket", "32x32x1"]].concat());
        assert!(output.status.success(), "{}", words(&output));
    }

    #[track_caller]
    fn export(&self, trained: &str, name: &str, more: &[&str]) -> PathBuf {
        let (folder, output) = (self.text(trained), self.text(name));
        let own = run(&[&["export", &folder, "--output", &output], more].concat());
        assert!(own.status.success(), "{more:?}: {}", words(&own));
        self.path(name)
    }
}

/// The largest difference between two lists.
fn distance(left: &[f32], right: &[f32]) -> f32 {
    assert_eq!(left.len(), right.len());
    left.iter().zip(right).map(|(left, right)| (left - right).abs()).fold(0.0, f32::max)
}

fn gguf() -> String {
    goldens().join("gguf/wan.gguf").to_str().unwrap().to_owned()
}

const LORA: &str = "{kind: lora, rank: 2, targets: [to_q, to_v, ffn.net.2]}";

/// Blocks give the latents of the floats they stand for, to the bit, and bytes can be made of them.
#[test]
fn a_gguf_is_generated_from() {
    let own = Model::new();
    let (blocks, floats) = (gguf(), own.text("floats.safetensors"));
    let plain = own.latents(&floats, &[]);
    assert!(plain.iter().all(|x| x.is_finite()) && plain.iter().any(|x| x.abs() > 0.1));
    assert_eq!(own.latents(&blocks, &[]), plain, "not the numbers that the blocks stand for");
    let bytes = [&blocks, &floats].map(|file| own.latents(file, &["--quantize", "int8"]));
    assert_eq!(bytes[0], bytes[1], "bytes of blocks are not the bytes of their numbers");
    assert!(distance(&bytes[0], &plain) > 0.0);
    let said = run(&["inspect", &blocks]);
    let said = String::from_utf8(said.stdout).unwrap();
    for word in ["architecture: wan", "q4_k (1)", "generate --transformer", "f16"] {
        assert!(said.contains(word), "no `{word}` in {said}");
    }
}

/// A LoRA that learns beside frozen blocks learns what it learns beside their floats, to the bit.
#[test]
fn a_lora_learns_beside_blocks() {
    let own = Model::new();
    let (blocks, floats) = (gguf(), own.text("floats.safetensors"));
    for (weights, name) in [(&blocks, "beside-blocks"), (&floats, "beside-floats")] {
        let trained = own.train(weights, LORA, name);
        assert!(trained.status.success(), "{}", words(&trained));
        own.export(name, &format!("{name}.safetensors"), &["--as", "lora"]);
    }
    let names = ["beside-blocks.safetensors", "beside-floats.safetensors"];
    let [first, second] = names.map(|name| read(&own.path(name)));
    assert_eq!(first.len(), 2 * 5, "{:?}", first.keys());
    assert!(first == second, "other gradients go through blocks than through floats");
    // Beside blocks and merged into floats it means the same.
    let lora = own.text(names[0]);
    let plain = own.latents(&floats, &[]);
    let merged = own.latents(&floats, &["--lora", &lora]);
    let beside = own.latents(&blocks, &["--lora", &lora]);
    assert!(distance(&merged, &plain) > 0.01, "the LoRA changes nothing");
    assert!(distance(&merged, &beside) < 1e-4, "{}", distance(&merged, &beside));
    // Beside bytes too it is not rounded: what it changes there is what it changes here.
    let int8 = ["--quantize", "int8"];
    let bytes = own.latents(&floats, &int8);
    let both = own.latents(&floats, &[&int8[..], &["--lora", &lora]].concat());
    let changed = |with: &[f32], without: &[f32]| -> Vec<f32> {
        with.iter().zip(without).map(|(with, without)| with - without).collect()
    };
    let (exact, own_change) = (changed(&merged, &plain), changed(&both, &bytes));
    let largest = exact.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    assert!(
        distance(&exact, &own_change) < 0.2 * largest,
        "{}",
        distance(&exact, &own_change) / largest
    );
    // And so does the whole transformer that is exported, as floats and as a GGUF of floats.
    let file = own.export("beside-blocks", "whole.safetensors", &["--as", "file"]);
    let whole = own.latents(file.to_str().unwrap(), &[]);
    assert!(distance(&merged, &whole) < 1e-4, "{}", distance(&merged, &whole));
    let wide = own.export("beside-blocks", "f32.gguf", &["--as", "gguf", "--dtype", "f32"]);
    let wide = own.latents(wide.to_str().unwrap(), &[]);
    assert!(distance(&whole, &wide) < 1e-4, "{}", distance(&whole, &wide));
}

/// What has blocks cannot learn itself, and is told so.
#[test]
fn blocks_do_not_learn() {
    let own = Model::new();
    for learns in ["{kind: all}", "{kind: only, patterns: [to_q]}"] {
        let output = own.train(&gguf(), learns, "run");
        assert_eq!(output.status.code(), Some(2), "{learns}: {}", words(&output));
        let said = words(&output);
        assert!(said.contains("frozen; let a LoRA learn beside it"), "{learns}: {said}");
    }
}

/// Every type of GGUF that is written is read back, near what was trained; what is blocks already is copied.
#[test]
fn a_gguf_is_written() {
    let own = Model::new();
    let trained = own.train(&gguf(), LORA, "run");
    assert!(trained.status.success(), "{}", words(&trained));
    let exact = own.export("run", "exact.safetensors", &["--as", "file"]);
    let exact = own.latents(exact.to_str().unwrap(), &[]);
    for (dtype, near) in [("f32", 1e-4), ("bf16", 0.2), ("f16", 0.02), ("q8_0", 0.2), ("q4_k", 0.2)]
    {
        let name = format!("{dtype}.gguf");
        let file = own.export("run", &name, &["--as", "gguf", "--dtype", dtype]);
        let again =
            own.export("run", &format!("again-{name}"), &["--as", "gguf", "--dtype", dtype]);
        assert!(fs::read(&file).unwrap() == fs::read(again).unwrap(), "{dtype}: the bytes differ");
        let off = distance(&own.latents(file.to_str().unwrap(), &[]), &exact);
        assert!(off < near, "{dtype}: {off}");
    }
    let usual = own.export("run", "usual.gguf", &["--as", "gguf"]);
    assert!(fs::read(usual).unwrap() == fs::read(own.path("q8_0.gguf")).unwrap());
    let (before, after) = (open(&goldens().join("gguf/wan.gguf")), open(&own.path("q8_0.gguf")));
    let blocks = |store: &Store, name: &str| match store.quantized(name) {
        Some(QuantizedMatrix::Blocks(own)) => (own.kind().name(), own.whole().unwrap().to_vec()),
        _ => panic!("`{name}` is not in blocks"),
    };
    let (untouched, changed) = ("blocks.0.ffn.0.weight", "blocks.0.self_attn.q.weight");
    assert!(blocks(&after, untouched) == blocks(&before, untouched), "blocks are rounded twice");
    assert!(blocks(&after, changed) != blocks(&before, changed), "the LoRA is not in it");
    assert_eq!(blocks(&after, "blocks.0.ffn.2.weight").0, "q8_0");
    assert_eq!(blocks(&open(&own.path("q4_k.gguf")), "blocks.0.ffn.2.weight").0, "q4_k");
    let facts = String::from_utf8(run(&["inspect", &own.text("q8_0.gguf")]).stdout).unwrap();
    for word in ["architecture: wan", "moviola.family: wan", "general.file_type: 7", "orig_shape"] {
        assert!(facts.contains(word), "no `{word}` in {facts}");
    }
    let refused =
        run(&["export", &own.text("run"), "--output", "x", "--as", "file", "--dtype", "q8_0"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(words(&refused).contains("add --as gguf"), "{}", words(&refused));
}

/// A file that was cut off, or is of another model, is refused before anything is made.
#[test]
fn a_gguf_that_is_not_whole_is_refused() {
    let own = Model::new();
    let whole = fs::read(gguf()).unwrap();
    for (name, bytes, word) in [
        ("torn.gguf", whole[..whole.len() / 2].to_vec(), "it was cut off"),
        ("header.gguf", whole[..200].to_vec(), "its header ends too early"),
        ("other.gguf", fs::read(goldens().join("gguf/blocks.gguf")).unwrap(), "is not in"),
    ] {
        fs::write(own.path(name), bytes).unwrap();
        let output = own.0.generate(&["--prompt", "a fox", "--transformer", &own.text(name)]);
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(words(&output).contains(word), "{name}: {}", words(&output));
        assert!(!own.path("out.png").exists());
    }
}
