//! What a request asks of the transformer, as numbers: the network runs once over a few tokens, with layers
//! that multiply nothing and write down what they were asked for.
//!
//! So no family says what it costs: whatever layers and attentions it has are found where it asks for them.
//! Every kind of token has a number of its own, by which the rows of a product tell what they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::tensor::{Device, Tensor};
use diffusion::{Noise, Scene, Track, TrackKind};
use families::{Condition, EntersAs, Sound, Text};
use folder::Weight;
use kernels::Activation;
use nn::{
    Attention, Bias, Context, Forward, Inputs, Linear, Make, Mask, Normalize, Packed, Part,
    Precision, Project, Provider, Qkv, Reach, RmsNorm, Site, Split, Tracks, Weights,
};
use parallel::cost::{self, Mixing, Product, Rows, Stream, Work};
use parallel::{Splits, Workload, split_of};

use crate::error::Result;
use crate::given::GivenMedia;
use crate::job::Job;
use crate::pipeline::Pipeline;
use crate::request::Request;
use crate::stages::samples_together;

/// Numbers that stand for kinds of tokens: they are primes, so that no batch or level looks like one.
const FEW: [usize; 5] = [7, 11, 13, 17, 19];

/// What so many rows are.
struct Kinds {
    /// The number that stands for a kind, and what it is in truth.
    rows: Vec<(usize, Rows)>,
}

impl Kinds {
    /// What the rows of a product are.
    fn asked(&self, Asking { rows, is_constant }: Asking) -> Rows {
        match (is_constant, self.rows(rows)) {
            (true, Rows { spread: 0, whole, .. }) => Rows { constant: whole, ..Rows::default() },
            (_, rows) => rows,
        }
    }

    /// What so many rows of a product are: tokens of one kind, text and a stream, or something small.
    fn rows(&self, count: usize) -> Rows {
        let one = self.rows.iter().find(|(few, _)| *few == count).map(|(_, rows)| *rows);
        let pair = || {
            let pairs =
                self.rows.iter().flat_map(|one| self.rows.iter().map(move |two| (one, two)));
            let found =
                pairs.into_iter().find(|(one, two)| one.0 < two.0 && one.0 + two.0 == count);
            found.map(|((_, one), (_, two))| Rows {
                spread: one.spread + two.spread,
                whole: one.whole + two.whole,
                constant: 0,
            })
        };
        one.or_else(pair).unwrap_or(Rows { whole: count, ..Rows::default() })
    }
}

/// What the layers of a part were asked for.
#[derive(Default)]
struct Asked {
    products: Vec<(Asking, [usize; 2], Option<Split>)>,
    mixings: Vec<([usize; 2], [usize; 2])>,
    norms: Vec<Asking>,
    /// Whether what is asked for now is made of a context alone.
    is_constant: bool,
    parameters: BTreeSet<String>,
}

/// So many rows.
#[derive(Clone, Copy)]
struct Asking {
    rows: usize,
    /// Whether they are of a context alone.
    is_constant: bool,
}

impl Asked {
    fn rows(&self, rows: usize) -> Asking {
        Asking { rows, is_constant: self.is_constant }
    }
}

/// A provider whose layers write down what they are asked for and answer with zeros.
struct Recorder<'a> {
    asked: Arc<Mutex<Asked>>,
    splits: Splits,
    known: &'a BTreeMap<&'a str, &'a Weight>,
    device: Device,
}

impl Recorder<'_> {
    fn log(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was asked for since the last time.
    fn take(&self) -> Asked {
        std::mem::take(&mut *self.log())
    }

    fn layer(&self, name: &str, sizes: [usize; 2], bias: Bias) -> Linear {
        self.log().parameters.insert(format!("{name}.weight"));
        if bias == Bias::With {
            self.log().parameters.insert(format!("{name}.bias"));
        }
        let split = split_of(self.splits, name);
        Linear::of(Recorded { asked: Arc::clone(&self.asked), sizes, split })
    }
}

/// A layer that multiplies nothing.
struct Recorded {
    asked: Arc<Mutex<Asked>>,
    sizes: [usize; 2],
    split: Option<Split>,
}

impl Project for Recorded {
    fn project(&self, x: Tensor<2>, _: Activation) -> nn::Result<Tensor<2>> {
        let [rows, _] = x.dims();
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let of = asked.rows(rows);
        asked.products.push((of, self.sizes, self.split));
        Ok(Tensor::zeros([rows, self.sizes[1]], &x.device()))
    }
}

/// A norm over a width that tensor ranks share.
struct RecordedNorm(Arc<Mutex<Asked>>);

