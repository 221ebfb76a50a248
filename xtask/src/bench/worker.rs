//! A child process that does work on request: one line of JSON each way.
//!
//! It says hello once: `{"version": "…", "cases": ["…"]}`. Then `{"case": "…", "repeat": n}` is
//! answered by `{"case": "…", "seconds": […], "peak_rss_bytes": n, "held_bytes": n}` or `{"case": "…", "error": "…"}`.
//! It ends when its input closes.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What a worker says first.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Hello {
    /// The names and versions of what does the work.
    pub(super) version: String,
    cases: Vec<String>,
}

impl Hello {
    pub(super) fn has(&self, case: &str) -> bool {
        self.cases.iter().any(|own| own == case)
    }
}

#[derive(Serialize)]
struct Request<'a> {
    case: &'a str,
    repeat: u32,
}

/// What a worker answers.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Answer {
    case: String,
    #[serde(default)]
    seconds: Vec<f64>,
    /// Of the whole process since its start; none where the system does not tell.
    #[serde(default)]
    pub(super) peak_rss_bytes: Option<u64>,
    /// Only of a training: what it holds beside activations.
    #[serde(default)]
    pub(super) held_bytes: Option<u64>,
    /// Only of the case that measures the machine.
    #[serde(default)]
    pub(super) flops_per_second: Option<f64>,
    #[serde(default)]
    error: Option<String>,
}

impl Answer {
    /// The shortest time of the answer.
    pub(super) fn best(&self) -> Result<f64> {
        let best = self.seconds.iter().copied().reduce(f64::min);
        best.with_context(|| format!("the worker gave no times for {}", self.case))
    }
}

/// One side of the comparison.
pub(super) struct Worker {
    side: &'static str,
    pub(super) hello: Hello,
    child: Child,
    /// None once the conversation is over.
    conversation: Option<Conversation<BufReader<ChildStdout>, ChildStdin>>,
}

impl Worker {
    /// Starts `command` and waits for its hello.
    pub(super) fn start(side: &'static str, mut command: Command) -> Result<Worker> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {side}'s worker"))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("{side}'s worker has no pipes");
        };
        let mut conversation = Conversation { side, output: BufReader::new(output), input };
        let hello = conversation.read()?;
        Ok(Worker { side, hello, child, conversation: Some(conversation) })
    }

    /// Asks for `repeat` runs of `case`.
    pub(super) fn request(&mut self, case: &str, repeat: u32) -> Result<Answer> {
        let conversation = self.conversation.as_mut().context("the worker has been ended")?;
        conversation.request(case, repeat)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Closing its input ends it; waiting for that keeps its work out of the next measurement.
        self.conversation = None;
        if let Err(error) = self.child.wait() {
            eprintln!("cannot wait for {}'s worker: {error}", self.side);
        }
    }
}

/// The protocol, over any pair of streams.
struct Conversation<R, W> {
    side: &'static str,
    output: R,
    input: W,
}

impl<R: BufRead, W: Write> Conversation<R, W> {
    fn request(&mut self, case: &str, repeat: u32) -> Result<Answer> {
        let side = self.side;
        let line = serde_json::to_string(&Request { case, repeat })?;
        writeln!(self.input, "{line}")
            .and_then(|()| self.input.flush())
            .with_context(|| format!("{side}'s worker ended before it was asked for {case}"))?;
        let answer: Answer = self.read()?;
        if let Some(error) = answer.error {
            bail!("{side}'s worker cannot run {case}: {error}");
        }
        if answer.case != case {
            bail!("{side}'s worker was asked for {case} and answered for {}", answer.case);
        }
        Ok(answer)
    }

    fn read<T: DeserializeOwned>(&mut self) -> Result<T> {
        let side = self.side;
        let mut line = String::new();
        self.output.read_line(&mut line).with_context(|| format!("cannot read {side}'s worker"))?;
        if line.is_empty() {
            bail!("{side}'s worker ended; its own message is above");
        }
        serde_json::from_str(&line)
            .with_context(|| format!("{side}'s worker answered `{}`", line.trim()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks for two runs of `gelu`; returns what was sent and what came back.
    fn ask(answer: &str) -> (String, Result<Answer>) {
        let mut conversation =
            Conversation { side: "test", output: answer.as_bytes(), input: Vec::new() };
        let answer = conversation.request("gelu", 2);
        (String::from_utf8(conversation.input).unwrap(), answer)
    }

    #[test]
    fn a_request_is_one_line_and_so_is_the_answer() {
        let line = r#"{"case":"gelu","seconds":[0.5,0.25],"peak_rss_bytes":7}"#;
        let (sent, answer) = ask(&format!("{line}\n"));
        assert_eq!(sent, "{\"case\":\"gelu\",\"repeat\":2}\n");
        let answer = answer.unwrap();
        assert_eq!((answer.best().unwrap(), answer.peak_rss_bytes), (0.25, Some(7)));
    }

    #[test]
    fn what_goes_wrong_is_named() {
        for (line, reason) in [
            ("", "test's worker ended"),
            ("warning: hm\n", "answered `warning: hm`"),
            ("{\"case\":\"gelu\",\"error\":\"no memory\"}\n", "cannot run gelu: no memory"),
            ("{\"case\":\"silu\",\"seconds\":[1.0]}\n", "answered for silu"),
        ] {
            let message = format!("{:#}", ask(line).1.unwrap_err());
            assert!(message.contains(reason), "{message}");
        }
        let (_, answer) = ask("{\"case\":\"gelu\",\"seconds\":[]}\n");
        assert!(answer.unwrap().best().unwrap_err().to_string().contains("no times for gelu"));
    }
}
