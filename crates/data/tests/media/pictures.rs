//! Contact sheets, folders and tensors, which keep every pixel.

use super::{Frame, frame, frames, names, rate, write};
use data::media::{ClipWriter, DecodedClip};
use safetensors::SafeTensors;

#[test]
fn a_single_frame_is_just_the_picture() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.png");
    write(&path, &[frame(0, 21, 34)], rate("16"));
    let image = image::open(&path).unwrap().into_rgb8();
    assert_eq!((image.height(), image.width()), (21, 34));
    assert_eq!(image.into_raw(), frame(0, 21, 34).bytes());
}

/// The same as a JPEG, but for what its few bits lose.
#[test]
fn a_jpeg_is_almost_the_picture() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.jpeg");
    write(&path, &[frame(0, 40, 64)], rate("16"));
    assert_eq!(std::fs::read(&path).unwrap()[..3], [0xff, 0xd8, 0xff]);
    let image = image::open(&path).unwrap().into_rgb8();
    let near = super::psnr(&image.into_raw(), &frame(0, 40, 64).bytes());
    assert!(near > 35.0, "{near} dB");
}

/// A clip is an animation that another decoder reads: every pixel of every frame, for as long.
#[test]
fn a_webp_moves_and_loses_nothing() {
    use image::AnimationDecoder;
    use image::codecs::webp::WebPDecoder;
    let folder = tempfile::tempdir().unwrap();
    // An odd number of bytes in a chunk is filled up.
    for (count, size, fps) in [(7, (20, 30), "16"), (3, (9, 5), "30000/1001"), (1, (8, 8), "1")] {
        let path = folder.path().join(format!("{count}.webp"));
        let frames = frames(count, size.0, size.1);
        write(&path, &frames, rate(fps));
        let bytes = std::fs::read(&path).unwrap();
        let length = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
        assert_eq!(length + 8, bytes.len(), "the length of the file");
        if count == 1 {
            let image = image::open(&path).unwrap().into_rgb8();
            assert_eq!(image.into_raw(), frames[0].bytes());
            continue;
        }
        let decoder = WebPDecoder::new(std::io::Cursor::new(bytes)).unwrap();
        assert!(decoder.has_animation());
        let read: Vec<_> = decoder.into_frames().map(|frame| frame.unwrap()).collect();
        assert_eq!(read.len(), count);
        let mut shown = 0.0;
        for (read, frame) in read.iter().zip(&frames) {
            let (numerator, denominator) = read.delay().numer_denom_ms();
            shown += f64::from(numerator) / f64::from(denominator);
            let pixels: Vec<u8> =
                read.buffer().pixels().flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect();
            assert_eq!(pixels, frame.bytes());
        }
        let lasts = 1000.0 * count as f64 / rate(fps).per_second();
        assert!((shown - lasts).abs() <= 1.0, "{shown} ms instead of {lasts}");
    }
}

/// Every frame is on the sheet, row by row, with paper between.
#[test]
fn a_sheet_shows_all_frames_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sheet.PNG");
    let frames = frames(7, 20, 30);
    write(&path, &frames, rate("16"));
    let sheet = image::open(&path).unwrap().into_rgb8();
    assert_eq!((sheet.height(), sheet.width()), (3 * 22 - 2, 3 * 32 - 2));
    for (index, frame) in frames.iter().enumerate() {
        let (top, left) = (22 * (index as u32 / 3), 32 * (index as u32 % 3));
        let part = image::imageops::crop_imm(&sheet, left, top, 30, 20).to_image();
        assert_eq!(part.into_raw(), frame.bytes(), "frame {index}");
    }
    let paper = [sheet.get_pixel(30, 5), sheet.get_pixel(5, 21), sheet.get_pixel(93, 63)];
    assert!(paper.iter().all(|pixel| pixel.0 == [32; 3]), "{paper:?}");
}

#[test]
fn a_folder_has_one_file_per_frame() {
    let folder = tempfile::tempdir().unwrap();
    let frames = frames(11, 9, 14);
    // A name without extension, an empty folder, and a slash after what looks like one.
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    for name in ["frames", "empty", "v1.5/"] {
        let path = folder.path().join(name);
        let mut writer = ClipWriter::create(&path, rate("16")).unwrap();
        frames.iter().for_each(|frame| writer.push(frame).unwrap());
        writer.finish().unwrap();
        let want: Vec<String> = (0..11).map(|index| format!("{index:04}.png")).collect();
        assert_eq!(names(&path), want);
        for (name, frame) in want.iter().zip(&frames) {
            let clip = DecodedClip::read(&path.join(name)).unwrap();
            assert_eq!(clip.bytes(), frame.bytes(), "{name}");
        }
    }
    assert_eq!(names(folder.path()), ["empty", "frames", "v1.5"]);
}

#[test]
fn a_tensor_keeps_all_digits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clip.safetensors");
    let frames = frames(5, 7, 11);
    write(&path, &frames, rate("23.976"));
    let bytes = std::fs::read(&path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(tensors.names(), ["frames"]);
    let view = tensors.tensor("frames").unwrap();
    assert_eq!(view.shape(), [5, 7, 11, 3]);
    assert_eq!(view.dtype(), safetensors::Dtype::F32);
    let value = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
    let found: Vec<f32> = view.data().chunks(4).map(value).collect();
    let want: Vec<f32> = frames.iter().flat_map(Frame::values).copied().collect();
    assert_eq!(found, want);
    assert!(want.iter().any(|value| (value * 255.0).fract() != 0.0));
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    assert_eq!(header.metadata().as_ref().unwrap()["fps"], "24000/1001");
}
