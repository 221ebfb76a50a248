//! How much memory a run will need, part by part and phase by phase, counted before anything is loaded
//! for good.
//!
//! What a run holds all the time is counted to the byte: parameters as they are stored or widened,
//! what the optimizer remembers, the average. What comes and goes is an estimate of what each phase
//! has at once; the run needs what its largest phase does.

mod activations;
mod effort;
mod validation;

use burn::tensor::Device;
use comm::{Axis, MeshShape};
use data::loader::Replica;
use folder::{Hub, ModelFolder};
use nn::{Recompute, Store};

use crate::error::Result;
use crate::model::{Model, Origin};
use crate::prepare::{Models, Prepared};
use crate::schema::{Recipe, TrainedConfig};
use crate::students::Learner;
use activations::{Tokens, Width};
pub use effort::Effort;

/// Bytes of one number that learns, or that goes through a graph.
const F32: u64 = 4;

/// What a run of a network of a few parameters needs: the binary, its threads and the allocator's own.
const PROGRAM: u64 = 46 << 20;

/// One part in so many is lost to the allocator, probably the last page of every tensor and freed pages
/// that another thread does not find again. At rest, with weights and optimizer alone, two runs had 12 % more
/// than these take.
const LOST: u64 = 10;

/// The memory of one role, in bytes.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct RoleMemory {
    /// The role.
    pub role: String,
    /// Its parameters: what learns in f32, the rest as it is stored.
    pub weights: u64,
    /// How much of that is mapped from files.
    pub mapped: u64,
    /// Gradients of what learns; those of a step and of the micro-batch at hand where there are several.
    pub gradients: u64,
    /// What the optimizer remembers.
    pub optimizer: u64,
    /// The same as a checkpoint holds it.
    pub saved: u64,
    /// What the backward pass keeps of a micro-batch.
    pub activations: u64,
    /// The same if nothing were computed again, and if every block were.
    pub activations_by_policy: [u64; 2],
    /// What other ranks lend, and gradients that are not given away yet, by the same two policies; nothing where each
    /// rank holds all parameters itself.
    pub lent_by_policy: [u64; 2],
    /// What a step of it costs.
    pub effort: Effort,
    /// What learns of it, on all ranks that hold it together.
    #[serde(skip)]
    learnt: u64,
}

/// All that is in memory in one phase of a run, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Phase {
    /// What happens meanwhile.
    pub name: &'static str,
    /// What all of it takes.
    pub bytes: u64,
    /// What of it is mapped from files, and need not be in memory all the time.
    pub mapped: u64,
}

/// The memory of a run, in bytes.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Memory {
    /// The program itself.
    pub program: u64,
    /// Every network of the method.
    pub roles: Vec<RoleMemory>,
    /// The running average of the student.
    pub average: u64,
    /// The phases, in the order in which they first happen.
    pub phases: Vec<Phase>,
    /// What a checkpoint adds while it is written, if that takes longer than a step: what is updated
    /// meanwhile is copied first. 0 if only the last step is saved.
    pub snapshot: u64,
    /// Whether a step is about one of the roles alone.
    #[serde(skip)]
    in_turns: bool,
}

impl Memory {
    /// What is held from the first step to the last, the program aside.
    pub fn held(&self) -> u64 {
        let roles = self.roles.iter().map(|role| role.weights + role.optimizer);
        roles.sum::<u64>() + self.average
    }

    /// A phase with so many bytes beside what is held, and so many more that are mapped.
    fn training(&self, name: &'static str, beside: u64, mapped: u64) -> Phase {
        let weights: u64 = self.roles.iter().map(|role| role.mapped).sum();
        let allocated = self.held() - weights + beside;
        let bytes = self.program + weights + mapped + allocated + allocated / LOST;
        Phase { name, bytes, mapped: weights + mapped }
    }

    /// What a step costs one rank.
    pub fn effort(&self) -> Effort {
        let all = self.roles.iter().fold(Effort::default(), |all, role| all.and(role.effort));
        match self.in_turns {
            true => all.shared_by(self.roles.len()),
            false => all,
        }
    }

    /// The largest phase: what the run needs.
    pub fn peak(&self) -> u64 {
        self.phases.iter().map(|phase| phase.bytes).max().unwrap_or(self.program)
    }

    /// The most that is allocated at once: what a machine must have.
    pub fn allocated(&self) -> u64 {
        let phases = self.phases.iter().map(|phase| phase.bytes - phase.mapped);
        phases.max().unwrap_or(self.program)
    }

    /// What a step has beside what is held. A method goes back through one network at a time, and the
    /// gradients of all that learn in the step wait for the update.
    fn step(&self) -> u64 {
        let gradients = self.roles.iter().map(|role| role.gradients);
        let gradients: u64 = match self.in_turns {
            true => gradients.max().unwrap_or(0),
            false => gradients.sum(),
        };
        gradients + self.roles.iter().map(|role| role.activations).max().unwrap_or(0)
    }
}

