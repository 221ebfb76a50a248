//! What the tests of several crates share: the smallest family, kinds of network that the table
//! has none of, and the law of layouts.
//!
//! Nothing here is shipped.

pub mod contract;
pub mod numbers;
pub mod parity;
pub mod synthetic;
pub mod toy;
