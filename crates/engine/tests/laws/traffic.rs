//! The cost model says what the communicator counts: payload of every rank and group, for every model of the
//! table.

use comm::{Axis, MeshShape, Ranks};
use engine::{MoreGuidance, Pipeline, Request, Silent};
use families::Description;
use parallel::cost::{Hardware, Link, RankTraffic, traffic_of_all_steps};
use parallel::{Layout, Plan};

use crate::asked::{Model, Nobody, models, requests};

const STEPS: usize = 3;

/// A machine that computes in f32; nothing else of it matters here.
fn hardware() -> Hardware {
    let link = Link { bandwidth: 1e9, latency: 1e-6 };
    Hardware {
        name: "any".to_owned(),
        flops: 1e9,
        efficiency: 1.0,
        attention: 1.0,
        stream: 1e9,
        value_bytes: 4,
        memory: u64::MAX,
        shared_memory: true,
        program: 0,
        rank_program: 0,
        ranks_per_host: 1,
        hosts: None,
        within: link,
        between: link,
    }
}

/// A request without references whose tokens come out even: 24 of a latent frame. Sound on a clock of its own does not.
fn request(model: &Description, request: &Request) -> Request {
    let geometry = &model.geometry;
    let has_clock = model.defaults.terms.is_some();
    let none = has_clock.then_some(0.0);
    let side = |axis: usize, tokens: usize| geometry.factors[axis] * geometry.patch[axis] * tokens;
    Request {
        height: Some(side(1, 4)),
        width: Some(side(2, 6)),
        steps: Some(STEPS),
        guidance: Some(3.0),
        without_audio: has_clock,
        more: MoreGuidance { stg: none, rescale: none, ..MoreGuidance::default() },
        // Sums over the text come out even too.
        max_tokens: (!model.family.text.is_empty()).then_some(24),
        ..request.clone()
    }
}

/// The same with a sound of as many steps as come out even, guided by all that the model has but what stages refuse, and by
/// the other track alone.
fn with_sound(model: &Model, silent: &Request) -> Vec<Request> {
    let level = Some(0.0);
    let more = MoreGuidance {
        // A block of every stage but the last has all its attentions.
        stg_blocks: Some(vec![2]),
        rescale: level,
        audio_rescale: level,
        ..MoreGuidance::default()
    };
    let at = |frame_rate| Request {
        frame_rate: Some(frame_rate),
        without_audio: false,
        more: more.clone(),
        ..silent.clone()
    };
    let steps = |request: &Request| model.pipeline.workload(request).unwrap().tokens.audio.unwrap();
    let rates = (1..240).map(|quarter| at(f64::from(quarter) / 4.0));
    let all = rates.into_iter().find(|own| steps(own).is_multiple_of(12)).unwrap();
    let alone = MoreGuidance { stg: level, audio_stg: level, audio_scale: Some(1.0), ..more };
    let alone = MoreGuidance { stg_blocks: None, ..alone };
    let alone = Request { guidance: Some(1.0), more: alone, ..all.clone() };
    let branches = |own: &Request| model.pipeline.workload(own).unwrap().branches;
    assert_eq!((branches(&all), branches(&alone)), (5, 3), "{}", model.name);
    vec![all, alone]
}

/// Degrees along tensor, Ulysses, ring, pipeline, cfg and data; patches.
const CASES: [([usize; 6], Option<usize>); 11] = [
    ([2, 1, 1, 1, 1, 1], None),
    ([3, 1, 1, 1, 1, 1], None),
    ([1, 2, 1, 1, 1, 1], None),
    ([1, 3, 1, 1, 1, 1], None),
    ([1, 1, 2, 1, 1, 1], None),
    ([1, 1, 3, 1, 2, 1], None),
    ([1, 2, 2, 1, 1, 1], None),
    ([2, 3, 1, 1, 1, 1], None),
    ([1, 1, 1, 3, 1, 1], Some(2)),
    ([1, 2, 1, 3, 2, 1], Some(3)),
    ([2, 1, 2, 3, 1, 1], Some(2)),
];

/// The same where there are more branches than two, which differ.
const BRANCHED: [([usize; 6], Option<usize>); 4] = [
    ([1, 1, 1, 1, 3, 1], None),
    ([2, 1, 1, 1, 2, 1], None),
    ([1, 2, 1, 1, 3, 1], None),
    ([1, 1, 1, 2, 3, 1], Some(2)),
];

