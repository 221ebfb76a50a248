//! Networks by what may happen to them: trained, frozen, averaged.
//!
//! A role is a type, so that a frozen teacher cannot hand out parameters to an optimizer by mistake.

mod sharded;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::{DType, Tensor};
use diffusion::Draw;
use kernels::{blend, sum_squares};
use nn::{Inputs, Network, Parameter, Parameters, Prediction, Provider, Store, most_similar};
use parallel::{Gathered, Sharding, Shards};

use crate::error::{Error, Result};
use crate::learning_rate::LearningRateSchedule;
use crate::lora::{Adapters, Dropout, LoraConfig, matches};
use crate::method::Pass;
use crate::optimizer::{Optimizer, OptimizerConfig, Update};
use crate::state::{StateDict, describe_not_finite};

/// The name of the network within a role, in checkpoints.
const MODULE: &str = "transformer";

/// Which parameters of a role learn.
#[derive(Clone, Debug, PartialEq)]
pub enum Learns {
    /// All of them.
    All,
    /// Those whose names match one of the patterns.
    Only(Vec<String>),
    /// New low-rank adapters, drawn from the seed; the network itself stays as it is.
    Adapters {
        /// Which layers, and how.
        config: LoraConfig,
        /// What they are drawn from.
        seed: u64,
    },
}

/// How a role is trained.
#[derive(Clone)]
pub struct Training {
    /// Which parameters learn.
    pub learns: Learns,
    /// The optimizer.
    pub optimizer: OptimizerConfig,
    /// The learning rate by update of this role.
    pub learning_rate: LearningRateSchedule,
    /// How the network is run: on one device, what it keeps for the backward pass, over which ranks.
    pub layout: Arc<dyn nn::Schedule>,
    /// Who holds its parameters; each rank all of them if nobody is said.
    pub sharding: Option<Sharding>,
}

/// A network that learns, with all that its learning needs.
pub struct Trained {
    name: &'static str,
    network: Arc<dyn Network>,
    /// The parameters that this rank holds.
    store: Store,
    shards: Option<Shards>,
    adapters: Option<Adapters>,
    /// The gradients so far, of parameters that took part.
    gradients: BTreeMap<String, Tensor<1>>,
    /// Those that are added up over ranks already, of parameters that this rank holds.
    sums: BTreeMap<String, Tensor<1>>,
    learning: BTreeMap<String, Vec<usize>>,
    optimizer: Optimizer,
    learning_rate: LearningRateSchedule,
    layout: Arc<dyn nn::Schedule>,
    updates: u64,
    skipped: u64,
    /// Since the last update; a run that goes on counts anew.
    skipped_in_a_row: u64,
}

/// The loss of every sample `[B]`, inside the graph of a prediction. It may ask other networks.
pub type SampleLoss<'a> = &'a mut dyn FnMut(&Prediction) -> Result<Tensor<1>>;

impl Trained {
    /// A role called `name` that trains `network` from the parameters in `store`.
    ///
    /// # Errors
    /// The store does not fit the network, a pattern matches nothing, a setting cannot be.
    pub fn new(
        name: &'static str,
        network: Arc<dyn Network>,
        mut store: Store,
        training: Training,
    ) -> Result<Trained> {
        store.agree(&[], |weights| network.declare(weights))?;
        let Training { learns, optimizer, learning_rate, layout, sharding } = training;
        learns.check(&store)?;
        let mut adapters = None;
        let names: Vec<String> = match learns {
            Learns::All => store.iter().map(|(name, _)| name.to_owned()).collect(),
            Learns::Only(patterns) => matching(&patterns, &store)?,
            Learns::Adapters { config, seed } => {
                let found = Adapters::find(config, &*network, &store)?;
                let device = device_of(&store);
                let initial = found.initial(Draw::new(seed).stream("lora"), &device);
                adapters = Some(found);
                let names = initial.iter().map(|(name, _)| name.clone()).collect();
                initial.into_iter().for_each(|(name, value)| store.insert(name, value));
                names
            }
        };
        let shape = |name: String| {
            let parameter = store.get(&name).expect("the name comes from the store");
            (name, parameter.shape.clone())
        };
        let learning: BTreeMap<String, Vec<usize>> = names.into_iter().map(shape).collect();
        let learns = |own: &str| learning.contains_key(own);
        let shards = sharding.map(|sharding| Shards::deal(&sharding, name, &store, learns));
        shards.iter().for_each(|shards| shards.keep_own(&mut store));
        for name in learning.keys() {
            // Learnt parameters are f32 whatever their file holds: updates are small.
            if let Some(Parameter { values, shape }) = store.remove(name) {
                store.insert(name, Parameter { values: values.cast(DType::F32), shape });
            }
        }
        let learnt = learning.keys().filter_map(|name| Some((name.as_str(), store.get(name)?)));
        let optimizer = Optimizer::new(optimizer, learnt)?;
        let (gradients, sums) = (BTreeMap::new(), BTreeMap::new());
        let (updates, skipped) = (0, 0);
        Ok(Trained {
            name,
            network,
            store,
            shards,
            adapters,
            gradients,
            sums,
            learning,
            optimizer,
            learning_rate,
            layout,
            updates,
            skipped,
            skipped_in_a_row: 0,
        })
    }

