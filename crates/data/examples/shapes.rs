//! Clips of the shapes world as a user would have them: GIFs with captions beside them.
//!
//! `cargo run -p data --example shapes -- DIR COUNT [FRAMES [TIMES]]`; frames are so many times as high and wide as
//! 32 pixels.

#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use data::media::{ClipWriter, Frame, FrameRate};
use data::world::{World, WorldOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let folder = PathBuf::from(words.next().ok_or("where do the clips go?")?);
    let count: u64 = words.next().ok_or("how many clips?")?.parse()?;
    let usual = WorldOptions::default();
    let frames = words.next().map_or(Ok(usual.frames), |word| word.parse())?;
    let usual = usual.enlarged(words.next().map_or(Ok(1), |word| word.parse())?);
    let world = World::new(WorldOptions { frames, ..usual }, 0)?;
    fs::create_dir_all(&folder)?;
    for index in 0..count {
        let shown = world.show(index);
        let path = folder.join(format!("{index:05}.gif"));
        let mut writer = ClipWriter::create(&path, FrameRate::from_number(usual.fps)?)?;
        let [frames, height, width] = shown.clip.size();
        for frame in 0..frames {
            writer.push(&Frame::new(height, width, shown.clip.frame(frame).to_vec())?)?;
        }
        writer.finish()?;
        fs::write(path.with_extension("txt"), shown.caption() + "\n")?;
    }
    println!("{}", folder.display());
    Ok(())
}
