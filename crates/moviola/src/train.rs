//! `moviola train`.

use std::path::PathBuf;

use journal::Page;
use recipe::Recipe;

use crate::failure::Outcome;
use crate::voice::Voice;
use crate::{device, hub, report, session, signals, threads};

/// Run a recipe, or go on with a run that was stopped.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// A YAML file; see recipes/
    #[arg(required_unless_present = "schema")]
    recipe: Option<PathBuf>,
    /// The folder of the run: checkpoints, metrics, report. A run that is there goes on
    #[arg(long, value_name = "DIR", required_unless_present_any = ["schema", "dry_run"])]
    run: Option<PathBuf>,
    /// Replace a value of the recipe; repeat it for several
    #[arg(long, value_name = "KEY.KEY=VALUE")]
    set: Vec<String>,
    /// Print the recipe with every default filled in and the memory it needs, and stop
    #[arg(long)]
    dry_run: bool,
    /// Print the JSON schema of recipes, for editors, and stop
    #[arg(long)]
    schema: bool,
    /// Where to compute
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Threads [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

const EXAMPLES: &str = "Examples:
  moviola train recipes/quickstart.yaml --run runs/shapes
  moviola train recipes/quickstart.yaml --run runs/short --set loop.steps=200
  moviola train recipes/wan-lora.yaml --dry-run";

/// Checks everything, then trains.
///
/// # Errors
/// Something is wrong with the recipe, a model, the data or the disk.
pub(crate) fn run(arguments: &Arguments, voice: Voice) -> Outcome {
    if arguments.schema {
        let schema = serde_json::to_string_pretty(&Recipe::schema()).expect("a schema is JSON");
        return Ok(crate::say(format_args!("{schema}\n"))?);
    }
    let path = arguments.recipe.as_ref().expect("the arguments require it");
    let recipe = Recipe::read(path, &arguments.set)?;
    let device = device::parse(&arguments.device)?;
    threads::within(arguments.threads, || match arguments.dry_run {
        true => dry_run(&recipe, &device),
        false => learn(arguments, &recipe, device, voice),
    })
}

fn learn(
    arguments: &Arguments,
    recipe: &Recipe,
    device: burn::tensor::Device,
    voice: Voice,
) -> Outcome {
    let folder = arguments.run.as_ref().expect("the arguments require it");
    let (stop, again) = (signals::watch()?, crate::command_line());
    let learnt = session::learn(recipe, folder, &stop, &device, (&again, voice))?;
    let page = report::with_run(Page::new("A training run"), recipe, &learnt, folder)?;
    report::write(page, folder)?;
    Ok(crate::say(format_args!("{}\n", folder.display()))?)
}

fn dry_run(recipe: &Recipe, device: &burn::tensor::Device) -> Outcome {
    crate::say(format_args!("{}\n", recipe.to_yaml()?))?;
    let memory = recipe.memory(device, &hub::from_environment())?;
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let line = |name: &str, [a, b, c, d]: [String; 4]| {
        crate::say(format_args!("# {name:<16}{a:>10}{b:>10}{c:>10}{d:>12}\n"))
    };
    let heads = ["weights", "gradients", "optimizer", "activations"];
    line("memory in MiB", heads.map(str::to_owned))?;
    for role in &memory.roles {
        let parts = [role.weights, role.gradients, role.optimizer, role.activations];
        line(&role.role, parts.map(|part| format!("{:.1}", mebibytes(part))))?;
    }
    let figure = |name: &str, bytes: u64| {
        crate::say(format_args!("# {name:<16}{:>10.1}\n", mebibytes(bytes)))
    };
    figure("average", memory.average)?;
    figure("program", memory.program)?;
    crate::say(format_args!("# all that is in memory in each phase\n"))?;
    for phase in &memory.phases {
        figure(phase.name, phase.bytes)?;
    }
    figure("peak", memory.peak())?;
    if memory.snapshot > 0 {
        crate::say(format_args!(
            "# up to {:.1} more while a checkpoint takes longer to write than a step\n",
            mebibytes(memory.snapshot)
        ))?;
    }
    Ok(())
}
