//! Sound is spread and put together again like pictures.

use burn::tensor::Tensor;
use comm::on_ranks;
use nn::{
    Backward, Dit, Forward, Inputs, OneDevice, Parameters, Prediction, Result, Schedule, Sizes,
    Store, Weights,
};
use parallel::{Sharded, shard};
use testkit::numbers::bits;
use testkit::parity::{Equals, all};
use testkit::toy::{Shared, Toy};

use super::SUMS;

/// A toy that answers with sound, too: its picture three times as loud.
struct Loud(Toy);

impl Dit for Loud {
    type Shared = Shared;
    type Stream = Tensor<3>;

    fn sizes(&self) -> Sizes {
        self.0.sizes()
    }

    fn declare(&self, weights: &Weights<'_>) -> Result<()> {
        self.0.declare(weights)
    }

    fn shared(&self, weights: &Weights<'_>, inputs: &Inputs) -> Result<Shared> {
        self.0.shared(weights, &seen(inputs))
    }

    fn embed(&self, weights: &Weights<'_>, inputs: &Inputs, shared: &Shared) -> Result<Tensor<3>> {
        self.0.embed(weights, &seen(inputs), shared)
    }

    fn block(&self, index: usize, x: Tensor<3>, pass: Forward<'_, Shared>) -> Result<Tensor<3>> {
        self.0.block(index, x, pass)
    }

    fn head(
        &self,
        weights: &Weights<'_>,
        stream: Tensor<3>,
        shared: &Shared,
    ) -> Result<Prediction> {
        let Prediction { video, .. } = self.0.head(weights, stream, shared)?;
        let audio = video.clone().map(|video| video * 3.0);
        Ok(Prediction { video, audio })
    }
}

/// What the toy itself knows of.
fn seen(inputs: &Inputs) -> Inputs {
    Inputs { audio: None, ..inputs.clone() }
}

/// Inputs whose sound is as long as the picture, as the answer of [`Loud`] is.
fn inputs(model: &Toy, tokens: usize) -> Inputs {
    let inputs = model.inputs(2, tokens);
    Inputs { audio: inputs.video.clone(), ..inputs }
}

/// A loss that hears and does not see.
fn loss(prediction: &Prediction) -> Result<Tensor<1>> {
    let sound = prediction.audio.clone().expect("a sound");
    Ok(kernels::sum(sound.clone() * sound))
}

/// The sound that a schedule predicts, and gradients.
fn answer(
    schedule: &dyn Schedule,
    (model, store): (&Loud, &Store),
    inputs: &Inputs,
) -> (Tensor<3>, Backward) {
    let sound =
        schedule.predict(model, store, inputs).expect("a prediction").audio.expect("a sound");
    let parameters = Parameters { provider: store, trainable: &all };
    (sound, schedule.backward(model, parameters, inputs, &mut loss).expect("gradients"))
}

#[test]
fn it_is_whole_on_every_rank() {
    let model = Loud(Toy::small());
    let (store, inputs) = (model.0.store(), inputs(&model.0, 13));
    let (want, slope) = answer(&OneDevice::default(), (&model, &store), &inputs);
    let answers = on_ranks(2, |group| answer(&Sharded::ulysses(&group), (&model, &store), &inputs));
    for (sound, got) in answers {
        assert_eq!(bits(&sound), bits(&want));
        slope.equals(&got, SUMS).unwrap();
    }
}

/// Sound has tokens of its own, which are shared out by their own number.
#[test]
fn it_is_shared_out_by_its_own_length() {
    let model = Toy::small();
    let mut whole = inputs(&model, 13);
    whole.audio = model.inputs(2, 5).video;
    let lengths = on_ranks(2, |group| {
        let own = shard(&whole, &group).unwrap();
        let audio = own.audio.expect("a sound");
        let [_, _, positions, _] = audio.positions.dims();
        [own.video.as_ref().unwrap().tokens.dims()[1], audio.tokens.dims()[1], positions]
    });
    assert_eq!(lengths, [[7, 3, 3], [6, 2, 2]]);
    whole.audio = model.inputs(2, 1).video;
    let errors = on_ranks(2, |group| shard(&whole, &group).unwrap_err().to_string());
    assert_eq!(errors, ["cannot spread 1 tokens over 2 ranks; use at most 1 ranks"; 2]);
}
