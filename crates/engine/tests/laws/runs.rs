//! Whole requests: whatever the layout, the latents of one device, for every model of the table.

use comm::{Axis, MeshShape, Ranks};
use engine::{Pipeline, PipelineOutput, Request, Silent};
use parallel::{Layout, Plan};
use testkit::numbers::values;

use crate::asked::{Model, Nobody, models, requests};

/// Enough steps that a second-order solver has a past, and patches go through several.
const STEPS: usize = 4;

/// How far from one device a layout may be.
#[derive(Clone, Copy, Debug)]
enum Law {
    /// Not at all.
    Bits,
    /// So far as sums of another order differ: 1e-5 of the latents' norm.
    Rounding,
    /// Not at all from one device that looks at keys as old as these patches have.
    StaleBits,
    /// The same, with sums of another order.
    StaleRounding,
}

/// Degrees along tensor, Ulysses, ring, pipeline, cfg and data; patches, warm-up; the law.
type Case = ([usize; 6], Option<usize>, Option<usize>, Law);

/// What the first rank of a layout gets.
fn made(model: &Model, request: &Request, layout: &Layout) -> PipelineOutput {
    let workload = model.pipeline.workload(request).unwrap();
    let plan = Plan::new(layout, &workload).unwrap_or_else(|err| panic!("{}: {err}", model.name));
    let shared = std::sync::Mutex::new(model.pipeline.clone());
    let results = Ranks::new(layout.ranks).run(|group| {
        let mesh = plan.mesh(group).unwrap();
        let mut own: Pipeline = shared.lock().unwrap().on(mesh, &plan);
        own.run(request, &mut Silent, &mut Nobody).map_err(|err| err.to_string())
    });
    let mut results: Vec<_> =
        results.into_iter().map(|result| result.unwrap_or_else(|err| panic!("{err}"))).collect();
    if let Some(error) = results.iter().find_map(|result| result.as_ref().err()) {
        panic!("{} at {layout:?}: {error}", model.name);
    }
    results.swap_remove(0).unwrap()
}

/// Video, then sound, of all samples.
fn latents(model: &Model, request: &Request, layout: &Layout) -> Vec<Vec<f32>> {
    values_of(made(model, request, layout))
}

fn values_of(made: PipelineOutput) -> Vec<Vec<f32>> {
    let video = made.latents.map(|latents| match latents {
        engine::Latents::Picture(latents) => values(&latents),
        engine::Latents::Clip(latents) => values(&latents),
    });
    video.into_iter().chain(made.audio_latents.map(|latents| values(&latents))).collect()
}

fn layout((degrees, patches, warmup, _): Case) -> Layout {
    let mesh = Axis::ALL
        .into_iter()
        .zip(degrees)
        .fold(MeshShape::default(), |mesh, (axis, degree)| mesh.with(axis, degree));
    let pipeline = parallel::Pipeline { patches, warmup, stages: None };
    Layout { pipeline, ..Layout::new(mesh.size().unwrap(), mesh) }
}

/// Holds what models are asked for, bare and with all that they take, to the law.
#[track_caller]
fn check(cases: &[Case]) {
    check_first(cases, usize::MAX);
}

/// The same for the first so many requests of each model.
#[track_caller]
fn check_first(cases: &[Case], most: usize) {
    for model in models() {
        for (what, request) in requests(&model.description).into_iter().take(most) {
            let request = Request { steps: Some(STEPS), ..request };
            let one = latents(&model, &request, &layout(([1; 6], None, None, Law::Bits)));
            for case in cases {
                let (_, patches, warmup, law) = *case;
                let got = latents(&model, &request, &layout(*case));
                let want = match law {
                    Law::Bits | Law::Rounding => one.clone(),
                    Law::StaleBits | Law::StaleRounding => {
                        let oracle = layout(([1; 6], patches, warmup, law));
                        latents(&model, &request, &oracle)
                    }
                };
                let exact = matches!(law, Law::Bits | Law::StaleBits);
                compare(&format!("{}, given {what}, {case:?}", model.name), &got, &want, exact);
                if matches!(law, Law::StaleBits) && patches != Some(1) {
                    assert_ne!(got, one, "{}: nothing was stale", model.name);
                }
            }
        }
    }
}

