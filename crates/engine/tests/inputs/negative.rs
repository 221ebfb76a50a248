//! Negative prompts are embedded as inference embeds them, with the encoder that is asked for.

use std::fs;
use std::path::Path;

use burn::tensor::{DType, Device, FloatDType, Tensor};
use data::media::Frame;
use engine::{
    Frames, Latents, Pipeline, PromptEmbedding, PromptSetup, Request, Result, Setup, Silent,
    encode_negative_prompt,
};
use folder::tokenizer::caption;
use safetensors::tensor::{Dtype, TensorView};

use crate::folder::{Copy, Golden, distance, goldens};

/// What each way of preparing a caption treats in its own way.
const PROMPT: &str = "  A Blurry   PHOTO &amp;amp; a caf\u{c3}\u{a9} \u{201c}sign\u{201d}\n";

fn setup(encoder_index: usize) -> PromptSetup {
    PromptSetup { encoder_index, device: Device::flex(), dtype: FloatDType::F32 }
}

fn encode(model: &Path, prompt: &str, index: usize) -> PromptEmbedding {
    encode_negative_prompt(model, prompt, &setup(index)).expect("an embedding")
}

fn values<const D: usize>(tensor: &Tensor<D>) -> Vec<f32> {
    tensor.clone().into_data().try_to_vec().expect("f32")
}

/// Receives nothing.
struct Nothing;

impl Frames for Nothing {
    fn begin(&mut self, _: usize, _: usize) -> Result<()> {
        Ok(())
    }

    fn frame(&mut self, _: usize, _: Frame) -> Result<()> {
        Ok(())
    }
}

/// The final latents of a short run. Its prompt and negative prompt are `PROMPT`, or come embedded.
fn latents(model: &Path, max_tokens: Option<usize>, embedded: Option<&Path>) -> Vec<f32> {
    let setup = Setup::new(&Device::flex());
    let is_clip = model.join("model_index.json");
    let is_clip = fs::read_to_string(is_clip).expect("an index").contains("WanPipeline");
    let request = Request {
        prompts: if embedded.is_some() { Vec::new() } else { vec![PROMPT.to_owned()] },
        negative: if embedded.is_some() { String::new() } else { PROMPT.to_owned() },
        steps: Some(2),
        guidance: Some(3.0),
        height: Some(32),
        width: Some(32),
        frames: is_clip.then_some(5),
        seed: 3,
        max_tokens: max_tokens.filter(|_| embedded.is_none()),
        prompt_embeds: embedded.map(Path::to_owned),
        ..Request::default()
    };
    let mut pipeline = Pipeline::open(model, &setup).expect("a pipeline");
    match pipeline.run(&request, &mut Silent, &mut Nothing).expect("a run").latents {
        Some(Latents::Picture(latents)) => values(&latents),
        Some(Latents::Clip(latents)) => values(&latents),
        None => unreachable!("a picture is made"),
    }
}

/// A file of embeddings for [`latents`]; models that take no mask are given none.
fn file(embedding: &PromptEmbedding, masked: bool, path: &Path) {
    let bytes = |values: Vec<f32>| values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let tokens = (embedding.tokens.dims().to_vec(), bytes(values(&embedding.tokens)));
    let mask = (embedding.mask.dims().to_vec(), bytes(values(&embedding.mask)));
    let mut tensors = vec![("prompt_embeds", &tokens), ("negative_prompt_embeds", &tokens)];
    if masked {
        tensors.push(("prompt_attention_mask", &mask));
        tensors.push(("negative_prompt_attention_mask", &mask));
    }
    let views = tensors.iter().map(|(key, (shape, bytes))| {
        (*key, TensorView::new(Dtype::F32, shape.clone(), bytes).expect("a tensor"))
    });
    fs::write(path, safetensors::serialize(views, None).expect("a file")).expect("a file");
}

