//! The branches of a guidance, dealt over ranks.

use std::sync::Arc;

use comm::Group;
use nn::{
    Backward, Inputs, Loss, Modality, Network, Parameters, Prediction, Provider, Result, Schedule,
    Tracks,
};

use crate::error::Error;

/// Predictions with and without the prompt, each by some of the ranks: branch `i` by rank `i` modulo their
/// number. Every branch has its own inputs, so texts may differ in length, and in whatever else they bring.
///
/// A step without guidance has one branch, which every rank predicts for itself.
#[derive(Clone)]
pub struct Branches {
    /// Who shares them.
    pub group: Group,
    /// How a branch is predicted.
    pub inner: Arc<dyn Schedule>,
}

/// The prediction of a branch, which one rank of a group has, on all of them. What takes part is predicted: a branch may
/// leave a track out.
pub(crate) fn exchanged(
    group: &Group,
    branch: usize,
    inputs: &Inputs,
    own: Option<Prediction>,
) -> comm::Result<Prediction> {
    let group = group.named(format!("the prediction of branch {branch}"));
    let enabled = |own: &Option<Modality>| own.as_ref().filter(|own| own.enabled).map(|_| ());
    let asked = Tracks { video: enabled(&inputs.video), audio: enabled(&inputs.audio) };
    let own = own.unwrap_or_default();
    asked.beside(own).try_map(|((), own)| group.broadcast(branch % group.size(), own))
}

impl Schedule for Branches {
    fn predict(
        &self,
        network: &dyn Network,
        provider: &dyn Provider,
        inputs: &Inputs,
    ) -> Result<Prediction> {
        self.inner.predict(network, provider, inputs)
    }

    fn predict_all(
        &self,
        network: &dyn Network,
        provider: &dyn Provider,
        inputs: &[Inputs],
    ) -> Result<Vec<Prediction>> {
        if inputs.len() == 1 {
            return self.inner.predict_all(network, provider, inputs);
        }
        let (rank, size) = (self.group.rank(), self.group.size());
        let own: Vec<Inputs> = inputs.iter().skip(rank).step_by(size).cloned().collect();
        let mut made = self.inner.predict_all(network, provider, &own)?.into_iter();
        let mut all = Vec::with_capacity(inputs.len());
        for (branch, inputs) in inputs.iter().enumerate() {
            let own = if branch % size == rank { made.next() } else { None };
            all.push(exchanged(&self.group, branch, inputs, own).map_err(Error::from)?);
        }
        Ok(all)
    }

    fn backward(
        &self,
        network: &dyn Network,
        parameters: Parameters<'_>,
        inputs: &Inputs,
        loss: Loss<'_>,
    ) -> Result<Backward> {
        self.inner.backward(network, parameters, inputs, loss)
    }
}
