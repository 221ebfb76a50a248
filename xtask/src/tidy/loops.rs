//! There is one denoise loop and one training loop; everything else is an argument of theirs.

use super::Violation;
use super::size::{Function, functions};
use super::source::Source;

/// Exactly one `fn denoise`, in `crates/diffusion`; once `crates/train` exists, exactly one
/// `Trainer::run`.
pub(super) fn check(sources: &[Source]) -> Vec<Violation> {
    let mut violations =
        check_one(sources, "crates/diffusion/", &|function| function.name == "denoise");
    if sources.iter().any(|source| source.path.starts_with("crates/train/")) {
        violations.extend(check_one(sources, "crates/train/", &|function| {
            function.name == "run" && function.owner.as_deref() == Some("Trainer")
        }));
    }
    violations
}

/// Exactly one function of `crates/` is `wanted`, and it is under `home`.
fn check_one(sources: &[Source], home: &str, wanted: &dyn Fn(&Function) -> bool) -> Vec<Violation> {
    let crates = sources.iter().filter(|source| source.path.starts_with("crates/"));
    let found: Vec<_> = crates
        .flat_map(|source| functions(source).into_iter().map(move |function| (source, function)))
        .filter(|(_, function)| wanted(function))
        .collect();
    let at_home = found.iter().position(|(source, _)| source.path.starts_with(home));
    let Some(kept) = at_home else {
        let message = "the one loop is missing here; it is `diffusion::denoise` for sampling \
                       and `train::Trainer::run` for training";
        return vec![Violation::new(&format!("{home}src/lib.rs"), 1, message)];
    };
    let others = found.iter().enumerate().filter(|(index, _)| *index != kept);
    others
        .map(|(_, (source, function))| {
            let message = format!(
                "a second `fn {}` beside the one in {}; make the difference an argument of that \
                 one, or rename this if it is no loop",
                function.name, found[kept].0.path
            );
            Violation::new(&source.path, function.start, message)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<_> = files
            .iter()
            .map(|(path, body)| Source::parse(path, &format!("//! Doc.\n{body}\n")).unwrap())
            .collect();
        let violations = check(&sources);
        violations.iter().map(|found| format!("{}:{}", found.path, found.line)).collect()
    }

    const LOOP: (&str, &str) = ("crates/diffusion/src/denoise.rs", "pub fn denoise() {}");

    #[test]
    fn one_denoise_loop_passes() {
        let elsewhere = ("xtask/src/a.rs", "fn denoise() {}");
        assert!(places(&[LOOP, elsewhere]).is_empty());
    }

    #[test]
    fn a_missing_denoise_loop_is_found() {
        assert_eq!(places(&[]), ["crates/diffusion/src/lib.rs:1"]);
        let misplaced = ("crates/engine/src/a.rs", "fn denoise() {}");
        assert_eq!(places(&[misplaced]), ["crates/diffusion/src/lib.rs:1"]);
    }

    #[test]
    fn a_second_denoise_loop_is_found() {
        let second = ("crates/engine/src/a.rs", "impl Engine {\n    fn denoise(&self) {}\n}");
        assert_eq!(places(&[second, LOOP]), ["crates/engine/src/a.rs:3"]);
        let declared = ("crates/nn/src/a.rs", "trait A { fn denoise(&self); }");
        assert_eq!(places(&[LOOP, declared]), ["crates/nn/src/a.rs:2"]);
    }

    #[test]
    fn one_training_loop_once_there_is_a_trainer() {
        let trainer = ("crates/train/src/trainer.rs", "impl Trainer { fn run(&self) {} }");
        let other = ("crates/train/src/a.rs", "impl Other { fn run(&self) {} }");
        assert!(places(&[LOOP, trainer, other]).is_empty());
        assert_eq!(places(&[LOOP, other]), ["crates/train/src/lib.rs:1"]);
        let second = ("crates/methods/src/a.rs", "impl Trainer { fn run(&self) {} }");
        assert_eq!(places(&[LOOP, trainer, second]), ["crates/methods/src/a.rs:2"]);
    }
}
