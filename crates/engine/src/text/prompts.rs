//! Prompts to embeddings, with or without a text encoder.

use burn::tensor::{Device, Tensor};
use data::world::Words;
use families::{Description, Text, TextRules};
use folder::{ModelFolder, Weight, agree};
use nn::Context;

use super::TextEncoder;
use crate::captions::Captions;
use crate::error::{Error, Field, Result};
use crate::progress::{self, Progress};
use crate::request::Request;

/// No prompt has more bytes: encoders read a few hundred tokens of it.
const LONGEST: usize = 1 << 16;

/// How the prompts of a model become embeddings.
#[derive(Clone)]
pub(crate) enum PromptEncoder {
    /// By the text encoder of its folder.
    Encoder(Box<TextEncoder>),
    /// Word by word.
    Words(Words),
}

impl PromptEncoder {
    /// Opens what a description asks for and checks that it fits the transformer.
    ///
    /// # Errors
    /// A part is missing, damaged or unsupported.
    pub(crate) fn open(folder: &ModelFolder, description: &Description) -> Result<PromptEncoder> {
        match &description.text {
            Text::Words(words) => Ok(PromptEncoder::Words(*words)),
            Text::Encoders { key, width } => {
                let encoder = TextEncoder::open(folder, 0)?;
                let key = format!("{key} of transformer");
                agree(("width of what text_encoder gives", encoder.width()), (&key, *width))?;
                Ok(PromptEncoder::Encoder(Box::new(encoder)))
            }
        }
    }

    /// The same for a model without a folder.
    ///
    /// # Errors
    /// It needs one.
    pub(crate) fn without_folder(description: &Description) -> Result<PromptEncoder> {
        match &description.text {
            Text::Words(words) => Ok(PromptEncoder::Words(*words)),
            Text::Encoders { .. } => {
                let reason = "the model's text encoder is in its folder; open that";
                Err(folder::Error::Unfit(reason.to_owned()).into())
            }
        }
    }

    /// How captions are embedded unless a request says otherwise, where an encoder does it.
    pub(crate) fn rules(&self) -> Option<TextRules> {
        match self {
            PromptEncoder::Encoder(encoder) => Some(encoder.rules()),
            PromptEncoder::Words(_) => None,
        }
    }

    /// The width of an embedding.
    pub(crate) fn width(&self) -> usize {
        match self {
            PromptEncoder::Encoder(encoder) => encoder.width(),
            PromptEncoder::Words(words) => words.width,
        }
    }

    /// Opens the weights.
    ///
    /// # Errors
    /// Their files cannot be read any more.
    pub(crate) fn open_weights(&mut self, device: &Device) -> Result<()> {
        match self {
            PromptEncoder::Encoder(encoder) => encoder.open_weights(device),
            PromptEncoder::Words(_) => Ok(()),
        }
    }

    /// The weights of the encoder, as they are stored.
    pub(crate) fn weights(&self) -> Vec<Weight> {
        match self {
            PromptEncoder::Encoder(encoder) => encoder.weights(),
            PromptEncoder::Words(_) => Vec::new(),
        }
    }

    /// Lets go of the weights.
    pub(crate) fn close(&mut self) {
        if let PromptEncoder::Encoder(encoder) = self {
            encoder.close();
        }
    }

    /// Refuses prompts that cannot be embedded, as far as that is known without a network, and says what
    /// of the others is not read. A negative prompt counts where something `is_guided` by it.
    ///
    /// # Errors
    /// A prompt is too long.
    pub(crate) fn check(
        &self,
        request: &Request,
        rules: Option<&TextRules>,
        is_guided: bool,
    ) -> Result<Vec<String>> {
        let prompts = request.prompts.iter().map(|text| (Field::Prompt, text));
        let negative = [(Field::Negative, &request.negative)];
        let mut notes = Vec::new();
        for (field, text) in prompts.chain(negative.into_iter().filter(|_| is_guided)) {
            if text.len() > LONGEST {
                let length = text.len();
                let reason = format!("it has {length} bytes; give at most {LONGEST}");
                return Err(Error::request(field, reason));
            }
            notes.extend(match self {
                PromptEncoder::Words(words) => unknown_words(words, field, text)?,
                PromptEncoder::Encoder(encoder) => {
                    let rules = rules.copied().unwrap_or(encoder.rules());
                    encoder.cut(text, &rules)?.map(|cut| format!("the {field} {cut}"))
                }
            });
        }
        notes.dedup();
        Ok(notes)
    }

    /// Embeds all prompts and, if there is one, the negative prompt, which serves them all.
    ///
    /// # Errors
    /// A prompt cannot be embedded, or an interruption.
    pub(crate) fn encode(
        &mut self,
        (prompts, negative): (&[String], Option<&str>),
        rules: Option<&TextRules>,
        device: &Device,
        progress: &mut dyn Progress,
    ) -> Result<Captions> {
        let texts: Vec<&str> = prompts.iter().map(String::as_str).chain(negative).collect();
        progress.begin("encode", texts.len());
        let mut contexts = Vec::with_capacity(texts.len());
        for (done, text) in texts.iter().enumerate() {
            progress::check(progress)?;
            contexts.push(self.embed(text, rules, device)?);
            progress.reach(done + 1);
        }
        let negatives = match negative {
            Some(_) => vec![contexts.pop().expect("the negative prompt came last"); prompts.len()],
            None => Vec::new(),
        };
        Ok(Captions { prompts: contexts, negatives })
    }

    fn embed(&mut self, text: &str, rules: Option<&TextRules>, device: &Device) -> Result<Context> {
        match self {
            PromptEncoder::Words(words) => Ok(Context::text(vectors(words, text, device)?, None)),
            PromptEncoder::Encoder(encoder) => {
                let rules = rules.copied().unwrap_or(encoder.rules());
                Ok(encoder.embed(text, &rules, device)?.context())
            }
        }
    }
}

/// So much of what is not known is told.
const MOST_WORDS: usize = 8;
const LONGEST_WORD: usize = 32;

/// What a caption says that no caption of the training did.
///
/// # Errors
/// It has no words, or too many.
fn unknown_words(words: &Words, field: Field, text: &str) -> Result<Option<String>> {
    if text.trim().is_empty() {
        let empty = "the prompt is empty: what is made is whatever the model likes";
        return Ok((field == Field::Prompt).then(|| empty.to_owned()));
    }
    words.check(text).map_err(|err| Error::request(field, err.to_string()))?;
    let unknown = words.unknown(text);
    let short = |word: &String| word.chars().take(LONGEST_WORD).collect::<String>();
    let mut quoted: Vec<String> =
        unknown.iter().take(MOST_WORDS).map(|word| format!("`{}`", short(word))).collect();
    if unknown.len() > MOST_WORDS {
        quoted.push(format!("and {} more", unknown.len() - MOST_WORDS));
    }
    let known: Vec<&str> = Words::known().collect();
    Ok((!unknown.is_empty()).then(|| {
        format!(
            "the {field} has words that this model never learnt: {}; it knows {}",
            quoted.join(", "),
            known.join(", ")
        )
    }))
}

/// The vectors `[1, L, D]` of a caption; an empty one is no caption at all.
///
/// # Errors
/// It is too long.
fn vectors(words: &Words, text: &str, device: &Device) -> data::Result<Tensor<3>> {
    match text.trim() {
        "" => Ok(words.null(device).unsqueeze()),
        text => words.embed(text, device).map(Tensor::unsqueeze),
    }
}
