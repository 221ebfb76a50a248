//! AdamW's moments in eight bits: a code for every number and a scale for every block of them (Dettmers et al.
//! 2022, "8-bit Optimizers via Block-wise Quantization").
//!
//! Codes stand for shares of the largest number of a block and are dense near one in every decade, seven decades
//! deep. What is saved are the numbers that the codes stand for. The largest of a block stands for itself, so coding
//! them again gives the same codes and scales, to the bit: a run that goes on is one that was never interrupted.

use burn::tensor::{Device, Tensor, TensorData};
use kernels::{AdamStep, Moments, adamw};
use rayon::prelude::*;

/// Numbers that share a scale.
const BLOCK: usize = 256;

/// Parameters of fewer numbers stay in f32: they are small, and the ones that suffer most.
const FEWEST: usize = 4096;

/// Blocks whose numbers are all nearer to zero are zero, or their codes would drown in subnormal numbers.
const NOTHING: f32 = 1e-35;

/// Decades below the largest number of a block.
const DECADES: usize = 7;

/// Codes of either table, one of them for zero.
const CODES: usize = 255;

/// What the codes of the first moment stand for, in order: 127 magnitudes of either sign, and zero.
static SIGNED: [f32; CODES] = table(true);

/// The same of the second moment, which has no sign: 254 magnitudes and zero.
static UNSIGNED: [f32; CODES] = table(false);

/// The means of the intervals that a decade is cut into, twice as many in each as in the one below it; the largest
/// is one.
const fn table(signed: bool) -> [f32; CODES] {
    let mut table = [0.0; CODES];
    let middle = if signed { CODES / 2 } else { 0 };
    let (mut at, mut decade, mut unit) = (middle + 1, 0, 1e-6);
    while decade < DECADES {
        let intervals = (if signed { 1 } else { 2 }) << decade;
        let mut interval = 0;
        while interval < intervals {
            let share = 0.1 + 0.9 * (interval as f64 + 0.5) / intervals as f64;
            let is_largest = at + 1 == CODES;
            let value = if is_largest { 1.0 } else { (unit * share) as f32 };
            table[at] = value;
            if signed {
                table[2 * middle - at] = -value;
            }
            (at, interval) = (at + 1, interval + 1);
        }
        (decade, unit) = (decade + 1, unit * 10.0);
    }
    table
}

/// Whether a parameter of so many numbers has its moments in eight bits.
pub(super) fn is_coded(numbers: usize) -> bool {
    numbers >= FEWEST
}

/// Bytes of both moments of a parameter.
pub(super) fn bytes(numbers: usize) -> usize {
    2 * (numbers + numbers.div_ceil(BLOCK) * size_of::<f32>())
}

/// Both moments of one parameter.
#[derive(Clone, Debug)]
pub(super) struct CodedMoments {
    first: Coded,
    second: Coded,
    device: Device,
}

impl CodedMoments {
    /// Zeros for a parameter.
    pub(super) fn zeros(like: &Tensor<1>) -> CodedMoments {
        let zeros = vec![0.0; like.dims()[0]];
        let [first, second] = [&SIGNED, &UNSIGNED].map(|table| Coded::new(table, &zeros));
        CodedMoments { first, second, device: like.device() }
    }

    /// One step of AdamW in f32 on the numbers that the codes stand for; they are coded again after it.
    pub(super) fn step(
        &mut self,
        parameter: Tensor<1>,
        gradient: &Tensor<1>,
        step: &AdamStep,
    ) -> Tensor<1> {
        let (parameter, updated) = adamw(parameter, self.moments(), gradient, step);
        self.code(&updated);
        parameter
    }

    /// The numbers that the codes stand for.
    pub(super) fn moments(&self) -> Moments {
        let [first, second] = [&self.first, &self.second].map(|own| own.numbers(&self.device));
        Moments { first, second }
    }

    /// Takes other moments over.
    pub(super) fn code(&mut self, moments: &Moments) {
        let values = |own: &Tensor<1>| own.to_data().iter::<f32>().collect::<Vec<f32>>();
        self.first = Coded::new(&SIGNED, &values(&moments.first));
        self.second = Coded::new(&UNSIGNED, &values(&moments.second));
    }
}

/// Numbers as codes of a table.
#[derive(Clone, Debug, PartialEq)]
struct Coded {
    codes: Vec<u8>,
    scales: Vec<f32>,
    table: &'static [f32; CODES],
}

