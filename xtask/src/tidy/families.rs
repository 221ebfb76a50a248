//! A family is described once: no code outside `families` and `models` names one.

use syn::visit::Visit;

use super::Violation;
use super::source::Source;

/// Where families are described.
const TABLE: &str = "crates/families/src/";

/// Where a family may be named beside its description: its networks.
const HOMES: [&str; 2] = ["crates/families/", "crates/models/"];

/// What a file of the table defines if it describes a family; the file is called like the family.
const DESCRIPTION: &str = "static FAMILY: Family";

/// No identifier has a family's name for a word, and no string is one, in the library code and the
/// binary.
pub(super) fn check(sources: &[Source]) -> Vec<Violation> {
    let described = sources.iter().filter(|source| source.text.contains(DESCRIPTION));
    let names: Vec<&str> = described
        .filter_map(|source| source.path.strip_prefix(TABLE)?.strip_suffix(".rs"))
        .map(|path| path.split('/').next().unwrap_or(path))
        .collect();
    let is_code = |source: &&Source| {
        source.path.starts_with("crates/")
            && source.path.contains("/src/")
            && !HOMES.iter().any(|home| source.path.starts_with(home))
    };
    sources.iter().filter(is_code).flat_map(|source| check_file(source, &names)).collect()
}

fn check_file(source: &Source, names: &[&str]) -> Vec<Violation> {
    let refuse = |line: usize, found: &str, name: &str| {
        let message = format!(
            "`{found}` names the family `{name}`; ask its description instead, and put what is \
             missing there into {TABLE}{name}.rs"
        );
        Violation::new(&source.path, line, message)
    };
    let words = source.pieces.iter().filter_map(|piece| Some((piece.line, piece.word()?)));
    let mut violations: Vec<Violation> =
        words.filter_map(|(line, word)| Some(refuse(line, word, named(word, names)?))).collect();
    let mut strings = Strings(Vec::new());
    strings.visit_file(&source.syntax);
    for (line, text) in strings.0 {
        // A sentence may say a name, and so may a path or a hub id in an example.
        if text.contains(|it: char| it.is_whitespace() || "/\\".contains(it)) {
            continue;
        }
        violations.extend(named(&text, names).map(|name| refuse(line, &text, name)));
    }
    violations
}

/// The family that words of `text` spell, in `snake_case` or `CamelCase`: `PixArt21` spells `pixart`.
fn named<'a>(text: &str, names: &[&'a str]) -> Option<&'a str> {
    let mut words = vec![String::new()];
    let mut earlier = ' ';
    for letter in text.chars() {
        let is_digit = letter.is_ascii_digit();
        if !letter.is_alphanumeric()
            || letter.is_uppercase()
            || is_digit != earlier.is_ascii_digit()
        {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| letter.is_alphanumeric()) {
            word.extend(letter.to_lowercase());
        }
        earlier = letter;
    }
    words.retain(|word| !word.is_empty());
    let spelt = |name: &str| {
        let name = name.replace('_', "");
        (0..words.len()).any(|from| (from..words.len()).any(|to| words[from..=to].concat() == name))
    };
    names.iter().copied().find(|name| spelt(name))
}

/// Every string literal with its line.
struct Strings(Vec<(usize, String)>);

impl Visit<'_> for Strings {
    fn visit_lit_str(&mut self, literal: &syn::LitStr) {
        self.0.push((literal.span().start().line, literal.value()));
    }

    // Documentation is an attribute, and may name whom it likes.
    fn visit_attribute(&mut self, _: &syn::Attribute) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(path: &str, body: &str) -> Vec<usize> {
        let table = "//! A family.\nstatic FAMILY: Family = Family;\n";
        let sources = [
            Source::parse("crates/families/src/duet.rs", table).unwrap(),
            Source::parse(path, &format!("//! Doc.\n{body}\n")).unwrap(),
        ];
        check(&sources).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn a_family_that_is_named_elsewhere_is_found() {
        let found = |body| places("crates/engine/src/a.rs", body);
        assert_eq!(found("use models::dit::duet::DuetConfig;"), [2, 2]);
        assert_eq!(found("fn open_duet() {}"), [2]);
        assert_eq!(found("fn f() -> bool {\n    class() == \"DuetPipeline\"\n}"), [3]);
        assert_eq!(found("const NAME: &str = \"duet\";"), [2]);
    }

    #[test]
    fn every_way_to_spell_a_name_is_found() {
        let names = ["pixart", "pixart_sigma", "wan", "duet"];
        for text in ["PixArtPipeline", "Pixart", "pixart_folder", "PIXART", "open_pixart"] {
            assert_eq!(named(text, &names), Some("pixart"), "{text}");
        }
        for text in ["Wan21", "wan", "AutoencoderKLWan", "of_wan"] {
            assert_eq!(named(text, &names), Some("wan"), "{text}");
        }
        assert_eq!(named("PixArtSigmaPipeline", &names[1..]), Some("pixart_sigma"));
        for text in ["swan", "wander", "duets", "pixels", "art"] {
            assert_eq!(named(text, &names), None, "{text}");
        }
    }

    #[test]
    fn other_words_sentences_and_homes_pass() {
        let found = |body| places("crates/engine/src/a.rs", body);
        assert!(
            found("/// Like duet.\nfn duets() -> &'static str { \"a duet of two\" }").is_empty()
        );
        assert!(found("const MODEL: &str = \"org/duet\";").is_empty());
        assert!(places("crates/models/src/dit/duet/a.rs", "struct Duet;").is_empty());
        assert!(places("crates/engine/tests/a.rs", "struct Duet;").is_empty());
    }
}
