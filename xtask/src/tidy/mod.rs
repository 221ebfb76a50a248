//! `cargo xtask tidy`: the rules of this repository that the compiler cannot check.
//!
//! Each check is a pure function over a file's path and text, or over the workspace's manifests,
//! and has a test that plants a violation. All violations are listed, each with its remedy.

mod evidence;
mod families;
mod graph;
mod loops;
mod pieces;
mod safety;
mod size;
mod source;
mod state;
mod tree;

use std::fmt;
use std::path::Path;

use anyhow::{Result, bail};

use graph::Workspace;
use source::Source;
use tree::TrackedFile;

/// One broken rule, at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Violation {
    /// Relative to the repository, with forward slashes.
    path: String,
    /// Counted from 1; 1 for a violation by the whole file.
    line: usize,
    /// What is wrong and how to put it right.
    message: String,
}

impl Violation {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Violation {
        Violation { path: path.to_string(), line, message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Checks the repository at `root` and prints every violation.
pub(crate) fn run(root: &Path) -> Result<()> {
    let files = tree::read(root)?;
    let workspace = graph::read(root)?;
    let violations = inspect(&files, &workspace);
    for violation in &violations {
        println!("{violation}");
    }
    match violations.len() {
        0 => {
            println!("tidy: {} files, no violations", files.len());
            Ok(())
        }
        1 => bail!("tidy found 1 violation, listed above"),
        count => bail!("tidy found {count} violations, listed above"),
    }
}

fn inspect(files: &[TrackedFile], workspace: &Workspace) -> Vec<Violation> {
    let mut violations = graph::check(workspace, &graph::CRATES, &graph::LAWS);
    let mut sources = Vec::new();
    for file in files {
        violations.extend(tree::check_name(&file.path));
        let Some(text) = &file.text else { continue };
        violations.extend(tree::check_machine_paths(&file.path, text));
        violations.extend(size::check_file(&file.path, text, &size::LONG_FILES));
        if file.path == "Cargo.lock" {
            violations.extend(graph::check_lock(&file.path, text));
        }
        if file.path.ends_with(".rs") {
            match Source::parse(&file.path, text) {
                Ok(source) => sources.push(source),
                Err(violation) => violations.push(violation),
            }
        }
    }
    for source in &sources {
        violations.extend(source::check_opening(source));
        violations.extend(size::check_functions(source));
        violations.extend(safety::check(source));
        violations.extend(state::check_environment(source));
        violations.extend(state::check_statics(source));
    }
    violations.extend(loops::check(&sources));
    violations.extend(families::check(&sources));
    violations.extend(size::check_exceptions(files, &size::LONG_FILES));
    violations.extend(tree::check_goldens(files));
    violations.extend(evidence::check(files));
    violations.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rust_file(path: &str, text: &str) -> TrackedFile {
        TrackedFile { path: path.to_string(), bytes: text.len() as u64, text: Some(text.into()) }
    }

    /// The rules, run together as `run` does it, on a tiny repository.
    #[test]
    fn violations_of_different_files_are_listed_in_order() {
        let files = [
            rust_file("crates/diffusion/src/denoise.rs", "//! The loop.\nfn denoise() {}\n"),
            rust_file("crates/nn/src/helpers.rs", "//! Fine.\n"),
            rust_file("crates/nn/src/lib.rs", "fn f() {\n    unsafe { g() }\n}\n"),
        ];
        let violations = inspect(&files, &graph::tests::clean_workspace());
        let places: Vec<_> = violations.iter().map(|v| (v.path.as_str(), v.line)).collect();
        let expected = [
            ("crates/nn/src/helpers.rs", 1),
            ("crates/nn/src/lib.rs", 1),
            ("crates/nn/src/lib.rs", 2),
        ];
        assert_eq!(places, expected, "{violations:?}");
    }

    #[test]
    fn a_violation_reads_as_a_place_and_a_remedy() {
        let violation = Violation::new("a/b.rs", 7, "too long; split it");
        assert_eq!(violation.to_string(), "a/b.rs:7: too long; split it");
    }
}
