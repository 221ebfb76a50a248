//! Progress bars, one per stage.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::Progress;
use indicatif::{ProgressBar, ProgressStyle};

use crate::clock::Clock;

/// Draws a bar per stage on the terminal; draws nothing where there is none.
pub(crate) struct Bars<'a> {
    bar: Option<ProgressBar>,
    clock: &'a Clock,
    interrupted: Arc<AtomicBool>,
}

impl Progress for Bars<'_> {
    fn begin(&mut self, stage: &str, total: usize) {
        self.finish();
        if stage == "denoise" {
            self.clock.first_step();
        }
        let style = "{msg:<8} {bar:32} {pos}/{len}  {elapsed} elapsed, {eta} left";
        let style = ProgressStyle::with_template(style).expect("the template is a constant");
        let bar = ProgressBar::new(total as u64).with_style(style);
        bar.set_message(stage.to_owned());
        bar.tick();
        self.bar = Some(bar);
    }

    fn reach(&mut self, done: usize) {
        if let Some(bar) = &self.bar {
            bar.set_position(done as u64);
        }
    }

    fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

impl<'a> Bars<'a> {
    /// Bars of a run that `clock` times and a set flag interrupts.
    pub(crate) fn new(clock: &'a Clock, interrupted: Arc<AtomicBool>) -> Bars<'a> {
        Bars { bar: None, clock, interrupted }
    }

    /// Leaves the last bar standing.
    pub(crate) fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish();
        }
    }
}

/// A bar over clips that names the one at hand.
pub(crate) fn over_clips(stage: &'static str, total: usize) -> ProgressBar {
    let style = "{prefix:<8} {bar:32} {pos}/{len}  {elapsed} elapsed, {eta} left  {wide_msg}";
    let style = ProgressStyle::with_template(style).expect("the template is a constant");
    ProgressBar::new(total as u64).with_style(style).with_prefix(stage)
}
