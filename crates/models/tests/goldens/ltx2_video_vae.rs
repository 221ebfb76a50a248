//! AutoencoderKLLTX2Video both ways, whole and in tiles of space and time.

use std::ops::ControlFlow;

use burn::tensor::{Device, Tensor};
use models::vae::ltx2_video::{AutoencoderKlLtx2Video, Decoding, Ltx2VideoVaeConfig, Tiling};
use models::vae::{ClipDecode, Vae};
use nn::{Error, Parameter, Weights};
use serde_json::{Value, json};

use crate::case::samples_stand_alone;
use crate::reader::{Golden, check, values};
use crate::wan_vae::{pick, scattered};

const BOUND: f64 = 1e-5;
const NAMES: [&str; 3] = ["ltx20", "ltx23", "plain"];

type Case = crate::case::Case<AutoencoderKlLtx2Video>;

impl Case {
    fn open(name: &'static str) -> Case {
        Case::of("ltx2_video_vae", name, |config| {
            Ltx2VideoVaeConfig::from_json(config).map(AutoencoderKlLtx2Video::new)
        })
    }

    fn said(&self, key: &str) -> Value {
        self.golden.config()[self.name]["golden"][key].clone()
    }

    fn clip(&self, key: &str) -> Tensor<5> {
        let shape: Vec<usize> = serde_json::from_value(self.said(key)).unwrap();
        scattered(shape.try_into().unwrap())
    }

    /// The golden's tiles in space, whole in time.
    fn tiling(&self) -> Tiling {
        let said = self.said("tiling");
        let side = |key: &str| said[format!("tile_sample_{key}")].as_u64().unwrap() as usize;
        Tiling {
            tile: [side("min_height"), side("min_width")],
            stride: [side("stride_height"), side("stride_width")],
            ..Tiling::default()
        }
    }

    fn restored(&self, latents: Tensor<5>) -> Tensor<5> {
        self.model.restored(&Weights::new(&self.store), latents).unwrap()
    }

    fn decode(&self, latents: Tensor<5>, tiling: Option<Tiling>) -> Tensor<5> {
        let decoding = Decoding { tiling, timestep: self.said("timestep").as_f64().unwrap() };
        self.model.decode_all(&Weights::new(&self.store), latents, &decoding).unwrap()
    }

    /// Means and log-variances, `[B, 2 latent, f, h, w]`.
    fn encode(&self, clips: Tensor<5>, tiling: Option<&Tiling>) -> Tensor<5> {
        let weights = Weights::new(&self.store);
        let moments = self.model.encode(&weights, clips, tiling, &mut |_, _| {}).unwrap();
        Tensor::cat(vec![moments.mean, moments.log_variance], 1)
    }
}

#[test]
fn decodes_as_diffusers() {
    for name in NAMES {
        let case = Case::open(name);
        let kept: Vec<usize> = serde_json::from_value(case.said("kept")).unwrap();
        let clip = case.decode(case.restored(case.tensor("decode.latent")), None);
        let golden = case.tensor("decode.clip");
        check(&format!("{name} decode"), &pick(&clip, &kept), &golden, BOUND);
    }
}

#[test]
fn encodes_as_diffusers() {
    for name in NAMES {
        let case = Case::open(name);
        let moments = case.encode(case.clip("clip"), None);
        check(&format!("{name} encode"), &moments, &case.tensor("encode.moments"), BOUND);
    }
}

/// The encoder looks at no later frame: the beginning of a clip has the beginning of its latents.
#[test]
fn the_encoder_is_causal() {
    let case = Case::open("ltx20");
    let clip = case.clip("clip");
    let moments = case.encode(clip.clone(), None);
    let part = case.encode(clip.narrow(2, 0, 5), None);
    assert_eq!(values(&part), values(&moments.narrow(2, 0, 2)));
}

#[test]
fn tiles_as_diffusers() {
    let case = Case::open("ltx20");
    let clip = case.decode(case.restored(case.tensor("tiled_decode.latent")), Some(case.tiling()));
    let golden = case.tensor("tiled_decode.clip");
    check("tiled decode", &clip.narrow(2, 4, 1), &golden, BOUND);
    let moments = case.encode(case.clip("tiled_clip"), Some(&case.tiling()));
    check("tiled encode", &moments, &case.tensor("tiled_encode.moments"), BOUND);
}

