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
use crate::error::{Error, Result};
use crate::fold::Forward;
use crate::inputs::{Inputs, Modality, Prediction};
use crate::network::{Network, forward, link};
use crate::packed::Packed;
use crate::provider::Provider;
use crate::schedule::Recompute;
use crate::tracks::Tracks;
use crate::weights::Weights;

/// Named gradients, and that of the tokens.
#[derive(Debug, Default)]
pub struct Backward {
    /// The loss, `[1]`.
    pub loss: Option<Tensor<1>>,
    /// The gradient of every trainable parameter that took part, flat.
    pub parameters: BTreeMap<String, Tensor<1>>,
    /// The gradient of the tokens, `[B, T, C]` for each modality.
    pub tokens: Tracks<Tensor<3>>,
}

/// A scalar `[1]` of a prediction, inside its graph. What fails in another crate travels as
/// [`Error::Outside`].
pub type Loss<'a> = &'a mut dyn FnMut(&Prediction) -> Result<Tensor<1>>;

/// Which parameters want their gradients.
pub type Trainable<'a> = &'a dyn Fn(&str) -> bool;

/// What a backward pass is about.
#[derive(Clone, Copy)]
pub struct Parameters<'a> {
    /// Where parameters come from.
    pub provider: &'a dyn Provider,
    /// Those that want their gradients.
    pub trainable: Trainable<'a>,
}

impl<'a> Parameters<'a> {
    fn recording(&self) -> Recording<'a> {
        Recording::new(self.provider, self.trainable)
    }
}

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

    fn inner(&self) -> Option<&dyn Provider> {
        Some(self.inner)
    }
}

/// The loss and its gradients, all of it on this device. `loss` maps the prediction, inside a graph, to
/// a scalar `[1]`.
///
/// Whatever `recompute` says, the bits are the same; with [`Recompute::Never`] the whole model is one
/// graph, which is what block-wise backward is compared with.
///
/// # Errors
/// Whatever a part of the model or the loss reports.
pub fn backward(
    network: &dyn Network,
    parameters: Parameters<'_>,
    inputs: &Inputs,
    attention: &mut dyn Attention,
    loss: Loss<'_>,
    recompute: Recompute,
) -> Result<Backward> {
    match recompute {
        Recompute::Never => whole(network, parameters, inputs, attention, loss),
        Recompute::PerBlock => block_wise(network, parameters, inputs, attention, loss, 0),
        Recompute::Keep(kept) => block_wise(network, parameters, inputs, attention, loss, kept),
    }
}

/// Block by block; the last `kept` blocks keep their graphs from the forward pass instead of running
/// again.
fn block_wise(
    network: &dyn Network,
    parameters: Parameters<'_>,
    inputs: &Inputs,
    attention: &mut dyn Attention,
    loss: Loss<'_>,
    kept: usize,
) -> Result<Backward> {
    let (depth, plain) = (network.depth(), Weights::new(parameters.provider));
    let shared = network.shared(&plain, inputs)?;
    let mut streams = vec![network.embed(&plain, inputs, &shared)?];
    let mut graphs = Vec::new();
    for index in 0..depth {
        if index + kept < depth {
            let stream = streams[index].clone();
            let pass = Forward { weights: &plain, shared: &shared, attention };
            streams.push(network.block(index, stream, pass)?);
        } else {
            let (record, stream) = (parameters.recording(), &streams[index]);
            let graph = Graph::of(network, index, record, stream, &shared, attention)?;
            streams.push(graph.out.clone().map(Tensor::inner));
            graphs.push(graph);
        }
    }

    let mut result = Backward::default();

    // The head: from the last stream to the loss.
    let record = parameters.recording();
    let (stream, common) = (Leaves::of(&streams[depth]), Leaves::of(&shared));
    let prediction = network.head(&Weights::new(&record), stream.packed.clone(), &common.packed)?;
    let value = loss(&prediction)?;
    result.loss = Some(value.clone().inner());
    let graph = value.backward();
    result.add(record.gradients(&graph));
    let mut pulled = stream.gradients(&graph);
    let mut total = common.gradients(&graph);

    for index in (0..depth).rev() {
        let block = match graphs.pop() {
            Some(graph) => graph,
            None => {
                // Blocks are run again to save memory: what the last one freed must not count as
                // used, and would, because gradients in between keep it from being reused whole.
                kernels::give_freed_pages_back();
                let (record, stream) = (parameters.recording(), &streams[index]);
                Graph::of(network, index, record, stream, &shared, attention)?
            }
        };
        let graph = pull(&block.out, pulled).ok_or_else(no_stream)?.backward();
        result.add(parameters.provider.found(index, block.record.gradients(&graph))?);
        pulled = block.stream.gradients(&graph);
        total = add(block.common.gradients(&graph), total);
        streams.truncate(index + 1);
    }
    result.enter(network, parameters, inputs, [pulled, total])?;
    Ok(result)
}

