//! `moviola serve`.

mod processes;
mod ranks;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use engine::machine_memory;
use serve::{Keys, Limits, Model, Retention, Server, Settings};

use self::ranks::Ranked;
use crate::crew::LONGEST;
use crate::failure::{Failure, Outcome};
use crate::generate::{self, Dtype, Quantize};
use crate::job::Job;
use crate::layout::LayoutArguments;
use crate::voice::Voice;
use crate::{hub, signals};

/// Where `--help` lists what bounds requests.
const LIMITS: &str = "Limits";

/// Serve models.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// A diffusers folder, or a hub id `org/name[@revision]`; repeat it for several. The first is meant where a request
    /// names none. A folder is called by its last name, unless another is given
    #[arg(long, value_name = "[NAME=]DIR|ORG/NAME", required = true)]
    model: Vec<String>,
    /// Where to listen; port 0 takes a free one, and the address is printed
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8000")]
    listen: SocketAddr,
    /// The folder of the queue and of what was made
    #[arg(long, value_name = "DIR", default_value = "moviola-jobs")]
    jobs: PathBuf,
    /// A folder of LoRAs, which requests name by their files' names
    #[arg(long, value_name = "DIR")]
    loras: Option<PathBuf>,
    /// A folder of training runs, which the page shows
    #[arg(long, value_name = "DIR")]
    runs: Option<PathBuf>,
    /// A file with a key per line, as KEY or CLIENT:KEY; who has none is refused
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// Listen on an address that others can reach, without keys
    #[arg(long)]
    open_to_all: bool,
    /// An origin whose pages may use the API from a browser, its scheme and host; repeat it for several
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    /// f32: weights as they are stored; bf16: half the bytes. Sums are f32 in both
    #[arg(long, value_enum, default_value_t = Dtype::F32)]
    dtype: Dtype,
    /// Hold the matrices of the transformer's blocks in bytes, and multiply in bytes
    #[arg(long, value_enum, value_name = "KIND")]
    quantize: Option<Quantize>,
    /// Where to compute
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Threads, of each rank where there are several [default: one per core in all]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    #[command(flatten)]
    layout: LayoutArguments,
    /// Keep one component in memory at a time
    #[arg(long)]
    offload: bool,
    /// Take requests even if they should need more memory than this machine has
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    limits: LimitArguments,
}

/// Bounds of requests.
#[derive(clap::Args)]
struct LimitArguments {
    /// Jobs that wait at the most
    #[arg(long, help_heading = LIMITS, value_name = "N", default_value_t = 64)]
    queue: usize,
    /// Connections at a time
    #[arg(long, help_heading = LIMITS, value_name = "N", default_value_t = 256)]
    connections: usize,
    /// Megabytes of a request
    #[arg(long, help_heading = LIMITS, value_name = "MB", default_value_t = 64)]
    body_mb: usize,
    /// Bytes of a prompt
    #[arg(long, help_heading = LIMITS, value_name = "N", default_value_t = 32_000)]
    prompt_bytes: usize,
    /// Pixels of all frames times steps of a request [default: 257 frames of 1280 x 720 in 100 steps]
    #[arg(long, help_heading = LIMITS, value_name = "N")]
    pixel_steps: Option<u64>,
    /// Pixels of all frames that a request gives beside its prompt [default: 192 frames of 1920 x 1080]
    #[arg(long, help_heading = LIMITS, value_name = "N")]
    given_pixels: Option<u64>,
    /// Seconds that a connection may be idle
    #[arg(long, help_heading = LIMITS, value_name = "SECONDS", default_value_t = 75)]
    idle: u64,
    /// Seconds that a body may take
    #[arg(long, help_heading = LIMITS, value_name = "SECONDS", default_value_t = 60)]
    receive: u64,
    /// Seconds that a stage of a job may take
    #[arg(long, help_heading = LIMITS, value_name = "SECONDS", default_value_t = 21_600)]
    stage: u64,
    /// Hours that finished jobs are kept
    #[arg(long, help_heading = LIMITS, value_name = "HOURS", default_value_t = 168.0)]
    keep_hours: f64,
    /// Gigabytes of finished jobs that are kept; the oldest go first
    #[arg(long, help_heading = LIMITS, value_name = "GB", default_value_t = 20.0)]
    keep_gb: f64,
}

