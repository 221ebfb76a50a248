//! What flows between blocks as data that describe themselves.
//!
//! A schedule sends, saves, detaches and adds up what a family puts into its bags without knowing the
//! family; a rank that has never seen a bag can rebuild it from its entries.

use burn::tensor::{Device, Int, Tensor, TensorData};

use crate::error::{Error, Result};
use crate::store::Parameter;

/// What a family passes from part to part of its network, and how it becomes [`Packed`] and back.
pub trait Bag: Sized {
    /// All that is in the bag, by name.
    fn pack(self) -> Packed;

    /// The bag again.
    ///
    /// # Errors
    /// An entry is missing, of another kind or rank, or not one of this bag.
    fn unpack(packed: Packed) -> Result<Self>;
}

/// The stream of a network that has only one: tokens `[B, T, D]`.
impl Bag for Tensor<3> {
    fn pack(self) -> Packed {
        Packed::of([("tokens", Entry::tensor(self))])
    }

    fn unpack(mut packed: Packed) -> Result<Tensor<3>> {
        let tokens = packed.tensor("tokens")?;
        packed.finish().map(|()| tokens)
    }
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Floats that gradients run through.
    Differentiable,
    /// Floats that have no gradient: rope tables, masks.
    Constant,
    /// Integers, such as the noise level of each token.
    Integer,
    /// An optional value that is not there.
    Absent,
}

impl Kind {
    fn words(self) -> &'static str {
        match self {
            Kind::Differentiable => "a differentiable tensor",
            Kind::Constant => "a constant tensor",
            Kind::Integer => "a tensor of integers",
            Kind::Absent => "absent",
        }
    }
}

/// One value of a bag.
#[derive(Clone, Debug)]
pub struct Entry(Content);

#[derive(Clone, Debug)]
enum Content {
    Differentiable(Parameter),
    Constant(Parameter),
    Integer(Tensor<1, Int>, Vec<usize>),
    Absent,
}

impl Entry {
    /// Floats that gradients run through.
    pub fn tensor<const D: usize>(tensor: Tensor<D>) -> Entry {
        Entry(Content::Differentiable(Parameter::new(tensor)))
    }

    /// Floats that have no gradient.
    pub fn constant<const D: usize>(tensor: Tensor<D>) -> Entry {
        Entry(Content::Constant(Parameter::new(tensor)))
    }

    /// Integers.
    pub fn integers<const D: usize>(tensor: Tensor<D, Int>) -> Entry {
        let shape = tensor.dims().to_vec();
        let elements = shape.iter().product::<usize>();
        Entry(Content::Integer(tensor.reshape([elements]), shape))
    }

    /// A value that may be absent.
    pub fn optional(entry: Option<Entry>) -> Entry {
        entry.unwrap_or(Entry(Content::Absent))
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        match &self.0 {
            Content::Differentiable(_) => Kind::Differentiable,
            Content::Constant(_) => Kind::Constant,
            Content::Integer(..) => Kind::Integer,
            Content::Absent => Kind::Absent,
        }
    }
}

/// A bag as named entries, in a fixed order.
#[derive(Clone, Debug, Default)]
pub struct Packed {
    entries: Vec<(String, Entry)>,
}

/// An entry with its values in a row, as a schedule sends it.
#[derive(Clone, Debug)]
pub struct EntryPart {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// The shape of the tensor; empty for what is absent.
    pub shape: Vec<usize>,
    /// The values.
    pub values: EntryValues,
}

/// The values of an entry, in a row.
#[derive(Clone, Debug)]
pub enum EntryValues {
    /// Floats.
    Floats(Tensor<1>),
    /// Integers.
    Integers(Tensor<1, Int>),
    /// None.
    Nothing,
}

/// An entry as plain data, with all that is needed to rebuild it.
#[derive(Clone, Debug, PartialEq)]
pub struct EntryData {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// The shape of the tensor; empty for what is absent.
    pub shape: Vec<usize>,
    /// The values in a row, with their type; none for what is absent.
    pub values: Option<TensorData>,
}

impl Packed {
    /// A bag of these entries.
    pub fn of<const N: usize>(entries: [(&str, Entry); N]) -> Packed {
        Packed { entries: entries.map(|(name, entry)| (name.to_owned(), entry)).into() }
    }

