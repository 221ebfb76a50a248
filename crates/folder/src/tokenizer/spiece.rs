//! T5's sentencepiece model as a `tokenizers` pipeline.
//!
//! The file is a protobuf message, of which few fields matter (numbers as in sentencepiece's
//! `sentencepiece_model.proto`): the pieces with their scores, the kind of model and the compiled
//! table of the normaliser. The pipeline is the one that transformers' `T5Tokenizer` builds from
//! them: that table, then words split at white space with `▁` before each, then the most probable
//! pieces, then the end token.

use std::path::Path;

use tokenizers::AddedToken;
use tokenizers::models::unigram::Unigram;
use tokenizers::normalizers::Precompiled;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::whitespace::WhitespaceSplit;
use tokenizers::processors::template::TemplateProcessing;

use super::settings::Settings;
use super::{TokenizerError, corrupt, read};

/// Opens a `spiece.model` as the pipeline of T5.
pub(super) fn open(
    path: &Path,
    settings: &Settings,
) -> Result<tokenizers::Tokenizer, TokenizerError> {
    if let Some(class) = &settings.class
        && !["T5Tokenizer", "T5TokenizerFast"].contains(&class.as_str())
    {
        return Err(unsupported(path, "tokenizer_class", format!("`{class}`"), "`T5Tokenizer`"));
    }
    let model = Model::parse(&read(path)?).ok_or_else(|| {
        corrupt(path)("it is not a whole sentencepiece model; download it again".to_owned())
    })?;
    model.check(path)?;
    pipeline(path, model, settings)
}

fn pipeline(
    path: &Path,
    model: Model,
    settings: &Settings,
) -> Result<tokenizers::Tokenizer, TokenizerError> {
    let mut vocabulary = model.pieces;
    let id = |token: &str| {
        let id = vocabulary.iter().position(|(piece, _)| piece == token);
        id.ok_or_else(|| corrupt(path)(format!("it has no piece `{token}`")))
    };
    // All three must be pieces: one that is added behind them would be unknown to the encoder.
    id(&settings.padding)?;
    let (unknown, end) = (id(&settings.unknown)?, id(&settings.end)? as u32);
    let extra = (0..settings.extra_ids).rev().map(|index| format!("<extra_id_{index}>"));
    let extra = extra.collect::<Vec<_>>();
    vocabulary.extend(extra.iter().map(|name| (name.clone(), 0.0)));

    let unigram = Unigram::from(vocabulary, Some(unknown), false).map_err(corrupt(path))?;
    let mut pipeline = tokenizers::Tokenizer::new(unigram);
    if !model.charsmap.is_empty() {
        let table = Precompiled::from(&model.charsmap).map_err(corrupt(path))?;
        pipeline.with_normalizer(Some(table)).map_err(corrupt(path))?;
    }
    pipeline.with_pre_tokenizer(Some(Sequence::new(vec![
        PreTokenizerWrapper::WhitespaceSplit(WhitespaceSplit),
        PreTokenizerWrapper::Metaspace(Metaspace::new('▁', PrependScheme::Always, true)),
    ])));
    let named = [&settings.padding, &settings.end, &settings.unknown];
    let special = named.into_iter().chain(&extra).map(|name| AddedToken::from(name, true));
    pipeline.add_special_tokens(special).map_err(corrupt(path))?;
    pipeline.with_post_processor(Some(ending(&settings.end, end).map_err(corrupt(path))?));
    Ok(pipeline)
}

/// Appends the end token to every caption.
fn ending(end: &str, id: u32) -> Result<TemplateProcessing, String> {
    TemplateProcessing::builder()
        .try_single(vec!["$A".to_owned(), end.to_owned()])?
        .special_tokens(vec![(end.to_owned(), id)])
        .build()
        .map_err(|err| err.to_string())
}

fn unsupported(
    path: &Path,
    key: &'static str,
    value: String,
    supported: &'static str,
) -> TokenizerError {
    TokenizerError::Unsupported { path: path.to_owned(), key, value, supported }
}

/// The fields of a sentencepiece model that decide about ids.
struct Model {
    pieces: Vec<(String, f64)>,
    kind: u64,
    byte_fallback: bool,
    charsmap: Vec<u8>,
    dummy_prefix: bool,
    extra_whitespace_removed: bool,
}