/// Tiles in time lie where their frames belong, and fade into each other over the frames they share.
#[test]
fn tiles_in_time_are_put_together() {
    let mut case = Case::open("ltx20");
    // Pixels are cut off after they are blended: here none is.
    for name in ["weight", "bias"] {
        let name = format!("decoder.conv_out.conv.{name}");
        let Parameter { values, shape } = case.store.remove(&name).unwrap();
        case.store.insert(name, Parameter { values: values * 0.1, shape });
    }
    let tiling = Tiling { tile: [480; 2], stride: [480; 2], tile_frames: 12, stride_frames: 8 };
    let latents = scattered([1, 4, 7, 2, 2]);
    let whole = case.decode(latents.clone(), Some(tiling));
    assert_eq!(whole.dims()[2], 25);
    // Latent frames 0 to 3 and 2 to 5 and 4 to 6: frames 0 to 12, 9 to 20 and 17 to 24.
    let part = |start, length| case.decode(latents.clone().narrow(2, start, length), None);
    let parts = [(part(0, 4), 0), (part(2, 4), 8), (part(4, 3), 16)];
    for index in 0..25 {
        let at = |tile: usize| parts[tile].0.clone().narrow(2, index - parts[tile].1, 1);
        let faded = |tile: usize, share: f64| at(tile - 1) * (1.0 - share) + at(tile) * share;
        let expected = match index {
            0..9 => at(0),
            9..13 => faded(1, (index - 9) as f64 / 4.0),
            13..17 => at(1),
            17..21 => faded(2, (index - 17) as f64 / 4.0),
            _ => at(2),
        };
        let own = whole.clone().narrow(2, index, 1);
        check(&format!("frame {index}"), &own, &expected, 1e-4);
    }
    let clip = scattered([1, 3, 17, 16, 16]);
    let tiling = Tiling { tile_frames: 8, stride_frames: 4, ..tiling };
    let tiled = case.encode(clip.clone(), Some(&tiling));
    let last = case.encode(clip.narrow(2, 8, 9), None).narrow(2, 2, 1);
    assert_eq!(tiled.dims()[2], 5);
    check("the last latent frame", &tiled.narrow(2, 4, 1), &last, BOUND);
}

#[test]
fn what_fits_a_tile_is_not_cut() {
    let case = Case::open("ltx20");
    let tiling = Tiling { tile: [64; 2], stride: [16; 2], tile_frames: 8, stride_frames: 4 };
    let latents = scattered([1, 4, 3, 4, 4]);
    let whole = case.decode(latents.clone(), None);
    assert_eq!(values(&case.decode(latents, Some(tiling))), values(&whole));
    assert_eq!(
        Tiling::default(),
        Tiling { tile: [512; 2], stride: [448; 2], tile_frames: 80, stride_frames: 56 }
    );
}

#[test]
fn a_sample_does_not_feel_its_batch() {
    let case = Case::open("ltx20");
    samples_stand_alone(&scattered([2, 4, 2, 2, 3]), |latents| case.decode(latents, None));
    samples_stand_alone(&scattered([2, 3, 5, 32, 16]), |clips| case.encode(clips, None));
}

/// Latents of a diffusion model go in and come out, and whoever has enough stops the decoder.
#[test]
fn the_trait_standardises() {
    let case = Case::open("ltx20");
    let weights = Weights::new(&case.store);
    let latents: Tensor<5> = case.tensor("decode.latent");
    let expected = case.decode(case.restored(latents.clone()), None);
    let mut taken = Vec::new();
    case.model
        .decode_clips(ClipDecode {
            weights: &weights,
            latents: latents.clone(),
            tiled: false,
            take: &mut |frame| {
                taken.push(values(&frame.pixels));
                if taken.len() < 2 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            },
            progress: &mut |done, total| assert!(done <= total),
        })
        .unwrap();
    assert_eq!(taken.len(), 2);
    let second = expected.narrow(2, 1, 1).reshape([3, 48, 32]).permute([1, 2, 0]);
    assert_eq!(taken[1], values(&second));
    let clip = case.clip("clip");
    let mean = case.encode(clip.clone(), None).narrow(1, 0, 4);
    let seen = case.model.encode_clip(&weights, clip).unwrap();
    check("restored", &case.restored(seen), &mean, BOUND);
}

/// Only a decoder that is told a timestep looks at it.
#[test]
fn the_timestep_matters_where_it_is_told() {
    for (name, matters) in [("ltx20", false), ("ltx23", true)] {
        let case = Case::open(name);
        let decode = |timestep| {
            let decoding = Decoding { tiling: None, timestep };
            let latents = scattered([1, 4, 2, 2, 2]);
            values(&case.model.decode_all(&Weights::new(&case.store), latents, &decoding).unwrap())
        };
        assert_eq!(decode(0.0) != decode(0.5), matters, "{name}");
    }
}