    /// The same bag with the entries of another below `name`, or with `name` absent.
    #[must_use]
    pub fn nest(mut self, name: &str, inner: Option<Packed>) -> Packed {
        match inner {
            Some(inner) => {
                let named = inner.entries.into_iter();
                self.entries.extend(named.map(|(own, entry)| (format!("{name}.{own}"), entry)));
            }
            None => self.entries.push((name.to_owned(), Entry(Content::Absent))),
        }
        self
    }

    /// The names and kinds of all entries.
    pub fn kinds(&self) -> impl Iterator<Item = (&str, Kind)> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), entry.kind()))
    }

    /// Takes out a tensor that gradients run through.
    ///
    /// # Errors
    /// It is missing, or of another kind or rank.
    pub fn tensor<const D: usize>(&mut self, name: &str) -> Result<Tensor<D>> {
        match self.take(name)?.0 {
            Content::Differentiable(own) => shaped(name, own),
            other => Err(unlike(name, &Entry(other), Kind::Differentiable)),
        }
    }

    /// Takes out a tensor without a gradient.
    ///
    /// # Errors
    /// It is missing, or of another kind or rank.
    pub fn constant<const D: usize>(&mut self, name: &str) -> Result<Tensor<D>> {
        match self.take(name)?.0 {
            Content::Constant(own) => shaped(name, own),
            other => Err(unlike(name, &Entry(other), Kind::Constant)),
        }
    }

    /// Takes out a tensor of integers.
    ///
    /// # Errors
    /// It is missing, or of another kind or rank.
    pub fn integers<const D: usize>(&mut self, name: &str) -> Result<Tensor<D, Int>> {
        match self.take(name)?.0 {
            Content::Integer(values, shape) => Ok(values.reshape(rank::<D>(name, &shape)?)),
            other => Err(unlike(name, &Entry(other), Kind::Integer)),
        }
    }

    /// Takes out the entries below `name` as a bag of their own.
    ///
    /// # Errors
    /// There are none.
    pub fn nested(&mut self, name: &str) -> Result<Packed> {
        let below = |own: &str| own.strip_prefix(name)?.strip_prefix('.').map(str::to_owned);
        let entries = std::mem::take(&mut self.entries);
        let mut inner = Vec::new();
        for (own, entry) in entries {
            match below(&own) {
                Some(own) => inner.push((own, entry)),
                None => self.entries.push((own, entry)),
            }
        }
        match inner.is_empty() {
            true => Err(wrong(name, "is missing")),
            false => Ok(Packed { entries: inner }),
        }
    }

    /// What `take` takes out under this name, unless it is absent.
    ///
    /// # Errors
    /// As `take`.
    pub fn optional<T>(
        &mut self,
        name: &str,
        take: impl FnOnce(&mut Packed, &str) -> Result<T>,
    ) -> Result<Option<T>> {
        let absent = |(own, entry): &(String, Entry)| own == name && entry.kind() == Kind::Absent;
        match self.entries.iter().position(absent) {
            Some(at) => {
                self.entries.remove(at);
                Ok(None)
            }
            None => take(self, name).map(Some),
        }
    }

    /// Makes sure that everything was taken out.
    ///
    /// # Errors
    /// An entry is left.
    pub fn finish(self) -> Result<()> {
        match self.entries.first() {
            None => Ok(()),
            Some((name, _)) => Err(wrong(name, "is not one that this network takes")),
        }
    }

    fn take(&mut self, name: &str) -> Result<Entry> {
        let at = self.entries.iter().position(|(own, _)| own == name);
        Ok(self.entries.remove(at.ok_or_else(|| wrong(name, "is missing"))?).1)
    }

    /// The values that gradients run through, in order.
    pub fn differentiable(&self) -> impl Iterator<Item = &Tensor<1>> {
        self.entries.iter().filter_map(|(_, entry)| match &entry.0 {
            Content::Differentiable(own) => Some(&own.values),
            _ => None,
        })
    }

    /// The same bag with what `change` makes of each of [`Packed::differentiable`].
    #[must_use]
    pub fn map(mut self, mut change: impl FnMut(Tensor<1>) -> Tensor<1>) -> Packed {
        for (_, entry) in &mut self.entries {
            if let Content::Differentiable(own) = &mut entry.0 {
                own.values = change(own.values.clone());
            }
        }
        self
    }

    /// All entries, outside any graph; values are shared, not copied.
    pub fn into_parts(self) -> Vec<EntryPart> {
        let part = |(name, entry): (String, Entry)| {
            let kind = entry.kind();
            let (shape, values) = match entry.0 {
                Content::Differentiable(own) | Content::Constant(own) => {
                    (own.shape, EntryValues::Floats(own.values.inner()))
                }
                Content::Integer(values, shape) => (shape, EntryValues::Integers(values.inner())),
                Content::Absent => (Vec::new(), EntryValues::Nothing),
            };
            EntryPart { name, kind, shape, values }
        };
        self.entries.into_iter().map(part).collect()
    }

    /// A bag of such entries.
    ///
    /// # Errors
    /// An entry's values are of another kind than it says.
    pub fn of_parts(parts: Vec<EntryPart>) -> Result<Packed> {
        let entry = |EntryPart { name, kind, shape, values }: EntryPart| {
            let content = match (kind, values) {
                (Kind::Differentiable, EntryValues::Floats(values)) => {
                    Content::Differentiable(Parameter { values, shape })
                }
                (Kind::Constant, EntryValues::Floats(values)) => {
                    Content::Constant(Parameter { values, shape })
                }
                (Kind::Integer, EntryValues::Integers(values)) => Content::Integer(values, shape),
                (Kind::Absent, _) => Content::Absent,
                _ => return Err(wrong(&name, "has values of another kind")),
            };
            Ok((name, Entry(content)))
        };
        Ok(Packed { entries: parts.into_iter().map(entry).collect::<Result<_>>()? })
    }

    /// All entries as plain data, outside any graph.
    pub fn to_data(&self) -> Vec<EntryData> {
        let data = |(name, entry): &(String, Entry)| {
            let (shape, values) = match &entry.0 {
                Content::Differentiable(own) | Content::Constant(own) => {
                    (own.shape.clone(), Some(own.values.clone().inner().into_data()))
                }
                Content::Integer(values, shape) => {
                    (shape.clone(), Some(values.clone().inner().into_data()))
                }
                Content::Absent => (Vec::new(), None),
            };
            EntryData { name: name.clone(), kind: entry.kind(), shape, values }
        };
        self.entries.iter().map(data).collect()
    }

    /// A bag from plain data.
    ///
    /// # Errors
    /// An entry has no values, or another number of them than its shape says.
    pub fn from_data(data: Vec<EntryData>, device: &Device) -> Result<Packed> {
        let entry = |EntryData { name, kind, shape, values }: EntryData| {
            if kind == Kind::Absent {
                return Ok((name, Entry(Content::Absent)));
            }
            let Some(values) = values else { return Err(wrong(&name, "has no values")) };
            let elements = shape.iter().product::<usize>();
            if values.num_elements() != elements {
                let found = values.num_elements();
                let fault = format!("has {found} values, but its shape is {shape:?}");
                return Err(wrong(&name, fault));
            }
            let dtype = values.dtype();
            let place = (device, dtype);
            let content = match kind {
                Kind::Integer => Content::Integer(Tensor::from_data(values, place), shape),
                Kind::Constant => {
                    let values = Tensor::from_data(values, place);
                    Content::Constant(Parameter { values, shape })
                }
                Kind::Differentiable | Kind::Absent => {
                    let values = Tensor::from_data(values, place);
                    Content::Differentiable(Parameter { values, shape })
                }
            };
            Ok((name, Entry(content)))
        };
        Ok(Packed { entries: data.into_iter().map(entry).collect::<Result<_>>()? })
    }
}

fn shaped<const D: usize>(name: &str, own: Parameter) -> Result<Tensor<D>> {
    Ok(own.values.reshape(rank::<D>(name, &own.shape)?))
}

/// A shape of `D` dims.
fn rank<const D: usize>(name: &str, shape: &[usize]) -> Result<[usize; D]> {
    let fault = || wrong(name, format!("has the shape {shape:?}, but the network takes {D} dims"));
    shape.try_into().map_err(|_| fault())
}

fn unlike(name: &str, found: &Entry, wanted: Kind) -> Error {
    let (found, wanted) = (found.kind().words(), wanted.words());
    wrong(name, format!("is {found}, but the network takes {wanted}"))
}

fn wrong(name: &str, fault: impl Into<String>) -> Error {
    Error::Packed { name: name.to_owned(), fault: fault.into() }
}
