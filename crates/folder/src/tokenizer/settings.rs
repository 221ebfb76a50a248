//! What `tokenizer_config.json` says, checked.
//!
//! The file carries keys for every kind of tokenizer; those that cannot change the ids of a caption
//! are passed over. (Among them the flags of the extra ids, which swallow the spaces around them:
//! T5 splits words at spaces and keeps none.)

use std::path::Path;

use serde::Deserialize;

use super::TokenizerError;

/// More extra ids than any tokenizer has.
const MOST_EXTRA_IDS: usize = 100_000;

/// The settings that decide about ids.
#[derive(Debug)]
pub(super) struct Settings {
    /// The class that transformers would use.
    pub(super) class: Option<String>,
    /// The padding token.
    pub(super) padding: String,
    /// The token that ends a caption.
    pub(super) end: String,
    /// The token for what no piece covers.
    pub(super) unknown: String,
    /// Whether padding stands before a caption.
    pub(super) pads_left: bool,
    /// How many `<extra_id_N>` follow the pieces.
    pub(super) extra_ids: usize,
    /// TokenIds of a caption at the most, if the file says so.
    pub(super) max_length: Option<usize>,
}

impl Settings {
    /// Reads the file; a folder without one has the defaults of T5.
    pub(super) fn open(path: &Path) -> Result<Settings, TokenizerError> {
        // A pipe in its place is refused by who reads it.
        let file: SettingsFile = match path.exists() {
            true => {
                serde_json::from_slice(&super::read_json(path)?).map_err(super::corrupt(path))?
            }
            false => SettingsFile::default(),
        };
        let unsupported = |key, side: String, supported| {
            let value = format!("`{side}`");
            Err(TokenizerError::Unsupported { path: path.to_owned(), key, value, supported })
        };
        if let Some(side) = file.truncation_side.filter(|side| side != "right") {
            return unsupported("truncation_side", side, "`right`");
        }
        let pads_left = match file.padding_side.as_deref() {
            None | Some("right") => false,
            Some("left") => true,
            Some(side) => return unsupported("padding_side", side.to_owned(), "`left` or `right`"),
        };
        let extra_ids = file.extra_ids.unwrap_or(100);
        if extra_ids > MOST_EXTRA_IDS {
            return Err(TokenizerError::Unsupported {
                path: path.to_owned(),
                key: "extra_ids",
                value: extra_ids.to_string(),
                supported: "0 to 100000",
            });
        }
        let text = |token: Option<Name>, default: &str| match token {
            Some(Name::Text(text) | Name::Whole { content: text }) => text,
            None => default.to_owned(),
        };
        Ok(Settings {
            class: file.tokenizer_class,
            padding: text(file.pad_token, "<pad>"),
            end: text(file.eos_token, "</s>"),
            unknown: text(file.unk_token, "<unk>"),
            pads_left,
            extra_ids,
            // Files that know no limit have a number like 1e30.
            max_length: file.model_max_length.filter(|length| *length < 1e9).map(|it| it as usize),
        })
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SettingsFile {
    tokenizer_class: Option<String>,
    pad_token: Option<Name>,
    eos_token: Option<Name>,
    unk_token: Option<Name>,
    extra_ids: Option<usize>,
    model_max_length: Option<f64>,
    padding_side: Option<String>,
    truncation_side: Option<String>,
}

/// A token, written as its text or with its flags.
#[derive(Deserialize)]
#[serde(untagged)]
enum Name {
    Text(String),
    Whole { content: String },
}
