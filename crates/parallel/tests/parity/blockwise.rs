//! Backward block by block is backward of the whole graph, for every parameter and to the bit.

use burn::tensor::{Device, Tensor};
use nn::{Plain, Prediction};
use testkit::numbers::values;
use testkit::parity::{Equals, Question, all, loss};
use testkit::toy::Toy;

use super::toy;

#[test]
fn it_equals_the_whole_graph() {
    for (batch, tokens, depth) in [(1, 8, 3), (3, 13, 3), (2, 5, 1), (1, 70, 6)] {
        let model = Toy { depth, ..Toy::small() };
        let inputs = model.inputs(batch, tokens);
        let question = Question { model, store: model.store(), inputs };
        let Question { model, store, inputs } = &question;
        let whole = nn::backward_whole(model, store, &all, inputs, (&mut Plain, &loss)).unwrap();
        let blocks = nn::backward(model, store, &all, inputs, (&mut Plain, &loss)).unwrap();
        assert_eq!(whole.parameters.len(), store.iter().count(), "every parameter is trained");
        if let Err(difference) = whole.equals(&blocks, 0.0) {
            panic!("{tokens} tokens, {depth} blocks: {difference}");
        }
    }
}

#[test]
fn what_is_frozen_gets_no_gradient() {
    let Question { model, store, inputs } = toy(1, 8);
    let trainable = |name: &str| name.starts_with("blocks.1.");
    let backward = nn::backward(&model, &store, &trainable, &inputs, (&mut Plain, &loss)).unwrap();
    assert!(backward.parameters.keys().all(|name| trainable(name)));
    assert_eq!(backward.parameters.len(), 13);
    let all = nn::backward(&model, &store, &all, &inputs, (&mut Plain, &loss)).unwrap();
    for (name, gradient) in &backward.parameters {
        assert_eq!(values(gradient), values(&all.parameters[name]), "{name}");
    }
}

/// What a small step changes in the loss, for parameters on every way to it.
#[test]
fn it_is_the_slope_of_the_loss() {
    let Question { model, store, inputs } = toy(2, 5);
    let backward = nn::backward(&model, &store, &all, &inputs, (&mut Plain, &loss)).unwrap();
    let at = |name: &str, step: f32| {
        let mut store = store.clone();
        let mut parameter = store.get(name).unwrap().clone();
        parameter.values = parameter.values + direction(&backward.parameters[name]) * step;
        store.insert(name, parameter);
        let weights = nn::Weights::new(&store);
        let prediction: Prediction = nn::forward(&model, &weights, &inputs, &mut Plain).unwrap();
        f64::from(values(&loss(&prediction))[0])
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
