//! The spatial upsampler of LTX-2's latents (diffusers' `LTX2LatentUpsamplerModel`): convolutions and residual blocks
//! around a step that makes frames larger.
//!
//! It works on latents in the VAE's own scale, `[B, C, F, h, w]`.

use burn::tensor::Tensor;
use kernels::{Activation, CausalFrames, Convolution};
use nn::{ConfigReader, Convolution2d, Convolution3d, Error, GroupNorm, Result, Weights};
use serde_json::json;

use super::LatentUpsampler;
use super::frames::{FrameTensor, clips, frame};

const CONFIG: &str = "the latent upsampler's config.json";
const CLASS: &str = "LTX2LatentUpsamplerModel";

/// Groups of every norm.
const GROUPS: usize = 32;
const EPSILON: f32 = 1e-5;
const LARGEST: usize = 1 << 16;

/// Scales by what frames become larger and then smaller by.
const SCALES: [(f64, [usize; 2]); 4] =
    [(2.0, [2, 1]), (1.5, [3, 2]), (4.0, [4, 1]), (0.75, [3, 4])];

/// Side of the kernel that blurs before frames become smaller.
const BLUR: usize = 5;

/// A config that can be built.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Ltx2UpsamplerConfig {
    /// Channels of a latent.
    pub channels: usize,
    /// Channels inside.
    pub width: usize,
    /// Residual blocks before and after the step.
    pub blocks: usize,
    /// Whether convolutions go over time.
    pub over_time: bool,
    /// What frames become larger by.
    pub larger: usize,
    /// What they become smaller by then, after a blur; the plain step of older files has none.
    pub smaller: Option<usize>,
}

impl Ltx2UpsamplerConfig {
    /// Reads the text of a `config.json`. Missing keys have diffusers' defaults.
    ///
    /// # Errors
    /// It is not such a config, or asks for what is not supported.
    pub fn from_json(text: &str) -> Result<Ltx2UpsamplerConfig> {
        let mut options = ConfigReader::parse(CONFIG, text)?;
        options.class(&[CLASS])?;
        options.must_be_unquantized()?;
        options.must_be_on("spatial_upsample")?;
        options.must_be_off("temporal_upsample", "frames are made larger, not more")?;
        let channels = options.count("in_channels", 128, 1..=LARGEST)?;
        let width = options.count("mid_channels", 1024, 1..=LARGEST)?;
        let blocks = options.count("num_blocks_per_stage", 4, 0..=LARGEST)?;
        let dims = options.count("dims", 3, 2..=3)?;
        let scale = options.number("rational_spatial_scale", 2.0)?;
        let rational = options.flag("use_rational_resampler", true)?;
        options.finish()?;
        if !width.is_multiple_of(GROUPS) {
            let reason = format!("`mid_channels` is {width}, which is no multiple of {GROUPS}");
            return Err(options.contradiction(reason));
        }
        let (larger, smaller) = match rational {
            false => (2, None),
            true => {
                let known = SCALES.iter().find(|(known, _)| *known == scale);
                let Some((_, [larger, smaller])) = known else {
                    let (key, value) = ("rational_spatial_scale", json!(scale));
                    return Err(options.unsupported(key, &value, "2, 1.5, 4, 0.75"));
                };
                (*larger, Some(*smaller))
            }
        };
        let over_time = dims == 3;
        Ok(Ltx2UpsamplerConfig { channels, width, blocks, over_time, larger, smaller })
    }
}

/// The upsampler; its weights are given to each call.
#[derive(Clone, Copy, Debug)]
pub struct Ltx2Upsampler {
    /// What it is made of.
    pub config: Ltx2UpsamplerConfig,
}

impl Ltx2Upsampler {
    /// The model of a `config.json`.
    ///
    /// # Errors
    /// As [`Ltx2UpsamplerConfig::from_json`].
    pub fn from_json(text: &str) -> Result<Ltx2Upsampler> {
        Ok(Ltx2Upsampler { config: Ltx2UpsamplerConfig::from_json(text)? })
    }
}

impl LatentUpsampler for Ltx2Upsampler {
    fn declare(&self, weights: &Weights<'_>) -> Result<()> {
        Network::new(&self.config, weights).map(drop)
    }

    fn latent_channels(&self) -> usize {
        self.config.channels
    }

    fn ratio(&self) -> [usize; 2] {
        [self.config.larger, self.config.smaller.unwrap_or(1)]
    }

    fn enlarge(&self, weights: &Weights<'_>, latents: Tensor<5>) -> Result<Tensor<5>> {
        let [batch, channels, count, height, width] = latents.dims();
        if channels != self.config.channels || count * height * width == 0 {
            return Err(Error::Shape {
                what: "a latent",
                got: format!("{:?}", latents.dims()),
                want: format!(
                    "this upsampler takes [batch, {}, frames, height, width], each at least 1",
                    self.config.channels
                ),
            });
        }
        let network = Network::new(&self.config, weights)?;
        let mut all = Vec::new();
        for sample in 0..batch {
            let frames = (0..count).map(|index| frame(&latents, sample, index)).collect();
            all.extend(network.run(frames)?);
        }
        Ok(clips(all, batch))
    }
}

struct Network {
    config: Ltx2UpsamplerConfig,
    first: (Convolve, GroupNorm),
    before: Vec<Residual>,
    larger: Convolution2d,
    /// `[1, 1, BLUR, BLUR]`.
    blur: Option<Tensor<4>>,
    after: Vec<Residual>,
    last: Convolve,
}

struct Residual {
    convolutions: [Convolve; 2],
    norms: [GroupNorm; 2],
}

