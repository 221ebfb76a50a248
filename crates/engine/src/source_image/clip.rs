//! What transformers' `CLIPImageProcessor` does to a picture before CLIP sees it.

use burn::tensor::{Device, Tensor};
use data::media::picture;
use image::{Rgb, RgbImage};
use nn::ConfigReader;
use serde_json::{Value, json};

use super::resize::Filter;
use super::{SourceImage, planes};

/// Resize, crop, rescale, normalise, as a `preprocessor_config.json` says.
#[derive(Clone, Debug, PartialEq)]
pub struct ClipPreprocessor {
    resize: Option<(Target, Filter)>,
    /// Height and width.
    crop: Option<[usize; 2]>,
    rescale: Option<f64>,
    /// Mean and deviation of each channel.
    normalise: Option<([f32; 3], [f32; 3])>,
}

/// What a picture is resized to.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Target {
    /// Its shorter edge gets this length, its shape stays.
    ShortestEdge(usize),
    /// Height and width.
    Exactly([usize; 2]),
}

impl ClipPreprocessor {
    /// Reads the text of a `preprocessor_config.json`.
    ///
    /// # Errors
    /// What is wrong with it, in words that follow its name.
    pub fn from_json(text: &str) -> Result<ClipPreprocessor, String> {
        read(text).map_err(|err| err.to_string())
    }

    /// Says that a picture of `[height, width]` would become too large on the way, if it would.
    ///
    /// # Errors
    /// In words that follow its name.
    pub fn check(&self, [height, width]: [usize; 2]) -> Result<(), String> {
        let Some((target, _)) = self.resize else { return Ok(()) };
        let [high, wide] = target.of([height, width]);
        picture::check_size(wide as u64, high as u64).map_err(|_| {
            format!(
                "it is {width}x{height}, and would be {wide}x{high} for the image encoder, which is \
                 more than {} million pixels; cut it",
                picture::MOST_PIXELS / 1_000_000
            )
        })
    }

    /// The picture as CLIP wants it, `[1, 3, height, width]`. It is one that [`ClipPreprocessor::check`]
    /// lets pass.
    pub fn apply(&self, image: &SourceImage, device: &Device) -> Tensor<4> {
        let mut image = image.clone();
        if let Some((target, filter)) = self.resize {
            image = image.resized(target.of(image.size()), filter);
        }
        let mut pixels = image.pixels;
        if let Some(size) = self.crop {
            pixels = crop(&pixels, size);
        }
        planes(&pixels, device, |channel, level| self.value(channel, level))
    }

    /// Each step in the type that numpy has there.
    fn value(&self, channel: usize, level: u8) -> f32 {
        let value = match self.rescale {
            Some(factor) => (f64::from(level) * factor) as f32,
            None => f32::from(level),
        };
        match self.normalise {
            Some((mean, deviation)) => (value - mean[channel]) / deviation[channel],
            None => value,
        }
    }
}

impl Target {
    /// The new height and width of a picture of `[height, width]`.
    fn of(self, [height, width]: [usize; 2]) -> [usize; 2] {
        match self {
            Target::Exactly(size) => size,
            Target::ShortestEdge(edge) if width <= height => [edge * height / width, edge],
            Target::ShortestEdge(edge) => [edge, edge * width / height],
        }
    }
}

/// The middle of a picture; where it is too small, black is put around it.
fn crop(pixels: &RgbImage, [height, width]: [usize; 2]) -> RgbImage {
    // Rounded down, so that one odd pixel more is cut off the far side or added on the near side.
    let start = |whole: u32, part: usize| (i64::from(whole) - part as i64).div_euclid(2);
    let [left, top] = [start(pixels.width(), width), start(pixels.height(), height)];
    RgbImage::from_fn(width as u32, height as u32, |x, y| {
        let [x, y] = [i64::from(x) + left, i64::from(y) + top].map(u32::try_from);
        match (x, y) {
            (Ok(x), Ok(y)) => pixels.get_pixel_checked(x, y).copied().unwrap_or(Rgb([0; 3])),
            _ => Rgb([0; 3]),
        }
    })
}

/// What says which class wrote the file and how Python is to hand out its tensors.
const IGNORED: [&str; 9] = [
    "data_format",
    "device",
    "disable_grouping",
    "do_convert_rgb",
    "feature_extractor_type",
    "image_processor_type",
    "input_data_format",
    "processor_class",
    "return_tensors",
];

