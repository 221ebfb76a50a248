//! `cargo xtask layouts CASE`: what is promised of layouts on thread ranks, measured on this machine.
//!
//! All that is compared runs in turns, so that a busy moment hits all of it; the best of each counts. A figure is one of a
//! machine that does nothing else: look at its load first.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process::{self, command};

/// What to measure.
#[derive(clap::Args)]
pub(crate) struct Options {
    #[arg(value_enum)]
    case: Case,
    /// Turns; the best counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Steps of a turn
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Width and height of the picture, a token being 16 x 16 of it
    #[arg(long, value_name = "PIXELS", default_value_t = 512)]
    side: u32,
    /// A model in the place of the one that is made
    #[arg(long, value_name = "FOLDER")]
    model: Option<PathBuf>,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Case {
    /// Two ranks of Ulysses against one, and against one with two threads
    Ulysses,
    /// The same of the branches of guidance
    Cfg,
    /// Two stages of four patches against one rank
    Pipefusion,
    /// Calls whose headers are compared against calls whose headers are not
    Checked,
    /// Memory of four ranks against one, in processes of their own
    Memory,
    /// Time and memory of six layouts against what `moviola plan` says of them
    Plan,
}

/// A Wan of 1.3 billion parameters is so wide and has 30 layers: layers, heads, their width, feed-forward.
const WIDE: [u32; 4] = [8, 12, 128, 8960];

/// The one of the table in docs/parallel.md.
const PLANNED: [u32; 4] = [8, 12, 64, 3072];

/// Layouts of that table: as the example calls them, and their flags.
const SIX: [(&str, &str); 6] = [
    ("1", "--ranks 1"),
    ("c", "--cfg 2"),
    ("u", "--ulysses 2"),
    ("r", "--ring 2"),
    ("t", "--tensor 2"),
    ("s", "--pipefusion 2"),
];

/// Frames, side, steps and guidance of its request.
const PLANNED_REQUEST: [&str; 4] = ["5", "256", "5", "3"];

/// Measures, and says what was promised.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let bench = Bench::prepare(root, options)?;
    match options.case {
        Case::Ulysses => bench.against_one(&["1", "2", "u"], &[("1", 1.8), ("2", 0.95)]),
        Case::Cfg => bench.against_one(&["1", "2", "c"], &[("1", 1.9), ("2", 0.95)]),
        Case::Pipefusion => bench.against_one(&["1", "p"], &[("1", 1.7)]),
        Case::Checked => bench.checked(),
        Case::Memory => bench.memory(),
        Case::Plan => bench.plan(),
    }
}

/// What was built and made.
struct Bench<'a> {
    root: &'a Path,
    options: &'a Options,
    folder: PathBuf,
    model: PathBuf,
}

/// What a turn of some layouts found.
struct Found {
    /// Seconds of the steps, the best of all turns, by layout.
    seconds: BTreeMap<String, f64>,
    /// Mebibytes of the process at its most.
    memory: f64,
}

