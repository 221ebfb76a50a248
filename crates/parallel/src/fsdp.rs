//! Parameters spread over ranks (FSDP): each rank holds some of a network's tensors, and lends them to the others
//! while the part of the network that they belong to runs.
//!
//! A tensor has one owner, who holds it whole, and with it what is remembered of it: the state of its optimizer, its
//! average. So a matrix is orthogonalised where it lies, a norm is added up tensor by tensor as on one rank, and files
//! hold the tensors that one rank would write. Owners are dealt out block by block, so that each lends and holds about
//! as much as the others.
//!
//! Tensors are gathered block by block, what stands around the blocks as one more. The next block is on its way while
//! one runs; what was gathered is freed when another takes its place.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use burn::tensor::Tensor;
use comm::{Group, Mesh, Parcel, Trade, Values};
use nn::{Parameter, Provider, Recompute, Store};

use crate::error::{Error, Result};

/// Who holds the parameters of a run.
#[derive(Clone, Debug)]
pub struct Sharding {
    /// Who holds one copy together.
    copy: Group,
    /// All whose gradients are added up: copy after copy.
    learners: Group,
}

impl Sharding {
    /// Every so many neighbours of a mesh hold one copy together. All ranks add up gradients: what each owes is its own
    /// samples', its own tokens' and its own parts of matrices'. None if each rank holds its own copy, or the ranks are
    /// no whole number of copies.
    pub fn over(mesh: &Mesh, ranks: usize) -> Option<Sharding> {
        let learners = mesh.world().clone();
        if ranks < 2 || !learners.size().is_multiple_of(ranks) {
            return None;
        }
        let first = learners.rank() / ranks * ranks;
        let members: Vec<usize> = (first..first + ranks).collect();
        Some(Sharding { copy: learners.split("copy", &members), learners })
    }

    /// Who holds one copy together.
    pub fn copy(&self) -> &Group {
        &self.copy
    }

    /// Whether this rank is of the first copy.
    pub fn is_first_copy(&self) -> bool {
        self.learners.rank() < self.copy.size()
    }

    /// All whose gradients are added up.
    pub fn learners(&self) -> &Group {
        &self.learners
    }
}

/// Bytes of a network's parameters that other ranks lend a rank at once for a pass, where so many `ranks` hold them
/// together: what stands around the blocks, the block that runs, and the one that comes. Blocks whose graphs are kept for
/// the way back keep their parameters too.
pub fn lent_at_once(store: &Store, ranks: u64, recompute: Recompute) -> u64 {
    let mut stages: BTreeMap<Stage, u64> = BTreeMap::new();
    for (name, parameter) in store.iter() {
        *stages.entry(Stage::of(name)).or_default() += parameter.bytes() as u64;
    }
    let stem = stages.remove(&Stage::Stem).unwrap_or(0);
    let blocks = stages.values().sum::<u64>();
    let passing = 2 * stages.values().max().copied().unwrap_or(0);
    let at_once = match recompute {
        Recompute::Never => blocks,
        Recompute::PerBlock => passing,
        Recompute::Keep(kept) => passing + stages.values().rev().take(kept).sum::<u64>(),
    };
    // What a rank holds itself is not lent.
    let all = stem + at_once.min(blocks);
    all - all / ranks.max(1)
}

/// What is gathered at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// What stands around the blocks.
    Stem,
    /// One block, of all stacks of blocks that there are.
    Block(usize),
}

impl Stage {
    /// Where a parameter belongs, by its name.
    fn of(name: &str) -> Stage {
        let parts: Vec<&str> = name.split('.').collect();
        let index = |pair: &[&str]| match pair[0].ends_with("blocks") {
            true => pair[1].parse().ok(),
            false => None,
        };
        parts.windows(2).find_map(index).map_or(Stage::Stem, Stage::Block)
    }

    fn told(self) -> String {
        match self {
            Stage::Stem => "what stands around the blocks".to_owned(),
            Stage::Block(index) => format!("block {index}"),
        }
    }
}

