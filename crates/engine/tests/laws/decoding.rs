//! Frames that ranks decode in strips are those of one device, for every model of the table.

use std::sync::Mutex;

use comm::{MeshShape, Ranks};
use data::media::Frame;
use engine::{Frames, Request, Result, Silent};
use parallel::{Layout, Plan};

use crate::asked::{Model, models, requests};
use crate::cases::{self, Case, Law};

/// How far a pixel from 0 to 1 may be off.
const PIXEL: f32 = 1e-5;

/// All frames, in the order in which they come.
#[derive(Default)]
struct Kept(Vec<(usize, Frame)>);

impl Frames for Kept {
    fn begin(&mut self, _: usize, _: usize) -> Result<()> {
        Ok(())
    }

    fn frame(&mut self, sample: usize, frame: Frame) -> Result<()> {
        self.0.push((sample, frame));
        Ok(())
    }
}

/// Degrees as in [`Case`], its patches and warm-up, and how many ranks of a replica decode.
const CASES: [(Case, usize); 9] = [
    (([1, 2, 1, 1, 1, 1], None, None, Law::Bits), 2),
    (([1, 3, 1, 1, 1, 1], None, None, Law::Bits), 3),
    (([1, 2, 1, 1, 1, 2], None, None, Law::Bits), 2),
    (([1, 3, 1, 1, 1, 1], None, None, Law::Bits), 2),
    (([1, 1, 1, 1, 2, 1], None, None, Law::Bits), 2),
    (([1, 1, 2, 1, 1, 1], None, None, Law::Rounding), 2),
    (([2, 1, 1, 1, 1, 1], None, None, Law::Rounding), 2),
    (([1, 1, 1, 2, 1, 1], Some(2), None, Law::StaleBits), 2),
    (([1, 1, 1, 2, 1, 1], None, Some(99), Law::Bits), 2),
];

/// Frames with the numbers of their samples.
type Shown = Vec<(usize, Frame)>;

fn frames(model: &Model, request: &Request, layout: &Layout) -> Shown {
    let workload = model.pipeline.workload(request).unwrap();
    let plan = Plan::new(layout, &workload).unwrap_or_else(|err| panic!("{}: {err}", model.name));
    let shared = Mutex::new(model.pipeline.clone());
    let results = Ranks::new(layout.ranks).run(|group| {
        let mut own = shared.lock().unwrap().on(plan.mesh(group).unwrap(), &plan);
        let mut kept = Kept::default();
        own.run(request, &mut Silent, &mut kept).map_err(|err| err.to_string())?;
        Ok::<_, String>(kept.0)
    });
    let mut all = results.into_iter().map(|result| result.unwrap().unwrap());
    let first = all.next().unwrap();
    assert!(all.all(|others| others.is_empty()), "only the first rank gets frames");
    first
}

/// The layout of a case.
fn layout((case, vae_ranks): (Case, usize)) -> Layout {
    Layout { vae_ranks, ..cases::layout(case) }
}

/// What one rank decodes of the latents of a case: those of one rank, but where a layout makes others.
fn alone(model: &Model, request: &Request, (case, _): (Case, usize)) -> Shown {
    let (_, patches, warmup, law) = case;
    let case = match law {
        Law::Bits => ([1; 6], None, None, law),
        Law::Rounding | Law::StaleRounding => case,
        Law::StaleBits => ([1; 6], patches, warmup, law),
    };
    frames(model, request, &cases::layout(case))
}

#[track_caller]
fn compare(name: &str, got: &[(usize, Frame)], want: &[(usize, Frame)]) {
    assert_eq!(got.len(), want.len(), "{name}");
    for ((sample, got), (wanted, want)) in got.iter().zip(want) {
        assert_eq!((sample, got.size()), (wanted, want.size()), "{name}");
        let apart = got.values().iter().zip(want.values()).map(|(a, b)| (a - b).abs());
        let off = apart.fold(0.0, f32::max);
        assert!(off <= PIXEL, "{name}: off by {off:e}");
    }
}

#[test]
fn strips_make_whole_frames() {
    for model in models() {
        let (_, request) = requests(&model.description).pop().unwrap();
        let request = Request { steps: Some(2), ..request };
        let one = frames(&model, &request, &Layout::new(1, MeshShape::default()));
        assert!(!one.is_empty(), "{}", model.name);
        for case in CASES {
            let got = frames(&model, &request, &layout(case));
            let name = format!("{} by {case:?}", model.name);
            match case.0.3 {
                Law::Bits => compare(&name, &got, &one),
                _ => compare(&name, &got, &alone(&model, &request, case)),
            }
        }
    }
}

/// Cases of so many ranks.
#[cfg(feature = "mpi")]
pub(crate) fn by(ranks: usize) -> impl Iterator<Item = (Case, usize)> {
    CASES.into_iter().filter(move |case| layout(*case).ranks == ranks)
}

/// The same by the processes of a group; how many cases there were.
#[cfg(feature = "mpi")]
pub(crate) fn by_processes(model: &Model, request: &Request, group: &comm::Group) -> usize {
    let mut made = 0;
    for case in by(group.size()) {
        let plan = Plan::new(&layout(case), &model.pipeline.workload(request).unwrap()).unwrap();
        let mut own = model.pipeline.clone().on(plan.mesh(group.clone()).unwrap(), &plan);
        let mut kept = Kept::default();
        own.run(request, &mut Silent, &mut kept).unwrap();
        if group.rank() == 0 {
            compare(&format!("{} by {case:?}", model.name), &kept.0, &alone(model, request, case));
        } else {
            assert!(kept.0.is_empty(), "only the first rank gets frames");
        }
        made += 1;
    }
    made
}
