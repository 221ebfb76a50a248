//! Laws of the cost model, over layouts of a made-up transformer.

use comm::{Axis, MeshShape};
use nn::Tracks;

use super::hardware::{Hardware, Link};
use super::network::Work;
use super::shape::{Shape, TextRole, TextShape};
use super::{Candidate, candidates, forecast};
use crate::plan::{Layout, Plan};

fn shape() -> Shape {
    Shape {
        layers: 8,
        width: 768,
        heads: 12,
        feed_forward: 3072,
        modulation: 0,
        tokens: Tracks::video(1536),
        channels: 64,
        text: Some(TextShape { tokens: 512, width: 4096, role: TextRole::Cross }),
        parameter_bytes: 4,
        branches: 2,
        steps: 10,
        samples: 1,
        latent_rows: Some(32),
        before: 1e9,
        decode: 1e10,
        decode_bytes: 1 << 20,
        other_bytes: 1 << 20,
    }
}

fn hardware() -> Hardware {
    Hardware {
        name: "made up".to_owned(),
        flops: 1e12,
        efficiency: 0.5,
        attention: 0.4,
        stream: 1e11,
        value_bytes: 4,
        memory: 1 << 40,
        shared_memory: false,
        program: 1 << 20,
        rank_program: 0,
        ranks_per_host: 8,
        hosts: None,
        within: Link { bandwidth: 1e10, latency: 1e-5 },
        between: Link { bandwidth: 1e9, latency: 1e-4 },
    }
}

fn plan(work: &Work, degrees: &[(Axis, usize)]) -> Plan {
    let mesh =
        degrees.iter().fold(MeshShape::default(), |mesh, (axis, degree)| mesh.with(*axis, *degree));
    Plan::new(&Layout::new(mesh.size().unwrap(), mesh), &work.workload).unwrap()
}

/// Wider and quicker links, more operations and more memory bandwidth make nothing slower.
#[test]
fn better_hardware_is_never_slower() {
    let work = shape().work();
    let base = hardware();
    let link = |bandwidth, latency| Link { bandwidth, latency };
    let better = [
        Hardware { within: link(1e11, 1e-5), ..base.clone() },
        Hardware { within: link(1e10, 1e-6), ..base.clone() },
        Hardware { between: link(1e10, 1e-4), ..base.clone() },
        Hardware { flops: 2e12, ..base.clone() },
        Hardware { attention: 0.5, ..base.clone() },
        Hardware { stream: 2e11, ..base.clone() },
    ];
    for ranks in [2, 4, 8, 16] {
        for own in candidates(ranks, &work, &base) {
            for (at, hardware) in better.iter().enumerate() {
                let now = forecast(&own.plan, &work, hardware).seconds.all;
                let before = own.forecast.seconds.all;
                assert!(now <= before, "{at}: {:?}: {now} > {before}", own.plan.layout());
            }
        }
    }
}

/// Parts of the matrices and of the blocks add up to the whole; what is not split is on every rank.
#[test]
fn shards_add_up() {
    let work = shape().work();
    let all = |degrees: &[(Axis, usize)]| {
        let ranks = forecast(&plan(&work, degrees), &work, &hardware()).ranks;
        ranks.iter().map(|rank| rank.memory.parameter_count).sum::<u64>()
    };
    let network = work.network();
    let whole = |part: &super::Part| part.whole_parameters;
    let blocks: u64 = network.blocks.iter().map(whole).sum();
    let shared = whole(&network.shared);
    let ends = whole(&network.embed) + whole(&network.head);
    assert_eq!(all(&[]), network.parameters());
    assert_eq!(all(&[(Axis::Tensor, 4)]), network.parameters() + 3 * (blocks + shared + ends));
    assert_eq!(all(&[(Axis::Pipeline, 4)]), network.parameters() + 3 * shared);
    assert_eq!(all(&[(Axis::Ulysses, 4)]), 4 * network.parameters());
}

