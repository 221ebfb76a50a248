//! A plan's costs as tables, bars and data.

use std::fmt::Write;

use comm::Axis;
use parallel::Plan;
use parallel::cost::{Candidate, Hardware, RankForecast, Work};
use serde_json::{Value, json};

use crate::layout::flag;
use crate::voice::duration;

/// Candidates that are drawn.
const SHOWN: usize = 12;

/// The longest bar.
const BAR: f64 = 36.0;

/// What was found.
pub(super) struct Report<'a> {
    pub(super) name: &'a str,
    pub(super) work: &'a Work,
    pub(super) hardware: &'a Hardware,
    pub(super) chosen: Candidate,
    /// All legal layouts of as many ranks, the best first.
    pub(super) others: Vec<Candidate>,
}

/// A layout as one would ask for it.
pub(super) fn flags(plan: &Plan) -> String {
    let layout = plan.layout();
    let outer_first = Axis::ALL.into_iter().rev();
    let degrees = outer_first.filter(|axis| layout.mesh.degree(*axis) > 1);
    let mut words: Vec<String> =
        degrees.map(|axis| format!("--{} {}", flag(axis), layout.mesh.degree(axis))).collect();
    if plan.patches() != layout.mesh.degree(Axis::Pipeline) {
        words.push(format!("--patches {}", plan.patches()));
    }
    if let Some(warmup) = layout.pipeline.warmup {
        words.push(format!("--warmup {warmup}"));
    }
    if let Some(stages) = &layout.pipeline.stages {
        let stages: Vec<String> = stages.iter().map(ToString::to_string).collect();
        words.push(format!("--stages {}", stages.join(",")));
    }
    if layout.vae_ranks > 1 {
        words.push(format!("--vae-ranks {}", layout.vae_ranks));
    }
    if words.is_empty() { "--ranks 1".to_owned() } else { words.join(" ") }
}

