//! The three stages.

use burn::tensor::Tensor;
use diffusion::Branch;
use models::vae::kl::Tiling;
use nn::{Context, Frame, Inputs, Levels, Modality, Plain, Weights};

use super::Pipeline;
use super::job::Job;
use crate::captions::Captions;
use crate::error::Result;
use crate::pipeline::Frames;
use crate::progress::{self, Progress};
use crate::request::{Decoding, Request};
use crate::sampling::Spot;
use crate::{finite, pixels, sizes};

impl Pipeline {
    /// Captions to embeddings.
    pub(super) fn encode(
        &mut self,
        request: &Request,
        job: &Job,
        progress: &mut dyn Progress,
    ) -> Result<Captions> {
        let guided = job.guidance.branches().contains(&Branch::Unconditional);
        let negative = guided.then_some(request.negative.as_str());
        self.text.encode((&request.prompts, negative), &job.rules, &self.device, progress)
    }

    /// Noise to latents, `[pictures, C, h, w]`.
    pub(super) fn latents(
        &mut self,
        job: &Job,
        captions: &Captions,
        progress: &mut dyn Progress,
    ) -> Result<Tensor<4>> {
        let device = self.device.clone();
        let latents = job
            .course
            .run(&device, progress, |spot, tokens| self.predict(job, captions, spot, tokens))?;
        Ok(latents.squeeze_dim::<4>(2))
    }

    /// The guided prediction for one sample at one step, `[1, T, C]`.
    fn predict(
        &mut self,
        job: &Job,
        captions: &Captions,
        spot: Spot,
        tokens: &Tensor<3>,
    ) -> Result<Tensor<3>> {
        let (model, component) = &mut self.transformer;
        let store = component.open(&self.device)?;
        let weights = Weights::new(store);
        let timestep = job.course.solver.steps()[spot.step].timestep as f32;
        let prompt = spot.sample / job.count;
        let [_, rows, columns] = job.course.lattice.grid();
        let device = &self.device;
        let forward = |context: &Context| -> Result<Tensor<3>> {
            let sigma = Tensor::from_floats([timestep], device);
            let video = Modality {
                tokens: tokens.clone(),
                levels: Levels::per_sample(sigma.clone()),
                sigma,
                positions: model.positions([rows, columns], 1, device),
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
        let guided = job.guidance.guide(|branch| match branch {
            Branch::Conditional => forward(&captions.prompts[prompt]),
            Branch::Unconditional => forward(&captions.negatives[prompt]),
        })?;
        finite::check(&guided, &format!("the transformer at step {}", spot.step), store)?;
        // A learned variance follows the prediction; solvers do not use it.
        let [_, count, channels] = tokens.dims();
        Ok(guided.slice([0..1, 0..count, 0..channels]))
    }

    /// Latents to pictures.
    pub(super) fn decode(
        &mut self,
        request: &Request,
        job: &Job,
        latents: &Tensor<4>,
        (progress, frames): (&mut dyn Progress, &mut dyn Frames),
    ) -> Result<()> {
        let (vae, component) = &mut self.vae;
        let store = component.open(&self.device)?;
        let weights = Weights::new(store);
        let tiling = (request.decoding == Decoding::Tiled).then(|| Tiling::of(&vae.config));
        for sample in 0..job.course.samples {
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
            finite::check(&image, "the VAE", store)?;
            let image = sizes::resize_and_crop(image, job.asked);
            let pixels = image.squeeze_dim::<3>(0).permute([1, 2, 0]);
            frames.frame(sample, pixels::frame(pixels)?)?;
        }
        Ok(())
    }
}
