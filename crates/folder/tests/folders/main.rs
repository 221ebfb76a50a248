//! Tokenizers and captions against what transformers and diffusers make of them (see
//! `goldens/README.md`).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod hub;
mod hub_server;
mod tokenizer;
