//! Two stages: a clip is made smaller first, its latents are made larger, noised again and denoised at its own size.
//!
//! Each stage is a request of its own, checked and run as any other. Between them stands what is here.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::{Device, Tensor};
use families::Description;
use folder::{Component, Loras, Storage, Weight};
use models::vae::LatentUpsampler;
use nn::{Tracks, Weights, patchify};

use crate::error::{Error, Field, Result};
use crate::finite;
use crate::fit::Frame;
use crate::guidance::MoreGuidance;
use crate::pipeline::{Pipeline, Setup};
use crate::request::{Enlarging, Request, Solving};
use crate::stages::Samples;

/// Where a pipeline that diffusers saved keeps it.
const COMPONENT: &str = "latent_upsampler";

/// The strongest that statistics are drawn back, as diffusers has it.
const MOST_ADAIN: f64 = 10.0;

/// The folder of an upsampler: the one that was given, or the one within a pipeline that diffusers saved.
pub fn upsampler_folder(path: &Path) -> PathBuf {
    match path.join(COMPONENT) {
        own if own.is_dir() => own,
        _ => path.to_owned(),
    }
}

/// What makes latents larger, with its parameters, and what is run afterwards.
#[derive(Clone)]
pub(crate) struct Upsampler {
    network: Arc<dyn LatentUpsampler>,
    component: Component,
    /// The transformers of the second stage, where they are others than those of the first.
    transformers: Vec<Component>,
}

impl Upsampler {
    /// Opens what a setup names, for a model with these `transformers`.
    ///
    /// # Errors
    /// It cannot be opened, or a LoRA does not fit the model.
    pub(crate) fn of(
        setup: &Setup,
        description: &Description,
        transformers: &[Component],
    ) -> Result<Option<Upsampler>> {
        let more = &setup.upsampler_loras;
        let Some(path) = &setup.upsampler else {
            let reason = "there is no second stage without an upsampler; give one, or leave it out";
            return match more.is_empty() {
                true => Ok(None),
                false => Err(Error::request(Field::UpsamplerLora, reason)),
            };
        };
        let upsampler = Upsampler::open(path, description)?;
        if more.is_empty() {
            return Ok(Some(upsampler));
        }
        let adapted = transformers.iter().map(|own| {
            let names = description.family.lora_names();
            let sources = [&setup.loras[..], more].concat();
            let mut own = own.clone();
            own.close();
            let adapted = own.adapted(Loras { sources, names });
            adapted.map_err(|err| Error::from(err).of_field(Field::UpsamplerLora))
        });
        let transformers = adapted.collect::<Result<_>>()?;
        Ok(Some(Upsampler { transformers, ..upsampler }))
    }

    /// Opens the folder of such a network, or of a pipeline that holds one, and checks it; weights stay on disk.
    ///
    /// # Errors
    /// It is none, or none for this model.
    fn open(path: &Path, description: &Description) -> Result<Upsampler> {
        let refuse = |reason: String| Error::request(Field::Upsampler, reason);
        let Some(read) = description.family.upsampler else {
            let title = description.family.title;
            return Err(refuse(format!("there is none for the latents of {title}; leave it out")));
        };
        let folder = upsampler_folder(path);
        let open = || -> Result<Upsampler> {
            let config = folder::read_text(&folder.join("config.json"))?;
            let network = read(&config)?;
            folder::agree(
                ("`in_channels` of the upsampler", network.latent_channels()),
                ("the channels of a latent of the model", description.vae.latent_channels()),
            )?;
            let files = folder::weight_files(&folder)?;
            let declare = |weights: &Weights<'_>| network.declare(weights);
            let component = Component::new(files, Storage::STORED, &[], declare)?;
            Ok(Upsampler { network: Arc::clone(&network), component, transformers: Vec::new() })
        };
        open().map_err(|err| refuse(format!("{}: {err}", folder.display())))
    }

    pub(crate) fn open_weights(&mut self, device: &Device) -> Result<()> {
        for own in self.transformers.iter_mut().chain([&mut self.component]) {
            own.open(device)?;
        }
        Ok(())
    }

    pub(crate) fn weights(&self) -> &[Weight] {
        self.component.weights()
    }

    pub(crate) fn close(&mut self) {
        self.component.close();
    }

    /// About the operations of making one clip larger, whose latents have so many places before and after.
    pub(crate) fn operations(&self, [before, after]: [usize; 2]) -> f64 {
        let work = self.weights().iter().filter(|own| own.shape.len() > 2).map(|own| {
            let is_after = own.name.starts_with("post_") || own.name.starts_with("final_");
            let places = if is_after { after } else { before };
            2.0 * own.shape.iter().product::<usize>() as f64 * places as f64
        });
        work.sum()
    }
}

