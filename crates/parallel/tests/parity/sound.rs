//! Sound is spread and put together again like pictures.

use burn::tensor::Tensor;
use comm::on_ranks;
use nn::{Attention, Dit, Inputs, Plain, Prediction, Result, Weights};
use parallel::{Ulysses, backward_sharded, forward_sharded, shard};
use testkit::numbers::bits;
use testkit::parity::{Equals, all};
use testkit::toy::{Shared, Stream, Toy};

use super::TOLERANCE;

/// A toy that answers with sound, too: its picture three times as loud.
struct Loud(Toy);

impl Dit for Loud {
    type Shared = Shared;
    type Stream = Stream;

    fn depth(&self) -> usize {
        self.0.depth()
    }

    fn declare(&self, weights: &Weights<'_>) -> Result<()> {
        self.0.declare(weights)
    }

    fn shared(&self, weights: &Weights<'_>, inputs: &Inputs) -> Result<Shared> {
        self.0.shared(weights, inputs)
    }

    fn embed(&self, weights: &Weights<'_>, inputs: &Inputs, shared: &Shared) -> Result<Stream> {
        self.0.embed(weights, inputs, shared)
    }

    fn block(
        &self,
        index: usize,
        weights: &Weights<'_>,
        stream: Stream,
        shared: &Shared,
        attention: &mut dyn Attention,
    ) -> Result<Stream> {
        self.0.block(index, weights, stream, shared, attention)
    }

    fn head(&self, weights: &Weights<'_>, stream: Stream, shared: &Shared) -> Result<Prediction> {
        let Prediction { video, .. } = self.0.head(weights, stream, shared)?;
        let audio = Some(video.clone() * 3.0);
        Ok(Prediction { video, audio })
    }
}

/// Inputs whose sound is as long as the picture, as the answer of [`Loud`] is.
fn inputs(model: &Toy, tokens: usize) -> Inputs {
    let inputs = model.inputs(2, tokens);
    Inputs { audio: Some(inputs.video.clone()), ..inputs }
}

/// A loss that hears and does not see.
fn loss(prediction: &Prediction) -> Tensor<1> {
    let sound = prediction.audio.clone().expect("a sound");
    kernels::sum(sound.clone() * sound)
}

#[test]
fn it_is_whole_on_every_rank() {
    let model = Loud(Toy::small());
    let (store, inputs) = (model.0.store(), inputs(&model.0, 13));
    let want = nn::forward(&model, &Weights::new(&store), &inputs, &mut Plain).unwrap();
    let slope = nn::backward(&model, &store, &all, &inputs, (&mut Plain, &loss)).unwrap();
    let answers = on_ranks(2, |group| {
        let mut attention = Ulysses { group: group.clone(), inner: Plain };
        let weights = Weights::new(&store);
        let got = forward_sharded(&model, &weights, &inputs, &mut attention, &group).unwrap();
        let attention = (&mut attention as &mut dyn Attention, &loss as nn::Loss<'_>);
        let slope = backward_sharded(&model, &store, &all, &inputs, attention, &group).unwrap();
        (got.audio.expect("a sound"), slope)
    });
    for (sound, got) in answers {
        assert_eq!(bits(&sound), bits(want.audio.as_ref().expect("a sound")));
        slope.equals(&got, TOLERANCE).unwrap();
    }
}

/// Sound has tokens of its own, which are shared out by their own number.
#[test]
fn it_is_shared_out_by_its_own_length() {
    let model = Toy::small();
    let mut whole = inputs(&model, 13);
    whole.audio = Some(model.inputs(2, 5).video);
    let lengths = on_ranks(2, |group| {
        let own = shard(&whole, &group).unwrap();
        let audio = own.audio.expect("a sound");
        let [_, _, positions, _] = audio.positions.dims();
        [own.video.tokens.dims()[1], audio.tokens.dims()[1], positions]
    });
    assert_eq!(lengths, [[7, 3, 3], [6, 2, 2]]);
    whole.audio = Some(model.inputs(2, 1).video);
    let errors = on_ranks(2, |group| shard(&whole, &group).unwrap_err().to_string());
    assert_eq!(errors, ["cannot spread 1 tokens over 2 ranks; use at most 1 ranks"; 2]);
}
