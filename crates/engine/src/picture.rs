//! Pixels.

use burn::tensor::Tensor;
use image::{ImageFormat, RgbImage};

use crate::error::{Error, Result};

/// An image of 8 bits per channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    image: RgbImage,
}

impl Picture {
    /// One image `[3, H, W]` with values from -1 to 1, rounded as diffusers rounds.
    ///
    /// # Errors
    /// It does not have three channels.
    pub fn new(image: Tensor<3>) -> Result<Picture> {
        let [channels, height, width] = image.dims();
        if channels != 3 {
            let reason = format!("the VAE makes {channels} channels, but a picture has 3");
            return Err(Error::Request(reason));
        }
        let values = image.permute([1, 2, 0]).reshape([height * width * 3]).into_data();
        let values: Vec<f32> =
            values.try_to_vec().map_err(|err| Error::Request(err.to_string()))?;
        let bytes = values.iter().map(|value| {
            let unit = (value / 2.0 + 0.5).clamp(0.0, 1.0);
            // Half to even, as numpy rounds.
            (unit * 255.0).round_ties_even() as u8
        });
        let image = RgbImage::from_raw(width as u32, height as u32, bytes.collect());
        Ok(Picture { image: image.expect("three bytes per pixel") })
    }

    /// The bytes of a PNG file.
    ///
    /// # Errors
    /// The encoder's.
    pub fn png(&self) -> Result<Vec<u8>> {
        let mut bytes = std::io::Cursor::new(Vec::new());
        self.image
            .write_to(&mut bytes, ImageFormat::Png)
            .map_err(|err| Error::Request(format!("cannot encode the picture: {err}")))?;
        Ok(bytes.into_inner())
    }

    /// Height and width.
    pub fn size(&self) -> [usize; 2] {
        [self.image.height() as usize, self.image.width() as usize]
    }
}
