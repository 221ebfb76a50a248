//! Damaged copies of good input: a case is a function of the seed, its number and the corpus.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use crate::targets::Target;

/// No input is longer; longer seeds are cut.
const LONGEST: usize = 1 << 17;

/// Texts that readers look for, and numbers that no reader should believe.
const WORDS: [&str; 34] = [
    "\"",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\n",
    "\t",
    "\u{feff}",
    "null",
    "true",
    "-1",
    "0",
    "1e999",
    "NaN",
    "-Infinity",
    "9223372036854775807",
    "18446744073709551616",
    "1048576",
    "0.0",
    "../../..",
    "/dev/zero",
    "&a *a",
    "!!binary",
    "num_layers",
    "dtype",
    "F32",
    "data_offsets",
    "__metadata__",
    "lora_A.weight",
    "alpha",
    "\u{1b}[2J",
    "\\u0000",
];

/// Good inputs of a target.
pub(crate) struct Corpus(Vec<Vec<u8>>);

impl Corpus {
    /// Reads what a target begins with.
    pub(crate) fn read(root: &Path, target: &Target) -> Result<Corpus> {
        let own = root.join("fuzz/corpus").join(target.name);
        let folders = target.seeds.iter().map(|folder| root.join(folder)).chain([own]);
        let mut files = Vec::new();
        folders.for_each(|folder| gather(&folder, &mut files));
        files.retain(|file| target.takes(file));
        files.sort();
        let inputs: Vec<Vec<u8>> = files.iter().filter_map(|file| fs::read(file).ok()).collect();
        ensure!(!inputs.is_empty(), "the target {} has no corpus", target.name);
        Ok(Corpus(inputs))
    }

    /// From inputs themselves.
    pub(crate) fn of(inputs: Vec<Vec<u8>>) -> Corpus {
        Corpus(inputs)
    }
}

fn gather(path: &Path, files: &mut Vec<PathBuf>) {
    match fs::read_dir(path) {
        Ok(entries) => entries.flatten().for_each(|entry| gather(&entry.path(), files)),
        Err(_) if path.is_file() => files.push(path.to_owned()),
        Err(_) => {}
    }
}

/// Draws numbers, and damages input by them.
pub(crate) struct Mutator(u64);

impl Mutator {
    /// That of one case.
    pub(crate) fn new(seed: u64, number: u64) -> Mutator {
        let mut own = Mutator(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number);
        own.next();
        own
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 if that is 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// A damaged copy of one of the corpus.
    pub(crate) fn mutate(&mut self, corpus: &Corpus) -> Vec<u8> {
        let mut input = corpus.0[self.below(corpus.0.len())].clone();
        input.truncate(LONGEST);
        for _ in 0..1 + self.below(6) {
            self.damage(&mut input, corpus);
        }
        input.truncate(LONGEST);
        input
    }

    /// One change. Headers are at the beginning, so half of all changes are there.
    fn damage(&mut self, input: &mut Vec<u8>, corpus: &Corpus) {
        let end = if self.below(2) == 0 { input.len().min(512) } else { input.len() };
        let at = self.below(end);
        match self.below(10) {
            0 => input.truncate(at),
            1 if !input.is_empty() => input[at] ^= 1 << self.below(8),
            2 if !input.is_empty() => input[at] = self.next() as u8,
            3 => {
                let number =
                    [0u64, 1, 255, u64::MAX, i64::MAX as u64, 1 << 31, 1 << 40][self.below(7)];
                let width = [1, 2, 4, 8][self.below(4)].min(input.len().saturating_sub(at));
                input[at..at + width].copy_from_slice(&number.to_le_bytes()[..width]);
            }
            4 | 5 => {
                let word = WORDS[self.below(WORDS.len())].as_bytes();
                input.splice(at..at, word.iter().copied());
            }
            6 => {
                let length = self.below(64).min(input.len().saturating_sub(at));
                input.drain(at..at + length);
            }
            7 => {
                let length = self.below(64).min(input.len().saturating_sub(at));
                let piece = input[at..at + length].to_vec();
                let times = 1 + self.below(20);
                input.splice(at..at, piece.repeat(times));
            }
            8 => self.digits(input, at),
            _ => {
                let other = &corpus.0[self.below(corpus.0.len())];
                let from = self.below(other.len());
                let length = self.below(256).min(other.len() - from.min(other.len()));
                input.splice(at..at, other[from..from + length].iter().copied());
            }
        }
    }

    /// Replaces the next number of a text.
    fn digits(&mut self, input: &mut Vec<u8>, at: usize) {
        let Some(first) = input[at..].iter().position(u8::is_ascii_digit) else { return };
        let first = at + first;
        let length = input[first..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let numbers =
            ["0", "-1", "1", "4294967296", "9223372036854775807", "1e308", "0.5", "99999999"];
        let number = numbers[self.below(numbers.len())].bytes();
        input.splice(first..first + length, number);
    }
}
