//! A model of any family, opened: `Request -> Scene -> sampler -> decode`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::{Device, Tensor};
use comm::Mesh;
use data::media::{Frame, Waveform};
use families::{Description, Record, TextRules};
use folder::lora::LoraSource;
use folder::{Component, Loras, ModelFolder, Rename, Storage};
use nn::{CacheReport, OneDevice, Precision, Quantization, Schedule, Store};
use parallel::{PipeFusion, Plan, Strips};

use crate::enlarging::Upsampler;
use crate::error::{Error, Field, Result};
use crate::job::Job;
use crate::progress::Progress;
use crate::replica::{Deal, Replica};
use crate::request::Request;
use crate::sound::SoundParts;
use crate::stages::{Ask, Begun, Prepared, Samples};
use crate::tensors;
use crate::text::PromptEncoder;
use crate::vision::Vision;

/// How long components stay in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residency {
    /// All of them, from first use on.
    Kept,
    /// One at a time.
    OneAtATime,
}

/// How a folder is opened.
#[derive(Clone)]
pub struct Setup {
    /// In which type the transformer's matrices are held.
    pub precision: Precision,
    /// How the matrices of its linear layers are held instead.
    pub quantization: Option<Quantization>,
    /// How long components stay in memory.
    pub residency: Residency,
    /// Where to compute.
    pub device: Device,
    /// How the transformer is run.
    pub schedule: Arc<dyn Schedule>,
    /// How the sampler is run over stages, if it is.
    pub pipefusion: Option<PipeFusion>,
    /// The ranks that decode frames together, if this one does and there are others.
    pub strips: Option<Strips>,
    /// Where this rank stands among those that make a request together; they all run the same one.
    pub mesh: Mesh,
    /// A safetensors or GGUF file with the transformer's parameters, instead of the folder's.
    pub transformer: Option<PathBuf>,
    /// The same for the second expert, of models that have two.
    pub second_transformer: Option<PathBuf>,
    /// Low-rank changes to the transformer, or to its first expert.
    pub loras: Vec<LoraSource>,
    /// Low-rank changes to the second expert.
    pub second_loras: Vec<LoraSource>,
    /// The folder of what makes latents larger, for requests of two stages.
    pub upsampler: Option<PathBuf>,
    /// Low-rank changes to the transformer in the second of two stages, beside the others.
    pub upsampler_loras: Vec<LoraSource>,
}

impl Setup {
    /// Everything as it is stored and kept, on one device, without LoRAs.
    pub fn new(device: &Device) -> Setup {
        Setup {
            precision: Precision::Stored,
            quantization: None,
            residency: Residency::Kept,
            device: device.clone(),
            schedule: Arc::new(OneDevice::default()),
            pipefusion: None,
            strips: None,
            mesh: Mesh::solo(),
            transformer: None,
            second_transformer: None,
            loras: Vec::new(),
            second_loras: Vec::new(),
            upsampler: None,
            upsampler_loras: Vec::new(),
        }
    }
}

/// A model, checked and ready. Clones share the parameters that are open.
#[derive(Clone)]
pub struct Pipeline {
    pub(crate) setup: Setup,
    pub(crate) description: Description,
    pub(crate) text: PromptEncoder,
    /// In the order of the description.
    pub(crate) transformers: Vec<Component>,
    pub(crate) vae: Component,
    pub(crate) sound: SoundParts,
    pub(crate) vision: Option<Vision>,
    pub(crate) upsampler: Option<Upsampler>,
}

/// Receives what is made, so that no one need hold a whole clip.
pub trait Frames {
    /// Says how much is coming: so many samples of so many frames. Nothing was computed yet, so
    /// this is the place to refuse.
    ///
    /// # Errors
    /// It cannot be received.
    fn begin(&mut self, samples: usize, frames: usize) -> Result<()>;

    /// The sound of a sample; the sounds of all samples come before the first frame.
    ///
    /// # Errors
    /// It cannot be kept.
    fn sound(&mut self, _sample: usize, _sound: Waveform) -> Result<()> {
        Ok(())
    }

    /// The next frame of a sample; its frames come in order, and samples one after another.
    ///
    /// # Errors
    /// It cannot be kept.
    fn frame(&mut self, sample: usize, frame: Frame) -> Result<()>;
}