    /// Lets a parameter that learns begin with other values.
    ///
    /// # Errors
    /// No such parameter learns, or it has another shape.
    pub fn begin_with(&mut self, name: &str, parameter: Parameter) -> Result<()> {
        match self.learning.get(name) {
            Some(shape) if *shape == parameter.shape && !self.holds(name) => Ok(()),
            Some(shape) if *shape == parameter.shape => {
                let values = parameter.values.cast(DType::F32);
                self.store.insert(name.to_owned(), Parameter { values, ..parameter });
                Ok(())
            }
            Some(shape) => Err(Error::Shape {
                what: format!("`{name}`"),
                got: format!("{:?}", parameter.shape),
                want: format!("here it is {shape:?}"),
            }),
            None => {
                let near = nn::most_similar(name, self.learning.keys().map(String::as_str));
                Err(Error::NoMatch {
                    key: "",
                    pattern: name.to_owned(),
                    what: "parameter that learns",
                    near,
                })
            }
        }
    }

    /// The name of the role.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The network.
    pub fn network(&self) -> &Arc<dyn Network> {
        &self.network
    }

    /// All parameters that this rank holds, adapters included.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The adapters, if it is they that learn.
    pub fn adapters(&self) -> Option<&Adapters> {
        self.adapters.as_ref()
    }

    /// The parameters that learn and that this rank holds, in order of name.
    pub fn learnt(&self) -> impl Iterator<Item = (&str, &Parameter)> {
        self.learning.keys().filter_map(|name| Some((name.as_str(), self.store.get(name)?)))
    }

    /// How many numbers learn, on whichever ranks.
    pub fn learning(&self) -> u64 {
        self.learning.values().map(|shape| shape.iter().product::<usize>() as u64).sum()
    }

    /// How often it was updated.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// How many of its updates were skipped because something was not finite.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// How many were skipped since the last one that was made.
    pub(crate) fn skipped_in_a_row(&self) -> u64 {
        self.skipped_in_a_row
    }

    /// Which of its learnt parameters are not finite, in words; none if all are.
    pub(crate) fn not_finite(&self) -> Option<String> {
        describe_not_finite(self.learnt(), "weights")
    }

    /// The learning rate of its next update.
    pub fn rate(&self) -> f64 {
        self.learning_rate.rate(self.updates)
    }

    /// The gradients so far.
    pub fn gradients(&self) -> &BTreeMap<String, Tensor<1>> {
        &self.gradients
    }

    /// For whoever adds gradients up over ranks.
    pub fn gradients_mut(&mut self) -> &mut BTreeMap<String, Tensor<1>> {
        &mut self.gradients
    }

    /// A prediction outside any graph and without dropout.
    ///
    /// # Errors
    /// Inputs do not fit the network.
    pub fn predict(&self, inputs: &Inputs) -> Result<Prediction> {
        let lent = self.lent();
        Ok(self.with_layers(lent.as_ref(), None, |provider| {
            self.layout.predict(&*self.network, provider, inputs)
        })?)
    }

    /// Adds the gradients of one micro-batch and returns the loss of every sample.
    ///
    /// `loss` maps the prediction to `[B]`; what is differentiated is its mean, weighed by this
    /// micro-batch's share of the step.
    ///
    /// # Errors
    /// Inputs do not fit the network, or `loss` failed.
    pub fn accumulate(
        &mut self,
        inputs: &Inputs,
        pass: &Pass,
        loss: SampleLoss<'_>,
    ) -> Result<Vec<f32>> {
        let samples = inputs.as_ref().first().map_or(0, |own| own.tokens.dims()[0]);
        let dropout =
            Dropout { draw: pass.draws.root(self.name), first: pass.draws.first(), samples };
        let scale = pass.share / samples as f64;
        let mut each = Vec::new();
        let mut scalar = |prediction: &Prediction| {
            let losses = loss(prediction).map_err(nn::Error::outside)?;
            each = losses.clone().inner().into_data().iter::<f32>().collect();
            Ok(kernels::sum(losses) * scale)
        };
        let trainable = |name: &str| self.learning.contains_key(name);
        let earlier = std::mem::take(&mut self.gradients);
        let (mut gradients, lent) = match self.lent() {
            Some(lent) if pass.is_last => (BTreeMap::new(), Some(lent.adding_to(earlier))),
            lent => (earlier, lent),
        };
        let found = self.with_layers(lent.as_ref(), Some(dropout), |provider| {
            let parameters = Parameters { provider, trainable: &trainable };
            self.layout.backward(&*self.network, parameters, inputs, &mut scalar)
        })?;
        let [rest, added] = lent.map(Gathered::into_sums).unwrap_or_default();
        gradients.extend(rest);
        for (name, gradient) in found.parameters {
            let sum = match gradients.remove(&name) {
                Some(earlier) => blend(earlier, 1.0, &gradient, 1.0),
                None => gradient,
            };
            gradients.insert(name, sum);
        }
        self.gradients = gradients;
        parallel::merge(&mut self.sums, added);
        Ok(each)
    }

