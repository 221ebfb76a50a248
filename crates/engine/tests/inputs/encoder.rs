//! What a model's encoders make of clips and captions for its training.

use std::fs;

use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};
use data::Clip;
use data::preprocess::Encode;
use data::store::TEXT;
use engine::{ClipSizes, EncoderSetup, FolderEncoder, PromptSetup, encode_negative_prompt};
use serde_json::Value;

use crate::folder::{Copy, Golden, distance, goldens};

const SETUP: fn() -> EncoderSetup =
    || EncoderSetup { device: Device::flex(), dtype: FloatDType::F32 };

fn open(model: &std::path::Path) -> FolderEncoder {
    FolderEncoder::open(model, &SETUP()).expect("encoders")
}

fn numbers(data: &TensorData) -> Vec<f32> {
    data.clone().convert::<f32>().try_to_vec().expect("numbers")
}

/// A clip of values `[3, F, H, W]` from -1 to 1.
fn clip(values: &[f32], [frames, height, width]: [usize; 3]) -> Clip {
    let count = frames * height * width;
    let pixels = (0..count * 3).map(|at| (values[at % 3 * count + at / 3] + 1.0) / 2.0);
    Clip::new([frames, height, width], pixels.collect()).expect("a clip")
}

/// As `scattered` in `tools/goldens/wan_vae.py`.
fn scattered(count: usize) -> Vec<f32> {
    let value = |at: usize| (((at * 7919 + 17) % 4001) as f32 / 1000.0 - 2.0) * 0.5;
    (0..count).map(value).collect()
}

fn list(value: &Value) -> Vec<f32> {
    serde_json::from_value(value.clone()).expect("a list of numbers")
}

#[test]
fn clips_become_latents_as_diffusers_standardises_them() {
    for (folder, case, channels) in [("wan-tiny", "wan21", 3), ("wan-tiny-ti2v", "wan22", 4)] {
        let copy = Copy::of(folder);
        let config = copy.use_vae("wan_vae", case);
        copy.json("transformer/config.json", |transformer| {
            transformer["in_channels"] = channels.into();
            transformer["out_channels"] = channels.into();
        });
        // Only the transformer's config is needed.
        fs::remove_file(copy.path().join("transformer/diffusion_pytorch_model.safetensors"))
            .expect("weights");
        let shape: Vec<usize> =
            serde_json::from_value(config["golden"]["clip"].clone()).expect("a shape");
        let values = scattered(shape.iter().product());
        let mut encoder = open(copy.path());
        let latents = encoder.clip(&clip(&values, [shape[2], shape[3], shape[4]]));
        let latents = latents.expect("latents");
        let [time, rows, columns] = encoder.factors();
        let grid = [1 + (shape[2] - 1) / time, shape[3] / rows, shape[4] / columns];
        assert_eq!(latents.shape()[1..], grid, "{case}");

        let (shape, mean) = Golden::open("wan_vae").tensor(&format!("{case}.encode.mean"));
        assert_eq!(latents.shape()[..], shape[1..], "{case}");
        let [means, deviations] = ["latents_mean", "latents_std"].map(|key| list(&config[key]));
        let cells = mean.len() / means.len();
        let wanted = mean.iter().enumerate().map(|(at, value)| {
            let channel = at / cells;
            (value - means[channel]) / deviations[channel]
        });
        let off = distance(&numbers(&latents), &wanted.collect::<Vec<_>>());
        assert!(off < 1e-5, "{case} is off by {off:.1e}");
    }
}

#[test]
fn pictures_become_latents_as_diffusers_scales_them() {
    for case in ["quant", "bare"] {
        let copy = Copy::of("pixart-tiny");
        let config = copy.use_vae("vae", case);
        let golden = Golden::open("vae");
        let (shape, image) = golden.tensor(&format!("{case}.encode.image"));
        // The golden may hold several pictures; the first is taken.
        let count = 3 * shape[2] * shape[3];
        let picture = clip(&image[..count], [1, shape[2], shape[3]]);
        let mut encoder = open(copy.path());
        let latents = encoder.clip(&picture).expect("latents");
        let [time, rows, columns] = encoder.factors();
        let grid = [1, picture.size()[1] / rows, picture.size()[2] / columns];
        assert_eq!((&latents.shape()[1..], time), (&grid[..], 1), "{case}");
        let (shape, mean) = golden.tensor(&format!("{case}.encode.mean"));
        assert_eq!(latents.shape()[..], [shape[1], 1, shape[2], shape[3]], "{case}");
        let scaling = config["scaling_factor"].as_f64().expect("a number") as f32;
        let count = shape[1] * shape[2] * shape[3];
        let wanted: Vec<f32> = mean[..count].iter().map(|value| value * scaling).collect();
        let off = distance(&numbers(&latents), &wanted);
        assert!(off < 1e-5, "{case} is off by {off:.1e}");
    }
    let black = Clip::black([5, 32, 32]);
    let refused = open(&goldens().join("pixart-tiny")).clip(&black).expect_err("an error");
    assert!(refused.to_string().contains("frames is 5"), "{refused}");
}

