//! Text without a text encoder: each word has a vector of its own, drawn once and for all.
//!
//! The vector of a word is a function of the word alone, so that a word no model has seen yet (a new
//! colour) has one too. All captions have the same length: the rest is filled with the vector of no
//! word, and no caption at all is the vector of null throughout.

use burn::tensor::{Device, Tensor, TensorData};
use diffusion::Draw;

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

    /// The vectors of a caption, `[length, width]`. Case does not matter.
    ///
    /// # Errors
    /// The caption is empty or too long.
    pub fn embed(&self, caption: &str, device: &Device) -> Result<Tensor<2>> {
        let words: Vec<String> = caption.split_whitespace().map(str::to_lowercase).collect();
        if words.is_empty() || words.len() > self.length {
            let (found, most) = (words.len(), self.length);
            return Err(Error::Words { caption: caption.to_owned(), found, most });
        }
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
