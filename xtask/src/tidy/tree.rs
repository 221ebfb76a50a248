//! The files of the repository: their names, their size, and no trace of one person's machine.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context, Result};

use super::Violation;
use crate::process::{self, command};

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 8] =
    ["utils", "util", "common", "base", "manager", "helpers", "helper", "misc"];

/// Top folders that only exist on somebody's machine. Written without slashes, so that this very
/// file passes.
const MACHINE_FOLDERS: [&str; 4] = ["root", "work", "home", "Users"];

/// All of `goldens/` together: 10 MB, so that a clone stays quick. (The foundation had 5 MB; Wan with its own
/// VAE, encoders and four kinds of folders took one more, LTX-2 with its two VAEs and a vocoder takes the rest.)
const GOLDENS_BYTES: u64 = 10_000_000;

/// A file that git tracks, or would track if it were added.
pub(super) struct TrackedFile {
    /// Relative to the repository, with forward slashes.
    pub(super) path: String,
    pub(super) bytes: u64,
    /// The content, if it is text.
    pub(super) text: Option<String>,
}

/// Reads every file that is tracked, or untracked and not ignored.
pub(super) fn read(root: &Path) -> Result<Vec<TrackedFile>> {
    let arguments = "ls-files -z --cached --others --exclude-standard";
    let listing = process::output(&mut command("git", arguments, root))
        .context("cannot list the repository's files; run this in a git checkout")?;
    let mut files = Vec::new();
    for path in listing.split('\0').filter(|path| !path.is_empty()) {
        match fs::read(root.join(path)) {
            Ok(content) => {
                let bytes = content.len() as u64;
                let text = String::from_utf8(content).ok();
                files.push(TrackedFile { path: path.to_string(), bytes, text });
            }
            // Deleted, and not yet committed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("cannot read {path}")),
        }
    }
    Ok(files)
}

/// No file or folder is called `utils` or the like.
pub(super) fn check_name(path: &str) -> Option<Violation> {
    let stem = |part: &str| part.split('.').next().unwrap_or_default().to_lowercase();
    let part = path.split('/').find(|part| EMPTY_NAMES.contains(&stem(part).as_str()))?;
    let message = format!("`{part}` says nothing about what is inside; name it after its purpose");
    Some(Violation::new(path, 1, message))
}

/// No text names a folder of one machine, or cargo's registry on it.
pub(super) fn check_machine_paths(path: &str, text: &str) -> Vec<Violation> {
    let registry = [".cargo", "registry"].join("/");
    let folders = MACHINE_FOLDERS.map(|folder| format!("/{folder}/"));
    let mut violations = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let folder = folders.iter().find(|folder| starts_a_path(line, folder));
        let found = folder.or(line.contains(&registry).then_some(&registry));
        if let Some(found) = found {
            let message = format!("`{found}` is a place on one machine; use a relative path");
            violations.push(Violation::new(path, index + 1, message));
        }
    }
    violations
}

/// Whether `folder` occurs in `line` as the start of an absolute path, not inside a longer one.
fn starts_a_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "~._-})/".contains(c))
            || line[..at].ends_with("file://")
    })
}

/// `goldens/` stays small.
pub(super) fn check_goldens(files: &[TrackedFile]) -> Option<Violation> {
    let goldens = files.iter().filter(|file| file.path.starts_with("goldens/"));
    let bytes: u64 = goldens.map(|file| file.bytes).sum();
    if bytes <= GOLDENS_BYTES {
        return None;
    }
    let message = format!(
        "holds {bytes} bytes, more than {GOLDENS_BYTES}; make the tiny models of tools/goldens \
         smaller"
    );
    Some(Violation::new("goldens/", 1, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_says_nothing_is_found() {
        for planted in
            ["crates/nn/src/utils.rs", "tools/common/a.py", "crates/nn/src/Helpers.rs", "misc.md"]
        {
            assert!(check_name(planted).is_some(), "{planted}");
        }
        for clean in ["crates/nn/src/utilization.rs", "crates/database/lib.rs", "baseline.md"] {
            assert_eq!(check_name(clean), None, "{clean}");
        }
    }

    #[test]
    fn a_place_on_one_machine_is_found() {
        for folder in MACHINE_FOLDERS {
            for planted in [
                format!("/{folder}/a"),
                format!("see `/{folder}/a`"),
                format!("path = \"/{folder}/a\""),
                format!("file:///{folder}/a"),
            ] {
                let found = check_machine_paths("docs/a.md", &format!("fine\n{planted}\n"));
                assert_eq!(found.len(), 1, "{planted}");
                assert_eq!(found[0].line, 2);
            }
            for clean in [
                format!("https://example.org/{folder}/a"),
                format!("a/{folder}/b and ./{folder}/c and ~/{folder}/d"),
                format!("the {folder} folder"),
            ] {
                assert_eq!(check_machine_paths("docs/a.md", &clean), [], "{clean}");
            }
        }
    }

    #[test]
    fn the_registry_of_one_machine_is_found() {
        let planted = format!("copied from ~/{}", [".cargo", "registry", "src"].join("/"));
        assert_eq!(check_machine_paths("docs/a.md", &planted).len(), 1);
        assert_eq!(check_machine_paths("docs/a.md", "see .cargo/config.toml"), []);
    }

    #[test]
    fn large_goldens_are_found() {
        let file = |path: &str, bytes| TrackedFile { path: path.into(), bytes, text: None };
        let half = GOLDENS_BYTES / 2;
        let files = [file("goldens/a", half), file("goldens/b/c", half)];
        assert_eq!(check_goldens(&files), None);
        let planted = [file("goldens/a", half), file("goldens/b/c", half + 1)];
        assert!(check_goldens(&planted).is_some());
        let elsewhere = [file("goldens/a", half), file("docs/c", GOLDENS_BYTES)];
        assert_eq!(check_goldens(&elsewhere), None);
    }
}
