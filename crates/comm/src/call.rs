//! What a rank says about a call before any data moves.

use std::fmt;
use std::sync::Arc;

use burn::tensor::{DType, Tensor};

/// The header of a call. Peers compare everything in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What is done.
    pub operation: Operation,
    /// How many calls of this kind came before it: collectives are counted per group, messages per
    /// pair of ranks.
    pub sequence: u64,
    /// The group.
    pub group: Arc<str>,
    /// What it is about, in the caller's words.
    pub label: Option<Arc<str>>,
    /// The type of the elements; `None` where the caller cannot know it.
    pub dtype: Option<DType>,
    /// The shape.
    pub shape: Vec<Extent>,
}

/// What is done in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Every rank gives each rank a part.
    AllToAll,
    /// Every rank gives every rank the same.
    AllGather,
    /// All tensors are added up.
    AllReduce,
    /// Parts are added up, one for each rank.
    ReduceScatter,
    /// One rank gives every rank the same.
    Broadcast {
        /// Who gives.
        root: usize,
    },
    /// Ranks wait for each other.
    Barrier,
    /// A message from one rank to another.
    Message {
        /// The sender.
        from: usize,
        /// The receiver.
        to: usize,
    },
}

/// The size of one dim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// It must be this on every rank.
    Of(usize),
    /// It may differ from rank to rank.
    Any,
}

impl Call {
    /// Whether the peer's header belongs to the same call. What one side cannot know is no difference.
    pub(crate) fn agrees(&self, other: &Call) -> bool {
        let dtype = self.dtype.is_none() || other.dtype.is_none() || self.dtype == other.dtype;
        let one = |(left, right): (&Extent, &Extent)| {
            left == right || (self.is_message() && [left, right].contains(&&Extent::Any))
        };
        let shape =
            self.shape.len() == other.shape.len() && self.shape.iter().zip(&other.shape).all(one);
        let name =
            |call: &Call| (call.operation, call.sequence, call.group.clone(), call.label.clone());
        dtype && shape && name(self) == name(other)
    }

    fn is_message(&self) -> bool {
        matches!(self.operation, Operation::Message { .. })
    }
}

/// The shape of a tensor, of which the dims `uneven` may differ from rank to rank.
pub(crate) fn extents<const D: usize>(tensor: &Tensor<D>, uneven: &[usize]) -> Vec<Extent> {
    let extent = |(dim, size)| if uneven.contains(&dim) { Extent::Any } else { Extent::Of(size) };
    tensor.dims().into_iter().enumerate().map(extent).collect()
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} of group `{}`", self.operation, self.sequence, self.group)?;
        if let Some(label) = &self.label {
            write!(f, " for {label}")?;
        }
        let dtype =
            self.dtype.map_or("any".to_owned(), |dtype| format!("{dtype:?}").to_lowercase());
        let sizes: Vec<String> = self.shape.iter().map(Extent::to_string).collect();
        write!(f, " ({dtype} [{}])", sizes.join(", "))
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operation::AllToAll => f.write_str("all_to_all"),
            Operation::AllGather => f.write_str("all_gather"),
            Operation::AllReduce => f.write_str("all_reduce"),
            Operation::ReduceScatter => f.write_str("reduce_scatter"),
            Operation::Broadcast { root } => write!(f, "broadcast of rank {root}"),
            Operation::Barrier => f.write_str("barrier"),
            Operation::Message { from, to } => write!(f, "message {from} -> {to}"),
        }
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Extent::Of(size) => write!(f, "{size}"),
            Extent::Any => f.write_str("*"),
        }
    }
}
