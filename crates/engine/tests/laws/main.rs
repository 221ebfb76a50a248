//! The laws that hold for every family of the table, each run over all models there are here.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod asked;
mod cases;
mod counts;
mod decoding;
mod fold;
mod layouts;
mod loading;
mod narrow;
mod pairs;
#[cfg(feature = "mpi")]
mod processes;
mod progress;
mod rounded;
mod runs;
mod stochastic;
mod traffic;
mod weights;

use std::collections::BTreeSet;

use families::FAMILIES;

/// The other laws are about something only if every family is asked something.
#[test]
fn every_family_is_asked_with_and_without_conditions() {
    let all = asked::all();
    let families: BTreeSet<&str> = all.iter().map(|asked| asked.family.name).collect();
    assert_eq!(families, FAMILIES.iter().map(|family| family.name).collect());
    // Two branches each: bare where nothing must be given, and with everything.
    assert!(all.len() >= 4 * FAMILIES.len(), "{} questions", all.len());
    let video = |asked: &&asked::Asked| asked.question.inputs.video.is_some();
    assert_eq!(all.iter().filter(video).count(), all.len());
    assert!(all.iter().any(|asked| asked.question.inputs.audio.is_some()));
    let pictures = |asked: &&asked::Asked| {
        asked.question.inputs.video.as_ref().is_some_and(|own| own.context.image.is_some())
    };
    assert!(all.iter().any(|asked| pictures(&asked)));
}
