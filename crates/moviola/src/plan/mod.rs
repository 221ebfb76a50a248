//! `moviola plan`: what a layout costs, before anything is loaded.

mod report;
mod shape_file;

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use comm::Axis;
use engine::{Given, Media, Pipeline, Request, Setup};
use parallel::Plan;
use parallel::cost::{Candidate, Work, candidates};
use serde_json::Value;

use self::report::Report;
use self::shape_file::Instead;
use crate::failure::{Failure, Outcome};
use crate::job::Job;
use crate::layout::LayoutArguments;
use crate::voice::Voice;
use crate::{hardware, hub, say};

/// What to weigh.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A diffusers folder, a hub id `org/name[@revision]`, or a .yaml file with the sizes of a model
    #[arg(value_name = "MODEL|SHAPE.yaml")]
    model: String,
    #[command(flatten)]
    layout: LayoutArguments,
    /// A file that says what ranks run on [default: this kind of processor]
    #[arg(long, value_name = "FILE.yaml")]
    hardware: Option<PathBuf>,
    /// Print data instead of tables
    #[arg(long)]
    json: bool,
    /// Frames [default: the model's]
    #[arg(long, value_name = "N")]
    frames: Option<usize>,
    /// Height in pixels [default: the model's]
    #[arg(long, value_name = "H")]
    height: Option<usize>,
    /// Width in pixels [default: the model's]
    #[arg(long, value_name = "W")]
    width: Option<usize>,
    /// Denoising steps [default: the model's]
    #[arg(long, value_name = "N")]
    steps: Option<usize>,
    /// Guidance scale; above 1 a step predicts twice [default: the model's]
    #[arg(long, value_name = "G")]
    guidance: Option<f64>,
    /// Samples to make
    #[arg(long, value_name = "N", default_value_t = 1)]
    count: usize,
}

/// Weighs and tells.
///
/// # Errors
/// The model or a file cannot be read, or the layout cannot be.
pub(crate) fn run(arguments: &Arguments, voice: Voice) -> Outcome {
    let hardware = hardware::given(arguments.hardware.as_deref())?;
    let path = Path::new(&arguments.model);
    let is_shape = path.extension().is_some_and(|end| end == "yaml" || end == "yml");
    let (name, work) = match is_shape {
        true => shape_file::read(path, arguments.instead()?)?,
        false => arguments.of_folder(voice)?,
    };
    let ranks = arguments.layout.rank_count()?;
    let others = candidates(ranks, &work, &hardware);
    let plan = arguments.layout.plan(&work, &hardware);
    let plan = plan.map_err(|failure| arguments.with_nearest(failure, &others))?;
    let chosen = Candidate::of(plan, &work, &hardware);
    let report = Report { name: &name, work: &work, hardware: &hardware, chosen, others };
    match arguments.json {
        true => Ok(say(format_args!("{:#}\n", report.json()))?),
        false => Ok(say(format_args!("{}", report.text()))?),
    }
}

/// What all layouts of so many ranks of this machine would take for a request, as data.
///
/// # Errors
/// The request does not fit the model, or no layout does.
pub(crate) fn weighed(
    name: &str,
    pipeline: &Pipeline,
    request: &Request,
    ranks: usize,
) -> Outcome<Value> {
    let work = pipeline.work(request)?;
    let hardware = hardware::here(&work, &Job::Alone)?;
    let others = candidates(ranks, &work, &hardware);
    let plan = Plan::auto(ranks, &work, &hardware);
    let plan = plan.map_err(|refusal| Failure::Refused(refusal.reason))?;
    let chosen = Candidate::of(plan, &work, &hardware);
    Ok(Report { name, work: &work, hardware: &hardware, chosen, others }.json())
}

impl Arguments {
    /// What is said instead of a shape file's own numbers.
    fn instead(&self) -> Outcome<Instead> {
        if self.frames.or(self.height).or(self.width).is_some() {
            let reason = "--frames, --height, --width: a shape file says how many tokens there are; change \
                          its `streams`, or give a model's folder";
            return Err(Failure::refused(reason));
        }
        let branches = self.guidance.map(|scale| if scale > 1.0 { 2 } else { 1 });
        let samples = (self.count > 1).then_some(self.count);
        Ok(Instead { steps: self.steps, branches, samples })
    }

    /// The work of a model's folder.
    fn of_folder(&self, voice: Voice) -> Outcome<(String, Work)> {
        let model = folder::locate(&self.model, &hub::from_environment(voice))?;
        let pipeline = Pipeline::open(&model, &Setup::new(&Device::flex()))?;
        let picture = pipeline.needed_picture(self.height, self.width)?;
        let request = Request {
            prompts: vec!["a plan".to_owned()],
            given: vec![Given { image: picture.map(Media::Frames), ..Given::default() }],
            frames: self.frames,
            height: self.height,
            width: self.width,
            steps: self.steps,
            guidance: self.guidance,
            count: self.count,
            ..Request::default()
        };
        let name = model.file_name().map_or(self.model.clone(), |name| name.display().to_string());
        Ok((name, pipeline.work(&request)?))
    }

    /// Why a layout cannot be, with the legal one that is nearest to it.
    fn with_nearest(&self, failure: Failure, others: &[Candidate]) -> Failure {
        let asked = self.layout.mesh();
        let far = |own: &&Candidate| {
            let mesh = own.plan.layout().mesh;
            let off = |axis| {
                let ratio = asked.degree(axis).max(1) as f64 / mesh.degree(axis) as f64;
                ratio.ln().abs()
            };
            (Axis::ALL.into_iter().map(off).sum::<f64>() * 1e6) as u64
        };
        match (failure, others.iter().min_by_key(far)) {
            (Failure::Refused(reason), Some(near)) if !self.layout.is_auto() => {
                let ranks = near.plan.layout().ranks;
                let near = report::flags(&near.plan);
                Failure::Refused(format!("{reason}; the nearest layout of {ranks} ranks is {near}"))
            }
            (failure, _) => failure,
        }
    }
}
