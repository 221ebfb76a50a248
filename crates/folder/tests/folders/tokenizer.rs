//! Captions and token ids against what transformers and diffusers make of them.

use std::path::PathBuf;

use folder::tokenizer::{Tokenizer, TokenizerError, caption};
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

fn goldens() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../goldens"))
}

fn read<T: serde::de::DeserializeOwned>(path: &str) -> T {
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
    let golden: Ids = read("tokenizer-spiece/ids.json");
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
    let rows: Vec<Row> = read("captions.json");
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

#[test]
fn prompts_are_repaired_as_wan_does() {
    #[derive(Deserialize)]
    struct Row {
        caption: String,
        prompt: String,
    }
    let rows: Vec<Row> = read("prompts.json");
    let wrong: Vec<_> = rows
        .iter()
        .map(|row| (&row.caption, caption::repaired(&row.caption), &row.prompt))
        .filter(|(_, ours, wanted)| ours != *wanted)
        .collect();
    assert!(wrong.is_empty(), "caption, ours, diffusers': {wrong:#?}");
}

/// A copy of the sentencepiece folder with other settings; the folder lives as long as the guard.
fn variant(change: impl Fn(&mut Value)) -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    let from = goldens().join("tokenizer-spiece");
    std::fs::copy(from.join("spiece.model"), folder.path().join("spiece.model")).expect("a copy");
    let mut settings: Value = read("tokenizer-spiece/tokenizer_config.json");
    change(&mut settings);
    let path = folder.path().join("tokenizer_config.json");
    std::fs::write(path, settings.to_string()).expect("the settings");
    folder
}

#[test]
fn a_tokenizer_json_gives_the_ids_of_transformers() {
    let tokenizer = Tokenizer::open(&goldens().join("pixart-tiny/tokenizer")).expect("a tokenizer");
    check(&tokenizer, "", 4, &[1]);
    check(&tokenizer, "a red circle moves left", 12, &[5, 12, 124, 86, 105, 242, 249, 232, 247, 1]);
    check(&tokenizer, "a red circle moves left", 4, &[5, 12, 124, 1]);
    check(
        &tokenizer,
        "ＦＵＬＬ a  red \t circle  </s> b",
        9,
        &[105, 2, 5, 12, 124, 1, 105, 234, 1],
    );
}

/// Wan's tokenizer falls back on bytes, and every prompt is padded to 512 tokens.
#[test]
fn a_umt5_folder_gives_the_ids_of_transformers() {
    #[derive(Deserialize)]
    struct Row {
        caption: String,
        ids: Vec<u32>,
    }
    let tokenizer = Tokenizer::open(&goldens().join("tokenizer-umt5")).expect("a tokenizer");
    let rows: Vec<Row> = read("tokenizer-umt5/ids.json");
    assert!(rows.iter().any(|row| row.ids.iter().any(|id| (3..259).contains(id))), "bytes");
    for row in &rows {
        check(&tokenizer, &row.caption, 512, &row.ids);
    }
}

#[test]
fn special_tokens_may_be_written_with_their_flags() {
    let folder = variant(|settings| {
        settings["pad_token"] = json!({"content": "<pad>", "lstrip": false, "special": true});
        settings["extra_ids"] = json!(7);
    });
    let tokenizer = Tokenizer::open(folder.path()).expect("a tokenizer");
    check(&tokenizer, "a <extra_id_0>red </s> circle", 9, &[5, 256, 12, 1, 124, 1]);
}

#[test]
fn the_limit_leaves_room_for_the_end() {
    let tokenizer = Tokenizer::open(&goldens().join("tokenizer-spiece")).expect("a tokenizer");
    check(&tokenizer, "a red circle", 1, &[1]);
    let error = tokenizer.encode("a red circle", 0).expect_err("no room");
    assert!(matches!(error, TokenizerError::NoRoom { max_tokens: 0, special: 1 }), "{error}");
}

