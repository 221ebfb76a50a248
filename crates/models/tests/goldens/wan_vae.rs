//! AutoencoderKLWan of both generations, both ways, whole and in tiles.

use burn::tensor::{Device, Tensor, TensorData};
use models::vae::Vae;
use models::vae::wan::{AutoencoderKlWan, DecodedFrame, Tiling, WanVaeConfig};
use nn::{Error, Parameter, Store, Weights};
use serde_json::{Value, json};

use crate::case::{check_moments, samples_stand_alone};
use crate::reader::{Golden, check, values};

const BOUND: f64 = 1e-5;
const NAMES: [&str; 2] = ["wan21", "wan22"];

type Case = crate::case::Case<AutoencoderKlWan>;

impl Case {
    fn open(name: &'static str) -> Case {
        Case::of("wan_vae", name, |config| {
            WanVaeConfig::from_json(config).map(AutoencoderKlWan::new)
        })
    }

    fn said(&self, key: &str) -> Value {
        self.golden.config()[self.name]["golden"][key].clone()
    }

    fn clip(&self, key: &str) -> Tensor<5> {
        let shape: Vec<usize> = serde_json::from_value(self.said(key)).unwrap();
        scattered(shape.try_into().unwrap())
    }

    fn tiling(&self) -> Tiling {
        let said = self.said("tiling");
        let side = |key: &str| said[format!("tile_sample_{key}")].as_u64().unwrap() as usize;
        Tiling {
            tile: [side("min_height"), side("min_width")],
            stride: [side("stride_height"), side("stride_width")],
        }
    }

    fn decode(&self, latents: Tensor<5>, tiling: Option<&Tiling>) -> Tensor<5> {
        self.model.decode_all(&Weights::new(&self.store), latents, tiling).unwrap()
    }

    /// Means and log-variances, `[B, 2 latent, f, h, w]`.
    fn encode(&self, clips: Tensor<5>, tiling: Option<&Tiling>) -> Tensor<5> {
        let weights = Weights::new(&self.store);
        let moments = self.model.encode(&weights, clips, tiling, &mut |_, _| {}).unwrap();
        Tensor::cat(vec![moments.mean, moments.log_variance], 1)
    }

