//! The page that a run leaves: what it was, what it learnt, what it made.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use data::media::{ClipWriter, Frame, FrameRate};
use data::world::{Judge, MovingShape};
use journal::{CaptionedClip, Page, Verdict};
use recipe::{
    Answer, ExpertConfig, LearnsConfig, Recipe, Score, SeenClip, ShapesConfig, Share, SourceConfig,
};

use crate::changes;
use crate::failure::{Failure, Outcome};
use crate::session::Learnt;
use crate::voice::duration;

/// The name of the page in the folder of a run.
pub(crate) const FILE: &str = "report.html";

fn refused(error: impl std::fmt::Display) -> Failure {
    Failure::Refused(error.to_string())
}

/// Clips of the last look that a page shows, and at how many steps it shows how they came to be.
const CLIPS: usize = 24;
const STEPS: usize = 6;

/// A run as its page tells it.
pub(crate) struct Told<'a> {
    pub(crate) recipe: &'a Recipe,
    /// The file that the recipe came from.
    pub(crate) name: &'a str,
    pub(crate) learnt: &'a Learnt,
    pub(crate) folder: &'a Path,
}

/// The page with the facts, the clips and the curves of a run.
///
/// # Errors
/// The log of the run or a clip cannot be read.
pub(crate) fn with_run(page: Page, told: &Told<'_>) -> Outcome<Page> {
    let Told { recipe, name, learnt, folder } = told;
    let student = &recipe.models.student;
    let base = student.from.clone().unwrap_or_else(|| format!("a new {}", learnt.facts.family));
    let dataset = match &recipe.data.source {
        SourceConfig::Shapes(_) => "the shapes world".to_owned(),
        SourceConfig::Store(store) => store.path.clone(),
        SourceConfig::Mix(mix) => {
            mix.of.iter().map(|part| part.path.clone()).collect::<Vec<_>>().join(", ")
        }
    };
    let learns = match &student.learns {
        LearnsConfig::All => "all of it".to_owned(),
        LearnsConfig::Only { .. } => "some layers of it".to_owned(),
        LearnsConfig::Lora(lora) => {
            let alpha = lora.alpha.unwrap_or(lora.rank as f64);
            format!("a LoRA of rank {}, alpha {alpha}", lora.rank)
        }
    };
    let learns = match student.expert {
        None => learns,
        Some(ExpertConfig::Both) => format!("{learns}, of both experts in turns"),
        Some(expert) => format!("{learns}, of the expert of {} levels", expert.name()),
    };
    let history = journal::history(folder).map_err(refused)?;
    let seconds: f64 = history.steps.iter().map(|step| step.seconds).sum();
    let facts = [
        ("base model", base),
        ("what learns", learns),
        ("dataset", dataset),
        ("recipe", (*name).to_owned()),
        ("method", recipe.method.name().to_owned()),
        ("strategy", recipe.strategy.name().to_owned()),
        ("family", learnt.facts.family.to_owned()),
        ("parameters", learnt.facts.parameters.to_string()),
        ("of which learn", learnt.facts.learning.to_string()),
        ("samples", learnt.facts.samples.to_string()),
        ("steps", format!("{} of {}", learnt.step, recipe.run.steps)),
        ("batch", format!("{} x {}", recipe.run.accumulation, recipe.data.batch)),
        ("seed", recipe.run.seed.to_string()),
        ("training", format!("{} in all", duration(seconds))),
        ("date", date(SystemTime::now())),
        ("made by", format!("moviola {}", env!("CARGO_PKG_VERSION"))),
    ];
    let changed = changes::told(folder)?;
    let changed = changed.into_iter().map(|line| ("changed", line));
    let page = page.facts("The run", facts.into_iter().chain(changed));
    let page = with_looks(page, &recipe::looks(folder, learnt.step)?)?;
    Ok(page.history("How it went", &history))
}

