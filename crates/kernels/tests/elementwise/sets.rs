//! Work under every instruction set that the machine has.

use std::fmt::Debug;

use kernels::{InstructionSet, Operands};

/// Runs `work` on so many threads that use `set`.
pub(crate) fn on<R: Send>(
    set: InstructionSet,
    threads: usize,
    work: impl FnOnce() -> R + Send,
) -> R {
    set.pool(threads).expect("a pool").install(work)
}

/// Runs `work` under each set of the machine and checks that its result is the same in all that have
/// fused multiply-adds.
pub(crate) fn same_on_every_set<R: Send + PartialEq + Debug>(
    work: impl Fn(InstructionSet) -> R + Sync,
) {
    let mut first = None;
    for set in InstructionSet::with_own(Operands::F32) {
        let own = on(set, 2, || work(set));
        if set == InstructionSet::Portable {
            continue;
        }
        match &first {
            None => first = Some((set, own)),
            Some((other, result)) => assert!(*result == own, "{set} differs from {other}"),
        }
    }
}

/// For the reader of a test run (`.config/nextest.toml` shows it): where nothing but portable code
/// exists, nothing else was tested.
#[test]
fn instruction_sets_of_this_machine() {
    for set in InstructionSet::ALL {
        match set.lacking() {
            lacking if lacking.is_empty() => eprintln!("tested under {set}"),
            lacking => eprintln!("not tested under {set}: lacks {}", lacking.join(", ")),
        }
    }
    assert!(InstructionSet::present().any(|set| set == InstructionSet::in_use()));
}
