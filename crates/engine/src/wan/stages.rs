//! The three stages.

use std::cell::RefCell;

use burn::tensor::{Int, Tensor};
use diffusion::Branch;
use models::vae::wan::{DecodedFrame, Tiling};
use nn::{Context, Inputs, Levels, Modality, Plain, Weights};

use super::Pipeline;
use super::condition::Condition;
use super::experts::Part;
use super::job::Job;
use crate::captions::Captions;
use crate::error::Result;
use crate::pipeline::Frames;
use crate::progress::{self, Progress};
use crate::request::{Decoding, Request};
use crate::sampling::Spot;
use crate::{finite, pixels};

impl Pipeline {
    /// Captions to embeddings, padded with zeros to the length the model was trained with.
    pub(super) fn encode(
        &mut self,
        request: &Request,
        job: &Job,
        progress: &mut dyn Progress,
    ) -> Result<Captions> {
        let negative = job.guided().then_some(request.negative.as_str());
        self.text.encode((&request.prompts, negative), &job.rules, &self.device, progress)
    }

    /// Noise to latents, `[clips, C, F, h, w]`.
    pub(super) fn latents(
        &mut self,
        job: &Job,
        captions: &Captions,
        condition: &Condition,
        progress: &mut dyn Progress,
    ) -> Result<Tensor<5>> {
        let device = self.device.clone();
        let latents = job.course.run(&device, progress, |spot, tokens| {
            self.predict(job, captions, condition, (spot, tokens))
        })?;
        let Some(first) = &condition.first else { return Ok(latents) };
        let first = nn::unpatchify(first.clone(), first_grid(job), job.course.lattice.patch);
        let [clips, _, frames, _, _] = latents.dims();
        let rest = latents.slice_dim(2, 1..frames);
        Ok(Tensor::cat(vec![first.repeat_dim(0, clips), rest], 2))
    }

    /// The guided prediction for one sample at one step, `[1, T, C]`.
    fn predict(
        &mut self,
        job: &Job,
        captions: &Captions,
        condition: &Condition,
        (spot, tokens): (Spot, &Tensor<3>),
    ) -> Result<Tensor<3>> {
        let timestep = job.course.solver.steps()[spot.step].timestep;
        let part = self.experts.part(timestep);
        let (model, store) = self.experts.at(part, &self.device)?;
        let weights = Weights::new(store);
        let prompt = spot.sample / job.count;
        let positions = model.positions(job.course.lattice.grid(), 1, &self.device);
        let (tokens, levels) = conditioned(tokens, timestep as f32, condition);
        let forward = |context: &Context| -> Result<Tensor<3>> {
            let image = condition.seen.clone();
            let video = Modality {
                tokens: tokens.clone(),
                levels: levels.clone(),
                sigma: Tensor::from_floats([timestep as f32], &self.device),
                positions: positions.clone(),
                context: Context { image, ..context.clone() },
                frame: None,
                enabled: true,
            };
            let inputs = Inputs { video, audio: None };
            Ok(nn::forward(model, &weights, &inputs, &mut Plain)?.video)
        };
        let guidance = job.guidance[usize::from(part == Part::Second)];
        let guided = guidance.guide(|branch| match branch {
            Branch::Conditional => forward(&captions.prompts[prompt]),
            Branch::Unconditional => forward(&captions.negatives[prompt]),
        })?;
        finite::check(&guided, &format!("the transformer at step {}", spot.step), store)?;
        Ok(guided)
    }

    /// Latents to frames, handed on as they are decoded.
    pub(super) fn decode(
        &mut self,
        request: &Request,
        latents: &Tensor<5>,
        progress: &mut dyn Progress,
        frames: &mut dyn Frames,
    ) -> Result<()> {
        let (vae, component) = &mut self.vae;
        let store = component.open(&self.device)?;
        let weights = Weights::new(store);
        let tiling = (request.decoding == Decoding::Tiled).then(Tiling::default);
        let latents = vae.restored(latents.clone());
        let [clips, _, latent_frames, _, _] = latents.dims();
        let whole = clips * vae.frames(latent_frames);
        progress.begin("decode", whole);
        // Both closures watch the same progress; only one of them runs at a time.
        let watched = RefCell::new(progress);
        let mut take = |frame: DecodedFrame| {
            progress::check(&**watched.borrow())?;
            finite::check(&frame.pixels, "the VAE", store)?;
            frames.frame(frame.sample, pixels::frame(frame.pixels)?)
        };
        // Tiles make a frame several times over; the bar counts whole ones.
        let mut reach = |done: usize, total: usize| {
            watched.borrow_mut().reach(done * whole / total);
        };
        vae.decode(&weights, latents, tiling.as_ref(), &mut take, &mut reach)
    }
}

/// Frames, rows and columns of the tokens of the first latent frame.
fn first_grid(job: &Job) -> [usize; 3] {
    let [_, rows, columns] = job.course.lattice.grid();
    [1, rows, columns]
}

/// The tokens and noise levels that the network is given: with clean tokens in place of the first
/// ones, whose level is 0, and with what stands beside them.
fn conditioned(tokens: &Tensor<3>, timestep: f32, condition: &Condition) -> (Tensor<3>, Levels) {
    let device = tokens.device();
    let [_, count, _] = tokens.dims();
    if let Some(first) = &condition.first {
        let clean = first.dims()[1];
        let rest = tokens.clone().slice_dim(1, clean..count);
        let index = Tensor::<1, Int>::arange(0..count as i64, &device).lower_elem(clean as i64);
        let levels = Levels {
            distinct: Tensor::from_floats([[timestep, 0.0]], &device),
            index: Some(index.int().reshape([1, count])),
        };
        return (Tensor::cat(vec![first.clone(), rest], 1), levels);
    }
    let levels = Levels::per_sample(Tensor::from_floats([timestep], &device));
    let tokens = match &condition.beside {
        Some(beside) => Tensor::cat(vec![tokens.clone(), beside.clone()], 2),
        None => tokens.clone(),
    };
    (tokens, levels)
}
