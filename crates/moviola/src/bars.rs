//! Progress bars, one per stage, and how long the run took to get where.

use std::time::Instant;

use engine::Progress;
use indicatif::{ProgressBar, ProgressStyle};

/// Draws a bar per stage on the terminal; draws nothing where there is none.
pub(crate) struct Bars {
    bar: Option<ProgressBar>,
    started: Instant,
    denoising: bool,
    first_step: Option<f64>,
}

impl Progress for Bars {
    fn begin(&mut self, stage: &str, total: usize) {
        self.finish();
        self.denoising = stage == "denoise";
        let style = "{msg:<8} {bar:32} {pos}/{len}  {elapsed} elapsed, {eta} left";
        let style = ProgressStyle::with_template(style).expect("the template is a constant");
        let bar = ProgressBar::new(total as u64).with_style(style);
        bar.set_message(stage.to_owned());
        bar.tick();
        self.bar = Some(bar);
    }

    fn reach(&mut self, done: usize) {
        if self.denoising && self.first_step.is_none() {
            self.first_step = Some(self.seconds());
        }
        if let Some(bar) = &self.bar {
            bar.set_position(done as u64);
        }
    }

    /// Nothing is written before the end, so the system's own interruption is safe.
    fn interrupted(&self) -> bool {
        false
    }
}

impl Bars {
    /// Bars of a run that started at `started`.
    pub(crate) fn new(started: Instant) -> Bars {
        Bars { bar: None, started, denoising: false, first_step: None }
    }

    /// Seconds since the start.
    pub(crate) fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Seconds from the start to the end of the first denoising step.
    pub(crate) fn first_step(&self) -> Option<f64> {
        self.first_step
    }

    /// Leaves the last bar standing.
    pub(crate) fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish();
        }
    }
}
