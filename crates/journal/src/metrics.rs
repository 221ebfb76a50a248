//! `metrics.jsonl`: a line for every step, and one whenever something else was recorded.
//!
//! Lines are in order of steps and written whole. What is not a finite number is `null`, because JSON
//! has no word for it. A run that was killed may leave half a line at the end; nobody reads that.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize};
use train::{BucketReport, Outcome, RoleReport, StepReport};

use crate::error::{Error, Result};
use crate::journal::Peak;

/// The log's name within a run.
pub(crate) const FILE: &str = "metrics.jsonl";

/// What a step brought: the trainer's report, and how fast it was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The step, from 1.
    pub step: u64,
    /// The mean of every loss.
    #[serde(deserialize_with = "numbers")]
    pub losses: BTreeMap<String, f64>,
    /// The mean of every loss by noise level.
    pub buckets: Vec<Bucket>,
    /// The roles that were due for an update.
    pub roles: Vec<Role>,
    /// Samples.
    pub samples: u64,
    /// Tokens that went through a backward pass.
    pub tokens: u64,
    /// How long it took.
    pub seconds: f64,
    /// Samples per second.
    pub samples_per_second: f64,
    /// Tokens per second.
    pub tokens_per_second: f64,
    /// The share of the machine's peak, from 0 to 1, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_of_peak: Option<f64>,
}

/// The mean loss of the samples within a range of noise levels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// Which loss.
    pub loss: String,
    /// From this level on.
    pub from: f32,
    /// Up to this level.
    pub to: f32,
    /// The mean.
    #[serde(deserialize_with = "number")]
    pub mean: f64,
    /// Over so many samples.
    pub samples: u64,
}

/// The update of one role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Role {
    /// The role.
    pub role: String,
    /// Its learning rate.
    #[serde(deserialize_with = "number")]
    pub rate: f64,
    /// The norm of its gradients before clipping.
    #[serde(deserialize_with = "number")]
    pub gradient_norm: f64,
    /// What they were multiplied by.
    #[serde(deserialize_with = "number")]
    pub clip: f64,
    /// `updated`, `loss-not-finite` or `gradient-not-finite`.
    pub outcome: String,
    /// How many of its updates were skipped so far.
    pub skipped: u64,
}

/// Numbers that somebody else recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scalars {
    /// The last step that was over.
    pub step: u64,
    /// The numbers by name.
    #[serde(deserialize_with = "numbers")]
    pub scalars: BTreeMap<String, f64>,
}

impl Step {
    // Taken apart field by field, so that a report which grows does not compile here.
    pub(crate) fn new(report: &StepReport, peak: Option<Peak>) -> Step {
        let StepReport { step, losses, buckets, roles, samples, tokens, seconds } = report;
        let tokens_per_second = report.tokens_per_second();
        let share = |peak: Peak| tokens_per_second * peak.flops_per_token / peak.flops_per_second;
        Step {
            step: *step,
            losses: losses.clone(),
            buckets: buckets.iter().map(Bucket::new).collect(),
            roles: roles.iter().map(Role::new).collect(),
            samples: *samples,
            tokens: *tokens,
            seconds: *seconds,
            samples_per_second: report.samples_per_second(),
            tokens_per_second,
            share_of_peak: peak.map(share),
        }
    }

    /// Everything that has a curve, by the name it has in TensorBoard.
    pub fn scalars(&self) -> Vec<(String, f64)> {
        let mut found: Vec<(String, f64)> = Vec::new();
        found.extend(self.losses.iter().map(|(name, loss)| (format!("loss/{name}"), *loss)));
        let bucket = |bucket: &Bucket| {
            (format!("loss_by_level/{}/{}", bucket.loss, bucket.range()), bucket.mean)
        };
        found.extend(self.buckets.iter().map(bucket));
        for Role { role, rate, gradient_norm, .. } in &self.roles {
            found.push((format!("rate/{role}"), *rate));
            found.push((format!("gradient_norm/{role}"), *gradient_norm));
        }
        found.push(("speed/samples_per_second".to_owned(), self.samples_per_second));
        found.push(("speed/tokens_per_second".to_owned(), self.tokens_per_second));
        found.extend(self.share_of_peak.map(|share| ("speed/share_of_peak".to_owned(), share)));
        found
    }
}

impl Bucket {
    fn new(report: &BucketReport) -> Bucket {
        let BucketReport { loss, from, to, mean, samples } = report;
        let (from, to, mean, samples) = (*from, *to, *mean, *samples);
        Bucket { loss: loss.clone(), from, to, mean, samples }
    }

    /// Its levels in words that sort.
    pub(crate) fn range(&self) -> String {
        format!("{:.2}-{:.2}", self.from, self.to)
    }
}

impl Role {
    fn new(report: &RoleReport) -> Role {
        let RoleReport { role, rate, gradient_norm, clip, outcome, skipped } = report;
        let outcome = match outcome {
            Outcome::Updated => "updated",
            Outcome::LossNotFinite => "loss-not-finite",
            Outcome::GradientNotFinite => "gradient-not-finite",
        };
        Role {
            role: (*role).to_owned(),
            rate: *rate,
            gradient_norm: *gradient_norm,
            clip: *clip,
            outcome: outcome.to_owned(),
            skipped: *skipped,
        }
    }
}

