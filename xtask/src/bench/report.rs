//! The table of a comparison, and its place in `benches/RESULTS.md`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

const BEGIN: &str = "<!-- bench:begin ";
const END: &str = "<!-- bench:end -->";

/// What one side needed for one case.
#[derive(Debug, Default, Clone)]
pub(super) struct Timing {
    /// The best time of one call.
    pub(super) seconds: f64,
    pub(super) peak_bytes: Option<u64>,
    /// What a training holds beside activations: program, weights, gradients, optimizer.
    pub(super) held_bytes: Option<u64>,
}

impl Timing {
    /// Megabytes of activations of a training.
    fn activations(&self) -> Option<f64> {
        let (peak, held) = self.peak_bytes.zip(self.held_bytes)?;
        Some(peak.saturating_sub(held) as f64 / 1e6)
    }
}

/// One case, measured on both sides.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) flops: Option<f64>,
    pub(super) goal: Option<f64>,
    pub(super) ours: Timing,
    pub(super) torch: Timing,
    /// What our f32 form of a bf16 case needed in turns with it.
    pub(super) full: Option<Timing>,
}

impl Row {
    /// How many times PyTorch's speed ours is.
    fn ratio(&self) -> f64 {
        self.torch.seconds / self.ours.seconds
    }
}

/// A whole run.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) command: String,
    /// The kind of machine, whose section of the file this is.
    pub(super) kind: String,
    pub(super) machine: String,
    pub(super) date: String,
    pub(super) versions: Vec<String>,
    /// Floating-point operations per second of a loop that does nothing else.
    pub(super) peak: Option<f64>,
    pub(super) rows: Vec<Row>,
    /// Cases that one of the sides does not know.
    pub(super) missing: Vec<&'static str>,
    /// The table of whole processes, or nothing.
    pub(super) whole_runs: String,
}

impl Report {
    /// The table with all that is needed to read and repeat it.
    pub(super) fn to_markdown(&self) -> String {
        let mut lines = vec![
            format!("`{}`, {}, {}; {}.", self.command, self.date, self.machine, self.peak_text()),
            format!("{}.", self.versions.join("; ")),
            String::new(),
            "| case | ours, ms | PyTorch, ms | speed, ours / PyTorch | goal | ours, GFLOP/s \
             | of peak | PyTorch, GFLOP/s | ours, MB | PyTorch, MB |"
                .to_string(),
            "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|".to_string(),
        ];
        lines.extend(self.rows.iter().map(|row| self.row(row)));
        let halves = self.half_precision();
        if !halves.is_empty() {
            lines.extend([String::new(), format!("Our bf16 against our f32: {halves}.")]);
        }
        let activations = self.activations();
        if !activations.is_empty() {
            let text = "Activations (peak less program, weights, gradients and optimizer)";
            lines.extend([String::new(), format!("{text}: {activations}.")]);
        }
        if !self.missing.is_empty() {
            lines.extend([String::new(), format!("Not measured: {}.", self.missing.join(", "))]);
        }
        if !self.whole_runs.is_empty() {
            lines.extend([String::new(), self.whole_runs.trim().to_owned()]);
        }
        lines.join("\n")
    }

    fn peak_text(&self) -> String {
        match self.peak {
            Some(peak) => format!("FMA peak {:.0} GFLOP/s", peak / 1e9),
            None => "FMA peak not measured".to_string(),
        }
    }

    fn row(&self, row: &Row) -> String {
        let rate = |timing: &Timing| row.flops.map(|flops| flops / timing.seconds);
        let share = rate(&row.ours).zip(self.peak).map(|(rate, peak)| 100.0 * rate / peak);
        let megabytes = |timing: &Timing| timing.peak_bytes.map(|bytes| bytes as f64 / 1e6);
        let cells = [
            row.name.to_string(),
            format!("{:.2}", 1e3 * row.ours.seconds),
            format!("{:.2}", 1e3 * row.torch.seconds),
            format!("{:.2}×", row.ratio()),
            row.goal.map_or("–".into(), |goal| {
                let verdict = if row.ratio() >= goal { "met" } else { "missed" };
                format!("{goal:.2}× {verdict}")
            }),
            or_dash(rate(&row.ours).map(|rate| rate / 1e9), ""),
            or_dash(share, " %"),
            or_dash(rate(&row.torch).map(|rate| rate / 1e9), ""),
            or_dash(megabytes(&row.ours), ""),
            or_dash(megabytes(&row.torch), ""),
        ];
        format!("| {} |", cells.join(" | "))
    }

    /// For each case in both precisions, our bf16 time as a multiple of our f32 time.
    fn half_precision(&self) -> String {
        let times = self.rows.iter().filter_map(|row| {
            let full = row.full.as_ref()?;
            let name = row.name.strip_suffix("_bf16")?;
            Some(format!("{name} {:.2}× the time", row.ours.seconds / full.seconds))
        });
        times.collect::<Vec<_>>().join(", ")
    }

