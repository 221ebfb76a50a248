//! Training on three axes: a *family* says how a network predicts, a [`Strategy`] what is generated
//! given what, a [`Method`] how it is learnt. The [`Trainer`] is the one loop that joins them.
//!
//! Nothing here depends on the machine: draws are keyed by what they are for, sums have one order, and
//! a run that was killed goes on from its last checkpoint to the same bits.

mod initial;

mod batch;
mod draws;
mod strategy;

mod lora;
mod method;
mod role;

mod learning_rate;
mod optimizer;

mod ema;
mod event;
mod ranks;
mod report;
mod trainer;

pub mod checkpoint;
mod state;

mod error;

pub use batch::{Batch, Cursor, Feed, Field, Share, VideoLatents};
pub use draws::Draws;
pub use ema::{Ema, EmaConfig};
pub use error::{Error, Result};
pub use event::{Callback, Event};
pub use initial::initial;
pub use learning_rate::{Decay, LearningRateSchedule};
pub use lora::{Adapters, Dropout, LoraConfig, matches};
pub use method::{LossReport, Method, MethodReport, Pass, STUDENT};
pub use optimizer::{AdamWConfig, LrMatch, MuonConfig, Optimizer, OptimizerConfig, SgdConfig};
pub use ranks::Ranks;
pub use report::{BUCKETS, BucketReport, Outcome, RoleReport, StepReport};
pub use role::{Averaged, Frozen, Learns, SampleLoss, Trained, Training};
pub use state::{StateDict, Value};
pub use strategy::{Form, Losses, ModelInputs, Noised, Strategy, Target, beside, noise_for};
pub use trainer::{LoopConfig, Parts, Resumed, Trainer};
