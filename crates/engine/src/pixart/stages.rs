//! The three stages. One forward pass per guidance branch and per picture.

use burn::tensor::{Int, Tensor, TensorData};
use diffusion::{Branch, Draw, denoise};
use models::vae::kl::Tiling;
use nn::{Context, Frame, Inputs, Levels, Modality, Plain, Store, Weights};

use super::Pipeline;
use super::job::{Captions, Job};
use crate::error::{Error, Result};
use crate::picture::Picture;
use crate::progress::{self, Progress};
use crate::request::{CaptionStyle, Decoding, Request};
use crate::sizes;
use crate::tokenizer::{Tokenizer, caption};

impl Pipeline {
    /// Captions to embeddings.
    pub(super) fn encode(
        &mut self,
        request: &Request,
        job: &Job,
        progress: &mut dyn Progress,
    ) -> Result<Captions> {
        let guided = job.guidance.branches().len() == 2;
        let mut texts: Vec<&str> = request.prompts.iter().map(String::as_str).collect();
        if guided {
            texts.push(&request.negative);
        }
        progress.begin("encode", texts.len());
        let mut contexts = Vec::with_capacity(texts.len());
        for (done, text) in texts.iter().enumerate() {
            progress::check(progress)?;
            contexts.push(self.embed(text, request.clean_caption, job.max_tokens)?);
            progress.reach(done + 1);
        }
        let negatives = match guided {
            true => vec![contexts.pop().expect("the negative prompt came last"); contexts.len()],
            false => Vec::new(),
        };
        Ok(Captions { prompts: contexts, negatives })
    }

    fn embed(&mut self, text: &str, style: CaptionStyle, max_tokens: usize) -> Result<Context> {
        let text = match style {
            CaptionStyle::Plain => caption::plain(text),
            CaptionStyle::Cleaned => caption::cleaned(text)?,
        };
        let (ids, mask) = self.tokens(&self.tokenizer, &text, max_tokens)?;
        let (encoder, component) = &mut self.text;
        let store = component.open(&self.device)?;
        let tokens = encoder.encode(&Weights::new(store), ids, mask.clone())?;
        finite(&tokens, "the text encoder", store)?;
        Ok(Context::text(tokens, Some(mask)))
    }

    /// Token ids and mask, `[1, L]` each.
    fn tokens(
        &self,
        tokenizer: &Tokenizer,
        text: &str,
        max_tokens: usize,
    ) -> Result<(Tensor<2, Int>, Tensor<2>)> {
        let tokens = tokenizer.encode(text, max_tokens)?;
        let shape = [1, tokens.ids.len()];
        let ids: Vec<i64> = tokens.ids.iter().map(|id| i64::from(*id)).collect();
        let mask: Vec<f32> = tokens.mask.iter().map(|keep| f32::from(*keep)).collect();
        Ok((
            Tensor::from_data(TensorData::new(ids, shape), &self.device),
            Tensor::from_data(TensorData::new(mask, shape), &self.device),
        ))
    }

    /// Noise to latents, `[pictures, C, h, w]`.
    pub(super) fn latents(
        &mut self,
        job: &Job,
        captions: &Captions,
        progress: &mut dyn Progress,
    ) -> Result<Tensor<4>> {
        let steps = job.solver.steps().len();
        progress.begin("denoise", job.samples * steps);
        let mut latents = Vec::with_capacity(job.samples);
        for sample in 0..job.samples {
            let tokens = self.initial(job, sample);
            let patch = vec![(tokens, job.solver.state())];
            let prompt = sample / job.count;
            let patches = denoise(0..steps, patch, |place, (tokens, mut state)| {
                progress::check(progress)?;
                let prediction = self.predict(job, captions, prompt, place.step, &tokens)?;
                let noise = job.solver.wants_noise(place.step).then(|| {
                    let draw = Draw::new(job.seed).stream("solver-noise").step(place.step as u64);
                    self.tokens_of(draw.sample(sample as u64), job)
                });
                let tokens = job.solver.step(place.step, &mut state, tokens, prediction, noise)?;
                progress.reach(sample * steps + place.step + 1);
                Ok::<_, Error>((tokens, state))
            })?;
            let (tokens, _) = patches.into_iter().next().expect("one patch went in");
            let patch = self.transformer.0.config.patch;
            let image = nn::unpatchify(tokens, [1, job.grid[0], job.grid[1]], [1, patch, patch]);
            latents.push(image.squeeze_dim::<4>(2));
        }
        Ok(Tensor::cat(latents, 0))
    }