/// What a request gave besides its frames and sounds.
#[derive(Clone, Debug, Default)]
pub struct PipelineOutput {
    /// The final latents, before the VAE, as diffusers hands them out, unless only sound was made.
    pub latents: Option<Latents>,
    /// The final latents of the sound, `[samples, C, T, bins]`, if there is one.
    pub audio_latents: Option<Tensor<4>>,
    /// The video's `[samples, C, F, h, w]` without what was given put back.
    pub unpasted: Option<Tensor<5>>,
    /// What a step cache saved in all passes of all samples, and cost.
    pub cache: Option<CacheReport>,
}

/// Final latents of all samples, in the shape diffusers gives them.
#[derive(Clone, Debug)]
pub enum Latents {
    /// `[samples, C, h, w]`.
    Picture(Tensor<4>),
    /// `[samples, C, F, h, w]`.
    Clip(Tensor<5>),
}

impl PipelineOutput {
    /// The bytes of a safetensors file that holds the final latents under `latents` and, of a sound, under
    /// `audio_latents`.
    ///
    /// # Errors
    /// They cannot be serialised.
    pub fn latents_file(self) -> Result<Vec<u8>> {
        let video = self.latents.map(|latents| match latents {
            Latents::Picture(latents) => ("latents", tensors::Stored::of(latents)),
            Latents::Clip(latents) => ("latents", tensors::Stored::of(latents)),
        });
        let audio = self.audio_latents.map(|own| ("audio_latents", tensors::Stored::of(own)));
        tensors::file(&video.into_iter().chain(audio).collect::<Vec<_>>())
    }
}

impl Pipeline {
    /// Opens a folder and checks every component against its config. Weights stay on disk.
    ///
    /// # Errors
    /// The folder is of no family we have, or a part of it is missing, damaged or unsupported.
    pub fn open(path: &Path, setup: &Setup) -> Result<Pipeline> {
        let folder = ModelFolder::open(path)?;
        let description = with_records(families::describe(&folder)?, setup)?;
        let text = PromptEncoder::open(&folder, &description)?;
        let transformers = transformers(&folder, &description, setup)?;
        let vae = match folder.has("vae") {
            true => Component::new(folder.weights("vae")?, Storage::STORED, &[], |weights| {
                description.vae.declare(weights)
            })?,
            false => Component::of(Store::new("no parameters")),
        };
        let sound = SoundParts::open(&folder, &description)?;
        let vision = match description.image_tokens {
            Some(_) => Some(Vision::open(&folder)?),
            None => None,
        };
        let upsampler = Upsampler::of(setup, &description, &transformers)?;
        Ok(Pipeline {
            setup: setup.clone(),
            upsampler,
            description,
            text,
            transformers,
            vae,
            sound,
            vision,
        })
    }

    /// A model that is in memory only: one in training, of a family that needs no encoders.
    ///
    /// # Errors
    /// The parameters are not those of such a model, or it needs encoders.
    pub fn of(description: Description, store: Store, setup: &Setup) -> Result<Pipeline> {
        let text = PromptEncoder::without_folder(&description)?;
        let network = &description.transformers[0].network;
        store.agree(&[], |weights| network.declare(weights))?;
        Ok(Pipeline {
            setup: setup.clone(),
            description,
            text,
            transformers: vec![Component::of(store)],
            vae: Component::of(Store::new("no parameters")),
            sound: SoundParts::none(),
            vision: None,
            upsampler: None,
        })
    }

    /// The same model, used as a record says: as it will be once it is exported.
    #[must_use]
    pub fn with_record(self, record: Record) -> Pipeline {
        Pipeline { description: self.description.with_record(record), ..self }
    }

    /// The same model with other LoRAs, to its first expert and to its second. What else is open stays open and is
    /// shared; of the transformer only what they touch is held anew.
    ///
    /// # Errors
    /// One of them cannot be read or does not belong to this model.
    pub fn with_loras(&self, loras: &[LoraSource], second: &[LoraSource]) -> Result<Pipeline> {
        let mut own = self.clone();
        (own.setup.loras, own.setup.second_loras) = (loras.to_vec(), second.to_vec());
        check_experts(&own.description, &own.setup)?;
        own.description = with_records(own.description, &own.setup)?;
        let all = [(loras, Field::Lora), (second, Field::SecondLora)];
        for (component, (sources, field)) in own.transformers.iter_mut().zip(all) {
            let loras =
                Loras { sources: sources.to_vec(), names: own.description.family.lora_names() };
            let mut adapted = component.clone();
            adapted.close();
            *component = adapted.adapted(loras).map_err(|err| Error::from(err).of_field(field))?;
        }
        own.upsampler = Upsampler::of(&own.setup, &own.description, &own.transformers)?;
        Ok(own)
    }

