//! The cost model says what the communicator counts: payload of every rank and group, for every model of the
//! table.

use comm::{Axis, MeshShape, Ranks};
use engine::{MoreGuidance, Pipeline, Request, Silent};
use families::Description;
use parallel::cost::{Hardware, Link, RankTraffic, traffic_of_all_steps};
use parallel::{Layout, Plan};

use crate::asked::{Nobody, models, requests};

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

#[test]
fn plans_say_what_is_counted() {
    for model in models() {
        let bare = requests(&model.description).into_iter().next_back();
        let request = request(&model.description, &bare.expect("there is a request").1);
        let work = model.pipeline.work(&request).unwrap();
        let samples = work.workload.samples as f64;
        for (degrees, patches) in CASES {
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
                own.run(&request, &mut Silent, &mut Nobody).unwrap();
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