/// The clips of the last look at the student, and how the first of them came to be.
fn with_looks(page: Page, looks: &[(u64, Vec<SeenClip>)]) -> Outcome<Page> {
    let Some((last, clips)) = looks.last() else { return Ok(page) };
    let shown = clips.iter().take(CLIPS).map(|clip| captioned(clip, clip.caption.clone()));
    let shown = shown.collect::<Outcome<Vec<_>>>()?;
    let page = page.clips(&format!("Validation after step {last}"), shown);
    if looks.len() < 2 {
        return Ok(page);
    }
    let count = looks.len().min(STEPS);
    let spread = (0..count).map(|at| &looks[at * (looks.len() - 1) / (count - 1)]);
    let first = spread.filter_map(|(step, clips)| Some((step, clips.first()?)));
    let first = first.map(|(step, clip)| captioned(clip, format!("after step {step}")));
    let first = first.collect::<Outcome<Vec<_>>>()?;
    Ok(page.clips(&format!("How \u{201c}{}\u{201d} came to be", clips[0].caption), first))
}

fn captioned(clip: &SeenClip, caption: String) -> Outcome<CaptionedClip> {
    let verdict = match clip.right {
        Some(true) => Verdict::Right,
        Some(false) => Verdict::Wrong,
        None => Verdict::Unjudged,
    };
    CaptionedClip::new(clip.shown()?, caption, verdict).map_err(refused)
}

/// A moment as people write it, in UTC.
fn date(moment: SystemTime) -> String {
    let seconds = moment.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (mut days, minutes) = (seconds / 86_400, seconds / 60 % 1440);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        (days, month) = (days - length, month + 1);
    }
    format!("{year}-{month:02}-{:02} {:02}:{:02} UTC", days + 1, minutes / 60, minutes % 60)
}

/// The page with the marks and clips of an exam, which are also left as files and play at `rate`.
///
/// # Errors
/// A clip cannot be written.
pub(crate) fn with_exam(
    page: Page,
    score: &Score,
    answers: &[Answer],
    shapes: &ShapesConfig,
    (folder, rate): (&Path, FrameRate),
) -> Outcome<Page> {
    let judge = Judge::new(&shapes.world);
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
            false => {
                let why = judge.explain(&answer.clip, &answer.scene).join("; ");
                clip.with_note(format!("not read: {} ({why})", wrong.join(", ")))
            }
        });
    }
    let number = format!("{:.1} %", score.all.percent());
    let meaning = format!("of clips are right in shape, colour and direction ({})", score.all);
    let page = page.headline(&number, &meaning);
    let scenes = ShapesConfig { withheld: Vec::new(), ..shapes.clone() }.scenes()?;
    let page = introduction(shapes, &scenes)?.iter().fold(page, |page, text| page.text(text));
    let page = page.scores("Marks", rows).text(&chance(&scenes));
    let page = page.clips("All clips", shown).text(NOT_READ);
    let page = page.text("What to do next:");
    Ok(next(folder, &scenes).iter().fold(page, |page, text| page.text(text)))
}

/// What a model that draws anything would score.
fn chance(scenes: &[MovingShape]) -> String {
    fn among<T: Ord>(all: impl Iterator<Item = T>) -> f64 {
        100.0 / all.collect::<BTreeSet<T>>().len().max(1) as f64
    }
    let shape = among(scenes.iter().map(|own| own.shape.word()));
    let colour = among(scenes.iter().map(|own| own.colour.word()));
    let direction = among(scenes.iter().map(|own| own.direction.word()));
    let all = 100.0 / scenes.len().max(1) as f64;
    format!(
        "Chance: a model that drew any of the {} scenes whatever it was asked for would be right in shape in {shape:.0} %, in colour in \
         {colour:.0} %, in direction in {direction:.0} %, and in all three in {all:.1} %; one that drew noise, in none.",
        scenes.len()
    )
}

/// What the notes below clips mean.
const NOT_READ: &str = "A judge looks at the pixels of each clip, not at what was asked for, and names shape, colour and direction only where \
                        they leave no doubt. \u{201c}Not read\u{201d} means that it named another one, or none; in brackets is what it measured, \
                        and the limit.";

