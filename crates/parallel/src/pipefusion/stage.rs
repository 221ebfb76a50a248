//! What one stage does with the tokens at hand: embed or receive, its blocks, head or send.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use burn::tensor::Tensor;
use comm::{Axis, Group, Parcel, Values};
use nn::{
    EntryPart, EntryValues, Inputs, Kind, Network, Packed, Prediction, Provider, Tracks, Weights,
};

use super::remembered::{Made, Remembering};
use super::{Experts, PipeFusion};
use crate::shard::{Pieces, select};
use crate::spread::{Cut, Spread};
use crate::stale::{KeyValues, Stale};
use crate::tensor::TensorSplit;

/// One rank of a pipeline.
pub(super) struct Stage<'a> {
    pipe: &'a PipeFusion,
    /// The patches of every track.
    pub(super) patches: Tracks<Pieces>,
    kept: Arc<Mutex<KeyValues>>,
    made: Made,
}

/// Which tokens are at hand, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub(super) step: usize,
    /// None where all patches are.
    pub(super) patch: Option<usize>,
    /// The branch of guidance.
    pub(super) branch: usize,
}

/// What a message says: go on with this, or stop.
const GO_ON: &str = "go on";
const STOP: &str = "stop";

impl<'a> Stage<'a> {
    pub(super) fn new(pipe: &'a PipeFusion, patches: Tracks<Pieces>) -> Stage<'a> {
        Stage { pipe, patches, kept: Arc::default(), made: Made::default() }
    }

    pub(super) fn group(&self) -> &Group {
        self.pipe.mesh.axis(Axis::Pipeline)
    }

    pub(super) fn is_first(&self) -> bool {
        self.group().rank() == 0
    }

    pub(super) fn is_last(&self) -> bool {
        self.group().rank() + 1 == self.group().size()
    }

    /// Runs this stage for a branch: on the last one, what is predicted for the tokens at hand.
    ///
    /// `inputs` are whole; on later stages their tokens are not looked at.
    ///
    /// # Errors
    /// A block or an exchange failed, or the stages before were told to stop.
    pub(super) fn pass<E: Experts>(
        &self,
        experts: &mut E,
        at: At,
        inputs: &Inputs,
    ) -> std::result::Result<Option<Prediction>, E::Error> {
        let received = match self.is_first() {
            true => None,
            false => match self.receive(at)? {
                Some(stream) => Some(stream),
                None => {
                    self.tell_to_stop(at)?;
                    return Err(experts.stopped());
                }
            },
        };
        let own = select(inputs, &self.own(at));
        let passed = experts.with(at.step, |network, provider| {
            Ok(self.run(network, provider, at, &own, received)?)
        })?;
        match passed {
            Passed::Prediction(prediction) => {
                let prediction = self.whole(*prediction, at)?;
                experts.inspect(at.step, &prediction)?;
                Ok(Some(prediction))
            }
            Passed::Stream(stream) => {
                let mut parcels = vec![signal(GO_ON)];
                parcels.extend(stream.into_parts().into_iter().map(parcel));
                let group = self.named(at);
                group.send_parcels(self.group().rank() + 1, parcels)?;
                Ok(None)
            }
        }
    }

    /// Tells the stages after this one to stop instead of sending them a patch.
    pub(super) fn tell_to_stop(&self, at: At) -> comm::Result<()> {
        match self.is_last() {
            true => Ok(()),
            false => self.named(at).send_parcels(self.group().rank() + 1, vec![signal(STOP)]),
        }
    }

    /// What comes from the stage before, unless it was told to stop.
    fn receive(&self, at: At) -> nn::Result<Option<Packed>> {
        let parcels = self.named(at).recv_parcels(self.group().rank() - 1);
        let mut parcels = parcels.map_err(crate::Error::from)?.into_iter();
        match parcels.next() {
            Some(first) if &*first.name == GO_ON => {
                Packed::of_parts(parcels.map(entry).collect()).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn named(&self, at: At) -> Group {
        let patch = at.patch.map_or("all patches".to_owned(), |patch| format!("patch {patch}"));
        self.group().named(format!("{patch} of branch {} at step {}", at.branch, at.step))
    }

    /// The tokens of this rank among those at hand.
    fn own(&self, at: At) -> Tracks<Vec<Range<usize>>> {
        let sequence = self.pipe.mesh.sequence();
        let (rank, ranks) = (sequence.rank(), sequence.size());
        self.patches.as_ref().map(|pieces| match at.patch {
            Some(patch) => vec![pieces.part(patch, rank, ranks)],
            None => pieces.own(rank, ranks),
        })
    }

    fn run(
        &self,
        network: &dyn Network,
        provider: &dyn Provider,
        at: At,
        inputs: &Inputs,
        received: Option<Packed>,
    ) -> nn::Result<Passed> {
        let group = self.pipe.mesh.axis(Axis::Tensor);
        let (made, branch, is_patched) = (&self.made, at.branch, at.patch.is_some());
        let provider = &Remembering { inner: provider, made, branch, is_patched };
        if group.size() == 1 {
            return self.blocks(network, &Weights::new(provider), at, inputs, received);
        }
        let tensor = TensorSplit { group: group.clone(), splits: self.pipe.splits };
        let provider = tensor.of(provider);
        self.blocks(network, &Weights::new(&provider), at, inputs, received)
    }

    fn blocks(
        &self,
        network: &dyn Network,
        weights: &Weights<'_>,
        at: At,
        inputs: &Inputs,
        received: Option<Packed>,
    ) -> nn::Result<Passed> {
        let shared = network.shared(weights, inputs)?;
        let stream = match received {
            Some(stream) => stream,
            None => network.embed(weights, inputs, &shared)?,
        };
        let blocks = self.pipe.stages[self.group().rank()].clone();
        let mut attention = self.attention(at);
        let (stream, shared) =
            nn::run_blocks(network, weights, blocks, (stream, shared), &mut attention)?;
        match self.is_last() {
            true => Ok(Passed::Prediction(Box::new(network.head(weights, stream, &shared)?))),
            false => Ok(Passed::Stream(stream)),
        }
    }

    fn attention(&self, at: At) -> Spread {
        let cut = |pieces: &Pieces| match at.patch {
            None => Cut { pieces: pieces.clone(), start: 0, whole: pieces.clone() },
            Some(patch) => {
                let range = pieces.range(patch);
                let (start, length) = (range.start, range.len());
                Cut { pieces: Pieces::new(vec![length]), start, whole: pieces.clone() }
            }
        };
        let stale = Stale {
            kept: Arc::clone(&self.kept),
            branch: at.branch,
            step: at.step,
            patch: at.patch,
            patches: self.pipe.patches,
        };
        let cuts = self.patches.as_ref().map(cut);
        Spread::over(&self.pipe.mesh).patched(cuts, stale)
    }

    /// The prediction of all ranks of the sequence for the tokens at hand, in their order.
    fn whole(&self, own: Prediction, at: At) -> comm::Result<Prediction> {
        let sequence = self.pipe.mesh.sequence();
        own.zip(self.patches.as_ref()).named().try_map(|(name, (own, pieces))| {
            let group = sequence.named(format!("the {name} prediction"));
            let parts = group.all_gather(own, &[1])?;
            Ok(assemble(parts, pieces, at.patch, sequence.size()))
        })
    }
}

/// What a stage leaves.
enum Passed {
    Stream(Packed),
    Prediction(Box<Prediction>),
}

/// The parts of all ranks, `[B, own tokens, C]`, in the order of the sequence.
fn assemble(
    parts: Vec<Tensor<3>>,
    pieces: &Pieces,
    patch: Option<usize>,
    ranks: usize,
) -> Tensor<3> {
    if patch.is_some() || ranks == 1 {
        return Tensor::cat(parts, 1);
    }
    let rows: Vec<Vec<Tensor<3>>> = parts
        .into_iter()
        .enumerate()
        .map(|(rank, part)| {
            let lengths = pieces.own(rank, ranks).iter().map(Range::len).collect();
            part.split_with_sizes(lengths, 1)
        })
        .collect();
    let order =
        (0..pieces.count()).flat_map(|piece| rows.iter().map(move |own| own[piece].clone()));
    Tensor::cat(order.collect(), 1)
}

fn signal(name: &str) -> Parcel {
    Parcel { name: name.into(), shape: Vec::new(), values: Values::Nothing }
}

/// An entry of a bag as a parcel, whose name tells its kind too.
fn parcel(part: EntryPart) -> Parcel {
    let kind = match part.kind {
        Kind::Differentiable => 'd',
        Kind::Constant => 'c',
        Kind::Integer => 'i',
        Kind::Absent => 'a',
    };
    let values = match part.values {
        EntryValues::Floats(values) => Values::Floats(values),
        EntryValues::Integers(values) => Values::Integers(values),
        EntryValues::Nothing => Values::Nothing,
    };
    Parcel { name: format!("{kind}{}", part.name).into(), shape: part.shape, values }
}

fn entry(parcel: Parcel) -> EntryPart {
    let (kind, name) = parcel.name.split_at(1);
    let kind = match kind {
        "d" => Kind::Differentiable,
        "c" => Kind::Constant,
        "i" => Kind::Integer,
        _ => Kind::Absent,
    };
    let values = match parcel.values {
        Values::Floats(values) => EntryValues::Floats(values),
        Values::Integers(values) => EntryValues::Integers(values),
        Values::Bytes(_) | Values::Nothing => EntryValues::Nothing,
    };
    EntryPart { name: name.to_owned(), kind, shape: parcel.shape, values }
}
