//! What users give, against what diffusers and transformers make of it (see `goldens/README.md`).

mod encoder;
mod folder;
mod lora;
mod ltx2;
mod ltx2_runs;
mod ltx2_stages;
mod negative;
mod pictures;
