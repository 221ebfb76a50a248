//! A clip in memory: pixels of a few frames, before any encoder saw them.

use burn::tensor::{Device, Tensor, TensorData};

use crate::error::{Error, Result};

/// Red, green and blue.
pub(crate) const CHANNELS: usize = 3;

/// Frames of one size, `[F, H, W, 3]`, red first; black is 0 and full light is 1.
///
/// Values beyond that range are kept: a generated clip may overshoot.
#[derive(Clone, Debug, PartialEq)]
pub struct Clip {
    frames: usize,
    height: usize,
    width: usize,
    pixels: Vec<f32>,
}

impl Clip {
    /// A black clip of `[frames, height, width]`.
    pub fn black([frames, height, width]: [usize; 3]) -> Clip {
        Clip { frames, height, width, pixels: vec![0.0; frames * height * width * CHANNELS] }
    }

    /// A clip of `[frames, height, width]` with the given pixels, `[F, H, W, 3]`.
    ///
    /// # Errors
    /// The number of values is not that of such a clip.
    pub fn new([frames, height, width]: [usize; 3], pixels: Vec<f32>) -> Result<Clip> {
        let wanted = frames * height * width * CHANNELS;
        if pixels.len() != wanted {
            let found = pixels.len();
            return Err(Error::Pixels { frames, height, width, wanted, found });
        }
        Ok(Clip { frames, height, width, pixels })
    }

    /// A clip of a tensor `[F, H, W, 3]`.
    ///
    /// # Errors
    /// It does not have three channels.
    pub fn from_tensor(tensor: Tensor<4>) -> Result<Clip> {
        let [frames, height, width, channels] = tensor.dims();
        if channels != CHANNELS {
            return Err(Error::Channels { found: channels });
        }
        let pixels = tensor.into_data().convert::<f32>().try_to_vec();
        let pixels = pixels.map_err(|err| Error::Values { reason: err.to_string() })?;
        Clip::new([frames, height, width], pixels)
    }

    /// The clip as a tensor, `[F, H, W, 3]`.
    pub fn to_tensor(&self, device: &Device) -> Tensor<4> {
        let shape = [self.frames, self.height, self.width, CHANNELS];
        Tensor::from_data(TensorData::new(self.pixels.clone(), shape), device)
    }

    /// `[frames, height, width]`.
    pub fn size(&self) -> [usize; 3] {
        [self.frames, self.height, self.width]
    }

    /// All values, `[F, H, W, 3]`.
    pub fn pixels(&self) -> &[f32] {
        &self.pixels
    }

    /// All values, to be changed.
    pub fn pixels_mut(&mut self) -> &mut [f32] {
        &mut self.pixels
    }

    /// The values of one frame, `[H, W, 3]`.
    ///
    /// # Panics
    /// Panics if there is no such frame.
    pub fn frame(&self, frame: usize) -> &[f32] {
        let length = self.height * self.width * CHANNELS;
        &self.pixels[frame * length..][..length]
    }

    /// The values of one frame, to be changed.
    ///
    /// # Panics
    /// Panics if there is no such frame.
    pub fn frame_mut(&mut self, frame: usize) -> &mut [f32] {
        let length = self.height * self.width * CHANNELS;
        &mut self.pixels[frame * length..][..length]
    }

    /// Red, green and blue of one pixel.
    ///
    /// # Panics
    /// Panics if there is no such pixel.
    pub fn pixel(&self, frame: usize, row: usize, column: usize) -> [f32; 3] {
        let start = (row * self.width + column) * CHANNELS;
        let values = &self.frame(frame)[start..start + CHANNELS];
        [values[0], values[1], values[2]]
    }
}
