//! What training reads and generation writes: clips in the formats that people use.

pub mod media;
