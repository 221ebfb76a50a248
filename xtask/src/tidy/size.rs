//! How long a file and a function may be.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Violation;
use super::pieces::{Piece, Token, closing, flatten};
use super::source::Source;
use super::tree::TrackedFile;

/// The longest function, counted from `fn` to its closing brace.
const FUNCTION_LINES: usize = 70;

/// The longest Rust or Python file.
const FILE_LINES: usize = 600;

/// A file that may be longer, since it is a list of many like things.
pub(super) struct LongFile {
    pub(super) path: &'static str,
    /// Why it is not split.
    pub(super) reason: &'static str,
}

/// The files that may be longer than 600 lines, with the reason.
pub(super) const LONG_FILES: [LongFile; 0] = [];

/// A Rust or Python file has at most 600 lines, unless `exceptions` lists it.
pub(super) fn check_file(path: &str, text: &str, exceptions: &[LongFile]) -> Option<Violation> {
    let lines = text.lines().count();
    let is_code = path.ends_with(".rs") || path.ends_with(".py");
    if !is_code || lines <= FILE_LINES || exceptions.iter().any(|file| file.path == path) {
        return None;
    }
    let message = format!("has {lines} lines, more than {FILE_LINES}; split it by purpose");
    Some(Violation::new(path, FILE_LINES + 1, message))
}

/// An exception is needed, and says why.
pub(super) fn check_exceptions(files: &[TrackedFile], exceptions: &[LongFile]) -> Vec<Violation> {
    let is_needed = |path: &str| {
        files.iter().any(|file| {
            let text = file.text.as_deref().unwrap_or_default();
            file.path == path && check_file(path, text, &[]).is_some()
        })
    };
    let fault = |exception: &LongFile| {
        if !is_needed(exception.path) {
            Some("is in LONG_FILES but is not a long file; remove it from that list")
        } else if exception.reason.is_empty() {
            Some("is in LONG_FILES without a reason; say why it is not split")
        } else {
            None
        }
    };
    let faults = exceptions.iter().filter_map(|own| Some((own, fault(own)?)));
    faults.map(|(exception, message)| Violation::new(exception.path, 1, message)).collect()
}

/// A function has at most 70 lines; nested, associated, test and macro-made ones included.
pub(super) fn check_functions(source: &Source) -> Vec<Violation> {
    functions(source)
        .into_iter()
        .filter(|function| function.lines() > FUNCTION_LINES)
        .map(|function| {
            let message = format!(
                "function `{}` has {} lines, more than {FUNCTION_LINES}; split it",
                function.name,
                function.lines()
            );
            Violation::new(&source.path, function.start, message)
        })
        .collect()
}

/// A function of a file, with its first and last line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    /// The type that the surrounding `impl` block is for.
    pub(super) owner: Option<String>,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Function {
    fn lines(&self) -> usize {
        self.end + 1 - self.start
    }
}

/// All functions of `source`, outer ones first.
pub(super) fn functions(source: &Source) -> Vec<Function> {
    let mut finder = Finder { found: Vec::new(), owner: None };
    finder.visit_file(&source.syntax);
    finder.found
}

struct Finder {
    found: Vec<Function>,
    owner: Option<String>,
}

impl Finder {
    fn add(&mut self, signature: &syn::Signature, end: usize) {
        let start = signature.fn_token.span.start().line;
        let name = signature.ident.to_string();
        self.found.push(Function { name, owner: self.owner.clone(), start, end });
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item_impl(&mut self, node: &'ast syn::ItemImpl) {
        let outer = self.owner.take();
        if let syn::Type::Path(path) = &*node.self_ty {
            self.owner = path.path.segments.last().map(|segment| segment.ident.to_string());
        }
        visit::visit_item_impl(self, node);
        self.owner = outer;
    }

    fn visit_item_fn(&mut self, node: &'ast syn::ItemFn) {
        self.add(&node.sig, node.block.brace_token.span.close().end().line);
        // A function inside a method has no owner.
        let outer = self.owner.take();
        visit::visit_item_fn(self, node);
        self.owner = outer;
    }

    fn visit_impl_item_fn(&mut self, node: &'ast syn::ImplItemFn) {
        self.add(&node.sig, node.block.brace_token.span.close().end().line);
        visit::visit_impl_item_fn(self, node);
    }

    fn visit_trait_item_fn(&mut self, node: &'ast syn::TraitItemFn) {
        self.add(&node.sig, node.span().end().line);
        visit::visit_trait_item_fn(self, node);
    }

    fn visit_macro(&mut self, node: &'ast syn::Macro) {
        self.found.extend(functions_in_tokens(&flatten(node.tokens.clone())));
    }
}

/// The functions written inside a macro call, such as `proptest! { … }`.
fn functions_in_tokens(pieces: &[Piece]) -> Vec<Function> {
    let mut found = Vec::new();
    for (index, piece) in pieces.iter().enumerate().filter(|(_, piece)| piece.is_word("fn")) {
        // In `macro_rules!` the name may be a variable: `fn $name`.
        let after = index + 1;
        let at = if pieces.get(after).is_some_and(|next| next.is_sign('$')) { 1 } else { 0 };
        let Some(name) = pieces.get(after + at).and_then(Piece::word) else { continue };
        let Some(end) = body_end(pieces, after + at) else { continue };
        found.push(Function { name: name.to_string(), owner: None, start: piece.line, end });
    }
    found
}

/// The line on which the first braced group after `start` closes; none if a `;` comes first.
fn body_end(pieces: &[Piece], start: usize) -> Option<usize> {
    let mut index = start;
    loop {
        match pieces.get(index)?.token {
            Token::Open('{') => return Some(pieces[closing(pieces, index)?].line),
            Token::Open(_) => index = closing(pieces, index)?,
            Token::Sign(';') | Token::Close(_) => return None,
            _ => {}
        }
        index += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function of `lines` lines, from `head` to its brace.
    fn function_of(head: &str, lines: usize) -> String {
        format!("{head} {{\n{}}}\n", "    step();\n".repeat(lines - 2))
    }

    /// `wrap` puts the function somewhere; 70 lines pass there, and 71 are found at `line`.
    fn check_limit(line: usize, wrap: impl Fn(&str) -> String) {
        let at_limit = wrap(&function_of("fn long()", 70));
        let clean = Source::parse("crates/nn/src/a.rs", &at_limit).unwrap();
        assert_eq!(check_functions(&clean), [], "70 lines are allowed");

        let planted = wrap(&function_of("fn long()", 71));
        let planted = Source::parse("crates/nn/src/a.rs", &planted).unwrap();
        let found = check_functions(&planted);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].line, line);
        assert!(found[0].message.contains("`long` has 71 lines"), "{}", found[0]);
    }

