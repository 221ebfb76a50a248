//! Why a clip was refused, in words and with what was measured.

use super::{Evidence, Judge, Reading, limits};
use crate::clip::Clip;
use crate::world::moving_shape::MovingShape;

impl Judge {
    /// Why a clip is not read as a scene: each attribute that is wrong or not certain, with the measurement and
    /// its limit. Empty if it is right.
    pub fn explain(&self, clip: &Clip, scene: &MovingShape) -> Vec<String> {
        let (reading, evidence) = self.examine(clip);
        let Some(evidence) = evidence else {
            return vec!["nothing stands out of the background".to_owned()];
        };
        let Reading { shape, colour, direction } = reading;
        let mut all = Vec::new();
        match shape {
            Some(shape) if shape == scene.shape => {}
            Some(shape) => all.push(format!("it is a {shape}", shape = shape.word())),
            None => {
                let doubts = self.doubts(&evidence);
                let best = evidence.shape.word();
                all.push(format!("the nearest shape is a {best}, but {}", doubts.join(", ")));
            }
        }
        match colour {
            Some(colour) if colour == scene.colour => {}
            Some(colour) => all.push(format!("it is {}", colour.word())),
            None => all.push("its colour is none of the world's for sure".to_owned()),
        }
        if direction != Some(scene.direction) {
            let [columns, rows] = evidence.velocity;
            let [least, most] = self.options.speed;
            all.push(format!(
                "it moves {columns:+.2} to the right and {rows:+.2} down a frame; shapes move {least} to \
                 {most} straight"
            ));
        }
        all
    }

    /// What about a shape leaves doubt, with the limit that it misses.
    fn doubts(&self, evidence: &Evidence) -> Vec<String> {
        let Evidence { size, softness, misfit, margin, beside, .. } = *evidence;
        let softest = limits::softest(evidence.shape) * self.mean_size();
        let [least, most] = [0, 1].map(|end| limits::SIZE[end] * self.options.size[end]);
        let percent = |share: f64| 100.0 * share;
        let mut all = Vec::new();
        if !(least..=most).contains(&size) {
            all.push(format!("it is {size:.1} pixels wide (allowed: {least:.1} to {most:.1})"));
        }
        if softness > softest {
            all.push(format!("its edge is blurred by {softness:.2} pixels (at most {softest:.2})"));
        }
        if misfit > limits::MISFIT {
            let most = percent(limits::MISFIT);
            all.push(format!(
                "{:.1} % of its light is elsewhere (at most {most:.1})",
                percent(misfit)
            ));
        }
        if margin < limits::MARGIN {
            let least = percent(limits::MARGIN);
            all.push(format!(
                "the next shape is only {:.1} % worse (at least {least:.1})",
                percent(margin)
            ));
        }
        if beside > limits::BESIDE {
            let most = percent(limits::BESIDE);
            all.push(format!(
                "{:.0} % as much light is beside it (at most {most:.0})",
                percent(beside)
            ));
        }
        if all.is_empty() {
            all.push("it changes from frame to frame".to_owned());
        }
        all
    }
}
