//! Clips are written in every format and read back by other code than that which wrote them.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests panic to fail, and say what they could not check"
)]

mod aside;
mod browser;
mod files;
mod gif;
mod mp4;
mod mp4_sound;
mod pictures;
mod read;
mod refusals;

use data::media::{ClipWriter, Frame, FrameRate};
use std::path::Path;
use std::process::Command;

/// A smooth ground over which a red disc moves to the right, and a blue bar down.
fn frame(index: usize, height: usize, width: usize) -> Frame {
    let pixel = |row: usize, column: usize| {
        let (y, x) = (row as f32 / height as f32, column as f32 / width as f32);
        let time = index as f32 / 12.0;
        let disc = ((x - 0.2 - 0.6 * time).powi(2) + (y - 0.4).powi(2)).sqrt();
        let inside = ((0.2 - disc) * 12.0).clamp(0.0, 1.0);
        let bar = (1.0 - (y - time).abs() * 10.0).clamp(0.0, 1.0) * 0.5;
        let ground = [0.3 + 0.4 * x, 0.2 + 0.5 * y, 0.5 - 0.3 * x];
        let red = ground[0] * (1.0 - inside) + 0.9 * inside;
        let green = ground[1] * (1.0 - inside) + 0.1 * inside;
        let blue = ground[2] * (1.0 - inside) + bar;
        [red, green, blue]
    };
    let pixels = (0..height).flat_map(|row| (0..width).flat_map(move |column| pixel(row, column)));
    Frame::new(height, width, pixels.collect()).unwrap()
}

fn frames(count: usize, height: usize, width: usize) -> Vec<Frame> {
    (0..count).map(|index| frame(index, height, width)).collect()
}

fn rate(text: &str) -> FrameRate {
    text.parse().unwrap()
}

fn write(path: &Path, frames: &[Frame], rate: FrameRate) {
    let mut writer = ClipWriter::create(path, rate).unwrap();
    for frame in frames {
        writer.push(frame).unwrap();
    }
    assert_eq!(writer.frames(), frames.len());
    assert!(!path.exists(), "{} appears before it is whole", path.display());
    writer.finish().unwrap();
}

/// How alike two pictures of bytes are, in decibels.
fn psnr(found: &[u8], want: &[u8]) -> f64 {
    assert_eq!(found.len(), want.len());
    let square = |(a, b): (&u8, &u8)| f64::from(a.abs_diff(*b)).powi(2);
    let error = found.iter().zip(want).map(square).sum::<f64>() / want.len() as f64;
    10.0 * (255.0 * 255.0 / error.max(1e-9)).log10()
}

/// The names in a folder, temporary ones included.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Whether ffmpeg is there; says so if it is not.
fn has_ffmpeg() -> bool {
    let is_there = |program| Command::new(program).arg("-version").output().is_ok();
    let both = is_there("ffmpeg") && is_there("ffprobe");
    if !both {
        println!("not checked with ffmpeg, which is not installed");
    }
    both
}