#[test]
fn plans_say_what_is_counted() {
    for model in models() {
        let bare = requests(&model.description).into_iter().next_back();
        let request = request(&model.description, &bare.expect("there is a request").1);
        hold(&model, &request, &CASES);
        // One expert is guided and the other is not: steps differ.
        if model.description.transformers.len() > 1 {
            let request = Request { second_guidance: Some(1.0), ..request };
            let work = model.pipeline.work(&request).unwrap();
            let counts: Vec<usize> = work.runs[0].steps.iter().map(Vec::len).collect();
            assert!(counts.contains(&1) && counts.contains(&2), "{}: {counts:?}", model.name);
            hold(&model, &request, &CASES[4..]);
        }
    }
}

/// Branches that leave attentions or a track out send less, and the plan says how much less.
#[test]
fn branches_that_leave_something_out() {
    let models = models().into_iter().filter(|own| own.description.defaults.terms.is_some());
    let mut seen = 0;
    for model in models {
        let bare = requests(&model.description).into_iter().next_back();
        let silent = request(&model.description, &bare.expect("there is a request").1);
        for request in with_sound(&model, &silent) {
            hold(&model, &request, &CASES);
            hold(&model, &request, &BRANCHED);
            seen += 1;
        }
    }
    assert!(seen > 1, "{seen} requests with more branches");
}

/// Holds what a plan says of a request to what is counted.
#[track_caller]
fn hold(model: &Model, request: &Request, cases: &[([usize; 6], Option<usize>)]) {
    let work = model.pipeline.work(request).unwrap();
    let samples = work.workload.samples as f64;
    for &(degrees, patches) in cases {
        let mesh = Axis::ALL
            .into_iter()
            .zip(degrees)
            .fold(MeshShape::default(), |mesh, (axis, degree)| mesh.with(axis, degree));
        let pipeline = parallel::Pipeline { patches, ..parallel::Pipeline::default() };
        let layout = Layout { pipeline, ..Layout::new(mesh.size().unwrap(), mesh) };
        let plan = Plan::new(&layout, &work.workload).unwrap();
        let shared = std::sync::Mutex::new(model.pipeline.clone());
        let counted = Ranks::new(layout.ranks).run(|group| {
            let mesh = plan.mesh(group).unwrap();
            let mut own: Pipeline = shared.lock().unwrap().on(mesh.clone(), &plan);
            own.run(request, &mut Silent, &mut Nobody).unwrap();
            let of = |axis| mesh.axis(axis).traffic().bytes as f64;
            RankTraffic {
                tensor: of(Axis::Tensor),
                ulysses: of(Axis::Ulysses),
                ring: of(Axis::Ring),
                pipeline: of(Axis::Pipeline),
                cfg: of(Axis::Cfg),
                sequence: mesh.sequence().traffic().bytes as f64,
            }
        });
        for (rank, counted) in counted.into_iter().enumerate() {
            let name = format!("{} by {degrees:?}, rank {rank}", model.name);
            let counted = counted.unwrap_or_else(|error| panic!("{name}: {error}"));
            let said = traffic_of_all_steps(&plan, &work, &hardware(), rank);
            // An odd number of image tokens leaves sums of uneven parts.
            let odd = if model.description.image_tokens.is_some() { 1e-4 } else { 0.0 };
            close(&name, said, counted, (samples, odd));
            assert!(counted.bytes() > 0.0, "{name}: nothing was sent");
        }
    }
}

#[track_caller]
fn close(name: &str, said: RankTraffic, counted: RankTraffic, (samples, odd): (f64, f64)) {
    let pairs = [
        ("tensor", said.tensor, counted.tensor),
        ("ulysses", said.ulysses, counted.ulysses),
        ("ring", said.ring, counted.ring),
        ("sequence", said.sequence, counted.sequence),
        ("pipeline", said.pipeline, counted.pipeline),
        ("cfg", said.cfg, counted.cfg),
    ];
    for (group, said, counted) in pairs {
        let off = (said * samples - counted).abs();
        assert!(
            off < 1.0 + odd * counted,
            "{name}, {group}: said {}, counted {counted}",
            said * samples
        );
    }
}
