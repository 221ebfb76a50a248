//! What a checkpoint is made of: named tensors and whole numbers.

use std::collections::BTreeMap;

use nn::{Parameter, most_similar};

use crate::error::{Error, Result};

/// One thing a run remembers.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "handles are moved once, when a snapshot is taken")]
pub enum Value {
    /// A tensor, held by its handle: taking a state copies nothing.
    Tensor(Parameter),
    /// A count, a seed, a cursor.
    Number(u64),
}

/// What a part of a run remembers, by name.
#[derive(Clone, Debug, Default)]
pub struct StateDict(BTreeMap<String, Value>);

impl StateDict {
    /// Nothing yet.
    pub fn new() -> StateDict {
        StateDict::default()
    }

    /// Remembers a tensor.
    pub fn tensor(&mut self, name: impl Into<String>, parameter: Parameter) {
        self.0.insert(name.into(), Value::Tensor(parameter));
    }

    /// Remembers a number.
    pub fn number(&mut self, name: impl Into<String>, number: u64) {
        self.0.insert(name.into(), Value::Number(number));
    }

    /// Remembers something.
    pub(crate) fn insert(&mut self, name: &str, value: Value) {
        self.0.insert(name.to_owned(), value);
    }

    /// Remembers all of another state under `prefix`.
    pub fn nest(&mut self, prefix: &str, inner: StateDict) {
        self.0.extend(inner.0.into_iter().map(|(name, value)| (format!("{prefix}.{name}"), value)));
    }

    /// Takes what lies under `prefix` out, with that part of the names removed.
    pub fn take(&mut self, prefix: &str) -> StateDict {
        let start = format!("{prefix}.");
        let (inside, outside) = std::mem::take(&mut self.0)
            .into_iter()
            .partition::<BTreeMap<_, _>, _>(|(name, _)| name.starts_with(&start));
        self.0 = outside;
        let inside = inside.into_iter();
        StateDict(inside.map(|(name, value)| (name[start.len()..].to_owned(), value)).collect())
    }

    /// Takes a tensor out.
    ///
    /// # Errors
    /// It is not here, or it is a number, or of another shape.
    pub fn take_tensor(&mut self, name: &str, shape: &[usize]) -> Result<Parameter> {
        match self.remove(name)? {
            Value::Tensor(tensor) if tensor.shape == shape => Ok(tensor),
            _ => Err(self.fault("holds in another shape", name)),
        }
    }

    /// Takes a number out.
    ///
    /// # Errors
    /// It is not here, or it is a tensor.
    pub fn take_number(&mut self, name: &str) -> Result<u64> {
        match self.remove(name)? {
            Value::Number(number) => Ok(number),
            Value::Tensor(_) => Err(self.fault("holds a tensor instead of the number", name)),
        }
    }

    /// Keeps what `wanted` accepts.
    pub(crate) fn retain(&mut self, wanted: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| wanted(name));
    }

    /// Takes all tensors out.
    pub(crate) fn drain_tensors(&mut self) -> BTreeMap<String, Parameter> {
        let all = std::mem::take(&mut self.0).into_iter();
        let mut tensors = BTreeMap::new();
        for (name, value) in all {
            match value {
                Value::Tensor(tensor) => drop(tensors.insert(name, tensor)),
                Value::Number(_) => drop(self.0.insert(name, value)),
            }
        }
        tensors
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    /// Something is left that nobody asked for.
    pub fn finish(&self) -> Result<()> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(key) => Err(self.fault("holds an unknown", key)),
        }
    }

    /// Which of its tensors are not finite, in words; none if all are.
    pub(crate) fn not_finite(&self) -> Option<String> {
        let tensors = self.iter().filter_map(|(name, value)| match value {
            Value::Tensor(tensor) => Some((name, tensor)),
            Value::Number(_) => None,
        });
        describe_not_finite(tensors, "tensors")
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Everything in order of name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    fn remove(&mut self, name: &str) -> Result<Value> {
        self.0.remove(name).ok_or_else(|| self.fault("lacks", name))
    }

    fn fault(&self, fault: &'static str, key: &str) -> Error {
        let others = self.0.keys().map(String::as_str).filter(|other| *other != key);
        Error::State { fault, key: key.to_owned(), near: most_similar(key, others) }
    }
}

/// Which of the tensors, called `kind`, are not finite; none if all are.
pub(crate) fn describe_not_finite<'a>(
    tensors: impl Iterator<Item = (&'a str, &'a Parameter)>,
    kind: &str,
) -> Option<String> {
    let (mut count, mut first, mut bad) = (0_usize, None, 0_usize);
    for (name, tensor) in tensors {
        count += 1;
        if !kernels::sum_squares(tensor.values.clone()).is_finite() {
            bad += 1;
            first.get_or_insert_with(|| name.to_owned());
        }
    }
    first.map(|first| format!("{bad} of {count} {kind} are not finite, `{first}` first"))
}
