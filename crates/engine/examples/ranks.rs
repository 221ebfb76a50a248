//! Times layouts of thread ranks against the first one, in turns:
//! `cargo run --release --workspace --example ranks -- MODEL FRAMES SIDE STEPS GUIDANCE ROUNDS LAYOUT..`
//! (`cargo xtask layouts` does that for what is promised of layouts).
//!
//! A layout is a letter of its axis with ranks of one thread each: `1` one rank, `2` one rank with two threads, `u` Ulysses,
//! `c` CFG, `r` ring, `t` tensor, `p` PipeFusion of four patches, `s` of whole sequences in as many patches as stages, `d`
//! replicas with a sample each; two ranks if no number is behind it. With a minus at the end, headers of calls are not
//! compared. A line is the best of all rounds: seconds of the steps, and how long each rank waited for others; then the memory
//! of the process at its most, whatever it ran.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use burn::tensor::Device;
use comm::{Axis, MeshShape, Ranks};
use engine::{Frames, Pipeline, Progress, Request, Setup};
use parallel::{Layout, Plan};

#[global_allocator]
static ALLOCATOR: kernels::Allocator = kernels::Allocator;

/// Takes the time of the steps.
#[derive(Default)]
struct Watch {
    begun: Option<Instant>,
    steps: Duration,
}

impl Progress for Watch {
    fn begin(&mut self, stage: &str, _: usize) {
        self.begun = (stage == "denoise").then(Instant::now);
    }

    fn reach(&mut self, _: usize) {
        if let Some(begun) = self.begun {
            self.steps = begun.elapsed();
        }
    }

    fn interrupted(&self) -> bool {
        false
    }
}

/// Keeps nothing.
struct Nobody;

impl Frames for Nobody {
    fn begin(&mut self, _: usize, _: usize) -> engine::Result<()> {
        Ok(())
    }

    fn frame(&mut self, _: usize, _: data::media::Frame) -> engine::Result<()> {
        Ok(())
    }
}

/// What a letter stands for: ranks along an axis, threads of each, whether headers are compared.
fn layout(name: &str) -> (Layout, usize, bool) {
    let (whole, checked) = match name.strip_suffix('-') {
        Some(whole) => (whole, false),
        None => (name, true),
    };
    if let "1" | "2" = whole {
        return (Layout::new(1, MeshShape::default()), whole.parse().unwrap(), checked);
    }
    let (letter, degree) = whole.split_at(1);
    let axis = match letter {
        "u" => Axis::Ulysses,
        "c" => Axis::Cfg,
        "r" => Axis::Ring,
        "t" => Axis::Tensor,
        "p" | "s" => Axis::Pipeline,
        "d" => Axis::Data,
        other => panic!("there is no layout {other}"),
    };
    let degree = if degree.is_empty() { 2 } else { degree.parse().unwrap() };
    let mut layout = Layout::new(degree, MeshShape::default().with(axis, degree));
    layout.pipeline.patches = (letter == "p").then_some(4);
    (layout, 1, checked)
}

/// Seconds of the steps on the slowest rank, and how long each rank waited.
fn run(pipeline: &Pipeline, request: &Request, name: &str) -> (f64, Vec<f64>) {
    let (layout, threads, checked) = layout(name);
    let count = layout.mesh.degree(Axis::Data);
    let request = &Request { count, ..request.clone() };
    let plan = Plan::new(&layout, &pipeline.workload(request).unwrap()).unwrap();
    let shared = Mutex::new(pipeline.clone());
    let ranks = Ranks { threads, checked, ..Ranks::new(layout.ranks) };
    let made = ranks.run(|group| {
        let mesh = plan.mesh(group).unwrap();
        let mut own = shared.lock().unwrap().on(mesh.clone(), &plan);
        let mut watch = Watch::default();
        own.run(request, &mut watch, &mut Nobody).unwrap();
        let groups = Axis::ALL.map(|axis| mesh.axis(axis).clone());
        let all = groups.iter().chain([mesh.sequence(), mesh.replica(), mesh.stage()]);
        let waited: f64 = all.map(|group| group.traffic().waited.as_secs_f64()).sum();
        (watch.steps.as_secs_f64(), waited)
    });
    let made: Vec<(f64, f64)> = made.into_iter().map(|rank| rank.unwrap()).collect();
    let slowest = made.iter().map(|(steps, _)| *steps).fold(0.0, f64::max);
    (slowest, made.into_iter().map(|(_, waited)| waited).collect())
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [model, frames, side, steps, guidance, rounds, layouts @ ..] = &words[..] else {
        panic!("MODEL FRAMES SIDE STEPS GUIDANCE ROUNDS LAYOUT..");
    };
    let side = side.parse().unwrap();
    let request = Request {
        prompts: vec!["a fox".to_owned()],
        frames: Some(frames.parse().unwrap()),
        height: Some(side),
        width: Some(side),
        steps: Some(steps.parse().unwrap()),
        guidance: Some(guidance.parse().unwrap()),
        ..Request::default()
    };
    let mut pipeline = Pipeline::open(Path::new(model), &Setup::new(&Device::flex())).unwrap();
    pipeline.open_all().unwrap();
    let mut best: Vec<Option<(f64, Vec<f64>)>> = vec![None; layouts.len()];
    for _ in 0..rounds.parse().unwrap() {
        for (best, name) in best.iter_mut().zip(layouts) {
            let (seconds, waited) = run(&pipeline, &request, name);
            println!("{name:<3} {seconds:7.2} s, waited {waited:.2?}");
            if best.as_ref().is_none_or(|(known, _)| seconds < *known) {
                *best = Some((seconds, waited));
            }
        }
    }
    let first = best.first().and_then(|best| best.as_ref()).map_or(0.0, |(seconds, _)| *seconds);
    for (best, name) in best.iter().zip(layouts) {
        if let Some((seconds, waited)) = best {
            let times = first / seconds;
            println!("best {name:<3} {seconds:7.2} s, {times:.2}x, waited {waited:.2?}");
        }
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = most.and_then(|most| most.trim().trim_end_matches(" kB").parse::<u64>().ok());
    println!("memory {:.1} MiB", kibibytes.unwrap_or(0) as f64 / 1024.0);
}
