//! Whole requests: whatever the layout, the latents of one device, for every model of the table.

use comm::{Group, Ranks};
use engine::{MoreGuidance, Pipeline, PipelineOutput, Request, Silent};
use nn::CacheReport;
use parallel::{Layout, Plan};
use testkit::numbers::values;

use crate::asked::{Model, Nobody, models, requests};
use crate::cases::{self, Case, Law, layout};

/// Enough steps that a second-order solver has a past, and patches go through several.
pub(crate) const STEPS: usize = 4;

/// What the first rank of a layout gets.
fn made(model: &Model, request: &Request, layout: &Layout) -> PipelineOutput {
    let shared = std::sync::Mutex::new(model.pipeline.clone());
    let results = Ranks::new(layout.ranks).run(|group| {
        let own = shared.lock().unwrap().clone();
        by_rank(own, request, (layout, group)).map_err(|err| err.to_string())
    });
    let mut results: Vec<_> =
        results.into_iter().map(|result| result.unwrap_or_else(|err| panic!("{err}"))).collect();
    if let Some(error) = results.iter().find_map(|result| result.as_ref().err()) {
        panic!("{} at {layout:?}: {error}", model.name);
    }
    results.swap_remove(0).unwrap()
}

/// What a rank of a layout makes of a request.
pub(crate) fn by_rank(
    pipeline: Pipeline,
    request: &Request,
    (layout, group): (&Layout, Group),
) -> engine::Result<PipelineOutput> {
    let workload = pipeline.workload(request)?;
    let plan = Plan::new(layout, &workload).unwrap_or_else(|err| panic!("{layout:?}: {err}"));
    let mesh = plan.mesh(group)?;
    pipeline.on(mesh, &plan).run(request, &mut Silent, &mut Nobody)
}

/// Video, then sound, of all samples.
pub(crate) fn latents(model: &Model, request: &Request, layout: &Layout) -> Vec<Vec<f32>> {
    values_of(made(model, request, layout))
}

pub(crate) fn values_of(made: PipelineOutput) -> Vec<Vec<f32>> {
    let video = made.latents.map(|latents| match latents {
        engine::Latents::Picture(latents) => values(&latents),
        engine::Latents::Clip(latents) => values(&latents),
    });
    video.into_iter().chain(made.audio_latents.map(|latents| values(&latents))).collect()
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
            check_request((&model, what), &Request { steps: Some(STEPS), ..request }, cases);
        }
    }
}

/// The same for one request.
#[track_caller]
pub(crate) fn check_request((model, what): (&Model, &str), request: &Request, cases: &[Case]) {
    let one = latents(model, request, &layout(([1; 6], None, None, Law::Bits)));
    for case in cases {
        let got = latents(model, request, &layout(*case));
        hold((model, what), request, (*case, &got), &one);
    }
}

/// Holds what a layout made to what one rank makes, or one that looks at keys as old.
#[track_caller]
pub(crate) fn hold(
    (model, what): (&Model, &str),
    request: &Request,
    (case, got): (Case, &[Vec<f32>]),
    one: &[Vec<f32>],
) {
    let (_, patches, warmup, law) = case;
    let want = match law {
        Law::Bits | Law::Rounding => one.to_vec(),
        Law::StaleBits | Law::StaleRounding => {
            latents(model, request, &layout(([1; 6], patches, warmup, law)))
        }
    };
    let exact = matches!(law, Law::Bits | Law::StaleBits);
    compare(&format!("{}, given {what}, {case:?}", model.name), got, &want, exact);
    if matches!(law, Law::StaleBits) && patches != Some(1) {
        assert_ne!(got, one, "{}: nothing was stale", model.name);
    }
}

#[track_caller]
fn compare(name: &str, got: &[Vec<f32>], want: &[Vec<f32>], exact: bool) {
    assert_eq!(got.len(), want.len(), "{name}");
    for (got, want) in got.iter().zip(want) {
        assert_eq!(got.len(), want.len(), "{name}");
        let off = distance(got, want);
        match exact {
            true => assert!(got == want, "{name}: off by {off:e}"),
            false => assert!(off <= 1e-5, "{name}: off by {off:e}"),
        }
    }
}

/// How far one is from the other, of its norm.
fn distance(got: &[f32], want: &[f32]) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f32>| {
        values.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt()
    };
    norm(&mut got.iter().zip(want).map(|(a, b)| a - b)) / norm(&mut want.iter().copied())
}

/// How far the farther track is from the other, of its norm.
pub(crate) fn apart(got: &[Vec<f32>], want: &[Vec<f32>]) -> f64 {
    got.iter().zip(want).map(|(got, want)| distance(got, want)).fold(0.0, f64::max)
}

#[test]
fn each_axis_alone() {
    check(&cases::ALONE);
}

#[test]
fn replicas_and_branches() {
    check(&cases::REPLICAS_AND_BRANCHES);
}

#[test]
fn sequences_and_matrices() {
    check(&cases::SEQUENCES_AND_MATRICES);
}

/// While the whole sequence goes through the stages at once, nothing is stale.
#[test]
fn stages_of_whole_sequences() {
    check(&cases::WHOLE_SEQUENCES);
}

/// Patches look at keys that are a step old, and are the same bits however many stages there are.
#[test]
fn patches_that_flow() {
    check(&cases::PATCHES);
}

#[test]
fn patches_and_everything_else() {
    check(&cases::PATCHES_AND_ELSE);
}

