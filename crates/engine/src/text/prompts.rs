//! Prompts to embeddings, with or without a text encoder.

use burn::tensor::{Device, Tensor};
use data::world::Words;
use families::{Description, Text, TextRules};
use folder::{ModelFolder, agree};
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
                agree(("d_model of text_encoder", encoder.width()), (&key, *width))?;
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

    /// Lets go of the weights.
    pub(crate) fn close(&mut self) {
        if let PromptEncoder::Encoder(encoder) = self {
            encoder.close();
        }
    }

    /// Refuses prompts that cannot be embedded, as far as that is known without a network.
    ///
    /// # Errors
    /// A prompt is too long.
    pub(crate) fn check(&self, request: &Request, device: &Device) -> Result<()> {
        let prompts = request.prompts.iter().map(|text| (Field::Prompt, text));
        for (field, text) in prompts.chain([(Field::Negative, &request.negative)]) {
            if text.len() > LONGEST {
                let length = text.len();
                let reason = format!("it has {length} bytes; give at most {LONGEST}");
                return Err(Error::request(field, reason));
            }
            if let PromptEncoder::Words(words) = self {
                vectors(words, text, device)
                    .map_err(|err| Error::request(field, err.to_string()))?;
            }
        }
        Ok(())
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
