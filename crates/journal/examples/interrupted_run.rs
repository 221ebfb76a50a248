//! Writes the journal and the report of a made-up run that was killed once and resumed.
//!
//!     cargo run -p journal --example interrupted_run -- FOLDER
//!
//! `tools/parity/tensorboard_readback.py` reads the folder with the real TensorBoard. What the run told
//! between its last checkpoint and its end is wrong on purpose: nobody should see it.

use std::error::Error;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use data::media::{ClipWriter, Frame, FrameRate};
use data::world::{Judge, MovingShape, World, WorldOptions};
use journal::{CaptionedClip, Journal, Page, Peak, Score, Verdict, history};
use train::{
    Batch, BucketReport, Callback, Event, Method, MethodReport, Outcome, Pass, RoleReport,
    StepReport, Trained,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const STEPS: u64 = 1200;
const SAVED: u64 = 400;
const KILLED: u64 = 450;

fn main() -> Result<()> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from);
    let folder = folder.ok_or("give the folder that the run should be written to")?;
    fs::create_dir_all(&folder)?;
    let peak = Peak { flops_per_token: 6e6, flops_per_second: 1e11 };

    let journal = Journal::new(&folder).with_peak(peak)?;
    tell(journal, 0, KILLED)?;
    tear(&folder)?;
    tell(Journal::new(&folder).with_peak(peak)?, SAVED, STEPS)?;

    page(&folder)?.write(folder.join("report.html"))?;
    Ok(())
}

/// What the trainer and a validation would say of the steps after `from`, up to `to`.
fn tell(mut journal: Journal, from: u64, to: u64) -> Result<()> {
    journal.on(&Event::Started { step: from }, &Idle)?;
    let is_lost = to == KILLED;
    for step in from..=to {
        if step > from {
            journal.on(&Event::Stepped { report: &report(step, is_lost) }, &Idle)?;
        }
        if step.is_multiple_of(50) {
            let progress = step as f64 / STEPS as f64;
            let wrong = if is_lost && step > SAVED { 9.0 } else { 0.0 };
            let scalars = [
                ("validation/score", progress.sqrt() * 0.92 + wrong),
                ("heldout/loss", 0.9 * (-3.0 * progress).exp() + 0.05 + wrong),
            ];
            journal.record(step, &scalars)?;
        }
    }
    journal.on(&Event::Finished { step: to }, &Idle)?;
    Ok(())
}

fn report(step: u64, is_lost: bool) -> StepReport {
    // Noise from the step's bits, so that the run is the same whenever it is written.
    let noise = |salt: u64| {
        let mut mixed = (step * 31 + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 40) as f64 / (1u64 << 24) as f64 - 0.5
    };
    let wrong = if is_lost && step > SAVED { 100.0 } else { 0.0 };
    let fall = |end: f64| (-(step as f64) / 160.0).exp() * 1.1 + end;
    let bucket = |index: u64, mean: f64| BucketReport {
        loss: "video".to_owned(),
        from: index as f32 * 0.25,
        to: index as f32 * 0.25 + 0.25,
        mean: mean * (1.0 + noise(index)) + wrong,
        samples: 4,
    };
    let rate = 1e-3 * (step as f64 / 100.0).min(1.0) * (1.0 - 0.9 * step as f64 / STEPS as f64);
    let role = |role, scale: f64| RoleReport {
        role,
        rate: rate * scale,
        gradient_norm: (fall(0.3) * 3.0 * (1.0 + noise(7))).max(0.01),
        clip: 1.0,
        outcome: if step == 600 { Outcome::LossNotFinite } else { Outcome::Updated },
        skipped: u64::from(step >= 600),
    };
    let video = if step == 600 { f64::NAN } else { fall(0.05) * (1.0 + 0.5 * noise(5)) + wrong };
    StepReport {
        step,
        losses: [("video".to_owned(), video), ("audio".to_owned(), fall(0.15) * 0.5)].into(),
        buckets: (0..4).map(|index| bucket(index, fall(0.02 + 0.06 * index as f64))).collect(),
        roles: vec![role("student", 1.0), role("critic", 0.5)],
        samples: 16,
        tokens: 4096,
        seconds: 0.42 + 0.03 * noise(9),
    }
}

