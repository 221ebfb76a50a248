//! The server as clients see it: raw HTTP, tiny models.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod bounds;
mod events;
mod house;
mod images;
mod lasting;
mod refusals;
mod sharing;
mod sources;
mod studio;
mod videos;
mod wire;
