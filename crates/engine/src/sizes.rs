//! Legal picture sizes, and the sizes PixArt was trained on.

use burn::tensor::{Tensor, TensorData};

use crate::error::{Error, Result};

/// The longest side of a picture. Attention over a larger one would take days: it is a typing error.
const LONGEST: usize = 16_384;

/// Checks that a side is not too long.
pub(crate) fn check_length(what: &str, got: usize) -> Result<()> {
    match got <= LONGEST {
        true => Ok(()),
        false => Err(Error::Request(format!("{what} is {got}; choose at most {LONGEST}"))),
    }
}

/// Checks that a side can be cut into patches.
pub(crate) fn check(what: &'static str, got: usize, step: usize) -> Result<()> {
    if got > 0 && got.is_multiple_of(step) {
        return Ok(());
    }
    let nearest = ((got + step / 2) / step).max(1) * step;
    Err(Error::Size { what, got, step, nearest })
}

/// Checks that a clip is one frame and then whole groups of `step`, as a causal VAE cuts it.
pub(crate) fn check_frames(got: usize, step: usize) -> Result<()> {
    if got % step == 1 % step {
        return Ok(());
    }
    let below = got.saturating_sub(1) / step * step + 1;
    let nearest = match got {
        0 => "1".to_owned(),
        _ => format!("{below} or {}", below + step),
    };
    Err(Error::Request(format!(
        "--frames is {got}, but it must be 1 + a multiple of {step}; the nearest is {nearest}"
    )))
}

/// Proportions of the training with their heights and widths, in sixteenths of the base size.
const TRAINED: [(f64, [usize; 2]); 33] = [
    (0.25, [8, 32]),
    (0.28, [8, 29]),
    (0.32, [9, 28]),
    (0.33, [9, 27]),
    (0.35, [9, 26]),
    (0.4, [10, 25]),
    (0.42, [10, 24]),
    (0.48, [11, 23]),
    (0.5, [11, 22]),
    (0.52, [11, 21]),
    (0.57, [12, 21]),
    (0.6, [12, 20]),
    (0.68, [13, 19]),
    (0.72, [13, 18]),
    (0.78, [14, 18]),
    (0.82, [14, 17]),
    (0.88, [15, 17]),
    (0.94, [15, 16]),
    (1.0, [16, 16]),
    (1.07, [16, 15]),
    (1.13, [17, 15]),
    (1.21, [17, 14]),
    (1.29, [18, 14]),
    (1.38, [18, 13]),
    (1.46, [19, 13]),
    (1.67, [20, 12]),
    (1.75, [21, 12]),
    (2.0, [22, 11]),
    (2.09, [23, 11]),
    (2.4, [24, 10]),
    (2.5, [25, 10]),
    (3.0, [27, 9]),
    (4.0, [32, 8]),
];

/// The height and width of the training nearest in proportion to those asked for.
///
/// # Errors
/// No sizes are known for a model of that sample size, or a side has no length.
pub(crate) fn binned([height, width]: [usize; 2], sample_size: usize) -> Result<[usize; 2]> {
    if height == 0 || width == 0 {
        let reason = format!("height is {height} and width {width}; choose 1 or more");
        return Err(Error::Request(reason));
    }
    if ![32, 64, 128].contains(&sample_size) {
        return Err(Error::Request(format!(
            "resolution binning knows models with sample_size 32, 64 and 128, but this one has \
             {sample_size}; leave --resolution-binning out"
        )));
    }
    let proportion = height as f64 / width as f64;
    let distance = |entry: &&(f64, [usize; 2])| (entry.0 - proportion).abs();
    let nearest = TRAINED.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
    let unit = sample_size * 8 / 16;
    Ok(nearest.expect("the table is not empty").1.map(|sixteenths| sixteenths * unit))
}

