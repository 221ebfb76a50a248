//! Captions and token ids against what transformers and diffusers make of them.

use std::path::PathBuf;

use engine::tokenizer::{Tokenizer, TokenizerError, caption};
use serde::Deserialize;

fn goldens() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../goldens"))
}

fn json<T: serde::de::DeserializeOwned>(path: &str) -> T {
    let text = std::fs::read_to_string(goldens().join(path)).expect("a golden");
    serde_json::from_str(&text).expect("the golden's form")
}

#[derive(Deserialize)]
struct Ids {
    max_length: usize,
    captions: Vec<IdsOfCaption>,
}

#[derive(Deserialize)]
struct IdsOfCaption {
    caption: String,
    ids: Vec<u32>,
    ids_whole: Vec<u32>,
}

/// Ids cut and padded to `length` must be those of `wanted`, the mask must tell the padding.
#[track_caller]
fn check(tokenizer: &Tokenizer, caption: &str, length: usize, wanted: &[u32]) {
    let tokens = tokenizer.encode(caption, length).expect("a caption");
    let (text, padding) = tokens.ids.split_at(wanted.len());
    assert_eq!(text, wanted, "{caption:?}");
    assert_eq!(padding, vec![0; length - wanted.len()], "{caption:?}");
    let mask = (0..length).map(|index| u8::from(index < wanted.len())).collect::<Vec<_>>();
    assert_eq!(tokens.mask, mask, "{caption:?}");
}

#[test]
fn a_sentencepiece_model_gives_the_ids_of_transformers() {
    let tokenizer = Tokenizer::open(&goldens().join("tokenizer-spiece")).expect("a tokenizer");
    let golden: Ids = json("tokenizer-spiece/ids.json");
    assert!(golden.captions.iter().any(|row| row.ids_whole.len() > golden.max_length));
    for row in &golden.captions {
        check(&tokenizer, &row.caption, golden.max_length, &row.ids);
        check(&tokenizer, &row.caption, row.ids_whole.len().max(200), &row.ids_whole);
        check(&tokenizer, &row.caption, row.ids_whole.len(), &row.ids_whole);
    }
}

#[derive(Deserialize)]
struct Row {
    caption: String,
    plain: String,
    clean: String,
}

#[test]
fn captions_are_prepared_as_diffusers_does() {
    let rows: Vec<Row> = json("captions.json");
    let mut wrong = Vec::new();
    for row in &rows {
        let clean = caption::cleaned(&row.caption).expect("a caption");
        assert_eq!(caption::plain(&row.caption), row.plain);
        if clean != row.clean {
            wrong.push((&row.caption, clean, &row.clean));
        }
    }
    assert!(wrong.is_empty(), "caption, ours, diffusers': {wrong:#?}");
}