impl Report<'_> {
    pub(super) fn text(&self) -> String {
        let Report { name, work, hardware, chosen, .. } = self;
        let forecast = &chosen.forecast;
        let tokens: Vec<String> = work
            .workload
            .tokens
            .named()
            .into_iter()
            .map(|(stream, count)| format!("{count} {stream} tokens"))
            .collect();
        let mut text = format!(
            "{name}: {:.3} billion parameters, {} blocks, {}, {} steps, {} predictions a step\n{}: {}\n\n",
            work.network().parameters() as f64 / 1e9,
            work.workload.depth,
            tokens.join(", "),
            work.steps(),
            work.workload.branches,
            hardware.name,
            flags(&chosen.plan),
        );
        text += &table(&forecast.ranks);
        let seconds = &forecast.seconds;
        let put = "a string takes all that is written";
        writeln!(
            text,
            "\na step takes {}{}, all {} ({} before, {} of steps, {} of decoding); efficiency {:.0} %",
            time(seconds.step),
            match chosen.exact {
                true => String::new(),
                false => format!(" (an exact one {})", time(seconds.warm_step)),
            },
            time(seconds.all),
            time(seconds.before),
            time(seconds.steps),
            time(seconds.decode),
            100.0 * forecast.efficiency
        )
        .expect(put);
        let unit = if hardware.shared_memory { "a host" } else { "a rank" };
        let fits = if chosen.fits { "" } else { ", which is TOO LITTLE" };
        writeln!(
            text,
            "{unit} needs {} of {}{fits}\n",
            bytes(forecast.host_bytes),
            bytes(hardware.memory)
        )
        .expect(put);
        text + &self.bars()
    }

    /// The time of every candidate, the best first.
    fn bars(&self) -> String {
        let mut text = String::new();
        let put = "a string takes all that is written";
        let shown = &self.others[..self.others.len().min(SHOWN)];
        let time_of = |own: &Candidate| own.forecast.seconds.all;
        let longest = shown.iter().map(time_of).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let width = shown.iter().map(|own| flags(&own.plan).len()).max().unwrap_or(0);
        for own in shown {
            let length = (BAR * time_of(own) / longest).round().max(1.0) as usize;
            let mut notes = Vec::new();
            notes.extend((!own.fits).then_some("too large"));
            notes.extend((!own.exact).then_some("patches see keys that are a step old"));
            notes.extend((own.plan == self.chosen.plan).then_some("this one"));
            let notes =
                if notes.is_empty() { String::new() } else { format!("  ({})", notes.join(", ")) };
            let (flags, bar) = (flags(&own.plan), "█".repeat(length));
            writeln!(text, "{flags:<width$}  {bar} {}{notes}", time(time_of(own))).expect(put);
        }
        if self.others.len() > SHOWN {
            writeln!(text, "and {} more", self.others.len() - SHOWN).expect(put);
        }
        text
    }

    pub(super) fn json(&self) -> Value {
        let Report { name, work, hardware, chosen, others } = self;
        let one = |own: &Candidate| {
            let seconds = &own.forecast.seconds;
            json!({
                "layout": flags(&own.plan),
                "degrees": degrees(&own.plan),
                "exact": own.exact,
                "fits": own.fits,
                "seconds_per_step": seconds.step,
                "seconds_per_exact_step": seconds.warm_step,
                "seconds_before": seconds.before,
                "seconds_of_steps": seconds.steps,
                "seconds_of_decoding": seconds.decode,
                "seconds": seconds.all,
                "efficiency": own.forecast.efficiency,
                "host_bytes": own.forecast.host_bytes,
            })
        };
        let mut plan = one(chosen);
        plan["ranks"] = chosen
            .forecast
            .ranks
            .iter()
            .enumerate()
            .map(|(rank, own)| {
                json!({
                    "rank": rank,
                    "parameters": own.memory.parameter_count,
                    "parameter_bytes": own.memory.parameters,
                    "activation_bytes": own.memory.activations,
                    "key_value_bytes": own.memory.key_values,
                    "decode_bytes": own.memory.decode,
                    "peak_bytes": own.memory.peak,
                    "traffic_bytes_per_step": own.traffic.bytes().round() as u64,
                    "busy_seconds_per_step": own.busy,
                })
            })
            .collect();
        json!({
            "model": name,
            "parameters": work.network().parameters(),
            "steps": work.steps(),
            "branches": work.workload.branches,
            "hardware": hardware.name,
            "memory_bytes": hardware.memory,
            "plan": plan,
            "candidates": others.iter().map(one).collect::<Vec<_>>(),
        })
    }
}

fn degrees(plan: &Plan) -> Value {
    let mesh = plan.layout().mesh;
    Axis::ALL.into_iter().map(|axis| (axis.to_string(), Value::from(mesh.degree(axis)))).collect()
}

/// The rows of all ranks; neighbours that are alike share one.
fn table(ranks: &[RankForecast]) -> String {
    let head = [
        "rank",
        "parameters",
        "weights",
        "activations",
        "keys, values",
        "peak",
        "sent/step",
        "busy/step",
    ];
    let mut rows: Vec<[String; 8]> = vec![head.map(str::to_owned)];
    let mut start = 0;
    while start < ranks.len() {
        let alike = ranks[start..].iter().take_while(|own| **own == ranks[start]).count();
        let (own, last) = (&ranks[start], start + alike - 1);
        rows.push([
            if alike > 1 { format!("{start}-{last}") } else { start.to_string() },
            format!("{:.2} M", own.memory.parameter_count as f64 / 1e6),
            bytes(own.memory.parameters),
            bytes(own.memory.activations),
            bytes(own.memory.key_values),
            bytes(own.memory.peak),
            bytes(own.traffic.bytes().round() as u64),
            time(own.busy),
        ]);
        start += alike;
    }
    let widths: Vec<usize> = (0..head.len())
        .map(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0))
        .collect();
    let line = |row: [String; 8]| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
        format!("{}\n", cells.join("  "))
    };
    rows.into_iter().map(line).collect()
}

/// So many bytes, small numbers too.
fn bytes(bytes: u64) -> String {
    match bytes {
        0 => "0".to_owned(),
        bytes if bytes < 10 << 20 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        bytes => crate::voice::bytes(bytes),
    }
}

/// A time in words.
fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.1} us", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s if s < 120.0 => format!("{s:.2} s"),
        s => duration(s),
    }
}
