//! What a run leaves behind to be looked at.
//!
//! A [`Journal`] listens to a run and writes `metrics.jsonl` and TensorBoard's event files as it goes;
//! [`history()`] reads the former back; a [`Page`] is a report that a browser shows without a network,
//! a server or a script. Nothing here changes what is learnt.

mod journal;

mod events;
mod metrics;

mod history;

mod page;

mod error;

pub use error::{Error, Result};
pub use history::{History, history};
pub use journal::{Journal, Peak};
pub use metrics::{Bucket, Role, Scalars, Step};
pub use page::{CaptionedClip, Chart, Page, Score, Series, Verdict};
