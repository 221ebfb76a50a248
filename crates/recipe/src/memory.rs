//! How much memory a run will need, stage by stage, counted before anything is loaded for good.

use burn::tensor::Device;
use folder::Hub;
use nn::Recompute;
use train::OptimizerConfig;

use crate::error::{Error, Result};
use crate::model::Model;
use crate::schema::{LearnsConfig, MethodConfig, Recipe, RecomputeConfig, TrainedConfig};

/// Bytes of one number that learns, or that goes through a graph.
const F32: u64 = 4;

/// The memory of one role, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct RoleMemory {
    /// The role.
    pub role: String,
    /// Its parameters.
    pub weights: u64,
    /// Gradients of those that learn.
    pub gradients: u64,
    /// What the optimizer remembers of them.
    pub optimizer: u64,
    /// What the backward pass keeps of a micro-batch.
    pub activations: u64,
}

/// Parameters, tokens and layers of a role.
struct Size {
    weights: u64,
    learning: u64,
    /// Values that one token leaves in one block, and in all others together.
    block: u64,
    width: u64,
    depth: u64,
}

impl Recipe {
    /// The memory of every role.
    ///
    /// # Errors
    /// A model or the data cannot be opened.
    pub fn memory(&self, device: &Device, hub: &Hub) -> Result<Vec<RoleMemory>> {
        let student = self.open(&self.models.student, device, hub)?;
        let tokens = self.tokens(&student)?;
        let mut all = vec![self.role("student", &student, &self.models.student, tokens)?];
        if let MethodConfig::Dmd2(_) = self.method {
            if let Some(teacher) = &self.models.teacher {
                let model = Model::open(&folder::locate(&teacher.from, hub)?, device)?;
                let weights = bytes(&model);
                let role = "teacher".to_owned();
                all.push(RoleMemory { role, weights, gradients: 0, optimizer: 0, activations: 0 });
            }
            if let Some(critic) = &self.models.critic {
                let model = self.open(critic, device, hub)?;
                all.push(self.role("critic", &model, critic, tokens)?);
            }
        }
        Ok(all)
    }

    fn open(&self, config: &TrainedConfig, device: &Device, hub: &Hub) -> Result<Model> {
        match (&config.new, &config.from) {
            (Some(new), _) => Model::new(new, self.run.seed, device),
            (None, Some(from)) => Model::open(&folder::locate(from, hub)?, device),
            (None, None) => Err(Error::Recipe("a role comes from nowhere".to_owned())),
        }
    }

    fn role(
        &self,
        role: &str,
        model: &Model,
        config: &TrainedConfig,
        tokens: u64,
    ) -> Result<RoleMemory> {
        let size = Size::of(model, config)?;
        let copies = match config.optimizer {
            OptimizerConfig::AdamW(_) => 2,
            OptimizerConfig::Muon(_) | OptimizerConfig::Sgd(_) => 1,
        };
        let kept = match config.recompute {
            RecomputeConfig::Never => size.depth,
            RecomputeConfig::PerBlock => 1,
            RecomputeConfig::Within { gibibytes } => {
                match self.recompute_within(model, gibibytes)? {
                    Recompute::Never => size.depth,
                    Recompute::PerBlock => 1,
                    Recompute::Keep(kept) => kept as u64 + 1,
                }
            }
        };
        Ok(RoleMemory {
            role: role.to_owned(),
            weights: size.weights,
            gradients: size.learning * F32,
            optimizer: size.learning * F32 * copies,
            activations: tokens * F32 * (kept * size.block + size.depth * size.width),
        })
    }

    /// How many blocks keep their graphs within so much memory.
    pub(crate) fn recompute_within(&self, model: &Model, gibibytes: f64) -> Result<Recompute> {
        if !(gibibytes.is_finite() && gibibytes > 0.0) {
            return Err(Error::Recipe(format!(
                "recompute.gibibytes is {gibibytes}; give one above 0"
            )));
        }
        let size = Size::of(model, &self.models.student)?;
        let tokens = self.tokens(model)?;
        let budget = (gibibytes * f64::from(1 << 30)) as u64;
        let streams = tokens * F32 * size.depth * size.width;
        let block = tokens * F32 * size.block;
        Ok(Recompute::within(budget.saturating_sub(streams), block, size.depth as usize))
    }

    /// Tokens of the largest micro-batch, text aside.
    fn tokens(&self, model: &Model) -> Result<u64> {
        let source = self.source(model)?;
        let samples = &source.samples;
        let patch: usize = model.description.geometry.patch.iter().product();
        let mut largest = 0;
        let mut seen = std::collections::BTreeSet::new();
        for index in 0..samples.count() {
            if seen.insert(samples.group(index)) {
                let sample = samples.read(index)?;
                let latents = sample.tensors.iter().filter(|(key, _)| key.contains("latents"));
                let tokens = latents.map(|(_, data)| {
                    data.shape()[1..].iter().product::<usize>().div_ceil(patch) as u64
                });
                largest = largest.max(tokens.sum::<u64>());
            }
        }
        Ok(largest * self.data.batch as u64)
    }
}

fn bytes(model: &Model) -> u64 {
    model.store.iter().map(|(_, parameter)| parameter.bytes() as u64).sum()
}

impl Size {
    fn of(model: &Model, config: &TrainedConfig) -> Result<Size> {
        let targets = vec!["*".to_owned()];
        let census = train::LoraConfig { rank: 1, alpha: None, dropout: 0.0, targets };
        let layers = train::Adapters::find(census, &**model.network(), &model.store)?;
        let depth = model.network().depth().max(1) as u64;
        let inside = |name: &str| name.contains("blocks.");
        let (mut block, mut width) = (0, 0);
        for (_, [inputs, outputs]) in layers.layers().filter(|(name, _)| inside(name)) {
            // Every layer keeps its input, and what follows it keeps its output.
            block += (inputs + outputs) as u64;
            width = width.max(inputs.min(outputs) as u64);
        }
        let all = |names: &mut dyn Iterator<Item = u64>| names.sum::<u64>();
        let learning = match &config.learns {
            LearnsConfig::All => {
                all(&mut model.store.iter().map(|(_, own)| own.values.dims()[0] as u64))
            }
            LearnsConfig::Only { patterns } => {
                let fits = |name: &str| patterns.iter().any(|it| train::matches(it, name));
                let own = model.store.iter().filter(|(name, _)| fits(name));
                all(&mut own.map(|(_, own)| own.values.dims()[0] as u64))
            }
            LearnsConfig::Lora(config) => {
                let found =
                    train::Adapters::find(config.clone(), &**model.network(), &model.store)?;
                let rank = config.rank as u64;
                all(&mut found.layers().map(|(_, [a, b])| rank * (a + b) as u64))
            }
        };
        Ok(Size { weights: bytes(model), learning, block: block / depth, width, depth })
    }
}
