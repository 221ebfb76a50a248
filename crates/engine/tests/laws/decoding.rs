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

#[test]
fn strips_make_whole_frames() {
    for model in models() {
        let (_, request) = requests(&model.description).pop().unwrap();
        let request = Request { steps: Some(2), ..request };
        let rows = model.pipeline.workload(&request).unwrap().latent_rows.unwrap();
        let want = frames(&model, &request, &Layout::new(1, MeshShape::default()));
        for (sequence, data, vae_ranks) in [(2, 1, 2), (3, 1, 3), (2, 2, 2), (3, 1, 2)] {
            let mesh = MeshShape::default().with(Axis::Ulysses, sequence).with(Axis::Data, data);
            let layout = Layout { vae_ranks, ..Layout::new(sequence * data, mesh) };
            if vae_ranks > rows {
                continue;
            }
            let got = frames(&model, &request, &layout);
            assert_eq!(got.len(), want.len());
            for ((sample, got), (wanted, want)) in got.iter().zip(&want) {
                assert_eq!((sample, got.size()), (wanted, want.size()));
                let apart = got.values().iter().zip(want.values()).map(|(a, b)| (a - b).abs());
                let off = apart.fold(0.0, f32::max);
                assert!(off <= PIXEL, "{} in {vae_ranks} strips: off by {off:e}", model.name);
            }
        }
    }
}
