//! Every solver against the real diffusers: `goldens/solvers.safetensors` holds configs,
//! predictions and the samples that came out (see `tools/goldens/solvers.py`).

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests panic to fail, and say how close they were"
)]

use burn::tensor::{Device, Tensor, TensorData};
use diffusion::{Draw, SchedulerConfig, Solver};
use safetensors::SafeTensors;
use serde_json::Value;

/// Largest error allowed, in standard deviations of the sample.
const TOLERANCE: f64 = 1e-5;

struct Goldens {
    bytes: Vec<u8>,
    cases: Value,
}

impl Goldens {
    fn read() -> Goldens {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../goldens/solvers.safetensors");
        let bytes = std::fs::read(path).expect("goldens/solvers.safetensors is in the repository");
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let cases = serde_json::from_str(&header.metadata().as_ref().unwrap()["config"]).unwrap();
        Goldens { bytes, cases }
    }

    /// The shape and values of a tensor, if it is there.
    fn find(&self, name: &str) -> Option<(Vec<usize>, Vec<f32>)> {
        let tensors = SafeTensors::deserialize(&self.bytes).unwrap();
        let view = tensors.tensor(name).ok()?;
        let value = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
        Some((view.shape().to_vec(), view.data().chunks(4).map(value).collect()))
    }

    fn values(&self, name: &str) -> Vec<f32> {
        self.find(name).unwrap_or_else(|| panic!("no tensor {name}")).1
    }

    /// The `[batch, tokens, channels]` slices of a stored `[steps, batch, tokens, channels]`.
    fn steps(&self, name: &str) -> Option<Vec<Tensor<3>>> {
        let (shape, values) = self.find(name)?;
        let shape: [usize; 3] = shape[shape.len() - 3..].try_into().unwrap();
        let slice = |values: &[f32]| {
            Tensor::from_data(TensorData::new(values.to_vec(), shape), &Device::flex())
        };
        Some(values.chunks(shape.iter().product()).map(slice).collect())
    }
}

/// Replays every case whose name starts with `family`.
fn check(family: &str, expected_cases: usize) {
    let goldens = Goldens::read();
    let cases: Vec<_> = goldens
        .cases
        .as_object()
        .unwrap()
        .iter()
        .filter(|(name, _)| name.starts_with(family))
        .collect();
    assert_eq!(cases.len(), expected_cases);
    let worst = cases
        .into_iter()
        .map(|(name, case)| (replay(&goldens, name, case), name))
        .inspect(|(error, name)| assert!(*error <= TOLERANCE, "{name} is off by {error:e} std"))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .unwrap();
    println!("{family}: worst error {:e} std in {}", worst.0, worst.1);
}

/// The largest error of any sample of a case, in standard deviations.
fn replay(goldens: &Goldens, name: &str, case: &Value) -> f64 {
    let solver = solver(case, "config");
    assert_eq!(solver, self::solver(case, "saved"), "{name}: our defaults are not diffusers'");
    let timesteps = goldens.values(&format!("{name}.timesteps"));
    assert_eq!(solver.steps().len(), timesteps.len(), "{name}");
    for (step, want) in solver.steps().iter().zip(timesteps.into_iter().map(f64::from)) {
        // Whole timesteps must be equal; those of a flow may differ in their last bit.
        assert!((step.timestep - want).abs() <= 1e-7 * want, "{name}: {step:?}, not {want}");
    }

    let stored = |key: &str| goldens.steps(&format!("{name}.{key}"));
    let (predictions, samples) = (stored("predictions").unwrap(), stored("samples").unwrap());
    let noises = stored("noises");
    let mut sample = stored("initial").unwrap().remove(0) * solver.initial_scale();
    let mut state = solver.state();
    let mut worst = 0f64;
    for (step, (prediction, want)) in predictions.into_iter().zip(samples).enumerate() {
        let noise = noises.as_ref().map(|noises| noises[step].clone());
        let drawn = noise.as_ref().is_some_and(|noise| values(noise).iter().any(|x| *x != 0.0));
        assert!(drawn || !solver.wants_noise(step), "{name}: diffusers adds none at step {step}");
        sample = solver.step(step, &mut state, sample, prediction, noise).unwrap();
        worst = worst.max(error(&sample, &want));
    }
    worst
}

fn solver(case: &Value, which: &str) -> Solver {
    let config = SchedulerConfig::from_json(case[which].as_str().unwrap()).unwrap();
    let config = config.with_eta(case["eta"].as_f64().unwrap_or(0.0)).unwrap();
    let length = case["sequence_length"].as_u64().unwrap_or(0) as usize;
    match case["sigmas"].as_array() {
        None => config.solver(case["steps"].as_u64().unwrap() as usize, length).unwrap(),
        Some(sigmas) => {
            let sigmas: Vec<f64> = sigmas.iter().map(|sigma| sigma.as_f64().unwrap()).collect();
            config.solver_at(&sigmas, length).unwrap()
        }
    }
}

fn values(tensor: &Tensor<3>) -> Vec<f32> {
    tensor.try_to_vec_as::<f32>().unwrap()
}

fn error(found: &Tensor<3>, want: &Tensor<3>) -> f64 {
    let (found, want) = (values(found), values(want));
    let mean = want.iter().map(|x| f64::from(*x)).sum::<f64>() / want.len() as f64;
    let variance = want.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>();
    let largest = found.iter().zip(&want).map(|(a, b)| f64::from(a - b).abs());
    // A NaN must not pass for a small error.
    assert!(found.iter().all(|x| x.is_finite()));
    largest.fold(0.0, f64::max) / (variance / want.len() as f64).sqrt()
}

#[test]
fn ddim_equals_diffusers() {
    check("ddim.", 9);
}

#[test]
fn ddpm_equals_diffusers() {
    check("ddpm.", 6);
}

#[test]
fn dpm_solver_equals_diffusers() {
    check("dpm.", 30);
}

#[test]
fn flow_euler_equals_diffusers() {
    check("flow.", 11);
}

#[test]
fn unipc_equals_diffusers() {
    check("unipc.", 22);
}

/// The noise of a seed must never change, or old runs cannot be repeated.
#[test]
fn noise_equals_an_implementation_in_python() {
    let goldens = Goldens::read();
    let draw = Draw::new(7).stream("initial-noise").step(0);
    let large = Draw::new(u64::MAX - 2).stream("é").step((1 << 33) + 5).sample((1 << 34) + 1);
    assert_eq!(draw.sample(3).normal(0..11), goldens.values("draw.normal"));
    assert_eq!(draw.normal(0..5), goldens.values("draw.no_sample"));
    assert_eq!(large.normal(0..6), goldens.values("draw.large"));
    assert_eq!(draw.sample(3).uniform(0..9), goldens.values("draw.uniform"));
}