impl Normalize for RecordedNorm {
    fn normalize(&self, x: Tensor<2>) -> nn::Result<Tensor<2>> {
        let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of = asked.rows(x.dims()[0]);
        asked.norms.push(of);
        Ok(x)
    }
}

impl Provider for Recorder<'_> {
    fn values(&self, name: &str, shape: &[usize]) -> nn::Result<Tensor<1>> {
        self.log().parameters.insert(name.to_owned());
        Ok(Tensor::zeros([shape.iter().product::<usize>()], &self.device))
    }

    fn has(&self, name: &str) -> bool {
        self.known.contains_key(name)
    }

    fn remembered(&self, _: &str, make: Make<'_>) -> nn::Result<Vec<Tensor<3>>> {
        self.log().is_constant = true;
        let made = make();
        self.log().is_constant = false;
        made
    }

    fn linear(
        &self,
        _: &dyn Provider,
        name: &str,
        sizes: [usize; 2],
        bias: Bias,
        _: &Part,
    ) -> nn::Result<Linear> {
        Ok(self.layer(name, sizes, bias))
    }

    fn patch_projection(
        &self,
        _: &dyn Provider,
        name: &str,
        shape: &[usize],
        bias: Bias,
    ) -> nn::Result<Linear> {
        Ok(self.layer(name, [shape[1..].iter().product(), shape[0]], bias))
    }

    fn rms_norm(
        &self,
        leaves: &dyn Provider,
        name: &str,
        width: usize,
        epsilon: f32,
    ) -> nn::Result<RmsNorm> {
        let weight = leaves.values(&format!("{name}.weight"), &[width])?;
        Ok(match split_of(self.splits, name) {
            Some(Split::Channels) => RmsNorm::of(RecordedNorm(Arc::clone(&self.asked))),
            _ => RmsNorm::dense(weight, epsilon),
        })
    }
}

/// An attention that looks at nothing.
struct Blind(Arc<Mutex<Asked>>);

impl Attention for Blind {
    fn attend(&mut self, _: Site, qkv: Qkv, _: Reach, _: Option<&Mask>) -> nn::Result<Tensor<4>> {
        let [_, queries, heads, width] = qkv.q.dims();
        let mixing = ([queries, qkv.k.dims()[1]], [heads, width]);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).mixings.push(mixing);
        Ok(qkv.q.zeros_like())
    }
}

impl Pipeline {
    /// What a request asks of ranks, for those who weigh layouts against each other; no network runs.
    ///
    /// # Errors
    /// It does not fit the model.
    pub fn work(&self, request: &Request) -> Result<Work> {
        let job = self.job(request)?;
        let jobs = job.first.as_deref().into_iter().chain([&job]);
        let mut runs = Vec::new();
        for own in jobs {
            runs.push(self.run_of(own, &self.workload_of(request, own)?)?);
        }
        let workload = self.workload_of(request, &job)?;
        let last = runs.last().expect("a request has a stage");
        let (whole, estimate) = (last.whole(), self.estimate(request, &job, (last, &workload)));
        let of = |stage: &str| {
            let stages = estimate.stages.iter().filter(|own| own.stage == stage);
            stages.map(|own| own.operations).sum::<f64>()
        };
        let (weights, _) = self.weight_bytes();
        let tokens: usize = workload.tokens.into_iter().sum();
        Ok(Work {
            before: of("encode") + of("condition") + of("enlarge"),
            decode: of("decode") / job.samples as f64,
            decode_bytes: self.decoded_bytes(request, &job),
            other_bytes: weights.saturating_sub(whole.bytes()),
            together: samples_together(tokens).min(job.samples),
            workload: self.least_workload(request, &job)?,
            runs,
        })
    }

    /// What the steps of a job ask of the transformer.
    pub(crate) fn run_of(&self, job: &Job, workload: &Workload) -> Result<cost::Run> {
        let sampler = &job.sampler;
        let (scene, kinds) = self.few_tokens(job, workload)?;
        let (tracks, context) =
            (scene.tracks(), scene.tracks().first().map(|own| own.context.clone()));
        let branches = sampler.branches(&scene, context.as_ref())?;
        let start = sampler.start(&scene, &Noise::from_seed(0, 0, 1));
        let tokens = start.map(|(tokens, _)| tokens);
        let mut run = cost::Run::default();
        // Which network each branch is.
        let mut networks: Vec<Option<usize>> = vec![None; branches.len()];
        let mut experts = Vec::new();
        for ((step, at), places) in sampler.steps().iter().enumerate().zip(sampler.places(&tracks))
        {
            experts.push(self.description.expert(at.timestep));
            if places.iter().any(|place| networks[*place].is_none()) {
                let all = sampler.inputs(&branches, &tokens, step);
                for (place, inputs) in places.iter().zip(all) {
                    let found = self.network_of(&inputs, &kinds, job, workload)?;
                    let known = run.networks.iter().position(|own| *own == found);
                    networks[*place] = Some(known.unwrap_or_else(|| {
                        run.networks.push(found);
                        run.networks.len() - 1
                    }));
                }
            }
            run.steps.push(places.into_iter().filter_map(|place| networks[place]).collect());
        }
        run.switches = (1..experts.len()).filter(|at| experts[*at] != experts[at - 1]).collect();
        Ok(run)
    }

