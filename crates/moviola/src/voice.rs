//! How the command speaks while it works: on stderr, as loud and in the form that the user asked for.
//!
//! A terminal gets bars. Anything else, a log file of a cluster or a pipe, gets lines: one when a stage
//! begins and then some at sensible intervals, as text or as JSON. Results go to stdout and are not spoken.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value, json};

/// How the command speaks; every command takes these.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct VoiceArguments {
    /// Say nothing but warnings and errors
    #[arg(long, short, global = true, help_heading = HEADING, conflicts_with = "verbose")]
    quiet: bool,
    /// Say more of what is done
    #[arg(long, short, global = true, help_heading = HEADING)]
    verbose: bool,
    /// How progress, warnings and errors are written to stderr
    #[arg(long, global = true, help_heading = HEADING, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
    /// Seconds between two lines of progress where there is no terminal [default: 5, growing to 60]
    #[arg(long, global = true, help_heading = HEADING, value_name = "SECONDS", value_parser = seconds,
          allow_negative_numbers = true)]
    log_every: Option<f64>,
}

/// A time that somebody may wait.
fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=1e9).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds from 0 to 1e9 is wanted".to_owned()),
    }
}

const HEADING: &str = "Speaking";

/// The form of what is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines to read, and bars on a terminal
    Text,
    /// One JSON object a line
    Json,
}

/// How much is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Loudness {
    Quiet,
    Usual,
    Verbose,
}

/// Speaks to the user while a command works.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Voice {
    loudness: Loudness,
    format: LogFormat,
    every: Option<Duration>,
    is_terminal: bool,
}

impl From<VoiceArguments> for Voice {
    fn from(own: VoiceArguments) -> Voice {
        let loudness = match (own.quiet, own.verbose) {
            (true, _) => Loudness::Quiet,
            (false, true) => Loudness::Verbose,
            (false, false) => Loudness::Usual,
        };
        Voice {
            loudness,
            format: own.log_format,
            every: own.log_every.map(Duration::from_secs_f64),
            is_terminal: io::stderr().is_terminal(),
        }
    }
}

impl Voice {
    /// The voice of a process that is not the first of its job: another one tells what goes on.
    pub(crate) fn in_the_background(self) -> Voice {
        Voice { loudness: Loudness::Quiet, ..self }
    }

    /// Whether the user is curious.
    pub(crate) fn is_verbose(&self) -> bool {
        self.loudness == Loudness::Verbose
    }

    /// Something that a user wants to know.
    pub(crate) fn say(&self, text: &str) {
        self.note(Loudness::Usual, "info", text);
    }

    /// Something that only a curious user wants to know.
    pub(crate) fn detail(&self, text: &str) {
        self.note(Loudness::Verbose, "detail", text);
    }

    /// Something that a user must know, and that stops nothing.
    pub(crate) fn warn(&self, text: &str) {
        self.note(Loudness::Quiet, "warning", text);
    }

    /// Why the command ends with this exit code.
    pub(crate) fn fail(&self, text: &str, code: u8) {
        line(&self.failure(text, code));
    }

    /// The same, not said yet.
    fn failure(&self, text: &str, code: u8) -> String {
        match self.format {
            // A line that begins with `error:` is ours: a name may hold line breaks too.
            LogFormat::Text => format!("error: {}", text.trim_end().replace('\n', "\n  ")),
            LogFormat::Json => object("error", [("message", json!(text)), ("code", json!(code))]),
        }
    }

    /// What is said of a file that somebody cuts short while it is read, when nothing else works any more.
    pub(crate) fn shrunk(&self, path: &Path, code: u8) -> String {
        let text = format!(
            "{} became shorter while it was read, so the work cannot go on; put the whole file back and run the same command again",
            path.display()
        );
        // A bar leaves the cursor behind it.
        let begin = if self.is_terminal { "\n" } else { "" };
        format!("{begin}{}\n", harmless(&self.failure(&text, code)))
    }

    fn note(&self, least: Loudness, level: &'static str, text: &str) {
        match self.format {
            _ if self.loudness < least => {}
            LogFormat::Text if level == "warning" => {
                line(&format!("warning: {}", crate::shortened(text)));
            }
            LogFormat::Text => line(text),
            LogFormat::Json => line(&object(level, [("message", json!(text))])),
        }
    }

    /// Shows how a stage of `total` steps gets on.
    pub(crate) fn meter(&self, stage: &str, total: u64) -> Meter {
        self.meter_of(stage, total, "step")
    }

