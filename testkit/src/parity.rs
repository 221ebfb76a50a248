//! The law of layouts: whatever the layout, the answer is that of one device.

use std::sync::Arc;

use burn::tensor::Tensor;
use comm::{Group, on_ranks};
use nn::{Backward, Inputs, Network, OneDevice, Parameters, Prediction, Schedule, Store, Tracks};

use crate::numbers::{bits, tensor, values};

/// A network with its parameters and what it is asked.
pub struct Question {
    /// The network.
    pub network: Arc<dyn Network>,
    /// Its parameters.
    pub store: Store,
    /// Its inputs, whole.
    pub inputs: Inputs,
}

/// What a layout must reproduce.
pub struct Answer {
    /// The prediction of a forward pass outside any graph, whole.
    pub prediction: Prediction,
    /// Loss and gradients, whole.
    pub backward: Backward,
}

/// Every parameter is trained.
pub fn all(_: &str) -> bool {
    true
}

/// A loss in which every element counts differently.
///
/// # Errors
/// None: it has the type that a schedule asks for.
pub fn loss(prediction: &Prediction) -> nn::Result<Tensor<1>> {
    let square = |name: &str, said: &Tensor<3>| {
        let error = said.clone() - tensor(name, said.dims());
        kernels::sum(error.clone() * error)
    };
    let names = Tracks { video: Some("target"), audio: Some("target of the sound") };
    let squares = names.zip(prediction.as_ref()).map(|(name, said)| square(name, said));
    Ok(squares.into_iter().reduce(|sum, more| sum + more).expect("a prediction is not empty"))
}

impl Question {
    /// What a schedule answers.
    ///
    /// # Errors
    /// Whatever the model or the schedule reports.
    pub fn ask(&self, schedule: &dyn Schedule) -> nn::Result<Answer> {
        let prediction = schedule.predict(&*self.network, &self.store, &self.inputs)?;
        Ok(Answer { prediction, backward: self.slope(schedule)? })
    }

    /// Loss and gradients of every parameter.
    ///
    /// # Errors
    /// Whatever the model or the schedule reports.
    pub fn slope(&self, schedule: &dyn Schedule) -> nn::Result<Backward> {
        let parameters = Parameters { provider: &self.store, trainable: &all };
        schedule.backward(&*self.network, parameters, &self.inputs, &mut loss)
    }
}

/// How far a layout may be from one device.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Predictions and gradients of tokens, by their norm; 0 means to the bit.
    pub tokens: f64,
    /// Loss and gradients of parameters, by the norm of their layer's.
    pub parameters: f64,
}

impl Bounds {
    /// The same bits.
    pub const BITS: Bounds = Bounds { tokens: 0.0, parameters: 0.0 };

    /// The same bits but for sums over ranks, which associate differently.
    pub const fn sums(parameters: f64) -> Bounds {
        Bounds { tokens: 0.0, parameters }
    }

    /// The wider of two.
    #[must_use]
    pub const fn max(self, other: Bounds) -> Bounds {
        Bounds {
            tokens: self.tokens.max(other.tokens),
            parameters: self.parameters.max(other.parameters),
        }
    }

    /// Other sums everywhere.
    pub const fn within(bound: f64) -> Bounds {
        Bounds { tokens: bound, parameters: bound }
    }
}

/// Checks that on every one of `ranks` ranks the schedule that `layout` makes gives the answer of one
/// device within `bounds`, and that all ranks hold the same bits.
///
/// # Panics
/// Panics with what differs.
#[track_caller]
pub fn check(
    question: &Question,
    ranks: usize,
    bounds: Bounds,
    layout: impl Fn(&Group) -> Box<dyn Schedule> + Sync,
) {
    if let Err(difference) = compare(question, ranks, bounds, layout) {
        panic!("{difference}");
    }
}

/// [`check`] for those who want to see a difference.
///
/// # Errors
/// What differs from one device, and on which rank.
pub fn compare(
    question: &Question,
    ranks: usize,
    bounds: Bounds,
    layout: impl Fn(&Group) -> Box<dyn Schedule> + Sync,
) -> Result<(), String> {
    let want = question.ask(&OneDevice::default()).expect("one device can run the model");
    let answers = on_ranks(ranks, |group| {
        question.ask(&*layout(&group)).expect("the layout can run the model")
    });
    for (rank, got) in answers.iter().enumerate() {
        want.differs_from(got, bounds).map_err(|what| format!("rank {rank} of {ranks}: {what}"))?;
        got.differs_from(&answers[0], Bounds::BITS)
            .map_err(|what| format!("ranks 0 and {rank} of {ranks} hold different bits: {what}"))?;
    }
    Ok(())
}

