//! Every kernel against its sum, to the bit.

use super::*;

/// Distance between rows of the result: more than a tile is wide.
const STRIDE: usize = PANELS * COLUMNS + 3;

/// What the words of a product are, and how one of each side goes into a sum.
struct Kind {
    operands: Operands,
    sum: Sum,
    left: fn(usize) -> f32,
    right: fn(usize) -> f32,
    step: fn(f32, f32, f32) -> f32,
}

/// A product of six rows and four panels.
struct Case<'a> {
    kind: &'a Kind,
    depth: usize,
    left: Vec<f32>,
    panels: Vec<f32>,
    before: Vec<f32>,
}

/// A number between -5.2 and 5.2 that looks like chance.
fn value(index: usize) -> f32 {
    ((index * 7919 % 1009) as f32 - 504.0) / 97.0
}

/// A whole number between -127 and 127 that looks like chance.
fn integer(index: usize) -> i32 {
    (index * 7919 % 1009 % 255) as i32 - 127
}

fn word(halves: [u16; 2]) -> f32 {
    f32::from_bits(u32::from(halves[0]) | u32::from(halves[1]) << 16)
}

fn of_bytes(bytes: [u8; 4]) -> f32 {
    f32::from_bits(u32::from_le_bytes(bytes))
}

fn integers(sum: f32, add: i32) -> f32 {
    f32::from_bits(sum.to_bits().cast_signed().wrapping_add(add).cast_unsigned())
}

const FLOATS: Kind = Kind {
    operands: Operands::F32,
    sum: Sum::Float,
    left: value,
    right: value,
    // One chain of fused multiply-adds from zero.
    step: |sum, left, right| left.mul_add(right, sum),
};

const BF16: Kind = Kind {
    operands: Operands::Bf16,
    sum: Sum::Float,
    left: |index| word([0, 1].map(|half| half::bf16::from_f32(value(2 * index + half)).to_bits())),
    right: |index| word([0, 1].map(|half| half::bf16::from_f32(value(3 * index + half)).to_bits())),
    // The same chain: of each pair the second first, as both Intel and AMD have it.
    step: |sum, left, right| {
        let halves =
            |word: f32| [word.to_bits() << 16, word.to_bits() & 0xffff_0000].map(f32::from_bits);
        let (left, right) = (halves(left), halves(right));
        left[0].mul_add(right[0], left[1].mul_add(right[1], sum))
    },
};

fn short(index: usize) -> f32 {
    word([0, 1].map(|half| (integer(2 * index + half) as i16).cast_unsigned()))
}

const SHORTS: Kind = Kind {
    operands: Operands::Int8,
    sum: Sum::Integer,
    left: short,
    right: short,
    step: |sum, left, right| {
        let halves = |word: f32| {
            let bits = word.to_bits().cast_signed();
            [bits << 16 >> 16, bits >> 16]
        };
        let (left, right) = (halves(left), halves(right));
        integers(sum, left[0] * right[0] + left[1] * right[1])
    },
};

const BYTES: Kind = Kind {
    operands: Operands::Int8,
    sum: Sum::Integer,
    // The largest bytes side by side would not fit the sixteen bits of a multiply-add that saturates.
    left: |index| of_bytes([255, 255, 254, (integer(index) + 128) as u8]),
    right: |index| of_bytes([0, 1, 2, 3].map(|at| (integer(4 * index + at) as i8).cast_unsigned())),
    step: |sum, left, right| {
        let right = right.to_bits().to_le_bytes().map(|byte| i32::from(byte.cast_signed()));
        let left = left.to_bits().to_le_bytes().map(i32::from);
        integers(sum, left.iter().zip(right).map(|(left, right)| left * right).sum())
    },
};