    /// What a branch of a job asks of the transformer.
    fn network_of(
        &self,
        inputs: &Inputs,
        kinds: &Kinds,
        job: &Job,
        workload: &Workload,
    ) -> Result<cost::Network> {
        let weights = self.transformers[0].weights();
        let known: BTreeMap<&str, &Weight> =
            weights.iter().map(|own| (own.name.as_str(), own)).collect();
        let splits = self.description.family.splits;
        let recorder =
            Recorder { asked: Arc::default(), splits, known: &known, device: Device::flex() };
        let mut seen = BTreeSet::new();
        let mut part = || self.part(recorder.take(), kinds, &known, &mut seen);
        let (network, weights) =
            (&self.description.transformers[0].network, Weights::new(&recorder));
        let mut blind = Blind(Arc::clone(&recorder.asked));
        let shared = network.shared(&weights, inputs)?;
        let mut own = cost::Network { shared: part(), ..cost::Network::default() };
        let mut stream = network.embed(&weights, inputs, &shared)?;
        (own.embed, own.streams) = (part(), vec![streams(&stream, kinds)]);
        for block in 0..network.depth() {
            let pass = Forward { weights: &weights, shared: &shared, attention: &mut blind };
            stream = network.block(block, stream, pass)?;
            own.blocks.push(part());
            own.streams.push(streams(&stream, kinds));
        }
        let predicted = network.head(&weights, stream, &shared)?;
        own.head = part();
        let stream = |tokens: Tensor<3>| {
            let [_, count, width] = tokens.dims();
            Stream { rows: kinds.rows(count), width }
        };
        own.predictions = predicted.into_iter().map(stream).collect();
        let made = makes(job).zip(workload.own_tokens).map(|((), own)| own);
        let made = made.zip(self.made_channels());
        own.made = made
            .into_iter()
            .map(|(spread, width)| Stream { rows: Rows { spread, ..Rows::default() }, width })
            .collect();
        Ok(own)
    }

    /// Values of a token that a solver makes.
    fn made_channels(&self) -> Tracks<usize> {
        let model = &self.description;
        let patch: usize = model.geometry.patch.iter().product();
        Tracks {
            video: Some(model.vae.latent_channels() * patch),
            audio: model.sound.as_ref().map(Sound::channels),
        }
    }

    /// What was asked for in a part, as numbers of the real request.
    fn part(
        &self,
        asked: Asked,
        kinds: &Kinds,
        known: &BTreeMap<&str, &Weight>,
        seen: &mut BTreeSet<String>,
    ) -> cost::Part {
        let product = |(rows, [inputs, outputs], split): (Asking, [usize; 2], Option<Split>)| {
            Product { rows: kinds.asked(rows), inputs, outputs, split }
        };
        let mixing = |([queries, keys], [heads, head_width]): ([usize; 2], [usize; 2])| {
            let (queries, keys) = (kinds.rows(queries), kinds.rows(keys));
            Mixing { queries, keys, heads, head_width }
        };
        let mut part = cost::Part {
            products: asked.products.into_iter().map(product).collect(),
            mixings: asked.mixings.into_iter().map(mixing).collect(),
            norms: asked.norms.into_iter().map(|rows| kinds.asked(rows)).collect(),
            names: asked.parameters.clone(),
            ..cost::Part::default()
        };
        for name in asked.parameters {
            let Some(weight) = known.get(name.as_str()).filter(|_| seen.insert(name.clone()))
            else {
                continue;
            };
            let layer = name.rsplit_once('.').map_or(name.as_str(), |(layer, _)| layer);
            let is_split = match split_of(self.description.family.splits, layer) {
                // The bias of a sum is added once, by everybody.
                Some(Split::Rows) => name.ends_with(".weight"),
                split => split.is_some(),
            };
            let count = weight.shape.iter().product::<usize>() as u64;
            let bytes = match self.setup.precision {
                Precision::Stored => weight.bytes,
                Precision::Bf16 => weight.bytes.min(weight.rounded()),
            };
            let (parameters, held) = match is_split {
                true => (&mut part.split_parameters, &mut part.split_bytes),
                false => (&mut part.whole_parameters, &mut part.whole_bytes),
            };
            *parameters += count;
            *held += bytes;
        }
        part
    }

