//! AutoencoderKL both ways, whole and in tiles.

use burn::tensor::{Device, Tensor, TensorData};
use models::vae::Vae;
use models::vae::kl::{AutoencoderKl, KlConfig, Tiling};
use nn::{Error, Parameter, Store, Weights};
use serde_json::{Value, json};

use crate::case::{check_moments, samples_stand_alone};
use crate::reader::{Golden, check, values};

const BOUND: f64 = 1e-5;

type Case = crate::case::Case<AutoencoderKl>;

impl Case {
    fn open(name: &'static str) -> Case {
        Case::of("vae", name, |config| KlConfig::from_json(config).map(AutoencoderKl::new))
    }

    fn decode(&self, latents: Tensor<4>, tiling: Option<&Tiling>) -> Tensor<4> {
        let weights = Weights::new(&self.store);
        self.model.decode(&weights, latents, tiling, &mut |_, _| {}).unwrap()
    }

    /// Means and log-variances, `[B, 2 latent, h, w]`.
    fn encode(&self, images: Tensor<4>, tiling: Option<&Tiling>) -> Tensor<4> {
        let weights = Weights::new(&self.store);
        let moments = self.model.encode(&weights, images, tiling, &mut |_, _| {}).unwrap();
        Tensor::cat(vec![moments.mean, moments.log_variance], 1)
    }
}

/// Values without any pattern a bug could hide behind, from -2 to 2.
fn scattered(shape: [usize; 4]) -> Tensor<4> {
    let count = shape.iter().product::<usize>();
    let values: Vec<f32> =
        (0..count).map(|index| ((index * 7919 + 17) % 4001) as f32 / 1000.0 - 2.0).collect();
    Tensor::from_data(TensorData::new(values, shape), &Device::flex())
}

#[test]
fn decodes_as_diffusers() {
    for name in ["quant", "bare"] {
        let case = Case::open(name);
        let image = case.decode(case.tensor("decode.latent"), None);
        check(&format!("{name} decode"), &image, &case.tensor("decode.image"), BOUND);
    }
}

#[test]
fn encodes_as_diffusers() {
    for name in ["quant", "bare"] {
        let case = Case::open(name);
        let moments = case.encode(case.tensor("encode.image"), None);
        check(&format!("{name} encode"), &moments, &case.tensor("encode.moments"), BOUND);
    }
}

#[test]
fn moments_are_a_distribution() {
    let case = Case::open("quant");
    let weights = Weights::new(&case.store);
    let image = case.tensor("encode.image");
    let moments = case.model.encode(&weights, image, None, &mut |_, _| {}).unwrap();
    let golden = ["encode.mean", "encode.std"].map(|key| case.tensor(key));
    check_moments(&moments, golden, scattered(moments.mean.dims()), BOUND);
}

#[test]
fn tiles_as_diffusers() {
    let case = Case::open("quant");
    let said = &case.golden.config()["quant"]["tiling"];
    let tiling = Tiling {
        sample_min_size: said["tile_sample_min_size"].as_u64().unwrap() as usize,
        overlap_factor: said["tile_overlap_factor"].as_f64().unwrap(),
    };
    assert_eq!(tiling, Tiling::of(&case.model.config), "enable_tiling takes what the config says");
    let image = case.decode(case.tensor("tiled_decode.latent"), Some(&tiling));
    check("tiled decode", &image, &case.tensor("tiled_decode.image"), BOUND);
    let moments = case.encode(case.tensor("tiled_encode.image"), Some(&tiling));
    check("tiled encode", &moments, &case.tensor("tiled_encode.moments"), BOUND);
}

#[test]
fn tiles_of_any_size_fit_together() {
    let case = Case::open("quant");
    let tiling = Tiling { sample_min_size: 18, overlap_factor: 0.3 };
    for side in 1..12 {
        let image = case.decode(scattered([1, 4, side, 12 - side]), Some(&tiling));
        assert_eq!(image.dims(), [1, 3, 4 * side, 4 * (12 - side)]);
    }
    for side in 4..30 {
        let moments = case.encode(scattered([1, 3, side, 34 - side]), Some(&tiling));
        assert_eq!(moments.dims(), [1, 8, side / 4, (34 - side) / 4]);
    }
}

