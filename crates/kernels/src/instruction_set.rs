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

// tidy: scratch: set when a thread of a pool starts and never after. f32 results are the same for
// every set with fused multiply-adds, which tests hold to the bit.
thread_local! {
    static OF_POOL: Cell<Option<InstructionSet>> = const { Cell::new(None) };
}

impl InstructionSet {
    /// Every set that there is code for, whether this machine has it or not.
    pub const ALL: [InstructionSet; 3] =
        [InstructionSet::Portable, InstructionSet::Avx2, InstructionSet::Avx512];

    /// The word that it is asked for by.
    pub fn name(self) -> &'static str {
        match self {
            InstructionSet::Portable => "portable",
            InstructionSet::Avx2 => "avx2",
            InstructionSet::Avx512 => "avx512",
        }
    }

    /// The processor features that it uses, as Rust and Linux name them.
    pub fn features(self) -> &'static [&'static str] {
        match self {
            InstructionSet::Portable => &[],
            InstructionSet::Avx2 => x86::avx2::FEATURES,
            InstructionSet::Avx512 => x86::avx512::FEATURES,
        }
    }

    /// Those of its features that this machine lacks.
    pub fn lacking(self) -> Vec<&'static str> {
        match self {
            InstructionSet::Portable => Vec::new(),
            InstructionSet::Avx2 => x86::avx2::lacking(),
            InstructionSet::Avx512 => x86::avx512::lacking(),
        }
    }

    /// Whether this machine has it.
    pub fn is_present(self) -> bool {
        match self {
            InstructionSet::Portable => true,
            InstructionSet::Avx2 => x86::avx2::is_present(),
            InstructionSet::Avx512 => x86::avx512::is_present(),
        }
    }

    /// The sets of this machine, the plainest first.
    pub fn present() -> impl Iterator<Item = InstructionSet> {
        Self::ALL.into_iter().filter(|set| set.is_present())
    }

    /// The last of them.
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
        // SAFETY: as above.
        InstructionSet::Avx512 => unsafe { x86::avx512::run(work) },
    }
}

/// What x86 has beyond its baseline.
mod x86 {
    use crate::work::Work;

    /// A set by its features: what is asked of the machine is what the compiler may use.
    macro_rules! set {
        ($name:ident: $($feature:tt)+) => {
            pub(super) mod $name {
                use super::Work;

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

                /// # Safety
                /// The machine has every feature.
                #[cfg(target_arch = "x86_64")]
                $(#[target_feature(enable = $feature)])+
                pub(in super::super) unsafe fn run<W: Work>(work: W) -> W::Output {
                    work.run()
                }

                #[cfg(not(target_arch = "x86_64"))]
                pub(in super::super) fn is_present() -> bool {
                    false
                }

                #[cfg(not(target_arch = "x86_64"))]
                pub(in super::super) fn lacking() -> Vec<&'static str> {
                    FEATURES.to_vec()
                }

                /// # Safety
                /// Never called: the machine has none of the features.
                #[cfg(not(target_arch = "x86_64"))]
                pub(in super::super) unsafe fn run<W: Work>(work: W) -> W::Output {
                    work.run()
                }
            }
        };
    }

    set!(avx2: "avx2" "fma" "f16c" "bmi1" "bmi2" "lzcnt" "popcnt");
    set!(avx512:
        "avx512f" "avx512bw" "avx512cd" "avx512dq" "avx512vl"
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
        let words = ["`avx9`", "portable, avx2, avx512; it has portable"];
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
        }
        assert_eq!(InstructionSet::in_use(), before);
    }
}
