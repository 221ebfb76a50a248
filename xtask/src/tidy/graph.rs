//! Which crate may use which: dependencies point down, and a model cannot name a rank.
//!
//! The graph is read from the manifests (`cargo metadata --no-deps`), so that optional and
//! platform-specific edges count as well. Crates from a registry cannot lead back into the
//! workspace, so the declared edges between our own crates are all there are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::Violation;
use crate::process::{self, command};

/// Whether a crate of the design is written yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Present,
    Planned,
}

/// A crate and the crates of ours that it may depend on.
pub(super) struct Crate {
    pub(super) name: &'static str,
    pub(super) state: State,
    pub(super) may_use: &'static [&'static str],
}

const fn present(name: &'static str, may_use: &'static [&'static str]) -> Crate {
    Crate { name, state: State::Present, may_use }
}

#[cfg_attr(not(test), expect(dead_code, reason = "every crate of the design is written"))]
const fn planned(name: &'static str, may_use: &'static [&'static str]) -> Crate {
    Crate { name, state: State::Planned, may_use }
}

/// Every crate of the workspace, from the bottom up.
pub(super) const CRATES: [Crate; 21] = [
    present("kernels", &[]),
    present("comm", &[]),
    present("nn", &["kernels"]),
    present("diffusion", &["kernels", "nn"]),
    present("data", &["kernels", "nn", "diffusion"]),
    present("models", &["kernels", "nn", "diffusion"]),
    present("folder", &["kernels", "nn"]),
    present("families", &["kernels", "nn", "diffusion", "data", "models", "folder"]),
    present("parallel", &["kernels", "comm", "nn", "diffusion"]),
    present(
        "engine",
        &["kernels", "comm", "nn", "diffusion", "data", "models", "folder", "families", "parallel"],
    ),
    present("train", &["kernels", "comm", "nn", "diffusion", "data", "parallel", "engine"]),
    present("journal", &["kernels", "data", "train"]),
    present("strategies", &["kernels", "nn", "diffusion", "train"]),
    present("methods", &["kernels", "nn", "diffusion", "train"]),
    present(
        "recipe",
        &[
            "kernels",
            "comm",
            "nn",
            "diffusion",
            "data",
            "models",
            "folder",
            "families",
            "parallel",
            "engine",
            "train",
            "journal",
            "strategies",
            "methods",
        ],
    ),
    // The server makes requests of what clients send and shows what models take; how they are run is handed in.
    present("serve", &["kernels", "nn", "diffusion", "data", "folder", "families", "engine"]),
    present(
        "moviola",
        &[
            "kernels",
            "comm",
            "nn",
            "diffusion",
            "data",
            "models",
            "folder",
            "families",
            "parallel",
            "engine",
            "train",
            "journal",
            "recipe",
            "serve",
        ],
    ),
    present("testkit", &["kernels", "comm", "nn", "diffusion", "models", "parallel", "engine"]),
    present(
        "bench-worker",
        &["kernels", "nn", "diffusion", "models", "engine", "train", "strategies", "methods"],
    ),
    present(
        "fuzz",
        &["diffusion", "data", "models", "nn", "folder", "families", "engine", "train", "recipe"],
    ),
    present("xtask", &[]),
];

/// A crate that another must not reach, over however many steps.
pub(super) struct Law {
    pub(super) from: &'static str,
    pub(super) never: &'static str,
    pub(super) because: &'static str,
}

const fn law(from: &'static str, never: &'static str, because: &'static str) -> Law {
    Law { from, never, because }
}

const NO_RANKS: &str = "a model cannot name a rank";
const APART: &str = "methods and strategies meet only in train's traits";

/// What must hold whatever the table above says.
pub(super) const LAWS: [Law; 6] = [
    law("kernels", "comm", NO_RANKS),
    law("nn", "comm", NO_RANKS),
    law("diffusion", "comm", NO_RANKS),
    law("models", "comm", NO_RANKS),
    law("methods", "strategies", APART),
    law("strategies", "methods", APART),
];

/// The manifests of the workspace, as `cargo metadata --no-deps` prints them.
#[derive(Debug, Deserialize)]
pub(super) struct Workspace {
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    req: String,
    /// None for an ordinary one, else `build` or `dev`.
    kind: Option<String>,
    /// None for a path.
    source: Option<String>,
}

impl Dependency {
    /// Tests may use what they like; what is shipped may not.
    fn is_shipped(&self) -> bool {
        self.kind.as_deref() != Some("dev")
    }
}

/// Reads the manifests of the workspace at `root`.
pub(super) fn read(root: &Path) -> Result<Workspace> {
    let arguments = "metadata --no-deps --format-version 1";
    let text = process::output(&mut command("cargo", arguments, root))?;
    serde_json::from_str(&text).context("cannot read what `cargo metadata` printed")
}

/// All rules about the crates' dependencies.
pub(super) fn check(workspace: &Workspace, crates: &[Crate], laws: &[Law]) -> Vec<Violation> {
    let mut violations = check_table(workspace, crates, laws);
    violations.extend(check_edges(workspace, crates));
    violations.extend(check_laws(workspace, laws));
    violations.extend(check_origins(workspace));
    violations
}

/// The table names exactly the crates that exist, and those that are planned.
fn check_table(workspace: &Workspace, crates: &[Crate], laws: &[Law]) -> Vec<Violation> {
    let existing: BTreeSet<_> = workspace.packages.iter().map(|own| own.name.as_str()).collect();
    let listed: BTreeSet<_> = crates.iter().map(|entry| entry.name).collect();
    let mut messages = Vec::new();
    for name in existing.difference(&listed) {
        messages.push(format!("crate `{name}` is not in the table CRATES; add it there"));
    }
    for entry in crates {
        match (entry.state, existing.contains(entry.name)) {
            (State::Present, false) => messages.push(format!(
                "CRATES lists `{}` as present, but the workspace has no such crate; \
                 correct the name, remove it or mark it planned",
                entry.name
            )),
            (State::Planned, true) => messages.push(format!(
                "CRATES lists `{}` as planned, but it exists; mark it present",
                entry.name
            )),
            _ => {}
        }
    }
    let in_table = crates.iter().flat_map(|entry| entry.may_use.iter());
    let in_laws = laws.iter().flat_map(|law| [&law.from, &law.never]);
    let used: BTreeSet<&str> = in_table.chain(in_laws).copied().collect();
    for name in used.difference(&listed) {
        messages.push(format!("`{name}` is named in a rule but is not in CRATES; correct it"));
    }
    messages.into_iter().map(|message| Violation::new(TABLE, 1, message)).collect()
}

/// Where the table is.
const TABLE: &str = "xtask/src/tidy/graph.rs";

/// Every shipped edge between our crates is one that the table allows.
fn check_edges(workspace: &Workspace, crates: &[Crate]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (from, reached) in edges(workspace) {
        let Some(entry) = crates.iter().find(|entry| entry.name == from) else { continue };
        for to in reached.into_iter().filter(|to| !entry.may_use.contains(to)) {
            let message = format!(
                "`{from}` may not depend on `{to}`; remove the dependency, or, if it points \
                 down in the design, add it to the table in {TABLE}"
            );
            violations.push(Violation::new(&manifest(from), 1, message));
        }
    }
    violations
}

/// No crate reaches what a law forbids it.
fn check_laws(workspace: &Workspace, laws: &[Law]) -> Vec<Violation> {
    let edges = edges(workspace);
    laws.iter()
        .filter_map(|law| {
            let path = path_between(&edges, law.from, law.never)?;
            let message = format!(
                "{}, but `{}` reaches `{}` ({}); remove one of these dependencies",
                law.because,
                law.from,
                law.never,
                path.join(" → ")
            );
            Some(Violation::new(&manifest(law.from), 1, message))
        })
        .collect()
}

/// Dependencies come from crates.io at one exact version, or from this workspace.
fn check_origins(workspace: &Workspace) -> Vec<Violation> {
    let own: BTreeSet<_> = workspace.packages.iter().map(|own| own.name.as_str()).collect();
    let mut violations = Vec::new();
    for package in &workspace.packages {
        for dependency in &package.dependencies {
            let fault = match dependency.source.as_deref() {
                None if own.contains(dependency.name.as_str()) => None,
                None => Some("is a path outside the workspace; depend on a published version"),
                Some(source) if source.starts_with("git+") => {
                    Some("comes from git; depend on a published version")
                }
                Some(_) if dependency.req.starts_with('=') => None,
                Some(_) => Some("is not pinned; write `=version` in the workspace's manifest"),
            };
            violations.extend(fault.map(|fault| {
                let message = format!("dependency `{}` {fault}", dependency.name);
                Violation::new(&manifest(&package.name), 1, message)
            }));
        }
    }
    violations
}

/// Every locked crate comes from crates.io: no git, no mirror.
pub(super) fn check_lock(path: &str, text: &str) -> Vec<Violation> {
    let index = "https://github.com/rust-lang/crates.io-index";
    let is_foreign = |line: &str| {
        line.strip_prefix("source = ")
            .is_some_and(|source| source.trim_matches('"') != format!("registry+{index}"))
    };
    let lines = text.lines().enumerate().filter(|(_, line)| is_foreign(line));
    lines
        .map(|(index, line)| {
            let message = format!("{line} is not crates.io; depend on a published version");
            Violation::new(path, index + 1, message)
        })
        .collect()
}

/// For each of our crates, those of ours that it ships with.
fn edges(workspace: &Workspace) -> BTreeMap<&str, BTreeSet<&str>> {
    let packages = workspace.packages.iter();
    packages
        .map(|package| {
            let own = package.dependencies.iter().filter(|to| to.source.is_none());
            let shipped = own.filter(|to| to.is_shipped()).map(|to| to.name.as_str());
            (package.name.as_str(), shipped.collect())
        })
        .collect()
}

/// The crates on a way from `from` to `to`, both included; none if there is no way.
fn path_between<'a>(
    edges: &BTreeMap<&'a str, BTreeSet<&'a str>>,
    from: &'a str,
    to: &str,
) -> Option<Vec<&'a str>> {
    let mut seen = BTreeSet::from([from]);
    let mut ways = vec![vec![from]];
    while let Some(way) = ways.pop() {
        let last = *way.last()?;
        if last == to {
            return Some(way);
        }
        for next in edges.get(last).into_iter().flatten() {
            if seen.insert(next) {
                ways.push([way.as_slice(), &[next]].concat());
            }
        }
    }
    None
}