#[track_caller]
fn compare(name: &str, got: &[Vec<f32>], want: &[Vec<f32>], exact: bool) {
    assert_eq!(got.len(), want.len(), "{name}");
    for (got, want) in got.iter().zip(want) {
        assert_eq!(got.len(), want.len(), "{name}");
        let norm = |values: &mut dyn Iterator<Item = f32>| {
            values.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt()
        };
        let off = norm(&mut got.iter().zip(want).map(|(a, b)| a - b));
        let off = off / norm(&mut want.iter().copied());
        match exact {
            true => assert!(got == want, "{name}: off by {off:e}"),
            false => assert!(off <= 1e-5, "{name}: off by {off:e}"),
        }
    }
}

#[test]
fn replicas_and_branches() {
    check(&[
        ([1, 1, 1, 1, 1, 2], None, None, Law::Bits),
        ([1, 1, 1, 1, 1, 3], None, None, Law::Bits),
        ([1, 1, 1, 1, 2, 1], None, None, Law::Bits),
        ([1, 1, 1, 1, 2, 2], None, None, Law::Bits),
    ]);
}

#[test]
fn sequences_and_matrices() {
    check(&[
        ([1, 3, 1, 1, 2, 1], None, None, Law::Bits),
        ([1, 2, 2, 1, 1, 1], None, None, Law::Rounding),
        ([2, 1, 1, 1, 2, 1], None, None, Law::Rounding),
        ([2, 2, 1, 1, 1, 2], None, None, Law::Rounding),
    ]);
}

/// While the whole sequence goes through the stages at once, nothing is stale.
#[test]
fn stages_of_whole_sequences() {
    check(&[
        ([1, 1, 1, 2, 1, 1], None, Some(99), Law::Bits),
        ([1, 1, 1, 3, 2, 1], Some(2), Some(99), Law::Bits),
        ([1, 2, 1, 2, 1, 1], Some(3), Some(99), Law::Bits),
        ([1, 1, 1, 2, 1, 1], Some(1), Some(1), Law::Bits),
    ]);
}

/// Patches look at keys that are a step old, and are the same bits however many stages there are.
#[test]
fn patches_that_flow() {
    check(&[
        ([1, 1, 1, 2, 1, 1], Some(2), None, Law::StaleBits),
        ([1, 1, 1, 3, 1, 1], Some(3), Some(2), Law::StaleBits),
        ([1, 1, 1, 2, 1, 1], Some(3), Some(0), Law::StaleBits),
        ([1, 1, 1, 2, 2, 1], Some(3), None, Law::StaleBits),
    ]);
}

#[test]
fn patches_and_everything_else() {
    check(&[
        ([1, 2, 1, 2, 1, 1], Some(3), None, Law::StaleBits),
        ([1, 1, 2, 2, 1, 1], Some(2), None, Law::StaleRounding),
        ([2, 1, 1, 2, 1, 1], Some(2), None, Law::StaleRounding),
        ([1, 2, 1, 2, 2, 1], Some(2), None, Law::StaleBits),
    ]);
}

/// Every pair of the table in `docs/parallel.md`, with two ranks along each axis.
#[test]
fn every_pair_of_axes() {
    let mut pairs: Vec<Case> = Vec::new();
    for first in 0..Axis::ALL.len() {
        for second in first + 1..Axis::ALL.len() {
            let mut degrees = [1; Axis::ALL.len()];
            (degrees[first], degrees[second]) = (2, 2);
            let has = |axis: Axis| degrees[axis as usize] > 1;
            let rounds = has(Axis::Tensor) || has(Axis::Ring);
            let law = match (has(Axis::Pipeline), rounds) {
                (false, false) => Law::Bits,
                (false, true) => Law::Rounding,
                (true, false) => Law::StaleBits,
                (true, true) => Law::StaleRounding,
            };
            pairs.push((degrees, has(Axis::Pipeline).then_some(2), None, law));
        }
    }
    assert_eq!(pairs.len(), 15);
    check_first(&pairs, 1);
}

/// Two and three axes at once, up to eight ranks.
#[test]
fn hybrids_of_exact_axes() {
    let hybrids = [
        ([1, 2, 2, 1, 2, 1], None, None, Law::Rounding),
        ([2, 2, 1, 1, 2, 1], None, None, Law::Rounding),
        ([2, 1, 2, 1, 2, 1], None, None, Law::Rounding),
        ([2, 2, 2, 1, 1, 1], None, None, Law::Rounding),
        ([1, 2, 1, 1, 2, 2], None, None, Law::Bits),
        ([3, 1, 1, 1, 2, 1], None, None, Law::Rounding),
        ([3, 2, 1, 1, 1, 1], None, None, Law::Rounding),
        ([1, 1, 2, 1, 2, 2], None, None, Law::Rounding),
    ];
    check_first(&hybrids, 1);
}