impl Recipe {
    /// The memory of each rank of a run.
    ///
    /// # Errors
    /// Whatever would keep the run from beginning.
    pub fn memory(&self, mesh: MeshShape, device: &Device, hub: &Hub) -> Result<Memory> {
        let shard = self.shard(mesh.size().unwrap_or(usize::MAX))?;
        let own = self.of_one_replica(mesh.degree(Axis::Data));
        own.memory_within(mesh, shard as u64, device, hub)
    }

    /// The memory of each rank of a replica, of which `shard` hold the parameters together.
    fn memory_within(
        &self,
        mesh: MeshShape,
        shard: u64,
        device: &Device,
        hub: &Hub,
    ) -> Result<Memory> {
        let place = (Replica::ONLY, mesh);
        let Prepared { learners, turns, others, .. } = self.prepare(device, hub, place)?;
        let student = &learners[0].model;
        let sequence = mesh.degree(Axis::Ulysses) * mesh.degree(Axis::Ring);
        let tokens = self.tokens(student)?.shared_by(sequence as u64);
        let share = Share {
            tokens,
            shard,
            sequence: sequence as u64,
            tensor: mesh.degree(Axis::Tensor) as u64,
            ranks: mesh.size().unwrap_or(usize::MAX) as u64,
        };
        let config = &self.models.student;
        let (mut roles, mut average) = (Vec::new(), 0);
        let averages = self.callbacks.averages();
        for Learner { role, model, updates, .. } in &learners {
            roles.push(self.role(role, model, config, share)?);
            // Until it starts an average is the student itself.
            let count = averages.iter().filter(|(_, own)| own.start < *updates).count() as u64;
            if count > 0 {
                average += (count * self.learnt(model, config)?.weights).div_ceil(shard);
            }
        }
        if let Some(Models { teacher, critic, config }) = &others {
            let width = Width::of(&**teacher.network(), &teacher.store)?;
            let passes = (&width, Recompute::Never);
            let effort = self.effort(("teacher", teacher), passes, (share, 0));
            roles.push(RoleMemory { effort, ..frozen("teacher", teacher, shard) });
            roles.push(self.role("critic", critic, config, share)?);
        }
        let (program, phases, snapshot) = (PROGRAM, Vec::new(), 0);
        let in_turns = turns.is_some();
        let mut memory = Memory { program, roles, average, phases, snapshot, in_turns };
        memory.phases = self.phases(&memory, student, shard, hub)?;
        memory.snapshot = self.snapshot(&memory, shard);
        Ok(memory)
    }

    fn phases(
        &self,
        memory: &Memory,
        student: &Model,
        shard: u64,
        hub: &Hub,
    ) -> Result<Vec<Phase>> {
        let mut phases = Vec::new();
        if let Some((prompt, from)) = self.negative_prompt_wanted() {
            let folder = ModelFolder::open(&folder::locate(&self.located(from), hub)?)?;
            let encoder = engine::encoder_bytes(&folder, prompt.encoder_index)?;
            let bytes = memory.program + encoder;
            phases.push(Phase { name: "negative prompt", bytes, mapped: encoder });
        }
        phases.push(memory.training("training", memory.step(), 0));
        if let Some(config) = &self.callbacks.validation {
            let look = self.look(config, student)?;
            // What a step has freed stays with the process for a while (`kernels::keep_freed_pages`)
            // and is used again; files that are mapped come on top of it.
            // Every rank makes clips with all parameters, whoever holds them.
            let whole = match shard {
                1 => 0,
                _ => bytes(&student.store) + self.learnt(student, &self.models.student)?.weights,
            };
            let networks = if memory.in_turns { memory.roles.len() as u64 } else { 1 };
            let beside = memory.step().max(look.computed + whole * networks);
            phases.push(memory.training("validation", beside, look.mapped));
        }
        Ok(phases)
    }

    /// What a checkpoint that is being written keeps from being changed in place: what this rank holds of it.
    fn snapshot(&self, memory: &Memory, shard: u64) -> u64 {
        let every = self.checkpoint.every;
        if every == 0 || every >= self.run.steps {
            return 0;
        }
        let learnt = memory.roles.iter().map(|role| role.learnt + role.saved);
        learnt.sum::<u64>().div_ceil(shard) + memory.average
    }

    /// How often the gradients of a role are there at once: those of earlier micro-batches stay while
    /// the next one's are made.
    fn gradient_copies(&self) -> u64 {
        1 + u64::from(self.run.accumulation > 1)
    }

