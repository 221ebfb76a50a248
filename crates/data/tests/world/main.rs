//! The shapes world: what it shows, whether the judge sees it, and what codecs make of it.

mod codecs;
mod generator;
mod judge;
