//! Tests that pages name as evidence are there: a row of a table must not outlive the test that it rests on.

use std::collections::BTreeSet;

use super::Violation;
use super::tree::TrackedFile;

/// The pages that name tests, as `crate::binary module::test`; what follows in a row without a crate is of the same binary.
const PAGES: [&str; 1] = ["docs/defects.md"];

/// A test by its crate, its binary and its path there.
type Name = (String, String, String);

/// Every test that a page names is there.
pub(super) fn check(files: &[TrackedFile]) -> Vec<Violation> {
    let tests: BTreeSet<Name> = files
        .iter()
        .filter(|file| file.path.ends_with(".rs"))
        .flat_map(|file| tests_of(&file.path, file.text.as_deref().unwrap_or_default()))
        .collect();
    let pages = files.iter().filter(|file| PAGES.contains(&file.path.as_str()));
    let lines = pages.flat_map(|page| {
        let text = page.text.as_deref().unwrap_or_default();
        text.lines().enumerate().map(move |(at, line)| (page.path.as_str(), at + 1, line))
    });
    let missing = lines.flat_map(|(path, line, text)| {
        let named = named(text).into_iter().filter(|name| !is_there(name, &tests));
        named.map(move |(package, binary, test)| {
            let message = format!(
                "there is no test `{package}::{binary} {test}`; name the one that is meant"
            );
            Violation::new(path, line, message)
        })
    });
    missing.collect()
}

/// The tests that a line names.
fn named(line: &str) -> Vec<Name> {
    let mut all = Vec::new();
    let mut of: Option<(&str, &str)> = None;
    // What stands between two backticks is every second part.
    for word in line.split('`').skip(1).step_by(2) {
        let test = match word.split_once(' ') {
            Some((place, test)) => {
                // The page says how tests are written by one of no crate.
                let place = place.split_once("::").filter(|(package, _)| *package != "crate");
                let Some(place) = place else { continue };
                of = Some(place);
                test
            }
            None => word,
        };
        let is_path = |word: &str| {
            word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:*".contains(c))
        };
        // `train::Batch` and `parallel::ring` are parts of the code.
        let is_test = word.contains(' ')
            || (test.contains("::") && test.contains('_'))
            || test.ends_with("::*");
        if let (Some((package, binary)), true, true) = (of, is_test, is_path(test)) {
            all.push((package.to_owned(), binary.to_owned(), test.to_owned()));
        }
    }
    all
}

fn is_there((package, binary, test): &Name, tests: &BTreeSet<Name>) -> bool {
    let of = |own: &&Name| own.0 == *package && own.1 == *binary;
    match test.strip_suffix('*') {
        Some(module) => tests.iter().filter(of).any(|own| own.2.starts_with(module)),
        None => tests.contains(&(package.clone(), binary.clone(), test.clone())),
    }
}

/// The tests of a file.
fn tests_of(path: &str, text: &str) -> Vec<Name> {
    let Some((package, binary, module)) = place(path) else { return Vec::new() };
    let mut all = Vec::new();
    let (mut in_module, mut is_next) = (false, false);
    for line in text.lines().map(str::trim_start) {
        in_module |= line.ends_with("mod tests {");
        is_next |= line == "#[test]";
        let name = line.strip_prefix("fn ").or_else(|| line.strip_prefix("pub(crate) fn "));
        let Some(name) = name.and_then(|rest| rest.split('(').next()).filter(|_| is_next) else {
            continue;
        };
        is_next = false;
        let inner = in_module.then_some("tests");
        let parts: Vec<&str> =
            module.iter().map(String::as_str).chain(inner).chain([name]).collect();
        all.push((package.clone(), binary.clone(), parts.join("::")));
    }
    all
}

/// The crate and the binary of a file, and its module there.
fn place(path: &str) -> Option<(String, String, Vec<String>)> {
    let parts: Vec<&str> = path.strip_suffix(".rs")?.split('/').collect();
    let (package, rest) = match parts[..] {
        ["crates", package, ref rest @ ..] => (package, rest),
        [package, ref rest @ ..] => (package, rest),
        [] => return None,
    };
    let (binary, module) = match rest {
        ["tests", binary] => (*binary, &rest[2..]),
        ["tests", binary, module @ ..] => (*binary, module),
        ["src", module @ ..] => (if package == "xtask" { "xtask" } else { "lib" }, module),
        _ => return None,
    };
    let module = module.iter().filter(|part| !["main", "lib", "mod"].contains(part));
    Some((package.to_owned(), binary.to_owned(), module.map(|part| (*part).to_owned()).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> TrackedFile {
        TrackedFile { path: path.to_owned(), bytes: text.len() as u64, text: Some(text.to_owned()) }
    }

    #[test]
    fn a_test_that_is_gone_is_found() {
        let page = "# Defects\n\
                    | 1 | `comm::groups mesh::it_meets`, `mesh::it_parts`; `train::Batch`, `mesh::*` |\n\
                    | 2 | `comm::lib hall::inner::tests::it_waits`, `xtask::xtask tidy::size::tests::long` |\n\
                    | 3 | `comm::groups it_is_gone`, `mesh::gone_too`, `hall::*` and `--timeout 3` |\n";
        let files = [
            file("docs/defects.md", page),
            file(
                "crates/comm/tests/groups/mesh.rs",
                "#[test]\nfn it_meets() {}\n#[test]\nfn it_parts() {}\nfn gone_too() {}\n",
            ),
            file(
                "crates/comm/src/hall/inner.rs",
                "mod tests {\n    #[test]\n    fn it_waits() {}\n}\n",
            ),
            file("xtask/src/tidy/size.rs", "mod tests {\n    #[test]\n    fn long() {}\n}\n"),
        ];
        let found: Vec<_> = check(&files).into_iter().map(|own| (own.line, own.message)).collect();
        let names = ["it_is_gone", "mesh::gone_too", "hall::*"];
        assert_eq!(found.len(), names.len(), "{found:?}");
        for ((line, message), name) in found.iter().zip(names) {
            assert!(*line == 4 && message.contains(&format!("`comm::groups {name}`")), "{message}");
        }
    }
}