    /// The latents a sample starts from, as tokens `[1, T, C]`.
    fn initial(&self, job: &Job, sample: usize) -> Tensor<3> {
        let tokens = match &job.noise {
            Some(noise) => self.patchify(noise.clone().slice_dim(0, sample..sample + 1)),
            None => {
                let draw = Draw::new(job.seed).stream("initial-noise");
                self.tokens_of(draw.sample(sample as u64), job)
            }
        };
        tokens * job.solver.initial_scale()
    }

    /// Standard normal latents of one sample as tokens. The draw is keyed by the element of the
    /// latents, so it does not depend on how tokens are cut.
    fn tokens_of(&self, draw: Draw, job: &Job) -> Tensor<3> {
        let channels = self.transformer.0.config.in_channels;
        let shape = [1, channels, job.latent[0], job.latent[1]];
        self.patchify(draw.normal_tensor(shape, &self.device))
    }

    fn patchify(&self, latents: Tensor<4>) -> Tensor<3> {
        let patch = self.transformer.0.config.patch;
        nn::patchify(latents.unsqueeze_dim::<5>(2), [1, patch, patch])
    }

    /// The guided prediction for one sample at one step, `[1, T, C]`.
    fn predict(
        &mut self,
        job: &Job,
        captions: &Captions,
        prompt: usize,
        step: usize,
        tokens: &Tensor<3>,
    ) -> Result<Tensor<3>> {
        let (model, component) = &mut self.transformer;
        let store = component.open(&self.device)?;
        let weights = Weights::new(store);
        let timestep = job.solver.steps()[step].timestep as f32;
        let channels = tokens.dims()[2];
        let forward = |context: &Context| -> Result<Tensor<3>> {
            let device = &self.device;
            let sigma = Tensor::from_floats([timestep], device);
            let video = Modality {
                tokens: tokens.clone(),
                levels: Levels::per_sample(sigma.clone()),
                sigma,
                positions: model.positions(job.grid, 1, device),
                context: context.clone(),
                frame: model.config.sees_frame.then(|| Frame {
                    resolution: Tensor::from_floats([job.size.map(|side| side as f32)], device),
                    aspect_ratio: Tensor::from_floats(
                        [[(job.size[0] as f64 / job.size[1] as f64) as f32]],
                        device,
                    ),
                }),
                enabled: true,
            };
            let inputs = Inputs { video, audio: None };
            Ok(nn::forward(model, &weights, &inputs, &mut Plain)?.video)
        };
        let mut guided = forward(&captions.prompts[prompt])?;
        if job.guidance.branches().contains(&Branch::Unconditional) {
            let unconditional = forward(&captions.negatives[prompt])?;
            guided = job.guidance.combine(guided, unconditional);
        }
        finite(&guided, &format!("the transformer at step {step}"), store)?;
        // A learned variance follows the prediction; solvers do not use it.
        Ok(guided.slice([0..1, 0..job.grid[0] * job.grid[1], 0..channels]))
    }

    /// Latents to pictures.
    pub(super) fn decode(
        &mut self,
        request: &Request,
        job: &Job,
        latents: &Tensor<4>,
        progress: &mut dyn Progress,
    ) -> Result<Vec<Picture>> {
        let (vae, component) = &mut self.vae;
        let store = component.open(&self.device)?;
        let weights = Weights::new(store);
        let tiling = (request.decoding == Decoding::Tiled).then(|| Tiling::of(&vae.config));
        let mut pictures = Vec::with_capacity(job.samples);
        for sample in 0..job.samples {
            progress::check(progress)?;
            let latent =
                latents.clone().slice_dim(0, sample..sample + 1) / vae.config.scaling_factor;
            let mut begun = false;
            let image = vae.decode(&weights, latent, tiling.as_ref(), &mut |done, total| {
                if !begun {
                    progress.begin("decode", total);
                    begun = true;
                }
                progress.reach(done);
            })?;
            finite(&image, "the VAE", store)?;
            let image = sizes::resize_and_crop(image, job.asked);
            pictures.push(Picture::new(image.squeeze_dim::<3>(0))?);
        }
        Ok(pictures)
    }
}

/// Checks an activation; if it is not finite, looks for the weight that is to blame.
fn finite<const D: usize>(tensor: &Tensor<D>, stage: &str, store: &Store) -> Result<()> {
    let values = tensor.to_data();
    let sound = values.as_slice::<f32>().is_ok_and(|values| values.iter().all(|x| x.is_finite()));
    if sound {
        return Ok(());
    }
    let cause = match store.first_not_finite() {
        Some(name) => format!(": tensor `{name}` of {} is not finite", store.origin()),
        None => {
            "; every weight is finite, so the sums overflowed: is it the right model?".to_owned()
        }
    };
    Err(Error::NotFinite { stage: stage.to_owned(), cause })
}
