//! Files that say what ranks run on.

use std::path::Path;

use engine::machine_memory;
use parallel::cost::{Hardware, Link, Work};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Outcome};
use crate::job::Job;
use crate::launch::Process;

/// What is assumed of this machine where nothing else is said: rates matter less than what they are to each
/// other.
const THIS_KIND: &str = include_str!("../../../hardware/zen4.yaml");

/// No file that says what something is, in YAML, is longer.
const LONGEST: u64 = 4 << 20;

/// More than any rate or size there is.
const MOST: f64 = 1e21;

/// A hardware file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HardwareFile {
    /// Its name in tables.
    pub(crate) name: String,
    /// Operations a second of a rank at its best.
    pub(crate) flops: f64,
    /// The part of them that matrix products reach.
    pub(crate) efficiency: f64,
    /// The part of them that attention reaches [default: the same].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) attention: Option<f64>,
    /// Bytes a second that a rank reads and writes.
    pub(crate) stream: f64,
    /// Bytes of a number that is computed.
    pub(crate) value_bytes: u64,
    /// Bytes of memory, of a rank or of a host.
    pub(crate) memory: f64,
    /// Whether the ranks of a host share memory.
    #[serde(default)]
    pub(crate) shared_memory: bool,
    /// Bytes that the program itself needs.
    #[serde(default)]
    pub(crate) program: f64,
    /// Bytes that each of several ranks of a host needs beside that.
    #[serde(default)]
    pub(crate) rank_program: f64,
    /// Ranks that a host runs at full speed.
    pub(crate) ranks_per_host: usize,
    /// How many hosts there are [default: as many as it takes].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hosts: Option<usize>,
    /// Between ranks of a host.
    pub(crate) within: LinkFile,
    /// Between ranks of different hosts [default: the same].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) between: Option<LinkFile>,
}

/// A link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinkFile {
    /// Bytes a second that a rank sends, while it receives as many.
    pub(crate) bandwidth: f64,
    /// Seconds that a call takes.
    pub(crate) latency: f64,
}

impl HardwareFile {
    fn checked(self) -> Result<Hardware, String> {
        let rates = [
            ("flops", self.flops),
            ("efficiency", self.efficiency),
            ("attention", self.attention.unwrap_or(1.0)),
            ("stream", self.stream),
            ("memory", self.memory),
            ("within.bandwidth", self.within.bandwidth),
            ("between.bandwidth", self.between.map_or(1.0, |link| link.bandwidth)),
        ];
        if let Some((key, value)) = rates.into_iter().find(|(_, it)| !(*it > 0.0 && *it < MOST)) {
            return Err(format!("`{key}` is {value}; give a number above 0 and below {MOST:e}"));
        }
        let shares =
            [("efficiency", self.efficiency), ("attention", self.attention.unwrap_or(1.0))];
        if let Some((key, value)) = shares.into_iter().find(|(_, share)| *share > 1.0) {
            return Err(format!("`{key}` is {value}; it is a part of `flops`, 1 at the most"));
        }
        let waits = [
            ("program", self.program),
            ("rank_program", self.rank_program),
            ("within.latency", self.within.latency),
            ("between.latency", self.between.map_or(0.0, |link| link.latency)),
        ];
        if let Some((key, value)) = waits.into_iter().find(|(_, it)| !(*it >= 0.0 && *it < MOST)) {
            return Err(format!("`{key}` is {value}; give a number from 0 on"));
        }
        let counts = [
            ("value_bytes", self.value_bytes as usize, 8),
            ("ranks_per_host", self.ranks_per_host, 1 << 20),
            ("hosts", self.hosts.unwrap_or(1), 1 << 20),
        ];
        if let Some((key, value, most)) =
            counts.into_iter().find(|(_, value, most)| !(1..=*most).contains(value))
        {
            return Err(format!("`{key}` is {value}; choose 1 to {most}"));
        }
        let link = |own: LinkFile| Link { bandwidth: own.bandwidth, latency: own.latency };
        Ok(Hardware {
            name: self.name,
            flops: self.flops,
            efficiency: self.efficiency,
            attention: self.attention.unwrap_or(self.efficiency),
            stream: self.stream,
            value_bytes: self.value_bytes,
            memory: self.memory as u64,
            shared_memory: self.shared_memory,
            program: self.program as u64,
            rank_program: self.rank_program as u64,
            ranks_per_host: self.ranks_per_host,
            hosts: self.hosts,
            within: link(self.within),
            between: link(self.between.unwrap_or(self.within)),
        })
    }
}

/// Reads a hardware file.
///
/// # Errors
/// It cannot be read, is not YAML of that form, or has a number that cannot be.
pub(crate) fn read(path: &Path) -> Outcome<Hardware> {
    let file: HardwareFile = yaml(path, "--hardware")?;
    file.checked().map_err(|reason| wrong("--hardware", path, &reason))
}

/// This kind of machine, unless a file says otherwise.
///
/// # Errors
/// As [`read`].
pub(crate) fn given(path: Option<&Path>) -> Outcome<Hardware> {
    match path {
        Some(path) => read(path),
        None => this_kind(),
    }
}

/// The machine that this process runs on, or the first of its job, for some work: its cores and its memory. Weights
/// are mapped, so memory need not hold them.
///
/// # Errors
/// A process of the job does not come.
pub(crate) fn here(work: &Work, job: &Job) -> Outcome<Hardware> {
    // All processes weigh layouts of the same machine, or they would choose different ones.
    let said = job.as_the_first("the machine", machine().to_vec())?;
    of(work, [said[0], said[1]])
}

/// The cores and the bytes of memory of the machine that this process runs on.
pub(crate) fn machine() -> [u64; 2] {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    [cores as u64, machine_memory().unwrap_or(u64::MAX)]
}

/// A machine with so many cores and so much memory, for some work.
///
/// # Errors
/// Our own file of this kind of machine cannot be read.
pub(crate) fn of(work: &Work, [cores, room]: [u64; 2]) -> Outcome<Hardware> {
    let mapped = work.network().bytes() + work.other_bytes;
    let hosts = if Process::of_job().is_some() { None } else { Some(1) };
    Ok(Hardware {
        memory: room.saturating_add(mapped),
        ranks_per_host: cores as usize,
        hosts,
        ..this_kind()?
    })
}

fn this_kind() -> Outcome<Hardware> {
    let file: HardwareFile = serde_saphyr::from_str(THIS_KIND)
        .map_err(|err| Failure::Refused(format!("our own hardware file is damaged: {err}")))?;
    file.checked().map_err(|err| Failure::Refused(format!("our own hardware file: {err}")))
}

/// A YAML file of a checked type; unknown keys are refused.
///
/// # Errors
/// It cannot be read, or is not of that form.
pub(crate) fn yaml<T: serde::de::DeserializeOwned>(path: &Path, what: &str) -> Outcome<T> {
    let text =
        kernels::read_text(path, LONGEST).map_err(|err| wrong(what, path, &err.to_string()))?;
    let first = |text: String| text.lines().next().unwrap_or_default().to_owned();
    serde_saphyr::from_str(&text).map_err(|err| wrong(what, path, &first(err.to_string())))
}

/// Why a file cannot be used.
pub(crate) fn wrong(what: &str, path: &Path, reason: &str) -> Failure {
    Failure::Refused(format!("{what}: {}: {reason}", path.display()))
}