#[test]
fn settings_that_would_give_other_ids_are_refused() {
    let refused = [("truncation_side", "left"), ("tokenizer_class", "LlamaTokenizer")];
    for (key, value) in refused {
        let folder = variant(|settings| settings[key] = json!(value));
        let error = Tokenizer::open(folder.path()).expect_err(key);
        assert!(matches!(error, TokenizerError::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(key) && error.to_string().contains(value), "{error}");
    }
    let folder = variant(|settings| settings["extra_ids"] = json!(u64::MAX));
    let error = Tokenizer::open(folder.path()).expect_err("too many").to_string();
    assert!(error.contains("`extra_ids` is 18446744073709551615"), "{error}");
}

#[test]
fn a_model_without_a_token_that_is_needed_is_refused() {
    for key in ["pad_token", "eos_token", "unk_token"] {
        let folder = variant(|settings| settings[key] = json!("<nothing>"));
        // A special token that no piece covers is added behind them, where no encoder knows it.
        let error = Tokenizer::open(folder.path()).expect_err(key);
        assert!(error.to_string().contains("<nothing>"), "{error}");
    }
}

#[test]
fn folders_without_a_whole_tokenizer_are_refused() {
    let folder = TempDir::new().expect("a temporary folder");
    let error = Tokenizer::open(folder.path()).expect_err("nothing there");
    assert!(matches!(error, TokenizerError::NotFound { .. }), "{error}");

    let whole = std::fs::read(goldens().join("tokenizer-spiece/spiece.model")).expect("a golden");
    for length in [0, 1, 100, whole.len() / 2, whole.len() - 1] {
        std::fs::write(folder.path().join("spiece.model"), &whole[..length]).expect("a file");
        let error = Tokenizer::open(folder.path()).expect_err("a part");
        assert!(matches!(error, TokenizerError::Corrupt { .. }), "{length} bytes: {error}");
    }
    std::fs::write(folder.path().join("tokenizer.json"), "{").expect("a file");
    let error = Tokenizer::open(folder.path()).expect_err("half a file");
    assert!(error.to_string().contains("tokenizer.json"), "{error}");
    // A token at the end of every caption that nobody defines made the library panic.
    let whole = std::fs::read_to_string(goldens().join("wan-tiny/tokenizer/tokenizer.json"));
    let mut whole: Value = serde_json::from_str(&whole.expect("a golden")).expect("JSON");
    let single = json!([{ "Sequence": { "id": "A", "type_id": 0 } }, { "SpecialToken": { "id": "</x>", "type_id": 0 } }]);
    let template = json!({ "type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": {} });
    for processor in [template.clone(), json!({ "type": "Sequence", "processors": [template] })] {
        whole["post_processor"] = processor;
        std::fs::write(folder.path().join("tokenizer.json"), whole.to_string()).expect("a file");
        let error = Tokenizer::open(folder.path()).expect_err("an undefined token").to_string();
        assert!(error.contains("`</x>`") && error.contains("special_tokens"), "{error}");
    }
}

/// The golden sentencepiece model with more fields at its end, which for protobuf replace earlier
/// ones.
fn lengthened(fields: &[u8]) -> Result<Tokenizer, TokenizerError> {
    let folder = variant(|_| {});
    let path = folder.path().join("spiece.model");
    let whole = std::fs::read(&path).expect("the model");
    std::fs::write(path, [&whole, fields].concat()).expect("the longer model");
    Tokenizer::open(folder.path())
}

#[test]
fn models_that_would_give_other_ids_are_refused() {
    const TRAINER: u8 = 2 << 3 | 2;
    const NORMALIZER: u8 = 3 << 3 | 2;
    for (fields, key) in [
        (&[TRAINER, 2, 3 << 3, 2][..], "`model_type` is 2"),
        (&[TRAINER, 3, 0x98, 0x02, 1][..], "`byte_fallback` is true"),
        (&[NORMALIZER, 2, 3 << 3, 0][..], "`add_dummy_prefix` is false"),
        (&[NORMALIZER, 2, 4 << 3, 0][..], "`remove_extra_whitespaces` is false"),
    ] {
        let error = lengthened(fields).expect_err(key);
        assert!(matches!(error, TokenizerError::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(key), "{error}");
    }
}

#[test]
fn fields_that_nobody_knows_are_passed_over() {
    const UNKNOWN: u8 = 15 << 3;
    // A number, eight bytes, bytes of a length, four bytes: what they hold would be damage elsewhere.
    let known = [
        &[UNKNOWN, 0xff, 0xff, 0xff, 0xff, 0x01][..],
        &[UNKNOWN | 1, 7, 7, 7, 7, 7, 7, 7, 7],
        &[UNKNOWN | 2, 3, 7, 7, 7],
        &[UNKNOWN | 5, 7, 7, 7, 7],
    ];
    let tokenizer = lengthened(&known.concat()).expect("a tokenizer");
    check(&tokenizer, "a red circle", 5, &[5, 12, 124, 1]);
    for damaged in [&[UNKNOWN | 3][..], &[UNKNOWN | 7], &[UNKNOWN, 0xff], &[UNKNOWN | 2, 9, 1]] {
        let error = lengthened(damaged).expect_err("damage");
        assert!(matches!(error, TokenizerError::Corrupt { .. }), "{error}");
    }
}

#[test]
fn without_settings_those_of_t5_hold() {
    let folder = variant(|_| {});
    std::fs::remove_file(folder.path().join("tokenizer_config.json")).expect("the settings");
    let tokenizer = Tokenizer::open(folder.path()).expect("a tokenizer");
    let golden: Ids = read("tokenizer-spiece/ids.json");
    for row in &golden.captions {
        check(&tokenizer, &row.caption, golden.max_length, &row.ids);
    }
}

/// A `tokenizer.json` may ask for padding and a limit of its own; the caller decides about both.
#[test]
fn lengths_in_a_tokenizer_json_are_passed_over() {
    let folder = TempDir::new().expect("a temporary folder");
    let mut whole: Value = read("pixart-tiny/tokenizer/tokenizer.json");
    whole["truncation"] = json!({
        "direction": "Left", "max_length": 3, "strategy": "LongestFirst", "stride": 0,
    });
    whole["padding"] = json!({
        "strategy": {"Fixed": 40}, "direction": "Left", "pad_to_multiple_of": null, "pad_id": 7,
        "pad_type_id": 0, "pad_token": "<pad>",
    });
    let path = folder.path().join("tokenizer.json");
    std::fs::write(path, whole.to_string()).expect("a file");
    // A whole tokenizer is believed before the pieces it was made from.
    std::fs::write(folder.path().join("spiece.model"), "damaged").expect("a file");
    let tokenizer = Tokenizer::open(folder.path()).expect("a tokenizer");
    let wanted = [5, 12, 124, 86, 105, 242, 249, 232, 247, 1];
    check(&tokenizer, "a red circle moves left", 12, &wanted);
}

/// A file that was cut off anywhere is refused, never a panic: `xtask fuzz` found one within the decoder.
#[test]
fn a_torn_tokenizer_is_refused() {
    let whole =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../goldens/wan-tiny/tokenizer/tokenizer.json");
    let whole = std::fs::read(whole).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let at = whole.windows(10).position(|part| part == b"\"decoder\":".as_slice());
    let from = at.expect("it has a decoder");
    let lengths = (from..from + 200).chain((0..whole.len()).step_by(997));
    for length in lengths {
        std::fs::write(folder.path().join("tokenizer.json"), &whole[..length]).unwrap();
        assert!(folder::tokenizer::Tokenizer::open(folder.path()).is_err(), "{length} bytes");
    }
}
