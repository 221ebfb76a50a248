//! Reading: pictures by ourselves, videos by ffmpeg.

use super::{Command, Path, frame, frames, has_ffmpeg, psnr, rate, write};
use data::media::{ClipReader, DecodedClip, shown_frames};
use data::preprocess::{Media, MediaFiles};
use image::{ColorType, DynamicImage, ImageFormat, RgbaImage};

#[test]
fn pictures_of_several_formats_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let want = frame(3, 24, 40).bytes();
    let image = image::RgbImage::from_raw(40, 24, want.clone()).unwrap();
    for (name, least) in [("a.png", 90.0), ("a.bmp", 90.0), ("a.webp", 90.0), ("a.jpg", 30.0)] {
        let path = folder.path().join(name);
        image.save(&path).unwrap();
        let clip = DecodedClip::read(&path).unwrap();
        assert_eq!((clip.frames(), clip.size(), clip.rate()), (1, (24, 40), None), "{name}");
        let likeness = psnr(clip.bytes(), &want);
        assert!(likeness > least, "{name}: {likeness} dB");
    }
}

/// Grey, transparent and 16-bit pictures become red, green and blue of 8 bits; a wrong
/// extension does not matter.
#[test]
fn other_colours_become_rgb() {
    let folder = tempfile::tempdir().unwrap();
    let clear = RgbaImage::from_pixel(3, 2, image::Rgba([10, 200, 30, 0]));
    let path = folder.path().join("clear.jpg");
    clear.save_with_format(&path, ImageFormat::Png).unwrap();
    assert_eq!(DecodedClip::read(&path).unwrap().bytes(), [10, 200, 30].repeat(6));
    let grey = DynamicImage::new(3, 2, ColorType::L16);
    let path = folder.path().join("grey.png");
    grey.save(&path).unwrap();
    assert_eq!(DecodedClip::read(&path).unwrap().bytes(), [0; 18]);
}

pub(super) fn ffmpeg(arguments: &[&str], output: &Path) {
    let mut command = Command::new("ffmpeg");
    let done = command.args(["-v", "error", "-y"]).args(arguments).arg(output).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Lossless video comes back to the bit, frame by frame.
#[test]
fn a_lossless_video_is_read_exactly() {
    if !has_ffmpeg() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (pictures, video) = (folder.path().join("in"), folder.path().join("-a:b.mkv"));
    let frames = frames(9, 18, 30);
    write(&pictures, &frames, rate("25"));
    let pattern = pictures.join("%04d.png");
    let arguments = [
        "-framerate",
        "30000/1001",
        "-i",
        pattern.to_str().unwrap(),
        "-c:v",
        "ffv1",
        "-pix_fmt",
        "bgr0",
    ];
    ffmpeg(&arguments, &video);
    let clip = DecodedClip::read(&video).unwrap();
    assert_eq!((clip.frames(), clip.size()), (9, (18, 30)));
    assert_eq!(clip.rate(), Some(rate("29.97")));
    for (index, frame) in frames.iter().enumerate() {
        assert_eq!(clip.frame(index).bytes(), frame.bytes(), "frame {index}");
    }
    // Stopping early leaves no ffmpeg behind.
    let mut reader = ClipReader::open(&video).unwrap();
    assert_eq!(reader.next_frame().unwrap().unwrap().2, frames[0].bytes());
}

/// Where frames are shown for different times, the rate is that of the whole clip.
#[test]
fn a_variable_rate_is_averaged() {
    if !has_ffmpeg() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("variable.mp4");
    let source = "testsrc=rate=24:duration=2:size=32x32";
    let few = "select='lt(n,24)+not(mod(n,4))'";
    let arguments = ["-f", "lavfi", "-i", source, "-vf", few, "-fps_mode", "vfr", "-c:v", "mpeg4"];
    ffmpeg(&arguments, &path);
    let clip = DecodedClip::read(&path).unwrap();
    assert_eq!(clip.frames(), 30);
    let rate = clip.rate().unwrap().per_second();
    assert!((14.5..16.5).contains(&rate), "{rate}");
}

/// Frames are counted without decoding them, but for those that an edit list leaves out.
#[test]
fn a_clip_that_was_cut_is_counted_as_it_is_shown() {
    if !has_ffmpeg() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (whole, cut) = (folder.path().join("whole.mp4"), folder.path().join("cut.mp4"));
    let source = "testsrc=rate=24:duration=2:size=32x32";
    ffmpeg(&["-f", "lavfi", "-i", source, "-c:v", "mpeg4", "-g", "48"], &whole);
    ffmpeg(&["-ss", "0.5", "-i", whole.to_str().unwrap(), "-c", "copy"], &cut);
    for path in [&whole, &cut] {
        let clip = DecodedClip::read(path).unwrap();
        assert_eq!(shown_frames(path).unwrap(), clip.frames(), "{}", path.display());
        let frames: Vec<Vec<u8>> = (0..clip.frames()).map(|at| clip.frame(at).bytes()).collect();
        assert!(clip.into_frames() == frames);
    }
    assert_eq!(shown_frames(&whole).unwrap(), 48);
    assert!(shown_frames(&cut).unwrap() < 48);
    assert!(shown_frames(&folder.path().join("none.mp4")).is_err());
}

/// A phone that was held upright says so in its file.
#[test]
fn a_rotated_video_is_turned() {
    if !has_ffmpeg() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("turned.mp4");
    write(&path, &frames(3, 32, 64), rate("8"));
    let mut bytes = std::fs::read(&path).unwrap();
    // The track's matrix: what was (x, y) is shown at (-y, x).
    let find = |from: usize, what: &[u8]| {
        from + bytes[from..].windows(what.len()).position(|window| window == what).unwrap()
    };
    let [one, minus_one] = [[0, 1, 0, 0], [255, 255, 0, 0]];
    let matrix = find(find(0, b"tkhd"), &[one, [0; 4], [0; 4], [0; 4], one].concat());
    let turned = [[0; 4], one, [0; 4], minus_one, [0; 4]].concat();
    bytes[matrix..matrix + 20].copy_from_slice(&turned);
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(DecodedClip::read(&path).unwrap().size(), (64, 32));
    let probe = MediaFiles.probe(&path).unwrap();
    assert_eq!((probe.frames, probe.height, probe.width), (3, 64, 32));
}

#[test]
fn damaged_videos_are_refused() {
    if !has_ffmpeg() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text.mp4");
    std::fs::write(&path, "this is text").unwrap();
    let message = DecodedClip::read(&path).unwrap_err().to_string();
    assert!(message.contains("text.mp4") && message.contains("Invalid data"), "{message}");
    for (name, reason) in [("sound.m4a", "no video"), ("sound.wav", "no video container")] {
        let sound = folder.path().join(name);
        ffmpeg(&["-f", "lavfi", "-i", "sine=duration=0.1"], &sound);
        let message = DecodedClip::read(&sound).unwrap_err().to_string();
        assert!(message.contains(reason), "{message}");
    }
}