impl Pipeline {
    /// The two stages of a request: the smaller clip, and the one that goes on from it.
    ///
    /// # Errors
    /// There is no upsampler, the size is no size of one, or an option would do nothing.
    pub(crate) fn stages(&self, request: &Request, enlarging: &Enlarging) -> Result<[Request; 2]> {
        let model = self.description();
        let Some(upsampler) = &self.upsampler else {
            let reason =
                "latents are to be made larger, and nothing is given that does; give its folder";
            return Err(Error::request(Field::Upsampler, reason));
        };
        checked(enlarging)?;
        if request.only_audio
            || request.given.iter().any(|own| own.video.is_some() && own.mask.is_none())
        {
            let reason = "no video is made that could be made larger; leave it out";
            return Err(Error::request(Field::Upsampler, reason));
        }
        let levels = match (&enlarging.levels, model.family.distilled) {
            (Some(levels), _) => levels.clone(),
            (None, Some(own)) => own.enlarged.to_vec(),
            (None, None) => {
                let reason =
                    "the model has no levels of its own for it; give some, as in 0.9,0.7,0.4";
                return Err(Error::request(Field::UpsamplerLevels, reason));
            }
        };
        let [more, fewer] = upsampler.network.ratio();
        let [height, width] = Frame::of(request, model, more)?.size;
        let smaller = |axis: usize, length: usize, field: Field| {
            let step = model.geometry.factors[axis] * model.geometry.patch[axis] * more;
            match length > 0 && length.is_multiple_of(step) {
                true => Ok(Some(length / more * fewer)),
                false => {
                    let nearest = ((length + step / 2) / step).max(1) * step;
                    let reason = format!(
                        "{field} is {length}, but two stages need a multiple of {step}; the nearest is {nearest}"
                    );
                    Err(Error::request(field, reason))
                }
            }
        };
        let first = Request {
            height: smaller(1, height, Field::Height)?,
            width: smaller(2, width, Field::Width)?,
            enlarging: None,
            ..request.clone()
        };
        let second = Request {
            height: Some(height),
            width: Some(width),
            solving: Solving::Distilled(Some(levels)),
            steps: None,
            guidance: None,
            second_guidance: None,
            more: MoreGuidance {
                cross_levels: request.more.cross_levels,
                ..MoreGuidance::default()
            },
            flow_shift: None,
            enlarging: None,
            ..request.clone()
        };
        Ok([first, second])
    }

    /// Does `work` with the transformers of the second stage.
    pub(crate) fn as_second<T>(&mut self, work: impl FnOnce(&mut Pipeline) -> T) -> T {
        self.exchange();
        let done = work(self);
        self.exchange();
        done
    }

    /// Puts the transformers of one stage into the place of the other's, where they are others.
    fn exchange(&mut self) {
        let Pipeline { upsampler, transformers, .. } = self;
        let second = upsampler.as_mut().map(|own| &mut own.transformers);
        if let Some(second) = second.filter(|second| !second.is_empty()) {
            std::mem::swap(transformers, second);
        }
    }

    /// The tokens `[samples, N, C]` that the second stage begins from: larger ones of the video that the first has made,
    /// and those of its sound.
    ///
    /// # Errors
    /// The latents do not fit the upsampler, or values are not finite.
    pub(crate) fn enlarge(
        &mut self,
        made: &Samples,
        enlarging: &Enlarging,
    ) -> Result<Tracks<Tensor<3>>> {
        let Pipeline { setup, description, vae, upsampler, .. } = self;
        let device = &setup.device;
        let (Some(latents), Some(upsampler)) = (made.latents.video.clone(), upsampler) else {
            return Ok(Tracks::default());
        };
        let scale = vae.open(device)?;
        let latents = description.vae.released(&Weights::new(scale), latents)?;
        let store = upsampler.component.open(device)?;
        let mut larger = upsampler.network.enlarge(&Weights::new(store), latents.clone())?;
        if enlarging.adain > 0.0 {
            larger = restyled(larger, latents, enlarging.adain);
        }
        if enlarging.tone_map > 0.0 {
            larger = tone_mapped(larger, enlarging.tone_map);
        }
        finite::check(&larger, "the upsampler", store)?;
        let larger = description.vae.received(&Weights::new(scale), larger)?;
        let video = patchify(larger, description.geometry.patch);
        let sound = made.latents.audio.clone();
        let audio = sound.map(|own| description.geometry.audio(&own.squeeze_dim(4)).values);
        Ok(Tracks { video: Some(video), audio })
    }
}

/// Refuses what the step between the stages cannot do.
fn checked(enlarging: &Enlarging) -> Result<()> {
    let within = |field: Field, value: f64, most: f64| match (0.0..=most).contains(&value) {
        true => Ok(()),
        false => Err(Error::request(field, format!("it is {value}; choose 0 (off) to {most}"))),
    };
    within(Field::UpsamplerAdain, enlarging.adain, MOST_ADAIN)?;
    within(Field::UpsamplerToneMap, enlarging.tone_map, 1.0)
}

/// Latents `[B, C, f, h, w]` whose channels have the mean and deviation that those of `reference` have, each sample for
/// itself; `factor` of the way.
fn restyled(latents: Tensor<5>, reference: Tensor<5>, factor: f64) -> Tensor<5> {
    let statistics = |latents: &Tensor<5>| {
        let [batch, channels, frames, rows, columns] = latents.dims();
        let values: Tensor<3> = latents.clone().reshape([batch, channels, frames * rows * columns]);
        let all = [values.clone().mean_dim(2), values.var(2).sqrt()];
        all.map(|own| own.reshape([batch, channels, 1, 1, 1]))
    };
    let ([mean, deviation], [wanted, other]) = (statistics(&latents), statistics(&reference));
    let styled = (latents.clone() - mean) / deviation * other + wanted;
    latents.clone() + (styled - latents) * factor
}

/// Latents whose large values are drawn in, by diffusers' curve.
fn tone_mapped(latents: Tensor<5>, compression: f64) -> Tensor<5> {
    let strength = 0.75 * compression;
    let large = (latents.clone().abs() - 1.0) * (4.0 * strength);
    let scales = burn::tensor::activation::sigmoid(large) * (-0.8 * strength) + 1.0;
    latents * scales
}