/// Where the manifest of one of our crates is.
fn manifest(name: &str) -> String {
    match name {
        "xtask" | "testkit" => format!("{name}/Cargo.toml"),
        "bench-worker" => "benches/worker/Cargo.toml".to_string(),
        _ => format!("crates/{name}/Cargo.toml"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A workspace of the given edges, each a shipped one of ours.
    fn workspace(edges: &[(&str, &[&str])]) -> Workspace {
        let packages = edges
            .iter()
            .map(|(name, uses)| Package {
                name: name.to_string(),
                dependencies: uses.iter().map(|to| dependency(to, None, None)).collect(),
            })
            .collect();
        Workspace { packages }
    }

    fn dependency(name: &str, kind: Option<&str>, source: Option<&str>) -> Dependency {
        let (kind, source) = (kind.map(str::to_string), source.map(str::to_string));
        Dependency { name: name.to_string(), req: "*".into(), kind, source }
    }

    /// Every crate that is present, each using all that it may and that exists.
    pub(in super::super) fn clean_workspace() -> Workspace {
        let is_present = |name: &&&str| {
            CRATES.iter().any(|entry| entry.name == **name && entry.state == State::Present)
        };
        let packages = CRATES.iter().filter(|entry| is_present(&&entry.name)).map(|entry| {
            let uses = entry.may_use.iter().filter(is_present);
            Package {
                name: entry.name.to_string(),
                dependencies: uses.map(|to| dependency(to, None, None)).collect(),
            }
        });
        Workspace { packages: packages.collect() }
    }

    const TWO: [Crate; 3] =
        [present("kernels", &[]), present("nn", &["kernels"]), planned("train", &["nn"])];

    fn messages(violations: &[Violation]) -> String {
        violations.iter().map(Violation::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_whole_design_keeps_its_own_laws() {
        let everything: Vec<_> = CRATES.iter().map(|entry| (entry.name, entry.may_use)).collect();
        assert_eq!(check_laws(&workspace(&everything), &LAWS), []);
        assert_eq!(check(&clean_workspace(), &CRATES, &LAWS), []);
    }

    #[test]
    fn the_table_points_down() {
        for (index, entry) in CRATES.iter().enumerate() {
            let below: Vec<_> = CRATES[..index].iter().map(|entry| entry.name).collect();
            assert!(entry.may_use.iter().all(|to| below.contains(to)), "{}", entry.name);
        }
    }

    #[test]
    fn an_edge_that_is_not_allowed_is_found() {
        let clean = workspace(&[("kernels", &[]), ("nn", &["kernels"])]);
        assert_eq!(check(&clean, &TWO, &[]), []);
        let planted = workspace(&[("kernels", &["nn"]), ("nn", &[])]);
        let found = messages(&check(&planted, &TWO, &[]));
        assert!(found.contains("crates/kernels/Cargo.toml:1: `kernels` may not depend on `nn`"));
    }

    #[test]
    fn a_crate_missing_from_the_table_is_found() {
        let planted = workspace(&[("kernels", &[]), ("nn", &[]), ("extra", &[])]);
        assert!(messages(&check(&planted, &TWO, &[])).contains("`extra` is not in the table"));
    }

    #[test]
    fn a_misspelt_table_entry_is_found() {
        let clean = workspace(&[("kernels", &[]), ("nn", &[])]);
        let misspelt = [present("kernel", &[]), present("nn", &["kernels"])];
        let found = messages(&check(&clean, &misspelt, &[]));
        assert!(found.contains("lists `kernel` as present, but"), "{found}");
        assert!(found.contains("`kernels` is not in the table"), "{found}");
        assert!(found.contains("`kernels` is named in a rule but is not in CRATES"), "{found}");
        let laws = [law("nn", "com", "planted")];
        assert!(messages(&check(&clean, &TWO, &laws)).contains("`com` is named in a rule"));
    }

    #[test]
    fn a_planned_crate_that_exists_is_found() {
        let planted = workspace(&[("kernels", &[]), ("nn", &[]), ("train", &["nn"])]);
        assert!(
            messages(&check(&planted, &TWO, &[])).contains("`train` as planned, but it exists")
        );
    }

    #[test]
    fn a_law_is_broken_over_several_steps() {
        let through = |middle: &'static str| {
            workspace(&[
                ("models", &["nn", middle]),
                ("nn", &[]),
                ("middle", &["comm"]),
                ("comm", &[]),
            ])
        };
        assert_eq!(check_laws(&through("nn"), &LAWS), []);
        let found = messages(&check_laws(&through("middle"), &LAWS));
        assert!(found.contains("a model cannot name a rank"), "{found}");
        assert!(found.contains("models → middle → comm"), "{found}");
    }

    #[test]
    fn methods_and_strategies_stay_apart() {
        let clean =
            workspace(&[("train", &[]), ("methods", &["train"]), ("strategies", &["train"])]);
        assert_eq!(check_laws(&clean, &LAWS), []);
        let planted = workspace(&[("methods", &["strategies"]), ("strategies", &[])]);
        assert_eq!(check_laws(&planted, &LAWS).len(), 1);
        let planted = workspace(&[("methods", &[]), ("strategies", &["methods"])]);
        assert_eq!(check_laws(&planted, &LAWS).len(), 1);
    }

    #[test]
    fn build_edges_count_and_test_edges_do_not() {
        let with = |kind| {
            let mut planted = workspace(&[("kernels", &[]), ("comm", &[])]);
            planted.packages[0].dependencies.push(dependency("comm", Some(kind), None));
            check_laws(&planted, &LAWS).len()
        };
        assert_eq!((with("build"), with("dev")), (1, 0));
    }

    #[test]
    fn dependencies_from_elsewhere_or_unpinned_are_found() {
        let with = |req: &str, source: Option<&str>| {
            let mut planted = workspace(&[("nn", &[])]);
            let extra = Dependency { req: req.into(), ..dependency("extra", Some("dev"), source) };
            planted.packages[0].dependencies.push(extra);
            messages(&check_origins(&planted))
        };
        let registry = Some("registry+https://github.com/rust-lang/crates.io-index");
        assert_eq!(with("=1.0.0", registry), "");
        assert!(with("^1.0.0", registry).contains("not pinned"));
        assert!(with("=1.0.0", Some("git+https://example.org/extra")).contains("from git"));
        assert!(with("*", None).contains("path outside the workspace"));
    }

    #[test]
    fn a_lock_with_a_foreign_source_is_found() {
        let entry = |source| format!("[[package]]\nname = \"a\"\nsource = \"{source}\"\n");
        let clean = entry("registry+https://github.com/rust-lang/crates.io-index");
        assert_eq!(check_lock("Cargo.lock", &clean), []);
        for planted in ["git+https://example.org/a#123", "registry+https://mirror.example.org/"] {
            assert_eq!(check_lock("Cargo.lock", &entry(planted))[0].line, 3, "{planted}");
        }
    }

    #[test]
    fn the_output_of_cargo_is_understood() {
        let text = r#"{"packages":[{"name":"nn","dependencies":[
            {"name":"kernels","source":null,"req":"*","kind":null,"optional":true},
            {"name":"half","source":"registry+x","req":"=2.0.0","kind":"dev"}]}]}"#;
        let workspace: Workspace = serde_json::from_str(text).unwrap();
        let dependencies = &workspace.packages[0].dependencies;
        assert!(dependencies[0].is_shipped() && dependencies[0].source.is_none());
        assert!(!dependencies[1].is_shipped());
    }
}
