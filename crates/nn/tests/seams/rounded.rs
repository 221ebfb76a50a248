//! Blocks that multiply in bf16: where they do, where they do not, and how far off they are.

use burn::tensor::{DType, Tensor};
use kernels::InstructionSet;
use nn::{
    Attention, Mask, Network, Parameter, Parameters, Plain, Qkv, Reach, Recompute, Result, Rounded,
    Site, Store, Weights, backward, forward,
};
use testkit::numbers::{bits, values};
use testkit::parity::{Question, all, loss};

use super::toy;

/// Attention that remembers the types it was given.
#[derive(Default)]
struct Types(Vec<DType>);

impl Attention for Types {
    fn attend(
        &mut self,
        site: Site,
        qkv: Qkv,
        reach: Reach,
        mask: Option<&Mask>,
    ) -> Result<Tensor<4>> {
        self.0.extend([&qkv.q, &qkv.k, &qkv.v].map(Tensor::dtype));
        Plain.attend(site, qkv, reach, mask)
    }
}

/// The store with its matrices in bf16.
fn narrow(store: &Store) -> Store {
    let mut narrow = Store::new("rounded");
    for (name, Parameter { values, shape }) in store.iter() {
        let dtype = if shape.len() == 2 { DType::BF16 } else { DType::F32 };
        let parameter = Parameter { values: values.clone().cast(dtype), shape: shape.clone() };
        narrow.insert(name, parameter);
    }
    narrow
}

/// The prediction under `set`, and what attention was given.
fn predict(
    set: InstructionSet,
    network: &dyn Network,
    (store, inputs): (&Store, &nn::Inputs),
) -> (Tensor<3>, Vec<DType>) {
    let pool = set.pool(2).expect("a pool");
    pool.install(|| {
        let mut attention = Types::default();
        let out = forward(network, &Weights::new(store), inputs, &mut attention);
        let out = out.expect("the inputs fit");
        (out.video.expect("there is a video"), attention.0)
    })
}

#[test]
fn blocks_round_where_the_machine_multiplies_bf16_and_only_there() {
    let Question { network, store, inputs } = toy(2, 7);
    let store = narrow(&store);
    for set in InstructionSet::present() {
        let (plain, types) = predict(set, &*network, (&store, &inputs));
        assert!(types.iter().all(|dtype| *dtype == DType::F32), "{set}");
        let (own, types) = predict(set, &Rounded(&*network), (&store, &inputs));
        if !set.multiplies_bf16() {
            assert_eq!(bits(&own), bits(&plain), "{set}");
            continue;
        }
        assert!(types.iter().all(|dtype| *dtype == DType::BF16), "{set}");
        assert_ne!(bits(&own), bits(&plain), "{set}");
        let (own, plain) = (values(&own), values(&plain));
        let power = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>();
        let error = power(&mut own.iter().zip(&plain).map(|(a, b)| f64::from(*a) - f64::from(*b)));
        let whole = power(&mut plain.iter().map(|x| f64::from(*x)));
        assert!(error.sqrt() < 2e-2 * whole.sqrt(), "{set}: {}", (error / whole).sqrt());
    }
}

/// What learns is not rounded: loss and gradients have the bits of the network alone.
#[test]
fn a_graph_is_left_alone() {
    let Question { network, store, inputs } = toy(1, 5);
    let run = |network: &dyn Network| {
        let parameters = Parameters { provider: &store, trainable: &all };
        let recompute = Recompute::Never;
        backward(network, parameters, &inputs, &mut Plain, &mut loss, recompute).unwrap()
    };
    let (own, plain) = (run(&Rounded(&*network)), run(&*network));
    assert_eq!(bits(&own.loss.unwrap()), bits(&plain.loss.unwrap()));
    assert!(!plain.parameters.is_empty());
    for (name, gradient) in &plain.parameters {
        assert_eq!(bits(&own.parameters[name]), bits(gradient), "{name}");
    }
}

/// A network that learns with bf16 products: near the gradients of f32 and not the same, with the same bits whatever
/// is recomputed.
#[test]
fn gradients_of_bf16_products_are_near_those_of_f32() {
    let Question { network, store, inputs } = toy(2, 7);
    let run = |network: &dyn Network, recompute| {
        let parameters = Parameters { provider: &store, trainable: &all };
        backward(network, parameters, &inputs, &mut Plain, &mut loss, recompute).unwrap()
    };
    let mixed = nn::MixedPrecision(std::sync::Arc::clone(&network));
    for set in InstructionSet::present() {
        let pool = set.pool(2).expect("a pool");
        pool.install(|| {
            let exact = run(&*network, Recompute::Never);
            let own = run(&mixed, Recompute::Never);
            let again = run(&mixed, Recompute::PerBlock);
            assert_eq!(own.parameters.len(), exact.parameters.len());
            let (mut off, mut whole) = (0.0, 0.0);
            for (name, gradient) in &own.parameters {
                assert_eq!(bits(gradient), bits(&again.parameters[name]), "{set}: {name}");
                for (own, exact) in values(gradient).iter().zip(values(&exact.parameters[name])) {
                    off += f64::from(own - exact).powi(2);
                    whole += f64::from(exact).powi(2);
                }
            }
            let error = (off / whole).sqrt();
            // A rounded operand is off by 2^-9 at most, and a gradient is some products deep.
            assert!(error > 1e-5 && error < 2e-2, "{set}: {error}");
            assert_eq!(bits(&own.loss.unwrap()), bits(&again.loss.unwrap()), "{set}");
        });
    }
}
