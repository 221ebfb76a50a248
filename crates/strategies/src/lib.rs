//! *What* is generated given what: text-to-video, video-to-video, and the flexible strategy that both
//! are special cases of.
//!
//! All of them only choose which tokens of a [`diffusion::Scene`] are fixed, given or looked at; what
//! follows from that is the scene's business, in training as in inference.

mod config;
mod flexible;

pub use config::{
    ConditionConfig, ConditionKind, FlexibleConfig, ModalityConfig, StrategyConfig,
    TextToVideoConfig, VideoToVideoConfig,
};
pub use flexible::Flexible;
