//! Matrices in bytes: what they are found by, how far off they are, and what learns beside them.

use burn::tensor::Tensor;
use kernels::{Activation, Int8Matrix};
use nn::{
    Adapted, Adapter, Adapters, Bias, Error, LowRank, Parameter, Parameters, Part, Plain, Provider,
    Quantization, Recompute, Store, Weights, backward, forward,
};
use testkit::numbers::{bits, tensor, values};
use testkit::parity::{Question, loss};

use super::toy;

/// The toy's store with the matrices of its linear layers in bytes.
fn in_bytes(Question { network, store, .. }: &Question) -> Store {
    let names = store.agree(&[], |weights| network.declare(weights)).expect("a toy");
    assert!(!names.is_empty());
    let mut own = store.clone();
    own.quantize(names.iter().map(String::as_str), Quantization::Int8);
    for name in &names {
        assert!(own.get(name).is_none() && own.quantized(name).is_some(), "{name}");
        assert!(own.has(name));
    }
    own
}

fn error(own: &Tensor<3>, plain: &Tensor<3>) -> f64 {
    let power = |x: Tensor<3>| values(&x).iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
    (power(own.clone() - plain.clone()) / power(plain.clone())).sqrt()
}

#[test]
fn a_network_of_bytes_is_near_itself() {
    let question = toy(2, 7);
    let bytes = in_bytes(&question);
    let run = |store: &Store| {
        let weights = Weights::new(store);
        forward(&*question.network, &weights, &question.inputs, &mut Plain).unwrap().video.unwrap()
    };
    let (own, plain) = (run(&bytes), run(&question.store));
    let error = error(&own, &plain);
    assert!(error > 0.0 && error < 5e-2, "{error}");
}

/// A part of a layer in bytes is the layer of the part; its scales are the whole's.
#[test]
fn parts_of_layers_are_found_in_bytes() {
    let mut store = Store::new("store");
    store.insert("layer.weight", Parameter::new(tensor("weight", [12, 10])));
    store.insert("layer.bias", Parameter::new(tensor("bias", [12])));
    store.quantize(["layer.weight"], Quantization::Int8);
    let x: Tensor<2> = tensor("x", [5, 10]);
    let part = Part { outputs: Some(3..9), inputs: None };
    let layer = |part: &Part| {
        let layer = store.linear(&store, "layer", [10, 12], Bias::With, part).unwrap();
        layer.apply(x.clone()).unwrap()
    };
    assert_eq!(bits(&layer(&part)), bits(&layer(&Part::WHOLE).narrow(1, 3, 6)));
    let wrong = store.linear(&store, "layer", [11, 12], Bias::With, &Part::WHOLE);
    assert!(matches!(wrong, Err(Error::Misshapen { .. })), "another shape is refused");
}

/// What is beside a layer in bytes is not rounded, and gradients reach it through the bytes.
#[test]
fn a_low_rank_change_learns_beside_bytes() {
    let question = toy(1, 5);
    let mut bytes = in_bytes(&question);
    let name = question.store.agree(&[], |weights| question.network.declare(weights)).unwrap();
    let name = name.iter().find(|name| name.contains("blocks.0.")).unwrap();
    let layer = name.strip_suffix(".weight").unwrap();
    let [outputs, inputs] = bytes.quantized(name).unwrap().shape();
    let [down, up] = LowRank::names(layer);
    bytes.insert(down.clone(), Parameter::new(tensor("down", [2, inputs])));
    bytes.insert(up.clone(), Parameter::new(tensor("up", [outputs, 2])));
    let mut adapters = Adapters::default();
    adapters.push(name.clone(), Adapter::named(layer, 2, 0.5, None));
    let adapted = Adapted::new(&bytes, adapters);
    let learns = |name: &str| name == down || name == up;
    let (model, inputs) = (&*question.network, &question.inputs);
    let run = |recompute| {
        let parameters = Parameters { provider: &adapted, trainable: &learns };
        backward(model, parameters, inputs, &mut Plain, &mut loss, recompute).unwrap()
    };
    let (own, again) = (run(Recompute::Never), run(Recompute::PerBlock));
    assert_eq!(own.parameters.keys().collect::<Vec<_>>(), [&down, &up]);
    for (name, gradient) in &own.parameters {
        assert!(values(gradient).iter().any(|x| x.abs() > 1e-6), "{name}");
        assert_eq!(bits(gradient), bits(&again.parameters[name]), "{name}");
    }
}

/// A quarter of f32, and a little for scales.
#[test]
fn bytes_take_a_quarter() {
    let matrix = Int8Matrix::nearest(tensor("weight", [300, 1536]));
    assert!(matrix.bytes() as f64 <= 0.27 * (300 * 1536 * 4) as f64);
    let x: Tensor<2> = tensor("x", [1, 1536]);
    assert_eq!(kernels::linear_int8(x, &matrix, None, Activation::Identity).dims(), [1, 300]);
}
