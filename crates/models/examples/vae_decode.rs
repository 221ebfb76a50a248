//! Times a VAE decode of Stable Diffusion's sizes, layer by layer:
//! `cargo run --release -p models --example vae_decode -- [latent side] [threads]`.
//!
//! The weights are random; the first pass warms the caches, the second is printed.
#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};

use burn::tensor::{Device, Distribution, Tensor};
use models::vae::Vae;
use models::vae::kl::{AutoencoderKl, KlConfig};
use nn::{Result, Store, Weights};
use testkit::numbers;

#[global_allocator]
static ALLOCATOR: kernels::Allocator = kernels::Allocator;

const CONFIG: &str = r#"{
    "block_out_channels": [128, 256, 512, 512],
    "down_block_types": ["DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D"],
    "up_block_types": ["UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D"],
    "layers_per_block": 2,
    "sample_size": 512
}"#;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).map(|number| number.parse().ok());
    let side = arguments.next().flatten().unwrap_or(64);
    let threads = arguments.next().flatten().unwrap_or(2);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.expect("a thread pool").install(|| run(side))
}

fn run(side: usize) -> Result<()> {
    let device = Device::flex();
    let model = AutoencoderKl::new(KlConfig::from_json(CONFIG)?);
    let store = Store::declared(|weights| model.declare_decoder(weights), numbers::parameter)?;
    let latents = Tensor::random([1, 4, side, side], Distribution::Normal(0.0, 1.0), &device);
    decode(&model, &store, latents.clone())?;
    for (layer, time) in decode(&model, &store, latents)?.iter().enumerate() {
        println!("layer {layer:2}: {:7.1} ms", time.as_secs_f64() * 1e3);
    }
    Ok(())
}

/// The time of every layer.
fn decode(model: &AutoencoderKl, store: &Store, latents: Tensor<4>) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    let start = Instant::now();
    let mut last = start;
    let image = model.decode(&Weights::new(store), latents, None, &mut |_, _| {
        times.push(last.elapsed());
        last = Instant::now();
    })?;
    println!("{:?} in {:.3} s", image.dims(), start.elapsed().as_secs_f64());
    Ok(times)
}
