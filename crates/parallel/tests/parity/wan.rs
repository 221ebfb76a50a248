//! Wan with all it can be given: rope from positions, a level per token, text and a picture.

use burn::tensor::{Device, Tensor, TensorData};
use models::dit::wan::{PictureConfig, Wan, WanConfig};
use nn::{Context, Dit, Inputs, Levels, Modality, Store};
use testkit::numbers::{parameter, tensor};
use testkit::parity::{Question, check};

use super::{TOLERANCE, ulysses};

const BATCH: usize = 2;

/// Two samples of a small video, `grid` in patches.
pub(crate) fn wan(grid: [usize; 3]) -> Question<Wan> {
    let model = Wan {
        config: WanConfig {
            heads: 4,
            head_width: 10,
            depth: 2,
            in_channels: 3,
            out_channels: 2,
            text_width: 7,
            timestep_width: 8,
            feed_width: 23,
            picture: Some(PictureConfig { width: 5, tokens: Some(6) }),
            ..WanConfig::t2v_1_3b()
        },
    };
    let store = Store::declared(|weights| model.declare(weights), parameter);
    let store = store.expect("the model asks for every parameter with one shape");
    let device = Device::flex();
    let tokens: usize = grid.iter().product();
    let index: Vec<i64> = (0..BATCH * tokens).map(|at| (at * at % 3) as i64).collect();
    let distinct = (tensor("distinct", [BATCH, 3]) + 1.0) * 500.0;
    let video = Modality {
        tokens: tensor("tokens", [BATCH, tokens, 12]),
        sigma: distinct.clone().narrow(1, 0, 1).reshape([BATCH]) / 1000.0,
        levels: Levels {
            distinct,
            index: Some(Tensor::from_data(TensorData::new(index, [BATCH, tokens]), &device)),
        },
        positions: model.positions(grid, BATCH, &device),
        context: Context {
            tokens: tensor("text", [BATCH, 3, 7]),
            mask: None,
            image: Some(tensor("image", [BATCH, 6, 5])),
        },
        size: None,
        enabled: true,
    };
    Question { model, store, inputs: Inputs::video(video) }
}

#[test]
fn ulysses_with_even_and_uneven_tokens() {
    for (ranks, grid) in [(1, [2, 3, 2]), (2, [2, 3, 2]), (2, [3, 5, 1]), (4, [3, 3, 2])] {
        check(&wan(grid), ranks, TOLERANCE, ulysses);
    }
}
