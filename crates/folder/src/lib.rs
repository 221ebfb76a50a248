//! What users bring: diffusers folders, models of the hub, tokenizers, LoRA files in the dialects that trainers write.
//!
//! Nothing here knows a family of models; what a family calls its layers is an argument.

mod component;
mod error;
mod hub;
pub mod lora;
mod model_folder;
pub mod tokenizer;

pub use component::{Component, Loras, Rename, Storage, Weight};
pub use error::{Error, Result};
pub use hub::{Hub, HubEvent, locate};
pub use model_folder::{ModelFolder, OWN_KEYS, agree, metadata, read_text, weight_files};
