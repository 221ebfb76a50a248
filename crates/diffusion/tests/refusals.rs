//! What is refused, and in which words.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use burn::tensor::{Device, Tensor};
use diffusion::{Process, SchedulerConfig, Solver, SolverState};

/// The message of the error that reading `text` or cutting it into `steps` gives.
fn message(text: &str, steps: usize) -> String {
    let solver = SchedulerConfig::from_json(text).and_then(|config| config.solver(steps, 64));
    solver.expect_err(text).to_string()
}

/// A config of the class with one more option.
fn with(class: &str, options: &str) -> String {
    format!(r#"{{"_class_name": "{class}", "_diffusers_version": "0.42.1", {options}}}"#)
}

fn check(text: &str, steps: usize, words: &[&str]) {
    let message = message(text, steps);
    for word in words {
        assert!(message.contains(word), "`{word}` is not in: {message}");
    }
    let first = message.chars().next().unwrap();
    let is_name = message.starts_with("DDIM") || message.starts_with("DDPM");
    let is_name = is_name || message.starts_with("DPM") || message.starts_with("Flow");
    let is_name = is_name || message.starts_with("UniPC");
    assert!(is_name || first.is_lowercase(), "{message}");
    assert!(!message.ends_with('.'), "{message}");
}

const DDIM: &str = "DDIMScheduler";
const DDPM: &str = "DDPMScheduler";
const DPM: &str = "DPMSolverMultistepScheduler";
const FLOW: &str = "FlowMatchEulerDiscreteScheduler";
const UNIPC: &str = "UniPCMultistepScheduler";

#[test]
fn text_that_is_no_scheduler_config() {
    check("{", 4, &["not valid JSON"]);
    check("[1]", 4, &["a JSON object"]);
    check(r#"{"steps_offset": 1}"#, 4, &["_class_name", DDPM, FLOW]);
    check(r#"{"_class_name": "PNDMScheduler"}"#, 4, &["PNDMScheduler", DDIM, DDPM, DPM, FLOW]);
}

#[test]
fn unsupported_values_name_class_option_value_and_remedy() {
    for (class, options, words) in [
        (DDIM, r#""thresholding": true"#, ["thresholding", "true", "false"]),
        (DDIM, r#""beta_schedule": "sigmoid""#, ["beta_schedule", "\"sigmoid\"", "scaled_linear"]),
        (DDIM, r#""clip_sample": 3"#, ["clip_sample", "3", "true, false"]),
        (DDIM, r#""beta_start": "low""#, ["beta_start", "\"low\"", "finite numbers"]),
        (DDIM, r#""beta_start": NaN"#, ["beta_start", "NaN", "finite numbers"]),
        (DDIM, r#""num_train_timesteps": 0"#, ["num_train_timesteps", "0", "from 1"]),
        (DDIM, r#""trained_betas": [0.1, 0.2]"#, ["trained_betas", "a list of 2", "1000"]),
        (DDIM, r#""prediction_type": "flow""#, ["prediction_type", "\"flow\"", "v_prediction"]),
        (DDPM, r#""variance_type": "learned_range""#, ["variance_type", "learned", "fixed_small"]),
        (DPM, r#""use_beta_sigmas": true"#, ["use_beta_sigmas", "true", "use_karras_sigmas"]),
        (DPM, r#""solver_order": 4"#, ["solver_order", "4", "1 to 3"]),
        (DPM, r#""algorithm_type": "dpmsolver""#, ["final_sigmas_type", "zero", "sigma_min"]),
        (DPM, r#""lambda_min_clipped": Infinity"#, ["lambda_min_clipped", "Infinity", "-Infinity"]),
        (DPM, r#""sigma_min": 0.1"#, ["sigma_min", "0.1", "null"]),
        (
            DPM,
            r#""use_flow_sigmas": true, "prediction_type": "epsilon""#,
            ["prediction_type", "epsilon", "flow_prediction"],
        ),
        (
            DPM,
            r#""use_karras_sigmas": true, "use_lu_lambdas": true"#,
            ["use_lu_lambdas", "true", "use_karras_sigmas"],
        ),
        (FLOW, r#""invert_sigmas": true"#, ["invert_sigmas", "true", "false"]),
        (FLOW, r#""time_shift_type": "cubic""#, ["time_shift_type", "\"cubic\"", "linear"]),
        (FLOW, r#""base_shift": null"#, ["base_shift", "null", "finite numbers"]),
        (FLOW, r#""use_beta_sigmas": true"#, ["use_beta_sigmas", "true", "use_karras_sigmas"]),
        (UNIPC, r#""use_beta_sigmas": true"#, ["use_beta_sigmas", "true", "use_karras_sigmas"]),
        (UNIPC, r#""use_dynamic_shifting": true"#, ["use_dynamic_shifting", "true", "flow_shift"]),
        (UNIPC, r#""solver_order": 4"#, ["solver_order", "4", "1 to 3"]),
        (UNIPC, r#""solver_type": "bh3""#, ["solver_type", "bh3", "bh1"]),
        (UNIPC, r#""solver_p": {}"#, ["solver_p", "{}", "null"]),
        (UNIPC, r#""predict_x0": false"#, ["final_sigmas_type", "zero", "sigma_min"]),
        (UNIPC, r#""disable_corrector": [0.5]"#, ["disable_corrector", "0.5", "whole"]),
        (UNIPC, r#""thresholding": true"#, ["thresholding", "true", "false"]),
        (UNIPC, r#""shift_terminal": 0.1"#, ["shift_terminal", "0.1", "use_flow_sigmas"]),
        (UNIPC, r#""sigma_min": -1"#, ["sigma_min", "-1", "above 0"]),
        (UNIPC, r#""prediction_type": "flow_prediction""#, ["prediction_type", "flow", "epsilon"]),
        (
            UNIPC,
            r#""use_flow_sigmas": true, "prediction_type": "epsilon""#,
            ["prediction_type", "epsilon", "flow_prediction"],
        ),
        (
            UNIPC,
            r#""use_flow_sigmas": true, "predict_x0": false, "final_sigmas_type": "sigma_min""#,
            ["predict_x0", "false", "use_flow_sigmas"],
        ),
        (
            UNIPC,
            r#""use_exponential_sigmas": true, "use_flow_sigmas": true"#,
            ["use_exponential_sigmas", "true", "use_flow_sigmas"],
        ),
        (
            UNIPC,
            r#""use_flow_sigmas": true, "num_train_timesteps": 500"#,
            ["use_flow_sigmas", "true", "1000"],
        ),
    ] {
        check(&with(class, options), 4, &words);
        check(&with(class, options), 4, &[class]);
    }
    let sde =
        r#""algorithm_type": "sde-dpmsolver", "final_sigmas_type": "sigma_min", "solver_order": 3"#;
    check(&with(DPM, sde), 4, &["solver_order", "sde-dpmsolver"]);
}

#[test]
fn unknown_options_name_the_nearest() {
    check(&with(DDIM, r#""beta_stat": 0.1"#), 4, &[DDIM, "`beta_stat`", "`beta_start`"]);
    check(&with(FLOW, r#""clip_sample": true"#), 4, &[FLOW, "`clip_sample`"]);
    // Left over from a class that diffusers converted this one from; it looks at neither.
    let foreign = with(DPM, r#""skip_prk_steps": true, "clip_sample": false, "sigma_max": null"#);
    assert_eq!(
        SchedulerConfig::from_json(&foreign).unwrap(),
        SchedulerConfig::from_json(&with(DPM, r#""solver_order": 2"#)).unwrap()
    );
}

#[test]
fn impossible_schedules() {
    check(&with(DDIM, r#""steps_offset": 0"#), 0, &["0 steps", "1 to 1000"]);
    check(&with(DDPM, r#""steps_offset": 0"#), 1001, &["1001 steps", "1 to 1000"]);
    check(&with(DPM, r#""timestep_spacing": "leading""#), 1000, &["1000 steps", "1 to 999"]);
    check(&with(FLOW, r#""shift": 2"#), 0, &["0 steps"]);
    check(&with(DDIM, r#""beta_end": 1.5"#), 4, &["beta 1.0", "between 0 and 1"]);
    // Without signal, noise says nothing about the clean sample.
    let blind = r#""rescale_betas_zero_snr": true, "timestep_spacing": "trailing""#;
    check(&with(DDIM, blind), 4, &["step 0 of 4", "v_prediction"]);
    // The last level twice: Heun divides by the length of a step of zero.
    let twice = r#""use_karras_sigmas": true, "final_sigmas_type": "sigma_min", "solver_type": "heun",
                   "lower_order_final": false"#;
    check(&with(DPM, twice), 6, &["step 5 of 6", "solver_order"]);
    // No order above the first reaches a log-SNR of infinity.
    check(&with(UNIPC, r#""lower_order_final": false"#), 6, &["step 5 of 6", "solver_order"]);
    check(&with(UNIPC, r#""timestep_spacing": "leading""#), 1000, &["1000 steps", "1 to 999"]);
    // One step starts at pure noise, which is no level to end at: LTX-2's schedule.
    let ended = ["the last of 1 steps", "pure noise", "0.1", "two steps or more"];
    check(&with(FLOW, r#""shift_terminal": 0.1"#), 1, &ended);
    let flow =
        r#""use_flow_sigmas": true, "prediction_type": "flow_prediction", "shift_terminal": 0.1"#;
    check(&with(UNIPC, flow), 1, &ended);
}

/// A flow that is shifted is the flow that was written with that shift; what has no shift refuses one.
#[test]
fn a_flow_may_be_shifted() {
    let flow = r#""use_flow_sigmas": true, "prediction_type": "flow_prediction", "flow_shift": "#;
    for class in [UNIPC, DPM] {
        let read =
            |shift: &str| SchedulerConfig::from_json(&with(class, &format!("{flow}{shift}")));
        let (own, other) = (read("1.0").unwrap(), read("7.5").unwrap());
        assert!(own != other);
        let shifted = own.with_flow_shift(7.5).unwrap();
        assert_eq!(shifted, other);
        assert_eq!(shifted.options()["flow_shift"], 7.5);
        assert_eq!(shifted.solver(4, 9).unwrap(), other.solver(4, 9).unwrap());
    }
    let read = |shift: &str| SchedulerConfig::from_json(&with(FLOW, shift)).unwrap();
    assert_eq!(read(r#""shift": 3"#).with_flow_shift(5.0).unwrap(), read(r#""shift": 5.0"#));
    for shift in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let message = read(r#""shift": 3"#).with_flow_shift(shift).unwrap_err().to_string();
        assert!(message.contains(&format!("a shift of {shift}")), "{message}");
    }
    let dynamic = read(r#""use_dynamic_shifting": true"#);
    let plain = SchedulerConfig::from_json(&with(DDIM, r#""_x": 0"#)).unwrap();
    for own in [dynamic, plain] {
        let message = own.with_flow_shift(5.0).unwrap_err().to_string();
        assert!(message.contains(own.class()) && message.contains("no shift"), "{message}");
    }
}

#[test]
fn eta_and_sigmas_that_a_class_does_not_have() {
    let read = |class| SchedulerConfig::from_json(&with(class, r#""_x": 0"#)).unwrap();
    assert!(read(DPM).with_eta(0.0).is_ok() && read(DDIM).with_eta(1.0).is_ok());
    for (class, eta) in [(DPM, 0.5), (DDIM, 1.5), (DDIM, -0.1), (DDIM, f64::NAN)] {
        let message = read(class).with_eta(eta).unwrap_err().to_string();
        assert!(message.contains(class) && message.contains(&eta.to_string()), "{message}");
    }
    let message = read(DDIM).solver_at(&[1.0, 0.5], 4).unwrap_err().to_string();
    assert!(message.contains(DDIM) && message.contains(FLOW), "{message}");
    let message = read(UNIPC).solver_at(&[1.0, 0.5], 4).unwrap_err().to_string();
    assert!(message.contains(UNIPC) && message.contains("use_flow_sigmas"), "{message}");
    let wan = with(UNIPC, r#""use_flow_sigmas": true, "prediction_type": "flow_prediction""#);
    let wan = SchedulerConfig::from_json(&wan).unwrap();
    for sigmas in [&[1.0, 1.0][..], &[1.2, 0.5], &[0.5, 0.0], &[0.5, f64::NAN], &[]] {
        assert!(read(FLOW).solver_at(sigmas, 4).is_err(), "{sigmas:?}");
        assert!(wan.solver_at(sigmas, 4).is_err(), "{sigmas:?}");
    }
}

/// No shift, no end and no ladder of a config moves levels that are meant as they are.
#[test]
fn levels_that_are_meant_as_they_are_stay_there() {
    let flow = with(
        FLOW,
        r#""use_dynamic_shifting": true, "shift_terminal": 0.1, "use_karras_sigmas": true"#,
    );
    let wan = r#""use_flow_sigmas": true, "prediction_type": "flow_prediction", "flow_shift": 5.0"#;
    for (config, levels) in
        [(flow, [1.0, 0.975, 0.421875]), (with(UNIPC, wan), [0.96875, 0.725, 0.421875])]
    {
        let config = SchedulerConfig::from_json(&config).unwrap();
        let of = |solver: Solver| -> Vec<f32> {
            solver.steps().iter().map(|step| step.sigma as f32).collect()
        };
        let wanted: Vec<f32> = levels.iter().map(|level| *level as f32).collect();
        assert_eq!(of(config.solver_exactly_at(&levels).unwrap()), wanted);
        assert_ne!(of(config.solver_at(&levels, 64).unwrap()), wanted);
        assert!(config.solver_exactly_at(&[0.5, 0.7]).is_err());
    }
    let other = SchedulerConfig::from_json(&with(DDIM, r#""_x": 0"#)).unwrap();
    assert!(other.solver_exactly_at(&[0.5]).unwrap_err().to_string().contains(DDIM));
}

#[test]
fn timesteps_that_renoise_cannot_visit() {
    let vp = |class: &str, options: &str| {
        SchedulerConfig::from_json(&with(class, options)).unwrap().process()
    };
    let flow = Process::Flow;
    let ddim = vp(DDIM, r#""_x": 0"#);
    let cases: [(&Process, &[f64], [&str; 2]); 9] = [
        (&flow, &[], ["at least one", "up to 1000"]),
        (&flow, &[1000.0, 750.0, 750.0], ["number 3 is 750", "falling"]),
        (&flow, &[1001.0], ["number 1 is 1001", "up to 1000"]),
        (&flow, &[500.0, 0.0], ["number 2 is 0", "above 0"]),
        (&flow, &[500.0, f64::NAN], ["number 2 is NaN", "above 0"]),
        (&ddim, &[], ["at least one", "0 to 999"]),
        (&ddim, &[1000.0, 500.0], ["number 1 is 1000", "0 to 999"]),
        (&ddim, &[500.5], ["number 1 is 500.5", "whole"]),
        (&ddim, &[3.0, -1.0], ["number 2 is -1", "0 to 999"]),
    ];
    for (process, timesteps, words) in cases {
        let message = Solver::renoise(process, timesteps).unwrap_err().to_string();
        assert!(words.iter().all(|word| message.contains(word)), "{words:?}: {message}");
    }
    // Without signal, noise says nothing about the clean sample; a velocity does.
    let zero_snr = r#""rescale_betas_zero_snr": true"#;
    let message = Solver::renoise(&vp(DDIM, zero_snr), &[999.0]).unwrap_err().to_string();
    assert!(message.contains("step 0 of 1") && message.contains("v_prediction"), "{message}");
    let velocity = vp(DDIM, &format!(r#"{zero_snr}, "prediction_type": "v_prediction""#));
    assert!(Solver::renoise(&velocity, &[999.0, 500.0]).is_ok());
}

#[test]
fn steps_that_cannot_be_taken() {
    let tensor = |tokens| Tensor::<3>::ones([1, tokens, 2], &Device::flex());
    let sde = with(DPM, r#""algorithm_type": "sde-dpmsolver++""#);
    let solver = SchedulerConfig::from_json(&sde).unwrap().solver(4, 3).unwrap();
    let step = |solver: &Solver, step, state: &mut SolverState, tokens: [usize; 3]| {
        let [sample, prediction, noise] = tokens.map(tensor);
        let noise = (tokens[2] > 0).then_some(noise);
        solver.step(step, state, sample, prediction, noise).map_err(|error| error.to_string())
    };
    let refused =
        |at, state: &mut SolverState, tokens| step(&solver, at, state, tokens).unwrap_err();

    let mut state = solver.state();
    assert!(refused(4, &mut state, [3, 3, 3]).contains("no step 4"));
    assert!(refused(0, &mut state, [3, 2, 3]).contains("prediction"));
    assert!(refused(0, &mut state, [3, 3, 2]).contains("noise"));
    assert!(refused(0, &mut state, [3, 3, 0]).contains("wants_noise"));
    step(&solver, 0, &mut state, [3, 3, 3]).unwrap();
    assert!(refused(2, &mut state, [3, 3, 3]).contains("next step is 1"));
    assert!(refused(1, &mut state, [2, 2, 2]).contains("history"));

    assert!(state.split(&[0..1, 1..4]).unwrap_err().to_string().contains("1..4"));
    let states = vec![state.clone(), solver.state()];
    assert!(SolverState::join(states).unwrap_err().to_string().contains("differ"));
    step(&solver, 1, &mut state, [3, 3, 3]).unwrap();
}
