//! The sound of LTX-2: spectrogram, audio VAE, both vocoders; and the upsampler of its latents.

use burn::tensor::Tensor;
use models::sound::audio_vae::{AudioVae, AudioVaeConfig};
use models::sound::mel::Spectrogram;
use models::sound::vocoder::{Vocoder, VocoderConfig};
use models::sound::{SoundCodec, SoundWeights, SpectrogramCodec};
use models::vae::LatentUpsampler;
use models::vae::ltx2_upsampler::{Ltx2Upsampler, Ltx2UpsamplerConfig};
use nn::{Error, Weights};
use serde_json::{Value, json};

use crate::case::{Case, samples_stand_alone};
use crate::reader::{Golden, check, values};

const BOUND: f64 = 1e-5;
const FILE: &str = "ltx2_audio";
const LTX: Spectrogram = Spectrogram { sample_rate: 16_000, hop: 160, bins: 64 };

fn vae() -> Case<AudioVae> {
    Case::of(FILE, "vae", AudioVae::from_json)
}

fn vocoder(name: &'static str) -> Case<Vocoder> {
    Case::of(FILE, name, Vocoder::from_json)
}

fn upsampler(name: &'static str) -> Case<Ltx2Upsampler> {
    Case::of(FILE, name, Ltx2Upsampler::from_json)
}

#[test]
fn a_waveform_has_the_spectrogram_of_torch() {
    let golden = Golden::open(FILE);
    let waves: Tensor<2> = golden.tensor("mel.wave");
    let spectra: Tensor<4> = golden.tensor("mel.log");
    for channel in 0..2 {
        let wave = values(&waves.clone().narrow(0, channel, 1));
        assert_eq!(LTX.frames(wave.len()), 21);
        let found = Tensor::<1>::from_floats(&LTX.of(&wave)[..], &waves.device());
        let found = found.reshape([1, 1, 21, 64]);
        let wanted = spectra.clone().narrow(1, channel, 1);
        check(&format!("channel {channel}"), &found, &wanted, BOUND);
    }
    // Less than half a window is mirrored as often as need be, and nothing is silence.
    assert!(LTX.of(&[0.5; 100]).iter().all(|value| value.is_finite()));
    assert_eq!(LTX.of(&[0.0; 160]), vec![(1e-5_f64).ln() as f32; 128]);
}

#[test]
fn the_audio_vae_is_that_of_diffusers() {
    let case = vae();
    let weights = Weights::new(&case.store);
    let moments = case.model.moments(&weights, case.tensor("mel")).unwrap();
    check("moments", &moments, &case.tensor("moments"), BOUND);
    let decoded = case.model.decode(&weights, case.tensor("latent")).unwrap();
    check("decoded", &decoded, &case.tensor("decoded"), BOUND);
    let seen = case.model.encode(&weights, case.tensor("mel")).unwrap();
    let restored = case.model.restored(&weights, seen).unwrap();
    check("restored", &restored, &moments.narrow(1, 0, 2), BOUND);
    samples_stand_alone(&case.tensor("latent"), |latent| {
        case.model.decode(&weights, latent).unwrap()
    });
}

/// No spectrum looks at a later one: four times as many less three are made of the first latents.
#[test]
fn the_audio_vae_is_causal() {
    let case = vae();
    let weights = Weights::new(&case.store);
    let latent: Tensor<4> = case.tensor("latent");
    let whole = case.model.decode(&weights, latent.clone()).unwrap();
    let part = case.model.decode(&weights, latent.narrow(2, 0, 2)).unwrap();
    assert_eq!(part.dims()[2], 5);
    assert_eq!(values(&part), values(&whole.narrow(2, 0, 5)));
}

#[test]
fn vocoders_are_those_of_diffusers() {
    for name in ["vocoder", "bwe"] {
        let case = vocoder(name);
        let weights = Weights::new(&case.store);
        let wave = case.model.apply(&weights, case.tensor("mel")).unwrap();
        check(name, &wave, &case.tensor("wave"), BOUND);
        let batch: Tensor<4> = case.tensor("mel");
        let two = case.model.apply(&weights, batch.narrow(0, 1, 1)).unwrap();
        assert_eq!(values(&two), values(&wave.narrow(0, 1, 1)), "{name}");
    }
    assert_eq!(vocoder("bwe").model.sample_rate(), 4800);
}

/// diffusers fails where the first waveform is no multiple of the hop; silence is put behind it here, and cut off.
#[test]
fn bandwidth_is_extended_at_any_length() {
    let mut config = Golden::open(FILE).network("bwe");
    config["hop_length"] = json!(16);
    config["bwe_upsample_factors"] = json!([24, 2]);
    config["bwe_upsample_kernel_sizes"] = json!([24, 4]);
    let model = Vocoder::from_json(&config.to_string()).unwrap();
    let store = nn::Store::declared(
        |weights| model.declare(weights),
        |_, shape| {
            Tensor::full([shape.iter().product::<usize>()], 0.01, &burn::tensor::Device::flex())
        },
    )
    .unwrap();
    let mel: Tensor<4> = vocoder("bwe").tensor("mel");
    let wave = model.apply(&Weights::new(&store), mel.narrow(0, 0, 1)).unwrap();
    assert_eq!(wave.dims(), [1, 2, 72 * 3]);
}

#[test]
fn the_upsampler_is_that_of_diffusers() {
    for name in ["upsampler", "rational"] {
        let case = upsampler(name);
        let weights = Weights::new(&case.store);
        let larger = case.model.enlarge(&weights, case.tensor("latent")).unwrap();
        check(name, &larger, &case.tensor("larger"), BOUND);
    }
}

