//! What methods say about the losses of tracks.

use burn::tensor::Tensor;
use train::{LossReport, Losses, ModelInputs};

/// The losses of every track outside their graph, noted while the total is differentiated.
#[derive(Default)]
pub(crate) struct Noted {
    video: Option<Vec<f32>>,
    audio: Option<Vec<f32>>,
}

impl Noted {
    pub(crate) fn new(losses: &Losses) -> Noted {
        let values = |loss: &Tensor<1>| loss.clone().inner().into_data().iter::<f32>().collect();
        Noted { video: losses.video.as_ref().map(values), audio: losses.audio.as_ref().map(values) }
    }

    /// The total and, where there are two tracks, their parts: each by its own noise level.
    pub(crate) fn reports(
        self,
        role: &'static str,
        total: Vec<f32>,
        inputs: &ModelInputs,
    ) -> Vec<LossReport> {
        let sound = inputs.targets.audio.as_ref().map(|target| target.sigma.clone());
        let video = Some(inputs.targets.video.sigma.clone());
        let report = |name, values, sigmas| LossReport { role, name, values, sigmas };
        match (self.video, self.audio) {
            (Some(seen), Some(heard)) => vec![
                report("loss", total, None),
                report("loss.video", seen, video),
                report("loss.audio", heard, sound),
            ],
            (None, Some(_)) => vec![report("loss", total, sound)],
            _ => vec![report("loss", total, video)],
        }
    }
}
