//! Several steps against PyTorch's optimizers.

use std::path::Path;

use burn::tensor::{Device, Tensor, TensorData};
use diffusion::Draw;
use nn::{Parameter, Precision, Store};

use super::{AdamWConfig, LrMatch, MuonConfig, Optimizer, OptimizerConfig, SgdConfig, Update};

const RATES: [f64; 5] = [0.02, 0.05, 0.03, 0.01, 0.04];

fn golden() -> Store {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/optimizers.safetensors");
    Store::open(&[path], Precision::Stored, &Device::flex()).unwrap()
}

fn values(parameter: &Parameter) -> Vec<f32> {
    parameter.values.clone().into_data().iter::<f32>().collect()
}

/// Runs all steps on the parameters `names`, restoring the state into a new optimizer after each,
/// and compares every step with `goldens/<kind>.<name>`.
#[track_caller]
fn check(config: OptimizerConfig, kind: &str, names: &[&str], tolerance: f32) {
    let golden = golden();
    let get = |name: &str| golden.get(name).unwrap().clone();
    let mut parameters: Vec<Parameter> =
        names.iter().map(|name| get(&format!("initial.{name}"))).collect();
    let make = |parameters: &[Parameter]| {
        Optimizer::new(config.clone(), names.iter().copied().zip(parameters)).unwrap()
    };
    let mut optimizer = make(&parameters);
    for (step, rate) in RATES.into_iter().enumerate() {
        for (name, parameter) in names.iter().zip(&mut parameters) {
            let gradients = get(&format!("gradients.{name}"));
            let elements = parameter.shape.iter().product::<usize>();
            let row = |all: &Parameter| all.values.clone().narrow(0, step * elements, elements);
            // The scale of clipping, and its inverse in the gradient, cancel.
            let gradient = row(&gradients) * 4.0;
            let update = Update { rate, scale: 0.25 };
            let old = parameter.values.clone();
            let before = values(parameter);
            let work = [((*name).to_owned(), (old.clone(), gradient))].into();
            parameter.values = optimizer.step(work, update).pop().unwrap().1;
            let kept = Parameter { values: old, shape: parameter.shape.clone() };
            assert_eq!(values(&kept), before, "a snapshot keeps its values");
            let want = row(&get(&format!("{kind}.{name}"))).into_data();
            for (want, got) in want.iter::<f32>().zip(values(parameter)) {
                let off = (want - got).abs() / want.abs().max(0.1);
                assert!(off <= tolerance, "{kind}.{name}, step {step}: {got} instead of {want}");
            }
        }
        let state = optimizer.state();
        optimizer = make(&parameters);
        optimizer.restore(state).unwrap();
    }
}

#[test]
fn adamw_is_pytorchs() {
    let (betas, epsilon) = ([0.85, 0.97], 1e-6);
    let config = AdamWConfig { betas, epsilon, weight_decay: 0.1, spare_vectors: false };
    check(OptimizerConfig::AdamW(config), "adamw", &["tall", "wide", "vector"], 1e-6);
}

#[test]
fn sgd_is_pytorchs() {
    let config = SgdConfig { momentum: 0.8, weight_decay: 0.0 };
    check(OptimizerConfig::Sgd(config), "sgd", &["tall", "wide", "vector"], 1e-6);
}

#[test]
fn muon_is_pytorchs() {
    for (match_rate, kind) in
        [(LrMatch::Original, "muon.original"), (LrMatch::AdamW, "muon.match_rms_adamw")]
    {
        let config =
            MuonConfig { momentum: 0.9, weight_decay: 0.05, match_rate, ..MuonConfig::default() };
        check(OptimizerConfig::Muon(config), kind, &["tall", "wide"], 1e-5);
    }
}

#[test]
fn muon_leaves_vectors_embeddings_and_heads_to_adamw() {
    let config = MuonConfig::default();
    assert!(config.takes("blocks.0.to_q.weight", &[8, 4]));
    for (name, shape) in [
        ("blocks.0.to_q.bias", &[8][..]),
        ("patch_embedding.weight", &[8, 4]),
        ("head.weight", &[8, 4]),
        ("blocks.0.scale_shift_table", &[6, 4]),
        ("blocks.0.conv.weight", &[8, 4, 3]),
        ("blocks.0.row.weight", &[1, 9]),
    ] {
        assert!(!config.takes(name, shape), "{name}");
    }
}

