//! How numbers become places on an axis, which of them are written beside it, and how.

/// From how many decades on an axis of positive numbers is logarithmic.
const DECADES: f64 = 1.5;

/// The narrowest range that arithmetic can still divide.
const NARROWEST: f64 = 1e-100;

/// An axis from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Axis {
    /// The ends; their logarithms if the axis is logarithmic.
    low: f64,
    high: f64,
    pub(super) is_logarithmic: bool,
}

/// A number beside an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    pub(super) place: f64,
    pub(super) label: String,
}

impl Axis {
    /// An axis for these values, all finite; none if there are none.
    pub(super) fn of_values(values: impl Iterator<Item = f64>) -> Option<Axis> {
        let (low, high) = ends(values)?;
        if low > 0.0 && high.log10() - low.log10() > DECADES {
            let (low, high) = (low.log10(), high.log10());
            let margin = 0.04 * (high - low);
            return Some(Axis { low: low - margin, high: high + margin, is_logarithmic: true });
        }
        let axis = Axis::linear(low, high);
        let margin = 0.06 * (axis.high - axis.low);
        // Below zero there is nothing, unless there is.
        let bottom = if low >= 0.0 { (axis.low - margin).max(0.0) } else { axis.low - margin };
        Some(Axis { low: bottom, high: axis.high + margin, ..axis })
    }

    /// An axis for these steps.
    pub(super) fn of_steps(steps: impl Iterator<Item = f64>) -> Option<Axis> {
        let (low, high) = ends(steps)?;
        Some(Axis::linear(low, high))
    }

    /// A range of a single number gets some room on both sides.
    fn linear(low: f64, high: f64) -> Axis {
        let size = low.abs().max(high.abs());
        let is_flat = high - low <= (1e-9 * size).max(NARROWEST);
        let room = match (is_flat, size > NARROWEST) {
            (false, _) => 0.0,
            (true, true) => 0.1 * size,
            (true, false) => 1.0,
        };
        Axis { low: low - room, high: high + room, is_logarithmic: false }
    }

    /// From 0 at the low end to 1 at the high end.
    pub(super) fn place(&self, value: f64) -> f64 {
        let value = if self.is_logarithmic { value.log10() } else { value };
        (value - self.low) / (self.high - self.low)
    }

    /// A handful of round values.
    pub(super) fn value_ticks(&self) -> Vec<Tick> {
        let values = if self.is_logarithmic { self.decades() } else { self.round(None) };
        self.ticks(&values, number)
    }

    /// A handful of round whole numbers.
    pub(super) fn step_ticks(&self) -> Vec<Tick> {
        self.ticks(&self.round(Some(1.0)), count)
    }

    fn ticks(&self, values: &[f64], label: impl Fn(f64) -> String) -> Vec<Tick> {
        let tick = |value: &f64| Tick { place: self.place(*value), label: label(*value) };
        let inside = |tick: &Tick| (-1e-9..=1.0 + 1e-9).contains(&tick.place);
        values.iter().map(tick).filter(inside).collect()
    }

    /// Multiples of 1, 2 or 5 times a power of ten.
    fn round(&self, smallest: Option<f64>) -> Vec<f64> {
        let rough = (self.high - self.low) / 6.0;
        let power = 10f64.powf(rough.log10().floor());
        let wide_enough = |factor: &f64| factor * power >= 0.999 * rough;
        let factor = [1.0, 2.0, 5.0].into_iter().find(wide_enough).unwrap_or(10.0);
        let between = smallest.unwrap_or_default().max(factor * power);
        let (first, last) = ((self.low / between).ceil(), (self.high / between).floor());
        // The range is at most six times as wide as the distance, give or take a rounding.
        let several = (0..10).map(|index| first + f64::from(index));
        several
            .take_while(|multiple| *multiple <= last)
            .map(|multiple| multiple * between)
            .collect()
    }

