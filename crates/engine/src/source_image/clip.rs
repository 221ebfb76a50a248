//! What transformers' `CLIPImageProcessor` does to a picture before CLIP sees it.

use burn::tensor::{Device, Tensor};
use image::{Rgb, RgbImage};
use serde::Deserialize;

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
        let file: ConfigFile = serde_json::from_str(text).map_err(|err| err.to_string())?;
        file.check()
    }

    /// The picture as CLIP wants it, `[1, 3, height, width]`.
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

/// The keys that matter, with transformers' defaults; which class wrote the file does not.
#[derive(Deserialize)]
#[serde(default)]
struct ConfigFile {
    do_resize: bool,
    size: Size,
    resample: u32,
    do_center_crop: bool,
    crop_size: Size,
    do_rescale: bool,
    rescale_factor: f64,
    do_normalize: bool,
    image_mean: [f32; 3],
    image_std: [f32; 3],
}

/// Old files hold a bare number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Size {
    Edge(usize),
    Named(NamedSize),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedSize {
    shortest_edge: Option<usize>,
    height: Option<usize>,
    width: Option<usize>,
}

impl Default for ConfigFile {
    fn default() -> ConfigFile {
        ConfigFile {
            do_resize: true,
            size: Size::Edge(224),
            resample: 3,
            do_center_crop: true,
            crop_size: Size::Edge(224),
            do_rescale: true,
            rescale_factor: 1.0 / 255.0,
            do_normalize: true,
            image_mean: [0.481_454_66, 0.457_827_5, 0.408_210_73],
            image_std: [0.268_629_54, 0.261_302_6, 0.275_777_1],
        }
    }
}

impl ConfigFile {
    fn check(self) -> Result<ClipPreprocessor, String> {
        let filter = match self.resample {
            1 => Filter::Lanczos,
            2 => Filter::Bilinear,
            3 => Filter::Bicubic,
            other => {
                let supported = "1 (Lanczos), 2 (bilinear), 3 (bicubic)";
                return Err(format!("`resample` {other} is not supported; supported: {supported}"));
            }
        };
        let target = self.size.target("size")?;
        let crop = match self.crop_size.target("crop_size")? {
            Target::ShortestEdge(edge) => [edge, edge],
            Target::Exactly(size) => size,
        };
        if !self.rescale_factor.is_finite() {
            return Err(format!("`rescale_factor` is {}", self.rescale_factor));
        }
        let sound = |deviation: &f32| deviation.is_finite() && *deviation > 0.0;
        if !self.image_std.iter().all(sound) {
            return Err(format!("`image_std` {:?} must be above 0", self.image_std));
        }
        Ok(ClipPreprocessor {
            resize: self.do_resize.then_some((target, filter)),
            crop: self.do_center_crop.then_some(crop),
            rescale: self.do_rescale.then_some(self.rescale_factor),
            normalise: self.do_normalize.then_some((self.image_mean, self.image_std)),
        })
    }
}

impl Size {
    fn target(self, key: &str) -> Result<Target, String> {
        let target = match self {
            Size::Edge(edge) => Target::ShortestEdge(edge),
            Size::Named(NamedSize { shortest_edge: Some(edge), height: None, width: None }) => {
                Target::ShortestEdge(edge)
            }
            Size::Named(NamedSize {
                shortest_edge: None,
                height: Some(height),
                width: Some(width),
            }) => Target::Exactly([height, width]),
            Size::Named(_) => {
                return Err(format!("`{key}` must have `shortest_edge`, or `height` and `width`"));
            }
        };
        match target {
            Target::ShortestEdge(0) | Target::Exactly([0, _] | [_, 0]) => {
                Err(format!("`{key}` must be at least 1"))
            }
            target => Ok(target),
        }
    }
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
            (r#"{"image_std": [1.0, 0.0, 1.0]}"#, "image_std"),
            ("3", "expected"),
        ];
        for (text, word) in refused {
            let error = ClipPreprocessor::from_json(text).expect_err(text);
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
