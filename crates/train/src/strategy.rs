//! *What* is generated given what: from a batch to model inputs to the loss of every sample.

use std::collections::BTreeMap;

use burn::tensor::{Tensor, TensorData};
use diffusion::{NoiseLevels, Process, Scene, Track, TrackKind, Tracks};
use nn::{Inputs, Prediction};

use crate::batch::Batch;
use crate::draws::Draws;
use crate::error::Result;

/// One kind of task. LTX-2's `prepare_training_inputs` is [`Strategy::prepare`].
pub trait Strategy {
    /// What it is called in recipes and messages.
    fn name(&self) -> &'static str;

    /// The sources a batch must hold: drives the wiring of the data and the errors about it.
    fn sources(&self) -> Vec<String>;

    /// What is fixed, what is looked at, what is learnt; draws conditions only.
    ///
    /// # Errors
    /// A source is missing or does not fit.
    fn scene(&self, batch: &Batch, draws: &Draws) -> Result<Scene>;

    /// How noisy every track of a scene is.
    ///
    /// # Errors
    /// A sampler cannot serve this scene.
    fn levels(&self, scene: &Scene, draws: &Draws) -> Result<Tracks<NoiseLevels>>;

    /// What the network sees of a scene at `levels` with `noise` (`[B, N, C]` per track), and what it
    /// should say.
    fn inputs(
        &self,
        process: &Process,
        scene: &Scene,
        levels: &Tracks<NoiseLevels>,
        noise: &Tracks<Tensor<3>>,
    ) -> ModelInputs {
        ModelInputs::new(process, scene, levels, noise)
    }

    /// The loss of every sample, track by track.
    fn loss(&self, prediction: &Prediction, inputs: &ModelInputs) -> Losses {
        inputs.losses(prediction, [1.0, 1.0])
    }

    /// What whoever uses the trained model must know, for the metadata of its file.
    fn metadata(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// From a batch to model inputs: scene, levels, noise, inputs.
    ///
    /// # Errors
    /// As [`Strategy::scene`] and [`Strategy::levels`].
    fn prepare(&self, process: &Process, batch: &Batch, draws: &Draws) -> Result<ModelInputs> {
        let scene = self.scene(batch, draws)?;
        let levels = self.levels(&scene, draws)?;
        let noise = noise_for(&scene, draws, "noise");
        Ok(self.inputs(process, &scene, &levels, &noise))
    }
}

/// Noise for every track of a scene, `[B, N, C]`, from streams below `name`.
pub fn noise_for(scene: &Scene, draws: &Draws, name: &str) -> Tracks<Tensor<3>> {
    let draws = draws.below(name);
    scene.each(|track, own| {
        let [_, tokens, channels] = own.clean.dims();
        draws.normal(track, tokens, channels, &own.device())
    })
}

/// Which quantity a loss compares.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// What the network predicts: velocity, noise or clean tokens, as its process says.
    #[default]
    Prediction,
    /// The clean tokens that its prediction implies.
    Clean,
}

/// A scene as a network sees it at some levels of noise.
#[derive(Clone, Debug)]
pub struct Noised {
    /// For the network.
    pub inputs: Inputs,
    /// The noisy tokens of every track, `[B, N, C]`, references left out.
    pub tokens: Tracks<Tensor<3>>,
    /// Their levels, `[B, N, 1]`.
    pub levels: Tracks<Tensor<3>>,
    process: Process,
    scene: Scene,
}

/// What a network is given and what it should answer.
#[derive(Clone, Debug)]
pub struct ModelInputs {
    /// What it is given.
    pub seen: Noised,
    /// What it should answer.
    pub targets: Tracks<Target>,
    /// Which quantity the loss compares.
    pub form: Form,
}

/// What should become of one track. All tensors are about its own tokens, references left out.
#[derive(Clone, Debug)]
pub struct Target {
    /// What the network should predict, `[B, N, C]`.
    pub value: Tensor<3>,
    /// 1 where a token counts, `[B, N]`.
    pub mask: Tensor<2>,
    /// How much each token's error weighs, `[B, N]`; 0 where it does not count.
    pub weight: Tensor<2>,
    /// The level of every sample as a whole.
    pub sigma: Vec<f32>,
    /// Whether any token counts at all.
    pub counts: bool,
}

/// The loss of every sample, `[B]`, track by track.
#[derive(Clone, Debug)]
pub struct Losses {
    /// The video's, unless it is given.
    pub video: Option<Tensor<1>>,
    /// The sound's, if there is one and it is not given.
    pub audio: Option<Tensor<1>>,
    total: Tensor<1>,
}

