//! The tone that goes with a clip: one pitch per direction, or per colour.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::moving_shape::{Colour, Direction, MovingShape};

/// The pitches in hertz, a major third apart.
pub const PITCHES: [f64; 6] = [262.0, 330.0, 415.0, 523.0, 659.0, 831.0];

/// How loud a tone is; full scale is 1.
const AMPLITUDE: f64 = 0.5;

/// What decides the pitch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Follows {
    /// Where the shape goes.
    Direction,
    /// Its colour.
    Colour,
}

/// The sound of a world.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tone {
    /// What decides the pitch.
    pub follows: Follows,
    /// Samples per second.
    pub sample_rate: u32,
}

impl Default for Tone {
    fn default() -> Tone {
        Tone { follows: Follows::Direction, sample_rate: 8000 }
    }
}

impl Tone {
    /// Which of the [`PITCHES`] belongs to a scene.
    pub fn pitch(&self, scene: &MovingShape) -> usize {
        let place = match self.follows {
            Follows::Direction => Direction::ALL.iter().position(|it| *it == scene.direction),
            Follows::Colour => Colour::KNOWN.iter().position(|it| *it == scene.colour),
        };
        place.expect("every direction and every colour is listed")
    }

    /// The waveform of a scene, mono, for so many seconds.
    pub fn waveform(&self, scene: &MovingShape, seconds: f64) -> Vec<f32> {
        let rate = f64::from(self.sample_rate);
        let angle = std::f64::consts::TAU * PITCHES[self.pitch(scene)] / rate;
        let samples = (seconds * rate).round() as usize;
        // `libm`, so that the bits are the same on every machine.
        (0..samples).map(|at| (AMPLITUDE * libm::sin(angle * at as f64)) as f32).collect()
    }
}