/// A tensor and who holds it.
#[derive(Clone, Debug)]
struct Piece {
    owner: usize,
    shape: Vec<usize>,
}

/// The tensors of one network, and who holds which.
#[derive(Clone, Debug)]
pub struct Shards {
    sharding: Sharding,
    /// Whose they are, in messages.
    role: Arc<str>,
    pieces: BTreeMap<String, Piece>,
    stages: BTreeMap<Stage, Vec<String>>,
}

impl Shards {
    /// Deals out the tensors of a store. What learns, which is held with its optimizer, is dealt out by itself.
    pub fn deal(
        sharding: &Sharding,
        role: &str,
        store: &Store,
        learns: impl Fn(&str) -> bool,
    ) -> Shards {
        let mut stages: BTreeMap<Stage, Vec<String>> = BTreeMap::new();
        for (name, _) in store.iter() {
            stages.entry(Stage::of(name)).or_default().push(name.to_owned());
        }
        let ranks = sharding.copy.size();
        let mut pieces = BTreeMap::new();
        for is_learnt in [true, false] {
            let mut held = vec![0_usize; ranks];
            for names in stages.values() {
                let mut own: Vec<(&String, &Parameter)> = names
                    .iter()
                    .filter(|name| learns(name) == is_learnt)
                    .filter_map(|name| Some((name, store.get(name)?)))
                    .collect();
                own.sort_by_key(|(_, parameter)| std::cmp::Reverse(parameter.bytes()));
                let mut lent = vec![0_usize; ranks];
                for (name, parameter) in own {
                    let owner = (0..ranks).min_by_key(|rank| (lent[*rank], held[*rank]));
                    let owner = owner.expect("a copy has ranks");
                    lent[owner] += parameter.bytes();
                    held[owner] += parameter.bytes();
                    let shape = parameter.shape.clone();
                    pieces.insert(name.clone(), Piece { owner, shape });
                }
            }
        }
        Shards { sharding: sharding.clone(), role: role.into(), pieces, stages }
    }

    /// Who shares.
    pub fn sharding(&self) -> &Sharding {
        &self.sharding
    }

    /// Who of a copy holds a tensor.
    pub fn owner(&self, name: &str) -> Option<usize> {
        self.pieces.get(name).map(|piece| piece.owner)
    }

    /// Whether this rank holds a tensor.
    pub fn owns(&self, name: &str) -> bool {
        self.owner(name) == Some(self.sharding.copy.rank())
    }

    /// Lets go of what others hold.
    pub fn keep_own(&self, store: &mut Store) {
        let others: Vec<&String> = self.pieces.keys().filter(|name| !self.owns(name)).collect();
        others.into_iter().for_each(|name| drop(store.remove(name)));
    }

    /// The whole network, of which `store` holds this rank's tensors, for one pass.
    pub fn provider<'a>(&'a self, store: &'a Store) -> Gathered<'a> {
        let (at_hand, sums) = (RefCell::default(), RefCell::default());
        Gathered { shards: self, store, at_hand, sums }
    }

    /// The whole network on every rank, of which `store` holds this rank's tensors. All ranks take part.
    ///
    /// # Errors
    /// The ranks do not agree or do not come.
    pub fn on_all(&self, store: &Store) -> Result<Store> {
        let copy = &self.sharding.copy;
        let mut whole = Store::new(store.origin());
        for stage in self.stages.keys() {
            let parcels = vec![self.parcels(*stage, store); copy.size()];
            for (name, values) in opened(self.named(copy, *stage).trade(parcels)?)? {
                let shape = self.pieces[&name].shape.clone();
                whole.insert(name, Parameter { values, shape });
            }
        }
        whole.share_quantized(store);
        Ok(whole)
    }

