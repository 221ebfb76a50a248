//! What a layout costs, before anything is loaded: memory, traffic and time of every rank.
//!
//! Pure arithmetic on three values: a [`Work`] (what a network multiplies and mixes, and how often), a
//! [`Hardware`] (rates, links, memory) and a [`Plan`]. Traffic is what the communicator counts; time and
//! memory are models of it, which `docs/parallel.md` has the formulas of.

mod choose;
mod hardware;
mod memory;
mod network;
mod shape;
mod share;
#[cfg(test)]
mod tests;
mod time;
mod traffic;

pub use choose::{Candidate, candidates};
pub use hardware::{Hardware, Link};
pub use memory::RankMemory;
pub use network::{Mixing, Network, Part, Product, Rows, Run, Stream, Work};
pub use shape::{Shape, TextRole, TextShape};
pub use time::Seconds;
pub use traffic::{RankTraffic, of_all_steps as traffic_of_all_steps};

use crate::plan::Plan;

/// What a plan costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// Every rank's part of it, by rank.
    pub ranks: Vec<RankForecast>,
    /// How long it takes.
    pub seconds: Seconds,
    /// How much of what all ranks could do is done: one rank's time over that of all ranks together.
    pub efficiency: f64,
    /// Memory of the fullest host at its most, in bytes.
    pub host_bytes: u64,
}

/// What a plan costs one rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankForecast {
    /// Its memory.
    pub memory: RankMemory,
    /// What it sends in a step that is not of the warm-up.
    pub traffic: RankTraffic,
    /// Seconds of a step in which it computes.
    pub busy: f64,
}

/// What a plan costs.
pub fn forecast(plan: &Plan, work: &Work, hardware: &Hardware) -> Forecast {
    let seconds = time::seconds(plan, work, hardware);
    let ranks: Vec<RankForecast> = (0..plan.layout().ranks)
        .map(|rank| RankForecast {
            memory: memory::of_rank(plan, work, hardware, rank),
            traffic: traffic::of_rank(plan, work, hardware, rank),
            busy: time::busy(plan, work, hardware, rank),
        })
        .collect();
    let alone = time::seconds(&plan.alone(), work, hardware).all;
    let efficiency = alone / (seconds.all * ranks.len() as f64);
    let host_bytes = memory::of_host(&ranks, work, hardware);
    Forecast { ranks, seconds, efficiency, host_bytes }
}
