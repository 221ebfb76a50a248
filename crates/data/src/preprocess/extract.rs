//! Which pieces of a long clip become samples.

use std::fmt;
use std::str::FromStr;

/// Pieces without a number are so many.
const PIECES: usize = 4;

/// No clip has more frames.
const LARGEST: usize = 1_000_000;

/// How samples are taken from a clip that is longer than its bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extract {
    /// The beginning alone.
    #[default]
    Head,
    /// One piece after the other, as many as are whole.
    Chunk,
    /// A piece every so many frames; half a piece apart if no number is given.
    Slide(Option<usize>),
    /// So many pieces, spread evenly from the beginning to the end.
    Uniform(usize),
}

impl Extract {
    /// The first frames of the pieces of `length` frames, out of `frames`.
    pub fn firsts(self, frames: usize, length: usize) -> Vec<usize> {
        let last = frames.saturating_sub(length);
        match self {
            Extract::Head => vec![0],
            Extract::Chunk => (0..=last).step_by(length.max(1)).collect(),
            Extract::Slide(stride) => {
                let stride = stride.unwrap_or(length / 2).max(1);
                (0..=last).step_by(stride).collect()
            }
            Extract::Uniform(pieces) => {
                let apart = pieces.saturating_sub(1).max(1);
                let mut firsts: Vec<usize> =
                    (0..pieces.max(1)).map(|at| (2 * at * last + apart) / (2 * apart)).collect();
                firsts.dedup();
                firsts
            }
        }
    }
}

impl FromStr for Extract {
    type Err = String;

    /// `head`, `chunk`, `slide`, `slide:STRIDE`, `uniform` or `uniform:PIECES`.
    fn from_str(text: &str) -> Result<Extract, String> {
        let (name, number) = match text.split_once(':') {
            Some((name, number)) => (name, Some(number)),
            None => (text, None),
        };
        let number = match number.map(str::parse::<usize>) {
            None => None,
            Some(Ok(number @ 1..=LARGEST)) => Some(number),
            Some(_) => {
                return Err(format!("after the colon stands a whole number from 1 to {LARGEST}"));
            }
        };
        match (name, number) {
            ("head", None) => Ok(Extract::Head),
            ("chunk", None) => Ok(Extract::Chunk),
            ("slide", stride) => Ok(Extract::Slide(stride)),
            ("uniform", pieces) => Ok(Extract::Uniform(pieces.unwrap_or(PIECES))),
            _ => Err("there are head, chunk, slide[:STRIDE] and uniform[:PIECES]".to_owned()),
        }
    }
}

impl fmt::Display for Extract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Extract::Head => write!(f, "head"),
            Extract::Chunk => write!(f, "chunk"),
            Extract::Slide(None) => write!(f, "slide"),
            Extract::Slide(Some(stride)) => write!(f, "slide:{stride}"),
            Extract::Uniform(pieces) => write!(f, "uniform:{pieces}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Extract;

    #[test]
    fn pieces_are_whole_and_where_they_should_be() {
        let firsts =
            |text: &str, frames, length| text.parse::<Extract>().unwrap().firsts(frames, length);
        assert_eq!(firsts("head", 100, 17), [0]);
        assert_eq!(firsts("chunk", 50, 17), [0, 17]);
        assert_eq!(firsts("chunk", 51, 17), [0, 17, 34]);
        assert_eq!(firsts("slide", 33, 17), [0, 8, 16]);
        assert_eq!(firsts("slide:10", 37, 17), [0, 10, 20]);
        assert_eq!(firsts("uniform", 47, 17), [0, 10, 20, 30]);
        assert_eq!(firsts("uniform:3", 18, 17), [0, 1]);
        assert_eq!(firsts("uniform:1", 99, 17), [0]);
        for text in ["chunk", "slide", "uniform", "slide:1"] {
            assert_eq!(firsts(text, 17, 17), [0], "{text}");
            let longest = firsts(text, 1000, 17).into_iter().max().unwrap();
            assert!(longest + 17 <= 1000, "{text}");
        }
        for text in ["", "tail", "slide:0", "slide:x", "head:3", "uniform:-1"] {
            assert!(text.parse::<Extract>().is_err(), "{text}");
        }
        let far = "slide:9999999".parse::<Extract>().unwrap_err();
        assert!(far.contains("from 1 to 1000000"), "{far}");
        assert!("slide:1000000".parse::<Extract>().is_ok());
    }
}
