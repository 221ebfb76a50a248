//! `moviola train`.

use std::path::PathBuf;

use journal::Page;
use recipe::Recipe;

use crate::failure::Outcome;
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
pub(crate) fn run(arguments: &Arguments) -> Outcome {
    if arguments.schema {
        let schema = serde_json::to_string_pretty(&Recipe::schema()).expect("a schema is JSON");
        return Ok(crate::say(format_args!("{schema}\n"))?);
    }
    let path = arguments.recipe.as_ref().expect("the arguments require it");
    let recipe = Recipe::read(path, &arguments.set)?;
    let device = device::parse(&arguments.device)?;
    threads::within(arguments.threads, || match arguments.dry_run {
        true => dry_run(&recipe, &device),
        false => learn(arguments, &recipe, device),
    })
}

fn learn(arguments: &Arguments, recipe: &Recipe, device: burn::tensor::Device) -> Outcome {
    let folder = arguments.run.as_ref().expect("the arguments require it");
    let learnt = session::learn(recipe, folder, &signals::watch()?, &device, "the same command")?;
    let page = report::with_run(Page::new("A training run"), recipe, &learnt, folder)?;
    report::write(page, folder)?;
    Ok(crate::say(format_args!("{}\n", folder.display()))?)
}

fn dry_run(recipe: &Recipe, device: &burn::tensor::Device) -> Outcome {
    crate::say(format_args!("{}\n", recipe.to_yaml()?))?;
    let gibibytes = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    crate::say(format_args!("# memory in GiB: weights, gradients, optimizer, activations\n"))?;
    for role in recipe.memory(device, &hub::from_environment())? {
        let parts = [role.weights, role.gradients, role.optimizer, role.activations];
        let total = gibibytes(parts.iter().sum());
        let [weights, gradients, optimizer, activations] = parts.map(gibibytes);
        crate::say(format_args!(
            "# {:<8} {total:.3} = {weights:.3} + {gradients:.3} + {optimizer:.3} + {activations:.3}\n",
            role.role
        ))?;
    }
    Ok(())
}
