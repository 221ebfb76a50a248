//! What a training takes: told before it begins, and refused where this machine does not have it.

use burn::tensor::Device;
use comm::{Axis, MeshShape};
use engine::machine_memory;
use recipe::{Memory, Recipe};

use crate::failure::{Failure, Outcome};
use crate::launch::Process;
use crate::voice::{Voice, bytes};
use crate::{hardware, hub};

/// Refuses a run whose ranks would take more memory than this machine has, before anything of it is allocated. What is
/// mapped from files does not count: the system brings it in as it is needed.
///
/// # Errors
/// It does not fit, and which batch would; or something keeps the run from beginning.
pub(crate) fn check(
    recipe: &Recipe,
    shape: MeshShape,
    (device, voice): (&Device, Voice),
    force: bool,
) -> Outcome {
    let Some(room) = machine_memory().filter(|_| !force) else { return Ok(()) };
    let here = Process::of_job().map_or(shape.size().unwrap_or(1), Process::on_this_host);
    fits(recipe, shape, (device, &hub::from_environment(voice)), (here, room))
}

/// Checks that a run fits into so many bytes, with so many of its ranks on this machine.
fn fits(
    recipe: &Recipe,
    shape: MeshShape,
    (device, hub): (&Device, &folder::Hub),
    (here, room): (usize, u64),
) -> Outcome {
    let needed = |recipe: &Recipe| -> Outcome<u64> {
        let own = recipe.memory(shape, device, hub)?.allocated();
        Ok(own.saturating_mul(here as u64))
    };
    let all = needed(recipe)?;
    if all <= room {
        return Ok(());
    }
    let replicas = shape.degree(Axis::Data).max(1);
    let mut smaller = recipe.clone();
    let mut fitting = None;
    while fitting.is_none() && smaller.data.batch / 2 >= replicas {
        smaller.data.batch = smaller.data.batch / 2 / replicas * replicas;
        fitting = (needed(&smaller)? <= room).then_some(smaller.data.batch);
    }
    let advice = match fitting {
        Some(batch) => {
            format!("a batch of {batch} would fit (loop.accumulation makes a step of several), ")
        }
        None => "no batch would fit; train a LoRA, fewer averages or on more machines, ".to_owned(),
    };
    let ranks = if here > 1 { format!(" on {here} ranks") } else { String::new() };
    Err(Failure::Refused(format!(
        "data.batch is {}: the run takes about {}{ranks}, and this machine has {}; {advice}or add --force to try \
         (--dry-run shows what takes how much)",
        recipe.data.batch,
        bytes(all),
        bytes(room)
    )))
}

/// Prints a recipe with every default, the memory of each rank of its run, and what a step costs.
///
/// # Errors
/// Something keeps the run from beginning.
pub(crate) fn tell(
    recipe: &Recipe,
    shape: MeshShape,
    (device, voice): (&Device, Voice),
) -> Outcome {
    // What would keep the run from beginning is said alone.
    let ranks = shape.size().unwrap_or(1);
    let memory = recipe.memory(shape, device, &hub::from_environment(voice))?;
    crate::say(format_args!("{}\n", recipe.to_yaml()?))?;
    if ranks > 1 {
        crate::say(format_args!(
            "# of each of {ranks} ranks, of which {} hold the parameters together; files that are mapped are in memory \
             once for all ranks of a machine\n",
            recipe.shard(ranks)?
        ))?;
    }
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
    for role in memory.roles.iter().filter(|role| role.activations > 0) {
        let [never, blocks] = role.activations_by_policy.map(mebibytes);
        crate::say(format_args!(
            "# activations of the {} with recompute never {never:.1}, per-block {blocks:.1}\n",
            role.role
        ))?;
        let [never, blocks] = role.lent_by_policy.map(mebibytes);
        if never + blocks > 0.0 {
            crate::say(format_args!(
                "# what others lend the {}, with gradients: never {never:.1}, per-block {blocks:.1}\n",
                role.role
            ))?;
        }
    }
    figure("average", memory.average)?;
    figure("program", memory.program)?;
    crate::say(format_args!("# all that is in memory in each phase\n"))?;
    for phase in &memory.phases {
        figure(phase.name, phase.bytes)?;
    }
    figure("peak", memory.peak())?;
    say_step(recipe, &memory, ranks)?;
    if memory.snapshot > 0 {
        crate::say(format_args!(
            "# up to {:.1} more while a checkpoint takes longer to write than a step\n",
            mebibytes(memory.snapshot)
        ))?;
    }
    Ok(())
}

/// Says what a step costs, and how long it would take here.
fn say_step(recipe: &Recipe, memory: &Memory, ranks: usize) -> Outcome {
    let (effort, hardware) = (memory.effort(), hardware::given(None)?);
    let threads = rayon::current_num_threads();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // Ranks of one machine share its cores.
    let share = (cores as f64 / (threads * ranks) as f64).min(1.0);
    let rate = kernels::measure_fma_peak(threads) * hardware.efficiency * share;
    let (computing, sending) = (effort.operations / rate, effort.sent / hardware.within.bandwidth);
    let samples = recipe.data.batch as u64 * recipe.run.accumulation;
    let of_rank = if ranks > 1 { ", for each rank" } else { "" };
    crate::say(format_args!(
        "# a step of {samples} samples{of_rank}: {:.3e} operations, about {computing:.2} s here\n",
        effort.operations
    ))?;
    if ranks > 1 {
        crate::say(format_args!(
            "# and {:.1} MiB to send, about {sending:.2} s here, where ranks are processes\n",
            effort.sent / f64::from(1 << 20)
        ))?;
    }
    Ok(())
}