    #[test]
    fn a_long_free_function_is_found() {
        check_limit(2, |function| format!("//! Doc.\n{function}"));
    }

    #[test]
    fn documentation_and_attributes_do_not_count() {
        check_limit(4, |function| format!("//! Doc.\n/// Says much.\n#[inline]\npub {function}"));
    }

    #[test]
    fn a_long_method_is_found() {
        check_limit(3, |function| format!("//! Doc.\nimpl A {{\n{function}}}\n"));
    }

    #[test]
    fn a_long_trait_default_is_found() {
        check_limit(3, |function| format!("//! Doc.\ntrait A {{\n{function}}}\n"));
    }

    #[test]
    fn a_long_test_is_found() {
        check_limit(5, |function| {
            format!("//! Doc.\n#[cfg(test)]\nmod tests {{\n#[test]\n{function}}}\n")
        });
    }

    #[test]
    fn a_long_function_inside_a_macro_is_found() {
        check_limit(3, |function| format!("//! Doc.\nproptest! {{\n{function}}}\n"));
    }

    #[test]
    fn a_long_nested_function_is_found_beside_its_outer_one() {
        let inner = function_of("fn inner()", 71);
        let text = format!("//! Doc.\nfn outer() {{\n{inner}}}\n");
        let found = check_functions(&Source::parse("a.rs", &text).unwrap());
        let lines: Vec<_> = found.iter().map(|violation| violation.line).collect();
        assert_eq!(lines, [2, 3]);
    }

    #[test]
    fn a_method_knows_its_type_and_a_declaration_ends_at_its_semicolon() {
        let text = "//! Doc.\nimpl Method for Trainer<M> {\n    fn run(&self) {}\n}\n\
                    trait T {\n    fn f(\n    );\n}\n";
        let found = functions(&Source::parse("a.rs", text).unwrap());
        let owner = Some("Trainer".to_string());
        assert_eq!(found[0], Function { name: "run".into(), owner, start: 3, end: 3 });
        assert_eq!(found[1], Function { name: "f".into(), owner: None, start: 6, end: 7 });
    }

    #[test]
    fn a_long_file_is_found_unless_it_is_listed() {
        let allowed = "// line\n".repeat(600);
        let long = "// line\n".repeat(601);
        assert_eq!(check_file("a.rs", &allowed, &[]), None);
        assert!(check_file("a.rs", &long, &[]).is_some());
        assert!(check_file("tools/a.py", &long, &[]).is_some());
        assert_eq!(check_file("Cargo.lock", &long, &[]), None);
        let listed = [LongFile { path: "a.rs", reason: "planted" }];
        assert_eq!(check_file("a.rs", &long, &listed), None);
    }

    #[test]
    fn a_stale_exception_is_found() {
        let file = |lines: usize| TrackedFile {
            path: "a.rs".into(),
            bytes: 0,
            text: Some("// line\n".repeat(lines)),
        };
        let listed = [LongFile { path: "a.rs", reason: "planted" }];
        assert_eq!(check_exceptions(&[file(601)], &listed), []);
        assert_eq!(check_exceptions(&[file(10)], &listed).len(), 1);
        assert_eq!(check_exceptions(&[], &listed).len(), 1, "a misspelt path is stale too");
        let unexplained = [LongFile { path: "a.rs", reason: "" }];
        assert_eq!(check_exceptions(&[file(601)], &unexplained).len(), 1);
    }
}
