//! The server: an HTTP API that clients of OpenAI's videos and images already speak, and the studio page.
//!
//! A request of the wire becomes an [`engine::Request`], is checked against its model, and waits in a queue that
//! survives the process (`jobs`). One worker takes jobs one after another; the engine knows nothing of HTTP.

mod ask;
mod connection;
mod error;
mod fields;
mod follower;
mod form;
mod given;
mod http;
mod jobs;
mod json;
mod json_form;
mod keys;
mod limits;
mod model;
mod order;
mod output;
mod pipelines;
mod server;
mod upload;
mod viewer;
mod watch;
mod worker;

pub use error::{Error, Result};
pub use follower::Follower;
pub use keys::Keys;
pub use limits::{Limits, Retention};
pub use model::Model;
pub use order::{Order, Run};
pub use server::{Server, Settings};
pub use viewer::Viewer;
pub use worker::Executor;
