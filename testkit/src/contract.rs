//! The contract of attention, watched: an attention that holds a model to it.

use std::collections::BTreeSet;

use burn::tensor::Tensor;
use nn::{Attention, Inputs, Mask, Network, Plain, Qkv, Reach, Result, Site, Store, Weights};

/// Who is asked what in one forward pass.
#[derive(Debug, Default)]
pub struct Watched {
    entered: BTreeSet<Site>,
    /// Sites with what they reach, in the order in which they were entered.
    pub reaches: Vec<(Site, Reach)>,
    /// What broke the contract.
    pub faults: Vec<String>,
}

impl Attention for Watched {
    fn attend(
        &mut self,
        site: Site,
        qkv: Qkv,
        reach: Reach,
        mask: Option<&Mask>,
    ) -> Result<Tensor<4>> {
        if !self.entered.insert(site) {
            self.faults.push(format!("{site} is entered twice in one pass"));
        }
        if let Err(fault) = qkv.check("the contract", site, reach) {
            self.faults.push(fault.to_string());
        }
        self.reaches.push((site, reach));
        // Whatever the reach, one device holds all tokens: nothing is lost by answering.
        Plain.attend(site, qkv, Reach::Sharded, mask)
    }
}

/// Runs a network forward under the contract, and returns what it reached.
///
/// # Panics
/// Panics with what broke the contract.
#[track_caller]
pub fn holds(network: &dyn Network, store: &Store, inputs: &Inputs) -> Vec<(Site, Reach)> {
    let mut watched = Watched::default();
    let weights = Weights::new(store);
    nn::forward(network, &weights, inputs, &mut watched).expect("the model runs forward");
    assert!(watched.faults.is_empty(), "{:#?}", watched.faults);
    watched.reaches
}
