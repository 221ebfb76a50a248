//! *What* is generated given what: from a batch to model inputs to the loss of every sample.

use std::collections::BTreeMap;

use burn::tensor::{Tensor, TensorData};
use diffusion::{NoiseLevels, Process, Scene, Track, TrackKind};
use nn::{Inputs, Modality, Prediction, Tracks};

use crate::batch::Batch;
use crate::draws::Draws;
use crate::error::Result;

/// One kind of task. LTX-2's `prepare_training_inputs` is [`Strategy::prepare`].
pub trait Strategy {
    /// What it is called in recipes and messages.
    fn name(&self) -> &'static str;

    /// The sources a batch must hold: drives the wiring of the data and the errors about it.
    fn sources(&self) -> Vec<String>;

    /// A source among them that a batch may lack, and what is learnt of it then is left out.
    fn optional(&self) -> Option<String> {
        None
    }

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
        inputs.losses(prediction, Tracks { video: Some(1.0), audio: Some(1.0) })
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

/// The loss of every sample, `[B]`.
#[derive(Clone, Debug)]
pub struct Losses {
    /// Of each track that is not given.
    pub tracks: Tracks<Tensor<1>>,
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
        let tokens = scene.tracks().zip(tokens).map(|(track, tokens)| track.keep(tokens));
        let inputs = scene.inputs(process, tokens.clone(), levels);
        let levels = scene.tracks().zip(levels.as_ref());
        let levels = levels.map(|(track, levels)| track.levels(levels));
        Noised { inputs, tokens, levels, process: process.clone(), scene: scene.clone() }
    }

    /// The scene it was made from.
    pub fn scene(&self) -> &Scene {
        &self.scene
    }

    /// The parts of a prediction that belong to the tracks, `[B, N, C]`.
    pub fn own(&self, prediction: &Prediction) -> Tracks<Tensor<3>> {
        let own = self.scene.tracks().zip(prediction.as_ref());
        own.map(|(track, prediction)| track.own(prediction.clone()))
    }

    /// The clean tokens that a prediction implies, `[B, N, C]` per track, fixed tokens as they are.
    pub fn clean(&self, prediction: &Prediction) -> Tracks<Tensor<3>> {
        let noisy = self.tokens.as_ref().zip(self.levels.as_ref());
        let all = self.scene.tracks().zip(self.own(prediction)).zip(noisy);
        all.map(|((track, own), (noisy, level))| {
            let [noisy, level] = [noisy, level].map(|x| beside(&own, x.clone()));
            track.keep(self.process.clean(noisy, own, level))
        })
    }

    /// How many tokens the network sees, over all samples and tracks.
    pub fn count(&self) -> u64 {
        let count = |own: &Modality| own.tokens.dims()[..2].iter().product::<usize>() as u64;
        self.inputs.as_ref().into_iter().map(count).sum()
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
        let all = scene.tracks().zip(levels.as_ref()).zip(noise.as_ref());
        let mixed = all.map(|((track, levels), noise)| {
            process.noise(track.clean.clone(), noise.clone(), track.levels(levels))
        });
        let targets = all.map(|((track, levels), noise)| {
            let value = process.target(track.clean.clone(), noise.clone(), track.levels(levels));
            Target::new(track, levels, value)
        });
        let seen = Noised::new(process, scene, mixed, levels);
        ModelInputs { seen, targets, form: Form::Prediction }
    }

    /// Multiplies the weight of every token by `weight` of its level.
    pub fn weigh(&mut self, weight: impl Fn(f32) -> f32) {
        let all = self.targets.as_mut().zip(self.seen.levels.as_ref());
        all.into_iter().for_each(|(target, levels)| target.weigh(levels, &weight));
    }

    /// The same for the video alone.
    pub fn weigh_video(&mut self, weight: impl Fn(f32) -> f32) {
        let video = self.targets.video.iter_mut().zip(&self.seen.levels.video);
        video.for_each(|(target, levels)| target.weigh(levels, &weight));
    }

    /// The mean squared error over the tokens that count, sample by sample; a track's share of the
    /// total is its one of `weights`.
    pub fn losses(&self, prediction: &Prediction, weights: Tracks<f64>) -> Losses {
        let predicted = match self.form {
            Form::Prediction => self.seen.own(prediction),
            Form::Clean => self.seen.clean(prediction),
        };
        let all = self.seen.scene.tracks().zip(self.targets.as_ref()).zip(predicted);
        let losses = all.map(|((track, target), predicted)| {
            let wanted = match self.form {
                Form::Prediction => target.value.clone(),
                Form::Clean => track.clean.clone(),
            };
            target.counts.then(|| target.error(predicted, wanted))
        });
        Losses::new(prediction, losses, weights)
    }
}

impl Losses {
    /// Adds up what tracks have a loss, each with its weight.
    ///
    /// # Panics
    /// Panics if the prediction is empty.
    pub fn new(
        prediction: &Prediction,
        losses: Tracks<Option<Tensor<1>>>,
        weights: Tracks<f64>,
    ) -> Losses {
        let tracks = Tracks { video: losses.video.flatten(), audio: losses.audio.flatten() };
        let parts = tracks.clone().zip(weights).map(|(loss, weight)| loss * weight);
        let nothing = || {
            let said = prediction.as_ref().first().expect("a prediction is about something");
            let samples = said.dims()[0];
            (said.clone().sum_dim(2).sum_dim(1) * 0.0).reshape([samples])
        };
        let total = parts.into_iter().reduce(|sum, part| sum + part).unwrap_or_else(nothing);
        Losses { tracks, total }
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