impl Noised {
    /// A scene whose free tokens are `tokens`, noisy at `levels`.
    pub fn new(
        process: &Process,
        scene: &Scene,
        tokens: Tracks<Tensor<3>>,
        levels: &Tracks<NoiseLevels>,
    ) -> Noised {
        // Fixed tokens are the clean ones to the bit, whatever a process makes of level 0.
        let tokens = both(scene, tokens, |track, tokens| track.keep(tokens));
        let inputs = scene.inputs(process, tokens.clone(), levels);
        let levels = both(scene, levels.clone(), |track, levels| track.levels(&levels));
        Noised { inputs, tokens, levels, process: process.clone(), scene: scene.clone() }
    }

    /// The scene it was made from.
    pub fn scene(&self) -> &Scene {
        &self.scene
    }

    /// The parts of a prediction that belong to the tracks, `[B, N, C]`.
    pub fn own(&self, prediction: &Prediction) -> Tracks<Tensor<3>> {
        let sound = self.scene.audio.as_ref().zip(prediction.audio.as_ref());
        Tracks {
            video: self.scene.video.own(prediction.video.clone()),
            audio: sound.map(|(track, prediction)| track.own(prediction.clone())),
        }
    }

    /// The clean tokens that a prediction implies, `[B, N, C]` per track, fixed tokens as they are.
    pub fn clean(&self, prediction: &Prediction) -> Tracks<Tensor<3>> {
        let one = |track: &Track, own: Tensor<3>, [noisy, level]: [&Tensor<3>; 2]| {
            let [noisy, level] = [noisy, level].map(|x| beside(&own, x.clone()));
            track.keep(self.process.clean(noisy, own, level))
        };
        let own = self.own(prediction);
        let sound = self.scene.audio.as_ref().zip(own.audio);
        let sound = sound.zip(self.tokens.audio.as_ref().zip(self.levels.audio.as_ref()));
        Tracks {
            video: one(&self.scene.video, own.video, [&self.tokens.video, &self.levels.video]),
            audio: sound.map(|((track, own), (noisy, level))| one(track, own, [noisy, level])),
        }
    }

    /// How many tokens the network sees, over all samples and tracks.
    pub fn count(&self) -> u64 {
        let count = |tokens: &Tensor<3>| tokens.dims()[..2].iter().product::<usize>() as u64;
        let sound = self.inputs.audio.as_ref().map_or(0, |audio| count(&audio.tokens));
        count(&self.inputs.video.tokens) + sound
    }
}

/// `change` for every track of a scene.
fn both<T, U>(scene: &Scene, own: Tracks<T>, change: impl Fn(&Track, T) -> U) -> Tracks<U> {
    let sound = scene.audio.as_ref().zip(own.audio);
    Tracks {
        video: change(&scene.video, own.video),
        audio: sound.map(|(track, own)| change(track, own)),
    }
}

impl ModelInputs {
    /// A scene at `levels` with `noise`.
    pub fn new(
        process: &Process,
        scene: &Scene,
        levels: &Tracks<NoiseLevels>,
        noise: &Tracks<Tensor<3>>,
    ) -> ModelInputs {
        let mixed = both(scene, levels.clone().zip(noise.clone()), |track, (levels, noise)| {
            process.noise(track.clean.clone(), noise, track.levels(&levels))
        });
        let targets = both(scene, levels.clone().zip(noise.clone()), |track, (levels, noise)| {
            let value = process.target(track.clean.clone(), noise, track.levels(&levels));
            Target::new(track, &levels, value)
        });
        let seen = Noised::new(process, scene, mixed, levels);
        ModelInputs { seen, targets, form: Form::Prediction }
    }

    /// Multiplies the weight of every token by `weight` of its level.
    pub fn weigh(&mut self, weight: impl Fn(f32) -> f32) {
        self.weigh_video(&weight);
        let sound = self.targets.audio.as_mut().zip(self.seen.levels.audio.as_ref());
        sound.into_iter().for_each(|(target, levels)| target.weigh(levels, &weight));
    }

    /// The same for the video alone.
    pub fn weigh_video(&mut self, weight: impl Fn(f32) -> f32) {
        self.targets.video.weigh(&self.seen.levels.video, &weight);
    }

