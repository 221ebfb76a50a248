//! How often the judge of the shapes world is right, and how often it is fooled.
//!
//! `cargo run -p data --example judge` prints a table; `-- 500` takes 500 clips per row, and
//! `-- "a blue circle moves up" DIR..` tells of clips that somebody made.

#![expect(clippy::print_stdout, reason = "its output is its purpose")]

mod impostors;
mod read;

use data::world::{Evidence, Judge, MovingShape, World, WorldOptions};
use impostors::{Change, HARM, IMPOSTORS};

/// The rates of one row.
#[derive(Default)]
struct Rates {
    clips: u64,
    right: u64,
    wrong: u64,
    shapes: u64,
    evidence: Vec<Evidence>,
}

fn main() -> data::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [caption, folders @ ..] = &words[..]
        && !folders.is_empty()
    {
        return read::tell(caption, folders);
    }
    let clips = words.first().and_then(|count| count.parse().ok()).unwrap_or(192);
    let world = World::new(WorldOptions::default(), 3)?;
    let varied = WorldOptions {
        frames: 9,
        height: 43,
        width: 39,
        size: [8.0, 13.0],
        speed: [1.0, 2.5],
        ..WorldOptions::default()
    };
    let varied = World::new(varied, 4)?;
    let started = std::time::Instant::now();
    for (title, world) in [("the default world", &world), ("odd and varied sizes", &varied)] {
        println!("\n{title}: {clips} clips per row");
        println!("{:32} {:>7} {:>7} {:>7}   {}", "", "right", "other", "shape", QUANTILES);
        for (name, change) in HARM {
            print_row(name, &rates(world, change, clips));
        }
        println!("-- impostors: what is accepted --");
        for (name, change) in IMPOSTORS {
            print_row(name, &rates(world, change, clips));
        }
        println!("wrong captions accepted: {:.1} %", 100.0 * wrong_captions(world, clips));
    }
    let readings = 2.0 * (clips as usize * (HARM.len() + IMPOSTORS.len() + 1)) as f64;
    println!("{:.2} ms per clip made and read", 1e3 * started.elapsed().as_secs_f64() / readings);
    Ok(())
}

const QUANTILES: &str = "median and 98 %: softness/size, misfit; median and 2 %: margin; beside";

fn rates(world: &World, change: Change, clips: u64) -> Rates {
    let judge = Judge::new(world.options());
    let mut rates = Rates { clips, ..Rates::default() };
    for index in 0..clips {
        let shown = world.show(index);
        let (reading, evidence) = judge.examine(&change(world, &shown, index));
        rates.right += u64::from(reading.shows(&shown.scene));
        rates.wrong += u64::from(reading.scene().is_some_and(|scene| scene != shown.scene));
        rates.shapes += u64::from(reading.shape.is_some());
        rates.evidence.extend(
            evidence
                .map(|found| Evidence { softness: found.softness / shown.motion.size, ..found }),
        );
    }
    rates
}

/// The share of clips that are accepted for a caption which differs in one word.
fn wrong_captions(world: &World, clips: u64) -> f64 {
    let judge = Judge::new(world.options());
    let differs_by_one = |a: &MovingShape, b: &MovingShape| {
        [a.shape != b.shape, a.colour != b.colour, a.direction != b.direction]
            .into_iter()
            .filter(|differs| *differs)
            .count()
            == 1
    };
    let accepted = (0..clips).filter(|index| {
        let shown = world.show(*index);
        let reading = judge.read(&impostors::noisy(&shown.clip, 0.15, *index));
        let others = MovingShape::all();
        let mut others = others.iter().filter(|other| differs_by_one(&shown.scene, other));
        others.any(|other| reading.shows(other))
    });
    accepted.count() as f64 / clips as f64
}

fn print_row(name: &str, rates: &Rates) {
    let percent = |count: u64| format!("{:.1} %", 100.0 * count as f64 / rates.clips as f64);
    let at = |share: f64, value: fn(&Evidence) -> f64| {
        let mut values: Vec<f64> = rates.evidence.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values.get(((values.len() as f64 - 1.0) * share) as usize).copied().unwrap_or(f64::NAN)
    };
    println!(
        "{name:32} {:>7} {:>7} {:>7}   {:.3} {:.3}  {:.3} {:.3}  {:.3} {:.3}  {:.2}",
        percent(rates.right),
        percent(rates.wrong),
        percent(rates.shapes),
        at(0.5, |found| found.softness),
        at(0.98, |found| found.softness),
        at(0.5, |found| found.misfit),
        at(0.98, |found| found.misfit),
        at(0.5, |found| found.margin),
        at(0.02, |found| found.margin),
        at(0.98, |found| found.beside),
    );
}
