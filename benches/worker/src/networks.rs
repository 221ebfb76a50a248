//! Whole networks with random weights, of the sizes people run.

use burn::Tensor;
use burn::tensor::{DType, Device, Distribution};
use kernels::{Activation, Convolution};
use models::dit::pixart::{Pixart, PixartConfig};
use models::dit::wan::{Wan, WanConfig};
use models::vae::Vae;
use models::vae::kl::{AutoencoderKl, KlConfig};
use models::vae::wan::{AutoencoderKlWan, DecodedFrame, WanVaeConfig};
use nn::{Context, Dit, Inputs, Levels, Modality, Plain, Rounded, Store, Weights};

pub(crate) fn normal<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

/// Small random parameters; matrices in `dtype` unless their module is `kept`, as `--dtype` holds
/// them.
pub(crate) fn parameters(
    dtype: DType,
    kept: &[&str],
    declare: impl FnOnce(&Weights<'_>) -> nn::Result<()>,
) -> Store {
    let fill = move |name: &str, shape: &[usize]| {
        let elements = shape.iter().product::<usize>();
        let values = normal([elements], &Device::flex()) * 0.02;
        let matrix = shape.len() >= 2 && name.ends_with(".weight");
        let kept = name.split('.').any(|module| kept.contains(&module));
        if matrix && !kept { values.cast(dtype) } else { values }
    };
    Store::declared(declare, fill).expect("the model declares itself")
}

/// PixArt-XL with 4 of its 28 layers: two samples of 1024 tokens, captions of 120.
pub(crate) fn pixart(dtype: DType) -> impl Fn() -> Tensor<3> {
    let device = Device::flex();
    let model = Pixart { config: PixartConfig { depth: 4, ..PixartConfig::xl_512() } };
    let store = parameters(dtype, &[], |weights| model.declare(weights));
    let sigma = Tensor::from_floats([500.0, 500.0], &device);
    let video = Modality {
        tokens: normal([2, 1024, 16], &device),
        levels: Levels::per_sample(sigma.clone()),
        sigma,
        positions: model.positions([32, 32], 2, &device),
        context: Context::text(
            normal([2, 120, 4096], &device),
            Some(Tensor::ones([2, 120], &device)),
        ),
        size: None,
        enabled: true,
        skipped: Vec::new(),
    };
    let inputs = Inputs::video(video);
    move || run(&model, &store, &inputs, dtype)
}

/// Wan-1.3B with 2 of its 30 layers: one video of 5 x 15 x 26 patches, a text of 512 tokens.
pub(crate) fn wan(dtype: DType) -> impl Fn() -> Tensor<3> {
    let device = Device::flex();
    let model = Wan { config: WanConfig { depth: 2, ..WanConfig::t2v_1_3b() } };
    let store = parameters(dtype, &Wan::KEPT, |weights| model.declare(weights));
    let sigma = Tensor::from_floats([500.0], &device);
    let grid = [5, 15, 26];
    let video = Modality {
        tokens: normal([1, grid.iter().product(), 64], &device),
        levels: Levels::per_sample(sigma.clone()),
        sigma,
        positions: model.positions(grid, 1, &device),
        context: Context::text(normal([1, 512, 4096], &device), None),
        size: None,
        enabled: true,
        skipped: Vec::new(),
    };
    let inputs = Inputs::video(video);
    move || run(&model, &store, &inputs, dtype)
}

/// One prediction, in bf16 as `--dtype bf16` computes it.
fn run(model: &dyn nn::Network, store: &Store, inputs: &Inputs, dtype: DType) -> Tensor<3> {
    let weights = Weights::new(store);
    let prediction = match dtype {
        DType::BF16 => nn::forward(&Rounded(model), &weights, inputs, &mut Plain),
        _ => nn::forward(model, &weights, inputs, &mut Plain),
    };
    prediction.expect("the inputs fit the model").video.expect("there is a video")
}

/// The decoder of Stable Diffusion's size, 64 x 64 latents to 512 x 512 pixels.
pub(crate) fn vae_decode() -> impl Fn() -> Tensor<4> {
    let json = r#"{
        "in_channels": 3, "out_channels": 3, "latent_channels": 4, "norm_num_groups": 32,
        "block_out_channels": [128, 256, 512, 512], "layers_per_block": 2, "sample_size": 512,
        "down_block_types": ["DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D"],
        "up_block_types": ["UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D"]
    }"#;
    let vae = AutoencoderKl::new(KlConfig::from_json(json).expect("the config is supported"));
    let store = parameters(DType::F32, &[], |weights| vae.declare_decoder(weights));
    let latents = normal([1, 4, 64, 64], &Device::flex());
    move || {
        vae.decode(&Weights::new(&store), latents.clone(), None, &mut |_, _| {})
            .expect("the latents fit the model")
    }
}

/// The decoder of Wan 2.1, latent frames of 16 x 16 to frames of 128 x 128 pixels. They are dropped
/// as they come, as if they were written to a file; the sum of the last one's is returned.
pub(crate) fn wan_vae_decode(latent_frames: usize) -> impl Fn() -> Option<Tensor<1>> {
    let vae = AutoencoderKlWan::new(WanVaeConfig::from_json("{}").expect("defaults are supported"));
    let store = parameters(DType::F32, &[], |weights| vae.declare_decoder(weights));
    let latents = normal([1, 16, latent_frames, 16, 16], &Device::flex());
    move || {
        let mut last = None;
        let mut take = |frame: DecodedFrame| {
            last = Some(frame.pixels.sum());
            Ok::<_, nn::Error>(())
        };
        vae.decode(&Weights::new(&store), latents.clone(), None, &mut take, &mut |_, _| {})
            .expect("the latents fit the model");
        last
    }
}

/// 3 x 3, 128 to 128 channels at 256 x 256.
pub(crate) fn conv2d() -> impl Fn() -> Tensor<4> {
    let device = Device::flex();
    let x = normal([1, 256, 256, 128], &device);
    let weight = normal([128, 128, 3, 3], &device);
    let bias = normal([128], &device);
    let convolution = Convolution { stride: 1, padding: [1; 4], upsample: 1 };
    move || {
        let bias = Some(bias.clone());
        kernels::conv2d(x.clone(), weight.clone(), bias, &convolution, Activation::Identity)
    }
}