/// Guidance by more than the prompt: five branches are dealt over any number of ranks, blocks whose attention is left
/// out are left out by all, a stream that a branch leaves out is left out by all stages, and what is about whole clips is
/// refused to stages before anything is opened.
#[test]
fn guidance_by_more_than_the_prompt() {
    let mut seen = 0;
    for model in models().into_iter().filter(|own| own.description.defaults.terms.is_some()) {
        let (what, plain) = requests(&model.description).swap_remove(0);
        let plain = Request { steps: Some(STEPS), ..plain };
        let with = |more: MoreGuidance| Request {
            more: MoreGuidance { stg_blocks: Some(vec![1]), ..more },
            ..plain.clone()
        };
        let all = with(MoreGuidance::default());
        assert_eq!(model.pipeline.workload(&all).unwrap().branches, 5, "{}", model.name);
        let of_cfg = |ranks| ([1, 1, 1, 1, ranks, 1], None, None, Law::Bits);
        check_request((&model, what), &all, &[of_cfg(2), of_cfg(3), of_cfg(5)]);
        check_request((&model, what), &all, &cases::ALONE);
        check_request((&model, what), &all, &cases::EXACT_HYBRIDS[..4]);
        let staged = layout(cases::PATCHES[0]);
        let refused = |request: &Request| {
            Plan::new(&staged, &model.pipeline.workload(request).unwrap()).unwrap_err().to_string()
        };
        assert!(refused(&all).contains("rescale"), "{}", refused(&all));
        let (off, one, three) = (Some(0.0), Some(1.0), Some(3.0));
        let level = MoreGuidance { rescale: off, audio_rescale: off, ..MoreGuidance::default() };
        check_request((&model, what), &with(level.clone()), &cases::PATCHES);
        check_request((&model, what), &with(level.clone()), &cases::PATCHES_AND_ELSE);
        // By the other modality alone: nothing is compared with but streams that are left out.
        let more = MoreGuidance {
            stg: off,
            audio_stg: off,
            modality: three,
            audio_modality: three,
            audio_scale: one,
            ..level
        };
        let alone = Request { guidance: one, more, ..plain.clone() };
        assert_eq!(model.pipeline.workload(&alone).unwrap().branches, 3, "{}", model.name);
        check_request((&model, what), &alone, &[of_cfg(2), of_cfg(3)]);
        check_request((&model, what), &alone, &cases::PATCHES);
        seen += 1;
    }
    assert!(seen > 1, "{seen} models have more guidance");
}

/// Every pair of the table in `docs/parallel.md`, with two ranks along each axis.
#[test]
fn every_pair_of_axes() {
    let pairs = cases::pairs();
    assert_eq!(pairs.len(), 15);
    check_first(&pairs, 1);
}

/// Two and three axes at once, up to eight ranks.
#[test]
fn hybrids_of_exact_axes() {
    check_first(&cases::EXACT_HYBRIDS, 1);
}

#[test]
fn hybrids_with_patches_that_flow() {
    check_first(&cases::PATCHED_HYBRIDS, 1);
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
        ([1, 1, 1, 1, 2, 1], None, None, Law::Bits),
        ([1, 1, 1, 1, 1, 2], None, None, Law::Bits),
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
            let got = made(&model, &request, &layout(case));
            // What was saved is told of all passes of all samples, whoever made them.
            let told = got.cache.unwrap();
            let counts = |own: &CacheReport| (own.passes, own.skipped);
            assert_eq!(counts(&told), counts(&report), "{}, {case:?}", model.name);
            // Text that stands in the stream is counted by every rank that holds it, so its share of the error grows.
            let near = if model.name == "joint" { 0.2 } else { 1e-4 };
            let off = (told.drift - report.drift).abs();
            assert!(off <= near * report.drift, "{}, {case:?}: {told:?}, {report:?}", model.name);
            let name = format!("{}, given {what}, {case:?}", model.name);
            compare(&name, &values_of(got), &want, exact);
        }
    }
}

/// Where nothing is guided, there is one branch: ranks that would share branches make it each for itself, and count what a
/// cache saved once.
#[test]
fn guidance_that_is_off() {
    let cases = [
        ([1, 1, 1, 1, 2, 1], None, None, Law::Bits),
        ([1, 2, 1, 1, 2, 1], None, None, Law::Bits),
        ([1, 1, 1, 1, 2, 2], None, None, Law::Bits),
        ([1, 1, 1, 2, 2, 1], Some(2), None, Law::StaleBits),
    ];
    for model in models() {
        let (what, request) = requests(&model.description).swap_remove(0);
        for guidance in [1.0, 0.5] {
            let audio_scale = model.description.defaults.terms.map(|_| guidance);
            let more = MoreGuidance { audio_scale, ..request.more.clone() };
            let guidance = Some(guidance);
            let request = Request { steps: Some(STEPS), guidance, more, ..request.clone() };
            assert_eq!(model.pipeline.workload(&request).unwrap().branches, 1, "{}", model.name);
            check_request((&model, what), &request, &cases);
            let cached = Request { first_block_cache: Some(0.9), ..request };
            let one = made(&model, &cached, &layout(([1; 6], None, None, Law::Bits)));
            let two = made(&model, &cached, &layout(cases[0]));
            let [one, two] = [one, two].map(|own| own.cache.unwrap());
            assert_eq!((one.passes, one.skipped), (two.passes, two.skipped), "{}", model.name);
            assert!((one.drift - two.drift).abs() <= 1e-6, "{}: {one:?}, {two:?}", model.name);
        }
    }
}
