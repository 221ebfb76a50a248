//! Stores beside what a model declares: whether they agree, and what a model has.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use burn::tensor::Tensor;

use crate::error::{Error, Result, most_similar};
use crate::gguf::merges;
use crate::layers::Linear;
use crate::part::Part;
use crate::provider::{Bias, Provider};
use crate::quantized::QuantizedMatrix;
use crate::store::{Parameter, Store};
use crate::weights::Weights;

/// A store that remembers what was asked of it.
struct Watched<'a> {
    store: &'a Store,
    /// The shapes that were asked for.
    used: RefCell<BTreeMap<String, Vec<usize>>>,
    /// The matrices of linear layers.
    linears: RefCell<BTreeSet<String>>,
}

impl Provider for Watched<'_> {
    fn values(&self, name: &str, shape: &[usize]) -> Result<Tensor<1>> {
        self.used.borrow_mut().insert(name.to_owned(), shape.to_vec());
        self.store.values(name, shape)
    }

    fn has(&self, name: &str) -> bool {
        Provider::has(self.store, name)
    }

    fn quantized(&self, name: &str, shape: [usize; 2]) -> Result<Option<QuantizedMatrix>> {
        let found = Provider::quantized(self.store, name, shape)?;
        if found.is_some() {
            self.used.borrow_mut().insert(name.to_owned(), shape.to_vec());
        }
        Ok(found)
    }

    fn linear(
        &self,
        leaves: &dyn Provider,
        name: &str,
        sizes: [usize; 2],
        bias: Bias,
        part: &Part,
    ) -> Result<Linear> {
        self.linears.borrow_mut().insert(format!("{name}.weight"));
        self.store.linear(leaves, name, sizes, bias, part)
    }
}

impl Store {
    /// Checks that a model and this store agree: `declare` asks for every layer of the model once,
    /// and whatever it does not ask for must not be here, except names that `ignored` accepts. Returns
    /// the names of the matrices of its linear layers.
    ///
    /// # Errors
    /// A parameter is missing, misshapen or unused.
    pub fn agree(
        &self,
        ignored: &[&str],
        declare: impl FnOnce(&Weights<'_>) -> Result<()>,
    ) -> Result<BTreeSet<String>> {
        let (used, linears) = (RefCell::default(), RefCell::default());
        let watched = Watched { store: self, used, linears };
        declare(&Weights::new(&watched))?;
        let used = watched.used.into_inner();
        let is_unused = |name: &&str| !used.contains_key(*name) && !ignored.contains(name);
        let unused: Vec<&str> = self.names().into_iter().filter(is_unused).collect();
        match unused.first() {
            None => Ok(watched.linears.into_inner()),
            Some(name) => Err(Error::Unused {
                name: (*name).to_owned(),
                count: unused.len(),
                origin: self.origin().to_owned(),
                near: most_similar(name, used.keys().map(String::as_str)),
            }),
        }
    }

    /// Gives parameters the shapes that a model declares, where the file made leading dims one; returns what it gave.
    /// [`Store::with_shapes`] does it again.
    ///
    /// # Errors
    /// A parameter is missing or misshapen.
    pub fn take_shapes(
        &mut self,
        declare: impl FnOnce(&Weights<'_>) -> Result<()>,
    ) -> Result<BTreeMap<String, Vec<usize>>> {
        if !self.merges_dims {
            return Ok(BTreeMap::new());
        }
        let (used, linears) = (RefCell::default(), RefCell::default());
        let watched = Watched { store: self, used, linears };
        declare(&Weights::new(&watched))?;
        let mut shapes = watched.used.into_inner();
        shapes.retain(|name, shape| self.get(name).is_some_and(|own| own.shape != *shape));
        self.with_shapes(&shapes);
        Ok(shapes)
    }

    /// Gives parameters shapes of as many values as they have; a file may have been changed since it was looked at.
    pub fn with_shapes(&mut self, shapes: &BTreeMap<String, Vec<usize>>) {
        for (name, shape) in shapes {
            if let Some(own) = self.get(name).filter(|own| merges(&own.shape, shape)) {
                let values = own.values.clone();
                self.insert(name.clone(), Parameter { values, shape: shape.clone() });
            }
        }
    }

    /// The shape of every parameter a model declares, found by asking without a store.
    ///
    /// # Errors
    /// Whatever `declare` reports.
    pub fn declared(
        declare: impl FnOnce(&Weights<'_>) -> Result<()>,
        fill: impl Fn(&str, &[usize]) -> Tensor<1>,
    ) -> Result<Store> {
        let filling = Filling { fill, store: RefCell::new(Store::new("new parameters")) };
        declare(&Weights::new(&filling))?;
        Ok(filling.store.into_inner())
    }
}

/// Makes every parameter as it is asked for: random initialisation through the same constructors.
struct Filling<F> {
    fill: F,
    store: RefCell<Store>,
}

impl<F: Fn(&str, &[usize]) -> Tensor<1>> Provider for Filling<F> {
    fn values(&self, name: &str, shape: &[usize]) -> Result<Tensor<1>> {
        let values = (self.fill)(name, shape);
        let parameter = Parameter { values: values.clone(), shape: shape.to_vec() };
        self.store.borrow_mut().insert(name, parameter);
        Ok(values)
    }

    fn has(&self, _: &str) -> bool {
        true
    }
}