    /// The mean squared error over the tokens that count, sample by sample; a track's share of the
    /// total is `weights` (video, audio).
    pub fn losses(&self, prediction: &Prediction, weights: [f64; 2]) -> Losses {
        let predicted = match self.form {
            Form::Prediction => self.seen.own(prediction),
            Form::Clean => self.seen.clean(prediction),
        };
        let error = |track: &Track, target: &Target, predicted: Tensor<3>| {
            let wanted = match self.form {
                Form::Prediction => target.value.clone(),
                Form::Clean => track.clean.clone(),
            };
            target.counts.then(|| target.error(predicted, wanted))
        };
        let scene = &self.seen.scene;
        let video = error(&scene.video, &self.targets.video, predicted.video);
        let sound = scene.audio.as_ref().zip(self.targets.audio.as_ref()).zip(predicted.audio);
        let audio = sound.and_then(|((track, target), predicted)| error(track, target, predicted));
        Losses::new(prediction, [video, audio], weights)
    }
}

impl Losses {
    /// Adds up what tracks have a loss, each with its weight.
    pub fn new(
        prediction: &Prediction,
        [video, audio]: [Option<Tensor<1>>; 2],
        weights: [f64; 2],
    ) -> Losses {
        let parts = [(&video, weights[0]), (&audio, weights[1])];
        let parts =
            parts.iter().filter_map(|(part, weight)| Some(part.as_ref()?.clone() * *weight));
        let nothing = || {
            let samples = prediction.video.dims()[0];
            (prediction.video.clone().sum_dim(2).sum_dim(1) * 0.0).reshape([samples])
        };
        let total = parts.reduce(|sum, part| sum + part).unwrap_or_else(nothing);
        Losses { video, audio, total }
    }

    /// All tracks together, `[B]`.
    pub fn total(&self) -> Tensor<1> {
        self.total.clone()
    }
}

impl Target {
    fn new(track: &Track, levels: &NoiseLevels, value: Tensor<3>) -> Target {
        let (samples, tokens) = (track.samples(), track.tokens());
        let learnt = track.learnt();
        let counts = learnt.contains(&1.0);
        let mask = TensorData::new(learnt, [samples, tokens]);
        let mask = Tensor::<2>::from_data(mask, &track.device());
        let sigma = (0..samples).map(|sample| match track.kind {
            TrackKind::Generated => levels.of_sample(sample),
            TrackKind::Given => 0.0,
        });
        Target { value, weight: mask.clone(), mask, sigma: sigma.collect(), counts }
    }

    /// Multiplies the weight of every token by `weight` of its level, `[B, N, 1]`.
    fn weigh(&mut self, levels: &Tensor<3>, weight: &dyn Fn(f32) -> f32) {
        let [samples, tokens, _] = levels.dims();
        let levels = levels.clone().into_data();
        let values: Vec<f32> = levels.iter::<f32>().map(weight).collect();
        let device = self.weight.device();
        let factor = Tensor::from_data(TensorData::new(values, [samples, tokens]), &device);
        self.weight = self.weight.clone() * factor;
    }

    /// The squared error of `predicted` against `wanted`, both `[B, N, C]`: the mean over channels,
    /// weighed over tokens, divided by the share of tokens that count. `[B]`.
    pub fn error(&self, predicted: Tensor<3>, wanted: Tensor<3>) -> Tensor<1> {
        let [samples, tokens, channels] = predicted.dims();
        let wanted = beside(&predicted, wanted);
        let difference = predicted - wanted;
        let squares = (difference.clone() * difference).sum_dim(2) / channels as f64;
        self.mean(squares.reshape([samples, tokens]))
    }

    /// The weighed mean of one number per token, `[B, N]`, over the tokens that count, `[B]`.
    pub fn mean(&self, each: Tensor<2>) -> Tensor<1> {
        let [samples, tokens] = each.dims();
        let share = self.mask.clone().sum_dim(1) / tokens as f64;
        let share = beside(&each, share.clamp_min(1e-8));
        let weight = beside(&each, self.weight.clone());
        let mean = (each * weight).sum_dim(1) / tokens as f64;
        (mean / share).reshape([samples])
    }
}

/// A constant that can meet `tensor`, which may belong to a graph.
pub fn beside<const D: usize, const E: usize>(
    tensor: &Tensor<D>,
    constant: Tensor<E>,
) -> Tensor<E> {
    match tensor.device().is_autodiff() && !constant.device().is_autodiff() {
        true => Tensor::from_inner(constant),
        false => constant,
    }
}
