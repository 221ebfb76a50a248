//! A parsed Rust file, and the rule that it says at its top what it is for.

use proc_macro2::TokenStream;

use super::Violation;
use super::pieces::{Piece, flatten};

/// A Rust file: its text, its tokens and its syntax tree.
pub(super) struct Source {
    /// Relative to the repository, with forward slashes.
    pub(super) path: String,
    pub(super) text: String,
    pub(super) pieces: Vec<Piece>,
    pub(super) syntax: syn::File,
}

impl Source {
    /// Parses `text`; what does not parse is a violation, since no other rule could look at it.
    pub(super) fn parse(path: &str, text: &str) -> Result<Source, Violation> {
        let refuse = |line, error: &dyn std::fmt::Display| {
            Violation::new(path, line, format!("is not valid Rust ({error}); correct it"))
        };
        let tokens: TokenStream =
            text.parse().map_err(|error: proc_macro2::LexError| refuse(1, &error))?;
        let syntax = syn::parse2(tokens.clone())
            .map_err(|error| refuse(error.span().start().line, &error))?;
        Ok(Source { path: path.into(), text: text.into(), pieces: flatten(tokens), syntax })
    }

    /// Whether the comment directly above `line`, or at its end, contains `mark`.
    ///
    /// Attributes between the comment and the line are skipped.
    pub(super) fn is_marked(&self, line: usize, mark: &str) -> bool {
        let lines: Vec<&str> = self.text.lines().collect();
        let Some((own, above)) = lines.get(..line).and_then(<[_]>::split_last) else {
            return false;
        };
        let comments = above
            .iter()
            .rev()
            .map(|line| line.trim_start())
            .take_while(|line| line.starts_with("//") || line.starts_with("#["));
        let own_comment = own.find("//").map(|start| &own[start..]);
        comments.chain(own_comment).any(|comment| comment.contains(mark) && comment.contains("//"))
    }
}

/// Every Rust file opens with `//!`.
pub(super) fn check_opening(source: &Source) -> Option<Violation> {
    if source.text.starts_with("//!") {
        return None;
    }
    let message = "does not start with `//!`; say in the first line what this file is for";
    Some(Violation::new(&source.path, 1, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_purpose_is_found() {
        let planted = Source::parse("crates/nn/src/a.rs", "fn f() {}\n//! Late.\n");
        assert!(planted.is_err(), "`//!` after an item is not Rust");
        let planted = Source::parse("crates/nn/src/a.rs", "// Plain.\nfn f() {}\n").unwrap();
        assert_eq!(check_opening(&planted).unwrap().line, 1);
        let clean = Source::parse("crates/nn/src/a.rs", "//! What it is for.\nfn f() {}\n");
        assert_eq!(check_opening(&clean.unwrap()), None);
    }

    #[test]
    fn text_that_is_not_rust_is_found() {
        let violation = Source::parse("a.rs", "//! Doc.\nfn f( {\n}\n").err().unwrap();
        assert!(violation.message.contains("not valid Rust"));
        let violation = Source::parse("a.rs", "//! Doc.\nfn fn f() {}\n").err().unwrap();
        assert_eq!(violation.line, 2);
    }

    #[test]
    fn a_mark_is_a_comment_that_touches_the_line() {
        let text = "//! Doc.\n// SAFETY: why.\n#[inline]\nfn f() {}\n\nfn g() {} // SAFETY: too\n\
                    // SAFETY: apart.\n\nfn h() { \"SAFETY\"; }\n";
        let source = Source::parse("a.rs", text).unwrap();
        assert!(source.is_marked(4, "SAFETY"));
        assert!(source.is_marked(6, "SAFETY"));
        assert!(!source.is_marked(9, "SAFETY"));
    }
}