const EXAMPLES: &str = "Examples:
  moviola serve --model quickstart/model
  moviola serve --model Wan-AI/Wan2.1-T2V-1.3B-Diffusers --dtype bf16 --loras loras --runs runs
  moviola serve --model wan=models/wan --listen 0.0.0.0:8000 --keys keys.txt --cfg 2
  mpirun -n 2 moviola serve --model wan=models/wan --ulysses 2";

/// Opens everything, then serves until it is told to stop.
///
/// # Errors
/// A model, a file or the address cannot be used.
pub(crate) fn run(arguments: &Arguments, voice: Voice) -> Outcome {
    let timeout = arguments.layout.timeout();
    Job::run(arguments.threads, timeout, |job| work(arguments, job, voice))
}

/// Serves; of several processes the first one does, and the others make runs together with it.
fn work(arguments: &Arguments, job: &Job, voice: Voice) -> Outcome {
    let group = match job {
        Job::Alone => None,
        Job::Process(group) => Some(group),
    };
    let opening = group.map(|group| group.busy("opening models", LONGEST));
    let models = arguments.models(voice)?;
    let room = machine_memory().filter(|_| !arguments.force);
    let executor = Ranked::new(&arguments.layout, arguments.threads, arguments.offload, room);
    if let Some(group) = group.filter(|group| group.rank() > 0) {
        let loras = arguments.folder("--loras", arguments.loras.as_ref())?;
        let served = arguments.served(&models)?;
        drop(opening);
        processes::agree(group, &served)?;
        return processes::help(group, (models, loras), &executor, voice);
    }
    let names: Vec<String> = models.iter().map(|model| model.id().to_owned()).collect();
    let served = group.map(|_| arguments.served(&models)).transpose()?;
    let executor = Box::new(executor.led_by(group.cloned()));
    let server = Server::open(arguments.settings()?, models, executor)?;
    let address = server.address()?;
    drop(opening);
    // Whoever waits for a run waits for this.
    let _waiting = group.map(|group| group.busy("waiting for requests", processes::FOREVER));
    if let Some((group, served)) = group.zip(served) {
        processes::agree(group, &served)?;
    }
    let stop = signals::watch(voice)?;
    voice.say(&format!("serving {}; Ctrl-C stops", names.join(", ")));
    crate::say(format_args!("http://{address}/\n"))?;
    match group {
        None => Ok(server.run(&stop)?),
        Some(group) => processes::lead(group, &stop, || Ok(server.run(&stop)?)),
    }
}

/// The name of a model and where it is: the last name of a folder, a hub id as it is.
fn named(asked: &str) -> (String, &str) {
    if let Some((name, source)) = asked.split_once('=') {
        return (name.to_owned(), source);
    }
    let path = PathBuf::from(asked);
    let last = path.canonicalize().ok().filter(|path| path.is_dir());
    let last = last.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    (last.unwrap_or_else(|| asked.to_owned()), asked)
}

impl Arguments {
    /// The models, opened.
    fn models(&self, voice: Voice) -> Outcome<Vec<Model>> {
        let setup = generate::setup(&self.device, self.dtype, self.quantize, self.offload)?;
        let open = |asked: &String| -> Outcome<Model> {
            let (name, source) = named(asked);
            let path = folder::locate(source, &hub::from_environment(voice))?;
            voice.detail(&format!("model {name}: {}", path.display()));
            Ok(Model::open(&name, &path, &setup)?.with_command(self.command(source)))
        };
        self.model.iter().map(open).collect()
    }