#[test]
fn hybrids_with_patches_that_flow() {
    let hybrids = [
        ([2, 1, 1, 2, 2, 1], Some(2), None, Law::StaleRounding),
        ([1, 1, 2, 2, 2, 1], Some(2), None, Law::StaleRounding),
        ([1, 2, 2, 2, 1, 1], Some(2), None, Law::StaleRounding),
        ([2, 2, 1, 2, 1, 1], Some(2), None, Law::StaleRounding),
        ([1, 1, 1, 2, 2, 2], Some(3), None, Law::StaleBits),
        ([1, 2, 1, 2, 1, 2], Some(2), None, Law::StaleBits),
        ([1, 1, 1, 3, 2, 1], Some(5), Some(2), Law::StaleBits),
    ];
    check_first(&hybrids, 1);
}

/// Ranks that stay together between requests: other steps, another size, and the first request once more are each
/// what they are alone. This is how processes of a job, a server and validation use a group.
#[test]
fn requests_follow_one_another_in_a_group() {
    let cases = [
        ([1, 1, 1, 1, 1, 2], None, None, Law::Bits),
        ([1, 2, 1, 1, 1, 1], None, None, Law::Bits),
        ([1, 1, 1, 2, 1, 1], Some(2), None, Law::StaleBits),
    ];
    for model in models() {
        let (what, first) = requests(&model.description).pop().unwrap();
        let first = Request { steps: Some(3), ..first };
        let size = |axis: usize| {
            let geometry = &model.description.geometry;
            Some(geometry.factors[axis] * geometry.patch[axis] * (2 + axis))
        };
        let other = Request { steps: Some(4), height: size(1), width: size(2), ..first.clone() };
        let all = [&first, &other, &first];
        for case in cases {
            let layout = layout(case);
            let alone: Vec<_> = all.iter().map(|own| latents(&model, own, &layout)).collect();
            assert_ne!(alone[0], alone[1], "{}: two requests that are one", model.name);
            let shared = std::sync::Mutex::new(model.pipeline.clone());
            let made = Ranks::new(layout.ranks).run(|group| {
                let one = |request: &&Request| {
                    let workload = model.pipeline.workload(request).unwrap();
                    let plan = Plan::new(&layout, &workload).unwrap();
                    let mesh = plan.mesh(group.clone()).unwrap();
                    let mut own: Pipeline = shared.lock().unwrap().on(mesh, &plan);
                    own.run(request, &mut Silent, &mut Nobody).unwrap()
                };
                all.iter().map(one).map(values_of).collect::<Vec<_>>()
            });
            let made = made.into_iter().next().unwrap().unwrap_or_else(|err| panic!("{err}"));
            assert!(made == alone, "{}, given {what}, {case:?}", model.name);
        }
    }
}

/// What a first-block cache leaves out does not depend on the layout, and it leaves out something.
#[test]
fn ranks_leave_out_the_same_blocks() {
    let cases = [
        ([1, 3, 1, 1, 1, 1], None, None, Law::Bits),
        ([1, 1, 1, 1, 2, 2], None, None, Law::Bits),
        ([2, 1, 2, 1, 1, 1], None, None, Law::Rounding),
    ];
    for model in models() {
        let (what, request) = requests(&model.description).swap_remove(0);
        let first_block_cache = Some(0.9);
        let request = Request { steps: Some(6), first_block_cache, ..request };
        let one = made(&model, &request, &layout(([1; 6], None, None, Law::Bits)));
        let report = one.cache.unwrap();
        assert!(0 < report.skipped && report.skipped < report.passes, "{}: {report:?}", model.name);
        assert!(report.drift > 0.0, "{}: {report:?}", model.name);
        let plain = Request { first_block_cache: None, ..request.clone() };
        let want = values_of(one);
        assert_ne!(want, latents(&model, &plain, &layout(cases[0])), "{}", model.name);
        for case in cases {
            let exact = matches!(case.3, Law::Bits);
            let got = latents(&model, &request, &layout(case));
            compare(&format!("{}, given {what}, {case:?}", model.name), &got, &want, exact);
        }
    }
}
