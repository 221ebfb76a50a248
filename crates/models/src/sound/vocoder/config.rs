//! What configs of diffusers' `LTX2Vocoder` and `LTX2VocoderWithBWE` say, checked.

use nn::{ConfigReader, Result};
use serde_json::Value;

const CONFIG: &str = "the vocoder's config.json";
const PLAIN: &str = "LTX2Vocoder";
const EXTENDED: &str = "LTX2VocoderWithBWE";

const LARGEST: usize = 1 << 16;

/// The activation of a generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Leaky rectification.
    Leaky,
    /// `x + sin(a x)² / b`.
    SnakeBeta,
    /// The same, of one parameter.
    Snake,
}

/// What a waveform passes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The hyperbolic tangent.
    Tanh,
    /// What is beyond -1 and 1 is cut.
    Clamp,
    /// Nothing.
    None,
}

/// A step up of a generator: how many times longer, by what kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// How many times longer.
    pub factor: usize,
    /// Taps of the transposed convolution.
    pub kernel: usize,
}

/// A generator: from frames of features to samples.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GeneratorConfig {
    /// Features of a frame.
    pub in_channels: usize,
    /// Width of the first stage; each stage halves it.
    pub width: usize,
    /// Channels of the waveform.
    pub out_channels: usize,
    /// The stages.
    pub stages: Vec<Stage>,
    /// Taps and dilations of the residual blocks of every stage.
    pub blocks: Vec<(usize, Vec<usize>)>,
    /// The activation.
    pub act: Act,
    /// Of the leaky rectification.
    pub slope: f64,
    /// How many times finer activations are computed, and by how many taps; not at all where it is none.
    pub antialias: bool,
    /// How many times finer.
    pub ratio: usize,
    /// By how many taps.
    pub taps: usize,
    /// What the waveform passes last.
    pub bound: Bound,
    /// Whether the last convolution adds a bias.
    pub final_bias: bool,
}

/// The second half of a vocoder that extends the bandwidth.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ExtensionConfig {
    /// Makes what the first waveform lacks.
    pub generator: GeneratorConfig,
    /// Samples of a spectrum.
    pub filter: usize,
    /// Samples from one spectrum to the next.
    pub hop: usize,
    /// Samples under the window, which says how many zeros stand before a clip.
    pub window: usize,
    /// Bands of a spectrum.
    pub bins: usize,
    /// How many times finer the result is.
    pub ratio: usize,
}

/// A config that can be built.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct VocoderConfig {
    /// From spectrograms to waveforms.
    pub generator: GeneratorConfig,
    /// From those to wider ones.
    pub extension: Option<ExtensionConfig>,
    /// Samples per second of the result.
    pub sample_rate: u32,
}

