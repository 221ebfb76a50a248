//! Every layout that the laws of training are held for, as data: the laws go through it, and so does the table of
//! docs/training.md.

use recipe::{ParallelConfig, Recipe};

/// What is learnt, in the order of [`super::recipes`].
pub(super) const NAMES: [&str; 10] = [
    "finetune",
    "diffusion forcing",
    "LoRA",
    "DMD2",
    "both experts, LoRA",
    "video to video, LoRA",
    "video and sound",
    "flexible: part of the picture",
    "flexible: sound of a video",
    "text to audio",
];

/// An optimizer that remembers gradients as they are: what it remembers after a step is what was found.
pub(super) const SGD: &str = "{kind: sgd, momentum: 0.9}";
pub(super) const ADAMW: &str = "{kind: adamw}";
pub(super) const MUON: &str = "{kind: muon}";

/// What a law says of a run on ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Law {
    /// On threads: it learns what one rank learns.
    AsOne,
    /// On threads: it learns the bits of ranks that hold whole copies.
    AsCopies,
    /// On processes: it learns the bits of threads, and what one rank learns.
    AsThreads,
    /// On threads, from a checkpoint of four ranks: it learns what one rank learns that never stopped.
    GoesOn,
}

/// How many ranks share what, and how many hold a copy of the parameters together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Of data, ulysses, ring and tensor.
    pub(super) degrees: [usize; 4],
    pub(super) shard: usize,
}

/// A run that a law is held for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) law: Law,
    /// By its place in [`NAMES`].
    pub(super) what: usize,
    pub(super) optimizer: &'static str,
    pub(super) layout: Layout,
}

/// Replicas that hold everything together.
pub(super) const fn fsdp(ranks: usize) -> Layout {
    Layout { degrees: [ranks, 1, 1, 1], shard: ranks }
}

const fn layout(degrees: [usize; 4], shard: usize) -> Layout {
    Layout { degrees, shard }
}

impl Layout {
    pub(super) fn ranks(&self) -> usize {
        self.degrees.iter().product()
    }

    /// The same recipe on these ranks. A step has 24 samples: two micro-batches, or one where replicas cannot share
    /// twelve evenly.
    pub(super) fn of(&self, recipe: &Recipe) -> Recipe {
        let [data, ulysses, ring, tensor] = self.degrees.map(Some);
        let parallel = ParallelConfig { data, ulysses, ring, tensor, shard: Some(self.shard) };
        let mut own = Recipe { parallel, ..recipe.clone() };
        if !self.is_of_two() {
            own.data.batch *= own.run.accumulation as usize;
            own.run.accumulation = 1;
        }
        own
    }

    /// Whether its steps are two micro-batches.
    pub(super) fn is_of_two(&self) -> bool {
        12_usize.is_multiple_of(self.degrees[0])
    }

    /// The column of the table that it belongs to.
    pub(super) fn column(&self) -> &'static str {
        let shared = self.degrees[1..].iter().filter(|degree| **degree > 1).count();
        match (self.degrees, shared) {
            ([1, 1, 1, 1], _) => "one rank",
            ([_, 1, 1, 1], _) if self.shard == self.ranks() => "FSDP",
            ([_, 1, 1, 1], _) => "HSDP",
            ([1, ..], 1) if self.degrees[1] > 1 => "Ulysses",
            ([1, ..], 1) if self.degrees[2] > 1 => "ring",
            ([1, ..], 1) => "tensor",
            _ => "mixes",
        }
    }
}

/// The columns of the table.
pub(super) const COLUMNS: [&str; 7] =
    ["one rank", "FSDP", "HSDP", "Ulysses", "ring", "tensor", "mixes"];

/// Layouts of up to eight ranks that share tokens or matrices. The twelve tokens of a sample come out uneven on eight,
/// and two heads can be shared by ulysses or by tensor. Half of them hold parameters together.
const SHARED: [Layout; 12] = [
    layout([1, 2, 1, 1], 2),
    layout([1, 1, 2, 1], 1),
    layout([1, 1, 1, 2], 2),
    layout([2, 1, 1, 2], 2),
    layout([1, 1, 3, 1], 1),
    layout([2, 2, 1, 1], 2),
    layout([1, 2, 2, 1], 1),
    layout([3, 1, 2, 1], 1),
    layout([2, 2, 2, 1], 1),
    layout([1, 2, 4, 1], 1),
    layout([1, 1, 4, 2], 1),
    layout([2, 1, 2, 2], 1),
];

