//! The layers of both halves, and a half as a list of them.
//!
//! Everything here is channels-last, `[B, H, W, C]`. A layer is built from the checkpoint just
//! before it runs and dropped after.

use burn::tensor::Tensor;
use kernels::{Activation, Convolution};
use nn::{Convolution2d, Error, GroupNorm, Linear, PixelAttention, Result, Weights};

/// All norms of the family add this to the variance.
const EPSILON: f32 = 1e-6;

/// A network as a list of layers, each by its name in the checkpoint.
pub(super) struct Network {
    groups: usize,
    layers: Vec<(String, Kind)>,
}

/// What a layer is; `channels` are its inputs and outputs.
enum Kind {
    Convolution { channels: [usize; 2], kernel: usize },
    Residual { channels: [usize; 2] },
    Attention { width: usize },
    Upsample { width: usize },
    Downsample { width: usize },
    Norm { width: usize },
}

impl Network {
    pub(super) fn new(groups: usize) -> Network {
        Network { groups, layers: Vec::new() }
    }

    /// A convolution that keeps the size.
    pub(super) fn convolution(&mut self, name: &str, channels: [usize; 2], kernel: usize) {
        self.push(name, Kind::Convolution { channels, kernel });
    }

    /// Two norms and convolutions beside a shortcut.
    pub(super) fn residual(&mut self, name: &str, channels: [usize; 2]) {
        self.push(name, Kind::Residual { channels });
    }

    /// The blocks between encoder and decoder proper.
    pub(super) fn middle(&mut self, name: &str, width: usize, attention: bool) {
        self.residual(&format!("{name}.resnets.0"), [width; 2]);
        if attention {
            self.push(&format!("{name}.attentions.0"), Kind::Attention { width });
        }
        self.residual(&format!("{name}.resnets.1"), [width; 2]);
    }

    /// A convolution of the image at twice its size.
    pub(super) fn upsample(&mut self, name: &str, width: usize) {
        self.push(name, Kind::Upsample { width });
    }

    /// A convolution to half the size.
    pub(super) fn downsample(&mut self, name: &str, width: usize) {
        self.push(name, Kind::Downsample { width });
    }

    /// A norm with its activation.
    pub(super) fn norm(&mut self, name: &str, width: usize) {
        self.push(name, Kind::Norm { width });
    }

    fn push(&mut self, name: &str, kind: Kind) {
        self.layers.push((name.to_owned(), kind));
    }

    /// How many layers there are.
    pub(super) fn depth(&self) -> usize {
        self.layers.len()
    }

    /// Asks for every parameter once.
    pub(super) fn declare(&self, weights: &Weights<'_>) -> Result<()> {
        self.layers.iter().try_for_each(|(name, kind)| self.build(weights, name, kind).map(drop))
    }

    /// Runs all layers on `[B, H, W, C]`, telling after each.
    pub(super) fn run(
        &self,
        weights: &Weights<'_>,
        mut x: Tensor<4>,
        mut done: impl FnMut(),
    ) -> Result<Tensor<4>> {
        for (name, kind) in &self.layers {
            x = self.build(weights, name, kind)?.apply(x)?;
            done();
        }
        Ok(x)
    }

    fn build(&self, weights: &Weights<'_>, name: &str, kind: &Kind) -> Result<Box<dyn Layer>> {
        let groups = self.groups;
        let convolution = |channels, kernel, convolution| {
            let parameters = weights.convolution(name, channels, kernel)?;
            Ok(Box::new(Convolve { parameters, convolution }) as Box<dyn Layer>)
        };
        match *kind {
            Kind::Convolution { channels, kernel } => {
                convolution(channels, kernel, Convolution::padded(kernel / 2))
            }
            Kind::Upsample { width } => convolution([width; 2], 3, ENLARGING),
            Kind::Downsample { width } => convolution([width; 2], 3, HALVING),
            Kind::Norm { width } => Ok(Box::new(Norm::new(weights, name, width, groups)?)),
            Kind::Residual { channels } => {
                Ok(Box::new(Residual::new(&weights.at(name), channels, groups)?))
            }
            Kind::Attention { width } => {
                Ok(Box::new(Attention::new(&weights.at(name), width, groups)?))
            }
        }
    }
}

/// What happens to an image `[B, H, W, C]`.
trait Layer {
    fn apply(&self, x: Tensor<4>) -> Result<Tensor<4>>;
}

