//! Runs of the server on ranks: threads of this process, or processes that were started together.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use comm::Group;
use engine::{Error, Field, Frames, Pipeline, Plan, Progress, Request};
use serde_json::Value;
use serve::{Executor, Run};

use super::processes;
use crate::failure::Failure;
use crate::job::Job;
use crate::layout::LayoutArguments;
use crate::ranked::{self, Nobody, Telling, Unseen};
use crate::voice::bytes;
use crate::{hardware, plan};

/// Runs requests on this machine, on the ranks of a layout where one is asked for.
pub(super) struct Ranked {
    layout: LayoutArguments,
    threads: Option<usize>,
    offload: bool,
    /// Bytes that a request may take.
    room: Option<u64>,
    /// The processes of the job, where there are several.
    group: Option<Group>,
    /// Why those are together no more.
    lost: Mutex<Option<String>>,
}

impl Ranked {
    /// On ranks of this process, if on several.
    pub(super) fn new(
        layout: &LayoutArguments,
        threads: Option<usize>,
        offload: bool,
        room: Option<u64>,
    ) -> Ranked {
        let layout = layout.clone();
        Ranked { layout, threads, offload, room, group: None, lost: Mutex::default() }
    }

    /// The same by the first of several processes, if there are several.
    pub(super) fn led_by(self, group: Option<Group>) -> Ranked {
        Ranked { group, ..self }
    }

    /// How ranks share a request, if they do, chosen for so many cores and so much memory.
    pub(super) fn layout(
        &self,
        pipeline: &Pipeline,
        request: &Request,
        machine: [u64; 2],
    ) -> engine::Result<Option<parallel::Plan>> {
        if !self.layout.is_given() {
            return Ok(None);
        }
        let work = pipeline.work(request)?;
        let hardware = hardware::of(&work, machine).map_err(engine_error)?;
        let plan = self.layout.fit(&work, &hardware).map_err(engine_error)?;
        plan.map(Some).map_err(|refusal| unfit(&refusal))
    }
}

impl Executor for Ranked {
    fn check(&self, pipeline: &Pipeline, request: &Request, plan: &Plan) -> engine::Result<()> {
        let lacking =
            self.room.and_then(|room| Some((room, pipeline.shortage(plan, request, room)?)));
        if let Some((room, shortage)) = lacking {
            let fitting =
                shortage.fitting.map(|[height, width]| format!("; {width}x{height} would fit"));
            let (needed, room) = (bytes(shortage.needed), bytes(room));
            let fitting = fitting.unwrap_or_default();
            let reason = format!(
                "it takes about {needed} beside the weights, and the server has {room}{fitting}"
            );
            return Err(Error::request(Field::Height, reason));
        }
        self.layout(pipeline, request, hardware::machine()).map(drop)
    }

    fn carry_out(
        &self,
        pipeline: &mut Pipeline,
        run: &Run<'_>,
        progress: &mut (dyn Progress + Send),
        frames: &mut (dyn Frames + Send),
    ) -> engine::Result<()> {
        let machine = hardware::machine();
        let Some(layout) = self.layout(pipeline, run.request, machine)? else {
            return pipeline.carry_out(run.plan, progress, frames).map(drop);
        };
        if let Some(group) = &self.group {
            let made = processes::make(group, pipeline, (run, &layout, machine), progress, frames);
            return made.unwrap_or_else(|lost| {
                let reason = format!("the processes are together no more: {lost}");
                *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
                Err(lost.into())
            });
        }
        let plan = run.plan;
        if !self.offload {
            pipeline.open_all()?;
        }
        let watched = Mutex::new((progress, frames));
        let stop = Arc::new(AtomicBool::new(false));
        let body = |rank, own: &mut Pipeline| match rank {
            0 => {
                let mut watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
                let (progress, frames) = &mut *watched;
                let mut telling = Telling { own: *progress, stop: Arc::clone(&stop) };
                Ok(own.carry_out(plan, &mut telling, *frames).map(drop)?)
            }
            _ => Ok(own.carry_out(plan, &mut Unseen(Arc::clone(&stop)), &mut Nobody).map(drop)?),
        };
        let layout = (&self.layout, &layout);
        let made = ranked::on_ranks(&Job::Alone, layout, pipeline, self.threads, body);
        made.map_err(|failure| match stop.load(Ordering::Relaxed) {
            // Whatever a rank says that others left alone.
            true => Error::Interrupted,
            false => engine_error(failure),
        })
    }

    fn lost(&self) -> Option<String> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn layouts(
        &self,
        pipeline: &Pipeline,
        request: &Request,
        ranks: usize,
    ) -> engine::Result<Value> {
        // What is wrong with the request is told by its field.
        pipeline.work(request)?;
        let name = pipeline.description().family.title;
        plan::weighed(name, pipeline, request, ranks).map_err(engine_error)
    }
}

/// Why a request does not fit the layout of the server, which no client has chosen: by the field that would have to be
/// another.
fn unfit(parallel::Refusal { axis, reason }: &parallel::Refusal) -> Error {
    let (field, remedy) = match &**axis {
        "cfg" => (Field::Guidance, "guide it by another scale, or not at all"),
        "data" => (Field::Count, "ask for another number"),
        _ => (Field::Height, "choose a larger size or more frames"),
    };
    let reason = reason.replace("--guidance", "guidance_scale");
    let part = axis.replace('-', " ");
    Error::request(field, format!("the server's layout ({part}) does not fit: {reason}; {remedy}"))
}

/// What the server says of a failure.
fn engine_error(failure: Failure) -> Error {
    match failure {
        Failure::Interrupted(_) => Error::Interrupted,
        other => Error::Unknown(other.to_string()),
    }
}