    /// The same of something else than steps.
    pub(crate) fn meter_of(&self, stage: &str, total: u64, unit: &'static str) -> Meter {
        let mut meter = Meter { unit, ..self.patient_meter(stage, total) };
        meter.begin();
        meter
    }

    /// The same for a stage that may be over soon: a line is written only if it lasts.
    pub(crate) fn patient_meter(&self, stage: &str, total: u64) -> Meter {
        let lines = !self.is_terminal || self.format == LogFormat::Json;
        let way = match self.loudness {
            Loudness::Quiet => Way::Silent,
            _ if lines => Way::Lines,
            _ => Way::Bar(bar(stage, total)),
        };
        let begun = Instant::now();
        Meter {
            voice: *self,
            stage: stage.to_owned(),
            total,
            unit: "step",
            way,
            begun,
            from: 0,
            last: begun,
            said: None,
        }
    }
}

fn bar(stage: &str, total: u64) -> ProgressBar {
    let style = "{prefix:<8} {bar:32} {pos}/{len}  {elapsed} elapsed, {eta} left  {wide_msg}";
    let style = ProgressStyle::with_template(style).expect("the template is a constant");
    let bar = ProgressBar::new(total).with_style(style).with_prefix(stage.to_owned());
    bar.tick();
    bar
}

/// A stage of the work, shown.
pub(crate) struct Meter {
    voice: Voice,
    stage: String,
    total: u64,
    /// What is counted.
    unit: &'static str,
    way: Way,
    begun: Instant,
    /// The step it began after.
    from: u64,
    /// When something was said last.
    last: Instant,
    /// The step that was said last.
    said: Option<u64>,
}

enum Way {
    Silent,
    Lines,
    Bar(ProgressBar),
}

impl Meter {
    fn begin(&mut self) {
        if matches!(self.way, Way::Lines) {
            match self.voice.format {
                LogFormat::Text => line(&format!("{:<9} 0/{}", self.stage, self.total)),
                LogFormat::Json => self.write_object(0, "", None),
            }
        }
    }

    /// The stage goes on after step `from`: what was done before says nothing about the speed.
    pub(crate) fn resume_after(&mut self, from: u64) {
        self.from = from;
        self.begun = Instant::now();
        if let Way::Bar(bar) = &self.way {
            bar.set_position(from);
            bar.reset_eta();
        }
    }

    /// The stage has come to step `done`; `note` is what else there is to say of it.
    pub(crate) fn reach(&mut self, done: u64, note: &str) {
        match &self.way {
            Way::Silent => {}
            Way::Bar(bar) => {
                bar.set_message(note.to_owned());
                bar.set_position(done);
            }
            Way::Lines if self.is_due(done, note) => self.tell(done, note),
            Way::Lines => {}
        }
    }

    /// Ends the stage; a bar stays where it is. Returns how long it took, in seconds.
    pub(crate) fn finish(self) -> f64 {
        if let Way::Bar(bar) = &self.way {
            bar.finish();
        }
        self.begun.elapsed().as_secs_f64()
    }

    /// How many steps the stage has.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Ends the stage and takes its bar away.
    pub(crate) fn clear(self) {
        if let Way::Bar(bar) = &self.way {
            bar.finish_and_clear();
        }
    }

    /// Whether it is time for a line: after five seconds first, later every minute. The last step is
    /// always told if some other was, or if there is more to say of it than that it is over.
    fn is_due(&self, done: u64, note: &str) -> bool {
        const SHORTEST: Duration = Duration::from_secs(5);
        const LONGEST: Duration = Duration::from_secs(60);
        let usual = (self.begun.elapsed() / 10).clamp(SHORTEST, LONGEST);
        let is_new = done > self.from && self.said != Some(done);
        let ends = done == self.total && (self.said.is_some() || !note.is_empty());
        is_new && (ends || self.last.elapsed() >= self.voice.every.unwrap_or(usual))
    }

    fn tell(&mut self, done: u64, note: &str) {
        let seconds = self.begun.elapsed().as_secs_f64();
        let each = seconds / (done - self.from).max(1) as f64;
        match self.voice.format {
            LogFormat::Text => {
                let left = each * self.total.saturating_sub(done) as f64;
                let note = if note.is_empty() { String::new() } else { format!("  {note}") };
                line(&format!(
                    "{:<9} {done}/{}  {}  {} left{note}",
                    self.stage,
                    self.total,
                    rate(each, self.unit),
                    duration(left)
                ));
            }
            LogFormat::Json => self.write_object(done, note, Some(each)),
        }
        (self.last, self.said) = (Instant::now(), Some(done));
    }

