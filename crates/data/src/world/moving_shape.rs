//! What a clip of the world shows: a shape, its colour and where it goes; and its caption.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The outline of what moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// As wide as it is high.
    Circle,
    /// Upright.
    Square,
    /// It points up and is as high as it is wide.
    Triangle,
}

/// The colour of what moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Colour {
    /// Red.
    Red,
    /// Green.
    Green,
    /// Blue.
    Blue,
    /// Yellow.
    Yellow,
    /// Not among [`Colour::ALL`]: for what is taught later.
    Magenta,
    /// Not among [`Colour::ALL`]: for what is taught later.
    Cyan,
}

/// Where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Towards column 0.
    Left,
    /// Away from column 0.
    Right,
    /// Towards row 0.
    Up,
    /// Away from row 0.
    Down,
}

impl Shape {
    /// Every shape.
    pub const ALL: [Shape; 3] = [Shape::Circle, Shape::Square, Shape::Triangle];

    /// Its word in a caption.
    pub fn word(self) -> &'static str {
        match self {
            Shape::Circle => "circle",
            Shape::Square => "square",
            Shape::Triangle => "triangle",
        }
    }
}

impl Colour {
    /// The colours of the ordinary world.
    pub const ALL: [Colour; 4] = [Colour::Red, Colour::Green, Colour::Blue, Colour::Yellow];

    /// Every colour that the judge can name: those of the ordinary world and two more.
    pub const KNOWN: [Colour; 6] =
        [Colour::Red, Colour::Green, Colour::Blue, Colour::Yellow, Colour::Magenta, Colour::Cyan];

    /// Its word in a caption.
    pub fn word(self) -> &'static str {
        match self {
            Colour::Red => "red",
            Colour::Green => "green",
            Colour::Blue => "blue",
            Colour::Yellow => "yellow",
            Colour::Magenta => "magenta",
            Colour::Cyan => "cyan",
        }
    }

    /// Red, green and blue, each from 0 to 1.
    pub fn rgb(self) -> [f32; 3] {
        match self {
            Colour::Red => [1.0, 0.1, 0.1],
            Colour::Green => [0.1, 0.9, 0.2],
            Colour::Blue => [0.1, 0.2, 1.0],
            Colour::Yellow => [1.0, 0.9, 0.1],
            Colour::Magenta => [0.95, 0.15, 0.95],
            Colour::Cyan => [0.1, 0.9, 0.95],
        }
    }
}

impl Direction {
    /// Every direction.
    pub const ALL: [Direction; 4] =
        [Direction::Left, Direction::Right, Direction::Up, Direction::Down];

    /// Its word in a caption.
    pub fn word(self) -> &'static str {
        match self {
            Direction::Left => "left",
            Direction::Right => "right",
            Direction::Up => "up",
            Direction::Down => "down",
        }
    }

    /// One pixel that way, `[columns, rows]`.
    pub fn step(self) -> [f64; 2] {
        match self {
            Direction::Left => [-1.0, 0.0],
            Direction::Right => [1.0, 0.0],
            Direction::Up => [0.0, -1.0],
            Direction::Down => [0.0, 1.0],
        }
    }
}

/// All that a caption says. It is written and read as the caption.
///
/// ```
/// use data::world::{Colour, Direction, MovingShape, Shape};
///
/// let scene: MovingShape = "a red circle moves left".parse()?;
/// assert_eq!((scene.colour, scene.shape, scene.direction), (Colour::Red, Shape::Circle, Direction::Left));
/// assert_eq!(scene.to_string(), "a red circle moves left");
/// # Ok::<(), data::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MovingShape {
    /// What moves.
    pub shape: Shape,
    /// Its colour.
    pub colour: Colour,
    /// Where it goes.
    pub direction: Direction,
}

impl MovingShape {
    /// Every combination of the ordinary world: 3 shapes, 4 colours, 4 directions.
    pub fn all() -> Vec<MovingShape> {
        MovingShape::of(&Colour::ALL)
    }

    /// Every combination with these colours, the direction changing fastest.
    pub fn of(colours: &[Colour]) -> Vec<MovingShape> {
        let mut scenes = Vec::new();
        for shape in Shape::ALL {
            for &colour in colours {
                let scene = |direction| MovingShape { shape, colour, direction };
                scenes.extend(Direction::ALL.map(scene));
            }
        }
        scenes
    }
}

impl fmt::Display for MovingShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MovingShape { shape, colour, direction } = self;
        write!(f, "a {} {} moves {}", colour.word(), shape.word(), direction.word())
    }
}

impl FromStr for MovingShape {
    type Err = Error;

    fn from_str(caption: &str) -> Result<MovingShape, Error> {
        let wrong = |reason: String| Error::Caption { caption: caption.to_owned(), reason };
        let words: Vec<&str> = caption.split_whitespace().collect();
        let &["a", colour, shape, "moves", direction] = &words[..] else {
            return Err(wrong("write it like `a red circle moves left`".to_owned()));
        };
        Ok(MovingShape {
            shape: named("shape", shape, &Shape::ALL, Shape::word).map_err(wrong)?,
            colour: named("colour", colour, &Colour::KNOWN, Colour::word).map_err(wrong)?,
            direction: named("direction", direction, &Direction::ALL, Direction::word)
                .map_err(wrong)?,
        })
    }
}

/// The value whose word it is; else what there is.
fn named<T: Copy>(
    what: &str,
    word: &str,
    all: &[T],
    spelt: fn(T) -> &'static str,
) -> Result<T, String> {
    all.iter().copied().find(|value| spelt(*value) == word).ok_or_else(|| {
        let words: Vec<_> = all.iter().map(|value| spelt(*value)).collect();
        format!("there is no {what} `{word}`; there are {}", words.join(", "))
    })
}
