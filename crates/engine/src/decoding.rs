//! The last stage of a run: latents to sounds and frames, handed on as they are decoded.

use std::cell::RefCell;
use std::ops::ControlFlow;

use burn::tensor::Tensor;
use comm::Group;
use data::media::Frame;
use models::vae::{ClipDecode, DecodedFrame};
use nn::Weights;
use parallel::Strips;

use crate::error::{Error, Result};
use crate::job::Job;
use crate::pipeline::{Frames, Pipeline};
use crate::progress::Progress;
use crate::replica;
use crate::request::{Decoding, Request};
use crate::stages::Samples;
use crate::{finite, pixels, sizes};

impl Pipeline {
    /// Decodes what was sampled, on the first rank of a replica or, strip by strip, on several. The first of
    /// them gives the latents and gets the frames.
    pub(crate) fn decode(
        &mut self,
        request: &Request,
        job: &Job,
        made: &Samples,
        progress: &mut dyn Progress,
        frames: &mut dyn Frames,
    ) -> Result<()> {
        let strips = self.strips();
        if strips.group.rank() == 0 {
            self.decode_sounds(made, frames)?;
        }
        let Some(latents) = made.latents.video.clone().filter(|_| !job.only_audio) else {
            return Ok(());
        };
        let latents = strips.deal(latents)?;
        let Pipeline { setup, description, vae, .. } = self;
        let store = vae.open(&setup.device)?;
        let mut failure = None;
        // Both closures watch the same progress; only one of them runs at a time.
        let watched = RefCell::new((progress, false));
        let mut take = |DecodedFrame { sample, pixels, .. }: DecodedFrame| {
            let stop = watched.borrow().0.interrupted();
            let taken = check(&strips.group, stop)
                .and_then(|()| finite::check(&pixels, "the VAE", store))
                .and_then(|()| Ok(strips.joined(pixels)?))
                .and_then(|whole| {
                    let Some(whole) = whole else { return Ok(()) };
                    let pixels = sizes::resize_and_crop(whole, job.delivered);
                    frames.frame(sample, pixels::frame(pixels)?)
                });
            match taken {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failure = Some(error);
                    ControlFlow::Break(())
                }
            }
        };
        let mut tell = |done: usize, total: usize| {
            let (progress, begun) = &mut *watched.borrow_mut();
            if !*begun {
                progress.begin("decode", total);
                *begun = true;
            }
            progress.reach(done);
        };
        let tiled = request.decoding == Decoding::Tiled;
        let provider = strips.of(store);
        let weights = match strips.group.size() {
            1 => Weights::new(store),
            _ => Weights::new(&provider),
        };
        let (weights, take, progress) = (&weights, &mut take, &mut tell);
        description.vae.decode_clips(ClipDecode { weights, latents, tiled, take, progress })?;
        failure.map_or(Ok(()), Err)
    }

    /// The first frame of latents `[samples, C, F, h, w]`, for those who look on.
    pub(crate) fn first_frame(
        &mut self,
        job: &Job,
        latents: Option<Tensor<5>>,
    ) -> Result<Option<Frame>> {
        let Some(latents) = latents else { return Ok(None) };
        let latents = latents.slice_dim(0, 0..1);
        let Pipeline { setup, description, vae, .. } = self;
        let weights = &Weights::new(vae.open(&setup.device)?);
        let mut first = None;
        let mut take = |frame: DecodedFrame| {
            first = Some(frame.pixels);
            ControlFlow::Break(())
        };
        let decode = ClipDecode {
            weights,
            latents,
            tiled: false,
            take: &mut take,
            progress: &mut |_, _| {},
        };
        description.vae.decode_clips(decode)?;
        let shown =
            first.map(|pixels| pixels::frame(sizes::resize_and_crop(pixels, job.delivered)));
        shown.transpose()
    }

    fn decode_sounds(&mut self, made: &Samples, frames: &mut dyn Frames) -> Result<()> {
        let Pipeline { setup, description, sound, .. } = self;
        let (Some(latents), Some(own)) = (&made.latents.audio, &description.sound) else {
            return Ok(());
        };
        // `[samples, C, T, bins, 1]`: a sample at a time needs the least memory.
        let latents: Tensor<4> = latents.clone().squeeze_dim(4);
        for sample in 0..latents.dims()[0] {
            let one = latents.clone().slice_dim(0, sample..sample + 1);
            for wave in sound.decode(own, one, &setup.device)? {
                frames.sound(sample, wave)?;
            }
        }
        Ok(())
    }

    /// The ranks of this replica that decode; this rank may not be one of them.
    fn strips(&self) -> Strips {
        self.setup.strips.clone().unwrap_or(Strips { group: Group::solo() })
    }
}

/// Whether to go on, on all ranks alike.
fn check(group: &Group, interrupted: bool) -> Result<()> {
    match replica::agree(group, interrupted)? {
        true => Err(Error::Interrupted),
        false => Ok(()),
    }
}
