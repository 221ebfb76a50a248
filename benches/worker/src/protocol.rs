//! The words between `cargo xtask bench` and a worker.
//!
//! Hello: `{"version": "…", "cases": ["…"]}`. A request `{"case": "…", "repeat": n}` is answered by
//! `{"case": "…", "seconds": […], "peak_rss_bytes": n, "held_bytes": n, "flops_per_second": x}`, or by
//! `{"case": "…", "error": "…"}`.

use std::fs;
use std::io::Write;
use std::time::Instant;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::cases::{Case, Made, Work};

/// What a worker says first.
#[derive(Debug, Serialize)]
pub(crate) struct Hello {
    version: String,
    cases: Vec<&'static str>,
}

/// What is asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    case: String,
    repeat: u32,
}

/// What a request is answered with.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Answer {
    case: String,
    seconds: Vec<f64>,
    peak_rss_bytes: Option<u64>,
    /// What a training holds beside activations: program, weights, gradients, optimizer.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_bytes: Option<u64>,
    /// The best rate of work that measures one.
    #[serde(skip_serializing_if = "Option::is_none")]
    flops_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// The case that was asked for last, ready to be run again.
pub(crate) struct Prepared {
    name: &'static str,
    work: Work,
    held: Option<u64>,
}

pub(crate) fn hello(cases: &[Case]) -> Hello {
    let version = format!("moviola {}", env!("CARGO_PKG_VERSION"));
    Hello { version, cases: cases.iter().map(|case| case.name).collect() }
}

pub(crate) fn parse(line: &str) -> Result<Request> {
    serde_json::from_str(line).with_context(|| format!("cannot understand the request `{line}`"))
}

/// Writes one line and makes sure that it leaves.
pub(crate) fn say(output: &mut impl Write, words: &impl Serialize) -> Result<()> {
    let line = serde_json::to_string(words)?;
    writeln!(output, "{line}").and_then(|()| output.flush()).context("cannot answer")
}

/// Prepares the case unless it is `current`, and times it.
pub(crate) fn answer(cases: &[Case], current: &mut Option<Prepared>, request: &Request) -> Answer {
    let Some(case) = cases.iter().find(|case| case.name == request.case) else {
        let known: Vec<_> = cases.iter().map(|case| case.name).collect();
        let error = Some(format!("unknown case; known are {}", known.join(", ")));
        return Answer { case: request.case.clone(), error, ..Answer::default() };
    };
    let prepared = match current.take().filter(|prepared| prepared.name == case.name) {
        Some(prepared) => prepared,
        None => prepare(case),
    };
    let prepared = current.insert(prepared);
    let mut answer = Answer { case: request.case.clone(), ..Answer::default() };
    for _ in 0..request.repeat {
        let start = Instant::now();
        let rate = (prepared.work)();
        answer.seconds.push(start.elapsed().as_secs_f64());
        answer.flops_per_second = answer.flops_per_second.into_iter().chain(rate).reduce(f64::max);
    }
    answer.peak_rss_bytes = resident_bytes("VmHWM:");
    answer.held_bytes = prepared.held;
    answer
}

/// Makes the data of `case` and runs it once: the first call sets up what no later one does.
fn prepare(case: &Case) -> Prepared {
    let program = resident_bytes("VmRSS:");
    let Made { mut work, state_bytes } = (case.prepare)();
    let held = program.zip(state_bytes).map(|(program, state)| program + state);
    work();
    Prepared { name: case.name, work, held }
}

/// A figure of this process's memory; none where the system does not tell.
fn resident_bytes(key: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    /// A case whose work counts its calls, and whose rate is that count.
    fn counting(name: &'static str, prepared: Rc<Cell<u32>>, calls: Rc<Cell<u32>>) -> Case {
        let prepare = move || {
            prepared.set(prepared.get() + 1);
            let calls = calls.clone();
            let work = move || {
                calls.set(calls.get() + 1);
                Some(f64::from(calls.get()))
            };
            Made { work: Box::new(work), state_bytes: None }
        };
        Case { name, prepare: Box::new(prepare) }
    }

    fn ask(cases: &[Case], current: &mut Option<Prepared>, line: &str) -> Answer {
        answer(cases, current, &parse(line).unwrap())
    }

    #[test]
    fn a_case_is_prepared_once_and_its_first_call_is_not_counted() {
        let (prepared, calls) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let cases = [
            counting("a", prepared.clone(), calls.clone()),
            counting("b", Rc::default(), Rc::default()),
        ];
        let mut current = None;
        let first = ask(&cases, &mut current, r#"{"case":"a","repeat":3}"#);
        assert_eq!((first.seconds.len(), calls.get(), prepared.get()), (3, 4, 1));
        assert_eq!(first.flops_per_second, Some(4.0));
        ask(&cases, &mut current, r#"{"case":"a","repeat":1}"#);
        assert_eq!((calls.get(), prepared.get()), (5, 1));
        ask(&cases, &mut current, r#"{"case":"b","repeat":1}"#);
        ask(&cases, &mut current, r#"{"case":"a","repeat":1}"#);
        assert_eq!(prepared.get(), 2, "another case took its place in between");
    }

    #[test]
    fn an_unknown_case_is_an_answer_that_lists_the_known() {
        let cases = [counting("a", Rc::default(), Rc::default())];
        let answer = ask(&cases, &mut None, r#"{"case":"c","repeat":1}"#);
        assert_eq!(answer.error.as_deref(), Some("unknown case; known are a"));
    }

    #[test]
    fn a_request_with_another_word_is_refused() {
        assert!(parse(r#"{"case":"a","repeats":1}"#).is_err());
        assert!(parse(r#"{"case":"a","repeat":1,"fast":true}"#).is_err());
    }
}
