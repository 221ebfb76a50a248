//! Gradients of a whole model, one block at a time.
//!
//! The forward pass runs outside any graph and keeps only the stream before each block. Going back,
//! each block is run once more as a small graph whose leaves are its stream, `Shared` and its own
//! parameters. The gradient of `Shared` is summed over all blocks and then runs once through
//! `embed()` and `shared()`.

use std::cell::RefCell;
use std::collections::BTreeMap;

use burn::tensor::{Gradients, Tensor};

use crate::attention::Attention;
use crate::error::Result;
use crate::fold::{Bag, Dit};
use crate::inputs::{Inputs, Prediction};
use crate::layers::Linear;
use crate::store::Parameter;
use crate::weights::{Bias, Provider, Weights};

/// Named gradients, and that of the tokens.
#[derive(Debug, Default)]
pub struct Backward {
    /// The loss, `[1]`.
    pub loss: Option<Tensor<1>>,
    /// The gradient of every trainable parameter that took part, flat.
    pub parameters: BTreeMap<String, Tensor<1>>,
    /// The gradient of the video tokens, `[B, T, C]`.
    pub tokens: Option<Tensor<3>>,
}

/// A scalar `[1]` of a prediction, inside its graph.
pub type Loss<'a> = &'a dyn Fn(&Prediction) -> Tensor<1>;

/// Which parameters want their gradients.
pub type Trainable<'a> = &'a dyn Fn(&str) -> bool;

impl Backward {
    /// Adds gradients by name: a parameter may serve several parts of a model.
    fn add(&mut self, gradients: BTreeMap<String, Tensor<1>>) {
        for (name, gradient) in gradients {
            let sum = match self.parameters.remove(&name) {
                Some(earlier) => gradient + earlier,
                None => gradient,
            };
            self.parameters.insert(name, sum);
        }
    }
}

/// A provider whose trainable parameters are leaves of a graph.
pub struct Recording<'a> {
    inner: &'a dyn Provider,
    trainable: &'a dyn Fn(&str) -> bool,
    leaves: RefCell<BTreeMap<String, Tensor<1>>>,
}

impl<'a> Recording<'a> {
    /// Records what `trainable` accepts; everything else is a constant without a gradient.
    pub fn new(inner: &'a dyn Provider, trainable: &'a dyn Fn(&str) -> bool) -> Recording<'a> {
        Recording { inner, trainable, leaves: RefCell::new(BTreeMap::new()) }
    }

    /// The gradients of all leaves handed out so far.
    pub fn gradients(&self, gradients: &Gradients) -> BTreeMap<String, Tensor<1>> {
        let leaves = self.leaves.borrow();
        let found = leaves.iter().filter_map(|(name, leaf)| {
            leaf.grad(gradients).map(|gradient| (name.clone(), gradient))
        });
        found.collect()
    }
}

impl Provider for Recording<'_> {
    fn values(&self, name: &str, shape: &[usize]) -> Result<Tensor<1>> {
        let values = self.inner.values(name, shape)?;
        let values = Tensor::from_inner(values);
        if !(self.trainable)(name) {
            return Ok(values);
        }
        let mut leaves = self.leaves.borrow_mut();
        let leaf = leaves.entry(name.to_owned()).or_insert_with(|| values.require_grad());
        Ok(leaf.clone())
    }

    fn has(&self, name: &str) -> bool {
        self.inner.has(name)
    }

    fn linear(&self, name: &str, inputs: usize, outputs: usize, bias: Bias) -> Result<Linear> {
        self.inner.linear_from(self, name, [inputs, outputs], bias)
    }
}

