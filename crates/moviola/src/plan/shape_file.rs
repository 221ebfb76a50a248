//! Files that give the sizes of a model, whether we have its family or not.

use std::path::Path;

use nn::Tracks;
use parallel::cost::{Shape, TextRole, TextShape, Work};
use serde::Deserialize;

use crate::failure::Outcome;
use crate::hardware::{wrong, yaml};

/// More than any size of a model, so that products of sizes are numbers.
const MOST: usize = 1 << 24;

/// A shape file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShapeFile {
    /// Its name in tables.
    pub(super) name: String,
    layers: usize,
    width: usize,
    heads: usize,
    feed_forward: usize,
    #[serde(default)]
    modulation: usize,
    streams: Streams,
    channels: usize,
    #[serde(default)]
    text: Option<TextFile>,
    #[serde(default = "two")]
    parameter_bytes: u64,
    #[serde(default)]
    latent_rows: Option<usize>,
    steps: usize,
    #[serde(default = "one")]
    branches: usize,
    #[serde(default = "one")]
    samples: usize,
    /// Operations of the text encoder.
    #[serde(default)]
    encode_flops: f64,
    /// Operations of the VAE for one sample.
    #[serde(default)]
    decode_flops: f64,
    #[serde(default)]
    decode_bytes: f64,
    #[serde(default)]
    other_bytes: f64,
}

/// Tokens of each stream.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Streams {
    #[serde(default)]
    video: Option<usize>,
    #[serde(default)]
    audio: Option<usize>,
}

/// The text.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct TextFile {
    tokens: usize,
    width: usize,
    /// Whether text and tokens are one sequence.
    #[serde(default)]
    joint: bool,
    /// Blocks in which joint text has matrices of its own.
    #[serde(default)]
    own_layers: usize,
}

fn one() -> usize {
    1
}

fn two() -> u64 {
    2
}

/// What is asked for beside the file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Instead {
    pub(super) steps: Option<usize>,
    pub(super) branches: Option<usize>,
    pub(super) samples: Option<usize>,
}

/// Reads a shape file.
///
/// # Errors
/// It cannot be read, is not YAML of that form, or has a number that cannot be.
pub(super) fn read(path: &Path, instead: Instead) -> Outcome<(String, Work)> {
    let mut file: ShapeFile = yaml(path, "MODEL")?;
    file.steps = instead.steps.unwrap_or(file.steps);
    file.branches = instead.branches.unwrap_or(file.branches);
    file.samples = instead.samples.unwrap_or(file.samples);
    let name = file.name.clone();
    let shape = file.checked().map_err(|reason| wrong("MODEL", path, &reason))?;
    Ok((name, shape.work()))
}

impl TextFile {
    fn checked(self) -> Result<TextShape, String> {
        let role = match self.joint {
            true => TextRole::Joint { own_layers: self.own_layers },
            false if self.own_layers > 0 => {
                return Err("`text.own_layers` is for joint text".to_owned());
            }
            false => TextRole::Cross,
        };
        Ok(TextShape { tokens: self.tokens, width: self.width, role })
    }
}

impl ShapeFile {
    fn checked(self) -> Result<Shape, String> {
        let text = |of: fn(&TextFile) -> usize| self.text.as_ref().map_or(1, of);
        let sizes = [
            ("layers", self.layers),
            ("width", self.width),
            ("heads", self.heads),
            ("feed_forward", self.feed_forward),
            ("streams.video", self.streams.video.unwrap_or(1)),
            ("streams.audio", self.streams.audio.unwrap_or(1)),
            ("channels", self.channels),
            ("text.tokens", text(|own| own.tokens)),
            ("text.width", text(|own| own.width)),
            ("latent_rows", self.latent_rows.unwrap_or(1)),
            ("steps", self.steps),
            ("branches", self.branches),
            ("samples", self.samples),
            ("parameter_bytes", self.parameter_bytes as usize),
        ];
        if let Some((key, value)) = sizes.into_iter().find(|(_, it)| !(1..=MOST).contains(it)) {
            return Err(format!("`{key}` is {value}; choose 1 to {MOST}"));
        }
        if self.layers > 4096 || self.modulation > 64 {
            return Err("`layers` is 4096 at the most, `modulation` 64".to_owned());
        }
        if self.streams.video.or(self.streams.audio).is_none() {
            return Err(
                "`streams` is empty; give the tokens of `video`, `audio` or both".to_owned()
            );
        }
        if !self.width.is_multiple_of(self.heads) {
            return Err(format!(
                "`width` {} is not a multiple of `heads` {}",
                self.width, self.heads
            ));
        }
        let amounts = [
            ("encode_flops", self.encode_flops),
            ("decode_flops", self.decode_flops),
            ("decode_bytes", self.decode_bytes),
            ("other_bytes", self.other_bytes),
        ];
        if let Some((key, value)) =
            amounts.into_iter().find(|(_, it)| !(*it >= 0.0 && it.is_finite()))
        {
            return Err(format!("`{key}` is {value}; give a number from 0 on"));
        }
        Ok(Shape {
            layers: self.layers,
            width: self.width,
            heads: self.heads,
            feed_forward: self.feed_forward,
            modulation: self.modulation,
            tokens: Tracks { video: self.streams.video, audio: self.streams.audio },
            channels: self.channels,
            text: self.text.map(TextFile::checked).transpose()?,
            parameter_bytes: self.parameter_bytes,
            branches: self.branches,
            steps: self.steps,
            samples: self.samples,
            latent_rows: self.latent_rows,
            before: self.encode_flops,
            decode: self.decode_flops,
            decode_bytes: self.decode_bytes as u64,
            other_bytes: self.other_bytes as u64,
        })
    }
}
