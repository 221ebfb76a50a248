//! A sampler's run over the stages: who has which tokens when.

use std::ops::Range;

use burn::tensor::Tensor;
use comm::{Axis, Expected};
use diffusion::{Moving, Noise, Place, Sampled, Sampler, Scene, SolverState, TrackKind, denoise};
use nn::{Context, Prediction, Tracks};

use super::segments::{Segment, segments};
use super::stage::{At, Stage};
use super::{Experts, PipeFusion, patches_of};
use crate::branches::exchanged;
use crate::shard::Pieces;

/// What a rank knows of a run. Stages between the first and the last have no use for tokens.
struct Run<'a> {
    pipe: &'a PipeFusion,
    stage: Stage<'a>,
    sampler: &'a Sampler,
    scene: &'a Scene,
    branches: Vec<Scene>,
    noise: &'a Noise,
    /// Tokens of the tracks without references, patch by patch.
    own: Tracks<Vec<Range<usize>>>,
}

/// A patch of the tracks on its way.
#[derive(Default)]
struct Patch {
    /// The newest tokens that this rank has of it, with the solver's memory on the last stage.
    moving: Tracks<Moving>,
    /// Those that the last stage sends to the first.
    coming: Tracks<Expected<3>>,
}

impl PipeFusion {
    /// Samples what is free in a scene; every rank of the mesh's replica runs it. The result is whole on the
    /// first and on the last stage.
    ///
    /// # Errors
    /// Whatever the sampler, a network, an exchange or `experts` reports.
    pub fn run<E: Experts>(
        &self,
        sampler: &Sampler,
        scene: &Scene,
        unconditional: Option<&Context>,
        noise: &Noise,
        experts: &mut E,
    ) -> Result<Sampled, E::Error> {
        let cut = |_: &'static str, track: &diffusion::Track| {
            let (lead, own) = (track.reference_tokens(), track.tokens());
            (lead, own, patches_of(lead, own, self.patches))
        };
        let tracks = scene.each(cut);
        let own = tracks.as_ref().map(|(_, own, _)| {
            (0..self.patches).map(|patch| comm::share(*own, patch, self.patches)).collect()
        });
        let patches: Tracks<Pieces> = tracks.map(|(_, _, pieces)| pieces);
        let run = Run {
            pipe: self,
            stage: Stage::new(self, patches),
            sampler,
            scene,
            branches: sampler.branches(scene, unconditional)?,
            noise,
            own,
        };
        let mut moving = sampler.start(scene, noise);
        for Segment { steps, patched } in
            segments(sampler.steps().len(), self.warmup, |step| experts.expert(step))
        {
            moving = match patched {
                false => run.at_once(steps, moving, experts)?,
                true => run.by_patch(steps, moving, experts)?,
            };
        }
        Ok(sampler.finish(scene, moving.map(|(tokens, _)| tokens)))
    }
}