    fn role(
        &self,
        role: &str,
        model: &Model,
        config: &TrainedConfig,
        share: Share,
    ) -> Result<RoleMemory> {
        let learnt = self.learnt(model, config)?;
        let Share { tokens, shard, tensor, .. } = share;
        let splits = model.description.family.splits;
        let width = Width::of_part(&**model.network(), &model.store, (splits, tensor))?;
        let recompute = self.recompute(model, config.recompute)?;
        // What is quantized stays whole on every rank.
        let stays =
            (floats(&model.store) - learnt.stored).div_ceil(shard) + model.store.quantized_bytes();
        let policies = [Recompute::Never, Recompute::PerBlock];
        let passing = |recompute| {
            let lent = lent(model, shard, recompute);
            (lent, self.gradients(&learnt, (shard, lent), recompute))
        };
        let (lent, gradients) = passing(recompute);
        Ok(RoleMemory {
            weights: stays + learnt.weights.div_ceil(shard) + lent,
            mapped: if matches!(model.origin, Origin::Folder(_)) { stays } else { 0 },
            gradients,
            optimizer: learnt.optimizer.div_ceil(shard),
            saved: learnt.saved,
            activations: width.backward(tokens, recompute),
            activations_by_policy: policies.map(|policy| width.backward(tokens, policy)),
            lent_by_policy: policies.map(|policy| {
                let (lent, gradients) = passing(policy);
                if shard > 1 { lent + gradients } else { 0 }
            }),
            effort: self.effort((role, model), (&width, recompute), (share, learnt.weights)),
            learnt: learnt.weights,
            ..frozen(role, model, shard)
        })
    }

    /// Bytes of the gradients that a rank has at once, where `shard` ranks hold the parameters together and lend so
    /// much at once.
    fn gradients(&self, learnt: &Learnt, (shard, lent): (u64, u64), recompute: Recompute) -> u64 {
        match (shard, self.run.accumulation, recompute) {
            (1, ..) | (_, 2.., _) => learnt.weights * self.gradient_copies(),
            // One graph has all of them before any is given away, and then those that others found too.
            (_, _, Recompute::Never) => 2 * learnt.weights - learnt.weights / shard,
            // Gradients are added up and given away block by block.
            _ => learnt.weights.div_ceil(shard) + learnt.weights.min(lent),
        }
    }

    fn learnt(&self, model: &Model, config: &TrainedConfig) -> Result<Learnt> {
        let shapes = self.learns(&config.learns).shapes(&**model.network(), &model.store)?;
        let mut learnt = Learnt { stored: 0, weights: 0, optimizer: 0, saved: 0 };
        for (name, shape) in &shapes {
            let own = shape.iter().product::<usize>() as u64 * F32;
            learnt.stored += model.store.get(name).map_or(0, |stored| stored.bytes() as u64);
            learnt.weights += own;
            learnt.optimizer += config.optimizer.state_bytes(name, shape);
            learnt.saved += config.optimizer.saved_bytes(name, shape);
        }
        Ok(learnt)
    }
}

/// What one rank has of a role.
#[derive(Clone, Copy)]
struct Share {
    /// Its tokens.
    tokens: Tokens,
    /// How many ranks hold the parameters together.
    shard: u64,
    /// How many ranks share the tokens of a sample.
    sequence: u64,
    /// How many ranks share the matrices.
    tensor: u64,
    /// All of them.
    ranks: u64,
}

/// What learns of a role, in bytes.
struct Learnt {
    /// As the file has it; adapters are in none.
    stored: u64,
    /// Widened to f32.
    weights: u64,
    /// What the optimizer remembers of it.
    optimizer: u64,
    /// The same in a checkpoint.
    saved: u64,
}

/// A network that never learns: what a rank holds of it stays in its files.
fn frozen(role: &str, model: &Model, shard: u64) -> RoleMemory {
    let mapped = floats(&model.store).div_ceil(shard) + model.store.quantized_bytes();
    RoleMemory {
        role: role.to_owned(),
        weights: mapped + lent(model, shard, Recompute::PerBlock),
        mapped,
        gradients: 0,
        optimizer: 0,
        saved: 0,
        activations: 0,
        activations_by_policy: [0; 2],
        lent_by_policy: [0; 2],
        effort: Effort::default(),
        learnt: 0,
    }
}

/// What other ranks lend of a network at once, where so many hold it together.
fn lent(model: &Model, shard: u64, recompute: Recompute) -> u64 {
    if shard > 1 { parallel::lent_at_once(&model.store, shard, recompute) } else { 0 }
}

fn bytes(store: &Store) -> u64 {
    floats(store) + store.quantized_bytes()
}

/// Bytes of what is not quantized.
fn floats(store: &Store) -> u64 {
    store.iter().map(|(_, parameter)| parameter.bytes() as u64).sum()
}