impl Answer {
    fn differs_from(&self, got: &Answer, bounds: Bounds) -> Result<(), String> {
        let name = |name: &str| format!("the {name} prediction");
        both_equal(name, &self.prediction, &got.prediction, bounds.tokens)?;
        self.backward.equals(&got.backward, bounds)
    }
}

/// How two results of a backward pass compare.
pub trait Equals {
    /// Whether they are within `bounds`. The bound of a parameter is that of a hundredth of all gradients
    /// where its layer's are smaller: where much cancels, what is left is rounding.
    ///
    /// A layer counts as a whole because the bias of a key projection has no gradient but rounding:
    /// softmax does not see it.
    ///
    /// # Errors
    /// What differs first.
    fn equals(&self, got: &Self, bounds: Bounds) -> Result<(), String>;
}

impl Equals for Backward {
    fn equals(&self, got: &Backward, bounds: Bounds) -> Result<(), String> {
        let tolerance = bounds.parameters;
        let names = |backward: &Backward| backward.parameters.keys().cloned().collect::<Vec<_>>();
        if names(self) != names(got) {
            return Err(format!("gradients of {:?} instead of {:?}", names(got), names(self)));
        }
        if self.tokens.as_ref().first().is_none() {
            return Err("the tokens have no gradient".to_owned());
        }
        let name = |name: &str| format!("the gradient of the {name} tokens");
        both_equal(name, &self.tokens, &got.tokens, bounds.tokens)?;
        let Some((want, loss)) = self.loss.as_ref().zip(got.loss.as_ref()) else {
            return Err("there is no loss".to_owned());
        };
        equal("the loss", want, loss, tolerance * norm(&values(want)))?;
        let all = self.parameters.values().flat_map(values).collect::<Vec<_>>();
        let whole = norm(&all);
        for (name, want) in &self.parameters {
            if bits(want) == bits(&got.parameters[name]) {
                continue;
            }
            let what = format!("the gradient of `{name}`");
            let bound = tolerance * layer_norm(self, name).max(0.01 * whole);
            equal(&what, want, &got.parameters[name], bound)?;
        }
        Ok(())
    }
}

/// The norm of the gradient of all parameters of one layer: weight, bias.
fn layer_norm(backward: &Backward, name: &str) -> f64 {
    let layer = |name: &str| name.rsplit_once('.').map(|(layer, _)| layer.to_owned());
    let members = backward.parameters.iter().filter(|(other, _)| layer(other) == layer(name));
    norm(&members.flat_map(|(_, gradient)| values(gradient)).collect::<Vec<_>>())
}

/// Every modality of `got` equals that of `want`, to the bit or within `bound` of its norm.
fn both_equal(
    what: impl Fn(&str) -> String,
    want: &Tracks<Tensor<3>>,
    got: &Tracks<Tensor<3>>,
    bound: f64,
) -> Result<(), String> {
    let has = |tracks: &Tracks<Tensor<3>>| tracks.as_ref().map(|_| ());
    if has(want) != has(got) {
        return Err(format!("{}: {:?} instead of {:?}", what("whole"), has(got), has(want)));
    }
    let pairs = want.as_ref().zip(got.as_ref()).named();
    pairs.try_map(|(name, (want, got))| {
        equal(&what(name), want, got, bound * norm(&values(want)))
    })?;
    Ok(())
}

/// `got` equals `want` to the bit, or is at most `bound` away.
fn equal<const D: usize>(
    what: &str,
    want: &Tensor<D>,
    got: &Tensor<D>,
    bound: f64,
) -> Result<(), String> {
    if want.dims() != got.dims() {
        return Err(format!("{what} is {:?} instead of {:?}", got.dims(), want.dims()));
    }
    if bits(want) == bits(got) {
        return Ok(());
    }
    let (want, got) = (values(want), values(got));
    let distance = norm(&want.iter().zip(&got).map(|(want, got)| want - got).collect::<Vec<_>>());
    // Without a bound bits count, and a distance that is not a number is not below anything.
    match bound > 0.0 && distance <= bound {
        true => Ok(()),
        false => Err(format!(
            "{what} differs by {distance:e}, more than {bound:e}, where its norm is {:e}",
            norm(&want)
        )),
    }
}

fn norm(values: &[f32]) -> f64 {
    values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt()
}
