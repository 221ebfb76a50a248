//! The first-block cache: what is left out is what was done before, and nothing else.

use nn::{CacheReport, FirstBlockCache, Forward, Inputs, Network, Packed, Plain, Weights};
use testkit::numbers::bits;
use testkit::toy::Toy;

/// The streams after the first and after the last block.
fn streams(toy: &Toy, inputs: &Inputs) -> [Packed; 2] {
    let store = toy.store();
    let weights = &Weights::new(&store);
    let shared = &Network::shared(toy, weights, inputs).expect("a toy runs");
    let mut stream = Network::embed(toy, weights, inputs, shared).expect("a toy runs");
    let mut first = None;
    for index in 0..toy.depth {
        let pass = Forward { weights, shared, attention: &mut Plain };
        stream = Network::block(toy, index, stream, pass).expect("a toy runs");
        first.get_or_insert_with(|| stream.clone());
    }
    [first.expect("a toy runs"), stream]
}

fn values(stream: &Packed) -> burn::tensor::Tensor<1> {
    stream.differentiable().next().expect("a toy runs").clone()
}

fn step(
    cache: &FirstBlockCache,
    (toy, inputs): (&Toy, &Inputs),
    expert: usize,
    is_last: bool,
) -> Vec<u32> {
    let store = toy.store();
    let alone = |own| Ok(own);
    let network = cache.step(toy, (expert, 1), is_last, &alone);
    let made =
        nn::forward(&network, &Weights::new(&store), inputs, &mut Plain).expect("a toy runs");
    bits(&made.video.expect("a toy runs"))
}

fn plain(toy: &Toy, inputs: &Inputs) -> Vec<u32> {
    let store = toy.store();
    let made = nn::forward(toy, &Weights::new(&store), inputs, &mut Plain).expect("a toy runs");
    bits(&made.video.expect("a toy runs"))
}

/// Two steps that differ a little.
fn two(toy: &Toy) -> [Inputs; 2] {
    let first = toy.inputs(2, 9);
    let second = first.clone().map(|mut own| {
        own.tokens = own.tokens * 1.01;
        own
    });
    [first, second]
}

#[test]
fn what_is_far_is_run() {
    let toy = Toy::small();
    let cache = FirstBlockCache::new(1e-9);
    for inputs in two(&toy) {
        assert_eq!(step(&cache, (&toy, &inputs), 0, false), plain(&toy, &inputs));
    }
    let report = cache.report(true);
    assert_eq!((report.passes, report.skipped, report.drift), (2, 0, 0.0));
    // Steps of one branch are counted by one of the ranks that share branches.
    assert_eq!(cache.report(false), CacheReport::default());
}

/// The first block's own change counts; what the others added is that of the step before.
#[test]
fn what_is_near_is_left_out() {
    let toy = Toy::small();
    let [first, second] = two(&toy);
    let cache = FirstBlockCache::new(0.5);
    assert_eq!(step(&cache, (&toy, &first), 0, false), plain(&toy, &first));
    let found = step(&cache, (&toy, &second), 0, false);
    assert_ne!(found, plain(&toy, &second));
    assert_eq!((cache.report(true).passes, cache.report(true).skipped), (2, 1));

    let [[then, end], [now, _]] = [streams(&toy, &first), streams(&toy, &second)];
    let rest = values(&end) - values(&then);
    let stream = now.map(|own| own + rest.clone());
    let store = toy.store();
    let weights = &Weights::new(&store);
    let shared = Network::shared(&toy, weights, &second).expect("a toy runs");
    let want = Network::head(&toy, weights, stream, &shared).expect("a toy runs");
    assert_eq!(found, bits(&want.video.expect("a toy runs")));

    // The last step is run, and says how far off the one before was.
    assert_eq!(step(&cache, (&toy, &second), 0, true), plain(&toy, &second));
    let report = cache.report(true);
    assert!(report.drift > 0.0 && report.drift < 0.5, "{report:?}");
    let [[_, end], [then, late]] = [streams(&toy, &first), streams(&toy, &second)];
    let size = |own: burn::tensor::Tensor<1>| {
        own.abs().into_data().iter::<f32>().map(f64::from).sum::<f64>()
    };
    let [fresh, stale] =
        [values(&late) - values(&then), values(&end) - values(&streams(&toy, &first)[0])];
    let want = size(fresh.clone() - stale) / size(fresh);
    assert!((report.drift - want).abs() < 1e-6 * want, "{report:?}, {want}");
}

/// Another network, or another number of branches, has nothing in common with the step before.
#[test]
fn another_expert_begins_anew() {
    let toy = Toy::small();
    let [first, second] = two(&toy);
    let cache = FirstBlockCache::new(0.5);
    step(&cache, (&toy, &first), 0, false);
    assert_eq!(step(&cache, (&toy, &second), 1, false), plain(&toy, &second));
    assert_eq!(cache.report(true).skipped, 0);
}
