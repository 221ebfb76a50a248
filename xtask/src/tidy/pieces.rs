//! Rust tokens as a flat list with lines, so that a rule can look for a sequence of them.
//!
//! Working on tokens sees into macro bodies, which a syntax tree does not, and is never misled by
//! comments or strings, as a text search is.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// One token, or one side of a bracketed group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) token: Token,
    /// Counted from 1.
    pub(super) line: usize,
}

/// What a [`Piece`] is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    Word(String),
    Sign(char),
    Literal,
    Open(char),
    Close(char),
}

impl Piece {
    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(&self.token, Token::Word(own) if own == word)
    }

    pub(super) fn is_sign(&self, sign: char) -> bool {
        self.token == Token::Sign(sign)
    }

    pub(super) fn word(&self) -> Option<&str> {
        match &self.token {
            Token::Word(word) => Some(word),
            _ => None,
        }
    }
}

/// All tokens of `stream` in reading order.
pub(super) fn flatten(stream: TokenStream) -> Vec<Piece> {
    let mut pieces = Vec::new();
    collect(stream, &mut pieces);
    pieces
}

fn collect(stream: TokenStream, pieces: &mut Vec<Piece>) {
    for tree in stream {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Ident(ident) => {
                pieces.push(Piece { token: Token::Word(ident.to_string()), line });
            }
            TokenTree::Punct(punct) => {
                pieces.push(Piece { token: Token::Sign(punct.as_char()), line });
            }
            TokenTree::Literal(_) => pieces.push(Piece { token: Token::Literal, line }),
            TokenTree::Group(group) => {
                let (open, close) = brackets(group.delimiter());
                let end = group.span_close().end().line;
                pieces.push(Piece { token: Token::Open(open), line });
                collect(group.stream(), pieces);
                pieces.push(Piece { token: Token::Close(close), line: end });
            }
        }
    }
}

fn brackets(delimiter: Delimiter) -> (char, char) {
    match delimiter {
        Delimiter::Parenthesis => ('(', ')'),
        Delimiter::Brace => ('{', '}'),
        Delimiter::Bracket => ('[', ']'),
        // No brackets are written; a space stands for them.
        Delimiter::None => (' ', ' '),
    }
}

/// The index of the piece that closes the group opened at `open`.
pub(super) fn closing(pieces: &[Piece], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (index, piece) in pieces.iter().enumerate().skip(open) {
        match piece.token {
            Token::Open(_) => depth += 1,
            Token::Close(_) => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some(index);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_open_and_close_on_their_lines() {
        let pieces = flatten("f(\n  \"unsafe\", // unsafe\n  x\n);".parse().unwrap());
        let words: Vec<_> = pieces.iter().filter_map(Piece::word).collect();
        assert_eq!(words, ["f", "x"], "neither a string nor a comment is a word");
        assert_eq!(pieces[1], Piece { token: Token::Open('('), line: 1 });
        let close = closing(&pieces, 1).unwrap();
        assert_eq!(pieces[close], Piece { token: Token::Close(')'), line: 4 });
    }
}