    /// For each training, the memory of its activations on both sides.
    fn activations(&self) -> String {
        let rows = self.rows.iter().filter_map(|row| {
            let (ours, torch) = row.ours.activations().zip(row.torch.activations())?;
            let ratio = ours / torch;
            Some(format!("{} {ours:.0} MB against {torch:.0} MB, {ratio:.2}×", row.name))
        });
        rows.collect::<Vec<_>>().join("; ")
    }

    /// Puts the table into the section of this kind of machine in the file at `path`.
    pub(super) fn record(&self, path: &Path) -> Result<()> {
        let shown = path.display();
        let old = fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
        let new = replace_section(&old, &self.kind, &self.to_markdown())
            .with_context(|| format!("cannot record in {shown}"))?;
        fs::write(path, new).with_context(|| format!("cannot write {shown}"))
    }
}

fn or_dash(value: Option<f64>, unit: &str) -> String {
    value.map_or("–".to_string(), |value| format!("{value:.0}{unit}"))
}

/// `old` with `table` in the section of a kind of machine, which is added behind the others if there is
/// none yet.
fn replace_section(old: &str, kind: &str, table: &str) -> Result<String> {
    let begin = format!("{BEGIN}{kind} -->");
    let section = format!("{begin}\n{table}\n{END}");
    if let Some((before, rest)) = old.split_once(&begin) {
        let Some((_, after)) = rest.split_once(END) else {
            bail!("the mark {begin} has no {END} behind it; put it where the table ends");
        };
        return Ok(format!("{before}{section}{after}"));
    }
    let Some((before, after)) = old.rsplit_once(END) else {
        bail!(
            "there is no section, from {BEGIN}KIND --> to {END}, behind which another could stand"
        );
    };
    Ok(format!("{before}{END}\n\n## {kind}\n\n{section}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &'static str, ours: f64, torch: f64, goal: Option<f64>) -> Row {
        let timing = |seconds| Timing { seconds, peak_bytes: Some(250_000_000), held_bytes: None };
        let (ours, torch) = (timing(ours), timing(torch));
        Row { name, flops: Some(1e9), goal, ours, torch, full: None }
    }

    #[test]
    fn the_table_holds_ratios_rates_and_shares() {
        let report = Report {
            peak: Some(100e9),
            rows: vec![
                row("linear_f32", 0.02, 0.03, Some(1.5)),
                Row {
                    full: Some(Timing { seconds: 0.02, ..Timing::default() }),
                    ..row("linear_bf16", 0.021, 0.2, None)
                },
            ],
            missing: vec!["conv"],
            ..Report::default()
        };
        let text = report.to_markdown();
        let first =
            "| linear_f32 | 20.00 | 30.00 | 1.50× | 1.50× met | 50 | 50 % | 33 | 250 | 250 |";
        assert!(text.contains(first), "{text}");
        assert!(text.contains("FMA peak 100 GFLOP/s"), "{text}");
        assert!(text.contains("Our bf16 against our f32: linear 1.05× the time."), "{text}");
        assert!(text.contains("Not measured: conv."), "{text}");
    }

    #[test]
    fn activations_are_what_is_above_the_rest() {
        let mut training = row("training", 1.0, 1.0, None);
        (training.ours.held_bytes, training.torch.held_bytes) =
            (Some(200_000_000), Some(50_000_000));
        let text = Report { rows: vec![training], ..Report::default() }.to_markdown();
        assert!(text.contains("training 50 MB against 200 MB, 0.25×."), "{text}");
    }

    #[test]
    fn a_missed_goal_is_said() {
        let rows = vec![row("gelu", 0.03, 0.03, Some(1.5))];
        let text = Report { rows, ..Report::default() }.to_markdown();
        assert!(text.contains("| 1.00× | 1.50× missed |"), "{text}");
        assert!(text.contains("FMA peak not measured"), "{text}");
    }

    #[test]
    fn a_machine_replaces_its_own_section_and_no_other() {
        let section = |kind: &str, table: &str| format!("{BEGIN}{kind} -->\n{table}\n{END}");
        let old = format!("above\n{}\nbelow\n", section("one", "old"));
        let new = replace_section(&old, "one", "new").unwrap();
        assert_eq!(new, format!("above\n{}\nbelow\n", section("one", "new")));
        assert_eq!(replace_section(&new, "one", "new").unwrap(), new);
        let both = replace_section(&new, "one with more", "its own").unwrap();
        let added = format!("## one with more\n\n{}", section("one with more", "its own"));
        let first = section("one", "new");
        assert_eq!(both, format!("above\n{first}\n\n{added}\nbelow\n"));
        let again = replace_section(&both, "one", "newest").unwrap();
        assert_eq!(again, both.replace("\nnew\n", "\nnewest\n"));
        let message = replace_section("no marks", "one", "new").unwrap_err().to_string();
        assert!(message.contains("bench:begin"), "{message}");
    }
}
