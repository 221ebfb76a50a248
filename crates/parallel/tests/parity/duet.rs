//! Duet: places from positions, a level per token, words, and two voices that hear each other.

use std::sync::Arc;

use burn::tensor::{Device, Tensor, TensorData};
use models::dit::duet::{Duet, DuetConfig};
use nn::{Context, Dit, Inputs, Levels, Modality, Store};
use testkit::numbers::{parameter, tensor};
use testkit::parity::{Question, check};

use super::{SUMS, ulysses};

const BATCH: usize = 2;

/// A picture of `grid` patches, and as many tokens of sound as are asked for.
pub(crate) fn duet(grid: [usize; 3], sound: Option<usize>) -> Question {
    let channels = sound.map(|_| 4);
    let config =
        DuetConfig { heads: 4, head_width: 8, depth: 2, ..DuetConfig::new(5, channels, 3) };
    let model = Duet { config };
    let store = Store::declared(|weights| model.declare(weights), parameter);
    let store = store.expect("the model asks for every parameter with one shape");
    let device = Device::flex();
    let tokens: usize = grid.iter().product();
    let index: Vec<i64> = (0..BATCH * tokens).map(|at| (at % 2) as i64).collect();
    let distinct = (tensor("distinct", [BATCH, 2]) + 1.0) * 500.0;
    let video = Modality {
        tokens: tensor("tokens", [BATCH, tokens, 5]),
        sigma: distinct.clone().narrow(1, 0, 1).reshape([BATCH]) / 1000.0,
        levels: Levels {
            distinct,
            index: Some(Tensor::from_data(TensorData::new(index, [BATCH, tokens]), &device)),
        },
        positions: nn::grid_positions(grid, [1.0; 3], BATCH, &device),
        context: Context::text(tensor("text", [BATCH, 4, 3]), None),
        size: None,
        enabled: true,
        skipped: Vec::new(),
    };
    let audio = sound.map(|tokens| Modality {
        tokens: tensor("sound", [BATCH, tokens, 4]),
        levels: Levels::per_sample(video.sigma.clone() * 700.0),
        positions: nn::grid_positions([tokens], [0.1], BATCH, &device),
        context: Context::text(tensor("words", [BATCH, 3, 3]), None),
        ..video.clone()
    });
    Question { network: Arc::new(model), store, inputs: Inputs { video: Some(video), audio } }
}

#[test]
fn ulysses_with_even_and_uneven_tokens() {
    for (ranks, grid) in [(1, [2, 3, 2]), (2, [2, 3, 2]), (2, [3, 5, 1]), (4, [3, 3, 2])] {
        check(&duet(grid, None), ranks, SUMS, ulysses);
    }
}

/// Each voice is spread by its own number of tokens, and hears the whole of the other.
#[test]
fn ulysses_with_voices_of_different_lengths() {
    for (ranks, sound) in [(1, 7), (2, 7), (2, 4), (4, 5), (4, 18)] {
        check(&duet([3, 3, 2], Some(sound)), ranks, SUMS, ulysses);
    }
}

/// A sound alone is spread like a video.
#[test]
fn ulysses_with_one_voice_alone() {
    for (ranks, sound) in [(1, 7), (2, 7), (4, 5)] {
        let mut question = duet([3, 3, 2], Some(sound));
        question.inputs.video = None;
        check(&question, ranks, SUMS, ulysses);
    }
}
