//! What does not fit into memory is refused before anything is allocated.

use engine::{Pipeline, Plan, Request, Shortage, machine_memory};

use super::arguments::Arguments;
use crate::failure::{Failure, Outcome};
use crate::voice::bytes;

/// Checks that a part of a run fits into the machine's memory; weights that are mapped need not.
///
/// # Errors
/// It does not, and what would.
pub(super) fn check(
    ask: &Arguments,
    pipeline: &Pipeline,
    plan: &Plan,
    request: &Request,
) -> Outcome {
    match machine_memory().filter(|_| !ask.force) {
        Some(room) => fits(room, pipeline, plan, request),
        None => Ok(()),
    }
}

/// Checks that a plan fits into so many bytes.
fn fits(room: u64, pipeline: &Pipeline, plan: &Plan, request: &Request) -> Outcome {
    let Some(Shortage { needed, fitting }) = pipeline.shortage(plan, request, room) else {
        return Ok(());
    };
    let [frames, height, width] = plan.used().size;
    let fitting = fitting.map(|[height, width]| format!("; {height} x {width} would fit"));
    Err(Failure::Refused(format!(
        "--height, --width: {frames} frames of {height} x {width} (height x width) take about {} beside \
         the weights, and this machine has {}{}; make less at once, or add --force to try",
        bytes(needed),
        bytes(room),
        fitting.unwrap_or_default()
    )))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use burn::tensor::Device;
    use engine::{Pipeline, Request, Setup};

    use super::fits;

    /// What is beyond memory is refused with the largest size that is not, and that one passes.
    #[test]
    fn what_would_fit_is_named() {
        let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../goldens/wan-tiny"));
        let pipeline = Pipeline::open(&folder, &Setup::new(&Device::flex())).unwrap();
        let with = |side: usize| Request {
            prompts: vec!["a fox".to_owned()],
            frames: Some(5),
            height: Some(side),
            width: Some(side),
            ..Request::default()
        };
        let plan = |side: usize| pipeline.plan(&with(side)).unwrap();
        let large = pipeline.shortage(&plan(1024), &with(1024), 0);
        let room = large.map_or(0, |shortage| shortage.needed);
        assert!(fits(room, &pipeline, &plan(1024), &with(1024)).is_ok());
        let refused = fits(room, &pipeline, &plan(2048), &with(2048)).err().unwrap().to_string();
        for part in
            ["--height, --width: 5 frames of 2048 x 2048", "1024 x 1024 would fit", "--force"]
        {
            assert!(refused.contains(part), "no `{part}` in: {refused}");
        }
        let none = fits(1, &pipeline, &plan(2048), &with(2048)).err().unwrap().to_string();
        assert!(!none.contains("would fit"), "{none}");
    }
}