    fn refusal(&self, run: impl FnOnce(&Weights<'_>) -> nn::Result<()>) -> String {
        run(&Weights::new(&self.store)).unwrap_err().to_string()
    }
}

/// The values of `wan_vae.py`'s function of this name, from -1 to 1.
pub(crate) fn scattered(shape: [usize; 5]) -> Tensor<5> {
    let count = shape.iter().product::<usize>();
    let value = |index: usize| (((index * 7919 + 17) % 4001) as f32 / 1000.0 - 2.0) * 0.5;
    let values: Vec<f32> = (0..count).map(value).collect();
    Tensor::from_data(TensorData::new(values, shape), &Device::flex())
}

/// The frames `kept` of a clip `[B, C, F, H, W]`.
pub(crate) fn pick(clip: &Tensor<5>, kept: &[usize]) -> Tensor<5> {
    Tensor::cat(kept.iter().map(|&index| clip.clone().narrow(2, index, 1)).collect(), 2)
}

#[test]
fn decodes_as_diffusers() {
    for name in NAMES {
        let case = Case::open(name);
        let (latents, golden) = (case.tensor("decode.latent"), case.tensor("decode.clip"));
        let kept: Vec<usize> = serde_json::from_value(case.said("kept")).unwrap();
        let clip = case.decode(latents.clone(), None);
        assert_eq!(clip.dims()[2], 9);
        check(&format!("{name} decode"), &pick(&clip, &kept), &golden, BOUND);
        // No frame looks at a later one, so fewer latents give the beginning of the clip.
        for (latent_frames, frames) in [(1, 1), (2, 5)] {
            let part = case.decode(latents.clone().narrow(2, 0, latent_frames), None);
            assert_eq!(values(&part), values(&clip.clone().narrow(2, 0, frames)), "{name}");
        }
    }
}

#[test]
fn encodes_as_diffusers() {
    for name in NAMES {
        let case = Case::open(name);
        let (clip, golden) = (case.clip("clip"), case.tensor("encode.moments"));
        let moments = case.encode(clip.clone(), None);
        check(&format!("{name} encode"), &moments, &golden, BOUND);
        for (latent_frames, frames) in [(1, 1), (2, 5)] {
            let part = case.encode(clip.clone().narrow(2, 0, frames), None);
            let expected = moments.clone().narrow(2, 0, latent_frames);
            assert_eq!(values(&part), values(&expected), "{name}");
        }
    }
}

#[test]
fn moments_are_a_distribution() {
    let case = Case::open("wan21");
    let weights = Weights::new(&case.store);
    let moments = case.model.encode(&weights, case.clip("clip"), None, &mut |_, _| {}).unwrap();
    let golden = ["encode.mean", "encode.std"].map(|key| case.tensor(key));
    check_moments(&moments, golden, scattered(moments.mean.dims()), BOUND);
}

#[test]
fn tiles_as_diffusers() {
    for name in NAMES {
        let case = Case::open(name);
        let tiling = case.tiling();
        let clip = case.decode(case.tensor("tiled_decode.latent"), Some(&tiling));
        let golden = case.tensor("tiled_decode.clip");
        check(&format!("{name} tiled decode"), &clip.narrow(2, 4, 1), &golden, BOUND);
        let moments = case.encode(case.clip("tiled_clip"), Some(&tiling));
        let golden = case.tensor("tiled_encode.moments");
        check(&format!("{name} tiled encode"), &moments, &golden, BOUND);
    }
    assert_eq!(Tiling::default(), Tiling { tile: [256; 2], stride: [192; 2] });
}

#[test]
fn what_fits_a_tile_is_not_cut() {
    let case = Case::open("wan21");
    let tiling = Tiling { tile: [40, 24], stride: [8, 8] };
    let latents = scattered([1, 3, 2, 5, 3]);
    let whole = case.decode(latents.clone(), None);
    assert_eq!(values(&case.decode(latents, Some(&tiling))), values(&whole));
    let clip = scattered([1, 3, 5, 40, 24]);
    let whole = case.encode(clip.clone(), None);
    assert_eq!(values(&case.encode(clip, Some(&tiling))), values(&whole));
}

#[test]
fn pixels_and_variances_are_bounded() {
    let mut case = Case::open("wan21");
    let constant = |value: f32, size: usize| {
        let values = Tensor::<1>::full([size], value, &Device::flex());
        Parameter { values, shape: vec![size] }
    };
    let latents = scattered([1, 3, 2, 1, 2]);
    for (bias, pixel) in [(50.0, 1.0), (-50.0, -1.0)] {
        case.store.insert("decoder.conv_out.bias", constant(bias, 3));
        assert!(values(&case.decode(latents.clone(), None)).iter().all(|&value| value == pixel));
    }
    for (bias, bound) in [(500.0, 20.0), (-500.0, -30.0)] {
        case.store.insert("quant_conv.bias", constant(bias, 6));
        let moments = case.encode(scattered([1, 3, 1, 8, 8]), None);
        let variances = values(&moments.clone().narrow(1, 3, 3));
        assert!(variances.iter().all(|&value| value == bound), "{variances:?}");
        assert!(values(&moments.narrow(1, 0, 3)).iter().all(|value| value.abs() > 400.0));
    }
}

/// Frames come one after the other with their places, the first before any later is computed.
#[test]
fn frames_are_handed_out_as_they_are_done() {
    let case = Case::open("wan21");
    let weights = Weights::new(&case.store);
    let latents = scattered([2, 3, 3, 5, 3]);
    let whole = case.decode(latents.clone(), None);
    for tiling in [None, Some(case.tiling())] {
        let whole = match &tiling {
            None => whole.clone(),
            tiling => case.decode(latents.clone(), tiling.as_ref()),
        };
        let log = std::cell::RefCell::new(Vec::new());
        let mut take = |frame: DecodedFrame| {
            let expected = whole.clone().slice_dim(0, frame.sample..frame.sample + 1);
            let expected = expected.narrow(2, frame.index, 1).reshape([3, 40, 24]);
            assert_eq!(values(&frame.pixels), values(&expected.permute([1, 2, 0])));
            log.borrow_mut().push(("frame", frame.sample * 9 + frame.index));
            Ok::<_, Error>(())
        };
        let mut progress = |done: usize, total: usize| {
            assert_eq!(total, if tiling.is_some() { 2 * 9 * 3 * 3 } else { 2 * 9 });
            log.borrow_mut().push(("done", done));
        };
        case.model
            .decode(&weights, latents.clone(), tiling.as_ref(), &mut take, &mut progress)
            .unwrap();
        let log = log.into_inner();
        let frames: Vec<_> = log.iter().filter(|(what, _)| *what == "frame").collect();
        assert_eq!(frames.len(), 18);
        assert!(frames.iter().enumerate().all(|(index, (_, place))| index == *place));
        if tiling.is_none() {
            assert_eq!(log[..2], [("frame", 0), ("done", 1)]);
            assert_eq!(log.last(), Some(&("done", 18)));
        }
    }
}

#[test]
fn a_failing_writer_stops_the_decoder() {
    let case = Case::open("wan21");
    let mut taken = 0;
    let mut take = |_: DecodedFrame| {
        taken += 1;
        match taken {
            1 => Ok(()),
            _ => Err(Error::outside(std::io::Error::other("the disk is full"))),
        }
    };
    let weights = Weights::new(&case.store);
    let latents = scattered([1, 3, 3, 2, 2]);
    let result = case.model.decode(&weights, latents, None, &mut take, &mut |_, _| {});
    assert_eq!(result.unwrap_err().to_string(), "the disk is full");
    assert_eq!(taken, 2);
}

#[test]
fn a_sample_does_not_feel_its_batch() {
    for name in NAMES {
        let case = Case::open(name);
        let channels = case.model.config.latent_channels;
        let latents = scattered([2, channels, 2, 2, 1]);
        let clips = scattered([2, 3, 5, 32, 16]);
        samples_stand_alone(&latents, |latents| case.decode(latents, None));
        samples_stand_alone(&clips, |clips| case.encode(clips, None));
    }
}

#[test]
fn latents_are_standardised_and_restored() {
    let case = Case::open("wan21");
    let latents = scattered([1, 3, 1, 1, 2]);
    let seen = values(&case.model.standardised(latents.clone()));
    for (index, (seen, latent)) in seen.iter().zip(values(&latents)).enumerate() {
        let [mean, deviation] = [[0.1, -0.2, 0.3], [1.5, 0.5, 2.0]].map(|all| all[index / 2]);
        assert!((seen - (latent - mean) / deviation).abs() < 1e-6);
    }
    let again = case.model.restored(case.model.standardised(latents.clone()));
    check("restored", &again, &latents, BOUND);
}

#[test]
fn loading_is_strict() {
    for name in NAMES {
        let case = Case::open(name);
        case.store.agree(&[], |weights| case.model.declare(weights)).unwrap();
    }
    let case = Case::open("wan22");
    let agree = |store: &Store| store.agree(&[], |weights| case.model.declare(weights));
    let mut store = case.store.clone();
    let name = "decoder.up_blocks.1.upsampler.time_conv.weight";
    let taken = store.remove(name).unwrap();
    assert!(matches!(agree(&store), Err(Error::Missing { name: missing, .. }) if missing == name));
    store.insert(name, Parameter { values: taken.values, shape: vec![12, 6, 3] });
    assert!(matches!(agree(&store), Err(Error::Misshapen { name: bad, .. }) if bad == name));
    let mut store = case.store.clone();
    let extra = "decoder.up_blocks.2.upsampler.time_conv.bias";
    store.insert(extra, Parameter { values: Tensor::zeros([6], &Device::flex()), shape: vec![6] });
    assert!(matches!(agree(&store), Err(Error::Unused { name: unused, .. }) if unused == extra));
}

#[test]
fn inputs_that_do_not_fit_are_refused() {
    let case = Case::open("wan21");
    let decode = |shape: [usize; 5], tiling: Option<Tiling>| {
        case.refusal(|weights| {
            case.model.decode_all(weights, scattered(shape), tiling.as_ref()).map(drop)
        })
    };
    assert_eq!(
        decode([1, 4, 1, 2, 2], None),
        "a latent is [1, 4, 1, 2, 2], but this VAE takes [batch, 3, frames, height, width], each at least 1"
    );
    for (tile, stride) in
        [([16, 12], [8, 8]), ([16, 16], [8, 4]), ([16, 16], [24, 8]), ([8, 8], [0, 8])]
    {
        let message = decode([1, 3, 1, 5, 5], Some(Tiling { tile, stride }));
        assert!(message.contains("a VAE tile is"), "{message}");
    }
    let encode = |name: &'static str, shape: [usize; 5]| {
        let case = Case::open(name);
        case.refusal(|weights| {
            case.model.encode(weights, scattered(shape), None, &mut |_, _| {}).map(drop)
        })
    };
    let message = encode("wan21", [1, 3, 7, 16, 16]);
    assert!(message.ends_with("a clip has 1 + 4 k frames: take 5 or 9"), "{message}");
    let message = encode("wan21", [1, 3, 5, 16, 7]);
    assert!(message.ends_with("with sides of at least 8"), "{message}");
    let message = encode("wan22", [1, 3, 5, 16, 24]);
    assert!(message.ends_with("with sides that are multiples of 16"), "{message}");
    let message = encode("wan22", [1, 12, 5, 16, 16]);
    assert!(message.contains("[batch, 3, frames, height, width]"), "{message}");
}

