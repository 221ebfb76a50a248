//! Progress bars, one per stage.

use engine::Progress;
use indicatif::{ProgressBar, ProgressStyle};

/// Draws a bar per stage on the terminal; draws nothing where there is none.
#[derive(Default)]
pub(crate) struct Bars {
    bar: Option<ProgressBar>,
}

impl Progress for Bars {
    fn begin(&mut self, stage: &str, total: usize) {
        self.finish();
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

    /// Nothing is written before the end, so the system's own interruption is safe.
    fn interrupted(&self) -> bool {
        false
    }
}

impl Bars {
    /// Leaves the last bar standing.
    pub(crate) fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish();
        }
    }
}
