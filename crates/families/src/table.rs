//! The families, one line each.

use folder::ModelFolder;

use crate::description::{Description, Family};
use crate::error::Result;
use crate::record::Record;
use crate::text::TextRules;
use crate::{duet, ltx2, pixart, pixart_sigma, wan};

/// Every family there is.
pub const FAMILIES: [&Family; 5] =
    [&pixart::FAMILY, &pixart_sigma::FAMILY, &wan::FAMILY, &ltx2::FAMILY, &duet::FAMILY];

/// The family of a name in recipes.
pub fn family(name: &str) -> Option<&'static Family> {
    FAMILIES.into_iter().find(|family| family.name == name)
}

/// Describes a folder by the family of its pipeline class.
///
/// # Errors
/// The folder is of no family we have, or a config is missing, damaged or unsupported.
pub fn describe(folder: &ModelFolder) -> Result<Description> {
    let family = of_class(folder.class()).ok_or_else(|| {
        let classes = FAMILIES.iter().flat_map(|family| family.classes).copied();
        folder::Error::Pipeline {
            path: folder.path().join("model_index.json"),
            class: folder.class().to_owned(),
            supported: classes.collect::<Vec<_>>().join(", "),
        }
    })?;
    let description = (family.describe)(family, folder)?;
    folder.check_options(&[family.options, &Record::KEYS].concat())?;
    Ok(description.with_record(Record::of_folder(folder)?))
}

fn of_class(class: &str) -> Option<&'static Family> {
    FAMILIES.into_iter().find(|family| family.classes.contains(&class))
}

/// The rules of text encoder `index`, which the folder calls `encoder`. Those of a family's own encoders
/// are the family's. Any other follows the family that has an encoder of its class, for as many tokens
/// as its tokenizer says.
///
/// # Errors
/// It is of a class that no family has.
pub fn text_rules(
    folder: &ModelFolder,
    (index, encoder): (usize, &str),
    max_length: Option<usize>,
) -> Result<TextRules> {
    let own = of_class(folder.class()).and_then(|family| family.text.get(index));
    if let Some(own) = own {
        return Ok(own.rules);
    }
    let class = folder.class_of(encoder);
    let all = || FAMILIES.iter().flat_map(|family| family.text);
    let Some(like) = all().find(|own| Some(own.class) == class) else {
        let supported: Vec<&str> = all().map(|own| own.class).collect();
        let reason = format!(
            "`{encoder}` is {}, which is not supported; supported: {}",
            class.unwrap_or("missing"),
            supported.join(", ")
        );
        return Err(
            folder::Error::Json { path: folder.path().join("model_index.json"), reason }.into()
        );
    };
    let max_tokens = max_length.filter(|length| (1..=TextRules::MOST_TOKENS).contains(length));
    Ok(TextRules { max_tokens: max_tokens.unwrap_or(like.rules.max_tokens), ..like.rules })
}

/// The family of models that a key of a LoRA gives away, ours or not.
pub fn foreign_lora(key: &str) -> Option<&'static str> {
    /// Families that we do not have, and parts of keys that only they have.
    const OTHERS: [(&[&str], &str); 4] = [
        (&["double_blocks", "single_blocks", "single_transformer_blocks"], "Flux or HunyuanVideo"),
        (&["joint_blocks", "joint_transformer_blocks"], "Stable Diffusion 3"),
        (&["down_blocks", "up_blocks", "mid_block", "input_blocks", "output_blocks"], "a U-Net"),
        (&["attn.to_add_out", "attn.add_q_proj", "attn_to_add_out"], "Stable Diffusion 3 or Flux"),
    ];
    let has = |signs: &[&str]| signs.iter().any(|sign| key.contains(sign));
    let other = OTHERS.iter().find(|(signs, _)| has(signs)).map(|(_, title)| *title);
    // What names a layer stands behind what names the blocks around it: the last sign is the one that tells. A sign
    // that is only a piece of a longer one (`blocks.` of `transformer_blocks.`) tells nothing.
    let signs = FAMILIES.iter().flat_map(|family| {
        let found = |sign: &&str| key.find(sign).map(|at| (at, at + sign.len(), family.title));
        family.lora_signs.iter().filter_map(found)
    });
    let signs: Vec<(usize, usize, &'static str)> = signs.collect();
    let is_a_piece = |(begin, end, _): &(usize, usize, &str)| {
        let overlaps = |own: &&(usize, usize, &str)| own.0 < *end && *begin < own.1;
        signs.iter().filter(overlaps).any(|own| own.1 - own.0 > end - begin)
    };
    let ours = || signs.iter().filter(|sign| !is_a_piece(sign)).max_by_key(|sign| sign.0);
    other.or_else(|| ours().map(|(_, _, title)| *title))
}

#[cfg(test)]
mod tests {
    use super::{FAMILIES, foreign_lora};

    #[test]
    fn names_and_classes_are_unique() {
        let names: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
        let classes: Vec<&str> =
            FAMILIES.iter().flat_map(|family| family.classes).copied().collect();
        for all in [names, classes] {
            let distinct: std::collections::BTreeSet<&str> = all.iter().copied().collect();
            assert_eq!(distinct.len(), all.len(), "{all:?}");
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
            ("transformer.blocks.0.video.own.to_q.lora_A.weight", "Duet"),
            ("diffusion_model.transformer_blocks.0.audio_attn1.to_q.lora_A.weight", "LTX-2"),
            (
                "diffusion_model.transformer_blocks.0.audio_to_video_attn.to_q.lora_A.weight",
                "LTX-2",
            ),
        ];
        for (key, wanted) in cases {
            assert!(foreign_lora(key).is_some_and(|title| title.contains(wanted)), "{key}");
        }
        assert_eq!(foreign_lora("something.else"), None);
    }
}
