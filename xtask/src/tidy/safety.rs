//! `unsafe` stays in the two crates that need it, and says why it is sound.

use super::Violation;
use super::source::Source;

/// The folders whose code may be `unsafe`.
const ALLOWED: [&str; 2] = ["crates/kernels/", "crates/comm/"];

/// `unsafe` only in `kernels` and `comm`; there, each `unsafe impl` has its `SAFETY` comment.
///
/// The comments of unsafe blocks are clippy's work (`undocumented_unsafe_blocks`).
pub(super) fn check(source: &Source) -> Vec<Violation> {
    let may_use = ALLOWED.iter().any(|folder| source.path.starts_with(folder));
    let mut violations = Vec::new();
    for (index, piece) in source.pieces.iter().enumerate() {
        if !piece.is_word("unsafe") {
            continue;
        }
        let is_impl = source.pieces.get(index + 1).is_some_and(|next| next.is_word("impl"));
        if !may_use {
            let message = "`unsafe` outside the crates kernels and comm; \
                           move this there behind a safe function";
            violations.push(Violation::new(&source.path, piece.line, message));
        } else if is_impl && !source.is_marked(piece.line, "SAFETY:") {
            let message = "`unsafe impl` without a `// SAFETY:` comment above it; \
                           say why it is sound";
            violations.push(Violation::new(&source.path, piece.line, message));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Source::parse(path, text).unwrap()).iter().map(|found| found.line).collect()
    }

    #[test]
    fn unsafe_outside_its_crates_is_found() {
        let text = "//! Doc.\nfn f() {\n    unsafe { g() }\n}\nunsafe fn g() {}\n";
        assert_eq!(lines("crates/nn/src/a.rs", text), [3, 5]);
        assert!(lines("crates/kernels/src/a.rs", text).is_empty());
        assert!(lines("crates/comm/tests/a.rs", text).is_empty());
        assert_eq!(lines("crates/kernels_two/src/a.rs", text), [3, 5]);
    }

    #[test]
    fn unsafe_inside_a_macro_is_found() {
        let text = "//! Doc.\nmacro_rules! m {\n    () => { unsafe { g() } };\n}\n";
        assert_eq!(lines("crates/nn/src/a.rs", text), [3]);
    }

    #[test]
    fn the_word_in_a_comment_string_or_lint_is_no_use_of_it() {
        let text = "//! No unsafe here.\n#![deny(unsafe_code)]\nconst A: &str = \"unsafe\";\n";
        assert!(lines("crates/nn/src/a.rs", text).is_empty());
    }

    #[test]
    fn an_unsafe_impl_without_its_reason_is_found() {
        let bare = "//! Doc.\nstruct A;\nunsafe impl Send for A {}\n";
        assert_eq!(lines("crates/kernels/src/a.rs", bare), [3]);
        let said = "//! Doc.\nstruct A;\n// SAFETY: it holds nothing.\nunsafe impl Send for A {}\n";
        assert!(lines("crates/kernels/src/a.rs", said).is_empty());
    }
}
