//! Picture sizes: how long a side may be, the sizes of a training, and resizing to what was asked for.

use burn::tensor::{Tensor, TensorData};

use crate::error::{Error, Field, Result};

/// The longest side of a picture. Attention over a larger one would take days: it is a typing error.
const LONGEST: usize = 16_384;

/// Checks that a side is not too long.
pub(crate) fn check_length(field: Field, got: usize) -> Result<()> {
    match got <= LONGEST {
        true => Ok(()),
        false => Err(Error::request(field, format!("it is {got}; choose at most {LONGEST}"))),
    }
}

/// The longest clip in frames: over half an hour.
const MOST_FRAMES: usize = 65_536;

/// Checks that a clip is not too long.
pub(crate) fn check_frames(got: usize) -> Result<()> {
    match got <= MOST_FRAMES {
        true => Ok(()),
        false => {
            let reason = format!("it is {got}; choose at most {MOST_FRAMES}");
            Err(Error::request(Field::Frames, reason))
        }
    }
}

/// The most tokens of a clip or a sound: ten times what a minute of video has.
const MOST_TOKENS: usize = 1 << 20;

/// Checks that latents are not too many to be looked at together; `patch` are those of a token.
pub(crate) fn check_tokens(latents: [usize; 3], patch: [usize; 3]) -> Result<()> {
    let along = |axis: usize| latents[axis] / patch[axis].max(1);
    let tokens = along(0).saturating_mul(along(1)).saturating_mul(along(2));
    match tokens <= MOST_TOKENS {
        true => Ok(()),
        false => {
            let field =
                if along(0) > along(1).max(along(2)) { Field::Frames } else { Field::Height };
            let reason =
                format!("the clip has {tokens} tokens; choose a size with {MOST_TOKENS} or fewer");
            Err(Error::request(field, reason))
        }
    }
}

/// Checks that a sound is not too long.
pub(crate) fn check_sound(steps: f64) -> Result<usize> {
    match steps <= MOST_TOKENS as f64 {
        true => Ok((steps as usize).max(1)),
        false => {
            let reason = format!(
                "the sound has {steps:e} tokens; choose a rate with {MOST_TOKENS} or fewer"
            );
            Err(Error::request(Field::FrameRate, reason))
        }
    }
}

/// The height and width of the training nearest in proportion to those asked for.
///
/// # Errors
/// No sizes are known for the model, or a side has no length.
pub(crate) fn nearest_trained(
    [height, width]: [usize; 2],
    trained: &[(f64, [usize; 2])],
) -> Result<[usize; 2]> {
    if height == 0 || width == 0 {
        let field = if height == 0 { Field::Height } else { Field::Width };
        return Err(Error::request(field, "it is 0; choose 1 or more"));
    }
    let proportion = height as f64 / width as f64;
    let distance = |entry: &&(f64, [usize; 2])| (entry.0 - proportion).abs();
    let nearest = trained.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
    nearest.map(|(_, size)| *size).ok_or_else(|| {
        let reason = "the sizes of this model's training are not known; leave it out";
        Error::request(Field::Sizing, reason)
    })
}

/// Resizes a picture `[H, W, C]` to cover `[height, width]` and cuts out the middle.
pub(crate) fn resize_and_crop(picture: Tensor<3>, [height, width]: [usize; 2]) -> Tensor<3> {
    let [from_height, from_width, channels] = picture.dims();
    if [from_height, from_width] == [height, width] {
        return picture;
    }
    let ratio = (height as f64 / from_height as f64).max(width as f64 / from_width as f64);
    // The side that decides the ratio may come out just below the one it must reach.
    let tall = ((from_height as f64 * ratio) as usize).max(height);
    let wide = ((from_width as f64 * ratio) as usize).max(width);
    let rows = Axis::new(from_height, tall, (tall - height) / 2, height);
    let columns = Axis::new(from_width, wide, (wide - width) / 2, width);

    let device = picture.device();
    let data = picture.into_data().convert::<f32>();
    let values = data.as_slice::<f32>().expect("the data was just converted to f32");
    let line = from_width * channels;
    let mut out = Vec::with_capacity(height * width * channels);
    for (top, bottom, down) in &rows.0 {
        let (top, bottom) = (&values[top * line..][..line], &values[bottom * line..][..line]);
        for (left, right, across) in &columns.0 {
            out.extend((0..channels).map(|channel| {
                let [left, right] = [left, right].map(|column| column * channels + channel);
                let upper = top[left] * (1.0 - across) + top[right] * across;
                let lower = bottom[left] * (1.0 - across) + bottom[right] * across;
                upper * (1.0 - down) + lower * down
            }));
        }
    }
    Tensor::from_data(TensorData::new(out, [height, width, channels]), &device)
}

/// For each output pixel of an axis: its two neighbours and the weight of the second.
struct Axis(Vec<(usize, usize, f32)>);

impl Axis {
    fn new(from: usize, to: usize, first: usize, count: usize) -> Axis {
        let scale = from as f64 / to as f64;
        let places = (first..first + count).map(|pixel| {
            // Pixels are areas: their centres correspond, not their corners.
            let centre = ((pixel as f64 + 0.5) * scale - 0.5).max(0.0);
            let left = (centre as usize).min(from - 1);
            (left, (left + 1).min(from - 1), (centre - left as f64) as f32)
        });
        Axis(places.collect())
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Int, Tensor};

    use super::{LONGEST, check_length, nearest_trained, resize_and_crop};
    use crate::error::Field;

    #[test]
    fn sides_that_no_picture_has_are_refused() {
        assert!(check_length(Field::Height, LONGEST).is_ok());
        for got in [LONGEST + 1, usize::MAX] {
            let message = check_length(Field::Width, got).unwrap_err().to_string();
            assert!(message.contains(&format!("width: it is {got}")), "{message}");
        }
    }

    #[test]
    fn sizes_of_the_training_are_found_by_proportion() {
        let trained = [(0.5, [256, 512]), (1.0, [384, 384]), (2.0, [512, 256])];
        assert_eq!(nearest_trained([1000, 1000], &trained).unwrap(), [384, 384]);
        assert_eq!(nearest_trained([1000, 450], &trained).unwrap(), [512, 256]);
        assert!(nearest_trained([512, 512], &[]).is_err());
        assert!(
            nearest_trained([0, 9], &trained).is_err()
                && nearest_trained([9, 0], &trained).is_err()
        );
    }

    /// 208 * (480 / 208) is not 480 in f64 but a little less.
    #[test]
    fn a_ratio_that_rounds_down_still_covers_the_size_asked_for() {
        let rows = Tensor::<1, Int>::arange(0..208, &Device::flex()).float();
        let image = rows.reshape([208, 1, 1]).expand([208, 288, 1]);
        let resized = resize_and_crop(image, [480, 640]);
        assert_eq!(resized.dims(), [480, 640, 1]);
        let values: Vec<f32> = resized.into_data().try_to_vec().unwrap();
        for (row, values) in values.chunks(640).enumerate() {
            let want = ((row as f32 + 0.5) * 208.0 / 480.0 - 0.5).clamp(0.0, 207.0);
            assert!((values[7] - want).abs() < 1e-3, "row {row} is {}, not {want}", values[7]);
        }
    }
}
