//! What every `config.json` of transformers may hold, whatever the model.
//!
//! Version 4 writes some sixty such keys into a file, version 5 a few. They say how text is
//! generated, what a classifier's labels are called, in which type the weights are stored and
//! which version wrote the file; none changes what an encoder computes.

use nn::{ConfigReader, Result};

const IGNORED: [&str; 60] = [
    "add_cross_attention",
    "architectures",
    "attn_implementation",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "chunk_size_feed_forward",
    "cross_attention_hidden_size",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "id2label",
    "is_decoder",
    "is_encoder_decoder",
    "label2id",
    "length_penalty",
    "max_length",
    "min_length",
    "name_or_path",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "pad_token_id",
    "prefix",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tie_word_embeddings",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "typical_p",
    "use_bfloat16",
    "use_cache",
];

/// Passes over the keys that all models have, and refuses those that would change the weights.
///
/// # Errors
/// The weights are quantized, or heads were cut out of them.
pub(crate) fn read(options: &mut ConfigReader) -> Result<()> {
    options.must_be_unquantized()?;
    options.must_be_empty("pruned_heads")?;
    options.ignore(&IGNORED);
    Ok(())
}