#[test]
fn texts_are_the_tokens_that_count() {
    for name in ["pixart-tiny", "wan-tiny"] {
        let model = goldens().join(name);
        let mut encoder = open(&model);
        for caption in ["A red  Fox &amp;amp; an OWL", "x", ""] {
            let setup =
                PromptSetup { encoder_index: 0, device: Device::flex(), dtype: FloatDType::F32 };
            let wanted = encode_negative_prompt(&model, caption, &setup).expect("an embedding");
            let texts = encoder.text(caption).expect("a text");
            assert_eq!(texts.keys().collect::<Vec<_>>(), [TEXT]);
            let text = &texts[TEXT];
            let mask: Vec<f32> = wanted.mask.clone().into_data().try_to_vec().expect("f32");
            let count = mask.iter().sum::<f32>() as usize;
            let width = wanted.tokens.dims()[2];
            assert_eq!(text.shape()[..], [count, width], "{name} `{caption}`");
            let all: Vec<f32> = wanted.tokens.clone().into_data().try_to_vec().expect("f32");
            assert_eq!(numbers(text), all[..count * width], "{name} `{caption}`");

            // Padded again, they are what the transformer is given.
            let tokens = Tensor::<2>::from_data(text.clone(), &Device::flex());
            let mask = Tensor::<2>::ones([1, count], &Device::flex());
            let rules = encoder.text_rules();
            let context = rules.context(tokens.unsqueeze_dim(0), mask).expect("a context");
            assert_eq!(context.tokens.dims(), wanted.tokens.dims(), "{name}");
            match context.mask {
                None => {
                    assert_eq!(name, "wan-tiny");
                    // As numbers: padding may be a zero of either sign.
                    assert_eq!(numbers(&context.tokens.into_data()), all);
                }
                Some(mask) => {
                    assert_eq!(name, "pixart-tiny");
                    assert_eq!(mask.into_data(), wanted.mask.into_data());
                }
            }
        }
        let null = encoder.null_text().expect("a text");
        assert_eq!(null[TEXT].shape()[0], 1, "the empty caption has its end only");
        assert_eq!(null, encoder.text("").expect("a text"));
        encoder.close();
        assert_eq!(null, encoder.null_text().expect("a text"), "it opens again");
    }
}

/// Zeros stand where the mask says so, whatever the tokens hold there, and too many are refused.
#[test]
fn a_context_hides_what_does_not_count() {
    let rules = open(&goldens().join("wan-tiny")).text_rules();
    let device = Device::flex();
    let tokens = Tensor::<3>::ones([2, 3, 2], &device);
    let mask = Tensor::<2>::from_floats([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]], &device);
    let context = rules.context(tokens, mask).expect("a context");
    let values: Vec<f32> = context.tokens.into_data().try_to_vec().expect("f32");
    assert_eq!((values.len(), values.iter().sum::<f32>()), (2 * 512 * 2, 8.0));
    assert_eq!(values[1024..1028], [1.0, 1.0, 0.0, 0.0]);
    let [tokens, mask] = [[1, 513, 2], [1, 513, 1]].map(|shape| Tensor::<3>::ones(shape, &device));
    let refused = rules.context(tokens, mask.squeeze_dim(2)).expect_err("too many");
    assert!(refused.to_string().contains("513 tokens"), "{refused}");
}

#[test]
fn bf16_rounds_what_is_encoded() {
    let model = goldens().join("wan-tiny");
    let setup = EncoderSetup { dtype: FloatDType::BF16, ..SETUP() };
    let mut rounded = FolderEncoder::open(&model, &setup).expect("encoders");
    let mut whole = open(&model);
    let clip = clip(&scattered(3 * 5 * 16 * 24), [5, 16, 24]);
    let pairs = [
        (rounded.clip(&clip).expect("latents"), whole.clip(&clip).expect("latents")),
        (
            rounded.text("a fox").expect("a text").remove(TEXT).expect("a text"),
            whole.text("a fox").expect("a text").remove(TEXT).expect("a text"),
        ),
    ];
    for (rounded, whole) in pairs {
        assert_eq!((rounded.dtype(), whole.dtype()), (DType::BF16, DType::F32));
        for (a, b) in numbers(&rounded).iter().zip(numbers(&whole)) {
            assert!((a - b).abs() <= b.abs() / 256.0, "{a} is not {b}");
        }
    }
    assert_eq!(rounded.fingerprint(), whole.fingerprint());
}

