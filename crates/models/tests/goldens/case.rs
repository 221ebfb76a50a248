//! One network of a golden file with its weights, and what every test does with it.

use burn::tensor::Tensor;
use models::vae::Moments;
use nn::{
    Backward, Inputs, Network, OneDevice, Parameters, Plain, Prediction, Recompute, Schedule,
    Store, Trainable, Weights,
};

use crate::reader::{Golden, check, check_norm, values};

/// One network of a golden file.
pub(crate) struct Case<M> {
    pub(crate) name: &'static str,
    pub(crate) golden: Golden,
    pub(crate) model: M,
    pub(crate) store: Store,
}

impl<M> Case<M> {
    /// The network `name` of `goldens/<file>.safetensors`, which `model` makes of its config.
    pub(crate) fn of(
        file: &str,
        name: &'static str,
        model: impl FnOnce(&str) -> nn::Result<M>,
    ) -> Case<M> {
        let golden = Golden::open(file);
        let model = model(&golden.network(name).to_string()).unwrap();
        let store = golden.store(&format!("{name}.weights"));
        Case { name, golden, model, store }
    }

    /// The name of one of its tensors in the file.
    pub(crate) fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.name)
    }

    /// One of its tensors.
    pub(crate) fn tensor<const D: usize>(&self, key: &str) -> Tensor<D> {
        self.golden.tensor(&self.key(key))
    }
}

impl<M: Network> Case<M> {
    /// Fails unless the model asks for every weight of the file, and for no other.
    pub(crate) fn agrees(&self) {
        self.store.agree(&[], |weights| self.model.declare(weights)).unwrap();
    }

    /// Its prediction for a picture or video.
    pub(crate) fn predict(&self, inputs: &Inputs) -> Tensor<3> {
        let weights = Weights::new(&self.store);
        nn::forward(&self.model, &weights, inputs, &mut Plain).unwrap().video.unwrap()
    }

    /// Gradients of some parameters, of the sum of the prediction times `cotangent` `[B, T, C]`.
    pub(crate) fn gradients(
        &self,
        cotangent: Tensor<3>,
        trainable: Trainable<'_>,
        recompute: Recompute,
        inputs: &Inputs,
    ) -> Backward {
        let cotangent = Tensor::from_inner(cotangent);
        let mut loss = |prediction: &Prediction| {
            Ok(kernels::sum(prediction.video.as_ref().unwrap().clone() * cotangent.clone()))
        };
        let parameters = Parameters { provider: &self.store, trainable };
        OneDevice { recompute }.backward(&self.model, parameters, inputs, &mut loss).unwrap()
    }
}

/// Gradients, of which those of the tokens were held to the golden.
#[track_caller]
pub(crate) fn checked_tokens(name: &str, found: Backward, golden: &Tensor<3>) -> Backward {
    let tokens = found.tokens.video.as_ref().expect("the tokens have a gradient");
    check_norm(&format!("{name}: tokens"), tokens, golden, 1e-4);
    found
}

/// Fails unless moments have the golden's mean and deviation, and `noise` picks the sample it should.
#[track_caller]
pub(crate) fn check_moments<const D: usize>(
    found: &Moments<D>,
    [mean, deviation]: [Tensor<D>; 2],
    noise: Tensor<D>,
    bound: f64,
) {
    check("mean", &found.mean, &mean, bound);
    check("deviation", &found.deviation(), &deviation, bound);
    check("sample", &found.sample(noise.clone()), &(mean + deviation * noise), bound);
}

/// Fails unless `run` makes the same of each of a batch of `x`, to the bit, whatever stands beside it.
#[track_caller]
pub(crate) fn samples_stand_alone<const D: usize>(
    x: &Tensor<D>,
    run: impl Fn(Tensor<D>) -> Tensor<D>,
) {
    let together = run(x.clone());
    for sample in 0..x.dims()[0] {
        let alone = run(x.clone().narrow(0, sample, 1));
        assert_eq!(values(&alone), values(&together.clone().narrow(0, sample, 1)));
    }
}