impl Model {
    /// `None` if the bytes are not such a message.
    fn parse(bytes: &[u8]) -> Option<Model> {
        const UNIGRAM: u64 = 1;
        let mut model = Model {
            pieces: Vec::new(),
            kind: UNIGRAM,
            byte_fallback: false,
            charsmap: Vec::new(),
            dummy_prefix: true,
            extra_whitespace_removed: true,
        };
        let mut message = Message(bytes);
        while let Some((field, value)) = message.next()? {
            match (field, value) {
                (1, Value::Bytes(piece)) => model.pieces.push(parse_piece(piece)?),
                (2, Value::Bytes(trainer)) => model.parse_trainer(trainer)?,
                (3, Value::Bytes(normalizer)) => model.parse_normalizer(normalizer)?,
                _ => {}
            }
        }
        (!model.pieces.is_empty()).then_some(model)
    }

    fn parse_trainer(&mut self, bytes: &[u8]) -> Option<()> {
        let mut message = Message(bytes);
        while let Some((field, value)) = message.next()? {
            match (field, value) {
                (3, Value::Integer(kind)) => self.kind = kind,
                (35, Value::Integer(flag)) => self.byte_fallback = flag != 0,
                _ => {}
            }
        }
        Some(())
    }

    fn parse_normalizer(&mut self, bytes: &[u8]) -> Option<()> {
        let mut message = Message(bytes);
        while let Some((field, value)) = message.next()? {
            match (field, value) {
                (2, Value::Bytes(table)) => self.charsmap = table.to_vec(),
                (3, Value::Integer(flag)) => self.dummy_prefix = flag != 0,
                (4, Value::Integer(flag)) => self.extra_whitespace_removed = flag != 0,
                _ => {}
            }
        }
        Some(())
    }

    /// T5's models all agree on these; another value would give other ids without a word.
    fn check(&self, path: &Path) -> Result<(), TokenizerError> {
        if self.kind != 1 {
            let value = format!("{}", self.kind);
            return Err(unsupported(path, "model_type", value, "1 (unigram)"));
        }
        let flags = [
            ("byte_fallback", self.byte_fallback, false, "false"),
            ("add_dummy_prefix", self.dummy_prefix, true, "true"),
            ("remove_extra_whitespaces", self.extra_whitespace_removed, true, "true"),
        ];
        match flags.into_iter().find(|(_, value, wanted, _)| value != wanted) {
            None => Ok(()),
            Some((key, value, _, supported)) => {
                Err(unsupported(path, key, value.to_string(), supported))
            }
        }
    }
}

/// A piece and its score.
fn parse_piece(bytes: &[u8]) -> Option<(String, f64)> {
    let (mut piece, mut score) = (String::new(), 0.0);
    let mut message = Message(bytes);
    while let Some((field, value)) = message.next()? {
        match (field, value) {
            (1, Value::Bytes(text)) => piece = String::from_utf8(text.to_vec()).ok()?,
            (2, Value::Four(bytes)) => score = f64::from(f32::from_le_bytes(bytes)),
            _ => {}
        }
    }
    Some((piece, score))
}

/// The rest of a protobuf message.
struct Message<'a>(&'a [u8]);

/// A field as protobuf writes it.
enum Value<'a> {
    Integer(u64),
    Eight,
    Bytes(&'a [u8]),
    Four([u8; 4]),
}

impl<'a> Message<'a> {
    /// The next field with its number; `Some(None)` at the end, `None` if the message is damaged.
    fn next(&mut self) -> Option<Option<(u64, Value<'a>)>> {
        if self.0.is_empty() {
            return Some(None);
        }
        let key = self.integer()?;
        let value = match key & 7 {
            0 => Value::Integer(self.integer()?),
            1 => self.take(8).map(|_| Value::Eight)?,
            2 => {
                let length = usize::try_from(self.integer()?).ok()?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Four(self.take(4)?.try_into().ok()?),
            _ => return None,
        };
        Some(Some((key >> 3, value)))
    }

    fn integer(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.take(1)?.try_into().ok()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }
}