/// Reads the file with transformers' defaults.
fn read(text: &str) -> nn::Result<ClipPreprocessor> {
    let mut options = ConfigReader::parse("CLIPImageProcessor", text)?;
    options.ignore(&IGNORED);
    // These would make another picture of it.
    for option in ["do_pad", "use_square_size", "default_to_square"] {
        options.must_be_off(option, "false")?;
    }
    options.must_be_null("pad_size")?;
    let filter = read_filter(&mut options)?;
    let target = read_size(&mut options, "size")?;
    let crop = match read_size(&mut options, "crop_size")? {
        Target::ShortestEdge(edge) => [edge, edge],
        Target::Exactly(size) => size,
    };
    let factor = options.number("rescale_factor", 1.0 / 255.0)?;
    let mean =
        read_channels(&mut options, "image_mean", [0.481_454_66, 0.457_827_5, 0.408_210_73])?;
    let deviation =
        read_channels(&mut options, "image_std", [0.268_629_54, 0.261_302_6, 0.275_777_1])?;
    let sound = |deviation: &f32| deviation.is_finite() && *deviation > 0.0;
    if !deviation.iter().all(sound) {
        return Err(options.unsupported("image_std", &json!(deviation), "numbers above 0"));
    }
    let preprocessor = ClipPreprocessor {
        resize: options.flag("do_resize", true)?.then_some((target, filter)),
        crop: options.flag("do_center_crop", true)?.then_some(crop),
        rescale: options.flag("do_rescale", true)?.then_some(factor),
        normalise: options.flag("do_normalize", true)?.then_some((mean, deviation)),
    };
    options.finish()?;
    Ok(preprocessor)
}

fn read_filter(options: &mut ConfigReader) -> nn::Result<Filter> {
    match options.count("resample", 3, 0..=usize::MAX)? {
        1 => Ok(Filter::Lanczos),
        2 => Ok(Filter::Bilinear),
        3 => Ok(Filter::Bicubic),
        other => {
            let supported = "1 (Lanczos), 2 (bilinear), 3 (bicubic)";
            Err(options.unsupported("resample", &other.into(), supported))
        }
    }
}

fn read_channels(
    options: &mut ConfigReader,
    key: &'static str,
    default: [f32; 3],
) -> nn::Result<[f32; 3]> {
    let Some(values) = options.numbers(key)? else { return Ok(default) };
    match values[..] {
        [red, green, blue] => Ok([red as f32, green as f32, blue as f32]),
        _ => Err(options.unsupported(key, &values.into(), "three numbers")),
    }
}

/// No encoder looks at pictures with longer sides.
const LONGEST: usize = 4096;

/// An edge, which old files hold as a bare number, or height and width.
fn read_size(options: &mut ConfigReader, key: &'static str) -> nn::Result<Target> {
    let value = options.take(key).unwrap_or_else(|| json!(224));
    let side = |value: &Value| {
        let side = value.as_u64().and_then(|side| usize::try_from(side).ok());
        side.filter(|side| (1..=LONGEST).contains(side))
    };
    let named = |map: &serde_json::Map<String, Value>| {
        let edge = |name: &str| map.get(name).and_then(side);
        match (map.len(), edge("shortest_edge"), edge("height"), edge("width")) {
            (1, Some(edge), None, None) => Some(Target::ShortestEdge(edge)),
            (2, None, Some(height), Some(width)) => Some(Target::Exactly([height, width])),
            _ => None,
        }
    };
    let target = match &value {
        Value::Object(map) => named(map),
        value => side(value).map(Target::ShortestEdge),
    };
    target.ok_or_else(|| {
        let supported =
            format!("`shortest_edge`, or `height` and `width`, each from 1 to {LONGEST}");
        options.unsupported(key, &value, &supported)
    })
}

#[cfg(test)]
mod tests {
    use super::ClipPreprocessor;

    #[test]
    fn old_files_hold_bare_numbers() {
        let old = r#"{"size": 224, "crop_size": 224, "feature_extractor_type": "CLIP"}"#;
        let new = r#"{"size": {"shortest_edge": 224}, "crop_size": {"height": 224, "width": 224}}"#;
        let [old, new] = [old, new].map(|text| ClipPreprocessor::from_json(text).expect("read"));
        assert_eq!((old.resize, old.crop), (new.resize, new.crop));
        assert_eq!(ClipPreprocessor::from_json("{}").expect("all defaults"), new);
    }

    #[test]
    fn what_is_not_done_is_refused_by_name() {
        let refused = [
            (r#"{"resample": 0}"#, "resample"),
            (r#"{"size": {"shortest_edge": 0}}"#, "size"),
            (r#"{"size": {"height": 3}}"#, "size"),
            (r#"{"crop_size": {"height": 3, "width": 0}}"#, "crop_size"),
            // 32 bits would make 1 of it.
            (r#"{"size": {"shortest_edge": 4294967297}}"#, "size"),
            (r#"{"crop_size": {"height": 3, "width": 4097}}"#, "crop_size"),
            (r#"{"image_std": [1.0, 0.0, 1.0]}"#, "image_std"),
            ("3", "a JSON object"),
            (r#"{"image_mean": [0.5]}"#, "three numbers"),
            (r#"{"do_pad": true}"#, "do_pad"),
            (r#"{"do_centre_crop": false}"#, "`do_center_crop`"),
        ];
        for (text, word) in refused {
            let error = ClipPreprocessor::from_json(text).expect_err(text);
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
