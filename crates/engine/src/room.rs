//! Whether a request fits into memory, and what would.

use std::fs;
use std::sync::Arc;

use data::media::Frame;
use families::Condition;

use crate::error::{Error, Field, Result};
use crate::pipeline::Pipeline;
use crate::plan::Plan;
use crate::request::Request;

/// Sizes that are tried in search of one that fits: so many parts of the whole.
const PARTS: usize = 32;

/// What a request lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Bytes that it takes beside the weights that are mapped.
    pub needed: u64,
    /// Height and width of the largest that would fit, if one does.
    pub fitting: Option<[usize; 2]>,
}

impl Pipeline {
    /// What a plan of a request lacks in so many bytes, if it lacks something; weights that are mapped need no room.
    pub fn shortage(&self, plan: &Plan, request: &Request, room: u64) -> Option<Shortage> {
        let needed = needs(plan);
        if needed <= room {
            return None;
        }
        let [_, height, width] = plan.used().size;
        let step = self.description().geometry.factors;
        let patch = self.description().geometry.patch;
        let side = |whole: usize, axis: usize, part: usize| {
            let multiple = (step[axis] * patch[axis]).max(1);
            (whole * part / PARTS / multiple * multiple).max(multiple)
        };
        let fitting = (1..PARTS).rev().find_map(|part| {
            let (height, width) = (side(height, 1, part), side(width, 2, part));
            let smaller = Request { height: Some(height), width: Some(width), ..request.clone() };
            (needs(&self.plan(&smaller).ok()?) <= room).then_some([height, width])
        });
        Some(Shortage { needed, fitting })
    }

    /// The picture that the model must be given, if there is one: grey, of a size or of the model's own. For plans, which
    /// look at no pixel.
    ///
    /// # Errors
    /// It would be too large.
    pub fn needed_picture(
        &self,
        height: Option<usize>,
        width: Option<usize>,
    ) -> Result<Option<Arc<Vec<Frame>>>> {
        let model = self.description();
        if model.conditions.required != Some(Condition::Image) {
            return Ok(None);
        }
        let [_, high, wide] = model.defaults.size;
        let (height, width) = (height.unwrap_or(high), width.unwrap_or(wide));
        let values = height.checked_mul(width).and_then(|pixels| pixels.checked_mul(3));
        let values = values.filter(|values| *values < 1 << 30);
        let large = || Error::request(Field::Height, "it is too large with the width");
        let frame = Frame::new(height, width, vec![0.5; values.ok_or_else(large)?])?;
        Ok(Some(Arc::new(vec![frame])))
    }
}

/// What must be in memory for good.
fn needs(plan: &Plan) -> u64 {
    plan.estimate().bytes.saturating_sub(plan.estimate().mapped)
}

/// The memory that this process may have: the machine's, or what its container is given, where the system
/// tells.
pub fn machine_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kibibytes = kibibytes(&text, "MemTotal:")?;
    let limit = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let limit = limit.and_then(|limit| limit.trim().parse::<u64>().ok()).unwrap_or(u64::MAX);
    Some((kibibytes << 10).min(limit))
}

/// The most memory that this process has had, where the system tells.
pub fn most_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    kibibytes(&status, "VmHWM:").map(|kibibytes| kibibytes << 10)
}

/// The number of a line like `VmHWM:  1234 kB`.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}