/// Leaves what a process that is killed while it writes can leave.
fn tear(folder: &Path) -> Result<()> {
    let entries = fs::read_dir(folder.join("tensorboard"))?;
    let mut events = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    events.sort();
    let last = events.pop().ok_or("there is no event file")?;
    File::options().append(true).open(last)?.write_all(&[200, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3])?;
    let log = File::options().append(true).open(folder.join("metrics.jsonl"));
    log?.write_all(b"{\"step\":451,\"losses\":{\"vid")?;
    Ok(())
}

fn page(folder: &Path) -> Result<Page> {
    let clips = clips(folder)?;
    let right = clips.iter().filter(|(_, verdict)| *verdict == Verdict::Right).count() as u64;
    let score = |name: &str, right, of| Score { name: name.to_owned(), right, of };
    let of = clips.len() as u64;
    let facts = [
        ("recipe", "made up, for looking at the report"),
        ("steps", "1200, resumed once after step 400"),
        ("model", "DiT, 6 blocks of width 192, 4.1 M parameters"),
        ("machine", "2 cores, 24 GiB"),
        ("time", "8 min 24 s"),
        ("seed", "7"),
    ];
    Ok(Page::new("The shapes world: a run that was killed once")
        .headline(&format!("{:.1} %", 100.0 * right as f64 / of as f64), &format!("{right} of {of} clips are right in shape, colour and direction"))
        .text("Nothing here was learnt: the clips come from the world itself and every seventh is swapped.")
        .facts("Run", facts)
        .scores("Scores", [score("all prompts", right, of), score("never seen in training", 5, 8), score("shape", 46, 48), score("colour", 48, 48), score("direction", 44, 48)])
        .history("Curves", &history(folder)?)
        .clips("Clips", clips.into_iter().map(|(clip, _)| clip)))
}

/// All scenes of the world; every seventh clip belongs to another caption.
fn clips(folder: &Path) -> Result<Vec<(CaptionedClip, Verdict)>> {
    let world = World::new(WorldOptions::default(), 7)?;
    let judge = Judge::new(world.options());
    let scenes = MovingShape::all();
    let mut clips = Vec::new();
    for (index, scene) in scenes.iter().enumerate() {
        let drawn = scenes[if index % 7 == 6 { index / 2 } else { index }];
        let shown = world.show_scene(drawn, index as u64);
        let path = folder.join("clip.gif");
        let mut writer = ClipWriter::create(&path, FrameRate::from_number(8.0)?)?;
        let [frames, height, width] = shown.clip.size();
        for frame in 0..frames {
            let values = shown.clip.frame(frame).to_vec();
            writer.push(&Frame::new(height, width, values)?)?;
        }
        writer.finish()?;
        let reading = judge.read(&shown.clip);
        let verdict = if reading.shows(scene) { Verdict::Right } else { Verdict::Wrong };
        let mut clip = CaptionedClip::new(fs::read(&path)?, scene.to_string(), verdict)?;
        if verdict == Verdict::Wrong {
            let seen = reading.scene().map_or("nothing".to_owned(), |scene| scene.to_string());
            clip = clip.with_note(format!("seen: {seen}"));
        }
        clips.push((clip, verdict));
        fs::remove_file(path)?;
    }
    Ok(clips)
}

/// Learns nothing.
struct Idle;

impl Method for Idle {
    fn name(&self) -> &'static str {
        "idle"
    }

    fn accumulate(&mut self, _: &Batch, _: &Pass) -> train::Result<MethodReport> {
        Ok(MethodReport::default())
    }

    fn updates(&self, _: u64) -> Vec<&'static str> {
        Vec::new()
    }

    fn trained(&self) -> Vec<&Trained> {
        Vec::new()
    }

    fn trained_mut(&mut self) -> Vec<&mut Trained> {
        Vec::new()
    }
}
