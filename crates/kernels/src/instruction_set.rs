//! The instruction sets that kernels are written for, as one table, and which of them a thread uses.
//!
//! A thread uses the best set of its machine. A pool made by [`InstructionSet::pool`] uses another
//! one, so that every path can be tested and measured wherever the machine has it. There is no other
//! way to choose: a set is the property of a pool, and nothing is remembered beyond its threads.
//!
//! What a set changes is speed. In f32, [`InstructionSet::Avx2`] and those above it give the same
//! bits: an element is one chain of fused multiply-adds however wide a vector is, and sums over a
//! row use lanes of a fixed number. [`InstructionSet::Portable`] rounds a product before adding it
//! where the machine's baseline has no fused multiply-add.

use std::cell::Cell;
use std::fmt;
use std::str::FromStr;

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use crate::work::Work;

/// A set of instructions, the plainest first; each contains those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InstructionSet {
    /// What every machine of the target has, as the compiler uses it.
    Portable,
    /// 256-bit vectors and fused multiply-adds.
    Avx2,
    /// 512-bit vectors and 32 registers of them.
    Avx512,
    /// The same with sums of four products of bytes in one instruction.
    Avx512Vnni,
    /// The same with sums of two products of bf16 in one instruction.
    Avx512Bf16,
}

/// The numbers that a product of matrices multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operands {
    /// f32, summed in f32.
    F32,
    /// bf16, summed in f32.
    Bf16,
    /// Bytes, summed as integers without loss.
    Int8,
}

/// A name that is no set, or a set that this machine does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstructionSetError {
    /// There is no set of that name.
    Unknown(String),
    /// The machine lacks these features of the set.
    Lacking(InstructionSet, Vec<&'static str>),
}

impl fmt::Display for InstructionSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let here: Vec<_> = InstructionSet::present().map(InstructionSet::name).collect();
        let here = here.join(", ");
        match self {
            InstructionSetError::Unknown(name) => {
                let all: Vec<_> = InstructionSet::ALL.iter().map(|set| set.name()).collect();
                write!(f, "there is no instruction set `{name}`, only {}; ", all.join(", "))?;
            }
            InstructionSetError::Lacking(set, lacking) => {
                write!(f, "this machine cannot run {set}: it lacks {}; ", lacking.join(", "))?;
            }
        }
        write!(f, "it has {here}")
    }
}

impl std::error::Error for InstructionSetError {}

// tidy: scratch: set when a pool starts and never after. f32 results are the same for
// every set with fused multiply-adds, which tests hold to the bit.
thread_local! {
    static OF_POOL: Cell<Option<InstructionSet>> = const { Cell::new(None) };
}

impl InstructionSet {
    /// Every set that there is code for, whether this machine has it or not.
    pub const ALL: [InstructionSet; 5] = [
        InstructionSet::Portable,
        InstructionSet::Avx2,
        InstructionSet::Avx512,
        InstructionSet::Avx512Vnni,
        InstructionSet::Avx512Bf16,
    ];