    /// The gradients of what this rank holds, added up over all ranks in their order. What no rank has found is not
    /// there.
    ///
    /// # Errors
    /// The ranks do not agree or do not come.
    pub fn add_up(
        &self,
        gradients: BTreeMap<String, Tensor<1>>,
        what: &str,
    ) -> Result<BTreeMap<String, Tensor<1>>> {
        let Sharding { copy, learners } = &self.sharding;
        let mut parcels = vec![Vec::new(); learners.size()];
        for (name, gradient) in gradients {
            let Some(owner) = self.owner(&name) else { continue };
            let parcel = parcel(&name, gradient);
            let owners = (owner..learners.size()).step_by(copy.size());
            owners.for_each(|rank| parcels[rank].push(parcel.clone()));
        }
        let group = learners.named(format!("the gradients of {what} of the {}", self.role));
        let mut sums: BTreeMap<String, Tensor<1>> = BTreeMap::new();
        for (name, gradient) in opened(group.trade(parcels)?)? {
            merge(&mut sums, [(name, gradient)].into());
        }
        Ok(sums)
    }

    /// What this rank lends of a stage.
    fn parcels(&self, stage: Stage, store: &Store) -> Vec<Parcel> {
        let own = self.stages[&stage].iter().filter(|name| self.owns(name));
        own.filter_map(|name| Some(parcel(name, store.get(name)?.values.clone()))).collect()
    }

    fn named(&self, group: &Group, stage: Stage) -> Group {
        group.named(format!("the parameters of {} of the {}", stage.told(), self.role))
    }
}

/// Adds tensors by name.
pub fn merge(sums: &mut BTreeMap<String, Tensor<1>>, more: BTreeMap<String, Tensor<1>>) {
    for (name, gradient) in more {
        let sum = match sums.remove(&name) {
            Some(sum) => sum + gradient,
            None => gradient,
        };
        sums.insert(name, sum);
    }
}

/// A tensor as it travels.
fn parcel(name: &str, values: Tensor<1>) -> Parcel {
    Parcel { name: name.into(), shape: values.dims().to_vec(), values: Values::Floats(values) }
}

/// The tensors of all ranks, in rank order.
fn opened(trade: Trade) -> Result<impl Iterator<Item = (String, Tensor<1>)>> {
    let all = trade.wait()?.into_iter().flatten();
    Ok(all.filter_map(|parcel| match parcel.values {
        Values::Floats(values) => Some((parcel.name.to_string(), values)),
        Values::Integers(_) | Values::Bytes(_) | Values::Nothing => None,
    }))
}

/// A provider of the whole network: what other ranks hold is gathered as it is asked for.
pub struct Gathered<'a> {
    shards: &'a Shards,
    store: &'a Store,
    at_hand: RefCell<AtHand>,
    sums: RefCell<Option<Sums>>,
}

/// Gradients that are added up as they are found.
#[derive(Default)]
struct Sums {
    /// What this rank found before.
    earlier: BTreeMap<String, Tensor<1>>,
    /// What all ranks found together, of what this one holds.
    added: BTreeMap<String, Tensor<1>>,
}

/// What is gathered.
#[derive(Default)]
struct AtHand {
    stem: Option<BTreeMap<String, Tensor<1>>>,
    block: Option<(usize, BTreeMap<String, Tensor<1>>)>,
    /// What is on its way.
    ahead: Option<(Stage, Trade)>,
}

