//! Which layer of a model a name means.

use std::collections::BTreeMap;

use nn::{Store, most_similar};

use super::key::{Key, Spelling};

/// The names that a family's layers have besides those of diffusers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// None.
    Diffusers,
    /// Those of Wan's own code, which ComfyUI and kohya's trainers use.
    Wan,
}

/// Wan's layers within a block: in diffusers, in its own code.
const WAN_BLOCK: [(&str, &str); 18] = [
    ("attn1.to_q", "self_attn.q"),
    ("attn1.to_k", "self_attn.k"),
    ("attn1.to_v", "self_attn.v"),
    ("attn1.to_out.0", "self_attn.o"),
    ("attn1.norm_q", "self_attn.norm_q"),
    ("attn1.norm_k", "self_attn.norm_k"),
    ("attn2.to_q", "cross_attn.q"),
    ("attn2.to_k", "cross_attn.k"),
    ("attn2.to_v", "cross_attn.v"),
    ("attn2.to_out.0", "cross_attn.o"),
    ("attn2.norm_q", "cross_attn.norm_q"),
    ("attn2.norm_k", "cross_attn.norm_k"),
    ("attn2.add_k_proj", "cross_attn.k_img"),
    ("attn2.add_v_proj", "cross_attn.v_img"),
    ("attn2.norm_added_k", "cross_attn.norm_k_img"),
    ("norm2", "norm3"),
    ("ffn.net.0.proj", "ffn.0"),
    ("ffn.net.2", "ffn.2"),
];

/// Wan's layers around the blocks.
const WAN_ROOT: [(&str, &str); 10] = [
    ("condition_embedder.time_embedder.linear_1", "time_embedding.0"),
    ("condition_embedder.time_embedder.linear_2", "time_embedding.2"),
    ("condition_embedder.time_proj", "time_projection.1"),
    ("condition_embedder.text_embedder.linear_1", "text_embedding.0"),
    ("condition_embedder.text_embedder.linear_2", "text_embedding.2"),
    ("condition_embedder.image_embedder.norm1", "img_emb.proj.0"),
    ("condition_embedder.image_embedder.ff.net.0.proj", "img_emb.proj.1"),
    ("condition_embedder.image_embedder.ff.net.2", "img_emb.proj.3"),
    ("condition_embedder.image_embedder.norm2", "img_emb.proj.4"),
    ("proj_out", "head.head"),
];

impl Naming {
    /// The name of a layer in the family's own code, where it is another.
    pub fn original(self, layer: &str) -> Option<String> {
        let find = |table: &[(&str, &str)], name: &str| {
            let row = table.iter().find(|(ours, _)| *ours == name);
            row.map(|(_, theirs)| (*theirs).to_owned())
        };
        match (self, layer.strip_prefix("blocks.").and_then(|rest| rest.split_once('.'))) {
            (Naming::Diffusers, _) => None,
            (Naming::Wan, None) => find(&WAN_ROOT, layer),
            (Naming::Wan, Some((index, rest))) => {
                find(&WAN_BLOCK, rest).map(|name| format!("blocks.{index}.{name}"))
            }
        }
    }
}

/// Every layer of a model under each name that a LoRA may call it by.
pub(super) struct Homes {
    dotted: BTreeMap<String, String>,
    /// Joining names by underscores may make one of two; such a name means nothing.
    underscored: BTreeMap<String, Option<String>>,
}

impl Homes {
    /// The layers of a store.
    pub(super) fn new(store: &Store, naming: Naming) -> Homes {
        let mut homes = Homes { dotted: BTreeMap::new(), underscored: BTreeMap::new() };
        for layer in store.iter().filter_map(|(name, _)| name.strip_suffix(".weight")) {
            for name in std::iter::once(layer.to_owned()).chain(naming.original(layer)) {
                let joined = homes.underscored.entry(name.replace('.', "_"));
                let compare = |known: &mut Option<String>| {
                    known.take_if(|known| known != layer);
                };
                joined.and_modify(compare).or_insert_with(|| Some(layer.to_owned()));
                homes.dotted.insert(name, layer.to_owned());
            }
        }
        homes
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

/// The family that a key gives away.
pub(super) fn family(key: &str) -> Option<&'static str> {
    const SIGNS: [(&[&str], &str); 8] = [
        (&["double_blocks", "single_blocks", "single_transformer_blocks"], "Flux or HunyuanVideo"),
        (&["joint_blocks", "joint_transformer_blocks"], "Stable Diffusion 3"),
        (&["down_blocks", "up_blocks", "mid_block", "input_blocks", "output_blocks"], "a U-Net"),
        (&["audio_attn", "audio_ff"], "LTX-2"),
        (&["attn.to_add_out", "attn.add_q_proj", "attn_to_add_out"], "Stable Diffusion 3 or Flux"),
        (&["transformer_blocks"], "PixArt or LTX-Video"),
        (&["self_attn", "cross_attn", "condition_embedder"], "Wan"),
        (&["blocks."], "Wan"),
    ];
    let signs = SIGNS.iter().find(|(signs, _)| signs.iter().any(|sign| key.contains(sign)));
    signs.map(|(_, family)| *family)
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Tensor};
    use nn::{Parameter, Store};

    use super::{Homes, Naming, family};
    use crate::lora::key::Key;

    #[test]
    fn a_joined_name_that_may_be_two_means_nothing() {
        let mut store = Store::new("the test");
        for layer in ["a.b_c", "a_b.c", "a.d"] {
            let weight = Tensor::<2>::zeros([2, 2], &Device::flex());
            store.insert(format!("{layer}.weight"), Parameter::new(weight));
        }
        let homes = Homes::new(&store, Naming::Diffusers);
        let find = |name: &str| {
            let key = Key::parse(name).expect("a key");
            homes.find(&key).map(str::to_owned)
        };
        assert_eq!(find("lora_unet_a_b_c.alpha"), None);
        assert_eq!(find("lora_unet_a_d.alpha").as_deref(), Some("a.d"));
        assert_eq!(find("a.b_c.alpha").as_deref(), Some("a.b_c"));
    }

    #[test]
    fn wan_has_names_of_its_own() {
        let cases = [
            ("blocks.17.attn1.to_out.0", Some("blocks.17.self_attn.o")),
            ("blocks.0.attn2.add_k_proj", Some("blocks.0.cross_attn.k_img")),
            ("blocks.0.norm2", Some("blocks.0.norm3")),
            ("proj_out", Some("head.head")),
            ("patch_embedding", None),
        ];
        for (layer, wanted) in cases {
            assert_eq!(Naming::Wan.original(layer).as_deref(), wanted, "{layer}");
            assert_eq!(Naming::Diffusers.original(layer), None, "{layer}");
        }
    }

    #[test]
    fn families_are_told_apart() {
        let cases = [
            ("transformer.single_transformer_blocks.0.attn.to_q.lora_A.weight", "Flux"),
            ("lora_unet_down_blocks_0_attentions_0_proj_in.alpha", "U-Net"),
            ("transformer.transformer_blocks.0.attn1.to_q.lora_A.weight", "PixArt"),
            ("diffusion_model.blocks.0.self_attn.q.lora_A.weight", "Wan"),
            ("lora_unet_blocks_0_cross_attn_k.alpha", "Wan"),
        ];
        for (key, wanted) in cases {
            assert!(family(key).is_some_and(|family| family.contains(wanted)), "{key}");
        }
        assert_eq!(family("something.else"), None);
    }
}
