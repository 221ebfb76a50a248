//! Laws that hold for every solver, process and draw, whatever diffusers does.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use burn::tensor::{Device, Tensor};
use diffusion::{
    Draw, Error, Place, Process, SchedulerConfig, Solver, SolverState, Step, VpPrediction, denoise,
};
use std::ops::Range;
use std::slice::from_ref;

const SHAPE: [usize; 3] = [2, 9, 3];

/// One config of every kind of rule, the noisy ones included.
const CONFIGS: [&str; 11] = [
    r#"{"_class_name": "DDIMScheduler"}"#,
    r#"{"_class_name": "DDIMScheduler", "prediction_type": "sample", "timestep_spacing": "trailing"}"#,
    r#"{"_class_name": "DDPMScheduler"}"#,
    r#"{"_class_name": "DPMSolverMultistepScheduler"}"#,
    r#"{"_class_name": "DPMSolverMultistepScheduler", "solver_order": 3, "prediction_type": "v_prediction"}"#,
    r#"{"_class_name": "DPMSolverMultistepScheduler", "algorithm_type": "sde-dpmsolver++"}"#,
    r#"{"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 3.0}"#,
    r#"{"_class_name": "FlowMatchEulerDiscreteScheduler", "stochastic_sampling": true}"#,
    r#"{"_class_name": "UniPCMultistepScheduler"}"#,
    r#"{"_class_name": "UniPCMultistepScheduler", "solver_order": 3, "prediction_type": "v_prediction"}"#,
    r#"{"_class_name": "UniPCMultistepScheduler", "use_flow_sigmas": true, "solver_order": 3,
        "prediction_type": "flow_prediction", "flow_shift": 5.0, "disable_corrector": [1]}"#,
];

fn config(text: &str) -> SchedulerConfig {
    SchedulerConfig::from_json(text).unwrap()
}

/// Normal numbers that depend on what they are for.
fn tensor(name: &str, step: usize) -> Tensor<3> {
    Draw::new(1).stream(name).step(step as u64).normal_tensor(SHAPE, &Device::flex())
}

fn tokens(tensor: &Tensor<3>, region: &Range<usize>) -> Tensor<3> {
    tensor.clone().slice_dim(1, region.clone())
}

fn values(tensor: &Tensor<3>) -> Vec<f32> {
    tensor.try_to_vec_as::<f32>().unwrap()
}

fn bits(tensor: &Tensor<3>) -> Vec<u32> {
    values(tensor).into_iter().map(f32::to_bits).collect()
}

/// Denoises the regions, each with its own part of fixed predictions and noise.
fn run(
    solver: &Solver,
    steps: Range<usize>,
    regions: &[Range<usize>],
    start: Vec<(Tensor<3>, SolverState)>,
) -> Vec<(Tensor<3>, SolverState)> {
    denoise(steps, start, |Place { step, patch }, (sample, mut state)| {
        let part = |name: &str| tokens(&tensor(name, step), &regions[patch]);
        let noise = solver.wants_noise(step).then(|| part("noise"));
        let sample = solver.step(step, &mut state, sample, part("prediction"), noise)?;
        Ok::<_, Error>((sample, state))
    })
    .unwrap()
}

/// Split at the start or in the middle, joined before the end: the same bits as the whole.
#[test]
fn regions_step_alone_as_they_step_together() {
    let all = 0..SHAPE[1];
    let regions = [0..2, 2..3, 3..9];
    let solvers = CONFIGS.map(|text| (text, config(text).solver(6, 9).unwrap()));
    let renoise = Solver::renoise(&Process::Flow, &[1000.0, 900.0, 750.5, 500.0, 250.0, 1.0]);
    for (text, solver) in solvers.into_iter().chain([("renoise", renoise.unwrap())]) {
        for (split, join) in [(0, 6), (1, 3), (2, 4), (3, 6)] {
            let start = vec![(tensor("initial", 0), solver.state())];
            let whole = run(&solver, 0..6, from_ref(&all), start.clone());

            let before = run(&solver, 0..split, from_ref(&all), start).remove(0);
            let states = before.1.split(&regions).unwrap();
            let parts = regions.iter().map(|region| tokens(&before.0, region)).zip(states);
            let parts = run(&solver, split..join, &regions, parts.collect());
            let (samples, states): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
            let joined = (Tensor::cat(samples, 1), SolverState::join(states).unwrap());
            let after = run(&solver, join..6, from_ref(&all), vec![joined]);
            assert_eq!(bits(&after[0].0), bits(&whole[0].0), "{text} from {split} to {join}");
        }
    }
}