#[test]
fn the_state_is_complete_before_the_first_step() {
    let golden = golden();
    let vector = golden.get("initial.vector").unwrap();
    let tall = golden.get("initial.tall").unwrap();
    let make = |config: OptimizerConfig| {
        Optimizer::new(config, [("vector", vector), ("tall", tall)].into_iter()).unwrap()
    };
    for config in [
        OptimizerConfig::default(),
        OptimizerConfig::AdamW8Bit(AdamWConfig::default()),
        OptimizerConfig::Muon(MuonConfig::default()),
        OptimizerConfig::Sgd(SgdConfig::default()),
    ] {
        let optimizer = make(config.clone());
        let is_adamw = matches!(config, OptimizerConfig::AdamW(_) | OptimizerConfig::AdamW8Bit(_));
        let tensors = if is_adamw { 4 } else { 2 };
        let tensors = tensors + usize::from(matches!(config, OptimizerConfig::Muon(_)));
        assert_eq!(optimizer.state().iter().count(), 2 + tensors);
        make(config).restore(optimizer.state()).unwrap();
    }
    let mut partial = make(OptimizerConfig::default()).state();
    partial.take_number("vector.step").unwrap();
    let error = make(OptimizerConfig::default()).restore(partial).unwrap_err().to_string();
    assert!(error.contains("lacks `vector.step`"), "{error}");
}

/// 5,000 numbers drawn from a name.
fn drawn(name: &str) -> Parameter {
    let values = TensorData::new(Draw::new(3).stream(name).normal(0..5000), [5000]);
    Parameter { values: Tensor::from_data(values, &Device::flex()), shape: vec![50, 100] }
}

/// The distance to what is wanted after every of 120 steps of `optimizer` with noisy gradients, whose state is taken
/// and restored every `resumed` steps.
fn approach(config: &OptimizerConfig, resumed: usize) -> (Vec<f64>, Vec<f32>) {
    let wanted = drawn("wanted");
    let mut own = drawn("begun");
    let make =
        |own: &Parameter| Optimizer::new(config.clone(), [("own", own)].into_iter()).unwrap();
    let mut optimizer = make(&own);
    let mut distances = Vec::new();
    for step in 0..120 {
        let noise = drawn(&format!("noise {step}")).values;
        let gradient = own.values.clone() - wanted.values.clone() + noise;
        let work = [("own".to_owned(), (own.values.clone(), gradient))].into();
        let update = Update { rate: 0.03, scale: 1.0 };
        own.values = optimizer.step(work, update).pop().unwrap().1;
        let off = kernels::sum_squares(own.values.clone() - wanted.values.clone());
        distances.push((off / 5000.0).sqrt());
        if (step + 1) % resumed == 0 {
            let state = optimizer.state();
            optimizer = make(&own);
            optimizer.restore(state).unwrap();
        }
    }
    (distances, values(&own))
}

/// Eight bits learn what 32 learn, nearly as they do, and a state that is restored goes on to the bit.
#[test]
fn adamw_in_eight_bits_stays_near_adamw() {
    let config = AdamWConfig { betas: [0.9, 0.99], weight_decay: 0.0, ..AdamWConfig::default() };
    let (exact, ends) = approach(&OptimizerConfig::AdamW(config.clone()), 1000);
    let coded = OptimizerConfig::AdamW8Bit(config);
    let (near, coded_ends) = approach(&coded, 1000);
    assert!(exact[119] < 0.25 * exact[0], "it learns: {} to {}", exact[0], exact[119]);
    for (step, (exact, near)) in exact.iter().zip(&near).enumerate() {
        assert!((exact - near).abs() < 0.01 * exact, "step {step}: {near} instead of {exact}");
    }
    assert_ne!(ends, coded_ends, "eight bits are not 32");
    for resumed in [1, 7, 50] {
        assert_eq!(approach(&coded, resumed), (near.clone(), coded_ends.clone()));
    }
}