#[test]
fn loading_is_strict() {
    for name in NAMES {
        let case = Case::open(name);
        case.store.agree(&[], |weights| case.model.declare(weights)).unwrap();
    }
    let case = Case::open("ltx23");
    for name in ["latents_std", "decoder.timestep_scale_multiplier"] {
        let mut store = case.store.clone();
        store.remove(name).unwrap();
        let found = store.agree(&[], |weights| case.model.declare(weights));
        assert!(matches!(found, Err(Error::Missing { name: missing, .. }) if missing == name));
    }
    let mut store = case.store.clone();
    let values = Tensor::zeros([6], &Device::flex());
    store.insert("decoder.extra", Parameter { values, shape: vec![6] });
    let found = store.agree(&[], |weights| case.model.declare(weights));
    assert!(matches!(found, Err(Error::Unused { name, .. }) if name == "decoder.extra"));
}

#[test]
fn inputs_that_do_not_fit_are_refused() {
    let case = Case::open("ltx20");
    let weights = Weights::new(&case.store);
    let decode = |shape: [usize; 5], tiling: Option<Tiling>| {
        let decoding = Decoding { tiling, timestep: 0.0 };
        case.model.decode_all(&weights, scattered(shape), &decoding).unwrap_err().to_string()
    };
    let want = "this VAE takes [batch, 4, frames, height, width], height and width at least 2";
    for shape in [[1, 3, 1, 2, 2], [1, 4, 1, 1, 2], [1, 4, 0, 2, 2]] {
        let message = decode(shape, None);
        assert!(message.ends_with(want), "{message}");
    }
    for tiling in [
        Tiling { tile: [16, 24], ..Tiling::default() },
        Tiling { stride: [0, 16], ..Tiling::default() },
        Tiling { tile_frames: 6, ..Tiling::default() },
        Tiling { stride_frames: 84, ..Tiling::default() },
    ] {
        let message = decode([1, 4, 1, 5, 5], Some(tiling));
        assert!(message.contains("a VAE tile is"), "{message}");
    }
    let encode = |shape: [usize; 5]| {
        let found = case.model.encode(&weights, scattered(shape), None, &mut |_, _| {});
        found.unwrap_err().to_string()
    };
    let message = encode([1, 3, 7, 16, 16]);
    assert!(message.ends_with("a clip has 1 + 4 k frames: take 5 or 9"), "{message}");
    let message = encode([1, 3, 5, 16, 24]);
    assert!(message.ends_with("multiples of 16, at least 16"), "{message}");
}

#[test]
fn configs_are_checked() {
    let golden = Golden::open("ltx2_video_vae");
    for (key, value) in [
        ("_class_name", json!("AutoencoderKLLTXVideo")),
        ("patch_size_t", json!(2)),
        ("decoder_inject_noise", json!([false, true, false, false])),
        ("downsample_type", json!(["conv", "spatial", "spatial"])),
        ("downsample_type", json!(["spatial", "spatiotemporal"])),
        ("upsample_type", json!(["spatial", "spatial", "spatial"])),
        ("upsample_factor", json!([2, 2])),
        ("upsample_factor", json!([2, 2, 3])),
        ("decoder_block_out_channels", json!([4, 8, 32])),
        ("block_out_channels", json!([8, 8, 12])),
        ("layers_per_block", json!([1, 1, 1])),
        ("down_block_types", json!(["LTXVideoDownBlock3D"])),
        ("encoder_spatial_padding_mode", json!("circular")),
        ("spatial_compression_ratio", json!(32)),
        ("temporal_compression_ratio", json!(8)),
        ("scaling_factor", json!(0)),
        ("latent_chanels", json!(4)),
    ] {
        let mut config = golden.network("ltx20");
        config[key] = value.clone();
        let message = Ltx2VideoVaeConfig::from_json(&config.to_string()).unwrap_err().to_string();
        assert!(message.contains(key), "{key} {value}: {message}");
    }
}

/// The defaults are those of LTX-2 as it was published.
#[test]
fn missing_keys_have_the_defaults_of_diffusers() {
    let config = Ltx2VideoVaeConfig::from_json("{}").unwrap();
    assert_eq!((config.temporal_factor(), config.spatial_factor()), (8, 32));
    assert_eq!((config.latent_channels, config.patch, config.encoder.width), (128, 4, 2048));
    let layers: Vec<usize> = config.encoder.levels.iter().map(|level| level.layers).collect();
    assert_eq!((layers, config.encoder.layers), (vec![4, 6, 6, 2], 2));
    let widths: Vec<usize> = config.decoder.levels.iter().map(|level| level.outputs).collect();
    assert_eq!((config.decoder.width, widths), (1024, vec![512, 256, 128]));
}