/// The counts of xDiT's table: per rank, layer and branch, in values.
#[test]
fn traffic_is_that_of_the_table() {
    let work = Shape { text: None, branches: 1, layers: 1, ..shape() }.work();
    let sent = |degrees: &[(Axis, usize)]| {
        forecast(&plan(&work, degrees), &work, &hardware()).ranks[0].traffic
    };
    let (tokens, width, value) = (1536.0, 768.0, 4.0);
    for ranks in [2_u32, 3, 4, 6] {
        let n = f64::from(ranks);
        let others = (n - 1.0) / n;
        let near = |got: f64, want: f64| assert!((got - want).abs() < 1e-6 * want, "{got} {want}");
        let degree = ranks as usize;
        near(sent(&[(Axis::Ulysses, degree)]).ulysses, value * 4.0 * tokens / n * width * others);
        near(sent(&[(Axis::Ring, degree)]).ring, value * 2.0 * tokens * width * others);
        near(sent(&[(Axis::Tensor, degree)]).tensor, value * 2.0 * 2.0 * tokens * width * others);
    }
    let guided = Shape { text: None, layers: 1, ..shape() }.work();
    let plan = plan(&guided, &[(Axis::Cfg, 2)]);
    let sent = forecast(&plan, &guided, &hardware()).ranks[0].traffic;
    assert_eq!(sent.bytes(), value * tokens * 64.0);
}

/// The count of PipeFusion per step and edge, whatever the number of stages: the stream of all tokens once, as xDiT's table
/// has it (`p hs` of each of its edges), and from the last stage the prediction's channels, where the table counts none.
#[test]
fn a_stage_sends_the_stream_once() {
    let work = Shape { text: None, branches: 1, ..shape() }.work();
    for stages in [2, 4, 8] {
        let ranks = forecast(&plan(&work, &[(Axis::Pipeline, stages)]), &work, &hardware()).ranks;
        let sent: Vec<f64> = ranks.iter().map(|rank| rank.traffic.bytes()).collect();
        let (last, inner) = sent.split_last().unwrap();
        assert!(inner.iter().all(|bytes| *bytes == 4.0 * 1536.0 * 768.0), "{sent:?}");
        assert_eq!(*last, 4.0 * 1536.0 * 64.0);
    }
}

/// Stages cut memory and keep keys and values; their messages do not grow with the depth.
#[test]
fn stages_send_little_and_keep_keys() {
    let deep = Shape { layers: 16, ..shape() }.work();
    let work = shape().work();
    let of = |work: &Work| forecast(&plan(work, &[(Axis::Pipeline, 4)]), work, &hardware());
    let (shallow, deep) = (of(&work), of(&deep));
    assert_eq!(shallow.ranks[1].traffic.bytes(), deep.ranks[1].traffic.bytes());
    let kept = shallow.ranks[1].memory.key_values;
    // Two branches: keys and values of two layers, of tokens and of text, and both projections of the text.
    let rows = 2 * (2 * (2 * 1536 + 2 * 512) + 2 * 512);
    assert_eq!(kept, rows * 768 * 4);
    assert_eq!(forecast(&plan(&work, &[]), &work, &hardware()).ranks[0].memory.key_values, 0);
}