    /// What the model is.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Whether a request can be run; nothing runs.
    ///
    /// # Errors
    /// It does not fit the model.
    pub fn check(&self, request: &Request) -> Result<()> {
        self.job(request).map(drop)
    }

    /// Whether anything is pushed away from a request's negative prompt; at a guidance of 1 or less
    /// nothing is.
    ///
    /// # Errors
    /// The request does not fit the model.
    pub fn is_guided(&self, request: &Request) -> Result<bool> {
        self.job(request).map(|job| job.asked().sampler.is_guided(&job.tracks))
    }

    /// The same model for a rank of a mesh, whose ranks run requests together as a plan says.
    #[must_use]
    pub fn on(&self, mesh: Mesh, plan: &Plan) -> Pipeline {
        let mut own = self.clone();
        let splits = self.description.family.splits;
        own.setup.schedule = plan.schedule(&mesh, splits);
        own.setup.pipefusion = plan.pipefusion(&mesh, splits);
        own.setup.strips = plan.strips(&mesh);
        own.setup.mesh = mesh;
        own
    }

    /// Does `work` with this model as a rank of a mesh. What it opens stays open for what comes after.
    pub fn as_rank<T>(
        &mut self,
        mesh: Mesh,
        plan: &Plan,
        work: impl FnOnce(&mut Pipeline) -> T,
    ) -> T {
        let setup = self.on(mesh, plan).setup;
        let alone = std::mem::replace(&mut self.setup, setup);
        let done = work(self);
        self.setup = alone;
        done
    }

    /// The same model, whose transformer is run by another schedule.
    #[must_use]
    pub fn run_by(mut self, schedule: Arc<dyn Schedule>) -> Pipeline {
        self.setup.schedule = schedule;
        self
    }

    /// Opens all components, so that clones made from now on share their parameters.
    ///
    /// # Errors
    /// Their files cannot be read any more.
    pub fn open_all(&mut self) -> Result<()> {
        let Pipeline { setup, text, transformers, vae, sound, vision, upsampler, .. } = self;
        for component in transformers.iter_mut().chain([vae]) {
            component.open(&setup.device)?;
        }
        text.open_weights(&setup.device)?;
        sound.open_weights(&setup.device)?;
        vision.iter_mut().try_for_each(|vision| vision.open_weights(&setup.device))?;
        upsampler.iter_mut().try_for_each(|upsampler| upsampler.open_weights(&setup.device))
    }

    /// Runs a request. Everything about it that can be wrong is found before the first network runs.
    ///
    /// Ranks that run it together deal its samples among their replicas. `frames` receives all of them on the
    /// first rank and nothing on the others; the same goes for the output.
    ///
    /// # Errors
    /// The request does not fit the model, a network gave values that are not finite, a frame could
    /// not be kept, another rank failed, or the user interrupted.
    pub fn run(
        &mut self,
        request: &Request,
        progress: &mut dyn Progress,
        frames: &mut dyn Frames,
    ) -> Result<PipelineOutput> {
        let job = self.job(request)?;
        self.run_job(request, &job, progress, frames)
    }

    pub(crate) fn run_job(
        &mut self,
        request: &Request,
        job: &Job,
        progress: &mut dyn Progress,
        frames: &mut dyn Frames,
    ) -> Result<PipelineOutput> {
        let rule = job.more.as_ref().and_then(|more| more.cross_levels);
        self.description.meet_by(rule);
        let replica = Replica::of(&self.setup.mesh, job.samples);
        // Whatever an earlier request came to.
        replica.tell(0.0);
        if replica.owns() {
            frames.begin(job.samples, if job.only_audio { 0 } else { job.size[0] })?;
        }
        let made = match replica.deal() {
            Some(deal) => {
                self.make_deal((request, job), (&replica, &deal), progress, frames).map(Some)
            }
            None => Ok(None),
        };
        replica.collect(made, (progress, frames))
    }