impl<'a> Bench<'a> {
    fn prepare(root: &'a Path, options: &'a Options) -> Result<Bench<'a>> {
        // The features of the whole workspace, so that nothing is compiled again that a build has left.
        process::run(&mut command("cargo", "build --release --workspace --examples --bins", root))?;
        let folder = process::target_folder(root)?.join("release");
        let sizes = if options.case == Case::Plan { PLANNED } else { WIDE };
        let model = match &options.model {
            Some(model) => model.clone(),
            None => {
                let [layers, heads, width, feed] = sizes;
                let name = format!("wan-{layers}-{heads}-{width}-{feed}");
                let model = folder.with_file_name("layouts").join(name);
                if !model.join("transformer/diffusion_pytorch_model.safetensors").is_file()
                    || !model.join("made").is_file()
                {
                    let mut make = Command::new(folder.join("examples/wide_wan"));
                    make.arg(root.join("goldens/wan-tiny")).arg(&model);
                    process::run(make.args(sizes.map(|size| size.to_string())))?;
                    std::fs::write(model.join("made"), "")?;
                }
                model
            }
        };
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        println!("load before: {}", load.split(' ').take(3).collect::<Vec<_>>().join(" "));
        Ok(Bench { root, options, folder, model })
    }

    /// Runs layouts in turns.
    fn ranks(&self, request: [&str; 4], rounds: u32, layouts: &[&str]) -> Result<Found> {
        let mut ranks = Command::new(self.folder.join("examples/ranks"));
        ranks.arg(&self.model).args(request).arg(rounds.to_string()).args(layouts);
        let text = process::output(&mut ranks)?;
        print!("{text}");
        let number = |word: Option<&str>| word.and_then(|word| word.parse::<f64>().ok());
        let (mut seconds, mut memory) = (BTreeMap::new(), None);
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("best") => {
                    let name = words.next().context("a best time has a layout")?;
                    let own = number(words.next()).context("a best time is a number")?;
                    seconds.insert(name.to_owned(), own);
                }
                Some("memory") => memory = number(words.next()),
                _ => {}
            }
        }
        ensure!(seconds.len() == layouts.len(), "the example measured {seconds:?}");
        Ok(Found { seconds, memory: memory.context("the example told no memory")? })
    }

    /// The request of the model that is wide, guided.
    fn measured(&self, layouts: &[&str]) -> Result<Found> {
        let (side, steps) = (self.options.side.to_string(), self.options.steps.to_string());
        self.ranks(["1", &side, &steps, "5"], self.options.rounds, layouts)
    }

    /// The last layout against others, each with how many times as fast it should be.
    fn against_one(&self, layouts: &[&str], goals: &[(&str, f64)]) -> Result<()> {
        let found = self.measured(layouts)?;
        let last = layouts.last().context("there is a layout")?;
        for (other, goal) in goals {
            let times = found.seconds[*other] / found.seconds[*last];
            println!(
                "{last} is {times:.2} times as fast as {other}; the goal is {goal:.2}: {}",
                met(times >= *goal)
            );
        }
        Ok(())
    }

    fn checked(&self) -> Result<()> {
        let found = self.measured(&["u", "u-", "c", "c-"])?;
        for name in ["u", "c"] {
            let cost = found.seconds[name] / found.seconds[&format!("{name}-")] - 1.0;
            println!(
                "comparing headers costs {:.2} % of a step of {name}; the goal is 2 % at most: {}",
                100.0 * cost,
                met(cost <= 0.02)
            );
        }
        Ok(())
    }

    fn memory(&self) -> Result<()> {
        let side = self.options.side.to_string();
        // What is computed is as large at the first steps as at any.
        let of = |layout: &str| {
            Ok::<_, anyhow::Error>(self.ranks(["1", &side, "2", "5"], 1, &[layout])?.memory)
        };
        let (one, ulysses, data) = (of("1")?, of("u4")?, of("d4")?);
        let times = ulysses / one;
        println!(
            "u4 takes {times:.3} times the memory of 1; the goal is 1.15 at most: {}",
            met(times <= 1.15)
        );
        let weights = self.bytes()? / f64::from(1 << 20);
        let most = weights + 4.0 * (one - weights);
        println!(
            "d4 takes {data:.1} MiB; the weights once ({weights:.1} MiB) and four times what else one rank takes are \
             {most:.1} MiB: {}",
            met(data <= most)
        );
        Ok(())
    }

    /// Bytes of the transformer.
    fn bytes(&self) -> Result<f64> {
        let file = self.model.join("transformer/diffusion_pytorch_model.safetensors");
        Ok(std::fs::metadata(&file).with_context(|| file.display().to_string())?.len() as f64)
    }

    fn plan(&self) -> Result<()> {
        let hardware = self.folder.with_file_name("layouts").join("here.yaml");
        let moviola = self.folder.join(format!("moviola{}", std::env::consts::EXE_SUFFIX));
        let mut calibrate = Command::new(&moviola);
        calibrate.args(["bench", "--calibrate", "--ranks", "2", "--output"]).arg(&hardware);
        process::run(&mut calibrate)?;
        let [frames, side, steps, guidance] = PLANNED_REQUEST;
        let layouts: Vec<&str> = SIX.iter().map(|(name, _)| *name).collect();
        let times = self.ranks(PLANNED_REQUEST, self.options.rounds, &layouts)?;
        let mut rows = String::new();
        for (name, flags) in SIX {
            // Memory at its most is one of a process, so each layout has one.
            let memory = self.ranks(PLANNED_REQUEST, 1, &[name])?.memory;
            let mut plan = Command::new(&moviola);
            plan.arg("plan").arg(&self.model).args(flags.split(' ')).current_dir(self.root);
            plan.args(["--frames", frames, "--height", side, "--width", side, "--steps", steps]);
            plan.args(["--guidance", guidance, "--json", "--hardware"]).arg(&hardware);
            let said: serde_json::Value = serde_json::from_str(&process::output(&mut plan)?)?;
            let said = |key: &str| said["plan"][key].as_f64().context("a plan is in numbers");
            let (seconds, bytes) =
                (said("seconds_of_steps")?, said("host_bytes")? / f64::from(1 << 20));
            let off = |said: f64, measured: f64| 100.0 * (said / measured - 1.0);
            let (time_off, memory_off) = (off(seconds, times.seconds[name]), off(bytes, memory));
            rows += &format!(
                "| `{flags}` | {seconds:.2} s | {:.2} s | {time_off:+.0} % ({}) | {bytes:.0} MiB | {memory:.0} MiB | \
                 {memory_off:+.0} % ({}) |\n",
                times.seconds[name],
                met(time_off.abs() <= 20.0),
                met(memory_off.abs() <= 10.0),
            );
        }
        println!(
            "| layout | steps said | measured | goal 20 % | memory said | measured | goal 10 % |"
        );
        println!("|---|--:|--:|--:|--:|--:|--:|\n{rows}");
        Ok(())
    }
}

fn met(is_met: bool) -> &'static str {
    if is_met { "met" } else { "MISSED" }
}