#[test]
fn what_fits_a_tile_is_not_cut() {
    let case = Case::open("quant");
    let tiling = Tiling { sample_min_size: 32, overlap_factor: 0.25 };
    let latents = scattered([1, 4, 8, 7]);
    let whole = case.decode(latents.clone(), None);
    assert_eq!(values(&case.decode(latents, Some(&tiling))), values(&whole));
}

#[test]
fn a_sample_does_not_feel_its_batch() {
    let case = Case::open("quant");
    let tiling = Tiling { sample_min_size: 16, overlap_factor: 0.25 };
    for tiling in [None, Some(&tiling)] {
        let latents = scattered([3, 4, 5, 7]);
        let images = scattered([3, 3, 21, 26]);
        samples_stand_alone(&latents, |latents| case.decode(latents, tiling));
        samples_stand_alone(&images, |images| case.encode(images, tiling));
    }
}

#[test]
fn progress_counts_every_layer_of_every_tile() {
    let case = Case::open("quant");
    let tiling = Tiling { sample_min_size: 16, overlap_factor: 0.25 };
    let weights = Weights::new(&case.store);
    let mut calls = Vec::new();
    let latents = scattered([2, 4, 5, 3]);
    case.model
        .decode(&weights, latents, Some(&tiling), &mut |done, total| calls.push((done, total)))
        .unwrap();
    // Two samples, two tiles; post-quant, in, three in the middle, six residual, two up, two out.
    let total = 2 * 2 * (1 + 1 + 3 + 6 + 2 + 2);
    assert_eq!(calls, (1..=total).map(|done| (done, total)).collect::<Vec<_>>());
}

/// Checkpoints older than diffusers 0.15 name the attention's matrices otherwise, and the oldest
/// hold them as convolutions.
#[test]
fn old_names_of_attention_are_read() {
    let case = Case::open("quant");
    let renamed = case.store.clone().renamed(|name| {
        let name = name.replace("to_q", "query").replace("to_k", "key").replace("to_v", "value");
        Some(name.replace("to_out.0", "proj_attn"))
    });
    assert!(renamed.get("decoder.mid_block.attentions.0.query.weight").is_some());
    let mut oldest = renamed.clone();
    for (name, Parameter { values, shape }) in renamed.iter() {
        if name.contains("attentions") && shape.len() == 2 {
            let shape = vec![shape[0], shape[1], 1, 1];
            oldest.insert(name, Parameter { values: values.clone(), shape });
        }
    }
    let latents = case.tensor("decode.latent");
    let expected = values(&case.decode(latents.clone(), None));
    for store in [renamed, oldest] {
        store.agree(&[], |weights| case.model.declare(weights)).unwrap();
        let case = Case { store, ..Case::open("quant") };
        assert_eq!(values(&case.decode(latents.clone(), None)), expected);
    }
}

#[test]
fn loading_is_strict() {
    for name in ["quant", "bare"] {
        let case = Case::open(name);
        case.store.agree(&[], |weights| case.model.declare(weights)).unwrap();
    }
    let case = Case::open("quant");
    let mut store = case.store.clone();
    let name = "decoder.up_blocks.1.resnets.0.conv_shortcut.weight";
    let taken = store.remove(name).unwrap();
    let agree = |store: &Store| store.agree(&[], |weights| case.model.declare(weights));
    assert!(matches!(agree(&store), Err(Error::Missing { name: missing, .. }) if missing == name));
    store.insert(name, Parameter { values: taken.values, shape: vec![96] });
    assert!(matches!(agree(&store), Err(Error::Misshapen { name: bad, .. }) if bad == name));
    let mut store = case.store.clone();
    let extra = "decoder.up_blocks.0.resnets.0.conv_shortcut.weight";
    store.insert(extra, Parameter::new(scattered([12, 12, 1, 1])));
    assert!(matches!(agree(&store), Err(Error::Unused { name: unused, .. }) if unused == extra));
}

