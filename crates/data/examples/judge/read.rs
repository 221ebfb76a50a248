//! What the judge says of clips that somebody made, each a folder of pictures, and how near it was to another verdict.

use std::path::Path;

use data::media::DecodedClip;
use data::world::{Judge, MovingShape, WorldOptions};
use data::{Clip, Error, Result};

/// Tells it of every clip; all of them are to show one scene of the default world.
pub(crate) fn tell(caption: &str, folders: &[String]) -> Result<()> {
    let scene: MovingShape = caption.parse()?;
    let judge = Judge::new(&WorldOptions::default());
    let mut right = 0;
    for folder in folders {
        let clip = read(Path::new(folder))?;
        let (reading, evidence) = judge.examine(&clip);
        right += usize::from(reading.shows(&scene));
        let verdict = match reading.shows(&scene) {
            true => "right".to_owned(),
            false => judge.explain(&clip, &scene).join("; "),
        };
        let measured = evidence.map_or_else(String::new, |own| {
            let (shape, size, softness) = (own.shape.word(), own.size, own.softness);
            let (misfit, margin, beside) = (own.misfit, own.margin, own.beside);
            format!("{shape} size {size:.2} softness {softness:.2} misfit {misfit:.3} margin {margin:.3} beside {beside:.2}")
        });
        println!("{folder}: {measured}: {verdict}");
    }
    println!("{caption}: {right} of {} are read", folders.len());
    Ok(())
}

fn read(folder: &Path) -> Result<Clip> {
    let unread = |error: data::media::Error| Error::Values { reason: error.to_string() };
    let decoded = DecodedClip::read(folder).map_err(unread)?;
    let (height, width) = decoded.size();
    let pixels: Vec<f32> = decoded.bytes().iter().map(|byte| f32::from(*byte) / 255.0).collect();
    Clip::new([pixels.len() / (3 * height * width), height, width], pixels)
}