impl Case<'_> {
    fn new(kind: &Kind, depth: usize) -> Case<'_> {
        let words = |count, word: fn(usize) -> f32| (0..count).map(word).collect();
        let left = words(ROWS * depth, kind.left);
        let panels = words(PANELS * depth * COLUMNS, kind.right);
        Case { kind, depth, left, panels, before: words(ROWS * STRIDE, value) }
    }

    fn compute(&self, kernels: Kernels, size: (usize, usize), write: Write) -> Vec<f32> {
        let mut out = self.before.clone();
        let tile = Tile {
            depth: self.depth,
            rows: &std::array::from_fn(|row| self.left[row * self.depth..].as_ptr()),
            panels: self.panels.as_ptr(),
            apart: self.depth * COLUMNS,
            out: out.as_mut_ptr(),
            stride: STRIDE,
            height: size.0,
            width: size.1,
            write,
        };
        // SAFETY: rows and panels have `depth` words, `out` has room for every tile.
        unsafe { kernels.compute(&tile) };
        out
    }

    /// What a kernel is to leave in a place.
    fn expected(&self, row: usize, column: usize, write: Write) -> f32 {
        let panel = &self.panels[column / COLUMNS * self.depth * COLUMNS..];
        let sum = (0..self.depth).fold(0.0_f32, |sum, k| {
            let right = panel[k * COLUMNS + column % COLUMNS];
            (self.kind.step)(sum, self.left[row * self.depth + k], right)
        });
        let before = self.before[row * STRIDE + column];
        match (write, self.kind.sum) {
            (Write::Store, _) => sum,
            (Write::Add, Sum::Float) => before + sum,
            (Write::Add, Sum::Integer) => integers(before, sum.to_bits().cast_signed()),
        }
    }

    /// Every element of a tile has the bits of its sum, and nothing beside the tile is written.
    fn check(&self, set: InstructionSet, kernels: Kernels, size: (usize, usize)) {
        for write in [Write::Store, Write::Add] {
            let out = self.compute(kernels, size, write);
            for (index, (value, before)) in out.iter().zip(&self.before).enumerate() {
                let (row, column) = (index / STRIDE, index % STRIDE);
                let expected = match row < size.0 && column < size.1 {
                    true => self.expected(row, column, write),
                    false => *before,
                };
                let place = format!("{set}, {size:?} of depth {}: {row} {column}", self.depth);
                assert_eq!(value.to_bits(), expected.to_bits(), "{place}");
            }
        }
    }
}

/// Every size of a tile under every set of the machine that has the kernels.
fn check(kind: &Kind, kernels: impl Fn() -> Option<Kernels> + Sync) {
    for set in InstructionSet::with_own(kind.operands) {
        let Some(kernels) = set.pool(1).unwrap().install(&kernels) else { continue };
        for depth in [0, 1, 2, 7, 33] {
            let case = Case::new(kind, depth);
            for height in 1..=ROWS {
                for width in 1..=kernels.most() * COLUMNS {
                    case.check(set, kernels, (height, width));
                }
            }
        }
    }
}

#[test]
fn an_element_is_one_chain_of_fused_multiply_adds() {
    // Without fused multiply-adds the portable kernel rounds twice.
    let fused = InstructionSet::Avx2;
    check(&FLOATS, || (InstructionSet::in_use() >= fused).then(Kernels::in_use));
}

#[test]
fn an_element_of_bf16_is_one_chain_too() {
    check(&BF16, Kernels::of_bf16);
}

#[test]
fn integers_are_summed_without_loss() {
    let of = |form| {
        move || {
            let (kernels, own) = Kernels::of_int8();
            (own == form).then_some(kernels)
        }
    };
    check(&SHORTS, of(Integers::Shorts));
    check(&BYTES, of(Integers::Bytes));
}

#[test]
fn groups_are_even_and_hold_every_panel() {
    let kernels = Kernels { most: 4, ..Kernels::PORTABLE };
    let expected: [&[usize]; 10] =
        [&[], &[1], &[2], &[3], &[4], &[3, 2], &[3, 3], &[4, 3], &[4, 4], &[3, 3, 3]];
    for (count, expected) in expected.into_iter().enumerate() {
        let groups: Vec<_> = kernels.groups(3..3 + count).collect();
        assert_eq!(groups.iter().map(Range::len).collect::<Vec<_>>(), expected);
        assert!(groups.into_iter().flatten().eq(3..3 + count), "{count} panels");
    }
}