impl Coded {
    fn new(table: &'static [f32; CODES], numbers: &[f32]) -> Coded {
        let mut codes = vec![0; numbers.len()];
        let scales = codes
            .par_chunks_mut(BLOCK)
            .zip(numbers.par_chunks(BLOCK))
            .map(|(codes, numbers)| {
                let largest = numbers.iter().fold(0.0, |most: f32, own| most.max(own.abs()));
                let scale = if largest < NOTHING { 0.0 } else { largest };
                for (code, number) in codes.iter_mut().zip(numbers) {
                    *code = nearest(table, if scale > 0.0 { number / scale } else { 0.0 });
                }
                scale
            })
            .collect();
        Coded { codes, scales, table }
    }

    fn numbers(&self, device: &Device) -> Tensor<1> {
        let mut numbers = vec![0.0; self.codes.len()];
        numbers.par_chunks_mut(BLOCK).zip(self.codes.par_chunks(BLOCK)).zip(&self.scales).for_each(
            |((numbers, codes), scale)| {
                for (number, code) in numbers.iter_mut().zip(codes) {
                    *number = self.table[usize::from(*code)] * scale;
                }
            },
        );
        let length = numbers.len();
        Tensor::from_data(TensorData::new(numbers, [length]), device)
    }
}

/// The code of the nearest number. Without signs only zero is coded as zero: a second moment of zero beside a first
/// one that is not would make a step of any size.
fn nearest(table: &[f32; CODES], share: f32) -> u8 {
    let above = table.partition_point(|own| *own < share).min(CODES - 1);
    let below = above.saturating_sub(1);
    let is_below = share - table[below] < table[above] - share;
    let code = if is_below { below } else { above };
    let is_lost = code == 0 && table[0] == 0.0 && share > 0.0;
    (if is_lost { 1 } else { code }) as u8
}

#[cfg(test)]
mod tests {
    use diffusion::Draw;

    use super::*;

    #[test]
    fn tables_rise_and_reach_one() {
        for (table, zero) in [(&SIGNED, 127), (&UNSIGNED, 0)] {
            assert!(table.is_sorted_by(|a, b| a < b));
            assert_eq!((table[zero], table[CODES - 1]), (0.0, 1.0));
        }
        assert_eq!(SIGNED[0], -1.0);
    }

    /// Numbers over many decades, some blocks of which are zero and some all but zero.
    fn numbers(count: usize) -> Vec<f32> {
        let (sizes, signs) = (Draw::new(1).stream("sizes"), Draw::new(1).stream("signs"));
        let both = sizes.uniform(0..count).into_iter().zip(signs.normal(0..count));
        let mut all: Vec<f32> =
            both.map(|(size, sign)| sign * 10_f32.powf(6.0 * size - 12.0)).collect();
        all[BLOCK..2 * BLOCK].fill(0.0);
        all[3 * BLOCK..4 * BLOCK].iter_mut().for_each(|own| *own *= 1e-27);
        all[4 * BLOCK..5 * BLOCK].iter_mut().for_each(|own| *own *= 1e-22);
        all
    }

    #[test]
    fn what_codes_stand_for_has_the_same_codes() {
        let numbers = numbers(20 * BLOCK + 77);
        let squares: Vec<f32> = numbers.iter().map(|own| own * own).collect();
        for (table, numbers) in [(&SIGNED, numbers), (&UNSIGNED, squares)] {
            let coded = Coded::new(table, &numbers);
            let stood_for: Vec<f32> =
                coded.numbers(&Device::flex()).into_data().iter::<f32>().collect();
            assert_eq!(Coded::new(table, &stood_for), coded);
            // The largest of a block is itself, and none is off by more than its decade is cut fine.
            for (own, found) in numbers.chunks(BLOCK).zip(stood_for.chunks(BLOCK)) {
                let largest = own.iter().fold(0.0, |most: f32, own| most.max(own.abs()));
                for (own, found) in own.iter().zip(found) {
                    assert!(largest < NOTHING || own.abs() < largest || own == found);
                    let off = (own - found).abs();
                    // Dense in the first decade; seven decades below it only the order is kept.
                    assert!(off <= 0.75 * own.abs() + 1e-6 * largest, "{own} became {found}");
                    let is_large = own.abs() >= 0.1 * largest;
                    assert!(!is_large || off <= 0.011 * largest, "{own} became {found}");
                }
            }
        }
    }

    #[test]
    fn no_second_moment_is_lost() {
        let mut numbers = vec![1e-12; BLOCK];
        (numbers[0], numbers[1]) = (1.0, 0.0);
        let coded = Coded::new(&UNSIGNED, &numbers);
        assert_eq!(coded.codes[..3], [254, 0, 1]);
    }

    #[test]
    fn a_byte_for_a_number_and_four_for_a_block() {
        for count in [FEWEST, FEWEST + 1, 10 * BLOCK + 3] {
            let coded = Coded::new(&SIGNED, &vec![0.0; count]);
            assert_eq!(2 * (coded.codes.len() + 4 * coded.scales.len()), bytes(count));
        }
    }
}
