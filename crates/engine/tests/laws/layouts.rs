//! Every layout gives the answer of one device, for every family.

use parallel::Sharded;
use testkit::parity::compare;

use crate::asked::{Asked, all};

/// Sums over ranks associate differently from sums over all tokens; this is what that may cost of the norm
/// of a layer's gradient. The worst is a text of padding alone, whose gradients nearly cancel.
const TOLERANCE: f64 = 2e-5;

#[test]
fn ulysses_equals_one_device() {
    for Asked { name, question, .. } in all() {
        let layout = |group: &comm::Group| -> Box<dyn nn::Schedule> {
            Box::new(Sharded::ulysses(group.clone()))
        };
        let found = compare(&question, 2, TOLERANCE, layout);
        found.unwrap_or_else(|err| panic!("{name}: {err}"));
    }
}