impl Backward {
    /// What is left after the blocks: one graph from tokens and conditions to the first stream and to
    /// `Shared`, whose gradients are given.
    fn enter(
        &mut self,
        network: &dyn Network,
        parameters: Parameters<'_>,
        inputs: &Inputs,
        [of_stream, of_shared]: [Vec<Tensor<1>>; 2],
    ) -> Result<()> {
        let record = parameters.recording();
        let weights = Weights::new(&record);
        let inputs = with_leaves(inputs);
        let shared = network.shared(&weights, &inputs)?;
        let stream = network.embed(&weights, &inputs, &link(&shared))?;
        let linked = link(&shared);
        let stream = pull(&stream, of_stream).ok_or_else(no_stream)?;
        let graph = match pull(&linked, of_shared) {
            Some(shared) => (stream + shared).backward(),
            None => stream.backward(),
        };
        self.add(record.gradients(&graph));
        self.tokens = gradients(&inputs, &graph);
        Ok(())
    }
}

/// The whole model as one graph.
fn whole(
    network: &dyn Network,
    parameters: Parameters<'_>,
    inputs: &Inputs,
    attention: &mut dyn Attention,
    loss: Loss<'_>,
) -> Result<Backward> {
    let record = parameters.recording();
    let inputs = with_leaves(inputs);
    let prediction = forward(network, &Weights::new(&record), &inputs, attention)?;
    let value = loss(&prediction)?;
    let graph = value.clone().backward();
    Ok(Backward {
        loss: Some(value.inner()),
        parameters: record.gradients(&graph),
        tokens: gradients(&inputs, &graph),
    })
}

/// The same inputs with tokens that are leaves of a graph.
fn with_leaves(inputs: &Inputs) -> Inputs {
    inputs.clone().map(|own| {
        let tokens = Tensor::from_inner(own.tokens.clone()).require_grad();
        Modality { tokens, ..own }
    })
}

/// The gradients of tokens that are leaves.
fn gradients(inputs: &Inputs, graph: &Gradients) -> Tracks<Tensor<3>> {
    let Tracks { video, audio } = inputs.as_ref().map(|own| own.tokens.grad(graph));
    Tracks { video: video.flatten(), audio: audio.flatten() }
}

/// One block as a graph of its own, from its leaves to its stream.
struct Graph<'a> {
    record: Recording<'a>,
    stream: Leaves,
    common: Leaves,
    out: Packed,
}

impl<'a> Graph<'a> {
    fn of(
        network: &dyn Network,
        index: usize,
        record: Recording<'a>,
        stream: &Packed,
        shared: &Packed,
        attention: &mut dyn Attention,
    ) -> Result<Graph<'a>> {
        let (stream, common) = (Leaves::of(stream), Leaves::of(shared));
        let weights = Weights::new(&record);
        let pass = Forward { weights: &weights, shared: &common.packed, attention };
        let out = network.block(index, stream.packed.clone(), pass)?;
        Ok(Graph { record, stream, common, out })
    }
}

/// A bag whose tensors are leaves of a new graph that want their gradients.
struct Leaves {
    packed: Packed,
    leaves: Vec<Tensor<1>>,
}

impl Leaves {
    fn of(packed: &Packed) -> Leaves {
        let mut leaves = Vec::new();
        let packed = packed.clone().map(|values| {
            let leaf = Tensor::from_inner(values).require_grad();
            leaves.push(leaf.clone());
            leaf
        });
        Leaves { packed, leaves }
    }

    /// The gradient of every leaf; one that played no part has a gradient of zero.
    fn gradients(&self, graph: &Gradients) -> Vec<Tensor<1>> {
        let gradient = |leaf: &Tensor<1>| {
            leaf.grad(graph).unwrap_or_else(|| leaf.clone().inner().zeros_like())
        };
        self.leaves.iter().map(gradient).collect()
    }
}

/// A scalar whose gradient with respect to the bag's tensors is `gradients`, if it holds any.
fn pull(packed: &Packed, gradients: Vec<Tensor<1>>) -> Option<Tensor<1>> {
    let products = packed
        .differentiable()
        .zip(gradients)
        .map(|(values, gradient)| kernels::sum(values.clone() * Tensor::from_inner(gradient)));
    products.reduce(|sum, product| sum + product)
}

fn no_stream() -> Error {
    let fault = "is missing: a stream holds at least one tensor with a gradient".to_owned();
    Error::Packed { name: "stream".to_owned(), fault }
}

fn add(left: Vec<Tensor<1>>, right: Vec<Tensor<1>>) -> Vec<Tensor<1>> {
    left.into_iter().zip(right).map(|(left, right)| left + right).collect()
}
