//! Marks of an exam in numbers.

use serde::Serialize;
use serde_json::{Value, json};

use crate::exam::Answer;

/// How many of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Share {
    /// Those that are right.
    pub right: usize,
    /// All.
    pub of: usize,
}

impl Share {
    /// Of the answers that `asked` accepts, those that `right` accepts.
    pub fn count(
        answers: &[Answer],
        asked: impl Fn(&Answer) -> bool,
        right: impl Fn(&Answer) -> bool,
    ) -> Share {
        let all: Vec<&Answer> = answers.iter().filter(|answer| asked(answer)).collect();
        Share { right: all.iter().filter(|answer| right(answer)).count(), of: all.len() }
    }

    /// In percent.
    pub fn percent(self) -> f64 {
        100.0 * self.right as f64 / self.of.max(1) as f64
    }
}

impl std::fmt::Display for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.right, self.of)
    }
}

/// The marks of an exam.
#[derive(Clone, Debug, Serialize)]
pub struct Score {
    /// Everything right.
    pub all: Share,
    /// The same of scenes that training has seen.
    pub seen: Share,
    /// The same of scenes that it has not.
    pub withheld: Share,
    /// Shape, colour, direction, whatever the rest.
    pub attributes: [Share; 3],
    /// The tone, if there is one, whatever the rest.
    pub tone: Option<Share>,
    /// The smallest nearness of a given first frame, in decibels, if one was given.
    pub kept: Option<f64>,
}

impl Score {
    /// Adds the answers up; `withheld` are captions that training has not seen.
    pub fn new(answers: &[Answer], withheld: &[String]) -> Score {
        let hidden = |answer: &Answer| withheld.contains(&answer.scene.to_string());
        let any = |_: &Answer| true;
        let kept = answers.iter().filter_map(|answer| answer.kept);
        let sounds = answers.iter().any(|answer| answer.tone.is_some());
        Score {
            all: Share::count(answers, any, Answer::is_right),
            seen: Share::count(answers, |answer| !hidden(answer), Answer::is_right),
            withheld: Share::count(answers, hidden, Answer::is_right),
            attributes: [0, 1, 2].map(|at| Share::count(answers, any, |own| own.right[at])),
            tone: sounds.then(|| Share::count(answers, any, |own| own.tone == Some(true))),
            kept: kept.reduce(f64::min),
        }
    }

    /// All of it as JSON, with every clip.
    pub fn value(&self, answers: &[Answer]) -> Value {
        let share = |share: Share| {
            let percent = (share.percent() * 10.0).round() / 10.0;
            json!({ "right": share.right, "of": share.of, "percent": percent })
        };
        let [shape, colour, direction] = self.attributes.map(share);
        json!({
            "score": share(self.all),
            "seen": share(self.seen),
            "withheld": share(self.withheld),
            "attributes": { "shape": shape, "colour": colour, "direction": direction },
            "tone": self.tone.map(share),
            "kept_decibels": self.kept,
            "clips": answers.iter().map(clip).collect::<Vec<_>>(),
        })
    }
}

fn clip(answer: &Answer) -> Value {
    json!({
        "caption": answer.scene.to_string(),
        "right": answer.is_right(),
        "shape": answer.right[0],
        "colour": answer.right[1],
        "direction": answer.right[2],
        "tone": answer.tone,
    })
}
