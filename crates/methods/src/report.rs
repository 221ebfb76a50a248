//! What methods say about the losses of tracks.

use burn::tensor::Tensor;
use nn::Tracks;
use train::{LossReport, Losses, ModelInputs};

/// The losses of every track outside their graph, noted while the total is differentiated.
#[derive(Default)]
pub(crate) struct Noted(Tracks<Vec<f32>>);

impl Noted {
    pub(crate) fn new(losses: &Losses) -> Noted {
        let values = |loss: &Tensor<1>| loss.clone().inner().into_data().iter::<f32>().collect();
        Noted(losses.tracks.as_ref().map(values))
    }

    /// The total and, where there are two tracks, their parts: each by its own noise level.
    pub(crate) fn reports(
        self,
        role: &'static str,
        total: Vec<f32>,
        inputs: &ModelInputs,
    ) -> Vec<LossReport> {
        let Tracks { video, audio } = inputs.targets.as_ref().map(|target| target.sigma.clone());
        let report = |name, values, sigmas| LossReport { role, name, values, sigmas };
        match (self.0.video, self.0.audio) {
            (Some(seen), Some(heard)) => vec![
                report("loss", total, None),
                report("loss.video", seen, video),
                report("loss.audio", heard, audio),
            ],
            (None, Some(_)) => vec![report("loss", total, audio)],
            _ => vec![report("loss", total, video)],
        }
    }
}
