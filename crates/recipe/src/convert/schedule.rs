//! How fast is learnt: `learning_rate`, `scheduler_type` and its parameters.

use serde_json::{Value, json};

use super::foreign::Foreign;

const PARAMETERS: &str = "optimization.scheduler_params";

/// Learning rates that differ by less are the same.
const SAME: f64 = 1e-9;

/// How many updates there are.
pub(super) fn steps(foreign: &mut Foreign) -> u64 {
    foreign.whole("optimization.steps").unwrap_or(3000)
}

/// The rate and how it falls, with the defaults of PyTorch's schedulers as the other trainer sets them.
pub(super) fn rate(foreign: &mut Foreign) -> Value {
    let peak = foreign.number("optimization.learning_rate").unwrap_or(5e-4);
    let steps = steps(foreign);
    let kind = foreign.text("optimization.scheduler_type");
    foreign.section(PARAMETERS);
    let decay = match kind.as_deref().unwrap_or("linear") {
        "constant" => json!({ "kind": "constant" }),
        "linear" => linear(foreign, steps),
        "cosine" => {
            lasts(foreign, "T_max", steps);
            json!({ "kind": "cosine", "end": parameter(foreign, "eta_min", 0.0) / peak })
        }
        "cosine_with_restarts" => restarts(foreign, peak, steps),
        "polynomial" => {
            lasts(foreign, "total_iters", steps);
            json!({ "kind": "polynomial", "power": parameter(foreign, "power", 1.0) })
        }
        "step" => {
            let every = whole(foreign, "step_size", steps / 2).max(1);
            let factor = parameter(foreign, "gamma", 0.1);
            let falls = (1..).map(|at| (at * every, factor.powi(at as i32)));
            let falls: Vec<(u64, f64)> =
                falls.take_while(|(at, _)| *at < steps).take(1000).collect();
            json!({ "kind": "piecewise", "steps": falls })
        }
        _ => {
            let reason = "it is `constant`, `linear`, `cosine`, `cosine_with_restarts`, `polynomial` or `step`";
            foreign.refuse("optimization.scheduler_type", reason);
            foreign.know(PARAMETERS);
            Value::Null
        }
    };
    json!({ "peak": peak, "decay": decay })
}

fn linear(foreign: &mut Foreign, steps: u64) -> Value {
    lasts(foreign, "total_iters", steps);
    if (parameter(foreign, "start_factor", 1.0) - 1.0).abs() > SAME {
        let reason =
            "a rate begins at its peak; write 1.0, or use `models.student.rate.warmup` afterwards";
        foreign.refuse(&format!("{PARAMETERS}.start_factor"), reason);
    }
    json!({ "kind": "linear", "end": parameter(foreign, "end_factor", 0.1) })
}

fn restarts(foreign: &mut Foreign, peak: f64, steps: u64) -> Value {
    let length = whole(foreign, "T_0", steps / 4).max(1);
    if whole(foreign, "T_mult", 1) != 1 {
        let reason = "each descent is as long as the first; write 1";
        foreign.refuse(&format!("{PARAMETERS}.T_mult"), reason);
    }
    if !steps.is_multiple_of(length) {
        let reason = format!("{steps} steps are no whole number of descents of {length}");
        foreign.refuse(&format!("{PARAMETERS}.T_0"), &reason);
    }
    let end = parameter(foreign, "eta_min", 5e-5) / peak;
    json!({ "kind": "cosine-restarts", "cycles": (steps / length).max(1), "end": end })
}

/// Refuses a schedule that does not last as long as the run.
fn lasts(foreign: &mut Foreign, key: &str, steps: u64) {
    if whole(foreign, key, steps) != steps {
        let reason = format!("a schedule lasts as long as the run, {steps} steps");
        foreign.refuse(&format!("{PARAMETERS}.{key}"), &reason);
    }
}

fn parameter(foreign: &mut Foreign, key: &str, own: f64) -> f64 {
    foreign.number(&format!("{PARAMETERS}.{key}")).unwrap_or(own)
}

fn whole(foreign: &mut Foreign, key: &str, own: u64) -> u64 {
    foreign.whole(&format!("{PARAMETERS}.{key}")).unwrap_or(own)
}
