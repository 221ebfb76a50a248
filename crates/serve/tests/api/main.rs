//! The server as clients see it: raw HTTP, tiny models.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod house;
mod images;
mod lasting;
mod refusals;
mod sharing;
mod studio;
mod videos;
mod wire;