/// Resizes images `[B, C, H, W]` to cover `[height, width]` and cuts out the middle.
pub(crate) fn resize_and_crop(images: Tensor<4>, [height, width]: [usize; 2]) -> Tensor<4> {
    let [batch, channels, from_height, from_width] = images.dims();
    if [from_height, from_width] == [height, width] {
        return images;
    }
    let ratio = (height as f64 / from_height as f64).max(width as f64 / from_width as f64);
    // The side that decides the ratio may come out just below the one it must reach.
    let tall = ((from_height as f64 * ratio) as usize).max(height);
    let wide = ((from_width as f64 * ratio) as usize).max(width);
    let rows = Axis::new(from_height, tall, (tall - height) / 2, height);
    let columns = Axis::new(from_width, wide, (wide - width) / 2, width);

    let device = images.device();
    let data = images.into_data().convert::<f32>();
    let values = data.as_slice::<f32>().expect("the data was just converted to f32");
    let mut out = Vec::with_capacity(batch * channels * height * width);
    for plane in values.chunks_exact(from_height * from_width) {
        for (top, bottom, down) in &rows.0 {
            let (top, bottom) = (&plane[top * from_width..], &plane[bottom * from_width..]);
            out.extend(columns.0.iter().map(|(left, right, across)| {
                let upper = top[*left] * (1.0 - across) + top[*right] * across;
                let lower = bottom[*left] * (1.0 - across) + bottom[*right] * across;
                upper * (1.0 - down) + lower * down
            }));
        }
    }
    Tensor::from_data(TensorData::new(out, [batch, channels, height, width]), &device)
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

    use super::{LONGEST, binned, check, check_frames, check_length, resize_and_crop};

    #[test]
    fn the_nearest_legal_size_is_named() {
        assert!(check("height", 64, 16).is_ok());
        for (got, nearest) in [(65, "64"), (72, "80"), (3, "16"), (0, "16")] {
            let message = check("height", got, 16).unwrap_err().to_string();
            assert!(message.ends_with(&format!("the nearest is {nearest}")), "{message}");
        }
    }

    #[test]
    fn the_nearest_legal_frame_counts_are_named() {
        for legal in [1, 5, 9, 81] {
            assert!(check_frames(legal, 4).is_ok(), "{legal}");
        }
        for (got, nearest) in [(0, "1"), (2, "1 or 5"), (8, "5 or 9"), (16, "13 or 17")] {
            let message = check_frames(got, 4).unwrap_err().to_string();
            assert!(message.ends_with(&format!("the nearest is {nearest}")), "{message}");
        }
    }

    #[test]
    fn sides_that_no_picture_has_are_refused() {
        assert!(check_length("height", LONGEST).is_ok());
        for got in [LONGEST + 1, usize::MAX] {
            let message = check_length("width", got).unwrap_err().to_string();
            assert!(message.contains(&format!("width is {got}")), "{message}");
        }
        assert!(binned([0, 9], 32).is_err() && binned([9, 0], 32).is_err());
    }

    /// 208 x 288 is the size of the training nearest to 480 x 640, and 208 * (480 / 208) is not 480
    /// in f64 but a little less.
    #[test]
    fn a_ratio_that_rounds_down_still_covers_the_size_asked_for() {
        assert_eq!(binned([480, 640], 32).unwrap(), [208, 288]);
        let rows = Tensor::<1, Int>::arange(0..208, &Device::flex()).float();
        let image = rows.reshape([1, 1, 208, 1]).expand([1, 1, 208, 288]);
        let resized = resize_and_crop(image, [480, 640]);
        assert_eq!(resized.dims(), [1, 1, 480, 640]);
        let values: Vec<f32> = resized.into_data().try_to_vec().unwrap();
        for (row, values) in values.chunks(640).enumerate() {
            let want = ((row as f32 + 0.5) * 208.0 / 480.0 - 0.5).clamp(0.0, 207.0);
            assert!((values[7] - want).abs() < 1e-3, "row {row} is {}, not {want}", values[7]);
        }
    }

    #[test]
    fn sizes_of_the_training_are_found_by_proportion() {
        assert_eq!(binned([1000, 1000], 128).unwrap(), [1024, 1024]);
        assert_eq!(binned([720, 1280], 64).unwrap(), [384, 672]);
        assert_eq!(binned([1000, 250], 32).unwrap(), [512, 128]);
        assert!(binned([512, 512], 16).is_err());
    }
}