    /// The word that it is asked for by.
    pub fn name(self) -> &'static str {
        match self {
            InstructionSet::Portable => "portable",
            InstructionSet::Avx2 => "avx2",
            InstructionSet::Avx512 => "avx512",
            InstructionSet::Avx512Vnni => "avx512vnni",
            InstructionSet::Avx512Bf16 => "avx512bf16",
        }
    }

    /// Whether it multiplies these operands by code of its own, and not by that of the set before it.
    pub fn has_own(self, operands: Operands) -> bool {
        match operands {
            Operands::F32 => self <= InstructionSet::Avx512,
            Operands::Bf16 => self == InstructionSet::Avx512Bf16,
            Operands::Int8 => self <= InstructionSet::Avx512Vnni,
        }
    }

    /// Whether products of bf16 are computed as such. Below, bf16 is a type of storage.
    pub fn multiplies_bf16(self) -> bool {
        self >= InstructionSet::Avx512Bf16
    }

    /// Whether products of these operands have the bits that they have under another set. One that is portable
    /// rounds between a product and its sum; bytes are summed exactly in all, and then scaled in f32.
    pub fn agrees_with(self, other: InstructionSet, operands: Operands) -> bool {
        let fuses = |own: InstructionSet| own > InstructionSet::Portable;
        let same_products = self.multiplies_bf16() == other.multiplies_bf16();
        fuses(self) == fuses(other) && (operands != Operands::Bf16 || same_products)
    }

    /// The processor features that it uses, as Rust and Linux name them.
    pub fn features(self) -> &'static [&'static str] {
        match self {
            InstructionSet::Portable => &[],
            InstructionSet::Avx2 => x86::avx2::FEATURES,
            InstructionSet::Avx512 => x86::avx512::FEATURES,
            InstructionSet::Avx512Vnni => x86::avx512vnni::FEATURES,
            InstructionSet::Avx512Bf16 => x86::avx512bf16::FEATURES,
        }
    }

    /// Those of its features that this machine lacks.
    pub fn lacking(self) -> Vec<&'static str> {
        match self {
            InstructionSet::Portable => Vec::new(),
            InstructionSet::Avx2 => x86::avx2::lacking(),
            InstructionSet::Avx512 => x86::avx512::lacking(),
            InstructionSet::Avx512Vnni => x86::avx512vnni::lacking(),
            InstructionSet::Avx512Bf16 => x86::avx512bf16::lacking(),
        }
    }

    /// Whether this machine has it.
    pub fn is_present(self) -> bool {
        match self {
            InstructionSet::Portable => true,
            InstructionSet::Avx2 => x86::avx2::is_present(),
            InstructionSet::Avx512 => x86::avx512::is_present(),
            InstructionSet::Avx512Vnni => x86::avx512vnni::is_present(),
            InstructionSet::Avx512Bf16 => x86::avx512bf16::is_present(),
        }
    }

    /// The sets of this machine, the plainest first.
    pub fn present() -> impl Iterator<Item = InstructionSet> {
        Self::ALL.into_iter().filter(|set| set.is_present())
    }

    /// Those of them that multiply these operands by code of their own.
    pub fn with_own(operands: Operands) -> impl Iterator<Item = InstructionSet> {
        Self::present().filter(move |set| set.has_own(operands))
    }

    /// The last set of this machine.
    pub fn best() -> InstructionSet {
        let best = Self::ALL.into_iter().rev().find(|set| set.is_present());
        best.unwrap_or(InstructionSet::Portable)
    }

    /// What kernels on this thread use.
    #[inline]
    pub fn in_use() -> InstructionSet {
        OF_POOL.get().unwrap_or_else(InstructionSet::best)
    }

    /// A pool of so many threads whose kernels use this set, whoever calls them there.
    ///
    /// # Errors
    /// The system refuses to start the threads.
    ///
    /// # Panics
    /// Panics if this machine does not have the set; [`InstructionSet::from_str`] gives none such.
    pub fn pool(self, threads: usize) -> Result<ThreadPool, ThreadPoolBuildError> {
        assert!(self.is_present(), "{}", InstructionSetError::Lacking(self, self.lacking()));
        ThreadPoolBuilder::new()
            .num_threads(threads)
            .start_handler(move |_| OF_POOL.set(Some(self)))
            .build()
    }
}

impl InstructionSet {
    /// Makes the pool of this thread, which somebody else started, use this set.
    ///
    /// # Panics
    /// Panics if this machine does not have the set.
    pub fn claim_pool(self) {
        assert!(self.is_present(), "{}", InstructionSetError::Lacking(self, self.lacking()));
        rayon::broadcast(|_| OF_POOL.set(Some(self)));
    }
}

impl fmt::Display for InstructionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for InstructionSet {
    type Err = InstructionSetError;

    /// The set of that name, if this machine has it.
    fn from_str(name: &str) -> Result<InstructionSet, InstructionSetError> {
        let set = Self::ALL.into_iter().find(|set| set.name() == name);
        let set = set.ok_or_else(|| InstructionSetError::Unknown(name.to_owned()))?;
        match set.lacking() {
            lacking if lacking.is_empty() => Ok(set),
            lacking => Err(InstructionSetError::Lacking(set, lacking)),
        }
    }
}

/// Runs `work` compiled for the set in use.
#[inline(always)]
pub(crate) fn run<W: Work>(work: W) -> W::Output {
    match InstructionSet::in_use() {
        InstructionSet::Portable => work.run(),
        // SAFETY: a set in use is present: it is the best of the machine or was checked by `pool`.
        InstructionSet::Avx2 => unsafe { x86::avx2::run(work) },
        // SAFETY: as above; what these sets add is for products alone.
        InstructionSet::Avx512 | InstructionSet::Avx512Vnni | InstructionSet::Avx512Bf16 => unsafe {
            x86::avx512::run(work)
        },
    }
}

/// What x86 has beyond its baseline.
mod x86 {
    use crate::work::Work;

