//! Frames that ranks decode in strips are those of one device, for every model of the table.

use std::sync::Mutex;

use comm::{Axis, MeshShape, Ranks};
use data::media::Frame;
use engine::{Frames, Request, Result, Silent};
use parallel::{Layout, Plan};

use crate::asked::{Model, models, requests};

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

/// Degrees of Ulysses and data, and how many ranks of a replica decode.
const CASES: [(usize, usize, usize); 4] = [(2, 1, 2), (3, 1, 3), (2, 2, 2), (3, 1, 2)];

fn frames(model: &Model, request: &Request, layout: &Layout) -> Vec<(usize, Frame)> {
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

/// The layout of a case; none where there are fewer rows than ranks that decode.
fn layout(
    model: &Model,
    request: &Request,
    (sequence, data, vae_ranks): (usize, usize, usize),
) -> Option<Layout> {
    let rows = model.pipeline.workload(request).unwrap().latent_rows.unwrap();
    let mesh = MeshShape::default().with(Axis::Ulysses, sequence).with(Axis::Data, data);
    let layout = Layout { vae_ranks, ..Layout::new(sequence * data, mesh) };
    (vae_ranks <= rows).then_some(layout)
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
        let want = frames(&model, &request, &Layout::new(1, MeshShape::default()));
        for case in CASES {
            let Some(layout) = layout(&model, &request, case) else { continue };
            let got = frames(&model, &request, &layout);
            compare(&format!("{} by {case:?}", model.name), &got, &want);
        }
    }
}

/// The same by the processes of a group, where a case has as many; how many there were.
#[cfg(feature = "mpi")]
pub(crate) fn by_processes(model: &Model, request: &Request, group: &comm::Group) -> usize {
    let mut made = 0;
    for case in CASES.into_iter().filter(|(sequence, data, _)| sequence * data == group.size()) {
        let Some(layout) = layout(model, request, case) else { continue };
        let plan = Plan::new(&layout, &model.pipeline.workload(request).unwrap()).unwrap();
        let mut own = model.pipeline.clone().on(plan.mesh(group.clone()).unwrap(), &plan);
        let mut kept = Kept::default();
        own.run(request, &mut Silent, &mut kept).unwrap();
        if group.rank() == 0 {
            let want = frames(model, request, &Layout::new(1, MeshShape::default()));
            compare(&format!("{} by {case:?}", model.name), &kept.0, &want);
        } else {
            assert!(kept.0.is_empty(), "only the first rank gets frames");
        }
        made += 1;
    }
    made
}