/// A convolution that keeps the size, with zeros around, over space or also over time.
enum Convolve {
    Space(Convolution2d),
    Time(Convolution3d),
}

impl Network {
    fn new(config: &Ltx2UpsamplerConfig, weights: &Weights<'_>) -> Result<Network> {
        let Ltx2UpsamplerConfig { channels, width, over_time, larger, .. } = *config;
        let residuals = |name: &str| {
            let block = |at| Residual::new(&weights.at(format!("{name}.{at}")), width, over_time);
            (0..config.blocks).map(block).collect::<Result<Vec<_>>>()
        };
        let step = if config.smaller.is_some() { "upsampler.conv" } else { "upsampler.0" };
        let blur = match config.smaller {
            Some(_) => Some(weights.table("upsampler.blur_down.kernel", [1, 1, BLUR, BLUR])?),
            None => None,
        };
        Ok(Network {
            config: *config,
            first: (
                Convolve::new(weights, "initial_conv", [channels, width], over_time)?,
                weights.group_norm("initial_norm", [width, GROUPS], EPSILON)?,
            ),
            before: residuals("res_blocks")?,
            larger: weights.convolution(step, [width, larger * larger * width], 3)?,
            blur,
            after: residuals("post_upsample_res_blocks")?,
            last: Convolve::new(weights, "final_conv", [width, channels], over_time)?,
        })
    }

    fn run(&self, frames: Vec<FrameTensor>) -> Result<Vec<FrameTensor>> {
        let (convolution, norm) = &self.first;
        let over_time = self.config.over_time;
        let frames = convolution.apply(frames)?;
        let mut frames = normed(norm, frames, over_time, Activation::Silu)?;
        for block in &self.before {
            frames = block.apply(frames, over_time)?;
        }
        frames = self.larger.apply_frames(&frames, &Convolution::padded(1))?;
        frames = frames.into_iter().map(|frame| self.resized(frame)).collect();
        for block in &self.after {
            frames = block.apply(frames, over_time)?;
        }
        self.last.apply(frames)
    }

    /// A frame whose channels are squares of pixels, then blurred and thinned out.
    fn resized(&self, frame: FrameTensor) -> FrameTensor {
        let [height, width, deep] = frame.dims();
        let side = self.config.larger;
        let channels = deep / (side * side);
        let [tall, wide] = [height * side, width * side];
        let frame = frame.reshape([height, width, channels, side, side]).permute([0, 3, 1, 4, 2]);
        let frame = frame.reshape([tall, wide, channels]);
        let (Some(blur), Some(stride)) = (&self.blur, self.config.smaller.filter(|it| *it > 1))
        else {
            return frame;
        };
        // Each channel is an image of its own.
        let images = frame.permute([2, 0, 1]).reshape([channels, tall, wide, 1]);
        let convolution = Convolution { stride, padding: [BLUR / 2; 4], upsample: 1 };
        let made = kernels::conv2d(images, blur.clone(), None, &convolution, Activation::Identity);
        made.squeeze_dim::<3>(3).permute([1, 2, 0])
    }
}

impl Residual {
    fn new(weights: &Weights<'_>, width: usize, over_time: bool) -> Result<Residual> {
        let convolution = |name| Convolve::new(weights, name, [width; 2], over_time);
        let norm = |name| weights.group_norm(name, [width, GROUPS], EPSILON);
        Ok(Residual {
            convolutions: [convolution("conv1")?, convolution("conv2")?],
            norms: [norm("norm1")?, norm("norm2")?],
        })
    }

    fn apply(&self, frames: Vec<FrameTensor>, over_time: bool) -> Result<Vec<FrameTensor>> {
        let [first, second] = &self.convolutions;
        let branch = first.apply(frames.clone())?;
        let branch = normed(&self.norms[0], branch, over_time, Activation::Silu)?;
        let branch = second.apply(branch)?;
        let branch = normed(&self.norms[1], branch, over_time, Activation::Identity)?;
        let both = branch.into_iter().zip(frames);
        Ok(both.map(|(branch, frame)| Activation::Silu.apply(branch + frame)).collect())
    }
}

impl Convolve {
    fn new(
        weights: &Weights<'_>,
        name: &str,
        channels: [usize; 2],
        over_time: bool,
    ) -> Result<Convolve> {
        Ok(match over_time {
            true => Convolve::Time(weights.convolution3d(name, channels, [3; 3])?),
            false => Convolve::Space(weights.convolution(name, channels, 3)?),
        })
    }

    fn apply(&self, mut frames: Vec<FrameTensor>) -> Result<Vec<FrameTensor>> {
        match self {
            Convolve::Space(convolution) => {
                convolution.apply_frames(&frames, &Convolution::padded(1))
            }
            Convolve::Time(convolution) => {
                // A result looks at one frame after its own, and at nothing after the last.
                frames.extend(frames.last().map(Tensor::zeros_like));
                let clip = CausalFrames { earlier: &[], now: &frames };
                let mut made = convolution.apply(clip, 1, None)?;
                made.remove(0);
                Ok(made)
            }
        }
    }
}

/// A norm over whole clips, or over each frame.
fn normed(
    norm: &GroupNorm,
    frames: Vec<FrameTensor>,
    over_time: bool,
    activation: Activation,
) -> Result<Vec<FrameTensor>> {
    let stacked: Tensor<4> = Tensor::stack(frames, 0);
    let [count, height, width, channels] = stacked.dims();
    let made = match over_time {
        true => norm.apply(stacked.reshape([1, count * height, width, channels]), activation)?,
        false => norm.apply(stacked, activation)?,
    };
    let made = made.reshape([count, height, width, channels]);
    Ok(made.iter_dim(0).map(|frame| frame.squeeze_dim(0)).collect())
}