#[test]
fn inputs_that_do_not_fit_are_refused() {
    let case = Case::open("quant");
    let weights = Weights::new(&case.store);
    let decode = |shape: [usize; 4], tiling: Option<&Tiling>| {
        let result = case.model.decode(&weights, scattered(shape), tiling, &mut |_, _| {});
        result.unwrap_err().to_string()
    };
    assert_eq!(
        decode([1, 3, 8, 8], None),
        "a latent is [1, 3, 8, 8], but this VAE takes [batch, 4, height, width] with sides of at least 1"
    );
    let encoded =
        case.model.encode(&weights, scattered([1, 3, 3, 8]), None, &mut |_, _| {}).unwrap_err();
    assert_eq!(
        encoded.to_string(),
        "an image is [1, 3, 3, 8], but this VAE takes [batch, 3, height, width] with sides of at least 4"
    );
    for (sample_min_size, overlap_factor) in [(3, 0.25), (32, 1.0), (32, -0.5), (32, f64::NAN)] {
        let tiling = Tiling { sample_min_size, overlap_factor };
        let message = decode([1, 4, 9, 9], Some(&tiling));
        assert!(message.contains("a VAE tile is"), "{message}");
    }
}

#[test]
fn configs_are_checked() {
    let golden = Golden::open("vae");
    let refused = |key: &str, value: Value| {
        let mut config = golden.network("quant");
        config[key] = value;
        KlConfig::from_json(&config.to_string()).unwrap_err().to_string()
    };
    let block = json!(["DownEncoderBlock2D", "AttnDownEncoderBlock2D", "DownEncoderBlock2D"]);
    assert_eq!(
        refused("down_block_types", block),
        "the VAE's config.json: `down_block_types` is \"AttnDownEncoderBlock2D\", which is not supported; \
         supported: DownEncoderBlock2D"
    );
    for (key, value) in [
        ("_class_name", json!("AutoencoderTiny")),
        ("act_fn", json!("mish")),
        ("up_block_types", json!(["UpDecoderBlock2D"])),
        ("block_out_channels", json!([4, 8, 13])),
        ("norm_num_groups", json!(0)),
        ("latent_channels", json!(0)),
        ("in_channels", json!(usize::MAX)),
        ("layers_per_block", json!(-1)),
        ("latents_mean", json!([0.0, 1.0])),
        ("scaling_factor", json!(0.0)),
        ("layers_per_block", json!("two")),
    ] {
        let message = refused(key, value);
        let named = [key, "two", "-1"].iter().any(|word| message.contains(word));
        assert!(named, "{message}");
    }
    // Sixty-four levels would be halved more often than a size has bits.
    let mut deep = golden.network("quant");
    deep["block_out_channels"] = json!(vec![4; 65]);
    deep["down_block_types"] = json!(vec!["DownEncoderBlock2D"; 65]);
    deep["up_block_types"] = json!(vec!["UpDecoderBlock2D"; 65]);
    let message = KlConfig::from_json(&deep.to_string()).unwrap_err().to_string();
    assert!(message.contains("block_out_channels` 65"), "{message}");
}

#[test]
fn missing_keys_have_the_defaults_of_diffusers() {
    let config =
        KlConfig::from_json(r#"{ "_name_or_path": "x", "sample_size": [40, 60] }"#).unwrap();
    assert_eq!((config.in_channels, config.out_channels, config.latent_channels), (3, 3, 4));
    assert_eq!(
        (config.widths.as_slice(), config.layers_per_block, config.groups),
        (&[64][..], 1, 32)
    );
    assert!(config.attention && config.quant_convolution && config.post_quant_convolution);
    assert!(config.force_upcast);
    assert_eq!((config.scaling_factor, config.shift_factor), (0.18215, None));
    assert_eq!((config.sample_size, config.factor()), (40, 1));
}
