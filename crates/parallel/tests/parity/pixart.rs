//! PixArt: positions of a picture, its size as a condition, masked text.

use burn::tensor::{Device, Tensor, TensorData};
use models::dit::pixart::{Pixart, PixartConfig};
use nn::{Context, Dit, Inputs, Levels, Modality, SizeCondition, Store};
use testkit::numbers::{parameter, tensor};
use testkit::parity::{Question, check};

use super::{TOLERANCE, ulysses};

const BATCH: usize = 2;

pub(crate) fn pixart(grid: [usize; 2]) -> Question<Pixart> {
    let model = Pixart { config: config() };
    let store = Store::declared(|weights| model.declare(weights), parameter);
    let store = store.expect("the model asks for every parameter with one shape");
    let device = Device::flex();
    let tokens: usize = grid.iter().product();
    let channels = model.config.in_channels * model.config.patch * model.config.patch;
    let sigma = (tensor::<1>("sigma", [BATCH]) + 1.0) / 2.0;
    let mask = TensorData::new(vec![1.0_f32, 1.0, 1.0, 1.0, 1.0, 0.0], [BATCH, 3]);
    let text = tensor("text", [BATCH, 3, model.config.caption_width]);
    let video = Modality {
        tokens: tensor("tokens", [BATCH, tokens, channels]),
        levels: Levels::per_sample(sigma.clone() * 1000.0),
        sigma,
        positions: model.positions(grid, BATCH, &device),
        context: Context::text(text, Some(Tensor::from_data(mask, &device))),
        size: Some(SizeCondition {
            resolution: (tensor::<2>("size", [BATCH, 2]) + 2.0) * 100.0,
            aspect_ratio: tensor::<2>("ratio", [BATCH, 1]) + 2.0,
        }),
        enabled: true,
    };
    Question { model, store, inputs: Inputs::video(video) }
}

/// Four heads, two blocks, and the size of the picture as a condition.
fn config() -> PixartConfig {
    PixartConfig {
        heads: 4,
        head_width: 6,
        depth: 2,
        in_channels: 3,
        out_channels: 6,
        patch: 2,
        sample_size: 16,
        interpolation_scale: 1.0,
        caption_width: 7,
        takes_size: true,
        epsilon: 1e-6,
    }
}

#[test]
fn ulysses_with_even_and_uneven_tokens() {
    for (ranks, grid) in [(1, [3, 4]), (2, [3, 4]), (2, [3, 5]), (4, [3, 3])] {
        check(&pixart(grid), ranks, TOLERANCE, ulysses);
    }
}
