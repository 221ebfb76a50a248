//! The command as a user runs it: what it makes, and how it refuses.

mod folder;
mod generate;
mod inspect;
mod refusals;