/// Embeds with encoder `index` of `model`, and runs `inference`, whose own encoder is the same, with
/// that and with the prompt itself: its latents tell of any bit that differs.
fn check(model: &Path, index: usize, inference: &Path, max_tokens: Option<usize>) {
    let embedding = encode(model, PROMPT, index);
    let masked = inference.to_str().is_some_and(|path| path.contains("pixart"));
    let folder = tempfile::tempdir().expect("a folder");
    let given = folder.path().join("given.safetensors");
    file(&embedding, masked, &given);
    let wanted = latents(inference, max_tokens, None);
    assert_eq!(latents(inference, max_tokens, Some(&given)), wanted, "{}", model.display());
    // The run would notice: another prompt gives other latents.
    file(&encode(model, "a fox", index), masked, &given);
    assert_ne!(latents(inference, max_tokens, Some(&given)), wanted, "{}", model.display());
}

/// A folder of one family with the text encoder of the other beside its own, for fewer tokens.
fn two_encoders(own: &str, second: &str, class: &str, tokens: usize) -> Copy {
    let copy = Copy::of(own);
    copy.take(&format!("{second}/text_encoder"), "text_encoder_2");
    copy.take(&format!("{second}/tokenizer"), "tokenizer_2");
    copy.json("model_index.json", |index| {
        index["text_encoder_2"] = serde_json::json!(["transformers", class]);
        index["tokenizer_2"] = serde_json::json!(["transformers", "T5Tokenizer"]);
    });
    copy.json("tokenizer_2/tokenizer_config.json", |config| {
        config["model_max_length"] = tokens.into();
    });
    copy
}

#[test]
fn embeddings_and_masks_are_those_of_inference() {
    let [pixart, wan] = ["pixart-tiny", "wan-tiny"].map(|name| goldens().join(name));
    let copy = two_encoders("pixart-tiny", "wan-tiny", "UMT5EncoderModel", 41);
    check(copy.path(), 0, &pixart, None);
    check(copy.path(), 1, &wan, Some(41));
    let copy = two_encoders("wan-tiny", "pixart-tiny", "T5EncoderModel", 53);
    check(copy.path(), 0, &wan, None);
    check(copy.path(), 1, &pixart, Some(53));
}

/// Each encoder pads to its own length; PixArt's padding keeps what the encoder gives, Wan's is zero.
#[test]
fn padding_follows_the_rules_of_the_encoder() {
    let copy = two_encoders("wan-tiny", "pixart-tiny", "T5EncoderModel", 53);
    for (index, length, zeroed) in [(0, 512, true), (1, 53, false)] {
        let PromptEmbedding { tokens, mask, .. } = encode(copy.path(), PROMPT, index);
        assert_eq!(tokens.dims()[..2], [1, length]);
        assert_eq!(mask.dims(), [1, length]);
        let width = tokens.dims()[2];
        let (tokens, mask) = (values(&tokens), values(&mask));
        let count = mask.iter().filter(|it| **it == 1.0).count();
        assert!(count > 3 && mask[..count].iter().all(|it| *it == 1.0), "{mask:?}");
        assert!(mask[count..].iter().all(|it| *it == 0.0), "{mask:?}");
        let (text, padding) = tokens.split_at(count * width);
        assert!(text.iter().all(|it| *it != 0.0));
        assert_eq!(padding.iter().all(|it| *it == 0.0), zeroed, "encoder {index}");
    }
}

/// A prompt that was prepared by hand, as its encoder wants it, is the same prompt.
#[test]
fn prompts_are_prepared_for_their_encoder() {
    let copy = two_encoders("wan-tiny", "pixart-tiny", "T5EncoderModel", 53);
    let (repaired, plain) = (caption::repaired(PROMPT), caption::plain(PROMPT));
    let tokens = |prompt: &str, index: usize| values(&encode(copy.path(), prompt, index).tokens);
    assert_eq!(tokens(&repaired, 0), tokens(PROMPT, 0));
    assert_ne!(tokens(&plain, 0), tokens(PROMPT, 0));
    assert_eq!(tokens(&plain, 1), tokens(PROMPT, 1));
    assert_ne!(tokens(&repaired, 1), tokens(PROMPT, 1));
}

/// A tokenizer that knows no limit leaves it to the rules.
#[test]
fn a_limit_that_is_none_is_passed_over() {
    let copy = two_encoders("wan-tiny", "pixart-tiny", "T5EncoderModel", 53);
    copy.json("tokenizer_2/tokenizer_config.json", |config| {
        config["model_max_length"] = serde_json::json!(1e30);
    });
    assert_eq!(encode(copy.path(), PROMPT, 1).tokens.dims()[1], 120);
}