/// On a straight flow the velocity is the same everywhere, so any number of steps lands on the
/// data, with Euler, UniPC, and DPM-Solver++ in flow clothes.
#[test]
fn a_straight_flow_is_solved_exactly() {
    let euler = r#"{"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 3.0}"#;
    let dpm = r#"{"_class_name": "DPMSolverMultistepScheduler", "use_flow_sigmas": true,
                  "prediction_type": "flow_prediction", "flow_shift": 2.0, "solver_order": 3}"#;
    let (data, noise) = (tensor("data", 0), tensor("noise", 0));
    let unipc = CONFIGS[10];
    let cases = [(euler, 1), (euler, 3), (euler, 8), (dpm, 1), (dpm, 4), (dpm, 20)];
    for (text, steps) in cases.into_iter().chain([(unipc, 1), (unipc, 4), (unipc, 20)]) {
        let solver = config(text).solver(steps, 9).unwrap();
        let first = solver.steps()[0];
        let start = data.clone() * first.alpha + noise.clone() * first.sigma;
        let patches = vec![(start, solver.state())];
        let end = denoise(0..steps, patches, |Place { step, .. }, (sample, mut state)| {
            let velocity = noise.clone() - data.clone();
            let sample = solver.step(step, &mut state, sample, velocity, None)?;
            Ok::<_, Error>((sample, state))
        })
        .unwrap();
        let worst = (end[0].0.clone() - data.clone()).abs().max().into_scalar::<f32>();
        assert!(worst < 3e-6, "{text} in {steps} steps: {worst}");
    }
}

/// A network that knows the noise keeps every deterministic solver on the line between that
/// noise and the data: after each step the sample is what the process itself would make.
#[test]
fn a_perfect_prediction_leads_back_to_the_data() {
    let (data, noise) = (tensor("data", 0).clamp(-1.0, 1.0), tensor("noise", 0));
    for text in [0, 1, 3, 4, 6, 8, 9].map(|kind| CONFIGS[kind]) {
        let config = config(text);
        let (process, solver) = (config.process(), config.solver(8, 9).unwrap());
        let level = |step: usize| {
            let level = process.level(solver.steps()[step].timestep);
            Tensor::full([SHAPE[0], 1, 1], level, &Device::flex())
        };
        let mut sample = process.noise(data.clone(), noise.clone(), level(0));
        let mut state = solver.state();
        for step in 0..8 {
            let prediction = process.target(data.clone(), noise.clone(), level(step));
            sample = solver.step(step, &mut state, sample, prediction, None).unwrap();
            let want = match step {
                7 => data.clone(),
                _ => process.noise(data.clone(), noise.clone(), level(step + 1)),
            };
            let worst = (sample.clone() - want).abs().max().into_scalar::<f32>();
            assert!(worst < 1e-4, "{text} after step {step}: {worst}");
        }
    }
}

