//! Captions to token ids, from the `tokenizer` folder of a diffusers model.
//!
//! Such a folder holds either a `tokenizer.json`, which is used as it is, or a sentencepiece model,
//! which becomes the same pipeline that transformers makes of it. What happens to a caption before
//! it gets here is in [`caption`].

pub mod caption;
mod error;
mod settings;
mod spiece;

use std::path::{Path, PathBuf};

use serde_json::Value;
use tokenizers::{PostProcessor, TruncationDirection};

pub use self::error::TokenizerError;
use self::settings::Settings;

/// A caption in the form a text encoder wants: both have the length that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenIds {
    /// Token ids, then padding.
    pub ids: Vec<u32>,
    /// 1 for a token, 0 for padding.
    pub mask: Vec<u8>,
}

/// A caption that is longer than what is read of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Tokens of the whole caption, those that end it included.
    pub tokens: usize,
    /// What is dropped.
    pub lost: String,
}

/// Cuts captions into tokens.
#[derive(Debug)]
pub struct Tokenizer {
    pipeline: tokenizers::Tokenizer,
    padding: u32,
    pads_left: bool,
    max_length: Option<usize>,
}

impl Tokenizer {
    /// Opens a folder with `tokenizer.json` or `spiece.model`, and `tokenizer_config.json` if there
    /// is one.
    ///
    /// # Errors
    /// The folder holds no tokenizer, a damaged one, or one of a kind that is not supported.
    pub fn open(folder: &Path) -> Result<Tokenizer, TokenizerError> {
        let settings = Settings::open(&folder.join("tokenizer_config.json"))?;
        let (whole, pieces) = (folder.join("tokenizer.json"), folder.join("spiece.model"));
        let (path, pipeline) = if whole.is_file() {
            (whole.clone(), from_json(&whole)?)
        } else if pieces.is_file() {
            (pieces.clone(), spiece::open(&pieces, &settings)?)
        } else {
            return Err(TokenizerError::NotFound { folder: folder.to_owned() });
        };
        let padding = pipeline.token_to_id(&settings.padding).ok_or_else(|| {
            let reason = format!("it has no padding token `{}`", settings.padding);
            TokenizerError::Corrupt { path, reason }
        })?;
        let Settings { pads_left, max_length, .. } = settings;
        Ok(Tokenizer { pipeline, padding, pads_left, max_length })
    }

    /// TokenIds of a caption at the most, as `tokenizer_config.json` has it. [`Tokenizer::encode`] goes
    /// by what it is given.
    pub fn max_length(&self) -> Option<usize> {
        self.max_length
    }

    /// Whether transformers puts padding before a caption. [`Tokenizer::encode`] always puts it after, which
    /// an encoder that looks back only, at distances, cannot tell.
    pub fn pads_left(&self) -> bool {
        self.pads_left
    }

    /// What [`Tokenizer::encode`] would drop of a caption, if anything.
    ///
    /// # Errors
    /// As there.
    pub fn cut(&self, caption: &str, max_tokens: usize) -> Result<Option<Cut>, TokenizerError> {
        let special = self.special(max_tokens)?;
        let encoding = self.pipeline.encode(caption, false).map_err(|err| failed(caption, err))?;
        let kept = max_tokens - special;
        let first = encoding.get_offsets().get(kept);
        Ok(first.map(|(start, _)| Cut {
            tokens: encoding.len() + special,
            lost: caption.get(*start..).unwrap_or_default().trim().to_owned(),
        }))
    }

    /// How many tokens end every caption.
    fn special(&self, max_tokens: usize) -> Result<usize, TokenizerError> {
        let processor = self.pipeline.get_post_processor();
        let special = processor.map_or(0, |processor| processor.added_tokens(false));
        match max_tokens < special.max(1) {
            true => Err(TokenizerError::NoRoom { max_tokens, special }),
            false => Ok(special),
        }
    }

    /// Cuts a caption into exactly `max_tokens` tokens: padded if it is shorter; if it is longer,
    /// its end is dropped but not the token that says so.
    ///
    /// # Errors
    /// `max_tokens` leaves no room for the special tokens, or the pipeline fails.
    pub fn encode(&self, caption: &str, max_tokens: usize) -> Result<TokenIds, TokenizerError> {
        let special = self.special(max_tokens)?;
        let failed = |err| failed(caption, err);
        let mut encoding = self.pipeline.encode_fast(caption, false).map_err(failed)?;
        encoding.truncate(max_tokens - special, 0, TruncationDirection::Right);
        if let Some(processor) = self.pipeline.get_post_processor() {
            encoding = processor.process(encoding, None, true).map_err(failed)?;
        }
        let mut ids = encoding.get_ids().to_vec();
        let mut mask = vec![1; ids.len()];
        ids.resize(max_tokens, self.padding);
        mask.resize(max_tokens, 0);
        Ok(TokenIds { ids, mask })
    }
}

fn failed(caption: &str, err: tokenizers::Error) -> TokenizerError {
    TokenizerError::Encode { caption: caption.to_owned(), reason: err.to_string() }
}

/// What ends every caption, of all that a `tokenizer.json` says.
#[derive(serde::Deserialize)]
struct Ends {
    #[serde(default)]
    post_processor: Value,
}

/// A token of a template that nobody defines, with which the library panics at the first caption.
fn undefined(processor: &Value) -> Option<&str> {
    let nested = processor["processors"].as_array().into_iter().flatten();
    let parts =
        ["single", "pair"].into_iter().filter_map(|key| processor[key].as_array()).flatten();
    let mut tokens = parts.filter_map(|part| part["SpecialToken"]["id"].as_str());
    let own = tokens.find(|token| processor["special_tokens"].get(token).is_none());
    own.or_else(|| nested.into_iter().find_map(undefined))
}

fn from_json(path: &Path) -> Result<tokenizers::Tokenizer, TokenizerError> {
    let bytes = read_json(path)?;
    // The library panics where JSON ends within its decoder.
    let Ends { post_processor } = serde_json::from_slice(&bytes).map_err(corrupt(path))?;
    if let Some(token) = undefined(&post_processor) {
        let reason =
            format!("its `post_processor` puts in `{token}`, which its `special_tokens` lack");
        return Err(TokenizerError::Corrupt { path: path.to_owned(), reason });
    }
    let mut pipeline = tokenizers::Tokenizer::from_bytes(bytes).map_err(corrupt(path))?;
    // The file may hold settings of its own; here the caller decides about length.
    pipeline.with_padding(None);
    pipeline.with_truncation(None).map_err(corrupt(path))?;
    Ok(pipeline)
}

/// No file of a tokenizer is longer.
const LONGEST: u64 = 256 << 20;

fn read(path: &Path) -> Result<Vec<u8>, TokenizerError> {
    kernels::read_file(path, LONGEST)
        .map_err(|source| TokenizerError::Read { path: path.to_owned(), source })
}

fn read_json(path: &Path) -> Result<Vec<u8>, TokenizerError> {
    Ok(crate::model_folder::without_mark(read(path)?))
}

/// An error of the library as one that names the file.
fn corrupt<E: std::fmt::Display>(path: &Path) -> impl Fn(E) -> TokenizerError {
    let path: PathBuf = path.to_owned();
    move |err| TokenizerError::Corrupt { path: path.clone(), reason: err.to_string() }
}