    /// The norm of all gradients together: not finite if any of them is not.
    pub fn gradient_norm(&self) -> f64 {
        let squares = self.gradients.values().map(|gradient| sum_squares(gradient.clone()));
        squares.sum::<f64>().sqrt()
    }

    /// One update by the gradients, each multiplied by `scale`, which are then gone.
    pub(crate) fn update(&mut self, scale: f64) {
        let rate = self.rate();
        let mut work = BTreeMap::new();
        for (name, gradient) in std::mem::take(&mut self.gradients) {
            let parameter = self.store.remove(&name).expect("a gradient belongs to a parameter");
            work.insert(name, (parameter.values, gradient));
        }
        for (name, values) in self.optimizer.step(work, Update { rate, scale }) {
            let shape = self.learning[&name].clone();
            self.store.insert(name, Parameter { values, shape });
        }
        self.updates += 1;
        self.skipped_in_a_row = 0;
    }

    /// Passes an update over: neither schedule nor optimizer move.
    pub(crate) fn skip(&mut self) {
        self.forget();
        self.skipped += 1;
        self.skipped_in_a_row += 1;
    }

    /// Forgets the gradients of a role that is not updated now.
    pub(crate) fn forget(&mut self) {
        self.gradients.clear();
        self.sums.clear();
    }

    /// What a checkpoint holds of this role, under the keys `roles`, `optimizers`, `schedulers`.
    pub(crate) fn save(&self, state: &mut StateDict) {
        let name = self.name;
        for (parameter, value) in self.learnt() {
            state.tensor(format!("roles.{name}.{MODULE}.{parameter}"), value.clone());
        }
        state.nest(&format!("optimizers.{name}"), self.optimizer.state());
        state.number(format!("schedulers.{name}.updates"), self.updates);
        state.number(format!("schedulers.{name}.skipped"), self.skipped);
    }

    /// Continues from what [`Trained::save`] said.
    pub(crate) fn restore(&mut self, state: &mut StateDict) -> Result<()> {
        let name = self.name;
        let mut own = state.take(&format!("roles.{name}.{MODULE}"));
        for (parameter, shape) in &self.learning {
            if self.holds(parameter) {
                self.store.insert(parameter.clone(), own.take_tensor(parameter, shape)?);
            }
        }
        own.finish()?;
        self.optimizer.restore(state.take(&format!("optimizers.{name}")))?;
        self.updates = state.take_number(&format!("schedulers.{name}.updates"))?;
        self.skipped = state.take_number(&format!("schedulers.{name}.skipped"))?;
        self.forget();
        Ok(())
    }

    /// All parameters, `average` in place of what learns if it is given, with adapters folded into the
    /// layers they adapt: what an exported model holds. Ranks that hold them together must all ask.
    ///
    /// # Errors
    /// An adapter does not fit its layer, or a rank did not come.
    pub fn merged(&self, average: Option<&Averaged>) -> Result<Store> {
        let own = average.map_or_else(|| self.store.clone(), |average| average.store(self));
        let mut store = self.whole(own)?;
        if let Some(adapters) = &self.adapters {
            store.merge_pairs(adapters.config().strength() as f32)?;
        }
        Ok(store)
    }
}

/// A network that never learns: it can predict and nothing else.
pub struct Frozen {
    network: Arc<dyn Network>,
    /// The parameters that this rank holds.
    store: Store,
    shards: Option<Shards>,
    layout: Arc<dyn nn::Schedule>,
}

