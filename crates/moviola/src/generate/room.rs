//! What does not fit into memory is refused before anything is allocated.

use std::fs;

use engine::{Pipeline, Plan, Request};

use super::arguments::Arguments;
use crate::failure::{Failure, Outcome};
use crate::voice::bytes;

/// Sizes that are tried in search of one that fits: so many parts of the whole.
const PARTS: usize = 32;

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
    let needed = needs(plan);
    if needed <= room {
        return Ok(());
    }
    let used = plan.used();
    let [frames, height, width] = used.size;
    let step = pipeline.description().geometry.factors;
    let patch = pipeline.description().geometry.patch;
    let side = |whole: usize, axis: usize, part: usize| {
        let multiple = (step[axis] * patch[axis]).max(1);
        (whole * part / PARTS / multiple * multiple).max(multiple)
    };
    let fitting = (1..PARTS).rev().find_map(|part| {
        let (height, width) = (side(height, 1, part), side(width, 2, part));
        let smaller = Request { height: Some(height), width: Some(width), ..request.clone() };
        let fits = needs(&pipeline.plan(&smaller).ok()?) <= room;
        fits.then(|| format!("; {height} x {width} would fit"))
    });
    Err(Failure::Refused(format!(
        "--height, --width: {frames} frames of {height} x {width} (height x width) take about {} beside \
         the weights, and this machine has {}{}; make less at once, or add --force to try",
        bytes(needed),
        bytes(room),
        fitting.unwrap_or_default()
    )))
}

/// What must be in memory for good.
fn needs(plan: &Plan) -> u64 {
    plan.estimate().bytes.saturating_sub(plan.estimate().mapped)
}

/// The memory that this process may have: the machine's, or what its container is given, where the system
/// tells.
pub(crate) fn machine_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    let limit = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let limit = limit.and_then(|limit| limit.trim().parse::<u64>().ok()).unwrap_or(u64::MAX);
    Some((kibibytes << 10).min(limit))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use burn::tensor::Device;
    use engine::{Pipeline, Request, Setup};

    use super::{fits, needs};

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
        let room = needs(&plan(1024));
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