/// The cheapest layout is chosen, the same every time, and none that does not fit.
#[test]
fn ranks_alone_find_a_layout() {
    let degrees = |ranks, work: &Work, hardware: &Hardware| {
        let plan = Plan::auto(ranks, work, hardware).unwrap();
        Axis::ALL.map(|axis| plan.layout().mesh.degree(axis))
    };
    // Tensor, Ulysses, ring, pipeline, cfg, data.
    let (guided, here) = (shape().work(), hardware());
    assert_eq!(degrees(1, &guided, &here), [1; 6]);
    assert_eq!(degrees(2, &guided, &here), [1, 1, 1, 1, 2, 1]);
    let several = Shape { samples: 3, ..shape() }.work();
    assert_eq!(degrees(3, &several, &here), [1, 1, 1, 1, 1, 3]);
    assert_eq!(degrees(6, &several, &here), [1, 1, 1, 1, 2, 3]);
    let plain = Shape { branches: 1, ..shape() }.work();
    // No rank idles, even where a host has room for half of them only.
    let crowded = Hardware { ranks_per_host: 2, hosts: Some(1), ..hardware() };
    let two = Shape { samples: 2, ..shape() }.work();
    assert_eq!(degrees(4, &two, &crowded), [1, 1, 1, 1, 2, 2]);
    // The same bits may take a little longer.
    assert_eq!(degrees(2, &plain, &here), [1, 2, 1, 1, 1, 1]);
    // A ring hides what travels behind what is looked at; of more ranks, it sends more than Ulysses.
    let slow = |bandwidth| Hardware { within: Link { bandwidth, latency: 1e-5 }, ..hardware() };
    assert_eq!(degrees(2, &plain, &slow(1e9)), [1, 1, 2, 1, 1, 1]);
    assert_eq!(degrees(4, &plain, &slow(1e8)), [1, 4, 1, 1, 1, 1]);
    let mut few = Shape { branches: 1, heads: 1, ..shape() }.work();
    assert_eq!(degrees(2, &few, &here), [1, 1, 2, 1, 1, 1]);
    // A single token per stream can be cut by matrices alone, and one head by nothing.
    few.workload.tokens = Tracks::video(1);
    few.workload.own_tokens = few.workload.tokens;
    few.workload.depth = 1;
    few.runs[0].networks[0].blocks.truncate(1);
    assert_eq!(degrees(2, &few, &here)[5], 2, "a replica idles");
    // Where the weights do not fit on a rank, they are cut.
    let bytes = guided.network().bytes();
    let small = Hardware { memory: bytes * 3 / 4, ..hardware() };
    let [tensor, .., pipeline, _, _] = degrees(4, &guided, &small);
    assert!(tensor > 1 && pipeline == 1, "an exact one is there");
    let tiny = Hardware { memory: bytes / 64, ..hardware() };
    let refused = Plan::auto(4, &guided, &tiny).unwrap_err().to_string();
    assert!(refused.contains("fits into") && refused.contains("made up"), "{refused}");
    // Ranks of their own bring their memory; threads of one process share it.
    let shared = Hardware { shared_memory: true, ..tiny.clone() };
    let apart = Hardware { shared_memory: false, ..tiny };
    let refused = |ranks, on| Plan::auto(ranks, &guided, on).unwrap_err().to_string();
    assert!(refused(4, &shared).contains("; give fewer ranks, or a smaller size"));
    assert!(refused(1, &shared).contains("; give a smaller size"));
    assert!(refused(4, &apart).contains("; give more ranks, or a smaller size"));
}

/// A layout is chosen among those in which so many ranks decode: three replicas of one rank have nobody to decode with.
#[test]
fn who_decodes_is_chosen_with_the_layout() {
    let mut work = shape().work();
    (work.workload.samples, work.workload.latent_rows) = (3, Some(12));
    let data = |plan: &Plan| plan.layout().mesh.degree(Axis::Data);
    let alone = Plan::auto(3, &work, &hardware()).unwrap();
    assert_eq!((data(&alone), alone.layout().vae_ranks), (3, 1));
    let plan = Plan::auto_decoding(3, 2, &work, &hardware()).unwrap();
    assert_eq!((data(&plan), plan.layout().vae_ranks), (1, 2));
    let refused = Plan::auto_decoding(3, 4, &work, &hardware()).unwrap_err();
    assert_eq!(refused.axis, "vae-ranks");
    let refused = Plan::auto_decoding(3, 0, &work, &hardware()).unwrap_err();
    assert_eq!(refused.axis, "vae-ranks");
}

/// Every candidate is legal and has all ranks; the best comes first, whatever order they are found in.
#[test]
fn candidates_are_legal_and_in_order() {
    let work = shape().work();
    for ranks in [1, 2, 6, 12] {
        let all = candidates(ranks, &work, &hardware());
        assert!(!all.is_empty());
        assert!(all.iter().all(|own| own.plan.layout().ranks == ranks));
        let useful = |own: &&Candidate| own.exact && own.plan.layout().mesh.degree(Axis::Data) == 1;
        let exact: Vec<f64> =
            all.iter().filter(useful).map(|own| own.forecast.seconds.all).collect();
        assert!(exact.windows(2).all(|pair| pair[0] <= pair[1] * 1.002));
        assert!(all.iter().all(|own| own.forecast.efficiency <= 1.001), "more than all");
    }
}
