//! What the tests of several crates share: the smallest family, and the law of layouts.
//!
//! Nothing here is shipped.

pub mod contract;
pub mod numbers;
pub mod parity;
pub mod toy;
