//! What a step costs: operations of a rank, and bytes that it sends to the others.

use methods::Rollout;
use nn::Recompute;
use train::STUDENT;

use super::Share;
use super::activations::{Tokens, Width};
use crate::model::Model;
use crate::schema::{MethodConfig, Recipe};

/// What one rank does in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Effort {
    /// Floating-point operations.
    pub operations: f64,
    /// Bytes that are sent to other ranks: parameters that are lent, gradients that are added up. What ranks of one
    /// process lend each other is not copied.
    pub sent: f64,
}

impl Effort {
    /// Both together.
    pub(super) fn and(self, other: Effort) -> Effort {
        let operations = self.operations + other.operations;
        Effort { operations, sent: self.sent + other.sent }
    }

    /// The mean of so many, of which each step has one.
    pub(super) fn shared_by(self, count: usize) -> Effort {
        let count = count.max(1) as f64;
        Effort { operations: self.operations / count, sent: self.sent / count }
    }
}

/// How often a network runs in a step, on average.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Passes {
    /// Without a graph.
    plain: f64,
    /// With one, and back.
    learning: f64,
}

impl MethodConfig {
    /// How often a role runs in a step.
    fn passes(&self, role: &str) -> Passes {
        let config = match self {
            MethodConfig::Finetune(_) | MethodConfig::DiffusionForcing(_) => {
                return Passes { plain: 0.0, learning: 1.0 };
            }
            MethodConfig::Dmd2(config) => config,
        };
        let updates = 1.0 / config.student_every.max(1) as f64;
        // A rollout ends at one of the timesteps, each as often as any other.
        let before = match config.rollout {
            Rollout::Simulate => (config.timesteps.len().max(1) - 1) as f64 / 2.0,
            Rollout::Data => 0.0,
        };
        match role {
            STUDENT => Passes { plain: before + 1.0 - updates, learning: updates },
            "teacher" => {
                let guided = if config.guidance == 1.0 { 1.0 } else { 2.0 };
                Passes { plain: guided * updates, learning: 0.0 }
            }
            _ => Passes { plain: updates, learning: 1.0 },
        }
    }
}

impl Recipe {
    /// What a role costs one rank in a step, of which so many bytes learn.
    pub(super) fn effort(
        &self,
        (role, model): (&str, &Model),
        (width, recompute): (&Width, Recompute),
        (share, learnt): (Share, u64),
    ) -> Effort {
        let Passes { plain, learning } = self.method.passes(role);
        let micro_batches = self.run.accumulation.max(1) as f64;
        let Tokens { video, audio, .. } = share.tokens;
        let tokens = (video + audio) as f64;
        let of_sample = tokens * share.sequence as f64 / self.data.batch.max(1) as f64;
        let forward = tokens * (width.operations() / share.tensor as f64)
            + tokens * width.mixing(of_sample) / share.tensor as f64;
        let all = super::bytes(&model.store) as f64;
        // Of what learns the gradients of its weights, of everything those of its inputs.
        let back = 1.0 + (learnt as f64 / all.max(1.0)).min(1.0);
        let again = width.recomputed(recompute);
        let operations = forward * (plain + learning * (1.0 + back + again)) * micro_batches;
        Effort {
            operations,
            sent: self.sent((all, learnt as f64), share, (plain, learning, again)),
        }
    }

    /// Bytes that a rank sends of a role in a step.
    fn sent(
        &self,
        (all, learnt): (f64, f64),
        share: Share,
        (plain, learning, again): (f64, f64, f64),
    ) -> f64 {
        let micro_batches = self.run.accumulation.max(1) as f64;
        let (shard, ranks) = (share.shard as f64, share.ranks as f64);
        // Parameters are gathered for every pass, and once more to go back where blocks are let go of.
        let lent = all * (shard - 1.0) / shard;
        let gathers = (plain + learning * (1.0 + again)) * micro_batches;
        let copies = ranks / shard;
        let summed = match shard > 1.0 {
            // Every rank gives each owner in every copy its part of the sum.
            true => learnt * (1.0 - 1.0 / ranks) * copies,
            // A share of the sum is added up by each, and told to all.
            false => 2.0 * learnt * (1.0 - 1.0 / ranks),
        };
        lent * gathers + summed * learning.min(1.0)
    }
}
