//! Pictures, clips and sounds that users give, as a model works with them.

use burn::tensor::{Device, Tensor};
use data::media::{self, Waveform};
use data::preprocess::{is_white, touched};
use families::Resampling;

use crate::error::{Error, Field, Result};
use crate::request::{Audio, Fit, Media};
use crate::source_image::{Filter, SourceImage};

/// Frames that were given, as they were read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pictures(Vec<SourceImage>);

impl Pictures {
    /// Reads one picture.
    ///
    /// # Errors
    /// It cannot be read, or there are several frames.
    pub(crate) fn still(media: &Media, field: Field) -> Result<Pictures> {
        let pictures = match media {
            Media::File(path) if !path.is_dir() => {
                let picture = SourceImage::read(path).map_err(|err| err.of_field(field))?;
                Pictures(vec![picture])
            }
            _ => Pictures::read(media, field, usize::MAX)?,
        };
        match pictures.0.len() {
            1 => Ok(pictures),
            count => Err(Error::request(field, format!("it has {count} frames; give a picture"))),
        }
    }

    /// Reads the first `most` frames; what follows them is not looked at.
    ///
    /// # Errors
    /// They cannot be read.
    pub(crate) fn read(media: &Media, field: Field, most: usize) -> Result<Pictures> {
        let frames: Vec<SourceImage> = match media {
            Media::Frames(frames) => {
                frames.iter().take(most).map(SourceImage::from_frame).collect()
            }
            Media::File(path) if media::is_picture(path) => {
                vec![SourceImage::read(path).map_err(|err| err.of_field(field))?]
            }
            Media::File(path) => {
                let clip = media::DecodedClip::read_first(path, most);
                let clip = clip.map_err(|err| unreadable(field, &err))?;
                let size = clip.size();
                let frames = clip.into_frames().into_iter();
                frames.map(|bytes| SourceImage::from_bytes(size, bytes)).collect()
            }
        };
        Ok(Pictures(frames))
    }

    /// Height and width of the first frame, without the others where that is possible.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn first_size(media: &Media, field: Field) -> Result<[usize; 2]> {
        let first = match media {
            Media::File(path) if !path.is_dir() && !media::is_picture(path) => {
                let mut clip = media::ClipReader::open(path).map_err(|err| unreadable(field, &err));
                let frame = clip.as_mut().ok().and_then(|clip| clip.next_frame().ok().flatten());
                clip?;
                frame.map(|(height, width, _)| [height, width])
            }
            // Its header tells; a damaged picture says so when it is read.
            Media::File(path) if media::is_picture(path) => {
                media::picture_size(path).ok().map(|(height, width)| [height, width])
            }
            _ => None,
        };
        // What has no first frame says why when all of them are read.
        first.map_or_else(|| Ok(Pictures::read(media, field, 1)?.size()), Ok)
    }

    /// How many frames there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The only frame.
    pub(crate) fn first(&self) -> &SourceImage {
        &self.0[0]
    }

    /// The same without the frames after the first `count`.
    pub(crate) fn cut(mut self, count: usize) -> Pictures {
        self.0.truncate(count);
        self
    }

    /// Height and width of the first frame.
    pub(crate) fn size(&self) -> [usize; 2] {
        self.0[0].size()
    }

    /// The same in the proportions of `[height, width]`.
    pub(crate) fn fitted(self, size: [usize; 2], fit: Fit) -> Pictures {
        match fit {
            Fit::Stretch => self,
            _ => Pictures(self.0.iter().map(|own| own.fitted(size, fit)).collect()),
        }
    }

    /// `[1, 3, frames, height, width]` from -1 to 1: whole pictures, stretched.
    pub(crate) fn clip(
        &self,
        size: [usize; 2],
        resampling: Resampling,
        device: &Device,
    ) -> Tensor<5> {
        let filter = match resampling {
            Resampling::Lanczos => Filter::Lanczos,
            Resampling::Bilinear => Filter::Bilinear,
        };
        let frame =
            |picture: &SourceImage| picture.conditioning(size, filter, device).unsqueeze_dim(2);
        Tensor::cat(self.0.iter().map(frame).collect(), 2)
    }

    /// Which pixels of `frames` frames of `[height, width]` are white, or touched by something white; one
    /// picture stands for every frame.
    pub(crate) fn white(&self, frames: usize, [height, width]: [usize; 2]) -> Vec<bool> {
        let mut all = Vec::with_capacity(frames * height * width);
        for picture in &self.0 {
            let [high, wide] = picture.size();
            let mut shown = vec![false; height * width];
            for (at, pixel) in picture.levels().chunks_exact(3).enumerate() {
                if is_white(pixel) {
                    let columns = touched(at % wide, wide, width);
                    for row in touched(at / wide, high, height) {
                        shown[row * width..][columns.clone()].fill(true);
                    }
                }
            }
            all.extend(shown);
        }
        if self.0.len() == 1 { all.repeat(frames) } else { all }
    }
}

/// A sound; samples in memory are at `rate`.
///
/// # Errors
/// It cannot be read.
pub(crate) fn sound(audio: &Audio, rate: u32) -> Result<Waveform> {
    match audio {
        Audio::Samples(samples) => Ok(Waveform::mono(rate, samples.to_vec())),
        Audio::File(path) => Waveform::read(path).map_err(|err| unreadable(Field::Audio, &err)),
    }
}

/// What was given cannot be read; the error names the file itself.
fn unreadable(field: Field, err: &media::Error) -> Error {
    Error::request(field, err.to_string())
}
