//! The lists of an `AutoencoderKLLTX2Video` config, as they are written: one entry for each level.

use nn::{ConfigReader, Result};
use serde_json::Value;

use super::config::{DownLevel, Half, LARGEST, Padding, Step, UpLevel};

const DOWN_BLOCK: &str = "LTX2VideoDownBlock3D";

/// Each step halves something; nothing can be halved more often.
const MOST_LEVELS: usize = 16;

/// How steps are called.
const STEPS: [(&str, Step); 3] = [
    ("spatial", Step { time: 1, space: 2 }),
    ("temporal", Step { time: 2, space: 1 }),
    ("spatiotemporal", Step { time: 2, space: 2 }),
];

/// Noise inside the decoder would make every decoding another.
pub(super) fn no_noise(options: &mut ConfigReader) -> Result<()> {
    let key = "decoder_inject_noise";
    let Some(value) = options.take(key) else { return Ok(()) };
    let off = |value: &Value| value.as_bool() == Some(false);
    match off(&value) || value.as_array().is_some_and(|list| list.iter().all(off)) {
        true => Ok(()),
        false => Err(options.unsupported(key, &value, "false, lists of false")),
    }
}

/// A half as it is written: one entry for each level.
pub(super) struct Written {
    widths: Vec<usize>,
    layers: Vec<usize>,
    steps: Vec<Option<Step>>,
    residual: Vec<bool>,
    factors: Vec<usize>,
    causal: bool,
    padding: Padding,
}

pub(super) fn encoder(options: &mut ConfigReader) -> Result<Written> {
    let widths = options.counts("block_out_channels", &[256, 512, 1024, 2048], 1..=LARGEST)?;
    let layers = options.counts("layers_per_block", &[4, 6, 6, 2, 2], 0..=LARGEST)?;
    let levels = widths.len();
    options.repeated("down_block_types", DOWN_BLOCK, levels)?;
    let switches = switches(options, "spatio_temporal_scaling", levels)?;
    let default = ["spatial", "temporal", "spatiotemporal", "spatiotemporal"];
    let key = "downsample_type";
    let steps = steps(options, key, &default, &switches)?;
    check_lengths(
        options,
        levels,
        &[("layers_per_block", layers.len(), 1), (key, steps.len(), 0)],
    )?;
    let padding = options.choice(
        "encoder_spatial_padding_mode",
        &[("zeros", Padding::Zeros), ("reflect", Padding::Reflect)],
    )?;
    let causal = options.flag("encoder_causal", true)?;
    Ok(Written { widths, layers, steps, residual: vec![], factors: vec![], causal, padding })
}

pub(super) fn decoder(options: &mut ConfigReader) -> Result<Written> {
    let mut widths =
        options.counts("decoder_block_out_channels", &[256, 512, 1024], 1..=LARGEST)?;
    let mut layers = options.counts("decoder_layers_per_block", &[5; 4], 0..=LARGEST)?;
    let levels = widths.len();
    let mut on = switches(options, "decoder_spatio_temporal_scaling", levels)?;
    let mut residual = switches(options, "upsample_residual", levels)?;
    let mut factors = options.counts("upsample_factor", &[2; 3], 1..=LARGEST)?;
    // diffusers turns every list around but the kinds of steps.
    for list in [&mut widths, &mut layers, &mut factors] {
        list.reverse();
    }
    for list in [&mut on, &mut residual] {
        list.reverse();
    }
    let steps = steps(options, "upsample_type", &["spatiotemporal"; 3], &on)?;
    let lists = [
        ("decoder_layers_per_block", layers.len(), 1),
        ("upsample_type", steps.len(), 0),
        ("upsample_factor", factors.len(), 0),
        ("upsample_residual", residual.len(), 0),
    ];
    check_lengths(options, levels, &lists)?;
    let padding = options.choice(
        "decoder_spatial_padding_mode",
        &[("reflect", Padding::Reflect), ("zeros", Padding::Zeros)],
    )?;
    let causal = options.flag("decoder_causal", true)?;
    Ok(Written { widths, layers, steps, residual, factors, causal, padding })
}

impl Written {
    /// The levels of an encoder, of which the first is given `inputs` channels.
    pub(super) fn into_encoder(self, mut inputs: usize) -> Half<DownLevel> {
        let mut levels = Vec::new();
        for (at, &outputs) in self.widths.iter().enumerate() {
            let (layers, step) = (self.layers[at], self.steps[at]);
            levels.push(DownLevel { inputs, outputs, layers, step });
            inputs = outputs;
        }
        let layers = self.layers[self.widths.len()];
        Half { levels, width: inputs, layers, causal: self.causal, padding: self.padding }
    }

    /// The levels of a decoder.
    pub(super) fn into_decoder(self) -> Half<UpLevel> {
        let width = self.widths[0];
        let (mut levels, mut inputs) = (Vec::new(), width);
        for (at, &wide) in self.widths.iter().enumerate() {
            let (layers, step, factor) = (self.layers[at + 1], self.steps[at], self.factors[at]);
            let (outputs, residual) = (wide / factor, self.residual[at]);
            levels.push(UpLevel { inputs, outputs, layers, step, factor, residual });
            inputs = outputs;
        }
        let layers = self.layers[0];
        Half { levels, width, layers, causal: self.causal, padding: self.padding }
    }
}

/// A list of switches, or one for all levels; on unless the file says so.
fn switches(options: &mut ConfigReader, key: &'static str, levels: usize) -> Result<Vec<bool>> {
    match options.rest().get(key).and_then(Value::as_bool) {
        Some(all) => {
            options.take(key);
            Ok(vec![all; levels])
        }
        None => options.flags(key, &vec![true; levels]),
    }
}

/// The kinds of the steps that are on.
fn steps(
    options: &mut ConfigReader,
    key: &'static str,
    default: &[&str],
    on: &[bool],
) -> Result<Vec<Option<Step>>> {
    let value = options.take(key).unwrap_or_else(|| Value::from(default.to_vec()));
    let named = |name: &Value| {
        let known = STEPS.iter().find(|(known, _)| name.as_str() == Some(known));
        known.map(|(_, step)| *step)
    };
    let steps: Option<Vec<Step>> =
        value.as_array().and_then(|list| list.iter().map(named).collect());
    let Some(steps) = steps else {
        let supported = "lists of spatial, temporal and spatiotemporal";
        return Err(options.unsupported(key, &value, supported));
    };
    if steps.len() != on.len() {
        let (steps, on) = (steps.len(), on.len());
        return Err(options.contradiction(format!(
            "`{key}` has {steps} entries for {on} levels, each of which has one"
        )));
    }
    Ok(steps.into_iter().zip(on).map(|(step, on)| on.then_some(step)).collect())
}

/// Refuses lists without an entry for each level; those of layers have one more, for the middle.
fn check_lengths(
    options: &ConfigReader,
    levels: usize,
    lists: &[(&str, usize, usize)],
) -> Result<()> {
    if !(1..=MOST_LEVELS).contains(&levels) {
        return Err(options.contradiction(format!(
            "`block_out_channels` and `decoder_block_out_channels` have from 1 to {MOST_LEVELS} entries, not {levels}"
        )));
    }
    match lists.iter().find(|(_, length, more)| *length != levels + more) {
        None => Ok(()),
        Some((key, length, more)) => Err(options.contradiction(format!(
            "`{key}` has {length} entries; with {levels} levels it has {}",
            levels + more
        ))),
    }
}