/// How the keys of a generator are called, and what is meant where they are missing.
struct Keys {
    names: [&'static str; 14],
    sizes: [usize; 2],
    kernels: &'static [usize],
    factors: &'static [usize],
    snake: bool,
}

const PLAIN_NAMES: [&str; 14] = [
    "in_channels",
    "hidden_channels",
    "out_channels",
    "upsample_kernel_sizes",
    "upsample_factors",
    "resnet_kernel_sizes",
    "resnet_dilations",
    "act_fn",
    "leaky_relu_negative_slope",
    "antialias",
    "antialias_ratio",
    "antialias_kernel_size",
    "final_act_fn",
    "final_bias",
];

const EXTENDED_NAMES: [&str; 14] = [
    "bwe_in_channels",
    "bwe_hidden_channels",
    "bwe_out_channels",
    "bwe_upsample_kernel_sizes",
    "bwe_upsample_factors",
    "bwe_resnet_kernel_sizes",
    "bwe_resnet_dilations",
    "bwe_act_fn",
    "bwe_leaky_relu_negative_slope",
    "bwe_antialias",
    "bwe_antialias_ratio",
    "bwe_antialias_kernel_size",
    "bwe_final_act_fn",
    "bwe_final_bias",
];

const FIRST: Keys = Keys {
    names: PLAIN_NAMES,
    sizes: [128, 1024],
    kernels: &[16, 15, 8, 4, 4],
    factors: &[6, 5, 2, 2, 2],
    snake: false,
};

const FIRST_OF_TWO: Keys = Keys {
    names: PLAIN_NAMES,
    sizes: [128, 1536],
    kernels: &[11, 4, 4, 4, 4, 4],
    factors: &[5, 2, 2, 2, 2, 2],
    snake: true,
};

const SECOND: Keys = Keys {
    names: EXTENDED_NAMES,
    sizes: [128, 512],
    kernels: &[12, 11, 4, 4, 4],
    factors: &[6, 5, 2, 2, 2],
    snake: true,
};

impl VocoderConfig {
    /// Reads the text of a `config.json` of either class. Missing keys have diffusers' defaults.
    ///
    /// # Errors
    /// It is not such a config, contradicts itself, or asks for what is not supported.
    pub fn from_json(text: &str) -> Result<VocoderConfig> {
        let mut options = ConfigReader::parse(CONFIG, text)?;
        let class = options.class(&[PLAIN, EXTENDED])?;
        // Whoever copies a config without its class means what its keys say.
        let extended = match class {
            Some(class) => class == EXTENDED,
            None => options.rest().keys().any(|key| key.starts_with("bwe_")),
        };
        options.must_be_unquantized()?;
        let config = match extended {
            true => VocoderConfig::read_extended(&mut options)?,
            false => VocoderConfig {
                generator: FIRST.read(&mut options)?,
                extension: None,
                sample_rate: options.count("output_sampling_rate", 24_000, 1..=1 << 20)? as u32,
            },
        };
        options.finish()?;
        Ok(config)
    }

