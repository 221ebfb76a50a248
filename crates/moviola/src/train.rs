//! `moviola train`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use comm::Mesh;
use journal::Page;
use recipe::{Location, Recipe};
use serve::Viewer;

use crate::changes::Changes;
use crate::failure::{Failure, Outcome};
use crate::launch;
use crate::report::Told;
use crate::reporter::TITLE;
use crate::session::Going;
use crate::voice::Voice;
use crate::{device, hub, layout, memory, report, session, signals, threads};

/// Run a recipe, or go on with a run that was stopped.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// A YAML file; see recipes/ [default: the one that --run was begun with, or the run of --resume]
    #[arg(required_unless_present_any = ["schema", "keys", "run"])]
    recipe: Option<PathBuf>,
    /// The folder of the run: checkpoints, metrics, report. A run that is there goes on
    #[arg(long, value_name = "DIR", required_unless_present_any = ["schema", "keys", "dry_run"])]
    run: Option<PathBuf>,
    /// Replace a value of the recipe; repeat it for several
    #[arg(long, value_name = "KEY.KEY=VALUE")]
    set: Vec<String>,
    /// Go on from this checkpoint, or the newest of this run, instead of the newest of --run, which may be
    /// of another run if --run has none yet
    #[arg(long, value_name = "PATH", requires = "run", conflicts_with = "dry_run")]
    resume: Option<PathBuf>,
    /// Replace a value that a run is bound to, like models.student.rate.peak, and go on; the run records it.
    /// Repeat it for several
    #[arg(long, value_name = "KEY.KEY=VALUE", requires = "run", conflicts_with = "dry_run")]
    change: Vec<String>,
    /// Print the recipe with every default filled in and the memory it needs, and stop
    #[arg(long)]
    dry_run: bool,
    /// Begin even if the run should need more memory than this machine has
    #[arg(long)]
    force: bool,
    /// Print the JSON schema of recipes, for editors, and stop
    #[arg(long)]
    schema: bool,
    /// Print every key of recipes with its meaning, as Markdown, and stop
    #[arg(long)]
    keys: bool,
    /// Where to compute
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Threads, of each rank if there are several [default: one per core, shared by the ranks]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Ranks, as threads of this process: they take equal parts of every batch and hold the parameters together (FSDP),
    /// unless `parallel` of the recipe or the degrees below say otherwise; a step is that of one rank
    /// [default: the product of the degrees, or 1]
    #[arg(long, value_name = "N")]
    ranks: Option<usize>,
    /// Replicas that work on different samples [default: parallel.data of the recipe, or all ranks that there are, as
    /// far as they share no tokens]
    #[arg(long, value_name = "D")]
    data: Option<usize>,
    /// Ranks of a replica that trade tokens for heads around attention [default: parallel.ulysses, or 1]
    #[arg(long, value_name = "U")]
    ulysses: Option<usize>,
    /// Ranks of a replica that pass keys and values around [default: parallel.ring, or 1]
    #[arg(long, value_name = "R")]
    ring: Option<usize>,
    /// Ranks of a replica that share the matrices of every network [default: parallel.tensor, or 1]
    #[arg(long, value_name = "T")]
    tensor: Option<usize>,
    /// Ranks that hold the parameters of every network together, with gradients, optimizer and average
    /// [default: parallel.shard, or all]
    #[arg(long, value_name = "S")]
    shard: Option<usize>,
    /// Show the run on a page while it trains, to this machine only, and print where; with a value, there
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, require_equals = true,
        default_missing_value = "127.0.0.1:0", requires = "run", conflicts_with = "dry_run")]
    watch: Option<SocketAddr>,
    /// How many seconds a rank waits for another
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = crate::layout::seconds)]
    timeout: u64,
}

const EXAMPLES: &str = "Examples:
  moviola train recipes/quickstart.yaml --run runs/shapes
  moviola train recipes/quickstart.yaml --run runs/short --set loop.steps=200
  moviola train recipes/quickstart.yaml --run runs/shapes --watch
  moviola train --run runs/short --set loop.steps=400
  moviola train --run runs/short --change models.student.rate.peak=5e-5
  moviola train --run runs/other --resume runs/short/checkpoints/checkpoint-00000200
  moviola train recipes/wan-lora.yaml --dry-run
  moviola train recipes/quickstart.yaml --run runs/shapes --ranks 2
  moviola train recipes/quickstart.yaml --run runs/shapes --data 2 --ulysses 2
  mpirun -n 2 moviola train recipes/quickstart.yaml --run runs/shapes";