    /// A line of progress for programs; `each` is how long a step takes, in seconds.
    fn write_object(&self, done: u64, note: &str, each: Option<f64>) {
        let left = each.map(|each| each * self.total.saturating_sub(done) as f64);
        let fields = [
            ("stage", json!(self.stage)),
            ("step", json!(done)),
            ("total", json!(self.total)),
            ("seconds_per_step", json!(each)),
            ("seconds_left", json!(left)),
            ("note", json!(note)),
        ];
        let said = fields.into_iter().filter(|(_, value)| !value.is_null() && value != "");
        line(&object("progress", said));
    }
}

/// A speed in the unit that has the fewest zeros.
fn rate(each: f64, unit: &str) -> String {
    // Steps are counted, and what is measured has no plural.
    let plural = if unit == "step" { "s" } else { "" };
    match each > 1.0 {
        true => format!("{each:.1} s/{unit}"),
        false => format!("{:.1} {unit}{plural}/s", 1.0 / each.max(1e-9)),
    }
}

/// A time as people say it.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 10.0 => format!("{seconds:.1} s"),
        seconds if seconds < 100.0 => format!("{seconds:.0} s"),
        seconds if seconds < 5400.0 => format!("{:.0} min", seconds / 60.0),
        seconds if seconds < 172_800.0 => format!("{:.1} h", seconds / 3600.0),
        seconds => format!("{:.1} days", seconds / 86_400.0),
    }
}

/// So many bytes as people say it.
pub(crate) fn bytes(bytes: u64) -> String {
    match bytes as f64 / f64::from(1 << 30) {
        gibibytes if gibibytes >= 1.0 => format!("{gibibytes:.1} GiB"),
        gibibytes => format!("{:.0} MiB", gibibytes * 1024.0),
    }
}

/// Writes a line. A reader that is gone hears nothing, and the work goes on.
fn line(text: &str) {
    let _ = writeln!(io::stderr(), "{}", harmless(text));
}

/// Why the arguments cannot be understood, in the form that they ask for.
pub(crate) fn misunderstood(text: &str, code: i32) {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let pairs = words.windows(2).any(|pair| pair == ["--log-format", "json"]);
    let text = match pairs || words.iter().any(|word| word == "--log-format=json") {
        true => {
            object("error", [("message", json!(text.trim_end())), ("code", json!(code))]) + "\n"
        }
        false => text.to_owned(),
    };
    let _ = write!(io::stderr(), "{}", harmless(&text));
}

/// The same with control characters as what they are: a file or an argument may hold any, and a terminal obeys. They are
/// written as JSON writes them, so that what was JSON still is.
pub(crate) fn harmless(text: &str) -> String {
    let obeyed = |letter: &char| letter.is_control() && !matches!(letter, '\n' | '\t');
    let mut plain = String::with_capacity(text.len());
    for letter in text.chars() {
        match obeyed(&letter) {
            true => plain += &format!("\\u{:04x}", u32::from(letter)),
            false => plain.push(letter),
        }
    }
    plain
}

/// A JSON object for a line of its own.
fn object(level: &str, fields: impl IntoIterator<Item = (&'static str, Value)>) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let mut all = Map::new();
    all.insert("time".to_owned(), json!((now * 1000.0).round() / 1000.0));
    all.insert("level".to_owned(), json!(level));
    all.extend(fields.into_iter().map(|(key, value)| (key.to_owned(), value)));
    Value::Object(all).to_string()
}

#[cfg(test)]
mod tests {
    use super::{bytes, duration, rate};

    #[test]
    fn numbers_are_said_as_people_say_them() {
        assert_eq!([duration(0.04), duration(42.0), duration(600.0)], ["0.0 s", "42 s", "10 min"]);
        assert_eq!([duration(7200.0), duration(400_000.0)], ["2.0 h", "4.6 days"]);
        let rates = [rate(0.25, "step"), rate(12.5, "step"), rate(0.5, "MiB")];
        assert_eq!(rates, ["4.0 steps/s", "12.5 s/step", "2.0 MiB/s"]);
        assert_eq!([bytes(61 << 20), bytes(9 << 30)], ["61 MiB", "9.0 GiB"]);
    }
}
