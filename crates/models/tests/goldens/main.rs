//! Every network against what the reference implementations computed (see `goldens/README.md`).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod case;
mod clip;
mod ltx2;
mod ltx2_audio;
mod ltx2_text;
mod ltx2_video_vae;
mod pixart;
mod published;
mod reader;
mod t5;
mod vae;
mod wan;
mod wan_config;
mod wan_vae;
