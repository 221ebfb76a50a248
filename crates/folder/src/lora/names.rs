//! Which layer of a model a name means.

use std::collections::BTreeMap;

use nn::{Store, most_similar};

use super::key::{Key, Spelling};

/// What a family's layers may be called besides the names of diffusers.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// The name of a layer in the family's own code, where it is another.
    pub original: fn(&str) -> Option<String>,
    /// The family of models that a key of a foreign LoRA gives away.
    pub likely: fn(&str) -> Option<&'static str>,
}

impl Names {
    /// No other names.
    pub const DIFFUSERS: Names = Names { original: |_| None, likely: |_| None };
}

/// Every layer of a model under each name that a LoRA may call it by.
pub(super) struct Layers {
    dotted: BTreeMap<String, String>,
    /// Joining names by underscores may make one of two; such a name means nothing.
    underscored: BTreeMap<String, Option<String>>,
    pub(super) likely: fn(&str) -> Option<&'static str>,
}

impl Layers {
    /// The layers of a store.
    pub(super) fn new(store: &Store, names: Names) -> Layers {
        let (dotted, underscored) = (BTreeMap::new(), BTreeMap::new());
        let mut layers = Layers { dotted, underscored, likely: names.likely };
        for layer in store.names().into_iter().filter_map(|name| name.strip_suffix(".weight")) {
            for name in std::iter::once(layer.to_owned()).chain((names.original)(layer)) {
                let joined = layers.underscored.entry(name.replace('.', "_"));
                let compare = |known: &mut Option<String>| {
                    known.take_if(|known| known != layer);
                };
                joined.and_modify(compare).or_insert_with(|| Some(layer.to_owned()));
                layers.dotted.insert(name, layer.to_owned());
            }
        }
        layers
    }

    /// The layer that a key means.
    pub(super) fn find(&self, key: &Key<'_>) -> Option<&str> {
        match key.spelling {
            Spelling::Dotted => self.dotted.get(key.layer).map(String::as_str),
            Spelling::Underscored => self.underscored.get(key.layer)?.as_deref(),
        }
    }

    /// The name most like that of a key which finds nothing.
    pub(super) fn nearest(&self, key: &Key<'_>) -> Option<String> {
        match key.spelling {
            Spelling::Dotted => most_similar(key.layer, self.dotted.keys().map(String::as_str)),
            Spelling::Underscored => {
                most_similar(key.layer, self.underscored.keys().map(String::as_str))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Tensor};
    use nn::{Parameter, Store};

    use super::{Layers, Names};
    use crate::lora::key::Key;

    #[test]
    fn a_joined_name_that_may_be_two_means_nothing() {
        let mut store = Store::new("the test");
        for layer in ["a.b_c", "a_b.c", "a.d"] {
            let weight = Tensor::<2>::zeros([2, 2], &Device::flex());
            store.insert(format!("{layer}.weight"), Parameter::new(weight));
        }
        let layers = Layers::new(&store, Names::DIFFUSERS);
        let find = |name: &str| {
            let key = Key::parse(name).expect("a key");
            layers.find(&key).map(str::to_owned)
        };
        assert_eq!(find("lora_unet_a_b_c.alpha"), None);
        assert_eq!(find("lora_unet_a_d.alpha").as_deref(), Some("a.d"));
        assert_eq!(find("a.b_c.alpha").as_deref(), Some("a.b_c"));
    }
}