impl Gathered<'_> {
    /// Adds up the gradients of each block over all ranks as soon as they are found, with what was found `earlier`.
    pub fn adding_to(self, earlier: BTreeMap<String, Tensor<1>>) -> Self {
        let added = BTreeMap::new();
        *self.sums.borrow_mut() = Some(Sums { earlier, added });
        self
    }

    /// What was found earlier and belongs to no block that was run, and what was added up.
    pub fn into_sums(self) -> [BTreeMap<String, Tensor<1>>; 2] {
        let Sums { earlier, added } = self.sums.into_inner().unwrap_or_default();
        [earlier, added]
    }

    fn begin(&self, stage: Stage) -> Result<Trade> {
        let copy = &self.shards.sharding.copy;
        let own = self.shards.parcels(stage, self.store);
        Ok(self.shards.named(copy, stage).trade(vec![own; copy.size()])?)
    }

    /// The tensors of a stage, which may be on their way already.
    fn gather(&self, stage: Stage, hand: &mut AtHand) -> Result<BTreeMap<String, Tensor<1>>> {
        let trade = match hand.ahead.take() {
            Some((coming, trade)) if coming == stage => trade,
            // Not what was thought to be next: it must be taken all the same, or its post would lie there for ever.
            Some((_, other)) => {
                drop(other.wait()?);
                self.begin(stage)?
            }
            None => self.begin(stage)?,
        };
        Ok(opened(trade)?.collect())
    }

    /// Gathers a stage if it is not at hand, and lets the one that comes after it be on its way.
    fn bring(&self, stage: Stage, hand: &mut AtHand) -> Result<()> {
        let index = match stage {
            Stage::Stem if hand.stem.is_some() => return Ok(()),
            Stage::Stem => {
                hand.stem = Some(self.gather(stage, hand)?);
                return self.look_ahead(Some(0), hand);
            }
            Stage::Block(index) => index,
        };
        let before = hand.block.take();
        if before.as_ref().is_some_and(|(own, _)| *own == index) {
            hand.block = before;
            return Ok(());
        }
        // Blocks run upwards, and backwards downwards.
        let next = match before {
            Some((before, _)) if before > index => index.checked_sub(1),
            _ => Some(index + 1),
        };
        hand.block = Some((index, self.gather(stage, hand)?));
        self.look_ahead(next, hand)
    }

    fn look_ahead(&self, next: Option<usize>, hand: &mut AtHand) -> Result<()> {
        let next = next.map(Stage::Block).filter(|next| self.shards.stages.contains_key(next));
        if let (Some(next), None) = (next, &hand.ahead) {
            hand.ahead = Some((next, self.begin(next)?));
        }
        Ok(())
    }
}

impl Provider for Gathered<'_> {
    fn values(&self, name: &str, shape: &[usize]) -> nn::Result<Tensor<1>> {
        let Some(piece) = self.shards.pieces.get(name) else {
            return self.store.values(name, shape);
        };
        if piece.shape != shape {
            let (name, origin) = (name.to_owned(), self.store.origin().to_owned());
            let (got, want) = (piece.shape.clone(), shape.to_vec());
            return Err(nn::Error::Misshapen { name, origin, got, want });
        }
        let (stage, mut hand) = (Stage::of(name), self.at_hand.borrow_mut());
        self.bring(stage, &mut hand)?;
        let found = match stage {
            Stage::Stem => hand.stem.as_ref(),
            Stage::Block(_) => hand.block.as_ref().map(|(_, block)| block),
        };
        let found = found.and_then(|tensors| tensors.get(name)).cloned();
        found.ok_or_else(|| Error::NotLent { name: name.to_owned(), owner: piece.owner }.into())
    }

    /// What is quantized never learns and stays in its file, which every rank maps.
    fn quantized(&self, name: &str, shape: [usize; 2]) -> nn::Result<Option<nn::QuantizedMatrix>> {
        Provider::quantized(self.store, name, shape)
    }

    fn found(
        &self,
        block: usize,
        mut gradients: BTreeMap<String, Tensor<1>>,
    ) -> nn::Result<BTreeMap<String, Tensor<1>>> {
        let mut sums = self.sums.borrow_mut();
        let Some(Sums { earlier, added }) = &mut *sums else { return Ok(gradients) };
        for (name, gradient) in &mut gradients {
            if let Some(earlier) = earlier.remove(name) {
                *gradient = kernels::blend(earlier, 1.0, gradient, 1.0);
            }
        }
        let more = self.shards.add_up(gradients, &Stage::Block(block).told())?;
        merge(added, more);
        Ok(BTreeMap::new())
    }

    fn has(&self, name: &str) -> bool {
        self.shards.pieces.contains_key(name) || Provider::has(self.store, name)
    }
}