/// Checks everything, then trains.
///
/// # Errors
/// Something is wrong with the recipe, a model, the data or the disk.
pub(crate) fn run(arguments: &Arguments, voice: Voice) -> Outcome {
    if !launch::is_first() && (arguments.schema || arguments.keys || arguments.dry_run) {
        return Ok(());
    }
    if arguments.schema {
        let schema = serde_json::to_string_pretty(&Recipe::schema()).expect("a schema is JSON");
        return Ok(crate::say(format_args!("{schema}\n"))?);
    }
    if arguments.keys {
        return Ok(crate::say(format_args!("{}", Recipe::reference()))?);
    }
    let path = recipe_of(arguments)?;
    let changed = Changes::asked(&arguments.change)?;
    let asked = [&arguments.set[..], &arguments.change, &degrees(arguments)].concat();
    let hub = hub::from_environment(voice);
    let recipe = Recipe::read_beside(&path, &asked, &hub).map_err(|err| refused(err, arguments))?;
    let recipe = recipe.begun_in(begun_in(arguments, &path)?);
    let device = device::parse(&arguments.device)?;
    let shape = recipe.mesh(layout::ranks_asked(arguments.ranks)?)?;
    if arguments.dry_run {
        return threads::within(arguments.threads, || {
            memory::tell(&recipe, shape, (&device, voice))?;
            memory::check(&recipe, shape, (&device, voice), arguments.force)
        });
    }
    threads::count(arguments.threads)?;
    memory::check(&recipe, shape, (&device, voice), arguments.force)?;
    let _shown = show(arguments, voice)?;
    let going = Going { resume: arguments.resume.clone(), changes: changed };
    let stop = signals::watch(voice)?;
    let learn = |ranks| learn(arguments, (&recipe, &path), &device, (voice, &stop), &going, ranks);
    match shape.size() {
        Some(1) => threads::within(arguments.threads, || learn(train::Ranks::alone())),
        size => {
            let (size, deadline) =
                (size.unwrap_or(usize::MAX), Duration::from_secs(arguments.timeout));
            layout::run_ranks(size, arguments.threads, deadline, |group| {
                let mesh = Mesh::of(group, shape).map_err(train::Error::from)?;
                learn(train::Ranks::over(mesh))
            })
        }
    }
}

/// The page of the run, if it is asked for: the first of several processes shows it.
fn show(arguments: &Arguments, voice: Voice) -> Outcome<Option<Viewer>> {
    let Some((listen, run)) = arguments.watch.zip(arguments.run.as_ref()) else { return Ok(None) };
    if !launch::is_first() {
        return Ok(None);
    }
    let viewer = Viewer::open(run, listen)?;
    voice.say(&format!("watch it at http://{}/", viewer.address()));
    Ok(Some(viewer))
}

/// The degrees that are asked for, as values of the recipe.
fn degrees(arguments: &Arguments) -> Vec<String> {
    let Arguments { data, ulysses, ring, tensor, shard, .. } = arguments;
    let all = [
        ("data", data),
        ("ulysses", ulysses),
        ("ring", ring),
        ("tensor", tensor),
        ("shard", shard),
    ];
    let said = all.into_iter().filter_map(|(key, degree)| Some((key, (*degree)?)));
    said.map(|(key, degree)| format!("parallel.{key}={degree}")).collect()
}

/// The recipe that was named, or the one that the run keeps, or the run that it begins from.
fn recipe_of(arguments: &Arguments) -> Outcome<PathBuf> {
    if let Some(path) = &arguments.recipe {
        return Ok(path.clone());
    }
    let resumed = arguments.resume.as_deref().map(|path| {
        // A run, or a checkpoint of one.
        let whole = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let above = whole.parent().and_then(Path::parent);
        [Some(path), above].map(|run| run.map(|run| run.join(session::RECIPE)))
    });
    let own = arguments.run.as_ref().map(|run| run.join(session::RECIPE));
    let mut all = [own].into_iter().chain(resumed.into_iter().flatten()).flatten();
    all.find(|kept| kept.exists()).ok_or_else(|| {
        Failure::refused(
            "no recipe is given, and neither --run nor --resume is of a run that keeps one; write \
             `moviola train RECIPE.yaml --run DIR`",
        )
    })
}

/// Where the run began whose recipe this is, as it keeps it.
fn begun_in(arguments: &Arguments, recipe: &Path) -> Outcome<Option<PathBuf>> {
    let of_recipe = recipe.parent().filter(|_| recipe.ends_with(session::RECIPE));
    for run in [arguments.run.as_deref(), of_recipe].into_iter().flatten() {
        if let Some(folder) = recipe::working_folder(run)? {
            return Ok(Some(folder));
        }
    }
    Ok(None)
}

/// What is wrong with a recipe, by the flags that were typed.
fn refused(error: recipe::Error, arguments: &Arguments) -> Failure {
    match error {
        recipe::Error::At { location: Location::Override(text), reason } => {
            if arguments.change.contains(&text) {
                // What is to be done about it is typed so too.
                let reason = reason.replace("--set ", "--change ");
                return Failure::Refused(format!("--change {text}: {reason}"));
            }
            let is_degree = degrees(arguments).contains(&text);
            match text.strip_prefix("parallel.").filter(|_| is_degree) {
                Some(degree) => Failure::Refused(format!("--{degree}: {reason}")),
                None => Failure::Refused(format!("--set {text}: {reason}")),
            }
        }
        recipe::Error::Several(all) => {
            let line = |own| format!("  {}", refused(own, arguments));
            let lines: Vec<String> = all.into_iter().map(line).collect();
            let count = lines.len();
            Failure::Refused(format!("{count} things are wrong:\n{}", lines.join("\n")))
        }
        error => error.into(),
    }
}

fn learn(
    arguments: &Arguments,
    (recipe, path): (&Recipe, &Path),
    device: &burn::tensor::Device,
    (voice, stop): (Voice, &Arc<AtomicBool>),
    going: &Going,
    ranks: train::Ranks,
) -> Outcome {
    let folder = arguments.run.as_ref().expect("the arguments require it");
    let (name, is_first) = (path.display().to_string(), ranks.is_first());
    let voice = if is_first { voice } else { voice.in_the_background() };
    let learnt = session::learn(recipe, folder, stop, device, (&name, voice), (going, ranks))?;
    if !is_first {
        return Ok(());
    }
    // The page of a run that was over stays what it is, unless somebody took it away.
    if learnt.was_over() && !folder.join(report::FILE).exists() {
        let told = Told { recipe, name: &name, learnt: &learnt, folder };
        report::write(report::with_run(Page::new(TITLE), &told)?, folder)?;
    }
    Ok(crate::say(format_args!("{}\n", folder.display()))?)
}
