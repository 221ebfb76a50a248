//! The page that a run leaves: what it was, what it learnt, what it made.

use std::path::Path;

use data::media::{ClipWriter, Frame, FrameRate};
use journal::{Page, Verdict};
use recipe::{Answer, Recipe, Score, Share};

use crate::failure::{Failure, Outcome};
use crate::session::Learnt;

/// The name of the page in the folder of a run.
pub(crate) const FILE: &str = "report.html";

fn refused(error: impl std::fmt::Display) -> Failure {
    Failure::Refused(error.to_string())
}

/// The page with the facts and the curves of a run.
///
/// # Errors
/// The log of the run cannot be read.
pub(crate) fn with_run(
    page: Page,
    recipe: &Recipe,
    learnt: &Learnt,
    folder: &Path,
) -> Outcome<Page> {
    let facts = [
        ("method", recipe.method.name().to_owned()),
        ("strategy", recipe.strategy.name().to_owned()),
        ("family", learnt.facts.family.to_owned()),
        ("parameters", learnt.facts.parameters.to_string()),
        ("of which learn", learnt.facts.learning.to_string()),
        ("samples", learnt.facts.samples.to_string()),
        ("steps", recipe.run.steps.to_string()),
        ("batch", format!("{} x {}", recipe.run.accumulation, recipe.data.batch)),
        ("seed", recipe.run.seed.to_string()),
        ("training", format!("{:.0} s after step {}", learnt.seconds, learnt.from)),
        ("made by", format!("moviola {}", env!("CARGO_PKG_VERSION"))),
    ];
    let history = journal::history(folder).map_err(refused)?;
    Ok(page.facts("The run", facts).history("How it went", &history))
}

/// The page with the marks and clips of an exam, which are also left as files and play at `rate`.
///
/// # Errors
/// A clip cannot be written.
pub(crate) fn with_exam(
    page: Page,
    score: &Score,
    answers: &[Answer],
    (folder, rate): (&Path, FrameRate),
) -> Outcome<Page> {
    let row = |name: &str, share: Share| journal::Score {
        name: name.to_owned(),
        right: share.right as u64,
        of: share.of as u64,
    };
    let [shape, colour, direction] = score.attributes;
    let rows = [
        row("all right", score.all),
        row("scenes of the training", score.seen),
        row("scenes never seen", score.withheld),
        row("shape", shape),
        row("colour", colour),
        row("direction", direction),
    ];
    let clips = folder.join("clips");
    std::fs::create_dir_all(&clips).map_err(refused)?;
    let mut shown = Vec::new();
    for (index, answer) in answers.iter().enumerate() {
        let path = clips.join(format!("{index:02}.gif"));
        write_clip(&path, answer, rate).map_err(refused)?;
        let bytes = std::fs::read(&path).map_err(refused)?;
        let verdict = if answer.is_right() { Verdict::Right } else { Verdict::Wrong };
        let wrong = ["shape", "colour", "direction"].iter().zip(answer.right);
        let wrong: Vec<&str> = wrong.filter(|(_, right)| !right).map(|(name, _)| *name).collect();
        let clip = journal::CaptionedClip::new(bytes, answer.scene.to_string(), verdict)
            .map_err(refused)?;
        shown.push(match wrong.is_empty() {
            true => clip,
            false => clip.with_note(format!("not read: {}", wrong.join(", "))),
        });
    }
    let number = format!("{:.1} %", score.all.percent());
    let meaning = format!("of clips are right in shape, colour and direction ({})", score.all);
    Ok(page.headline(&number, &meaning).scores("Marks", rows).clips("All clips", shown))
}

fn write_clip(path: &Path, answer: &Answer, rate: FrameRate) -> data::media::Result<()> {
    let mut writer = ClipWriter::create(path, rate)?;
    let [frames, height, width] = answer.clip.size();
    for frame in 0..frames {
        writer.push(&Frame::new(height, width, answer.clip.frame(frame).to_vec())?)?;
    }
    writer.finish()
}

/// Leaves the page in the folder of the run.
///
/// # Errors
/// It cannot be written.
pub(crate) fn write(page: Page, folder: &Path) -> Outcome {
    page.write(folder.join(FILE)).map_err(refused)
}