/// A number, or none where `null` stands.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

fn numbers<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, f64>, D::Error> {
    let found: BTreeMap<String, Option<f64>> = BTreeMap::deserialize(from)?;
    Ok(found.into_iter().map(|(name, number)| (name, number.unwrap_or(f64::NAN))).collect())
}

/// One line of the log.
pub(crate) enum Line {
    Step(Step),
    Scalars(Scalars),
}

impl Line {
    fn parse(text: &[u8]) -> Result<Line, String> {
        /// What tells the two apart.
        #[derive(Deserialize)]
        struct Kind {
            scalars: Option<serde::de::IgnoredAny>,
        }
        let parse = || match serde_json::from_slice::<Kind>(text)?.scalars {
            Some(_) => serde_json::from_slice(text).map(Line::Scalars),
            None => serde_json::from_slice(text).map(Line::Step),
        };
        parse().map_err(|error: serde_json::Error| error.to_string())
    }

    fn step(&self) -> u64 {
        match self {
            Line::Step(line) => line.step,
            Line::Scalars(line) => line.step,
        }
    }
}

/// Hands every line on, with the place where it ends. What was torn at the end is passed over.
pub(crate) fn scan(path: &Path, mut take: impl FnMut(Line, u64)) -> Result<()> {
    let failure = |source| Error::file("read", path, source);
    let mut reader = BufReader::new(kernels::open_file(path).map_err(failure)?);
    let (mut text, mut end) = (Vec::new(), 0);
    let mut torn = None;
    for line in 1.. {
        text.clear();
        match reader.read_until(b'\n', &mut text).map_err(failure)? {
            0 => break,
            read => end += read as u64,
        }
        let whole = text.strip_suffix(b"\n").ok_or_else(|| "it does not end".to_owned());
        match (whole.and_then(Line::parse), torn.take()) {
            (Ok(found), None) => take(found, end),
            (Ok(_), Some((line, reason))) => {
                return Err(Error::Damaged { path: path.to_owned(), line, reason });
            }
            (Err(reason), earlier) => torn = earlier.or(Some((line, reason))),
        }
    }
    Ok(())
}

/// The log of a run under way.
#[derive(Debug)]
pub(crate) struct Metrics {
    path: PathBuf,
    file: File,
    /// The last step written about.
    step: u64,
    /// What was recorded at that step.
    recorded: BTreeSet<String>,
}

impl Metrics {
    /// Opens the log of a run that goes on after `step`; later lines are dropped, and all lines if no
    /// step is over, for then everything is told anew.
    pub(crate) fn open(run: &Path, step: u64) -> Result<Metrics> {
        let path = run.join(FILE);
        let failure = |source| Error::file("write", &path, source);
        let options = &mut File::options();
        let file = data::aside::open_in_place(&path, options.create(true).append(true));
        let file = file.map_err(failure)?;
        let (mut kept, mut is_past) = (0, false);
        let mut recorded = BTreeSet::new();
        if step > 0 {
            scan(&path, |line, end| {
                is_past |= line.step() > step;
                if is_past {
                    return;
                }
                kept = end;
                match line {
                    Line::Scalars(line) if line.step == step => {
                        recorded.extend(line.scalars.into_keys());
                    }
                    Line::Scalars(_) | Line::Step(_) => {}
                }
            })?;
        }
        file.set_len(kept).map_err(failure)?;
        Ok(Metrics { path, file, step, recorded })
    }

    /// Writes a step down.
    pub(crate) fn step(&mut self, step: &Step) -> Result<()> {
        self.advance(step.step)?;
        self.append(step)
    }

    /// Those of some numbers that were not recorded at this step before.
    pub(crate) fn unrecorded(
        &mut self,
        step: u64,
        scalars: impl Iterator<Item = (String, f64)>,
    ) -> Result<BTreeMap<String, f64>> {
        self.advance(step)?;
        Ok(scalars.filter(|(name, _)| !self.recorded.contains(name)).collect())
    }

    /// Writes down what somebody else found.
    pub(crate) fn record(&mut self, record: &Scalars) -> Result<()> {
        self.advance(record.step)?;
        self.append(record)?;
        self.recorded.extend(record.scalars.keys().cloned());
        Ok(())
    }

    pub(crate) fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|source| Error::file("sync", &self.path, source))
    }

    fn advance(&mut self, step: u64) -> Result<()> {
        if step < self.step {
            return Err(Error::Late { step, last: self.step });
        }
        if step > self.step {
            self.step = step;
            self.recorded.clear();
        }
        Ok(())
    }

    /// Writes a line at once, so that whoever follows the file sees whole lines.
    fn append(&mut self, line: &impl Serialize) -> Result<()> {
        let write = || -> io::Result<()> {
            let mut text = serde_json::to_vec(line)?;
            text.push(b'\n');
            (&self.file).write_all(&text)
        };
        write().map_err(|source| Error::file("write", &self.path, source))
    }
}
