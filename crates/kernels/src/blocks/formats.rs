//! What the bytes of a block stand for, format by format, in the operations and the order of ggml's own
//! reference: a number has the same bits here and there.

use half::f16;

/// Numbers of a block whose format has a K in its name.
const MANY: usize = 256;
/// Numbers of any other block.
const FEW: usize = 32;

/// A format of blocks.
pub(super) trait Format {
    /// Numbers of a block.
    const LENGTH: usize;
    /// Its bytes.
    const BYTES: usize;

    /// The numbers of one block, `LENGTH` of them from `BYTES`.
    fn widen(block: &[u8], to: &mut [f32]);
}

/// A number of two bytes.
#[inline(always)]
fn short(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// The bit of each of 32 numbers, as 16.
#[inline(always)]
fn fifth(high: u32, number: usize) -> u8 {
    ((high >> number & 1) << 4) as u8
}

/// A scale and numbers of four bits: the first half in the lower ones.
pub(super) struct Q4_0;

impl Format for Q4_0 {
    const LENGTH: usize = FEW;
    const BYTES: usize = 2 + FEW / 2;

    #[inline(always)]
    fn widen(block: &[u8], to: &mut [f32]) {
        let scale = short(block, 0);
        let (low, high) = to.split_at_mut(FEW / 2);
        for ((byte, low), high) in block[2..].iter().zip(low).zip(high) {
            *low = scale * (i32::from(byte & 15) - 8) as f32;
            *high = scale * (i32::from(byte >> 4) - 8) as f32;
        }
    }
}

/// The same with a least number.
pub(super) struct Q4_1;

impl Format for Q4_1 {
    const LENGTH: usize = FEW;
    const BYTES: usize = 4 + FEW / 2;

    #[inline(always)]
    fn widen(block: &[u8], to: &mut [f32]) {
        let (scale, least) = (short(block, 0), short(block, 2));
        let (low, high) = to.split_at_mut(FEW / 2);
        for ((byte, low), high) in block[4..].iter().zip(low).zip(high) {
            *low = scale * f32::from(byte & 15) + least;
            *high = scale * f32::from(byte >> 4) + least;
        }
    }
}

/// Five bits, the fifth of all numbers by themselves.
pub(super) struct Q5_0;

impl Format for Q5_0 {
    const LENGTH: usize = FEW;
    const BYTES: usize = 6 + FEW / 2;

    #[inline(always)]
    fn widen(block: &[u8], to: &mut [f32]) {
        let scale = short(block, 0);
        let top = u32::from_le_bytes([block[2], block[3], block[4], block[5]]);
        let (low, high) = to.split_at_mut(FEW / 2);
        for (at, ((byte, low), high)) in block[6..].iter().zip(low).zip(high).enumerate() {
            let number = [byte & 15 | fifth(top, at), byte >> 4 | fifth(top, at + FEW / 2)];
            *low = scale * (i32::from(number[0]) - 16) as f32;
            *high = scale * (i32::from(number[1]) - 16) as f32;
        }
    }
}

/// The same with a least number.
pub(super) struct Q5_1;

impl Format for Q5_1 {
    const LENGTH: usize = FEW;
    const BYTES: usize = 8 + FEW / 2;

    #[inline(always)]
    fn widen(block: &[u8], to: &mut [f32]) {
        let (scale, least) = (short(block, 0), short(block, 2));
        let top = u32::from_le_bytes([block[4], block[5], block[6], block[7]]);
        let (low, high) = to.split_at_mut(FEW / 2);
        for (at, ((byte, low), high)) in block[8..].iter().zip(low).zip(high).enumerate() {
            let number = [byte & 15 | fifth(top, at), byte >> 4 | fifth(top, at + FEW / 2)];
            *low = scale * f32::from(number[0]) + least;
            *high = scale * f32::from(number[1]) + least;
        }
    }
}

/// A scale and whole bytes.
pub(super) struct Q8_0;

impl Format for Q8_0 {
    const LENGTH: usize = FEW;
    const BYTES: usize = 2 + FEW;

    #[inline(always)]
    fn widen(block: &[u8], to: &mut [f32]) {
        let scale = short(block, 0);
        for (byte, to) in block[2..].iter().zip(to) {
            *to = f32::from(byte.cast_signed()) * scale;
        }
    }
}

/// Scales and least numbers of the eight parts of a block, of six bits each in twelve bytes.
#[inline(always)]
pub(super) fn scales_and_least(packed: &[u8]) -> [[u8; 8]; 2] {
    let mut both = [[0; 8]; 2];
    for at in 0..4 {
        let (scale, least, rest) = (packed[at], packed[at + 4], packed[at + 8]);
        both[0][at] = scale & 63;
        both[1][at] = least & 63;
        both[0][at + 4] = rest & 15 | scale >> 2 & 48;
        both[1][at + 4] = rest >> 4 | least >> 2 & 48;
    }
    both
}

/// Eight parts of 32 numbers of four bits; the scale and the least number of each are six bits.
pub(super) struct Q4K;

impl Format for Q4K {
    const LENGTH: usize = MANY;
    const BYTES: usize = 16 + MANY / 2;

    #[inline(always)]
    fn widen(block: &[u8], to: &mut [f32]) {
        let (scale, least) = (short(block, 0), short(block, 2));
        let [scales, leasts] = scales_and_least(&block[4..16]);
        let pairs = block[16..].chunks_exact(32).zip(to.chunks_exact_mut(64));
        for (pair, (bytes, to)) in pairs.enumerate() {
            let (low, high) = to.split_at_mut(32);
            for (half, to) in [low, high].into_iter().enumerate() {
                let part = 2 * pair + half;
                let scale = scale * f32::from(scales[part]);
                let least = least * f32::from(leasts[part]);
                for (byte, to) in bytes.iter().zip(to) {
                    *to = scale * f32::from(byte >> (4 * half) & 15) - least;
                }
            }
        }
    }
}

/// The same with a fifth bit: bit `p` of 32 bytes is that of part `p`.
pub(super) struct Q5K;

impl Format for Q5K {
    const LENGTH: usize = MANY;
    const BYTES: usize = 16 + MANY / 8 + MANY / 2;

    #[inline(always)]
    fn widen(block: &[u8], to: &mut [f32]) {
        let (scale, least) = (short(block, 0), short(block, 2));
        let [scales, leasts] = scales_and_least(&block[4..16]);
        let (top, bytes) = block[16..].split_at(MANY / 8);
        let pairs = bytes.chunks_exact(32).zip(to.chunks_exact_mut(64));
        for (pair, (bytes, to)) in pairs.enumerate() {
            let (low, high) = to.split_at_mut(32);
            for (half, to) in [low, high].into_iter().enumerate() {
                let part = 2 * pair + half;
                let scale = scale * f32::from(scales[part]);
                let least = least * f32::from(leasts[part]);
                for ((byte, top), to) in bytes.iter().zip(top).zip(to) {
                    let number = byte >> (4 * half) & 15 | (top >> part & 1) << 4;
                    *to = scale * f32::from(number) - least;
                }
            }
        }
    }
}

/// Sixteen parts of 16 numbers of six bits, each part with a scale of a byte.
pub(super) struct Q6K;

impl Format for Q6K {
    const LENGTH: usize = MANY;
    const BYTES: usize = MANY / 2 + MANY / 4 + MANY / 16 + 2;

    #[inline(always)]
    fn widen(block: &[u8], to: &mut [f32]) {
        let (low, rest) = block.split_at(MANY / 2);
        let (high, rest) = rest.split_at(MANY / 4);
        let scale = short(rest, MANY / 16);
        // Each half of a block has four runs of 32 numbers: two in the lower and two in the upper bits of 64 bytes,
        // with two bits more of each in 32 others.
        for (run, to) in to.chunks_exact_mut(32).enumerate() {
            let (half, run) = (run / 4, run % 4);
            let low = &low[64 * half + 32 * (run % 2)..][..32];
            let high = &high[32 * half..][..32];
            for (part, to) in to.chunks_exact_mut(16).enumerate() {
                let own = rest[8 * half + 2 * run + part].cast_signed();
                let scale = scale * f32::from(own);
                let bytes = low[16 * part..].iter().zip(&high[16 * part..]);
                for ((low, high), to) in bytes.zip(to) {
                    let number = low >> (4 * (run / 2)) & 15 | (high >> (2 * run) & 3) << 4;
                    *to = scale * (i32::from(number) - 32) as f32;
                }
            }
        }
    }
}