    /// A set by its features: what is asked of the machine is what the compiler may use. Work that the
    /// compiler vectorises is compiled for sets that say `runs`; those after them add products alone.
    macro_rules! set {
        ($name:ident runs: $($feature:tt)+) => {
            set!(@ $name [$($feature)+] {
                use super::Work;

                /// # Safety
                /// The machine has every feature.
                #[cfg(target_arch = "x86_64")]
                $(#[target_feature(enable = $feature)])+
                pub(in super::super) unsafe fn run<W: Work>(work: W) -> W::Output {
                    work.run()
                }

                /// # Safety
                /// Never called: the machine has none of the features.
                #[cfg(not(target_arch = "x86_64"))]
                pub(in super::super) unsafe fn run<W: Work>(work: W) -> W::Output {
                    work.run()
                }
            });
        };
        ($name:ident: $($feature:tt)+) => {
            set!(@ $name [$($feature)+] {});
        };
        (@ $name:ident [$($feature:tt)+] { $($run:item)* }) => {
            pub(super) mod $name {
                pub(in super::super) const FEATURES: &[&str] = &[$($feature),+];

                #[cfg(target_arch = "x86_64")]
                pub(in super::super) fn is_present() -> bool {
                    $(std::arch::is_x86_feature_detected!($feature))&&+
                }

                #[cfg(target_arch = "x86_64")]
                pub(in super::super) fn lacking() -> Vec<&'static str> {
                    let has = [$(std::arch::is_x86_feature_detected!($feature)),+];
                    let features = FEATURES.iter().zip(has);
                    features.filter(|(_, has)| !has).map(|(feature, _)| *feature).collect()
                }

                #[cfg(not(target_arch = "x86_64"))]
                pub(in super::super) fn is_present() -> bool {
                    false
                }

                #[cfg(not(target_arch = "x86_64"))]
                pub(in super::super) fn lacking() -> Vec<&'static str> {
                    FEATURES.to_vec()
                }

                $($run)*
            }
        };
    }

    set!(avx2 runs: "avx2" "fma" "f16c" "bmi1" "bmi2" "lzcnt" "popcnt");
    set!(avx512 runs:
        "avx512f" "avx512bw" "avx512cd" "avx512dq" "avx512vl"
        "avx2" "fma" "f16c" "bmi1" "bmi2" "lzcnt" "popcnt");
    set!(avx512vnni:
        "avx512vnni" "avx512f" "avx512bw" "avx512cd" "avx512dq" "avx512vl"
        "avx2" "fma" "f16c" "bmi1" "bmi2" "lzcnt" "popcnt");
    set!(avx512bf16:
        "avx512bf16" "avx512vnni" "avx512f" "avx512bw" "avx512cd" "avx512dq" "avx512vl"
        "avx2" "fma" "f16c" "bmi1" "bmi2" "lzcnt" "popcnt");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_found_by_its_name_where_the_machine_has_it() {
        for set in InstructionSet::ALL {
            match set.name().parse::<InstructionSet>() {
                Ok(found) => assert!(found == set && set.is_present()),
                Err(error) => {
                    assert!(!set.is_present());
                    let text = error.to_string();
                    assert!(text.contains(set.name()) && text.contains("lacks"), "{text}");
                }
            }
        }
        let text = "avx9".parse::<InstructionSet>().unwrap_err().to_string();
        let words = ["`avx9`", "portable, avx2, avx512, avx512vnni, avx512bf16; it has portable"];
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }

    #[test]
    fn a_set_that_is_lacking_says_what_it_lacks() {
        let error = InstructionSetError::Lacking(InstructionSet::Avx512, vec!["avx512f"]);
        let text = error.to_string();
        assert!(text.starts_with("this machine cannot run avx512: it lacks avx512f; "), "{text}");
    }

    #[test]
    fn a_pool_uses_its_set_and_leaves_others_alone() {
        let before = InstructionSet::in_use();
        assert_eq!(before, InstructionSet::best());
        for set in InstructionSet::present() {
            let pool = set.pool(3).unwrap();
            assert_eq!(pool.install(InstructionSet::in_use), set);
            assert_eq!(pool.broadcast(|_| InstructionSet::in_use()), [set; 3]);
            let pool = ThreadPoolBuilder::new().num_threads(2).build().unwrap();
            pool.install(|| set.claim_pool());
            assert_eq!(pool.broadcast(|_| InstructionSet::in_use()), [set; 2]);
        }
        assert_eq!(InstructionSet::in_use(), before);
    }
}
