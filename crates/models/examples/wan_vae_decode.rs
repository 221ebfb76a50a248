//! Times a decode of Wan 2.1's sizes and says what memory it took:
//! `cargo run --release -p models --example wan_vae_decode -- [height] [width] [frames] [threads]`.
//!
//! Sizes are in pixels, the weights random. Each line is a frame as it is handed out.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use burn::tensor::{Device, Distribution, Tensor};
use models::vae::Vae;
use models::vae::wan::{AutoencoderKlWan, DecodedFrame, WanVaeConfig};
use nn::{Error, Result, Store, Weights};
use testkit::numbers;

#[global_allocator]
static ALLOCATOR: kernels::Allocator = kernels::Allocator;

fn main() -> Result<()> {
    let numbers: Vec<usize> =
        std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let number = |index: usize, otherwise| numbers.get(index).copied().unwrap_or(otherwise);
    let [height, width, frames] = [number(0, 128), number(1, 128), number(2, 9)];
    let pool = rayon::ThreadPoolBuilder::new().num_threads(number(3, 2)).build();
    pool.expect("a thread pool").install(|| run(height, width, frames))
}

fn run(height: usize, width: usize, frames: usize) -> Result<()> {
    let device = Device::flex();
    let model = AutoencoderKlWan::new(WanVaeConfig::from_json("{}")?);
    let store = Store::declared(|weights| model.declare_decoder(weights), numbers::parameter)?;
    let shape = [1, 16, 1 + (frames - 1) / 4, height / 8, width / 8];
    let latents = Tensor::random(shape, Distribution::Normal(0.0, 1.0), &device);
    println!("weights: {}", resident());
    let start = Instant::now();
    let mut take = |frame: DecodedFrame| {
        let seconds = start.elapsed().as_secs_f64();
        println!("frame {:3} after {seconds:7.2} s, {}", frame.index, resident());
        Ok::<_, Error>(())
    };
    model.decode(&Weights::new(&store), latents, None, &mut take, &mut |_, _| {})
}

/// The resident size and its peak, where the system tells.
fn resident() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let lines =
        status.lines().filter(|line| line.starts_with("VmHWM") || line.starts_with("VmRSS"));
    lines
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect::<Vec<_>>()
        .join(", ")
}