    /// A scene of few tokens of every kind that a job has, and what they stand for.
    fn few_tokens(&self, job: &Job, workload: &Workload) -> Result<(Scene, Kinds)> {
        let (model, device) = (&self.description, &Device::flex());
        let image = model.image_tokens;
        let fixed = image.flatten();
        let mut few = FEW.into_iter().filter(|few| Some(*few) != fixed);
        let mut next = || few.next().expect("there are more numbers than kinds");
        let [video, audio, text, pictures] = [next(), next(), next(), next()];
        let pictures = fixed.unwrap_or(pictures);
        let text_tokens = match (&job.captions, job.rules, &model.text) {
            (Some(captions), _, _) => captions.prompts[0].tokens.dims()[1],
            (None, Some(rules), _) => rules.max_tokens,
            (None, None, Text::Words(words)) => words.length,
            (None, None, Text::Encoders { .. }) => text,
        };
        let seen = self.vision.as_ref().map_or(0, |vision| {
            let of = |own: &GivenMedia| [&own.image, &own.last_image].into_iter().flatten().count();
            vision.tokens() * job.given.iter().map(of).max().unwrap_or(0)
        });
        let spread =
            |tokens: Option<usize>| Rows { spread: tokens.unwrap_or(0), ..Rows::default() };
        let whole = |whole| Rows { whole, ..Rows::default() };
        let kinds = Kinds {
            rows: vec![
                (video, spread(workload.tokens.video)),
                (audio, spread(workload.tokens.audio)),
                (text, whole(text_tokens)),
                (pictures, whole(fixed.unwrap_or(seen))),
            ],
        };
        let context = Context {
            tokens: Tensor::zeros([1, text, self.text_width()], device),
            mask: None,
            image: image
                .and(self.vision.as_ref())
                .map(|vision| Tensor::zeros([1, pictures, vision.width()], device)),
        };
        let scene = Scene {
            video: workload
                .tokens
                .video
                .map(|_| self.few_video(video, &context, job))
                .transpose()?,
            audio: model.sound.as_ref().zip(workload.tokens.audio).map(|(sound, _)| {
                let [channels, bins] = sound.codec.latent_shape();
                let latents = Tensor::zeros([1, channels, audio, bins], device);
                Track::new(TrackKind::Generated, model.geometry.audio(&latents), context.clone())
            }),
        };
        Ok((scene, kinds))
    }

    fn few_video(&self, tokens: usize, context: &Context, job: &Job) -> Result<Track> {
        let (model, device) = (&self.description, &Device::flex());
        let [frames, rows, columns] = model.geometry.patch;
        let channels = model.vae.latent_channels();
        let latents = Tensor::zeros([1, channels, frames, rows * tokens, columns], device);
        let cut = model.geometry.video(&latents, &[job.frame_rate])?;
        let mut track = Track::new(TrackKind::Generated, cut, context.clone());
        track.size = model.geometry.size_condition(&latents);
        if model.conditions.enters(Condition::Image) == Some(EntersAs::Channels) {
            let beside = (model.conditions.mask_channels + channels) * frames * rows * columns;
            track.beside = Some(Tensor::zeros([1, tokens, beside], device));
        }
        Ok(track)
    }
}

/// The tracks that the solver makes; the others are given whole.
fn makes(job: &Job) -> Tracks<()> {
    let any = |lacks: fn(&GivenMedia) -> bool| job.given.iter().any(lacks);
    Tracks {
        video: job.tracks.video.filter(|()| any(|own| !own.is_whole_clip())),
        audio: job.tracks.audio.filter(|()| any(|own| own.audio.is_none())),
    }
}

/// What flows from block to block: tensors `[1, T, D]`.
fn streams(stream: &Packed, kinds: &Kinds) -> Vec<Stream> {
    let parts = stream.clone().into_parts().into_iter();
    let shapes = parts.map(|part| part.shape).filter(|shape| shape.len() > 1);
    shapes
        .map(|shape| Stream { rows: kinds.rows(shape[1]), width: shape[2..].iter().product() })
        .collect()
}
