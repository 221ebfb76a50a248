//! What a family does to a caption before it is cut into tokens.
//!
//! PixArt by default only lower-cases and trims. [`cleaned`] does what diffusers' `clean_caption`
//! does: the model was trained on captions scraped from the web, freed in this way of markup,
//! addresses, file names and article numbers, so a prompt with such parts may profit. Wan repairs
//! every prompt ([`repaired`]).

mod html;
mod misread;
mod prompt;
mod repair;
mod rules;
mod suspicion;

use percent_encoding::percent_decode_str;

use self::rules::Rules;
use super::TokenizerError;

/// The caption in lower case, without white space around it.
pub fn plain(caption: &str) -> String {
    trim(&caption.to_lowercase()).to_owned()
}

/// The caption freed of what the web adds to it, in lower case.
///
/// The rules are those of diffusers, in its order, applied twice for what one pass uncovers. Two
/// parts stand in for Python libraries: the text of HTML is found as `html.parser` finds it in
/// markup that is not badly broken, and of ftfy's repairs those are made that can still apply to a
/// text in lower case (see `repair`).
///
/// # Errors
/// A rule gave up on a caption that is very long and has no spaces.
pub fn cleaned(caption: &str) -> Result<String, TokenizerError> {
    let rules = Rules::new();
    pass(&rules, caption).and_then(|once| pass(&rules, &once)).map_err(|err| {
        TokenizerError::Clean { caption: caption.to_owned(), reason: err.to_string() }
    })
}

/// The caption as Wan takes it: characters repaired, entities read, white space joined; its case
/// stays.
///
/// Of ftfy's repairs all are made but those that concern code pages other than windows-1252 and
/// latin-1, and sequences that lost a byte.
pub fn repaired(caption: &str) -> String {
    prompt::prompt(caption)
}

fn pass(rules: &Rules, caption: &str) -> Result<String, Box<fancy_regex::Error>> {
    let spaced = caption.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8_lossy();
    let text = rules.remove_addresses(plain(&decoded))?;
    let text = rules.remove_symbols(html::text(&text))?;
    let text = htmlize::unescape(repair::repair(text));
    let text = rules.remove_wares(htmlize::unescape(text).into_owned())?;
    Ok(trim(&text).to_owned())
}

/// Trims what Python takes for white space: some control characters count.
fn trim(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || ('\x1c'..='\x1f').contains(&c))
}