#[test]
fn sizes_are_read_off_the_configs() {
    let cases = [
        ("wan-tiny", 16, 4, "832x480x81"),
        ("wan-tiny-ti2v", 32, 4, "832x480x81"),
        ("pixart-tiny", 16, 0, "128x128x1"),
        ("pixart-tiny-conditions", 8, 0, "512x512x1"),
    ];
    for (name, size_step, frame_step, own) in cases {
        let sizes = ClipSizes::of(&goldens().join(name)).expect("sizes");
        assert_eq!((sizes.rules.size_step, sizes.rules.frame_step), (size_step, frame_step));
        assert_eq!(sizes.own.to_string(), own, "{name}");
        assert_eq!(open(&goldens().join(name)).sizes(), sizes, "{name}");
    }
}

#[test]
fn a_fingerprint_knows_its_encoders() {
    let copy = Copy::of("wan-tiny");
    let fingerprint = || open(copy.path()).fingerprint();
    let first = fingerprint();
    assert_eq!(first, open(&goldens().join("wan-tiny")).fingerprint(), "wherever it is");
    assert!(first.0["text"].starts_with("UMT5EncoderModel "), "{first:?}");
    assert!(first.0["video"].starts_with("AutoencoderKLWan "), "{first:?}");

    // A changed file changes its own role and no other.
    let mut last = first;
    let mut changes = |role: &str| {
        let next = fingerprint();
        for other in ["text", "video"] {
            assert_eq!(next.0[other] != last.0[other], other == role, "{role}: {next:?}");
        }
        last = next;
    };
    copy.json("transformer/config.json", |config| config["_note"] = 1.into());
    copy.flip("transformer/diffusion_pytorch_model.safetensors");
    copy.json("scheduler/scheduler_config.json", |config| config["flow_shift"] = 4.0.into());
    changes("none");
    copy.flip("vae/diffusion_pytorch_model.safetensors");
    changes("video");
    copy.json("vae/config.json", |config| config["latents_mean"][0] = 0.7.into());
    changes("video");
    copy.flip("text_encoder/model.safetensors");
    changes("text");
    copy.json("text_encoder/config.json", |config| config["layer_norm_epsilon"] = 1e-5.into());
    changes("text");
    copy.json("tokenizer/tokenizer_config.json", |config| config["unknown"] = 1.into());
    changes("text");
    // It is written in another order, which counts: nobody looks into it.
    copy.json("tokenizer/tokenizer.json", |_| {});
    changes("text");
}

#[test]
fn folders_of_mixed_parts_are_refused() {
    let refuses = |copy: &Copy, words: [&str; 2]| {
        let error = FolderEncoder::open(copy.path(), &SETUP()).err().expect("an error");
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    };
    let copy = Copy::of("wan-tiny");
    copy.json("transformer/config.json", |config| config["out_channels"] = 7.into());
    refuses(&copy, ["z_dim of vae is 4", "out_channels of transformer is 7"]);
    let copy = Copy::of("wan-tiny");
    copy.json("transformer/config.json", |config| config["text_dim"] = 9.into());
    refuses(&copy, ["width of what text_encoder gives is 8", "text_dim of transformer is 9"]);
    let copy = Copy::of("pixart-tiny");
    copy.json("transformer/config.json", |config| config["caption_channels"] = 9.into());
    refuses(
        &copy,
        ["width of what text_encoder gives is 20", "caption_channels of transformer is 9"],
    );
    let copy = Copy::of("pixart-tiny");
    copy.json("model_index.json", |index| index["_class_name"] = "OtherPipeline".into());
    refuses(&copy, ["OtherPipeline", "WanPipeline"]);
}

/// Padding before the words would move them: an encoder that is read from the left refuses it, Gemma's wants it.
#[test]
fn padding_on_the_left_is_refused_where_the_encoder_would_notice() {
    for name in ["pixart-tiny", "pixart-sigma-tiny", "wan-tiny"] {
        let copy = Copy::of(name);
        let side = |side: &str| {
            copy.json("tokenizer/tokenizer_config.json", |config| {
                config["padding_side"] = side.into();
            });
            FolderEncoder::open(copy.path(), &SETUP()).map(drop)
        };
        let error = side("left").expect_err("an error").to_string();
        for word in ["`padding_side` left", "supported: right"] {
            assert!(error.contains(word), "{name}: {error}");
        }
        side("right").expect("as it is read");
    }
    let copy = Copy::of("ltx2-tiny");
    let mut found = String::new();
    copy.json("tokenizer/tokenizer_config.json", |config| {
        found = config["padding_side"].to_string();
    });
    assert_eq!(found, "\"left\"");
    FolderEncoder::open(copy.path(), &SETUP()).expect("Gemma's side");
}
