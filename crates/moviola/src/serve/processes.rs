//! A server of several processes: the first one has the port, the jobs and what is made; the others wait for runs, for as
//! long as it takes, and make them together with it.
//!
//! A run is told by its text and the bytes of what is given, because the others may have no disk in common with the
//! first. It is made in a world of its own ([`Group::apart`]), so that one which fails leaves the processes together for
//! the next.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use comm::{Group, Parcel, Values};
use data::media::Frame;
use engine::{Error, Frames, Pipeline, Plan, Progress};
use serde::{Deserialize, Serialize};
use serve::{Follower, Model, Order, Run};

use super::ranks::Ranked;
use crate::crew::LONGEST;
use crate::failure::{Failure, Outcome};
use crate::ranked::Nobody;
use crate::signals;
use crate::voice::Voice;

/// How long processes wait for something to do: without an end, as far as they are concerned.
pub(super) const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// How often a process looks whether it should stop.
const GLANCE: Duration = Duration::from_millis(100);

/// What messages and waits are about.
const SERVED: &str = "what is served";
const RUN: &str = "a run";
const END: &str = "the end of a run";

fn failed(error: comm::Error) -> Failure {
    Failure::Rank(error.to_string())
}

/// Refuses processes that serve other things than the first one.
///
/// # Errors
/// They do, or one does not come.
pub(super) fn agree(group: &Group, served: &[(String, String)]) -> Outcome {
    let group = group.named(SERVED);
    if group.rank() == 0 {
        let parcel = |(what, own): &(String, String)| Parcel::of_bytes(what, own.as_bytes());
        let parcels: Vec<Parcel> = served.iter().map(parcel).collect();
        (1..group.size())
            .try_for_each(|rank| group.send_parcels(rank, parcels.clone()))
            .map_err(failed)?;
        return group.barrier().map_err(failed);
    }
    let firsts = group.recv_parcels(0).map_err(failed)?;
    let text = |parcel: &Parcel| Some((parcel.name.to_string(), bytes(parcel)?));
    let firsts: Vec<Option<(String, String)>> = firsts
        .iter()
        .map(|own| text(own).map(|(what, own)| (what, String::from_utf8_lossy(&own).into_owned())))
        .collect();
    for at in 0..served.len().max(firsts.len()) {
        let (own, first) = (served.get(at), firsts.get(at).and_then(Option::as_ref));
        if own == first {
            continue;
        }
        let what = own.or(first).map_or("a message", |(what, _)| what);
        let told = |own: Option<&(String, String)>| {
            own.map_or("nothing".to_owned(), |(_, own)| format!("`{own}`"))
        };
        return Err(Failure::Refused(format!(
            "{what}: this process has {} and the first one {}; give all processes the same arguments and files",
            told(own),
            told(first)
        )));
    }
    group.barrier().map_err(failed)
}

/// What is told of a run beside what clients asked for.
#[derive(Serialize, Deserialize)]
struct Told {
    order: String,
    /// The cores and the memory that layouts are chosen for.
    machine: [u64; 2],
    /// What the run comes to on the first process.
    comes_to: String,
}

/// What all processes must find in a run.
fn comes_to(plan: &Plan, layout: &parallel::Plan) -> String {
    let used = plan.used();
    format!(
        "{} x {:?} as {:?}, {} of {} steps, guided by {:?}, {:?} tokens, sound {}, on {:?}",
        used.samples,
        used.size,
        used.delivered,
        used.timesteps.len(),
        used.steps,
        used.guidance,
        used.max_tokens,
        used.sounds,
        layout.layout()
    )
}

/// Serves while the others help, and lets them go. What one of them is asked, by a signal, is asked of all.
///
/// # Errors
/// Serving fails, or another process is gone.
pub(super) fn lead(
    group: &Group,
    stop: &Arc<AtomicBool>,
    serve: impl FnOnce() -> Outcome,
) -> Outcome {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                if group.is_called_off() {
                    stop.store(true, Ordering::Relaxed);
                }
                thread::sleep(GLANCE);
            }
        });
        let _over = Over(&is_over);
        serve()
    })?;
    let go = |rank| group.named(RUN).send_parcels(rank, Vec::new());
    (1..group.size()).try_for_each(go).map_err(failed)
}

