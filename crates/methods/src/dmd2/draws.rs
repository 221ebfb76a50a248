//! Everything that one step of DMD2 draws, drawn beforehand.

use burn::tensor::Tensor;
use diffusion::{NoiseLevels, Scene, shifted_level};
use nn::Tracks;
use train::{Draws, noise_for};

use super::Dmd2Config;

/// Levels are drawn from so many.
const STEPS: f64 = 1000.0;

/// The random choices of one micro-batch.
#[derive(Clone, Debug)]
pub struct Dmd2Draws {
    /// At which of the student's timesteps its sample is taken. One for all samples: it decides how
    /// often networks run.
    pub exit: usize,
    /// The noise before each of the student's steps up to that one, `[B, N, C]` per track.
    pub rollout: Vec<Tracks<Tensor<3>>>,
    /// At which levels the student's sample is scored, and with which noise.
    pub score: (Tracks<NoiseLevels>, Tracks<Tensor<3>>),
    /// The same for what the critic learns.
    pub critic: (Tracks<NoiseLevels>, Tracks<Tensor<3>>),
}

impl Dmd2Draws {
    /// Draws all of them.
    pub fn new(config: &Dmd2Config, scene: &Scene, draws: &Draws) -> Dmd2Draws {
        let draws = draws.below("dmd2");
        let unit = draws.shared("exit").uniform(0..1)[0];
        let count = config.timesteps.len();
        let exit = ((f64::from(unit) * count as f64) as usize).min(count - 1);
        let rollout = (0..=exit).map(|step| noise_for(scene, &draws, &format!("rollout.{step}")));
        Dmd2Draws {
            exit,
            rollout: rollout.collect(),
            score: scored(config, scene, &draws, "score"),
            critic: scored(config, scene, &draws, "critic"),
        }
    }
}

/// Levels within the range, one per sample for all its tracks, and noise.
fn scored(
    config: &Dmd2Config,
    scene: &Scene,
    draws: &Draws,
    name: &str,
) -> (Tracks<NoiseLevels>, Tracks<Tensor<3>>) {
    let [low, high] = config.score_range.map(|share| (share * STEPS).floor() / STEPS);
    let level = |unit: f32| {
        let even = (f64::from(unit) * STEPS).floor() / STEPS;
        shifted_level(even, config.shift).clamp(low, high) as f32
    };
    let units = draws.uniform(&format!("{name}.level"));
    let levels = NoiseLevels::per_sample(units.into_iter().map(level).collect());
    (scene.each(|_, _| levels.clone()), noise_for(scene, draws, &format!("{name}.noise")))
}
