//! Strict loading: a parameter that is missing, misshapen or unknown is an error that names it.

use burn::tensor::{Device, Tensor};
use nn::{Parameter, Store};
use testkit::parity::Question;

use crate::asked::{Asked, all};

#[test]
fn every_parameter_is_asked_for_once_and_no_other() {
    for Asked { name, question, .. } in all() {
        let Question { network, store, .. } = question;
        let names: Vec<String> = store.iter().map(|(name, _)| name.to_owned()).collect();
        let agree = |store: &Store| store.agree(&[], |weights| network.declare(weights));
        agree(&store).unwrap();
        for parameter in [&names[0], &names[names.len() / 2], &names[names.len() - 1]] {
            let mut missing = store.clone();
            missing.remove(parameter).unwrap();
            let refused = agree(&missing).unwrap_err().to_string();
            assert!(refused.contains(&format!("`{parameter}` is not in")), "{name}: {refused}");

            let mut misshapen = store.clone();
            let own = misshapen.remove(parameter).unwrap();
            let more = [own.shape.clone(), vec![2]].concat();
            let count = more.iter().product::<usize>();
            let values = Tensor::<1>::zeros([count], &Device::flex());
            misshapen.insert(parameter.clone(), Parameter { values, shape: more });
            let refused = agree(&misshapen).unwrap_err().to_string();
            assert!(refused.contains(&format!("`{parameter}`")), "{name}: {refused}");
            assert!(refused.contains("has shape"), "{name}: {refused}");
        }
        let mut unknown = store.clone();
        let values = Tensor::<1>::zeros([1], &Device::flex());
        unknown.insert("somebody.elses".to_owned(), Parameter { values, shape: vec![1] });
        let refused = agree(&unknown).unwrap_err().to_string();
        assert!(refused.contains("`somebody.elses`"), "{name}: {refused}");
    }
}
