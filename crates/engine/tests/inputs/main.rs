//! What users give, against what diffusers and transformers make of it (see `goldens/README.md`).

mod lora;
mod pictures;
mod tokenizer;
