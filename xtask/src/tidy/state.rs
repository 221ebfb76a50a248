//! No hidden inputs: the environment is read by binaries only, and libraries hold no global state.

use super::Violation;
use super::pieces::{Piece, Token, closing};
use super::source::Source;

/// The folders whose code may read the environment.
const ENVIRONMENT_READERS: [&str; 4] = ["crates/moviola/", "benches/worker/", "fuzz/", "xtask/"];

/// The functions of `std::env` that read or change it.
const ENVIRONMENT_FUNCTIONS: [&str; 6] =
    ["var", "var_os", "vars", "vars_os", "set_var", "remove_var"];

/// The folders of programs, where state that lives as long as the process is legitimate.
const PROGRAMS: [&str; 3] = ["crates/moviola/", "xtask/", "benches/"];

/// The folders that may keep buffers per thread, if they say so.
const SCRATCH_USERS: [&str; 2] = ["crates/kernels/", "crates/comm/"];

/// What marks such a buffer.
const SCRATCH_MARK: &str = "tidy: scratch";

/// The folder whose signal handlers may have a static, which is all that a handler can reach.
const HANDLERS: &str = "crates/kernels/";

/// What marks it.
const HANDLER_MARK: &str = "tidy: signal";

/// Types that change through a shared reference; `Atomic…` belongs to them as well.
const MUTABLE_TYPES: [&str; 12] = [
    "Cell",
    "Condvar",
    "Lazy",
    "LazyCell",
    "LazyLock",
    "Mutex",
    "OnceCell",
    "OnceLock",
    "RefCell",
    "RwLock",
    "SyncUnsafeCell",
    "UnsafeCell",
];

/// `std::env::var` and its kin only in programs.
pub(super) fn check_environment(source: &Source) -> Vec<Violation> {
    if is_under(source, &ENVIRONMENT_READERS) {
        return Vec::new();
    }
    let pieces = &source.pieces;
    let uses = (0..pieces.len()).filter(|&index| reads_environment(pieces, index));
    uses.map(|index| {
        let message = "reads the environment outside the binary; \
                       take the value as an argument and read it in crates/moviola";
        Violation::new(&source.path, pieces[index].line, message)
    })
    .collect()
}

/// Whether `env::var`, `env::{…, var, …}` or `env as …` starts at `index`.
fn reads_environment(pieces: &[Piece], index: usize) -> bool {
    let is_banned =
        |piece: &Piece| piece.word().is_some_and(|word| ENVIRONMENT_FUNCTIONS.contains(&word));
    if !pieces[index].is_word("env") {
        return false;
    }
    match pieces.get(index + 1..) {
        // A new name for the module would hide its functions from this rule.
        Some([next, ..]) if next.is_word("as") => true,
        Some([first, second, third, ..]) if first.is_sign(':') && second.is_sign(':') => {
            let group = match third.token {
                Token::Open('{') => closing(pieces, index + 3).map(|end| &pieces[index + 3..end]),
                _ => None,
            };
            is_banned(third)
                || third.is_sign('*')
                || group.is_some_and(|group| group.iter().any(is_banned))
        }
        _ => false,
    }
}

/// No `static mut` anywhere, and no static or thread-local that can change in a library.
pub(super) fn check_statics(source: &Source) -> Vec<Violation> {
    let is_library = !is_under(source, &PROGRAMS);
    let pieces = &source.pieces;
    let mut violations = Vec::new();
    // The statics inside `thread_local!` are judged once, with the macro.
    let mut judged_until = 0;
    for (index, piece) in pieces.iter().enumerate() {
        let found = if is_keyword_static(pieces, index) {
            let item = &pieces[index + 1..];
            let is_handlers =
                source.path.starts_with(HANDLERS) && source.is_marked(piece.line, HANDLER_MARK);
            let is_judged = is_library && index >= judged_until && !is_handlers;
            mutable_item(item).or_else(|| mutable_type(item).filter(|_| is_judged))
        } else if let Some(end) = state_macro_end(pieces, index).filter(|_| is_library) {
            judged_until = end;
            per_thread_state(source, piece.line).map(String::from)
        } else {
            None
        };
        violations.extend(found.map(|message| Violation::new(&source.path, piece.line, message)));
    }
    violations
}

/// `static` as the start of an item, not as the lifetime `'static`.
fn is_keyword_static(pieces: &[Piece], index: usize) -> bool {
    pieces[index].is_word("static") && !(index > 0 && pieces[index - 1].is_sign('\''))
}

/// Where the body of a `thread_local!` or `lazy_static!` that starts at `index` ends.
fn state_macro_end(pieces: &[Piece], index: usize) -> Option<usize> {
    let is_named = pieces[index].is_word("thread_local") || pieces[index].is_word("lazy_static");
    let is_call = is_named && pieces.get(index + 1)?.is_sign('!');
    if is_call { closing(pieces, index + 2) } else { None }
}

/// The fault of a `static` item that is `mut`; `item` holds its tokens after the keyword.
fn mutable_item(item: &[Piece]) -> Option<String> {
    let is_mutable = item.first()?.is_word("mut");
    is_mutable.then(|| "`static mut`; pass the value to where it is used".to_string())
}