impl Frozen {
    /// A network with its parameters, in whatever type they are stored, run by `layout`.
    ///
    /// # Errors
    /// The store does not fit the network.
    pub fn new(
        network: Arc<dyn Network>,
        store: Store,
        layout: Arc<dyn nn::Schedule>,
    ) -> Result<Frozen> {
        store.agree(&[], |weights| network.declare(weights))?;
        Ok(Frozen { network, store, shards: None, layout })
    }

    /// The same, of whose parameters this rank holds some.
    pub fn sharded(mut self, name: &str, sharding: &Sharding) -> Frozen {
        let shards = Shards::deal(sharding, name, &self.store, |_| false);
        shards.keep_own(&mut self.store);
        Frozen { shards: Some(shards), ..self }
    }

    /// A prediction outside any graph.
    ///
    /// # Errors
    /// Inputs do not fit the network.
    pub fn predict(&self, inputs: &Inputs) -> Result<Prediction> {
        let lent = self.shards.as_ref().map(|shards| shards.provider(&self.store));
        let provider = lent.as_ref().map_or(&self.store as &dyn Provider, |lent| lent);
        Ok(self.layout.predict(&*self.network, provider, inputs)?)
    }
}

/// A running average of a role's learnt parameters; handles on it share it.
#[derive(Clone, Debug, Default)]
pub struct Averaged(Arc<Mutex<Shadow>>);

/// The average itself.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    pub(crate) parameters: BTreeMap<String, Parameter>,
    pub(crate) updates: u64,
}

impl Averaged {
    /// Looks at or changes the average.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Shadow) -> T) -> T {
        // A panic elsewhere cannot leave it half written: it is changed parameter by parameter.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How many updates it holds.
    pub fn updates(&self) -> u64 {
        self.with(|shadow| shadow.updates)
    }

    /// All parameters of the role that this rank holds, with the average in place of what learns.
    pub fn store(&self, role: &Trained) -> Store {
        let mut store = role.store().clone();
        self.with(|shadow| {
            for (name, parameter) in &shadow.parameters {
                store.insert(name.clone(), parameter.clone());
            }
        });
        store
    }
}

impl Learns {
    /// Refuses to let matrices learn that are quantized: only what is beside them can.
    fn check(&self, store: &Store) -> Result<()> {
        let learns = |name: &str| match self {
            Learns::All => true,
            Learns::Only(patterns) => patterns.iter().any(|pattern| fits(pattern, name)),
            Learns::Adapters { .. } => false,
        };
        let mut quantized = store.quantized_matrices().map(|(name, _)| name);
        match quantized.find(|name| learns(name)) {
            None => Ok(()),
            Some(name) => Err(Error::setting(
                "learns",
                format!("`{name}`"),
                format!(
                    "it is quantized in {}, and frozen; let a LoRA learn beside it",
                    store.origin()
                ),
            )),
        }
    }

    /// The names and shapes of what learns of a network whose parameters are in `store`.
    ///
    /// # Errors
    /// A pattern matches nothing, or a setting of the adapters cannot be.
    pub fn shapes(
        &self,
        network: &dyn Network,
        store: &Store,
    ) -> Result<BTreeMap<String, Vec<usize>>> {
        self.check(store)?;
        let names = match self {
            Learns::All => store.iter().map(|(name, _)| name.to_owned()).collect(),
            Learns::Only(patterns) => matching(patterns, store)?,
            Learns::Adapters { config, .. } => {
                return Ok(Adapters::find(config.clone(), network, store)?.shapes().collect());
            }
        };
        let shape =
            |name: String| store.get(&name).map(|own| own.shape.clone()).map(|it| (name, it));
        Ok(names.into_iter().filter_map(shape).collect())
    }
}

/// Whether a pattern means a parameter, or the layer that it belongs to.
fn fits(pattern: &str, name: &str) -> bool {
    let layer = name.rsplit_once('.').map_or("", |(layer, _)| layer);
    matches(pattern, name) || matches(pattern, layer)
}

/// The parameters that match, each pattern at least once.
fn matching(patterns: &[String], store: &Store) -> Result<Vec<String>> {
    let names: Vec<&str> = store.iter().map(|(name, _)| name).collect();
    for pattern in patterns {
        if !names.iter().any(|name| fits(pattern, name)) {
            let near = most_similar(pattern, names.iter().copied());
            let (key, pattern) = ("learns.patterns: ", pattern.clone());
            return Err(Error::NoMatch { key, pattern, what: "parameter", near });
        }
    }
    let chosen = names.iter().filter(|name| patterns.iter().any(|pattern| fits(pattern, name)));
    Ok(chosen.map(|name| (*name).to_owned()).collect())
}

fn device_of(store: &Store) -> burn::tensor::Device {
    let first = store.iter().next();
    first.map_or_else(burn::tensor::Device::flex, |(_, parameter)| parameter.values.device())
}
