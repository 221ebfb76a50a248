//! What a VAE makes, as a frame of a clip.

use burn::tensor::Tensor;
use data::media::Frame;

use crate::error::{Error, Result};

/// Pixels `[H, W, 3]` with values from -1 to 1 as a frame.
///
/// # Errors
/// They do not have three channels.
pub(crate) fn frame(pixels: Tensor<3>) -> Result<Frame> {
    let [height, width, channels] = pixels.dims();
    if channels != 3 {
        let reason = format!("the VAE makes {channels} channels, but a picture has 3");
        return Err(Error::Unknown(reason));
    }
    let values = pixels.reshape([height * width * 3]).into_data();
    let values: Vec<f32> = values.try_to_vec().map_err(|err| Error::Unknown(err.to_string()))?;
    let values = values.into_iter().map(|value| value / 2.0 + 0.5).collect();
    Ok(Frame::new(height, width, values)?)
}