    /// Powers of ten, with their double and fivefold if that leaves room.
    fn decades(&self) -> Vec<f64> {
        let wide = self.high - self.low;
        let factors: &[f64] = if wide < 3.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let factors = if wide < 2.2 { factors } else { &factors[..1] };
        let stride = (wide / 6.0).ceil().max(1.0);
        let first = (self.low / stride).floor() * stride;
        let powers = (0..10).map(|index| first + stride * f64::from(index));
        let powers = powers.take_while(|power| *power <= self.high);
        powers
            .flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powf(power)))
            .collect()
    }
}

fn ends(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |ends, value| match ends {
        None => Some((value, value)),
        Some((low, high)) => Some((value.min(low), value.max(high))),
    })
}

/// A number in about four digits.
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    if size < 1e-300 {
        return "0".to_owned();
    }
    if !(1e-3..1e5).contains(&size) {
        let text = format!("{value:.2e}");
        let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}e{power}", trimmed(digits));
    }
    let decimals = (3 - size.log10().floor() as i32).clamp(0, 6) as usize;
    trimmed(&format!("{value:.decimals$}")).to_owned()
}

/// A count in few letters.
pub(super) fn count(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{}M", number(value / 1e6)),
        value if value >= 1e4 => format!("{}k", number(value / 1e3)),
        value => number(value),
    }
}

/// Without zeros at the end of a fraction.
fn trimmed(digits: &str) -> &str {
    match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => digits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(values: &[f64]) -> Axis {
        Axis::of_values(values.iter().copied()).unwrap()
    }

    fn labels(ticks: &[Tick]) -> Vec<&str> {
        ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn wide_ranges_of_positive_numbers_are_logarithmic() {
        assert!(axis(&[0.01, 0.4]).is_logarithmic);
        assert!(!axis(&[0.01, 0.3]).is_logarithmic);
        assert!(!axis(&[0.0, 1000.0]).is_logarithmic);
        assert!(!axis(&[-0.01, 1000.0]).is_logarithmic);
    }

    #[test]
    fn ticks_are_round_and_in_their_place() {
        let steps = Axis::of_steps([0.0, 1000.0].into_iter()).unwrap();
        assert_eq!(labels(&steps.step_ticks()), ["0", "200", "400", "600", "800", "1000"]);
        assert_eq!(steps.step_ticks()[1].place, 0.2);
        let few = Axis::of_steps([1.0, 3.0].into_iter()).unwrap();
        assert_eq!(labels(&few.step_ticks()), ["1", "2", "3"]);
        let losses = axis(&[0.1, 0.9]);
        assert_eq!(labels(&losses.value_ticks()), ["0.2", "0.4", "0.6", "0.8"]);
        let rates = axis(&[1e-5, 1e-3]);
        assert_eq!(
            labels(&rates.value_ticks()),
            ["1e-5", "2e-5", "5e-5", "1e-4", "2e-4", "5e-4", "0.001"]
        );
        assert!((rates.value_ticks()[3].place - 0.5).abs() < 1e-12);
        let wide = axis(&[1e-40, 1e20]);
        assert_eq!(labels(&wide.value_ticks()).len(), 6);
    }

    #[test]
    fn numbers_are_short() {
        let cases = [
            (0.0, "0"),
            (1.0, "1"),
            (0.123456, "0.1235"),
            (-0.5, "-0.5"),
            (12345.6, "12346"),
            (100.0, "100"),
            (1e5, "1e5"),
            (0.000234, "2.34e-4"),
            (2e-7, "2e-7"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
        assert_eq!([count(9000.0), count(12500.0), count(3e6)], ["9000", "12.5k", "3M"]);
    }

    #[test]
    fn no_range_is_too_strange() {
        let strange = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            1e-320,
            -1e-320,
            5e-324,
            1e100,
            -1e100,
            1e-100,
            0.1,
            0.1 + 1e-15,
            1e16,
            1e16 + 2.0,
        ];
        for one in strange {
            for other in strange {
                let axis = axis(&[one, other]);
                for place in [axis.place(one), axis.place(other)] {
                    assert!((0.0..=1.0).contains(&place), "{one} {other} {axis:?}");
                }
                let ticks = axis.value_ticks();
                assert!((1..=12).contains(&ticks.len()), "{one} {other} {ticks:?}");
                assert!(ticks.iter().all(|tick| (-0.01..=1.01).contains(&tick.place)));
            }
        }
    }
}
