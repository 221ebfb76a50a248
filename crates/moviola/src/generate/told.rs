//! What a run says before it begins and after it has ended.

use engine::{Plan, Used, most_memory};
use nn::CacheReport;

use super::Run;
use super::arguments::Arguments;
use crate::bars::Bars;
use crate::places::Kind;
use crate::voice::{Voice, bytes, duration};

/// The share of the machine's peak that a run reaches, by the runs in docs/LOG.md.
const EFFICIENCY: f64 = 0.6;

/// Work below this takes less than it takes to measure how fast the machine is.
const SMALL: f64 = 1e11;

/// What there is to say before a part of a run begins.
pub(super) struct Told {
    /// What must be known.
    notes: Vec<String>,
    /// What will be done.
    line: String,
    /// What only the curious want to know.
    details: Vec<String>,
}

impl Told {
    pub(super) fn tell(&self, voice: Voice) {
        self.notes.iter().for_each(|note| voice.warn(note));
        voice.say(&self.line);
        self.details.iter().for_each(|detail| voice.detail(detail));
    }
}

/// LoRAs that learnt as the expert that they are not given to, which some mean to do.
fn misplaced(ask: &Arguments) -> Vec<String> {
    let [first, second] = [("--lora", &ask.lora, "low"), ("--lora-2", &ask.second_lora, "high")];
    let mut notes = Vec::new();
    for (flag, loras, other) in [first, second] {
        for path in loras.iter().map(|own| &own.path) {
            let said = folder::lora::file(path).and_then(|file| folder::metadata(&file));
            if said.is_ok_and(|said| said.get("expert").is_some_and(|expert| expert == other)) {
                notes.push(format!(
                    "{flag}: {} learnt as the {other} expert, and is given to the other one",
                    path.display()
                ));
            }
        }
    }
    notes
}

impl Run<'_> {
    /// What a part of the run will do, with which settings, and about how long that takes.
    pub(super) fn told(&self, ask: &Arguments, plan: &Plan) -> Told {
        let (used, estimate) = (plan.used(), plan.estimate());
        let scales: Vec<String> = used.guidance.iter().map(f64::to_string).collect();
        let seconds = match estimate.operations() < SMALL {
            true => "a second or two".to_owned(),
            false => {
                let peak = kernels::measure_fma_peak(rayon::current_num_threads());
                duration(estimate.operations() / (EFFICIENCY * peak))
            }
        };
        let first = used.enlarged.as_ref().map_or(String::new(), |own| {
            let [_, height, width] = own.from;
            format!(", from {width} x {height} by {} more", own.timesteps.len())
        });
        let line = format!(
            "{}{first}: {} steps by {}, guidance {}, seed {}; about {seconds} and {}",
            self.made(used),
            used.timesteps.len(),
            used.solver.class,
            scales.join(" and "),
            ask.seed(),
            bytes(estimate.bytes),
        );
        let works = estimate.stages.iter().filter(|work| work.operations > 0.0);
        let works = works.map(|work| format!("{}: {:.3e} operations", work.stage, work.operations));
        let details = std::iter::once(format!("timesteps: {:?}", used.timesteps)).chain(works);
        let notes = plan.notes().iter().cloned().chain(misplaced(ask)).collect();
        Told { notes, line, details: details.collect() }
    }

    /// What is made, in words.
    fn made(&self, used: &Used) -> String {
        let [frames, _, _] = used.size;
        let [height, width] = used.delivered;
        let samples = used.samples;
        let plural = if samples == 1 { "" } else { "s" };
        match (used.frame_rate, self.kind) {
            (Some(rate), Kind::Sound) => {
                format!("{samples} sound{plural} of {:.2} s", frames as f64 / rate)
            }
            (None, _) => format!("{samples} picture{plural} of {width} x {height}"),
            (Some(rate), _) => {
                format!(
                    "{samples} clip{plural} of {frames} frames, {width} x {height}, {rate} a second"
                )
            }
        }
    }

    /// What a step cache left out, and how far off that was.
    pub(super) fn tell_cache(&self, report: Option<CacheReport>) {
        let Some(CacheReport { passes, skipped, drift }) = report else { return };
        let cost = match skipped {
            0 => "no step was near enough to the one before".to_owned(),
            _ => format!("what was left out had changed by at most {:.1} %", 100.0 * drift),
        };
        self.voice.say(&format!(
            "first-block cache: {skipped} of {passes} passes ran the first block only; {cost}"
        ));
    }

    /// What was made, with which seed, and how long each stage took.
    pub(super) fn tell_end(&self, samples: usize, sizes: &[[usize; 2]], bars: &Bars<'_>) {
        let stages: Vec<String> = bars
            .stages()
            .iter()
            .map(|(stage, own)| format!("{stage} {}", duration(*own)))
            .collect();
        let mut sizes: Vec<String> =
            sizes.iter().map(|[height, width]| format!("{width} x {height}")).collect();
        sizes.dedup();
        let mut seeds: Vec<String> = self.asks.iter().map(|ask| ask.seed().to_string()).collect();
        seeds.dedup();
        let seeds = match seeds.len() > 4 {
            true => format!("{} seeds", seeds.len()),
            false => format!("seed {}", seeds.join(", ")),
        };
        self.voice.say(&format!(
            "made {samples} of {} in {}: {seeds}; {}{}",
            sizes.join(" and "),
            duration(self.clock.seconds()),
            stages.join(", "),
            most_memory().map_or(String::new(), |most| format!("; {} at most", bytes(most))),
        ));
    }
}