    /// Makes and decodes the samples of this replica.
    fn make_deal(
        &mut self,
        (request, job): (&Request, &Job),
        (replica, deal): (&Replica, &Deal),
        progress: &mut dyn Progress,
        frames: &mut dyn Frames,
    ) -> Result<PipelineOutput> {
        let preparing = replica.busy("the preparation of a request");
        self.hold_what_is_needed(request, job)?;
        let asked = job.asked();
        let captions = match &asked.captions {
            Some(captions) => captions.of(deal.prompts(request)),
            None => self.encode(request, asked, deal.prompts(request), progress)?,
        };
        self.release(|own| own.text.close());
        drop(preparing);
        let ask = Ask { request, deal, captions: &captions };
        let begun = match (&job.first, &request.enlarging) {
            (Some(first), Some(enlarging)) => {
                let made = self.make(ask, first, None, progress)?;
                let _enlarging = replica.busy("making latents larger");
                progress.begin("enlarge", 1);
                let tokens = self.enlarge(&made, enlarging)?;
                self.release(|own| {
                    own.vae.close();
                    own.upsampler.iter_mut().for_each(Upsampler::close);
                });
                Some(Begun { tokens, cache: made.cache })
            }
            _ => None,
        };
        let sampled = match begun {
            None => self.make(ask, job, None, progress)?,
            begun => self.as_second(|own| own.make(ask, job, begun, progress))?,
        };
        let _decoding = replica.busy("decoding");
        if replica.leads() || self.setup.strips.is_some() {
            let mut relay = replica.relay(deal.samples.start);
            let receiver: &mut dyn Frames = match &mut relay {
                Some(relay) => relay,
                None => &mut *frames,
            };
            self.decode(request, job, &sampled, progress, receiver)?;
        }
        let output = self.output(sampled, job)?;
        self.release(|own| {
            own.vae.close();
            own.sound.close();
        });
        Ok(output)
    }

    /// Encodes what is given for a job and samples it.
    fn make(
        &mut self,
        ask: Ask<'_>,
        job: &Job,
        begun: Option<Begun>,
        progress: &mut dyn Progress,
    ) -> Result<Samples> {
        let replica = Replica::of(&self.setup.mesh, job.samples);
        let preparing = replica.busy("the preparation of a request");
        let conditionings = self.condition(job, progress)?;
        self.release(|own| {
            own.vae.close();
            own.sound.close();
            own.vision.iter_mut().for_each(Vision::close);
        });
        if self.setup.residency == Residency::Kept && self.setup.mesh.world().size() > 1 {
            // Others wait for a rank that opens its weights as long as for one that encodes.
            let Pipeline { setup, transformers, .. } = &mut *self;
            transformers.iter_mut().try_for_each(|own| own.open(&setup.device).map(drop))?;
        }
        drop(preparing);
        let sampled = self.sample(ask, job, Prepared { conditionings, begun }, progress)?;
        self.release(|own| own.transformers.iter_mut().for_each(Component::close));
        Ok(sampled)
    }

    /// A stage of blocks opens what it asks for and nothing else, unless all is open already: thread ranks share one
    /// copy.
    fn hold_what_is_needed(&mut self, request: &Request, job: &Job) -> Result<()> {
        let staged = self.setup.pipefusion.as_ref().map(PipeFusion::blocks);
        let needed = match staged.filter(|own| *own != (0..self.depth())) {
            Some(blocks) => {
                let workload = self.workload_of(request, job)?;
                Some(self.run_of(job, &workload)?.whole().names(blocks))
            }
            None => None,
        };
        self.transformers.iter_mut().for_each(|own| own.hold(needed.clone()));
        Ok(())
    }

    fn depth(&self) -> usize {
        self.description.transformers[0].network.depth()
    }

    /// The names of the transformer's parameters that are open, as each of its experts has them.
    pub fn held(&self) -> Vec<Vec<String>> {
        let names = |own: &Component| own.held().map(str::to_owned).collect();
        self.transformers.iter().map(names).collect()
    }

    /// Puts other parameters in the place of the transformer's, or of its first expert's: a model in
    /// training is looked at by the very pipeline that will use it.
    ///
    /// # Errors
    /// They are not those of this transformer.
    pub fn replace_transformer(&mut self, expert: usize, store: Store) -> Result<()> {
        let network = &self.description.transformers[expert].network;
        Ok(self.transformers[expert].replace(store, |weights| network.declare(weights))?)
    }

    /// Lets go of the parameters of a transformer, even if they are nowhere else:
    /// [`Pipeline::replace_transformer`] must come before the next run.
    pub fn forget_transformer(&mut self, expert: usize) {
        self.transformers[expert] = Component::of(Store::new("a transformer that was let go of"));
    }

