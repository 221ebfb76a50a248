//! LTX-2: heads that are not alike, gates, and two streams of different widths and lengths.

use std::sync::Arc;

use burn::tensor::{Device, Tensor, TensorData};
use comm::Group;
use models::dit::ltx2::{CrossLevels, Ltx2, Ltx2Config};
use nn::{Context, Dit, Inputs, Levels, Modality, Schedule, Split, Store};
use parallel::Sharded;
use testkit::numbers::{parameter, tensor};
use testkit::parity::{Bounds, Question, check};

use super::{SUMS, ulysses};

const BATCH: usize = 2;

/// Tensor ranks sum in another order everywhere.
const ROUNDING: Bounds = Bounds { tokens: 1e-5, parameters: 4e-5 };

/// How its layers split over ranks.
const SPLITS: &[(&str, Split)] = &[
    ("to_q", Split::Columns),
    ("to_k", Split::Columns),
    ("to_v", Split::Columns),
    ("to_gate_logits", Split::Columns),
    ("to_out.0", Split::Rows),
    ("norm_q", Split::Channels),
    ("norm_k", Split::Channels),
    ("net.0.proj", Split::Columns),
    ("net.2", Split::Rows),
];

/// A video of `grid` tokens and `sound` tokens of sound, for LTX-2.3 or, without gates and with the other
/// rope, 2.0.
fn ltx2(newer: bool, grid: [usize; 3], sound: usize) -> Question {
    let config = format!(
        r#"{{ "num_attention_heads": 4, "attention_head_dim": 6, "cross_attention_dim": 24, "num_layers": 2,
        "in_channels": 5, "out_channels": 5, "audio_num_attention_heads": 4, "audio_attention_head_dim": 4,
        "audio_cross_attention_dim": 16, "audio_in_channels": 3, "audio_out_channels": 3, "caption_channels": 7,
        "rope_type": "{}", "use_prompt_embeddings": {}, "gated_attn": {newer}, "audio_gated_attn": {newer},
        "cross_attn_mod": {newer}, "audio_cross_attn_mod": {newer} }}"#,
        if newer { "split" } else { "interleaved" },
        !newer,
    );
    let config = Ltx2Config::from_json(&config).unwrap();
    let model = Ltx2 { config, cross_levels: CrossLevels::Original };
    let store = Store::declared(|weights| model.declare(weights), parameter);
    let store = store.expect("the model asks for every parameter with one shape");
    let device = Device::flex();
    let tokens: usize = grid.iter().product();
    let index: Vec<i64> = (0..BATCH * tokens).map(|at| (at % 3 / 2) as i64).collect();
    let distinct = (tensor("distinct", [BATCH, 2]) + 1.0) * 500.0;
    let widths = if newer { [24, 16] } else { [7, 7] };
    let video = Modality {
        tokens: tensor("tokens", [BATCH, tokens, 5]),
        sigma: distinct.clone().narrow(1, 0, 1).reshape([BATCH]) / 1000.0,
        levels: Levels {
            distinct,
            index: Some(Tensor::from_data(TensorData::new(index, [BATCH, tokens]), &device)),
        },
        positions: nn::grid_positions(grid, [0.3, 32.0, 32.0], BATCH, &device),
        context: Context::text(tensor("text", [BATCH, 4, widths[0]]), None),
        size: None,
        enabled: true,
        skipped: Vec::new(),
    };
    let sigma = video.sigma.clone() * 0.7;
    let audio = Modality {
        tokens: tensor("sound", [BATCH, sound, 3]),
        levels: Levels::per_sample(sigma.clone() * 1000.0),
        sigma,
        positions: nn::grid_positions([sound], [0.04], BATCH, &device),
        context: Context::text(tensor("words", [BATCH, 3, widths[1]]), None),
        ..video.clone()
    };
    let inputs = Inputs { video: Some(video), audio: Some(audio) };
    Question { network: Arc::new(model), store, inputs }
}

#[test]
fn ulysses_with_streams_of_different_lengths() {
    for (newer, ranks, sound) in
        [(true, 1, 7), (true, 2, 7), (false, 2, 4), (true, 4, 5), (false, 4, 18)]
    {
        check(&ltx2(newer, [3, 3, 2], sound), ranks, SUMS, ulysses);
    }
}

/// A rank turns its own heads by their own bands.
#[test]
fn tensor_ranks_hold_some_of_the_heads() {
    let tensor = |group: &Group| Box::new(Sharded::tensor(group, SPLITS)) as Box<dyn Schedule>;
    for (newer, ranks) in [(true, 2), (false, 2), (true, 4), (false, 4)] {
        check(&ltx2(newer, [2, 3, 2], 5), ranks, ROUNDING, tensor);
    }
}

#[test]
fn ulysses_with_one_stream_alone() {
    for ranks in [2, 4] {
        let mut question = ltx2(true, [3, 3, 2], 5);
        question.inputs.video = None;
        check(&question, ranks, SUMS, ulysses);
        let mut question = ltx2(true, [3, 3, 2], 5);
        question.inputs.audio = None;
        check(&question, ranks, SUMS, ulysses);
    }
}
