//! Frames per second, as the fraction that containers store.

use super::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// More than this is a typing error.
const FASTEST: f64 = 1000.0;

/// Frames per second, a fraction in lowest terms.
///
/// ```
/// use data::media::FrameRate;
///
/// # fn main() -> data::media::Result<()> {
/// assert_eq!(FrameRate::from_number(23.976)?, FrameRate::new(24_000, 1001)?);
/// assert_eq!("12.5".parse::<FrameRate>()?.to_string(), "25/2");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameRate {
    numerator: u32,
    denominator: u32,
}

impl FrameRate {
    /// `numerator / denominator` frames per second.
    ///
    /// # Errors
    ///
    /// If the rate is not above 0 and up to 1000.
    pub fn new(numerator: u32, denominator: u32) -> Result<FrameRate> {
        let rate = f64::from(numerator) / f64::from(denominator);
        if numerator == 0 || denominator == 0 || rate > FASTEST {
            return Err(Error::Rate { rate: format!("{numerator}/{denominator}") });
        }
        let divisor = greatest_common_divisor(numerator, denominator);
        Ok(FrameRate { numerator: numerator / divisor, denominator: denominator / divisor })
    }

    /// The rate that a decimal number means: 23.976, 29.97 and 59.94 are television's n·1000/1001,
    /// anything else is itself, to a thousandth.
    ///
    /// # Errors
    ///
    /// If the number is not above 0 and up to 1000.
    pub fn from_number(rate: f64) -> Result<FrameRate> {
        let refused = || Error::Rate { rate: rate.to_string() };
        if !(rate > 0.0 && rate <= FASTEST) {
            return Err(refused());
        }
        let whole = rate.round();
        // Rounded to two or three decimals, a television rate is at most this far off.
        let is_television = |whole: f64| (whole * 1000.0 / 1001.0 - rate).abs() < 0.004;
        if (rate - whole).abs() > 1e-9 && whole >= 24.0 && is_television(whole) {
            return FrameRate::new(whole as u32 * 1000, 1001);
        }
        FrameRate::new((rate * 1000.0).round() as u32, 1000).map_err(|_| refused())
    }

    /// The fraction's upper part: the ticks of a second.
    pub fn numerator(&self) -> u32 {
        self.numerator
    }

    /// The fraction's lower part: the ticks that a frame lasts.
    pub fn denominator(&self) -> u32 {
        self.denominator
    }

    /// Frames per second.
    pub fn per_second(&self) -> f64 {
        f64::from(self.numerator) / f64::from(self.denominator)
    }

    /// When a frame starts, in whole hundredths of a second.
    pub(super) fn hundredths(&self, frame: usize) -> u64 {
        let ticks = 100 * frame as u64 * u64::from(self.denominator);
        (ticks + u64::from(self.numerator) / 2) / u64::from(self.numerator)
    }
}

impl fmt::Display for FrameRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.denominator {
            1 => write!(f, "{}", self.numerator),
            denominator => write!(f, "{}/{denominator}", self.numerator),
        }
    }
}

impl FromStr for FrameRate {
    type Err = Error;

    /// A number (`24`, `23.976`) or a fraction (`24000/1001`).
    fn from_str(text: &str) -> Result<FrameRate> {
        let refused = || Error::Rate { rate: format!("`{text}`") };
        match text.split_once('/') {
            Some((numerator, denominator)) => {
                let part = |text: &str| text.parse().map_err(|_| refused());
                FrameRate::new(part(numerator)?, part(denominator)?).map_err(|_| refused())
            }
            None => FrameRate::from_number(text.parse().map_err(|_| refused())?),
        }
    }
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_people_write_them() {
        for (text, want) in [
            ("24", (24, 1)),
            ("16.0", (16, 1)),
            ("12.5", (25, 2)),
            ("0.1", (1, 10)),
            ("23.976", (24_000, 1001)),
            ("23.98", (24_000, 1001)),
            ("29.97", (30_000, 1001)),
            ("59.94", (60_000, 1001)),
            ("119.88", (120_000, 1001)),
            ("29.5", (59, 2)),
            ("7.99", (799, 100)),
            ("30000/1001", (30_000, 1001)),
            ("50/2", (25, 1)),
        ] {
            let rate: FrameRate = text.parse().unwrap();
            assert_eq!((rate.numerator, rate.denominator), want, "{text}");
            assert_eq!(rate.to_string().parse::<FrameRate>().unwrap(), rate);
        }
        for text in ["0", "-3", "NaN", "inf", "1001", "", "24/0", "0/0", "1/x", "fast", "0.0001"] {
            let message = text.parse::<FrameRate>().unwrap_err().to_string();
            assert!(message.contains("no frame rate"), "{message}");
        }
    }

    #[test]
    fn frames_start_at_the_nearest_hundredth() {
        let rate = FrameRate::new(24, 1).unwrap();
        let starts: Vec<u64> = (0..=6).map(|frame| rate.hundredths(frame)).collect();
        assert_eq!(starts, [0, 4, 8, 13, 17, 21, 25]);
        assert_eq!(rate.hundredths(24 * 3600), 360_000);
    }
}
