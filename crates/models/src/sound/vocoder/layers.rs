//! Layers over sounds `[B, T, C]`: convolutions in one dimension, snakes, and filters between sample rates.

use burn::tensor::{Int, Tensor, TensorData};
use kernels::{Activation, Convolution};
use nn::{Result, Weights};

/// A sound or its features, `[B, T, C]`.
pub(super) type Signal = Tensor<3>;

/// A convolution that keeps the length.
pub(super) struct Conv {
    /// `[outputs, inputs, taps, 1]`.
    weight: Tensor<4>,
    bias: Option<Tensor<1>>,
    dilation: usize,
}

/// What a convolution is made of.
#[derive(Clone, Copy)]
pub(super) struct ConvShape {
    pub(super) channels: [usize; 2],
    /// Odd.
    pub(super) taps: usize,
    pub(super) dilation: usize,
    pub(super) bias: bool,
}

impl Conv {
    pub(super) fn new(weights: &Weights<'_>, shape: ConvShape) -> Result<Conv> {
        let ConvShape { channels: [inputs, outputs], taps, dilation, bias } = shape;
        let weight: Tensor<3> = weights.table("weight", [outputs, inputs, taps])?;
        let bias = if bias { Some(weights.table("bias", [outputs])?) } else { None };
        Ok(Conv { weight: weight.reshape([outputs, inputs, taps, 1]), bias, dilation })
    }

    pub(super) fn apply(&self, x: Signal) -> Signal {
        let [batch, length, channels] = x.dims();
        // Samples that a dilated kernel sees together stand below each other in rows of `dilation`.
        let rows = length.div_ceil(self.dilation);
        let x = padded(x, [0, rows * self.dilation - length]);
        let image = x.reshape([batch, rows, self.dilation, channels]);
        let around = self.weight.dims()[2] / 2;
        let convolution = Convolution { stride: 1, padding: [around, 0, around, 0], upsample: 1 };
        let (weight, bias) = (self.weight.clone(), self.bias.clone());
        let made = kernels::conv2d(image, weight, bias, &convolution, Activation::Identity);
        let outputs = made.dims()[3];
        made.reshape([batch, rows * self.dilation, outputs]).narrow(1, 0, length)
    }
}

/// A transposed convolution that makes a sound `factor` times as long.
pub(super) struct Longer {
    /// `[factor outputs, inputs, taps, 1]`: one kernel for each of the samples that one becomes.
    weight: Tensor<4>,
    bias: Tensor<1>,
    factor: usize,
    /// Samples before and after that a kernel sees.
    around: [usize; 2],
}

impl Longer {
    /// `kernel` is `factor` and an even number more.
    pub(super) fn new(
        weights: &Weights<'_>,
        [inputs, outputs]: [usize; 2],
        [factor, kernel]: [usize; 2],
    ) -> Result<Longer> {
        let stored: Tensor<3> = weights.table("weight", [inputs, outputs, kernel])?;
        let padding = (kernel - factor) / 2;
        // Sample `q factor + r` is made of samples `q - m` under tap `r + padding + m factor`.
        let (after, before) = (padding.div_ceil(factor), (kernel - 1 - padding) / factor);
        let taps = before + 1 + after;
        let mut sources = Vec::with_capacity(factor * taps);
        for phase in 0..factor {
            // From the earliest sample that is seen, `q - before`, to the latest.
            sources.extend((0..taps).map(|at| {
                let place = (phase + padding + before * factor).checked_sub(at * factor);
                place.filter(|place| *place < kernel).unwrap_or(kernel) as i64
            }));
        }
        let count = sources.len();
        let sources: Tensor<1, Int> =
            Tensor::from_data(TensorData::new(sources, [count]), &stored.device());
        let nothing = Tensor::zeros([inputs, outputs, 1], &stored.device());
        let weight = Tensor::cat(vec![stored, nothing], 2)
            .select(2, sources)
            .reshape([inputs, outputs, factor, taps])
            .permute([2, 1, 0, 3])
            .reshape([factor * outputs, inputs, taps, 1]);
        let bias: Tensor<1> = weights.table("bias", [outputs])?;
        Ok(Longer { weight, bias: bias.repeat_dim(0, factor), factor, around: [before, after] })
    }

    pub(super) fn apply(&self, x: Signal) -> Signal {
        let [batch, length, channels] = x.dims();
        let [before, after] = self.around;
        let convolution = Convolution { stride: 1, padding: [before, 0, after, 0], upsample: 1 };
        let (weight, bias) = (self.weight.clone(), Some(self.bias.clone()));
        let image = x.reshape([batch, length, 1, channels]);
        let made = kernels::conv2d(image, weight, bias, &convolution, Activation::Identity);
        let outputs = made.dims()[3] / self.factor;
        made.reshape([batch, length * self.factor, outputs])
    }
}