#[test]
fn loading_is_strict() {
    let vae = vae();
    vae.store.agree(&[], |weights| vae.model.declare(weights)).unwrap();
    for name in ["vocoder", "bwe"] {
        let case = vocoder(name);
        case.store.agree(&[], |weights| case.model.declare(weights)).unwrap();
    }
    for name in ["upsampler", "rational"] {
        let case = upsampler(name);
        case.store.agree(&[], |weights| case.model.declare(weights)).unwrap();
    }
    let case = vocoder("bwe");
    let mut store = case.store.clone();
    let name = "vocoder.resnets.0.acts1.0.upsample.filter";
    store.remove(name).unwrap();
    let found = store.agree(&[], |weights| case.model.declare(weights));
    assert!(matches!(found, Err(Error::Missing { name: missing, .. }) if missing == name));
}

/// A codec takes sound of any rate and number of channels, and gives back what its vocoder makes.
#[test]
fn a_codec_goes_both_ways() {
    let golden = Golden::open(FILE);
    let [vae_config, mut vocoder_config] = ["vae", "vocoder"].map(|name| golden.network(name));
    let refused = SpectrogramCodec::from_json(&vae_config.to_string(), &vocoder_config.to_string());
    assert!(refused.err().unwrap().to_string().contains("`in_channels` is 8"));
    vocoder_config["in_channels"] = json!(32);
    let codec =
        SpectrogramCodec::from_json(&vae_config.to_string(), &vocoder_config.to_string()).unwrap();
    let vae = vae();
    let vocoder = nn::Store::declared(
        |weights| codec.vocoder.declare(weights),
        |_, shape| {
            Tensor::full([shape.iter().product::<usize>()], 0.02, &burn::tensor::Device::flex())
        },
    )
    .unwrap();
    let weights = SoundWeights { vae: Weights::new(&vae.store), vocoder: Weights::new(&vocoder) };
    codec.declare_vae(&weights.vae).unwrap();
    codec.declare_vocoder(&weights.vocoder).unwrap();
    assert_eq!((codec.latent_shape(), codec.clock()), ([2, 4], [16_000, 160, 4]));
    let tone: Vec<f32> = (0..4410).map(|at| (at as f32 * 0.06).sin()).collect();
    let encode = |channels: &[Vec<f32>]| codec.encode(&weights.vae, channels, 44_100).unwrap();
    let mono = encode(std::slice::from_ref(&tone));
    // A tenth of a second has 11 spectra, so 3 latent frames.
    assert_eq!(mono.dims(), [1, 2, 3, 4]);
    assert_eq!(values(&encode(&[tone.clone(), tone.clone()])), values(&mono));
    let silence = vec![0.0; tone.len()];
    assert!(values(&encode(&[tone.clone(), silence.clone()])) != values(&mono));
    let surround =
        vec![tone.clone(), tone.clone(), silence.clone(), silence.clone(), tone.clone(), tone];
    assert_eq!(encode(&surround).dims(), mono.dims());
    assert!(codec.encode(&weights.vae, &[Vec::new()], 16_000).is_err());
    let wave = codec.decode(&weights, mono).unwrap();
    assert_eq!(wave.dims(), [1, 2, 9 * 6]);
    assert_eq!(codec.decoded(), (9600, 2));
}

#[test]
fn configs_are_checked() {
    let golden = Golden::open(FILE);
    let refused = |name: &str, key: &str, value: Value| {
        let mut config = golden.network(name);
        config[key] = value.clone();
        let text = config.to_string();
        let message = match name {
            "vae" => AudioVaeConfig::from_json(&text).err(),
            "upsampler" | "rational" => Ltx2UpsamplerConfig::from_json(&text).err(),
            _ => VocoderConfig::from_json(&text).err(),
        };
        let message = message.unwrap_or_else(|| panic!("{name} {key} {value}")).to_string();
        assert!(message.contains(key), "{name} {key} {value}: {message}");
    };
    for (name, key, value) in [
        ("vae", "norm_type", json!("group")),
        ("vae", "causality_axis", json!("width")),
        ("vae", "attn_resolutions", json!([16])),
        ("vae", "mid_block_add_attention", json!(true)),
        ("vae", "double_z", json!(false)),
        ("vae", "ch_mult", json!([1, 2])),
        ("vae", "mel_bins", json!(18)),
        ("vae", "latent_channels", json!(4)),
        ("vocoder", "act_fn", json!("relu")),
        ("vocoder", "antialias", json!(true)),
        ("vocoder", "upsample_factors", json!([3])),
        ("vocoder", "upsample_kernel_sizes", json!([8, 4])),
        ("vocoder", "resnet_kernel_sizes", json!([3, 4])),
        ("vocoder", "resnet_dilations", json!([[1], 2])),
        ("vocoder", "hidden_channels", json!(3)),
        ("bwe", "output_sampling_rate", json!(4000)),
        ("bwe", "bwe_upsample_factors", json!([4, 2])),
        ("bwe", "bwe_in_channels", json!(4)),
        ("bwe", "antialias_ratio", json!(3)),
        ("upsampler", "temporal_upsample", json!(true)),
        ("upsampler", "mid_channels", json!(33)),
        ("rational", "rational_spatial_scale", json!(1.25)),
        ("rational", "dims", json!(4)),
    ] {
        refused(name, key, value);
    }
}
