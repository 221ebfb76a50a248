//! Whether a request fits into memory, and what would.

use std::fs;
use std::path::{Path, PathBuf};
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
    Some((kibibytes << 10).min(group_limit(Path::new("/")).unwrap_or(u64::MAX)))
}

/// The least memory that the control groups of this process allow, or those that these are in: a job of SLURM or a
/// container is a few folders down. Version 2 has one tree, version 1 one of its own for memory. `root` is where the
/// system's folders are.
fn group_limit(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let tree = root.join("sys/fs/cgroup");
    let of_line = |line: &str| {
        let mut parts = line.splitn(3, ':');
        let (number, kinds, path) = (parts.next()?, parts.next()?, parts.next()?);
        match (number, kinds) {
            ("0", "") => Some((tree.clone(), "memory.max", path.to_owned())),
            (_, kinds) if kinds.split(',').any(|kind| kind == "memory") => {
                Some((tree.join("memory"), "memory.limit_in_bytes", path.to_owned()))
            }
            _ => None,
        }
    };
    // Where the process sees itself at the top, or nothing at all, the top may have a limit all the same.
    let top = [
        (tree.clone(), "memory.max", String::new()),
        (tree.join("memory"), "memory.limit_in_bytes", String::new()),
    ];
    let limits = groups.lines().filter_map(of_line).chain(top).flat_map(|(tree, name, path)| {
        let own = tree.join(path.trim_start_matches('/'));
        let upwards = own.ancestors().take_while(|at| at.starts_with(&tree));
        upwards.map(|at| at.join(name)).collect::<Vec<_>>()
    });
    // Version 1 says a vast number where there is no limit, version 2 `max`.
    let limit = |path: PathBuf| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    limits.filter_map(limit).filter(|limit| *limit > 0).min()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The least limit on the way up counts, in either version; without any there is none.
    #[test]
    fn limits_of_outer_groups_count() {
        let limit = |groups: &str, files: &[(&str, &str)]| {
            let root = tempfile::tempdir().unwrap();
            let write = |path: &str, text: &str| {
                let path = root.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            };
            write("proc/self/cgroup", groups);
            files.iter().for_each(|(path, text)| write(&format!("sys/fs/cgroup/{path}"), text));
            group_limit(root.path())
        };
        let slurm = "0::/system.slice/slurmstepd.scope/job_7/step_0/user\n";
        let job = "system.slice/slurmstepd.scope/job_7/memory.max";
        let step = "system.slice/slurmstepd.scope/job_7/step_0/memory.max";
        assert_eq!(limit(slurm, &[(job, "4096\n"), (step, "max\n")]), Some(4096));
        assert_eq!(limit(slurm, &[(job, "4096\n"), (step, "1024\n")]), Some(1024));
        assert_eq!(limit(slurm, &[(job, "4096\n"), ("memory.max", "512\n")]), Some(512));
        assert_eq!(limit(slurm, &[("system.slice/other/memory.max", "1\n")]), None);
        let old = "12:cpuset:/a\n7:memory:/slurm/uid_0/job_7\n1:name=systemd:/b\n";
        let of_job = "memory/slurm/uid_0/memory.limit_in_bytes";
        let none = ("memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(limit(old, &[(of_job, "2048\n"), none]), Some(2048));
        assert_eq!(limit("", &[("memory.max", "max\n")]), None);
        assert_eq!(limit("0::/\n", &[("memory.max", "77\n")]), Some(77));
        // A container sees the path of its host, and its own limit at the top.
        assert_eq!(
            limit("3:memory:/docker/af\n", &[("memory/memory.limit_in_bytes", "5")]),
            Some(5)
        );
    }
}