impl Run<'_> {
    /// Takes steps with the whole sequence.
    fn at_once<E: Experts>(
        &self,
        steps: Range<usize>,
        moving: Tracks<Moving>,
        experts: &mut E,
    ) -> Result<Tracks<Moving>, E::Error> {
        let end = denoise(steps, vec![moving], |Place { step, .. }, moving| {
            let tokens = moving.clone().map(|(tokens, _)| tokens);
            let Some(prediction) = self.predict(step, None, &tokens, experts)? else {
                return self.returned(step, moving);
            };
            let next = self.sampler.advance(self.scene, moving, prediction, step, self.noise)?;
            self.send_back(step, None, &next)?;
            Ok::<_, E::Error>(next)
        })?;
        Ok(end.into_iter().next().expect("one patch goes in and comes out"))
    }

    /// The whole tokens after a step, on stages that do not take it.
    fn returned<E: From<comm::Error>>(
        &self,
        step: usize,
        moving: Tracks<Moving>,
    ) -> Result<Tracks<Moving>, E> {
        if !self.stage.is_first() {
            return Ok(moving);
        }
        let last = self.stage.group().size() - 1;
        let made = moving.named().try_map(|(name, (tokens, state))| {
            let group = self.stage.group().named(back(name, None, step));
            let tokens = if self.moves(name) { group.recv(last)? } else { tokens };
            Ok::<_, comm::Error>((tokens, state))
        })?;
        Ok(made)
    }

    /// Takes steps patch by patch.
    fn by_patch<E: Experts>(
        &self,
        steps: Range<usize>,
        moving: Tracks<Moving>,
        experts: &mut E,
    ) -> Result<Tracks<Moving>, E::Error> {
        // What the first stage builds inputs from: the newest tokens of all patches.
        let mut newest = moving.clone().map(|(tokens, _)| tokens);
        let patches = self.split(moving)?;
        let patches = denoise(steps, patches, |Place { step, patch: at }, patch| {
            let patch = self.arrived(patch, at, &mut newest)?;
            let Some(prediction) = self.predict(step, Some(at), &newest, experts)? else {
                return Ok::<_, E::Error>(self.expecting(patch, at, step)?);
            };
            let moving = self.advance(patch.moving, prediction, step, at)?;
            self.send_back(step, Some(at), &moving)?;
            Ok(Patch { moving, coming: Tracks::default() })
        })?;
        let arrive = |(at, patch)| self.arrived(patch, at, &mut newest);
        let patches: Vec<Patch> =
            patches.into_iter().enumerate().map(arrive).collect::<comm::Result<_>>()?;
        Ok(self.join(patches)?)
    }

    /// What all branches say together about the tokens at hand, on the last stage.
    fn predict<E: Experts>(
        &self,
        step: usize,
        patch: Option<usize>,
        tokens: &Tracks<Tensor<3>>,
        experts: &mut E,
    ) -> Result<Option<Tracks<Tensor<3>>>, E::Error> {
        let inputs = self.sampler.inputs(&self.branches, tokens, step);
        let cfg = self.pipe.mesh.axis(Axis::Cfg);
        let alone = inputs.len() == 1;
        let mine = |branch: usize| alone || branch % cfg.size() == cfg.rank();
        if self.stage.is_first()
            && patch.is_none_or(|patch| patch == 0)
            && let Err(stop) = experts.check(step)
        {
            let branch = (0..inputs.len()).find(|branch| mine(*branch)).unwrap_or(0);
            self.stage.tell_to_stop(At { step, patch, branch })?;
            return Err(stop);
        }
        let mut made: Vec<Option<Prediction>> = Vec::with_capacity(inputs.len());
        for (branch, inputs) in inputs.iter().enumerate() {
            made.push(match mine(branch) {
                true => self.stage.pass(experts, At { step, patch, branch }, inputs)?,
                false => None,
            });
        }
        if !self.stage.is_last() {
            return Ok(None);
        }
        let mut all = Vec::with_capacity(made.len());
        for (branch, (own, inputs)) in made.into_iter().zip(&inputs).enumerate() {
            all.push(match (alone || cfg.size() == 1, own) {
                (true, own) => own.expect("the last stage predicts its branches"),
                (false, own) => exchanged(cfg, branch, inputs, own)?,
            });
        }
        Ok(Some(self.guided(all, tokens, step, patch)?))
    }

    /// The branches of a step as one, for the own tokens at hand.
    fn guided(
        &self,
        predictions: Vec<Prediction>,
        tokens: &Tracks<Tensor<3>>,
        step: usize,
        patch: Option<usize>,
    ) -> diffusion::Result<Tracks<Tensor<3>>> {
        let Some(patch) = patch else {
            return self.sampler.guide(self.scene, predictions, tokens, step);
        };
        // References lead the first patch; they have no future.
        let own = |prediction: Prediction| {
            let own = self.scene.tracks().zip(prediction).zip(self.own.as_ref());
            own.map(|((track, said), ranges)| {
                let [_, tokens, _] = said.dims();
                let count = ranges[patch].len();
                track.without_variance(said.narrow(1, tokens - count, count))
            })
        };
        let noisy = tokens.clone().zip(self.own.as_ref());
        let noisy = noisy.map(|(tokens, ranges)| tokens.slice_dim(1, ranges[patch].clone()));
        self.sampler.combine(predictions.into_iter().map(own).collect(), &noisy, step)
    }

    /// A patch one step on.
    fn advance(
        &self,
        moving: Tracks<Moving>,
        prediction: Tracks<Tensor<3>>,
        step: usize,
        patch: usize,
    ) -> diffusion::Result<Tracks<Moving>> {
        let all = self.scene.tracks().zip(moving).zip(self.own.as_ref()).beside(prediction).named();
        all.try_map(|(name, (((track, moving), ranges), said))| {
            let Some(said) = said.filter(|_| track.kind == TrackKind::Generated) else {
                return Ok(moving);
            };
            let range = ranges[patch].clone();
            let fresh = self.sampler.fresh_noise(track, name, step, self.noise);
            let fresh = fresh.map(|noise| noise.slice_dim(1, range));
            self.sampler.step(moving, said, step, fresh)
        })
    }

    /// Whether a track changes at all.
    fn moves(&self, name: &str) -> bool {
        let tracks = self.scene.tracks().named();
        tracks.into_iter().any(|(own, track)| own == name && track.kind == TrackKind::Generated)
    }

    /// Sends what the last stage made to the first.
    fn send_back(
        &self,
        step: usize,
        patch: Option<usize>,
        moving: &Tracks<Moving>,
    ) -> comm::Result<()> {
        if self.stage.is_first() {
            return Ok(());
        }
        moving.as_ref().named().try_map(|(name, (tokens, _))| match self.moves(name) {
            true => self.stage.group().named(back(name, patch, step)).send(0, tokens.clone()),
            false => Ok(()),
        })?;
        Ok(())
    }

    /// The patch after a step that another rank takes: the first stage expects it.
    fn expecting(&self, patch: Patch, at: usize, step: usize) -> comm::Result<Patch> {
        if !self.stage.is_first() {
            return Ok(patch);
        }
        let last = self.stage.group().size() - 1;
        let coming = self.scene.tracks().named().map(|(name, _)| {
            let group = self.stage.group().named(back(name, Some(at), step));
            self.moves(name).then(|| group.expect(last)).transpose()
        });
        let coming = coming.try_map(|own| own)?;
        let coming = Tracks { video: coming.video.flatten(), audio: coming.audio.flatten() };
        Ok(Patch { coming, ..patch })
    }

    /// The patch when what it waits for is there; the newest tokens follow.
    fn arrived(
        &self,
        patch: Patch,
        at: usize,
        newest: &mut Tracks<Tensor<3>>,
    ) -> comm::Result<Patch> {
        let Patch { moving, coming } = patch;
        let moving = moving.beside(coming).try_map(|((tokens, state), coming)| match coming {
            Some(coming) => Ok::<_, comm::Error>((coming.wait()?, state)),
            None => Ok((tokens, state)),
        })?;
        let all = newest.clone().zip(moving.clone()).zip(self.own.as_ref());
        *newest = all.map(|((newest, (tokens, _)), ranges)| {
            let [samples, _, channels] = newest.dims();
            newest.slice_assign([0..samples, ranges[at].clone(), 0..channels], tokens)
        });
        Ok(Patch { moving, coming: Tracks::default() })
    }

    /// Tokens and the solver's memory of them, patch by patch.
    fn split(&self, moving: Tracks<Moving>) -> diffusion::Result<Vec<Patch>> {
        let parts = moving.zip(self.own.as_ref()).try_map(|((tokens, state), ranges)| {
            let states = state.split(ranges)?;
            let cut = |range: &Range<usize>| tokens.clone().slice_dim(1, range.clone());
            Ok::<_, diffusion::Error>(ranges.iter().map(cut).zip(states).collect::<Vec<_>>())
        })?;
        let one = |at: usize| parts.as_ref().map(|own| own[at].clone());
        let patch = |at| Patch { moving: one(at), coming: Tracks::default() };
        Ok((0..self.pipe.patches).map(patch).collect())
    }

    /// The whole again.
    fn join(&self, patches: Vec<Patch>) -> diffusion::Result<Tracks<Moving>> {
        let mut all: Tracks<Vec<Moving>> = self.scene.tracks().map(|_| Vec::new());
        for patch in patches {
            let pairs = all.as_mut().zip(patch.moving);
            pairs.into_iter().for_each(|(all, moving)| all.push(moving));
        }
        all.try_map(|parts| {
            let (tokens, states): (Vec<Tensor<3>>, Vec<SolverState>) = parts.into_iter().unzip();
            Ok((Tensor::cat(tokens, 1), SolverState::join(states)?))
        })
    }
}

/// What a message from the last stage to the first is about.
fn back(track: &str, patch: Option<usize>, step: usize) -> String {
    match patch {
        Some(patch) => format!("the new {track} of patch {patch} after step {step}"),
        None => format!("the new {track} after step {step}"),
    }
}