/// Layouts on processes: of 3, 6 and 8.
const PROCESSES: [Layout; 10] = [
    layout([3, 1, 1, 1], 3),
    layout([1, 1, 3, 1], 1),
    layout([6, 1, 1, 1], 3),
    layout([3, 2, 1, 1], 6),
    layout([3, 1, 1, 2], 2),
    layout([8, 1, 1, 1], 8),
    layout([2, 2, 2, 1], 4),
    layout([2, 1, 2, 2], 8),
    layout([1, 2, 4, 1], 1),
    layout([4, 1, 1, 2], 8),
];

/// Who goes on with what four ranks have saved, the first of which is they themselves.
const GOING_ON: [Layout; 8] = [
    fsdp(4),
    fsdp(1),
    fsdp(3),
    layout([4, 1, 1, 1], 2),
    layout([1, 2, 1, 1], 2),
    layout([3, 1, 1, 2], 3),
    layout([4, 2, 1, 1], 8),
    layout([2, 1, 2, 2], 4),
];

/// All of them. The first four of what is learnt have gradients of their own and take every size; of the others each
/// takes its turn at the larger layouts.
pub(super) fn all() -> Vec<Case> {
    let sgd = |law, what| move |layout| Case { law, what, optimizer: SGD, layout };
    let mut all = Vec::new();
    for what in 0..NAMES.len() {
        let is_own = what < 4;
        let sizes: &[usize] = match what {
            // On eight the bias of the critic's values is off by more than its floor: see `floor_of`.
            3 => &[2, 3, 4, 6],
            _ if is_own => &[2, 3, 4, 6, 8],
            _ => &[2, 3, 4],
        };
        all.extend(sizes.iter().map(|ranks| fsdp(*ranks)).map(sgd(Law::AsOne, what)));
        let some = SHARED.into_iter().enumerate().filter(|(place, _)| {
            *place < 4 || is_own && [4, 7].contains(place) || place % 4 == what % 4
        });
        all.extend(some.map(|(_, layout)| layout).map(sgd(Law::AsOne, what)));
        for optimizer in [ADAMW, MUON] {
            all.push(Case { law: Law::AsOne, what, optimizer, layout: fsdp(2) });
        }
        for layout in copies() {
            all.push(Case { law: Law::AsCopies, what, optimizer: ADAMW, layout });
        }
        // The first has all, the others one of each number of ranks.
        let some = PROCESSES.into_iter().enumerate().filter(|(place, _)| match what {
            0 => true,
            1 => [0, 3, 7].contains(place),
            2 => [1, 4, 6].contains(place),
            3 => [0, 2, 6].contains(place),
            _ => false,
        });
        all.extend(some.map(|(_, layout)| layout).map(sgd(Law::AsThreads, what)));
        let has_state = |what| [0, 2, 3].contains(&what);
        if has_state(what) {
            all.extend(GOING_ON.into_iter().map(sgd(Law::GoesOn, what)));
        }
    }
    for (what, optimizer, places) in [
        (0, ADAMW, &[0, 4, 7][..]),
        (0, MUON, &[0, 3, 7]),
        (2, ADAMW, &[3, 5]),
        (3, ADAMW, &[4, 5]),
    ] {
        let own = |place: &usize| Case {
            law: Law::AsThreads,
            what,
            optimizer,
            layout: PROCESSES[*place],
        };
        all.extend(places.iter().map(own));
    }
    all
}

/// Layouts that are compared with whole copies at the same degrees.
fn copies() -> [Layout; 5] {
    [
        layout([4, 1, 1, 1], 2),
        layout([4, 1, 1, 1], 4),
        layout([2, 1, 2, 1], 4),
        layout([2, 1, 1, 2], 2),
        layout([2, 1, 1, 2], 4),
    ]
}

/// Those of one law.
pub(super) fn of(law: Law) -> impl Iterator<Item = Case> {
    all().into_iter().filter(move |case| case.law == law)
}
