//! Numbers of tokens that layouts could stumble over: primes, and sounds that are as long as the picture, or nearly.

use diffusion::Grouping;
use engine::{Given, Request};
use families::Description;
use parallel::Workload;

use crate::asked::{Model, models, requests};
use crate::cases::{Case, Law};
use crate::runs::check_request;

const STEPS: usize = 3;

/// Layouts that must know which tokens are whose: patches that are shared out one by one.
const PATCHES_IN_PARTS: [Case; 4] = [
    ([1, 2, 1, 1, 1, 1], Some(2), Some(99), Law::Bits),
    ([1, 2, 1, 2, 1, 1], Some(2), None, Law::StaleBits),
    ([1, 3, 1, 1, 1, 1], Some(2), None, Law::StaleBits),
    ([1, 1, 2, 2, 1, 1], Some(2), None, Law::StaleRounding),
];

fn workload(model: &Model, request: &Request) -> Workload {
    model.pipeline.workload(request).unwrap_or_else(|err| panic!("{}: {err}", model.name))
}

/// A request whose sound has so many tokens: the slower a clip plays, the longer it sounds.
fn sounding(model: &Model, request: &Request, tokens: usize) -> Request {
    let rate = model.description.geometry.clock.latents_per_second();
    let frame_rate = Some(request.frames.unwrap() as f64 * rate / tokens as f64);
    let request = Request { frame_rate, ..request.clone() };
    assert_eq!(workload(model, &request).tokens.audio, Some(tokens), "{}", model.name);
    request
}

/// As many tokens of sound as of the video, one fewer, one more, and as many as of the video and its references: nobody
/// may take one for the other. Whatever one rank does with a given staleness is held by the counts of `parallel::stale`.
#[test]
fn sounds_as_long_as_pictures() {
    let mut seen = 0;
    for model in models().into_iter().filter(|own| own.description.sound.is_some()) {
        for (what, request) in requests(&model.description) {
            let request = Request { steps: Some(STEPS), ..request };
            let own = workload(&model, &request);
            let (video, all) = (own.own_tokens.video.unwrap(), own.tokens.video.unwrap());
            let mut counts = vec![video - 1, video, video + 1, all];
            counts.dedup();
            for count in counts {
                let request = sounding(&model, &request, count);
                let what = format!("{what}, {video} tokens of video and {count} of sound");
                check_request((&model, &what), &request, &PATCHES_IN_PARTS);
                seen += 1;
            }
        }
    }
    assert!(seen >= 12, "{seen} requests");
}

/// Layouts for few tokens, none of whose shares and patches are alike.
const UNEVEN: [Case; 6] = [
    ([1, 2, 1, 1, 1, 1], None, None, Law::Bits),
    ([1, 5, 1, 1, 1, 1], None, None, Law::Bits),
    ([1, 1, 3, 1, 1, 1], None, None, Law::Rounding),
    ([2, 1, 1, 1, 1, 1], None, None, Law::Rounding),
    ([1, 1, 1, 2, 1, 1], Some(3), None, Law::StaleBits),
    ([1, 2, 1, 2, 1, 1], Some(2), None, Law::StaleBits),
];

/// A prime number of columns, of as few rows as there can be: 13 tokens in all where a model makes a single latent frame
/// of one row, and sound of 11.
fn prime(model: &Model) -> (&'static str, Request) {
    let geometry = &model.description.geometry;
    let side = |axis: usize, tokens: usize| geometry.factors[axis] * geometry.patch[axis] * tokens;
    let (what, request) = requests(&model.description).pop().unwrap();
    // Codecs pad their edges by the row beside them, so there must be two.
    let rows = 2_usize.div_ceil(geometry.patch[1]);
    let request = Request { height: Some(side(1, rows)), width: Some(side(2, 13)), ..request };
    let single = Request { frames: Some(single_frame(&model.description)), ..request.clone() };
    let bare = request.given == [Given::default()];
    let request = if bare && model.pipeline.workload(&single).is_ok() { single } else { request };
    match model.description.sound {
        Some(_) => (what, sounding(model, &request, 11)),
        None => (what, request),
    }
}

/// Frames of one latent frame of tokens.
fn single_frame(model: &Description) -> usize {
    match model.geometry.grouping {
        Grouping::Picture => 1,
        Grouping::Causal | Grouping::Even => model.geometry.frames(model.geometry.patch[0]),
    }
}

#[test]
fn primes() {
    let mut primes = 0;
    for model in models() {
        let (what, request) = prime(&model);
        let request = Request { steps: Some(STEPS), ..request };
        let tokens = workload(&model, &request).own_tokens;
        assert_eq!(tokens.video.unwrap() % 13, 0, "{}", model.name);
        primes += tokens.into_iter().filter(|count| [11, 13].contains(count)).count();
        check_request((&model, what), &request, &UNEVEN);
    }
    assert!(primes >= 8, "{primes} sequences of a prime number of tokens");
}