/// The fault of a `static` item whose type can change.
fn mutable_type(item: &[Piece]) -> Option<String> {
    let end = item.iter().position(|piece| piece.is_sign('=') || piece.is_sign(';'))?;
    let kind = item[..end].iter().filter_map(Piece::word).find(|word| is_mutable(word))?;
    Some(format!("a static of type `{kind}` is global state; pass a context instead"))
}

fn is_mutable(word: &str) -> bool {
    MUTABLE_TYPES.contains(&word) || word.starts_with("Atomic")
}

fn per_thread_state(source: &Source, line: usize) -> Option<&'static str> {
    if !is_under(source, &SCRATCH_USERS) {
        return Some("state per thread in a library; pass a context instead");
    }
    if source.is_marked(line, SCRATCH_MARK) {
        return None;
    }
    Some(
        "state per thread without a `// tidy: scratch` comment above it; \
         add one that says why the result does not depend on it, or pass a buffer",
    )
}

fn is_under(source: &Source, folders: &[&str]) -> bool {
    folders.iter().any(|folder| source.path.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(path: &str, body: &str) -> usize {
        let text = format!("//! Doc.\n{body}\n");
        check_environment(&Source::parse(path, &text).unwrap()).len()
    }

    fn statics(path: &str, body: &str) -> usize {
        let text = format!("//! Doc.\n{body}\n");
        check_statics(&Source::parse(path, &text).unwrap()).len()
    }

    #[test]
    fn reading_the_environment_in_a_library_is_found() {
        for planted in [
            "fn f() { std::env::var(\"A\"); }",
            "fn f() { env::vars(); }",
            "use std::env::var_os;",
            "use std::env::{args, var};",
            "use std::env::*;",
            "use std::env as surroundings;",
            "fn f() { m!(std::env::set_var(\"A\", \"b\")); }",
        ] {
            assert_eq!(environment("crates/nn/src/a.rs", planted), 1, "{planted}");
            assert_eq!(environment("testkit/src/a.rs", planted), 1, "{planted}");
            assert_eq!(environment("crates/moviola/src/a.rs", planted), 0, "{planted}");
            assert_eq!(environment("benches/worker/src/a.rs", planted), 0, "{planted}");
            assert_eq!(environment("xtask/src/a.rs", planted), 0, "{planted}");
        }
    }

    #[test]
    fn other_uses_of_env_pass() {
        for clean in [
            "fn f() { std::env::args(); }",
            "use std::env::{args, temp_dir};",
            "const A: &str = env!(\"CARGO_PKG_NAME\");",
            "fn f() { let env = 1; let var = env; }",
        ] {
            assert_eq!(environment("crates/nn/src/a.rs", clean), 0, "{clean}");
        }
    }

    #[test]
    fn a_mutable_static_is_found_everywhere() {
        for path in ["crates/nn/src/a.rs", "crates/moviola/src/a.rs", "xtask/src/a.rs"] {
            assert_eq!(statics(path, "static mut A: u8 = 0;"), 1, "{path}");
        }
    }

    #[test]
    fn a_static_that_can_change_is_found_in_a_library() {
        for planted in [
            "static A: OnceLock<u8> = OnceLock::new();",
            "static A: std::sync::Mutex<Vec<u8>> = std::sync::Mutex::new(Vec::new());",
            "fn f() { static A: AtomicUsize = AtomicUsize::new(0); }",
            "static A: [RwLock<u8>; 2] = make();",
            "macro_rules! m { () => { static A: LazyLock<u8> = make(); } }",
            "thread_local! { static A: Cell<u8> = Cell::new(0); }",
            "lazy_static! { static ref A: u8 = 0; }",
        ] {
            assert_eq!(statics("crates/nn/src/a.rs", planted), 1, "{planted}");
            assert_eq!(statics("crates/moviola/src/a.rs", planted), 0, "{planted}");
        }
    }

    #[test]
    fn constants_and_lifetimes_pass() {
        for clean in [
            "static A: [u8; 2] = [0, 1];",
            "fn f(a: &'static Mutex<u8>) {}",
            "static A: MiMalloc = MiMalloc;",
            "fn f() { let thread_local = 1; }",
        ] {
            assert_eq!(statics("crates/nn/src/a.rs", clean), 0, "{clean}");
        }
    }

    #[test]
    fn a_handler_of_signals_has_a_static_in_kernels_if_it_is_marked() {
        let bare = "static A: AtomicPtr<u8> = AtomicPtr::new(null_mut());";
        let marked = format!("// tidy: signal: only a handler reads it.\n{bare}");
        assert_eq!(statics("crates/kernels/src/a.rs", bare), 1);
        assert_eq!(statics("crates/kernels/src/a.rs", &marked), 0);
        assert_eq!(statics("crates/nn/src/a.rs", &marked), 1);
        let mutable = "// tidy: signal: only a handler reads it.\nstatic mut A: u8 = 0;";
        assert_eq!(statics("crates/kernels/src/a.rs", mutable), 1);
    }

    #[test]
    fn scratch_is_for_kernels_and_comm_and_is_marked() {
        let bare = "thread_local! { static A: RefCell<Vec<u8>> = RefCell::default(); }";
        let marked = format!("// tidy: scratch: overwritten before it is read.\n{bare}");
        assert_eq!(statics("crates/kernels/src/a.rs", bare), 1);
        assert_eq!(statics("crates/kernels/src/a.rs", &marked), 0);
        assert_eq!(statics("crates/nn/src/a.rs", &marked), 1);
    }
}
