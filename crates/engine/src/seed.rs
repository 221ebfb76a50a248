//! Seeds: a number, or one that is drawn.

use std::hash::{BuildHasher, RandomState};
use std::str::FromStr;

/// The seed that a user asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seed {
    /// This one.
    Number(u64),
    /// Any.
    Random,
}

impl FromStr for Seed {
    type Err = String;

    fn from_str(text: &str) -> Result<Seed, String> {
        match text {
            "-1" | "random" => Ok(Seed::Random),
            text => text.parse().map(Seed::Number).map_err(|_| {
                "a seed is a whole number from 0 on; -1 or `random` draws one".to_owned()
            }),
        }
    }
}

impl Seed {
    /// The same, drawn if it is to be: short enough to be typed, and different each time.
    pub fn drawn(self) -> Seed {
        match self {
            Seed::Number(_) => self,
            // The keys of the system's hash maps are random.
            Seed::Random => Seed::Number(RandomState::new().hash_one(0) >> 32),
        }
    }

    /// The number, drawn if it is to be.
    pub fn number(self) -> u64 {
        match self.drawn() {
            Seed::Number(seed) => seed,
            Seed::Random => 0,
        }
    }
}
