//! What users give, against what diffusers and transformers make of it (see `goldens/README.md`).

mod encoder;
mod folder;
mod hub;
mod hub_server;
mod lora;
mod negative;
mod pictures;
mod tokenizer;