    fn read_extended(options: &mut ConfigReader) -> Result<VocoderConfig> {
        let generator = FIRST_OF_TWO.read(options)?;
        let second = SECOND.read(options)?;
        let mut size = |key, default| options.count(key, default, 1..=1 << 20);
        let (filter, hop) = (size("filter_length", 512)?, size("hop_length", 80)?);
        let (window, bins) = (size("window_length", 512)?, size("num_mel_channels", 64)?);
        let [from, to] =
            [size("input_sampling_rate", 16_000)?, size("output_sampling_rate", 48_000)?];
        let ratio = to / from;
        let longer: usize = second.stages.iter().map(|stage| stage.factor).product();
        let channels = generator.out_channels;
        let fits = [
            (
                to.is_multiple_of(from),
                "`output_sampling_rate` must be a multiple of `input_sampling_rate`",
            ),
            (
                longer == hop * ratio,
                "`bwe_upsample_factors` must make `hop_length` times the ratio of the rates",
            ),
            (
                second.in_channels == channels * bins,
                "`bwe_in_channels` must be `out_channels` times `num_mel_channels`",
            ),
            (second.out_channels == channels, "`bwe_out_channels` must be `out_channels`"),
            (
                filter >= 2 && window >= hop,
                "`filter_length` must be at least 2, `window_length` no less than `hop_length`",
            ),
        ];
        if let Some((_, reason)) = fits.into_iter().find(|(fits, _)| !fits) {
            return Err(options.contradiction(reason));
        }
        let extension = ExtensionConfig { generator: second, filter, hop, window, bins, ratio };
        Ok(VocoderConfig { generator, extension: Some(extension), sample_rate: to as u32 })
    }
}

impl Keys {
    fn read(&self, options: &mut ConfigReader) -> Result<GeneratorConfig> {
        let [
            inputs,
            hidden,
            outputs,
            kernels,
            factors,
            taps,
            dilations,
            act,
            slope,
            antialias,
            ratio,
            fine,
            bound,
            bias,
        ] = self.names;
        let act = match self.snake {
            true => options.choice(
                act,
                &[("snakebeta", Act::SnakeBeta), ("snake", Act::Snake), ("leaky_relu", Act::Leaky)],
            )?,
            false => options.choice(
                act,
                &[("leaky_relu", Act::Leaky), ("snakebeta", Act::SnakeBeta), ("snake", Act::Snake)],
            )?,
        };
        let none = ("null", Bound::None);
        let (tanh, clamp) = (("tanh", Bound::Tanh), ("clamp", Bound::Clamp));
        let config = GeneratorConfig {
            in_channels: options.count(inputs, self.sizes[0], 1..=LARGEST)?,
            width: options.count(hidden, self.sizes[1], 1..=LARGEST)?,
            out_channels: options.count(outputs, 2, 1..=LARGEST)?,
            stages: stages(options, [kernels, factors], [self.kernels, self.factors])?,
            blocks: blocks(options, [taps, dilations])?,
            act,
            slope: options.number(slope, 0.1)?,
            antialias: options.flag(antialias, self.snake)?,
            ratio: options.count(ratio, 2, 1..=16)?,
            taps: options.count(fine, 12, 2..=256)?,
            bound: options.choice(
                bound,
                &if self.snake { [none, tanh, clamp] } else { [tanh, clamp, none] },
            )?,
            final_bias: options.flag(bias, !self.snake)?,
        };
        let halvings = config.stages.len();
        if halvings >= 16 || config.width >> halvings == 0 {
            return Err(options.contradiction(format!(
                "`{hidden}` is {}, which {halvings} stages cannot halve",
                config.width
            )));
        }
        // diffusers nests the two by mistake then.
        if config.antialias && config.act == Act::Leaky {
            return Err(options.contradiction(format!("`{antialias}` needs a snake as `act_fn`")));
        }
        let even = config.taps.is_multiple_of(2) && config.ratio == 2;
        if config.act != Act::Leaky && !even {
            return Err(options.contradiction(format!("`{ratio}` must be 2, `{fine}` even")));
        }
        Ok(config)
    }
}

fn stages(
    options: &mut ConfigReader,
    [kernels, factors]: [&'static str; 2],
    defaults: [&[usize]; 2],
) -> Result<Vec<Stage>> {
    let sizes = options.counts(kernels, defaults[0], 1..=LARGEST)?;
    let longer = options.counts(factors, defaults[1], 1..=LARGEST)?;
    let fits = |(kernel, factor): (&usize, &usize)| {
        kernel >= factor && (kernel - factor).is_multiple_of(2)
    };
    if sizes.is_empty() || sizes.len() != longer.len() || !sizes.iter().zip(&longer).all(fits) {
        return Err(options.contradiction(format!(
            "`{kernels}` and `{factors}` are lists of one length, each kernel an even number larger than its factor"
        )));
    }
    Ok(sizes.into_iter().zip(longer).map(|(kernel, factor)| Stage { factor, kernel }).collect())
}

fn blocks(
    options: &mut ConfigReader,
    [taps, dilations]: [&'static str; 2],
) -> Result<Vec<(usize, Vec<usize>)>> {
    let sizes = options.counts(taps, &[3, 7, 11], 1..=LARGEST)?;
    let default = Value::from(vec![Value::from(vec![1, 3, 5]); 3]);
    let value = options.take(dilations).unwrap_or(default);
    let number = |value: &Value| value.as_u64().filter(|it| (1..=1 << 16).contains(it));
    let row = |row: &Value| -> Option<Vec<usize>> {
        row.as_array()?.iter().map(|value| Some(number(value)? as usize)).collect()
    };
    let rows: Option<Vec<Vec<usize>>> =
        value.as_array().and_then(|all| all.iter().map(row).collect());
    let Some(rows) = rows else {
        return Err(options.unsupported(dilations, &value, "lists of lists of whole numbers"));
    };
    if sizes.is_empty() || rows.len() != sizes.len() || sizes.iter().any(|taps| taps % 2 == 0) {
        return Err(options.contradiction(format!(
            "`{taps}` and `{dilations}` are lists of one length, the kernels odd"
        )));
    }
    Ok(sizes.into_iter().zip(rows).collect())
}
