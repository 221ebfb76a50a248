//! temporary
use data::media::*;
use std::path::Path;
fn frame(index: usize, height: usize, width: usize) -> Frame {
    let pixel = |row: usize, column: usize| {
        let (y, x) = (row as f32 / height as f32, column as f32 / width as f32);
        let time = index as f32 / 24.0;
        let disc = ((x - 0.2 - 0.6 * time).powi(2) + (y - 0.4).powi(2)).sqrt();
        let inside = ((0.2 - disc) * 60.0).clamp(0.0, 1.0);
        let bar = (1.0 - (y - time).abs() * 10.0).clamp(0.0, 1.0) * 0.5;
        let ground = [0.3 + 0.4 * x, 0.2 + 0.5 * y, 0.5 - 0.3 * x];
        [
            ground[0] * (1.0 - inside) + 0.9 * inside,
            ground[1] * (1.0 - inside) + 0.1 * inside,
            ground[2] * (1.0 - inside) + bar,
        ]
    };
    let pixels = (0..height).flat_map(|row| (0..width).flat_map(move |column| pixel(row, column)));
    Frame::new(height, width, pixels.collect()).unwrap()
}
fn main() {
    for name in ["a.mp4", "a.gif", "a.png"] {
        let t = std::time::Instant::now();
        let mut w = ClipWriter::create(
            &Path::new("/tmp/sm_view").join(name),
            FrameRate::from_number(23.976).unwrap(),
        )
        .unwrap();
        for i in 0..24 {
            w.push(&frame(i, 240, 416)).unwrap();
        }
        w.finish().unwrap();
        println!("{name} {:?}", t.elapsed());
    }
}
