//! A bag is rebuilt from its entries alone, and what does not fit is named.

use burn::tensor::{Device, Tensor};
use nn::{
    Bag, Entry, EntryData, Inputs, Kind, Network, Packed, Plain, Prediction, Result, Weights,
};
use testkit::numbers::{bits, tensor};
use testkit::parity::Question;
use testkit::toy::Shared;

use super::toy;

/// A forward pass in which every bag is stripped to plain data and rebuilt, block by block, as ranks do
/// that never saw its template.
fn rebuilt(network: &dyn Network, weights: &Weights<'_>, inputs: &Inputs) -> Result<Prediction> {
    let send = |packed: &Packed| Packed::from_data(packed.to_data(), &Device::flex());
    let shared = network.shared(weights, inputs)?;
    let mut stream = network.embed(weights, inputs, &send(&shared)?)?;
    for index in 0..network.depth() {
        let shared = &send(&shared)?;
        let pass = nn::Forward { weights, shared, attention: &mut Plain };
        stream = network.block(index, send(&stream)?, pass)?;
    }
    network.head(weights, send(&stream)?, &send(&shared)?)
}

#[test]
fn a_bag_is_rebuilt_to_the_bit() {
    for (batch, tokens) in [(1, 5), (3, 13)] {
        let Question { network, store, mut inputs } = toy(batch, tokens);
        // With and without what is optional.
        for _ in 0..2 {
            let weights = Weights::new(&store);
            let want = nn::forward(&*network, &weights, &inputs, &mut Plain).unwrap();
            let got = rebuilt(&*network, &weights, &inputs).unwrap();
            assert_eq!(bits(got.video.as_ref().unwrap()), bits(want.video.as_ref().unwrap()));
            inputs.video.as_mut().unwrap().context.mask = None;
            inputs.video.as_mut().unwrap().levels =
                nn::Levels::per_sample(inputs.video.as_ref().unwrap().sigma.clone() * 1000.0);
        }
    }
}

#[test]
fn entries_say_what_they_are() {
    let Question { network, store, inputs } = toy(1, 5);
    let shared = network.shared(&Weights::new(&store), &inputs).unwrap();
    let kinds: Vec<_> = shared.kinds().collect();
    let want = [
        ("modulation", Kind::Differentiable),
        ("text", Kind::Differentiable),
        ("text_mask", Kind::Constant),
        ("index", Kind::Integer),
    ];
    assert_eq!(kinds, want);
    // Half precision stays half precision.
    let half: Tensor<2> = tensor("half", [2, 3]).cast(burn::tensor::DType::BF16);
    let packed = Packed::of([("half", Entry::constant(half.clone()))]);
    let mut again = Packed::from_data(packed.to_data(), &Device::flex()).unwrap();
    let again: Tensor<2> = again.constant("half").unwrap();
    assert_eq!(again.into_data(), half.into_data());
}

/// What is wrong with one entry of the toy's `Shared`.
fn fault(change: impl Fn(&mut Vec<EntryData>)) -> String {
    let Question { network, store, inputs } = toy(1, 5);
    let shared = network.shared(&Weights::new(&store), &inputs).expect("it runs");
    let mut data = shared.to_data();
    change(&mut data);
    let rebuilt = Packed::from_data(data, &Device::flex()).and_then(Shared::unpack);
    rebuilt.expect_err("it does not fit").to_string()
}

#[test]
fn what_does_not_fit_is_named() {
    let missing = fault(|data| drop(data.remove(1)));
    assert!(missing.contains("entry `text` ") && missing.ends_with("is missing"), "{missing}");
    let kind = fault(|data| data[0].kind = Kind::Constant);
    assert!(kind.contains("entry `modulation` "), "{kind}");
    assert!(
        kind.contains("is a constant tensor, but the network takes a differentiable"),
        "{kind}"
    );
    let absent = fault(|data| data[1].kind = Kind::Absent);
    assert!(absent.contains("entry `text` ") && absent.contains("is absent"), "{absent}");
    let rank = fault(|data| data[2].shape = vec![1, 3]);
    assert!(rank.contains("entry `text_mask` ") && rank.contains("[1, 3]"), "{rank}");
    let count = fault(|data| data[3].shape = vec![1, 4]);
    assert!(count.contains("entry `index` ") && count.contains("has 5 values"), "{count}");
    let empty = fault(|data| data[0].values = None);
    assert!(empty.contains("entry `modulation` ") && empty.ends_with("has no values"), "{empty}");
    let more = fault(|data| {
        let another = EntryData { name: "another".to_owned(), ..data[0].clone() };
        data.push(another);
    });
    assert!(more.contains("entry `another` ") && more.contains("is not one"), "{more}");
}