    /// What all processes of a job must have alike, each with what it is.
    fn served(&self, models: &[Model]) -> Outcome<Vec<(String, String)>> {
        let mut words = self.layout.words();
        words.push(format!("--device {} --dtype {:?}", self.device, self.dtype));
        words.extend(self.quantize.map(|kind| format!("--quantize {kind:?}")));
        words.extend(self.offload.then(|| "--offload".to_owned()));
        words.extend(self.loras.is_some().then(|| "--loras".to_owned()));
        let mut served = vec![
            ("the version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
            ("the arguments".to_owned(), words.join(" ")),
        ];
        for (at, model) in models.iter().enumerate() {
            served.push((format!("the name of model {at}"), model.id().to_owned()));
            served.push((format!("the files of model `{}`", model.id()), model.fingerprint()?));
        }
        Ok(served)
    }

    /// A folder that was given.
    fn folder(&self, flag: &str, given: Option<&PathBuf>) -> Outcome<Option<PathBuf>> {
        match given.filter(|folder| !folder.is_dir()) {
            None => Ok(given.cloned()),
            Some(folder) => {
                Err(Failure::Refused(format!("{flag}: there is no folder {}", folder.display())))
            }
        }
    }

    /// What `generate` is told to open a model as it is served.
    fn command(&self, source: &str) -> Vec<String> {
        let place = PathBuf::from(source).canonicalize();
        let place = place.map_or(source.to_owned(), |path| path.display().to_string());
        let mut words = vec!["--model".to_owned(), place];
        if self.dtype == Dtype::Bf16 {
            words.extend(["--dtype", "bf16"].map(str::to_owned));
        }
        if self.quantize.is_some() {
            words.extend(["--quantize", "int8"].map(str::to_owned));
        }
        words.extend(self.layout.words());
        words
    }

    fn settings(&self) -> Outcome<Settings> {
        let own = &self.limits;
        let counts = [
            ("--queue", own.queue),
            ("--connections", own.connections),
            ("--body-mb", own.body_mb),
        ];
        if let Some((flag, count)) =
            counts.into_iter().find(|(_, count)| !(1..=1 << 20).contains(count))
        {
            return Err(Failure::Refused(format!(
                "{flag}: it is {count}; choose 1 to {}",
                1 << 20
            )));
        }
        let seconds = [("--idle", own.idle), ("--receive", own.receive), ("--stage", own.stage)];
        if let Some((flag, _)) = seconds.into_iter().find(|(_, seconds)| *seconds == 0) {
            return Err(Failure::Refused(format!("{flag}: it is 0; choose 1 or more seconds")));
        }
        let kept = [("--keep-hours", own.keep_hours), ("--keep-gb", own.keep_gb)];
        if let Some((flag, kept)) =
            kept.into_iter().find(|(_, kept)| !(*kept >= 0.0 && *kept < 1e9))
        {
            return Err(Failure::Refused(format!("{flag}: it is {kept}; choose 0 or more")));
        }
        let usual = Limits::default();
        let limits = Limits {
            body: own.body_mb << 20,
            prompt: own.prompt_bytes,
            work: own.pixel_steps.unwrap_or(usual.work),
            given: own.given_pixels.unwrap_or(usual.given),
            queue: own.queue,
            connections: own.connections,
            idle: Duration::from_secs(own.idle),
            receive: Duration::from_secs(own.receive),
            stage: Duration::from_secs(own.stage),
        };
        let age = Duration::from_secs_f64(own.keep_hours * 3600.0);
        let retention = Retention { age, bytes: (own.keep_gb * 1e9) as u64 };
        Ok(Settings {
            folder: self.jobs.clone(),
            listen: self.listen,
            open_to_all: self.open_to_all,
            keys: self.keys.as_deref().map(Keys::read).transpose()?,
            loras: self.folder("--loras", self.loras.as_ref())?,
            runs: self.folder("--runs", self.runs.as_ref())?,
            origins: self.allow_origin.clone(),
            limits,
            retention,
        })
    }
}