/// `x + sin(a x)² / b` per channel, computed twice as finely where it would alias.
pub(super) struct Snake {
    /// `[1, 1, C]` each.
    alpha: Signal,
    beta: Signal,
    filters: Option<[Vec<f32>; 2]>,
}

impl Snake {
    /// A snake of `width` channels; `taps` are those of the filters around it, if there are any.
    pub(super) fn new(
        weights: &Weights<'_>,
        width: usize,
        own_beta: bool,
        taps: Option<usize>,
    ) -> Result<Snake> {
        let inner = if taps.is_some() { weights.at("act") } else { weights.clone() };
        let parameter = |name| -> Result<Signal> {
            let values: Tensor<1> = inner.table(name, [width])?;
            Ok(values.exp().reshape([1, 1, width]))
        };
        let alpha = parameter("alpha")?;
        let beta = if own_beta { parameter("beta")? } else { alpha.clone() };
        let filter = |name: &str, taps: usize| -> Result<Vec<f32>> {
            let stored: Tensor<3> = weights.at(name).table("filter", [1, 1, taps])?;
            Ok(stored.into_data().try_to_vec().expect("a table is f32"))
        };
        let filters = match taps {
            Some(taps) => Some([filter("upsample", taps)?, filter("downsample", taps)?]),
            None => None,
        };
        Ok(Snake { alpha, beta: beta + 1e-9, filters })
    }

    pub(super) fn apply(&self, x: Signal) -> Signal {
        let Some([up, down]) = &self.filters else { return self.bend(x) };
        coarser(self.bend(finer(x, up)), down)
    }

    fn bend(&self, x: Signal) -> Signal {
        let sine = (x.clone() * self.alpha.clone()).sin();
        x + sine.clone() * sine / self.beta.clone()
    }
}

/// Twice as many samples through a filter, the ends repeated.
fn finer(x: Signal, filter: &[f32]) -> Signal {
    let (ratio, taps) = (2, filter.len());
    let pad = taps / ratio - 1;
    interpolated(x, filter, ratio, [pad, pad * ratio + (taps - ratio) / 2])
}

/// `ratio` times as many samples: zeros between samples, then a filter, with the first `skipped` results of a sound
/// whose ends are repeated `pad` times left out.
pub(super) fn interpolated(
    x: Signal,
    filter: &[f32],
    ratio: usize,
    [pad, skipped]: [usize; 2],
) -> Signal {
    let [batch, length, channels] = x.dims();
    let x = repeated_ends(x, [pad; 2]);
    let phases = (0..ratio).map(|phase| {
        let taps = (0..=(phase + skipped) / ratio)
            .filter_map(|at| Some((at, *filter.get(phase + skipped - at * ratio)?)));
        let parts = taps.map(|(at, tap)| x.clone().narrow(1, at, length) * (tap * ratio as f32));
        parts.reduce(|sum, part| sum + part).unwrap_or_else(|| x.clone().narrow(1, 0, length) * 0.0)
    });
    Tensor::stack::<4>(phases.collect(), 2).reshape([batch, length * ratio, channels])
}

/// Half as many samples through a filter of an even number of taps, the ends repeated.
fn coarser(x: Signal, filter: &[f32]) -> Signal {
    let [batch, length, channels] = x.dims();
    let (taps, count) = (filter.len(), length.div_ceil(2));
    let x = repeated_ends(x, [taps / 2 - 1, taps / 2]);
    let whole = x.dims()[1];
    let pairs = padded(x, [0, whole % 2]).reshape([batch, whole.div_ceil(2), 2, channels]);
    let phases = [0, 1].map(|phase| pairs.clone().narrow(2, phase, 1).squeeze_dim::<3>(2));
    let parts = filter.iter().enumerate().map(|(at, tap)| {
        let from = phases[at % 2].clone();
        from.narrow(1, at / 2, count) * *tap
    });
    parts.reduce(|sum, part| sum + part).expect("a filter has taps")
}

fn repeated_ends(x: Signal, [before, after]: [usize; 2]) -> Signal {
    let length = x.dims()[1];
    let first = x.clone().narrow(1, 0, 1).repeat_dim(1, before);
    let last = x.clone().narrow(1, length - 1, 1).repeat_dim(1, after);
    Tensor::cat(vec![first, x, last], 1)
}

/// With zeros before and after.
pub(super) fn padded(x: Signal, [before, after]: [usize; 2]) -> Signal {
    if before + after == 0 {
        return x;
    }
    let [batch, _, channels] = x.dims();
    let zeros = |count| Tensor::zeros([batch, count, channels], &x.device());
    let parts =
        [(before > 0).then(|| zeros(before)), Some(x.clone()), (after > 0).then(|| zeros(after))];
    Tensor::cat(parts.into_iter().flatten().collect(), 1)
}

/// Leaky rectification.
pub(super) fn leaky(x: Signal, slope: f64) -> Signal {
    x.clone().clamp_min(0.0) + x.clamp_max(0.0) * slope
}