#[test]
fn embeddings_are_diffusers() {
    let golden = Golden::open("pixart_pipeline");
    for case in ["dpm_20_guided", "conditions_dpm_20_guided"] {
        let said = &golden.config["cases"][case];
        let model = goldens().join(said["folder"].as_str().expect("a folder"));
        let negative = said["negative"].as_str().expect("a prompt");
        let PromptEmbedding { tokens, mask, .. } = encode(&model, negative, 0);
        let (shape, wanted) = golden.tensor(&format!("{case}.negative_prompt_embeds"));
        assert_eq!(tokens.dims()[1..], shape[1..], "{case}");
        let one = values(&tokens).len();
        let off = distance(&values(&tokens), &wanted[..one]);
        assert!(off < 1e-4, "{case} is off by {off:.1e}");
        let (_, wanted) = golden.tensor(&format!("{case}.negative_prompt_mask"));
        let mask = values(&mask);
        assert_eq!(mask, wanted[..mask.len()], "{case}");
    }
}

#[test]
fn the_type_is_the_one_asked_for() {
    let model = goldens().join("wan-tiny");
    let asked = PromptSetup { dtype: FloatDType::BF16, ..setup(0) };
    let found = encode_negative_prompt(&model, PROMPT, &asked).expect("an embedding");
    assert_eq!((found.tokens.dtype(), found.mask.dtype()), (DType::BF16, DType::BF16));
    let wanted = encode(&model, PROMPT, 0).tokens.cast(FloatDType::BF16);
    assert_eq!(found.tokens.into_data(), wanted.into_data());
}

#[track_caller]
fn refuses(model: &Path, index: usize, words: &[&str]) {
    let error = encode_negative_prompt(model, PROMPT, &setup(index)).expect_err("an error");
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "no `{word}` in: {text}");
    }
}

#[test]
fn what_is_missing_is_named_with_what_is_there() {
    let copy = two_encoders("wan-tiny", "pixart-tiny", "T5EncoderModel", 53);
    let both = "the encoders there are: 0 (`text_encoder`), 1 (`text_encoder_2`)";
    refuses(copy.path(), 2, &["no text encoder 2", "lists no `text_encoder_3`", both]);
    refuses(copy.path(), usize::MAX, &["no text encoder", both]);

    let only_first = "there are: 0 (`text_encoder`)";
    fs::rename(copy.path().join("tokenizer_2"), copy.path().join("aside")).expect("a folder");
    refuses(copy.path(), 1, &["folder `tokenizer_2` is missing", only_first]);
    fs::rename(copy.path().join("aside"), copy.path().join("tokenizer_2")).expect("a folder");
    fs::rename(copy.path().join("text_encoder_2"), copy.path().join("aside")).expect("a folder");
    refuses(copy.path(), 1, &["folder `text_encoder_2` is missing", only_first]);
    fs::rename(copy.path().join("aside"), copy.path().join("text_encoder_2")).expect("a folder");

    copy.json("model_index.json", |index| index["text_encoder_2"][1] = "CLIPTextModel".into());
    refuses(copy.path(), 1, &["CLIPTextModel", "T5EncoderModel, UMT5EncoderModel"]);
    // What the index lists as nothing is not there.
    copy.json("model_index.json", |index| {
        index["text_encoder_2"] = serde_json::json!([null, null]);
    });
    refuses(copy.path(), 1, &["lists no `text_encoder_2`", only_first]);
    fs::remove_file(copy.path().join("model_index.json")).expect("a file");
    refuses(copy.path(), 0, &["no model_index.json", both]);
    fs::remove_dir_all(copy.path().join("text_encoder")).expect("a folder");
    fs::remove_dir_all(copy.path().join("text_encoder_2")).expect("a folder");
    refuses(copy.path(), 0, &["no model_index.json", "there are: none"]);
    refuses(&copy.path().join("nowhere"), 0, &["there is no folder", "nowhere"]);
}