/// Each pixel four times, then a convolution that keeps that size.
const ENLARGING: Convolution = Convolution { stride: 1, padding: [1; 4], upsample: 2 };

/// Every second pixel, with the one row and column of zeros below and on the right.
const HALVING: Convolution = Convolution { stride: 2, padding: [0, 0, 1, 1], upsample: 1 };

struct Convolve {
    parameters: Convolution2d,
    convolution: Convolution,
}

impl Layer for Convolve {
    fn apply(&self, x: Tensor<4>) -> Result<Tensor<4>> {
        self.parameters.apply(x, &self.convolution)
    }
}

/// A norm with its activation.
struct Norm(GroupNorm);

impl Norm {
    fn new(weights: &Weights<'_>, name: &str, width: usize, groups: usize) -> Result<Norm> {
        weights.group_norm(name, [width, groups], EPSILON).map(Norm)
    }
}

impl Layer for Norm {
    fn apply(&self, x: Tensor<4>) -> Result<Tensor<4>> {
        self.0.apply(x, Activation::Silu)
    }
}

/// `shortcut(x) + convolution(norm(convolution(norm(x))))`.
struct Residual {
    norms: [Norm; 2],
    convolutions: [Convolution2d; 2],
    /// There where the number of channels changes.
    shortcut: Option<Convolution2d>,
}

impl Residual {
    fn new(weights: &Weights<'_>, channels: [usize; 2], groups: usize) -> Result<Residual> {
        let [inputs, outputs] = channels;
        let shortcut = match inputs == outputs {
            true => None,
            false => Some(weights.convolution("conv_shortcut", channels, 1)?),
        };
        Ok(Residual {
            norms: [
                Norm::new(weights, "norm1", inputs, groups)?,
                Norm::new(weights, "norm2", outputs, groups)?,
            ],
            convolutions: [
                weights.convolution("conv1", channels, 3)?,
                weights.convolution("conv2", [outputs; 2], 3)?,
            ],
            shortcut,
        })
    }
}

impl Layer for Residual {
    fn apply(&self, x: Tensor<4>) -> Result<Tensor<4>> {
        let mut branch = x.clone();
        for (norm, convolution) in self.norms.iter().zip(&self.convolutions) {
            branch = convolution.apply(norm.apply(branch)?, &Convolution::padded(1))?;
        }
        Ok(match &self.shortcut {
            Some(shortcut) => shortcut.apply(x, &Convolution::padded(0))? + branch,
            None => x + branch,
        })
    }
}

/// One head as wide as the image has channels, over all pixels.
struct Attention {
    norm: GroupNorm,
    pixels: PixelAttention,
    q: Linear,
    k: Linear,
    v: Linear,
    out: Linear,
}

impl Attention {
    fn new(weights: &Weights<'_>, width: usize, groups: usize) -> Result<Attention> {
        let old = !weights.has("to_q.weight") && weights.has("query.weight");
        let [q, k, v, out] = match old {
            true => ["query", "key", "value", "proj_attn"],
            false => ["to_q", "to_k", "to_v", "to_out.0"],
        };
        Ok(Attention {
            norm: weights.group_norm("group_norm", [width, groups], EPSILON)?,
            pixels: weights.pixel_attention(),
            q: projection(weights, q, width)?,
            k: projection(weights, k, width)?,
            v: projection(weights, v, width)?,
            out: projection(weights, out, width)?,
        })
    }
}

/// A matrix, which the oldest checkpoints hold as a convolution of one pixel.
fn projection(weights: &Weights<'_>, name: &str, width: usize) -> Result<Linear> {
    let pixel = [width, width, 1, 1];
    match weights.linear(name, width, width) {
        Err(Error::Misshapen { got, .. }) if got == pixel => weights.patch_projection(name, &pixel),
        linear => linear,
    }
}

impl Layer for Attention {
    fn apply(&self, x: Tensor<4>) -> Result<Tensor<4>> {
        let [batch, height, width, channels] = x.dims();
        let pixels = self.norm.apply(x.clone(), Activation::Identity)?;
        let pixels = pixels.reshape([batch, height * width, channels]);
        let q = self.q.apply(pixels.clone())?;
        let (k, v) = (self.k.apply(pixels.clone())?, self.v.apply(pixels)?);
        let mixed = self.out.apply(self.pixels.apply([q, k, v])?)?;
        Ok(x + mixed.reshape([batch, height, width, channels]))
    }
}
