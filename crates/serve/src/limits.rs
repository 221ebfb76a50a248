//! How much a client may ask for, and how long what was made is kept.

use std::time::Duration;

use engine::Used;

use crate::error::{Answer, Refusal};

/// Bounds of requests and connections.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Bytes of a body.
    pub body: usize,
    /// Bytes of a prompt.
    pub prompt: usize,
    /// Pixels of all frames times steps of a request.
    pub work: u64,
    /// Pixels of all frames that a request gives beside its prompt.
    pub given: u64,
    /// Jobs that wait.
    pub queue: usize,
    /// Connections at a time.
    pub connections: usize,
    /// How long a connection may be idle, and headers may take.
    pub idle: Duration,
    /// How long a body may take.
    pub receive: Duration,
    /// How long a stage of a job may take.
    pub stage: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            body: 64 << 20,
            prompt: 32_000,
            // 257 frames of 1280 x 720 in 100 steps.
            work: 257 * 1280 * 720 * 100,
            // 192 frames of 1920 x 1080.
            given: 400_000_000,
            queue: 64,
            connections: 256,
            idle: Duration::from_secs(75),
            receive: Duration::from_secs(60),
            stage: Duration::from_secs(6 * 3600),
        }
    }
}

/// How long finished jobs are kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retention {
    /// From the moment it is finished.
    pub age: Duration,
    /// Bytes of all finished jobs together; the oldest go first.
    pub bytes: u64,
}

impl Default for Retention {
    fn default() -> Retention {
        Retention { age: Duration::from_secs(7 * 24 * 3600), bytes: 20 << 30 }
    }
}

impl Limits {
    /// Refuses a prompt that is too long.
    pub(crate) fn check_prompt(&self, param: &str, prompt: &str) -> Answer<()> {
        match prompt.len() <= self.prompt {
            true => Ok(()),
            false => {
                let (own, most) = (prompt.len(), self.prompt);
                let reason = format!("{param}: it has {own} bytes; give {most} or fewer");
                Err(Refusal::field(param, reason))
            }
        }
    }

    /// Refuses more work than a request may be.
    pub(crate) fn check_work(&self, used: &Used) -> Answer<()> {
        let [frames, height, width] = used.size;
        let parts = [used.samples, frames, height, width, used.timesteps.len()];
        let work = parts.iter().fold(1u64, |work, part| work.saturating_mul(*part as u64));
        if work <= self.work {
            return Ok(());
        }
        let most = self.work / (work / frames.max(1) as u64).max(1);
        let (samples, steps) = (used.samples, used.timesteps.len());
        let remedy = match most {
            0 => "choose a smaller size or fewer steps".to_owned(),
            most => format!("at this size and these steps {most} frames would do"),
        };
        Err(Refusal::field(
            "num_frames",
            format!(
                "num_frames: {samples} x {frames} frames of {width} x {height} in {steps} steps are {work} pixel steps, \
                 and this server takes {}; {remedy}",
                self.work
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::Limits;

    #[test]
    fn a_prompt_may_be_as_long_as_the_limit_and_no_longer() {
        let limits = Limits { prompt: 8, ..Limits::default() };
        assert!(limits.check_prompt("prompt", "12345678").is_ok());
        assert!(limits.check_prompt("prompt", "123456789").is_err());
    }
}
