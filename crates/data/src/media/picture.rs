//! Pictures of anyone, decoded within bounds: what a header says costs nothing until it is believed.

use std::io::{BufRead, Seek, SeekFrom};

use image::{ImageDecoder, ImageFormat, ImageReader, Limits};

/// No picture has more pixels.
pub const MOST_PIXELS: u64 = 100_000_000;

/// No file of a picture is longer, and none takes more when it is decoded.
const MOST_BYTES: u64 = 512 << 20;

/// What a decoder may hold beside the picture: colour profiles, texts.
const MOST_BESIDE: u64 = 64 << 20;

/// No side of a picture is longer.
const LONGEST: u32 = 1 << 16;

/// Says that a picture of this width and height is too large, if it is.
///
/// # Errors
/// In words that follow its name.
pub fn check_size(width: u64, height: u64) -> Result<(), String> {
    match width.checked_mul(height).is_some_and(|pixels| pixels <= MOST_PIXELS) {
        true => Ok(()),
        false => Err(format!(
            "it is {width}x{height}, which is more than {} million pixels; scale it down",
            MOST_PIXELS / 1_000_000
        )),
    }
}

/// The decoder of a picture, if that is within bounds.
///
/// # Errors
/// It is damaged, of no known format or too large, in words that follow its name.
pub fn decoder<'a, R: BufRead + Seek + 'a>(
    reader: ImageReader<R>,
) -> Result<impl ImageDecoder + 'a, String> {
    let format = reader.format();
    let mut source = reader.into_inner();
    check_file(&mut source, format)?;
    let mut reader = match format {
        Some(format) => ImageReader::with_format(source, format),
        None => ImageReader::new(source),
    };
    let mut limits = Limits::no_limits();
    limits.max_image_width = Some(LONGEST);
    limits.max_image_height = Some(LONGEST);
    limits.max_alloc = Some(MOST_BESIDE);
    reader.limits(limits);
    let decoder = reader.into_decoder().map_err(|error| error.to_string())?;
    let (width, height) = decoder.dimensions();
    check_size(width.into(), height.into())?;
    match decoder.total_bytes() <= MOST_BYTES {
        true => Ok(decoder),
        false => Err(format!(
            "it is {width}x{height} and takes {} MB when it is decoded, more than {}; scale it down",
            decoder.total_bytes() >> 20,
            MOST_BYTES >> 20
        )),
    }
}

/// Refuses a file that is too long, or whose blocks say that they are longer than it.
fn check_file(
    source: &mut (impl BufRead + Seek),
    format: Option<ImageFormat>,
) -> Result<(), String> {
    let failed = |error: std::io::Error| error.to_string();
    let length = source.seek(SeekFrom::End(0)).map_err(failed)?;
    if length > MOST_BYTES {
        let (own, most) = (length >> 20, MOST_BYTES >> 20);
        return Err(format!("it is a file of {own} MB; a picture has at most {most}"));
    }
    // The decoder makes room for what a block says before it reads it.
    let mut at = 12;
    while format == Some(ImageFormat::WebP) && at + 8 <= length {
        source.seek(SeekFrom::Start(at + 4)).map_err(failed)?;
        let mut size = [0; 4];
        source.read_exact(&mut size).map_err(failed)?;
        let size = u64::from(u32::from_le_bytes(size));
        if size > length - at - 8 {
            return Err("it ends in the middle of a block".to_owned());
        }
        at += 8 + size + size % 2;
    }
    source.rewind().map_err(failed)
}
