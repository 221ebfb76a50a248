//! A network is a fold over bags: whoever runs it block by block, over other ranks' bags or beside other
//! samples gets the same bits.

use burn::tensor::{Device, Tensor};
use nn::{
    FirstBlockCache, Forward, Inputs, Modality, OneDevice, Packed, Plain, Prediction, Recompute,
    Weights,
};
use testkit::contract::holds;
use testkit::numbers::{bits, values};
use testkit::parity::{Bounds, Equals, Question};

use crate::asked::{Asked, all};

#[test]
fn tokens_mix_as_the_contract_of_attention_says() {
    for Asked { name, question: Question { network, store, inputs }, .. } in all() {
        let reaches = holds(&*network, &store, &inputs);
        let own = |reach: nn::Reach| matches!(reach, nn::Reach::Own | nn::Reach::Joint { .. });
        let blocks = reaches.iter().filter(|(_, reach)| own(*reach)).count();
        assert!(blocks >= network.depth(), "{name}: {reaches:?}");
    }
}

/// Going back block by block is going back through the whole graph, to the bit and for every parameter.
#[test]
fn blockwise_backward_equals_the_whole_graph() {
    for Asked { name, question, .. } in all() {
        let slope = |recompute| question.slope(&OneDevice { recompute }).unwrap();
        let whole = slope(Recompute::Never);
        for recompute in [Recompute::PerBlock, Recompute::Keep(1)] {
            let found = slope(recompute).equals(&whole, Bounds::BITS);
            found.unwrap_or_else(|err| panic!("{name}, {recompute:?}: {err}"));
        }
        let used = whole.parameters.len() as f64 / question.store.iter().count() as f64;
        assert!(used > 0.9, "{name}: only {used} of the parameters have a gradient");
    }
}

/// A bag that was sent as plain data and rebuilt by someone who has never seen it serves as well.
#[test]
fn bags_can_be_rebuilt_between_all_blocks() {
    for Asked { name, question: Question { network, store, inputs }, .. } in all() {
        let weights = &Weights::new(&store);
        let send = |packed: &Packed| Packed::from_data(packed.to_data(), &Device::flex()).unwrap();
        let shared = send(&network.shared(weights, &inputs).unwrap());
        let mut stream = network.embed(weights, &inputs, &shared).unwrap();
        for index in 0..network.depth() {
            let shared = &send(&shared);
            let pass = Forward { weights, shared, attention: &mut Plain };
            stream = network.block(index, send(&stream), pass).unwrap();
        }
        let sent = network.head(weights, send(&stream), &send(&shared)).unwrap();
        let whole = nn::forward(&*network, weights, &inputs, &mut Plain).unwrap();
        assert_eq!(all_bits(&sent), all_bits(&whole), "{name}");
    }
}

/// A step that is like the one before is left out but for the first block, whose own contribution is kept: asked
/// the same again, a network says the same.
#[test]
fn a_cached_step_keeps_the_first_block() {
    let sum = |own| Ok(own);
    for Asked { name, question: Question { network, store, inputs }, .. } in all() {
        let cache = FirstBlockCache::new(0.5);
        let said = || {
            let step = cache.step(&*network, (0, 1), false, &sum);
            nn::forward(&step, &Weights::new(&store), &inputs, &mut Plain).unwrap()
        };
        let (first, again) = (said(), said());
        let report = cache.report(true);
        assert_eq!((report.passes, report.skipped), (2, 1), "{name}");
        for (again, first) in again.into_iter().zip(first) {
            let (first, again) = (values(&first), values(&again));
            let size = first.iter().fold(0.0, |most: f32, value| most.max(value.abs()));
            let off = first.iter().zip(&again).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(off <= 1e-5 * size, "{name}: off by {off} of {size}");
        }
    }
}

/// What lets the engine batch: no sample's result depends on who shares its forward pass.
#[test]
fn a_sample_does_not_depend_on_its_neighbours() {
    for Asked { name, question: Question { network, store, inputs }, .. } in all() {
        let weights = Weights::new(&store);
        let run = |inputs: &Inputs| nn::forward(&*network, &weights, inputs, &mut Plain).unwrap();
        let whole = run(&inputs);
        let [samples, _, _] = inputs.video.as_ref().unwrap().tokens.dims();
        assert!(samples > 1, "{name}");
        for sample in 0..samples {
            let alone = run(&inputs.clone().map(|own| one(&own, sample)));
            let part = whole.clone().map(|own| own.narrow(0, sample, 1));
            assert_eq!(all_bits(&alone), all_bits(&part), "{name}: sample {sample}");
        }
    }
}

fn all_bits(prediction: &Prediction) -> Vec<Vec<u32>> {
    prediction.as_ref().into_iter().map(bits).collect()
}

/// One sample of several.
fn one(own: &Modality, sample: usize) -> Modality {
    fn row<const D: usize>(tensor: &Tensor<D>, sample: usize) -> Tensor<D> {
        tensor.clone().narrow(0, sample, 1)
    }
    let mut one = own.clone();
    one.tokens = row(&own.tokens, sample);
    one.sigma = row(&own.sigma, sample);
    one.positions = row(own.positions.values(), sample).into();
    one.levels.distinct = row(&own.levels.distinct, sample);
    one.levels.index = own.levels.index.clone().map(|index| index.narrow(0, sample, 1));
    one.context.tokens = row(&own.context.tokens, sample);
    one.context.mask = own.context.mask.as_ref().map(|mask| row(mask, sample));
    one.context.image = own.context.image.as_ref().map(|image| row(image, sample));
    one.size = own.size.clone().map(|mut size| {
        size.resolution = row(&size.resolution, sample);
        size.aspect_ratio = row(&size.aspect_ratio, sample);
        size
    });
    one
}
