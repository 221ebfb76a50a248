//! A half of the autoencoder as a stream: frames go in, frames come out as soon as they can.

use nn::{Error, Result};

use super::layers::{FrameTensor, Layer};

/// About how many pixels go through a layer at a time. Fewer would read a layer's weights too often
/// for too little work, more would only take memory.
const TOGETHER: usize = 128 * 128;

/// A network for one clip, and what it remembers of it.
#[derive(Default)]
pub(super) struct Stream {
    stages: Vec<Stage>,
}

/// Layers that a group of frames passes together.
struct Stage {
    layers: Vec<Box<dyn Layer>>,
    /// Frames come in multiples of this, except the first of the clip, which comes alone.
    grain: usize,
    waiting: Vec<FrameTensor>,
    started: bool,
}

impl Stream {
    /// Begins a stage, which takes frames in multiples of `grain`.
    pub(super) fn stage(&mut self, grain: usize) {
        self.stages.push(Stage { layers: Vec::new(), grain, waiting: Vec::new(), started: false });
    }

    /// Adds a layer to the last stage.
    pub(super) fn layer(&mut self, layer: impl Layer + 'static) {
        if self.stages.is_empty() {
            self.stage(1);
        }
        if let Some(stage) = self.stages.last_mut() {
            stage.layers.push(Box::new(layer));
        }
    }

    /// Sends the next frames of the clip through; `emit` gets the results in order, few at a time.
    pub(super) fn push<E: From<Error>>(
        &mut self,
        frames: Vec<FrameTensor>,
        emit: &mut dyn FnMut(Vec<FrameTensor>) -> Result<(), E>,
    ) -> Result<(), E> {
        flow(&mut self.stages, frames, emit)
    }
}

/// Depth first, so that no stage makes more than the next one is about to take.
fn flow<E: From<Error>>(
    stages: &mut [Stage],
    frames: Vec<FrameTensor>,
    emit: &mut dyn FnMut(Vec<FrameTensor>) -> Result<(), E>,
) -> Result<(), E> {
    let Some((stage, rest)) = stages.split_first_mut() else { return emit(frames) };
    for group in stage.groups(frames) {
        let mut layers = stage.layers.iter_mut();
        let out = layers.try_fold(group, |frames, layer| layer.apply(frames))?;
        flow(rest, out, emit)?;
    }
    Ok(())
}

impl Stage {
    /// The frames that are ready, in the groups that they go through in.
    fn groups(&mut self, frames: Vec<FrameTensor>) -> Vec<Vec<FrameTensor>> {
        self.waiting.extend(frames);
        let Some(frame) = self.waiting.first() else { return Vec::new() };
        let [height, width, _] = frame.dims();
        let together = TOGETHER / (height * width).max(1) / self.grain * self.grain;
        let mut groups = Vec::new();
        if !std::mem::replace(&mut self.started, true) {
            groups.push(self.waiting.drain(..1).collect());
        }
        while self.waiting.len() >= self.grain {
            let ready = self.waiting.len() / self.grain * self.grain;
            let count = ready.min(together.max(self.grain));
            groups.push(self.waiting.drain(..count).collect());
        }
        groups
    }
}