/// Normal data of standard deviation 1/2 has a network that can be written down, and so has the
/// way of a sample. UniPC's error falls by one order more than its predictor has, since every
/// step is corrected; without the corrector it does not.
#[test]
fn unipc_converges_by_its_order_and_one_more() {
    let spread = |alpha: f64, sigma: f64| alpha * alpha / 4.0 + sigma * sigma;
    let error = |options: &str, steps: usize| {
        let text = format!(
            r#"{{"_class_name": "UniPCMultistepScheduler", "use_exponential_sigmas": true,
                 "sigma_min": 0.02, "sigma_max": 5.0, {options}}}"#
        );
        let solver = config(&text).solver(2 * steps + 1, 1).unwrap();
        let level = |step: usize| (solver.steps()[step].alpha, solver.steps()[step].sigma);
        let (mut sample, mut state) =
            (Tensor::<3>::ones([1, 1, 1], &Device::flex()), SolverState::default());
        for step in 0..steps {
            let (alpha, sigma) = level(step);
            let epsilon = sample.clone() * (sigma / spread(alpha, sigma));
            sample = solver.step(step, &mut state, sample, epsilon, None).unwrap();
        }
        let ((alpha, sigma), (first_alpha, first_sigma)) = (level(steps), level(0));
        let want = (spread(alpha, sigma) / spread(first_alpha, first_sigma)).sqrt();
        (f64::from(values(&sample)[0]) / want - 1.0).abs()
    };
    let never: Vec<usize> = (0..24).collect();
    let uncorrected = format!(r#""solver_order": 1, "disable_corrector": {never:?}"#);
    let cases = [
        (r#""solver_order": 1"#, 1.8..2.2),
        (r#""solver_order": 1, "solver_type": "bh1""#, 1.8..2.2),
        (r#""solver_order": 2"#, 2.4..3.2),
        (r#""solver_order": 3"#, 3.5..5.0),
        (r#""solver_order": 2, "predict_x0": false, "final_sigmas_type": "sigma_min""#, 2.4..3.2),
        (&uncorrected, 0.8..1.2),
    ];
    for (options, orders) in cases {
        let order = (error(options, 12) / error(options, 24)).log2();
        assert!(orders.contains(&order), "{options}: order {order}");
    }
}

/// Noise and its inverse: what the target implies is what was noised, at levels per token.
#[test]
fn clean_undoes_noise_for_every_process() {
    let alphas_cumprod: Vec<f32> = (0..50).map(|i| 0.98 - 0.019 * i as f32).collect();
    let vp = |prediction| Process::Vp { alphas_cumprod: alphas_cumprod.clone(), prediction };
    let levels = (0..9).map(|i| i as f32 / 8.0).collect::<Vec<_>>();
    let level = Tensor::<1>::from_floats(&levels[..], &Device::flex()).reshape([1, 9, 1]);
    let (data, noise) = (tensor("data", 0), tensor("noise", 0));
    for process in [
        Process::Flow,
        vp(VpPrediction::Epsilon),
        vp(VpPrediction::Velocity),
        vp(VpPrediction::Sample),
    ] {
        let noisy = process.noise(data.clone(), noise.clone(), level.clone());
        let target = process.target(data.clone(), noise.clone(), level.clone());
        let clean = process.clean(noisy.clone(), target, level.clone());
        let worst = (clean - data.clone()).abs().max().into_scalar::<f32>();
        assert!(worst < 1e-5, "{process:?}: {worst}");
        assert!(bits(&noisy) != bits(&data), "{process:?} adds no noise");
        let timestep = process.timestep(level.clone());
        let last = values(&timestep)[8];
        assert_eq!(process.level(f64::from(last)), 1.0, "{process:?}");
    }
    let mixed = Process::Flow.noise(data.clone(), noise.clone(), level.clone());
    assert_eq!(bits(&tokens(&mixed, &(0..1))), bits(&tokens(&data, &(0..1))));
    assert_eq!(bits(&tokens(&mixed, &(8..9))), bits(&tokens(&noise, &(8..9))));
    assert_eq!(values(&Process::Flow.timestep(level))[4], 500.0);
}

/// A level is a fraction, a timestep is whole: the nearest one is meant.
#[test]
fn a_level_means_the_nearest_timestep() {
    let process = config(CONFIGS[0]).process();
    let want: Vec<f32> = (1..999).map(|t| t as f32).collect();
    for off in [-0.4, 0.0, 0.4] {
        let level = |t: i32| process.level(f64::from(t) + off) as f32;
        let levels: Vec<f32> = (1..999).map(level).collect();
        let level = Tensor::<1>::from_floats(&levels[..], &Device::flex()).reshape([1, 998, 1]);
        assert_eq!(values(&process.timestep(level)), want, "{off}");
    }
}

/// The processes that a few-step network can have, with timesteps of each.
fn few_step_processes() -> [(Process, [f64; 3]); 4] {
    let alphas_cumprod: Vec<f32> = (0..50).map(|i| 0.98 - 0.019 * i as f32).collect();
    let vp = |prediction| Process::Vp { alphas_cumprod: alphas_cumprod.clone(), prediction };
    [
        (Process::Flow, [1000.0, 624.5, 20.0]),
        (vp(VpPrediction::Epsilon), [49.0, 30.0, 0.0]),
        (vp(VpPrediction::Velocity), [49.0, 30.0, 0.0]),
        (vp(VpPrediction::Sample), [49.0, 30.0, 0.0]),
    ]
}

/// Renoise is the process itself: its `clean`, then its `noise` at the next timestep.
#[test]
fn renoise_predicts_the_clean_sample_and_noises_it_to_the_next_timestep() {
    for (process, timesteps) in few_step_processes() {
        let solver = Solver::renoise(&process, &timesteps).unwrap();
        let level =
            |step: usize| Tensor::full([1, 1, 1], process.level(timesteps[step]), &Device::flex());
        let mut state = solver.state();
        let mut sample = tensor("initial", 0);
        for (step, at) in timesteps.into_iter().enumerate() {
            assert_eq!(solver.steps()[step].timestep, at);
            let prediction = tensor("prediction", step);
            let mut want = process.clean(sample.clone(), prediction.clone(), level(step));
            if step < 2 {
                want = process.noise(want, tensor("noise", step), level(step + 1));
            }
            assert_eq!(solver.wants_noise(step), step < 2, "{process:?} at step {step}");
            let noise = solver.wants_noise(step).then(|| tensor("noise", step));
            sample = solver.step(step, &mut state, sample, prediction, noise).unwrap();
            let worst = (sample.clone() - want).abs().max().into_scalar::<f32>();
            assert!(worst < 1e-5, "{process:?} after step {step}: {worst}");
        }
    }
}

/// One timestep is one look at the network, without noise; and whatever noise is drawn between
/// the steps, a network that knows the data leads to it.
#[test]
fn renoise_forgets_all_noise_but_that_of_the_last_level() {
    for (process, timesteps) in few_step_processes() {
        let single = Solver::renoise(&process, &timesteps[..1]).unwrap();
        assert_eq!((single.steps().len(), single.wants_noise(0)), (1, false));
        let solver = Solver::renoise(&process, &timesteps).unwrap();
        let data = tensor("data", 0);
        let mut sample = tensor("initial", 0);
        let mut state = solver.state();
        for (step, at) in timesteps.into_iter().enumerate() {
            let Step { alpha, sigma, .. } = solver.steps()[step];
            let epsilon = (sample.clone() - data.clone() * alpha) / sigma;
            let level = Tensor::full([1, 1, 1], process.level(at), &Device::flex());
            let prediction = process.target(data.clone(), epsilon, level);
            let noise = solver.wants_noise(step).then(|| tensor("fresh", step));
            sample = solver.step(step, &mut state, sample, prediction, noise).unwrap();
        }
        let worst = (sample - data).abs().max().into_scalar::<f32>();
        assert!(worst < 1e-4, "{process:?}: {worst}");
    }
}

/// With `eta` 0 DDIM asks for no noise and ignores what it is given; with 0.7 it does neither.
#[test]
fn ddim_without_eta_is_deterministic() {
    let step = |eta: f64, noise: &str| {
        let solver = config(CONFIGS[0]).with_eta(eta).unwrap().solver(5, 9).unwrap();
        let (sample, prediction) = (tensor("initial", 0), tensor("prediction", 0));
        let noise = Some(tensor(noise, 0));
        let next = solver.step(1, &mut solver.state(), sample, prediction, noise).unwrap();
        (solver.wants_noise(1), bits(&next))
    };
    assert_eq!(step(0.0, "one"), step(0.0, "another"));
    assert!(!step(0.0, "one").0 && step(0.7, "one").0);
    assert_ne!(step(0.7, "one").1, step(0.7, "another").1);
}

/// bf16 in, f32 out: the update itself never rounds to bf16.
#[test]
fn the_update_is_computed_in_f32() {
    use burn::tensor::{DType, FloatDType};
    let solver = config(CONFIGS[3]).solver(4, 9).unwrap();
    let half = |name| tensor(name, 0).cast(FloatDType::BF16);
    let wide = |name| half(name).cast(FloatDType::F32);
    let step =
        |sample, prediction| solver.step(0, &mut solver.state(), sample, prediction, None).unwrap();
    let next = step(half("a"), half("b"));
    assert_eq!(next.dtype(), DType::F32);
    assert_eq!(bits(&next), bits(&step(wide("a"), wide("b"))));
}

#[test]
fn a_range_of_noise_equals_the_slice_of_the_whole() {
    let draw = Draw::new(3).stream("x").step(5).sample(8);
    let (normal, uniform) = (draw.normal(0..64), draw.uniform(0..64));
    for start in 0..20 {
        for end in start..40 {
            assert_eq!(draw.normal(start..end), normal[start..end]);
            assert_eq!(draw.uniform(start..end), uniform[start..end]);
        }
    }
    let whole = draw.normal_tensor([16, 4], &Device::flex());
    let rows = draw.normal_tokens(5..11, 4, &Device::flex());
    assert_eq!(rows.to_data(), whole.slice_dim(0, 5..11).to_data());
}

#[test]
fn draws_for_different_things_differ() {
    let draw = Draw::new(3).stream("x").step(5).sample(0);
    let others = [
        Draw::new(4).stream("x").step(5).sample(0),
        Draw::new(3).stream("y").step(5).sample(0),
        Draw::new(3).step(5).sample(0),
        Draw::new(3).stream("x").stream("").step(5).sample(0),
        Draw::new(3).stream("x").step(6).sample(0),
        Draw::new(3).stream("x").step(5 + (1 << 32)).sample(0),
        Draw::new(3).stream("x").step(5).sample(1),
        Draw::new(3).stream("x").step(5).sample(1 << 32),
        Draw::new(3).stream("x").step(5),
    ];
    for other in others {
        let same = draw.normal(0..64).into_iter().zip(other.normal(0..64)).filter(|(a, b)| a == b);
        assert_eq!(same.count(), 0, "{other:?}");
    }
    assert_eq!(draw, Draw::new(3).sample(0).step(5).stream("x"), "the order of keys is free");
}

#[test]
fn noise_has_the_moments_of_its_distribution() {
    const COUNT: usize = 200_000;
    let draw = Draw::new(11).stream("moments");
    let moment = |values: &[f32], power: i32| {
        values.iter().map(|x| f64::from(*x).powi(power)).sum::<f64>() / COUNT as f64
    };
    let normal = draw.normal(0..COUNT);
    for (power, want) in [(1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0)] {
        let found = moment(&normal, power);
        assert!((found - want).abs() < 0.05, "moment {power} is {found}, not {want}");
    }
    // Neighbours come from one block, and must not know of each other.
    for distance in 1..5 {
        let products = normal.iter().zip(&normal[distance..]).map(|(a, b)| f64::from(a * b));
        let correlation = products.sum::<f64>() / COUNT as f64;
        assert!(correlation.abs() < 0.01, "elements {distance} apart correlate by {correlation}");
    }
    let uniform = draw.uniform(0..COUNT);
    assert!(uniform.iter().all(|x| (0.0..1.0).contains(x)));
    assert!((moment(&uniform, 1) - 0.5).abs() < 0.005);
    assert!((moment(&uniform, 2) - 1.0 / 3.0).abs() < 0.005);
}
