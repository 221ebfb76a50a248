//! Text without a text encoder: each word has a vector of its own, drawn once and for all.
//!
//! The vector of a word is a function of the word alone, so that a word no model has seen yet (a new
//! colour) has one too. All captions have the same length: the rest is filled with the vector of no
//! word, and no caption at all is the vector of null throughout.

use burn::tensor::{Device, Tensor, TensorData};
use diffusion::Draw;

use super::{Colour, Direction, Shape};
use crate::error::{Error, Result};

/// Stands after the last word. Words cannot hold a space.
const END: &str = " end";
/// Stands for a caption that was dropped.
const NULL: &str = " null";

/// Captions to vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words {
    /// Words of a caption.
    pub length: usize,
    /// Values of a word.
    pub width: usize,
}

impl Default for Words {
    /// Six words of 64 values; a caption of the world has five.
    fn default() -> Words {
        Words { length: 6, width: 64 }
    }
}

impl Words {
    /// What the vectors depend on.
    pub fn fingerprint(&self) -> String {
        format!("words {}x{}", self.length, self.width)
    }

    /// The words of a caption: neither case nor punctuation matters.
    fn of(caption: &str) -> Vec<String> {
        let words = caption.split(|letter: char| !letter.is_alphanumeric());
        words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
    }

    /// The words of a caption that no caption of the world has, in their order.
    pub fn unknown(&self, caption: &str) -> Vec<String> {
        let known: Vec<&str> = Words::known().collect();
        Words::of(caption).into_iter().filter(|word| !known.contains(&word.as_str())).collect()
    }

    /// The words that captions of the world have.
    pub fn known() -> impl Iterator<Item = &'static str> {
        let colours = Colour::KNOWN.into_iter().map(Colour::word);
        let shapes = Shape::ALL.into_iter().map(Shape::word);
        let directions = Direction::ALL.into_iter().map(Direction::word);
        std::iter::once("a").chain(colours).chain(shapes).chain(["moves"]).chain(directions)
    }

    /// The words of a caption, as many as there may be.
    ///
    /// # Errors
    /// The caption is empty or too long.
    pub fn check(&self, caption: &str) -> Result<Vec<String>> {
        let words = Words::of(caption);
        if words.is_empty() || words.len() > self.length {
            let (found, most) = (words.len(), self.length);
            return Err(Error::Words { caption: caption.to_owned(), found, most });
        }
        Ok(words)
    }

    /// The vectors of a caption, `[length, width]`. Neither case nor punctuation matters.
    ///
    /// # Errors
    /// The caption is empty or too long.
    pub fn embed(&self, caption: &str, device: &Device) -> Result<Tensor<2>> {
        let words = self.check(caption)?;
        let filled = words.iter().map(String::as_str).chain(std::iter::repeat(END));
        Ok(self.stack(filled, device))
    }

    /// The vectors of a caption that was dropped, `[length, width]`.
    pub fn null(&self, device: &Device) -> Tensor<2> {
        self.stack(std::iter::repeat(NULL), device)
    }

    fn stack<'a>(&self, words: impl Iterator<Item = &'a str>, device: &Device) -> Tensor<2> {
        let root = Draw::new(0).stream("words");
        let vectors =
            words.take(self.length).flat_map(|word| root.stream(word).normal(0..self.width));
        let shape = [self.length, self.width];
        Tensor::from_data(TensorData::new(vectors.collect::<Vec<f32>>(), shape), device)
    }
}