/// Commands that a newcomer may type: all of them work as they stand.
fn next(folder: &Path, scenes: &[MovingShape]) -> [String; 3] {
    let (run, model) = (quoted(folder), quoted(&folder.join("model")));
    let square = scenes.iter().find(|own| own.to_string() == "a blue square moves up");
    let caption = square.or(scenes.first()).map_or_else(String::new, ToString::to_string);
    [
        format!("moviola generate --model {model} --prompt '{caption}' --output clip.gif makes a clip of your own."),
        format!(
            "moviola quickstart --run {run} --set loop.steps=8000 learns for longer and is examined anew; recipes/learn/ of the repository \
             has first frames, inpainting, sound and distillation on the same world."
        ),
        "moviola preprocess, train and export do the same with your clips and a real model: docs/training.md.".to_owned(),
    ]
}

/// A path as a shell reads it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-".contains(letter);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// What a newcomer looks at.
fn introduction(shapes: &ShapesConfig, scenes: &[MovingShape]) -> Outcome<Vec<String>> {
    let world = &shapes.world;
    let colours: BTreeSet<&str> = scenes.iter().map(|own| own.colour.word()).collect();
    let colours: Vec<&str> = colours.into_iter().collect();
    let mut all = vec![format!(
        "A small transformer learnt from {} rendered clips of {} frames of {} x {} pixels: a circle, a square or a triangle in {} moves in \
         one of four directions, and a caption says which. It saw {} of {} scenes. Then it made every scene twice from noise and its \
         caption alone.",
        shapes.clips,
        world.frames,
        world.width,
        world.height,
        colours.join(" or "),
        shapes.scenes()?.len(),
        scenes.len(),
    )];
    if !shapes.withheld.is_empty() {
        all.push(format!(
            "These scenes were withheld, so that the model has to put their words together by itself: {}.",
            shapes.withheld.join("; ")
        ));
    }
    Ok(all)
}

fn write_clip(path: &Path, answer: &Answer, rate: FrameRate) -> data::media::Result<()> {
    let mut writer = ClipWriter::create(path, rate)?;
    let [frames, height, width] = answer.clip.size();
    for frame in 0..frames {
        writer.push(&Frame::new(height, width, answer.clip.frame(frame).to_vec())?)?;
    }
    writer.finish()
}

/// Refuses what stands in the place of the page and is no file: whoever wrote into a pipe would wait for its reader.
///
/// # Errors
/// It is one.
pub(crate) fn check(folder: &Path) -> Outcome {
    let path = folder.join(FILE);
    match data::aside::is_special(&path) {
        false => Ok(()),
        true => Err(Failure::Refused(format!(
            "{} is a pipe or a device, and the page of a run is a file; remove it",
            path.display()
        ))),
    }
}

/// Leaves the page in the folder of the run.
///
/// # Errors
/// It cannot be written.
pub(crate) fn write(page: Page, folder: &Path) -> Outcome {
    check(folder)?;
    page.write(folder.join(FILE)).map_err(refused)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use data::world::{Colour, MovingShape};

    use super::{chance, date, quoted};

    #[test]
    fn chance_is_that_of_the_scenes_asked_for() {
        let two = chance(&MovingShape::of(&[Colour::Red, Colour::Green]));
        assert!(two.contains("the 24 scenes") && two.contains("in colour in 50 %"), "{two}");
        assert!(two.contains("in all three in 4.2 %"), "{two}");
        assert!(chance(&MovingShape::all()).contains("in colour in 25 %"));
        assert_eq!(quoted("my run/it's".as_ref()), "'my run/it'\\''s'");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, want) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_709_251_199, "2024-02-29 23:59 UTC"),
            (1_735_689_599, "2024-12-31 23:59 UTC"),
            (1_735_689_600, "2025-01-01 00:00 UTC"),
        ] {
            assert_eq!(date(UNIX_EPOCH + Duration::from_secs(seconds)), want);
        }
    }
}