/// The loss and its gradients. `loss` maps the prediction, inside a graph, to a scalar `[1]`.
///
/// # Errors
/// Whatever a part of the model reports.
pub fn backward<M: Dit>(
    model: &M,
    provider: &dyn Provider,
    trainable: &dyn Fn(&str) -> bool,
    inputs: &Inputs,
    (attention, loss): (&mut dyn Attention, Loss<'_>),
) -> Result<Backward> {
    backward_keeping(model, (provider, trainable), inputs, (attention, loss), 0)
}

/// [`backward`] that keeps the graphs of the last `kept` blocks from the forward pass instead of
/// running those blocks again: more memory, less work, the same bits.
///
/// # Errors
/// Whatever a part of the model reports.
pub fn backward_keeping<M: Dit>(
    model: &M,
    (provider, trainable): (&dyn Provider, Trainable<'_>),
    inputs: &Inputs,
    (attention, loss): (&mut dyn Attention, Loss<'_>),
    kept: usize,
) -> Result<Backward> {
    let plain = Weights::new(provider);
    let recording = || Recording::new(provider, trainable);
    let shared = model.shared(&plain, inputs)?;
    let mut streams = vec![model.embed(&plain, inputs, &shared)?];
    let mut graphs = Vec::new();
    for index in 0..model.depth() {
        if index + kept < model.depth() {
            let stream = copy(&streams[index]);
            streams.push(model.block(index, &plain, stream, &shared, attention)?);
        } else {
            let (stream, record) = (Leaves::of(&streams[index]), recording());
            let graph = Graph::of(model, index, (record, stream, Leaves::of(&shared)), attention)?;
            streams.push(detached(&graph.out));
            graphs.push(graph);
        }
    }

    let mut result = Backward::default();

    // The head: from the last stream to the loss.
    let record = recording();
    let (stream, common) = (Leaves::of(&streams[model.depth()]), Leaves::of(&shared));
    let prediction = model.head(&Weights::new(&record), copy(&stream.bag), &common.bag)?;
    let value = loss(&prediction);
    result.loss = Some(value.clone().inner());
    let graph = value.backward();
    result.add(record.gradients(&graph));
    let mut pulled = stream.gradients(&graph);
    let mut total = common.gradients(&graph);

    for index in (0..model.depth()).rev() {
        let block = match graphs.pop() {
            Some(graph) => graph,
            None => {
                // Blocks are run again to save memory: what the last one freed must not count as
                // used, and would, because gradients in between keep it from being reused whole.
                kernels::give_freed_pages_back();
                let leaves = (recording(), Leaves::of(&streams[index]), Leaves::of(&shared));
                Graph::of(model, index, leaves, attention)?
            }
        };
        let graph = pull(&block.out, pulled).backward();
        result.add(block.record.gradients(&graph));
        pulled = block.stream.gradients(&graph);
        total = add(block.common.gradients(&graph), total);
        streams.truncate(index + 1);
    }

    // What is left: one graph from tokens and conditions to the first stream and to `Shared`.
    let record = recording();
    let weights = Weights::new(&record);
    let mut inputs = inputs.clone();
    inputs.video.tokens = Tensor::from_inner(inputs.video.tokens).require_grad();
    let shared = model.shared(&weights, &inputs)?;
    let stream = model.embed(&weights, &inputs, &crate::fold::link(&shared))?;
    let linked = crate::fold::link(&shared);
    let graph = (pull(&stream, pulled) + pull(&linked, total)).backward();
    result.add(record.gradients(&graph));
    result.tokens = inputs.video.tokens.grad(&graph);
    Ok(result)
}

/// The whole model as one graph: what block-wise backward is compared with.
///
/// # Errors
/// Whatever a part of the model reports.
pub fn backward_whole<M: Dit>(
    model: &M,
    provider: &dyn Provider,
    trainable: &dyn Fn(&str) -> bool,
    inputs: &Inputs,
    (attention, loss): (&mut dyn Attention, Loss<'_>),
) -> Result<Backward> {
    let record = Recording::new(provider, trainable);
    let mut inputs = inputs.clone();
    inputs.video.tokens = Tensor::from_inner(inputs.video.tokens).require_grad();
    let prediction = crate::fold::forward(model, &Weights::new(&record), &inputs, attention)?;
    let value = loss(&prediction);
    let graph = value.clone().backward();
    Ok(Backward {
        loss: Some(value.inner()),
        parameters: record.gradients(&graph),
        tokens: inputs.video.tokens.grad(&graph),
    })
}

fn copy<B: Bag>(bag: &B) -> B {
    bag.with_tensors(bag.tensors())
}

/// The values of a bag outside their graph.
fn detached<B: Bag>(bag: &B) -> B {
    let tensors = bag.tensors().into_iter();
    let plain = tensors.map(|tensor| Parameter { values: tensor.values.inner(), ..tensor });
    bag.with_tensors(plain.collect())
}

/// One block as a graph of its own, from its leaves to its stream.
struct Graph<'a, M: Dit> {
    record: Recording<'a>,
    stream: Leaves<M::Stream>,
    common: Leaves<M::Shared>,
    out: M::Stream,
}

impl<'a, M: Dit> Graph<'a, M> {
    fn of(
        model: &M,
        index: usize,
        (record, stream, common): (Recording<'a>, Leaves<M::Stream>, Leaves<M::Shared>),
        attention: &mut dyn Attention,
    ) -> Result<Graph<'a, M>> {
        let weights = Weights::new(&record);
        let out = model.block(index, &weights, copy(&stream.bag), &common.bag, attention)?;
        Ok(Graph { record, stream, common, out })
    }
}

/// A bag whose tensors are leaves of a new graph that want their gradients.
struct Leaves<B> {
    bag: B,
    leaves: Vec<Tensor<1>>,
}

impl<B: Bag> Leaves<B> {
    fn of(bag: &B) -> Leaves<B> {
        let tensors = bag.tensors();
        let leaves: Vec<Tensor<1>> = tensors
            .iter()
            .map(|tensor| Tensor::from_inner(tensor.values.clone()).require_grad())
            .collect();
        let shaped = tensors.into_iter().zip(&leaves);
        let shaped = shaped
            .map(|(tensor, leaf)| Parameter { values: leaf.clone(), shape: tensor.shape })
            .collect();
        Leaves { bag: bag.with_tensors(shaped), leaves }
    }

    /// The gradient of every leaf; one that played no part has a gradient of zero.
    fn gradients(&self, graph: &Gradients) -> Vec<Tensor<1>> {
        let gradient = |leaf: &Tensor<1>| {
            leaf.grad(graph).unwrap_or_else(|| leaf.clone().inner().zeros_like())
        };
        self.leaves.iter().map(gradient).collect()
    }
}

/// A scalar whose gradient with respect to the bag's tensors is `gradients`.
fn pull<B: Bag>(bag: &B, gradients: Vec<Tensor<1>>) -> Tensor<1> {
    let products = bag
        .tensors()
        .into_iter()
        .zip(gradients)
        .map(|(tensor, gradient)| kernels::sum(tensor.values * Tensor::from_inner(gradient)));
    products.reduce(|sum, product| sum + product).expect("a bag holds at least one tensor")
}

fn add(left: Vec<Tensor<1>>, right: Vec<Tensor<1>>) -> Vec<Tensor<1>> {
    left.into_iter().zip(right).map(|(left, right)| left + right).collect()
}