#[test]
fn configs_are_checked() {
    let golden = Golden::open("wan_vae");
    let refused = |name: &str, key: &str, value: Value| {
        let mut config = golden.network(name);
        config[key] = value;
        WanVaeConfig::from_json(&config.to_string()).unwrap_err().to_string()
    };
    assert_eq!(
        refused("wan21", "attn_scales", json!([0.5])),
        "the VAE's config.json: `attn_scales` is [0.5], which is not supported; supported: null, empty"
    );
    for (key, value) in [
        ("_class_name", json!("AutoencoderKL")),
        ("temperal_downsample", json!([false, false, true])),
        ("temperal_downsample", json!([true, true])),
        ("base_dim", json!(0)),
        ("dim_mult", json!([1, 2, 0, 1])),
        ("dim_mult", json!([])),
        ("num_res_blocks", json!(0)),
        ("in_channels", json!(10)),
        ("patch_size", json!(0)),
        ("scale_factor_spatial", json!(8)),
        ("scale_factor_temporal", json!(8)),
        ("latents_mean", json!([0.0])),
        ("latents_std", json!([0.0, 1.0, 1.0, 1.0])),
        ("dim_mult", json!([1, 1, 2, 3])),
        ("dim_mult", json!([1, 1, 1, 5])),
    ] {
        let message = refused("wan22", key, value.clone());
        assert!(message.contains(key) || message.contains("dim_mult"), "{key} {value}: {message}");
    }
}

#[test]
fn missing_keys_have_the_defaults_of_diffusers() {
    let config =
        WanVaeConfig::from_json(r#"{ "_diffusers_version": "x", "dropout": 0.0 }"#).unwrap();
    assert_eq!((config.encoder_width, config.decoder_width, config.latent_channels), (96, 96, 16));
    assert_eq!((config.multiples.as_slice(), config.layers_per_block), (&[1, 2, 4, 4][..], 2));
    assert_eq!((config.in_channels, config.out_channels, config.patch), (3, 3, 1));
    assert_eq!((config.spatial_factor(), config.temporal_factor()), (8, 4));
    assert_eq!((config.latents_mean[7], config.latents_std[15]), (1.5508, 1.916));
    assert!(!config.residual);
}