    pub(crate) fn device(&self) -> &Device {
        &self.setup.device
    }

    /// The width of a prompt embedding.
    pub(crate) fn text_width(&self) -> usize {
        self.text.width()
    }

    pub(crate) fn text_rules(&self) -> Option<TextRules> {
        self.text.rules()
    }

    /// What is to be said of the prompts of a request.
    ///
    /// # Errors
    /// One of them cannot be encoded.
    pub(crate) fn check_prompts(
        &self,
        request: &Request,
        rules: Option<&TextRules>,
        is_guided: bool,
    ) -> Result<Vec<String>> {
        let mut notes = self.text.check(request, rules, is_guided)?;
        if !is_guided && !request.negative.is_empty() {
            let idle = "the negative prompt is not looked at: at a guidance of 1 nothing is pushed away from";
            notes.push(idle.to_owned());
        }
        Ok(notes)
    }

    fn release(&mut self, close: impl FnOnce(&mut Pipeline)) {
        if self.setup.residency == Residency::OneAtATime {
            close(self);
        }
    }
}

/// Refuses what a model with so many experts cannot have.
fn check_experts(description: &Description, setup: &Setup) -> Result<()> {
    let experts = &description.transformers;
    if experts.len() == 1 && !setup.second_loras.is_empty() {
        return Err(Error::request(Field::SecondLora, "this model has one expert; leave it out"));
    }
    if experts.len() == 1 && setup.second_transformer.is_some() {
        let reason = "this model has one expert; leave it out";
        return Err(Error::request(Field::SecondTransformer, reason));
    }
    Ok(())
}

/// The transformers of a folder, with their LoRAs.
fn transformers(
    folder: &ModelFolder,
    description: &Description,
    setup: &Setup,
) -> Result<Vec<Component>> {
    check_experts(description, setup)?;
    let experts = &description.transformers;
    let (precision, quantization) = (setup.precision, setup.quantization);
    let storage = Storage { precision, kept: description.family.kept, quantization };
    type Asked<'a> = ((&'a Option<PathBuf>, Field), (&'a Vec<LoraSource>, Field));
    let open = |(expert, asked): (&families::Transformer, Asked<'_>)| {
        let ((file, file_field), (sources, field)) = asked;
        let ignored: Vec<&str> = expert.ignored.iter().map(String::as_str).collect();
        let files = match file {
            Some(file) => vec![file.clone()],
            None => folder.weights(expert.component)?,
        };
        let family = description.family;
        // A single file may be one of the family's own code, as ComfyUI has it.
        let rename: Option<Rename> = file.is_some().then(|| {
            let rename: Rename = Arc::new(move |name: &str| family.transformer_parameter(name));
            rename
        });
        let component = Component::renaming(files, storage, &ignored, rename, |weights| {
            expert.network.declare(weights)
        });
        let component = match file {
            Some(_) => component.map_err(|err| Error::from(err).of_field(file_field))?,
            None => component?,
        };
        let names = description.family.lora_names();
        let adapted = component.adapted(Loras { sources: sources.clone(), names });
        adapted.map_err(|err| Error::from(err).of_field(field))
    };
    let asked = [
        ((&setup.transformer, Field::Transformer), (&setup.loras, Field::Lora)),
        (
            (&setup.second_transformer, Field::SecondTransformer),
            (&setup.second_loras, Field::SecondLora),
        ),
    ];
    experts.iter().zip(asked).map(open).collect()
}

/// The description with what LoRAs and a single file say of themselves.
fn with_records(mut description: Description, setup: &Setup) -> Result<Description> {
    let first = setup.loras.iter().map(|lora| (Field::Lora, lora));
    let second = setup.second_loras.iter().map(|lora| (Field::SecondLora, lora));
    let loras = first.chain(second).map(|(field, lora)| (field, folder::lora::file(&lora.path)));
    let files = [
        (Field::Transformer, &setup.transformer),
        (Field::SecondTransformer, &setup.second_transformer),
    ];
    let files = files.into_iter().filter_map(|(field, file)| Some((field, Ok(file.clone()?))));
    for (field, file) in files.chain(loras) {
        let metadata = file.and_then(|file| folder::metadata(&file));
        let metadata = metadata.map_err(|err| Error::from(err).of_field(field))?;
        let record = Record::of_metadata(&metadata);
        let record = record.map_err(|err| Error::from(err).of_field(field))?;
        description = description.with_record(record);
    }
    Ok(description)
}