/// Says that something is over, however it ended.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Makes a run on all processes. What it comes to is the inner result.
///
/// # Errors
/// Another process is gone, and nothing more can be made.
pub(super) fn make(
    group: &Group,
    pipeline: &mut Pipeline,
    (run, layout, machine): (&Run<'_>, &parallel::Plan, [u64; 2]),
    progress: &mut (dyn Progress + Send),
    frames: &mut (dyn Frames + Send),
) -> comm::Result<engine::Result<()>> {
    let parcels = match parcels(run, layout, machine) {
        Ok(parcels) => parcels,
        Err(error) => return Ok(Err(error)),
    };
    for rank in 1..group.size() {
        group.named(RUN).send_parcels(rank, parcels.clone())?;
    }
    drop(parcels);
    let is_stopped = Cell::new(false);
    let made = group.apart(END, |world| {
        let mesh = layout.mesh(world.clone())?;
        let mut leading = Leading { own: progress, world, is_stopped: &is_stopped };
        let carry_out = |own: &mut Pipeline| own.carry_out(run.plan, &mut leading, frames);
        pipeline.as_rank(mesh, layout, carry_out).map(drop)
    })?;
    Ok(match made {
        // Whatever this process says of others that have stopped before it.
        Err(_) if is_stopped.get() => Err(Error::Interrupted),
        made => made,
    })
}

/// A run as it is sent.
fn parcels(
    run: &Run<'_>,
    layout: &parallel::Plan,
    machine: [u64; 2],
) -> engine::Result<Vec<Parcel>> {
    let Order { text, files } = run.order()?;
    let told = Told { order: text, machine, comes_to: comes_to(run.plan, layout) };
    let told = serde_json::to_vec(&told).map_err(|error| Error::Unknown(error.to_string()))?;
    let files = files.into_iter().map(|file| Parcel::of_bytes("given", file));
    Ok(std::iter::once(Parcel::of_bytes("told", told)).chain(files).collect())
}

/// What was sent of a run.
fn received(parcels: Vec<Parcel>) -> Option<(Told, Order)> {
    let mut parcels = parcels.iter().map(bytes);
    let told = parcels.next()??;
    let Ok(mut told) = serde_json::from_slice::<Told>(&told) else { return None };
    let order =
        Order { text: std::mem::take(&mut told.order), files: parcels.collect::<Option<_>>()? };
    Some((told, order))
}

fn bytes(parcel: &Parcel) -> Option<Vec<u8>> {
    match &parcel.values {
        Values::Bytes(bytes) => Some(bytes.to_vec()),
        Values::Floats(_) | Values::Integers(_) | Values::Nothing => None,
    }
}

/// Makes what the first process says, until it says that there is nothing more to make.
///
/// # Errors
/// The first process is gone, or says what cannot be read.
pub(super) fn help(
    group: &Group,
    (models, loras): (Vec<Model>, Option<std::path::PathBuf>),
    executor: &Ranked,
    voice: Voice,
) -> Outcome {
    let stop = signals::watch(voice)?;
    let mut follower = Follower::new(models, loras, &std::env::temp_dir().join("moviola-given"));
    let pass_on = || {
        // The first process decides when all stop.
        if stop.load(Ordering::Relaxed) && !group.is_called_off() {
            group.call_off();
        }
    };
    loop {
        let parcels = group.named(RUN).recv_parcels_while(0, &mut || pass_on()).map_err(failed)?;
        if parcels.is_empty() {
            return Ok(());
        }
        let Some((told, order)) = received(parcels) else {
            let reason = "the first process tells of a run in words that cannot be read; are all of one version?";
            return Err(Failure::refused(reason));
        };
        let made = group.apart(END, |world| {
            let preparing = world.busy("preparing a run", LONGEST);
            follower.follow(&order, |pipeline, request, plan| {
                let layout = executor.layout(pipeline, request, told.machine)?;
                let layout = layout.expect("processes are a layout");
                let own = comes_to(plan, &layout);
                if own != told.comes_to {
                    let first = &told.comes_to;
                    let reason = format!("it comes to {own} here, and to {first} on rank 0");
                    return Err(Error::Unknown(reason));
                }
                drop(preparing);
                let mesh = layout.mesh(world.clone())?;
                let mut following = Following { world, pass_on: &pass_on };
                let carry_out =
                    |own: &mut Pipeline| own.carry_out(plan, &mut following, &mut Nobody);
                pipeline.as_rank(mesh, &layout, carry_out).map(drop)
            })
        });
        match made.map_err(failed)? {
            // The first process tells what others did.
            Ok(()) | Err(Error::Interrupted | Error::Ranks(_)) => {}
            Err(error) => voice.warn(&format!("rank {}: a run failed: {error}", group.rank())),
        }
    }
}

/// Watches as the server does, and tells the others when a run is to be given up.
struct Leading<'a> {
    own: &'a mut dyn Progress,
    world: Group,
    is_stopped: &'a Cell<bool>,
}

impl Progress for Leading<'_> {
    fn begin(&mut self, stage: &str, total: usize) {
        self.own.begin(stage, total);
    }

    fn reach(&mut self, done: usize) {
        self.own.reach(done);
        // Replicas work by themselves, and hear of it only so.
        self.interrupted();
    }

    fn interrupted(&self) -> bool {
        let is_so = self.own.interrupted();
        if is_so && !self.is_stopped.replace(true) {
            self.world.call_off();
        }
        is_so
    }

    fn wants_look(&self, step: usize, steps: usize) -> bool {
        self.own.wants_look(step, steps)
    }

    fn look(&mut self, frame: Frame) {
        self.own.look(frame);
    }
}

/// Watches unseen, and stops when the first process does.
struct Following<'a> {
    world: Group,
    pass_on: &'a dyn Fn(),
}

impl Progress for Following<'_> {
    fn begin(&mut self, _: &str, _: usize) {}

    fn reach(&mut self, _: usize) {}

    fn interrupted(&self) -> bool {
        (self.pass_on)();
        self.world.is_called_off()
    }
}
