//! Backward block by block is backward of the whole graph, for every parameter and to the bit.

use std::sync::Arc;

use burn::tensor::{Device, Tensor};
use nn::{
    Bag, Dit, Forward, Inputs, OneDevice, Packed, Parameters, Prediction, Recompute, Result,
    Schedule, Sizes, Weights,
};
use testkit::numbers::values;
use testkit::parity::{Bounds, Equals, Question, loss};
use testkit::toy::{Shared, Toy};

use super::toy;

const WHOLE: OneDevice = OneDevice { recompute: Recompute::Never };
const BLOCK_WISE: OneDevice = OneDevice { recompute: Recompute::PerBlock };

#[test]
fn it_equals_the_whole_graph() {
    for (batch, tokens, depth) in [(1, 8, 3), (3, 13, 3), (2, 5, 1), (1, 70, 6)] {
        let model = Toy { depth, ..Toy::small() };
        let inputs = model.inputs(batch, tokens);
        let question = Question { network: Arc::new(model), store: model.store(), inputs };
        let whole = question.slope(&WHOLE).unwrap();
        let count = question.store.iter().count();
        assert_eq!(whole.parameters.len(), count, "every parameter is trained");
        for recompute in [Recompute::PerBlock, Recompute::Keep(1), Recompute::Keep(9)] {
            let blocks = question.slope(&OneDevice { recompute }).unwrap();
            if let Err(difference) = whole.equals(&blocks, Bounds::BITS) {
                panic!("{tokens} tokens, {depth} blocks, {recompute:?}: {difference}");
            }
        }
    }
}

#[test]
fn what_is_frozen_gets_no_gradient() {
    let question = toy(1, 8);
    let Question { network, store, inputs } = &question;
    let trainable = |name: &str| name.starts_with("blocks.1.");
    let parameters = Parameters { provider: store, trainable: &trainable };
    let some = BLOCK_WISE.backward(&**network, parameters, inputs, &mut loss).unwrap();
    assert!(some.parameters.keys().all(|name| trainable(name)));
    assert_eq!(some.parameters.len(), 13);
    let all = question.slope(&BLOCK_WISE).unwrap();
    for (name, gradient) in &some.parameters {
        assert_eq!(values(gradient), values(&all.parameters[name]), "{name}");
    }
}

/// What a small step changes in the loss, for parameters on every way to it.
#[test]
fn it_is_the_slope_of_the_loss() {
    let question = toy(2, 5);
    let backward = question.slope(&BLOCK_WISE).unwrap();
    let Question { network, store, inputs } = question;
    let at = |name: &str, step: f32| {
        let mut store = store.clone();
        let mut parameter = store.get(name).unwrap().clone();
        parameter.values = parameter.values + direction(&backward.parameters[name]) * step;
        store.insert(name, parameter);
        let prediction = BLOCK_WISE.predict(&*network, &store, &inputs).unwrap();
        f64::from(values(&loss(&prediction).unwrap())[0])
    };
    for name in
        ["timestep.first.weight", "text.bias", "embed.weight", "blocks.0.table", "head.bias"]
    {
        let gradient = &backward.parameters[name];
        let step = 2e-2 / norm(gradient).max(1.0);
        let slope = (at(name, step as f32) - at(name, -step as f32)) / (2.0 * step);
        let expected = norm(gradient);
        assert!((slope / expected - 1.0).abs() < 2e-2, "{name}: {slope} instead of {expected}");
    }
}

fn norm(x: &Tensor<1>) -> f64 {
    kernels::sum_squares(x.clone()).sqrt()
}

/// The unit vector along `x`.
fn direction(x: &Tensor<1>) -> Tensor<1> {
    assert_eq!(x.device(), Device::flex());
    x.clone() / norm(x)
}

/// A toy of which only the first block owes `Shared` a gradient: what block-wise backward would give
/// if it kept the gradient of the block it visited last, where it should add up all of them.
struct Forgotten(Toy);

impl Dit for Forgotten {
    type Shared = Shared;
    type Stream = Tensor<3>;

    fn sizes(&self) -> Sizes {
        self.0.sizes()
    }

    fn declare(&self, weights: &Weights<'_>) -> Result<()> {
        self.0.declare(weights)
    }

    fn shared(&self, weights: &Weights<'_>, inputs: &Inputs) -> Result<Shared> {
        self.0.shared(weights, inputs)
    }

    fn embed(&self, weights: &Weights<'_>, inputs: &Inputs, shared: &Shared) -> Result<Tensor<3>> {
        self.0.embed(weights, inputs, shared)
    }

    fn block(&self, index: usize, x: Tensor<3>, pass: Forward<'_, Shared>) -> Result<Tensor<3>> {
        let cut = |packed: Packed| packed.map(Tensor::inner);
        let shared = match index {
            0 => pass.shared.clone(),
            _ => Shared::unpack(cut(pass.shared.clone().pack()))?,
        };
        let Forward { weights, attention, .. } = pass;
        self.0.block(index, x, Forward { weights, shared: &shared, attention })
    }

    fn head(
        &self,
        weights: &Weights<'_>,
        stream: Tensor<3>,
        shared: &Shared,
    ) -> Result<Prediction> {
        self.0.head(weights, stream, shared)
    }
}

#[test]
fn a_backward_pass_that_does_not_add_up_over_the_blocks_is_found() {
    let question = toy(2, 13);
    let whole = question.slope(&WHOLE).unwrap();
    let Question { store, inputs, .. } = question;
    let forgotten = Question { network: Arc::new(Forgotten(Toy::small())), store, inputs };
    let blocks = forgotten.slope(&BLOCK_WISE).unwrap();
    let found =
        whole.equals(&blocks, Bounds::sums(1e-2)).expect_err("a planted error was not found");
    assert!(found.contains("the gradient of `text.bias`"), "{found}");
}

/// What a loss says when it fails comes out as it went in, whatever is kept.
#[test]
fn a_loss_can_fail() {
    let Question { network, store, inputs } = toy(1, 5);
    let parameters = Parameters { provider: &store, trainable: &testkit::parity::all };
    for recompute in [Recompute::Never, Recompute::PerBlock, Recompute::Keep(1)] {
        let mut loss = |_: &Prediction| Err(nn::Error::outside(std::fmt::Error));
        let schedule = OneDevice { recompute };
        let error = schedule.backward(&*network, parameters, &inputs, &mut loss).unwrap_err();
        let nn::Error::Outside(source) = error else { panic!("{error}") };
        assert!(source.is::<std::fmt::Error>());
    }
}

#[test]
fn a_budget_keeps_as_many_blocks_as_it_holds() {
    assert_eq!(Recompute::within(99, 100, 8), Recompute::PerBlock);
    assert_eq!(Recompute::within(350, 100, 8), Recompute::Keep(3));
    assert_eq!(Recompute::within(800, 100, 8), Recompute::Never);
}
