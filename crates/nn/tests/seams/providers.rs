//! Providers: one method per kind of layer, whose parameters are the outermost provider's leaves.

use std::cell::RefCell;

use burn::tensor::Tensor;
use kernels::Activation;
use nn::{
    Bias, Error, LayerNorm, Linear, Normalize, OneDevice, Parameters, Part, Project, Provider,
    Recording, Result, RmsNorm, Schedule, Store, Weights,
};
use testkit::numbers::{bits, parameter, tensor};
use testkit::parity::{Question, all, loss};

use super::toy;

/// Remembers which layers were made, of which kind.
struct Census<'a> {
    store: &'a Store,
    made: RefCell<Vec<String>>,
}

impl Census<'_> {
    fn note(&self, kind: &str, name: &str) {
        self.made.borrow_mut().push(format!("{kind} {name}"));
    }
}

impl Provider for Census<'_> {
    fn values(&self, name: &str, shape: &[usize]) -> Result<Tensor<1>> {
        self.store.values(name, shape)
    }

    fn has(&self, name: &str) -> bool {
        self.store.has(name)
    }

    fn linear(
        &self,
        leaves: &dyn Provider,
        name: &str,
        sizes: [usize; 2],
        bias: Bias,
        part: &Part,
    ) -> Result<Linear> {
        self.note("linear", name);
        self.store.linear(leaves, name, sizes, bias, part)
    }

    fn layer_norm(
        &self,
        leaves: &dyn Provider,
        name: &str,
        width: usize,
        epsilon: f32,
    ) -> Result<LayerNorm> {
        self.note("layer norm", name);
        self.store.layer_norm(leaves, name, width, epsilon)
    }

    fn rms_norm(
        &self,
        leaves: &dyn Provider,
        name: &str,
        width: usize,
        epsilon: f32,
    ) -> Result<RmsNorm> {
        self.note("rms norm", name);
        let inner = self.store.rms_norm(leaves, name, width, epsilon)?;
        Ok(RmsNorm::of(Twice(inner)))
    }
}

/// A norm of a layout's own: twice the usual one.
struct Twice(RmsNorm);

impl Normalize for Twice {
    fn normalize(&self, x: Tensor<2>) -> Result<Tensor<2>> {
        Ok(self.0.apply(x)? * 2.0)
    }
}

/// However many providers stand around it, whoever overrides a kind is asked for it, and its layer is
/// made of the leaves of the outermost one.
#[test]
fn a_kind_is_overridden_once_inside_a_graph_and_outside() {
    let store = Store::declared(
        |weights| {
            weights.linear("l", 4, 4)?;
            weights.layer_norm("n", 4, 1e-6)?;
            weights.rms_norm("r", 4, 1e-6).map(drop)
        },
        parameter,
    );
    let store = store.unwrap();
    let census = Census { store: &store, made: RefCell::default() };
    let run = |weights: &Weights<'_>| -> Result<Tensor<3>> {
        let x = weights.linear("l", 4, 4)?.apply(tensor("x", [1, 2, 4]))?;
        let x = weights.layer_norm("n", 4, 1e-6)?.apply(x, None);
        weights.rms_norm("r", 4, 1e-6)?.apply(x)
    };
    let usual = run(&Weights::new(&store)).unwrap();
    let twice = run(&Weights::new(&census)).unwrap();
    assert_eq!(bits(&twice), bits(&(usual.clone() * 2.0)));
    let recording = Recording::new(&census, &all);
    let graph = run(&Weights::new(&recording)).unwrap();
    assert_eq!(bits(&graph), bits(&twice));
    let gradients = recording.gradients(&kernels::sum(graph).backward());
    let names: Vec<&str> = gradients.keys().map(String::as_str).collect();
    assert_eq!(names, ["l.bias", "l.weight", "n.bias", "n.weight", "r.weight"]);
    let made = census.made.into_inner();
    let once = ["linear l", "layer norm n", "rms norm r"];
    assert_eq!(made, [once, once].concat());
}

/// A layer whose matrix cannot be reached.
struct Broken;

impl Project for Broken {
    fn project(&self, _: Tensor<2>, _: Activation) -> Result<Tensor<2>> {
        Err(Error::outside(std::io::Error::other("the other rank is gone")))
    }
}

/// The parameters of a store, but for one layer that fails.
struct Failing<'a>(&'a Store);

impl Provider for Failing<'_> {
    fn values(&self, name: &str, shape: &[usize]) -> Result<Tensor<1>> {
        self.0.values(name, shape)
    }

    fn has(&self, name: &str) -> bool {
        self.0.has(name)
    }

    fn linear(
        &self,
        leaves: &dyn Provider,
        name: &str,
        sizes: [usize; 2],
        bias: Bias,
        part: &Part,
    ) -> Result<Linear> {
        match name {
            "blocks.1.own.out" => Ok(Linear::of(Broken)),
            _ => self.0.linear(leaves, name, sizes, bias, part),
        }
    }
}

#[test]
fn a_projection_can_fail() {
    let Question { network, store, inputs } = toy(1, 5);
    let failing = Failing(&store);
    let schedule = OneDevice::default();
    let error = schedule.predict(&*network, &failing, &inputs).unwrap_err();
    assert_eq!(error.to_string(), "the other rank is gone");
    let parameters = Parameters { provider: &failing, trainable: &all };
    let error = schedule.backward(&*network, parameters, &inputs, &mut loss).unwrap_err();
    assert_eq!(error.to_string(), "the other rank is gone");
}
