//! What a model is written against, and nothing that knows about ranks.
//!
//! A model is written once, for one device. Everything else enters by three seams:
//! [`Weights`] (how parameters come to be), [`Attention`] (how tokens mix) and the block fold of
//! [`Dit`] (who runs which block, and when). Whoever runs a model sees a [`Network`] and is a
//! [`Schedule`].

mod adapted;
mod attention;
mod backward;
mod bands;
mod conditioning;
mod config;
mod declared;
mod embedding;
mod error;
mod first_block;
mod fold;
mod gguf;
mod image;
mod inputs;
mod layers;
mod lora;
mod mask;
mod mixed;
mod modulation;
mod network;
mod packed;
mod part;
mod patch;
mod positions;
mod provider;
mod quantized;
mod rounded;
mod schedule;
mod store;
mod tracks;
mod weights;

pub use adapted::{Adapted, Adapter, Adapters, Dropout};
pub use attention::{Attention, Plain, Qkv, Reach, Site, join_heads, split_heads};
pub use backward::{Backward, Loss, Parameters, Recording, Trainable, backward};
pub use bands::{Bands, Pairing};
pub use conditioning::Conditioning;
pub use config::ConfigReader;
pub use embedding::timestep_embedding;
pub use error::{Error, Result, most_similar};
pub use first_block::{CacheReport, CachedStep, FirstBlockCache, Sum};
pub use fold::{Dit, Forward, Sizes};
pub use gguf::{GgufHeader, GgufTensor, GgufType, GgufValue, GgufWriter};
pub use image::{Convolution2d, Convolution3d, GroupNorm, Halo, ImageStrip, PixelAttention, Strip};
pub use inputs::{Context, Inputs, Levels, Modality, Prediction, SizeCondition};
pub use layers::{Embedding, LayerNorm, Linear, Normalize, Project, RmsNorm};
pub use lora::{Change, LowRank, Merge, Patch};
pub use mask::Mask;
pub use mixed::MixedPrecision;
pub use modulation::{AdaLn, table_rows};
pub use network::{Network, forward, run_blocks};
pub use packed::{Bag, Entry, EntryData, EntryPart, EntryValues, Kind, Packed};
pub use part::{Part, Split};
pub use patch::{patchify, unpatchify};
pub use positions::{Positions, Rope, grid_positions};
pub use provider::{Bias, Make, Products, Provider};
pub use quantized::QuantizedMatrix;
pub use rounded::Rounded;
pub use schedule::{OneDevice, Recompute, Schedule};
pub use store::{Parameter, Precision, Quantization, Store};
pub use tracks::{TrackName, Tracks};
pub use weights::Weights;
