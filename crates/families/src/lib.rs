//! The table of families: one description per family, and nothing else knows their names.
//!
//! A [`Family`] says what is the same for all of its folders; a [`Description`] says what one folder
//! holds. Commands, training, export and the laws are written against these two, so a family that is in
//! the [table](FAMILIES) has all of them.

mod conditions;
mod description;
mod duet;
mod error;
mod ltx2;
mod pixart;
mod pixart_sigma;
mod record;
mod table;
mod text;
mod wan;

pub use conditions::{Condition, Conditions, EntersAs, Resampling};
pub use description::{
    Defaults, Description, Distilled, Family, GuidanceTerms, Ladder, MakeMeeting, Meeting,
    NewModel, ReadUpsampler, Scratch, Sound, Text, Transformer,
};
pub use error::{Error, Result};
pub use models::dit::ltx2::CrossLevels;
pub use record::{Record, SampledBy};
pub use table::{FAMILIES, describe, family, foreign_lora, text_rules};
pub use text::{EncoderRules, Padding, Preparation, TextRules};
