//! The parts of a key: which layer, and what of it.

/// What a tensor of a LoRA is to its layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LoraTensor {
    /// `A`, from the inputs to the rank.
    Down,
    /// `B`, from the rank to the outputs.
    Up,
    /// What is added behind `B`.
    UpBias,
    /// A number that divided by the rank scales the product.
    Alpha,
    /// A change of the whole weight.
    Weight,
    /// A change of the bias.
    Bias,
}

/// How the names within a layer's name are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// By dots.
    Dotted,
    /// By underscores, as kohya's trainers do.
    Underscored,
}

/// A key of a LoRA file, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Key<'a> {
    /// The layer, without the prefix of a dialect.
    pub(super) layer: &'a str,
    /// How it is spelt.
    pub(super) spelling: Spelling,
    /// What of it.
    pub(super) part: LoraTensor,
}

/// Why a key is not one of a LoRA for a transformer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It belongs to a text encoder.
    TextEncoder,
    /// It belongs to another kind of adapter.
    Kind(&'static str),
    /// Nobody knows.
    Unknown,
}

impl Refusal {
    /// The refusal of a key in words.
    pub(super) fn words(&self, key: &str) -> String {
        match self {
            Refusal::TextEncoder => format!(
                "`{key}` changes a text encoder; only LoRAs of the transformer are supported, \
                 remove the keys of the text encoder"
            ),
            Refusal::Kind(kind) => {
                format!("`{key}` belongs to {kind}, which is not supported; plain LoRA is")
            }
            Refusal::Unknown => format!(
                "`{key}` is no key of a LoRA: it ends neither in `lora_A.weight`, \
                 `lora_down.weight` or the like nor in `.alpha`, `.diff` or `.diff_b`"
            ),
        }
    }
}

const TEXT: [&str; 7] = [
    "text_encoder",
    "text_model.",
    "lora_te",
    "conditioner.",
    "cond_stage_model.",
    "te.",
    "base_model.model.text_model.",
];

/// Parts of keys that only other adapters have.
const KINDS: [(&str, &str); 9] = [
    ("dora_scale", "a DoRA"),
    ("lora_magnitude_vector", "a DoRA"),
    (".hada_", "a LoHa"),
    (".lokr_", "a LoKr"),
    (".lora_mid", "a LoCon with a third matrix"),
    (".oft_", "an OFT"),
    (".boft_", "a BOFT"),
    (".lora_embedding_", "a LoRA of an embedding table"),
    ("diff_m", "a change of the modulation"),
];

/// What is before the name of a layer, and how the name is spelt behind it.
const PREFIXES: [(&str, Spelling); 6] = [
    ("model.diffusion_model.", Spelling::Dotted),
    ("diffusion_model.", Spelling::Dotted),
    ("transformer.", Spelling::Dotted),
    ("lora_unet_", Spelling::Underscored),
    ("lora_transformer_", Spelling::Underscored),
    ("lycoris_", Spelling::Underscored),
];

impl<'a> Key<'a> {
    /// Takes a key apart.
    pub(super) fn parse(key: &'a str) -> Result<Key<'a>, Refusal> {
        if TEXT.iter().any(|prefix| key.starts_with(prefix)) {
            return Err(Refusal::TextEncoder);
        }
        if let Some((_, kind)) = KINDS.iter().find(|(word, _)| key.contains(word)) {
            return Err(Refusal::Kind(kind));
        }
        let (layer, part) = split(key).ok_or(Refusal::Unknown)?;
        let layer = layer.strip_prefix("base_model.model.").unwrap_or(layer);
        let stripped = PREFIXES.iter().find_map(|(prefix, spelling)| {
            layer.strip_prefix(prefix).map(|layer| (layer, *spelling))
        });
        let (layer, spelling) = stripped.unwrap_or((layer, Spelling::Dotted));
        Ok(Key { layer, spelling, part })
    }
}

/// The layer of a key with its prefix, and the part.
fn split(key: &str) -> Option<(&str, LoraTensor)> {
    const ENDS: [(&str, LoraTensor); 3] = [
        (".alpha", LoraTensor::Alpha),
        (".diff", LoraTensor::Weight),
        (".diff_b", LoraTensor::Bias),
    ];
    const SIDES: [(&str, LoraTensor); 6] = [
        (".lora_A", LoraTensor::Down),
        (".lora_B", LoraTensor::Up),
        (".lora_down", LoraTensor::Down),
        (".lora_up", LoraTensor::Up),
        (".lora.down", LoraTensor::Down),
        (".lora.up", LoraTensor::Up),
    ];
    if let Some(found) = ENDS.iter().find_map(|(end, part)| Some((key.strip_suffix(end)?, *part))) {
        return Some(found);
    }
    let (layer, side, rest) = SIDES.iter().find_map(|(side, part)| {
        let (layer, rest) = key.rsplit_once(side)?;
        Some((layer, *part, rest))
    })?;
    // PEFT may put the name of the adapter in between.
    let (name, kind) = rest.strip_prefix('.')?.rsplit_once('.').unwrap_or(("", &rest[1..]));
    match (side, kind) {
        _ if name.contains('.') => None,
        (side, "weight") => Some((layer, side)),
        (LoraTensor::Up, "bias") => Some((layer, LoraTensor::UpBias)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Key, LoraTensor, Refusal, Spelling};

    #[test]
    fn every_dialect_is_taken_apart() {
        use LoraTensor::{Alpha, Bias, Down, Up, UpBias, Weight};
        use Spelling::{Dotted, Underscored};
        let cases = [
            ("transformer.a.0.to_q.lora_A.weight", "a.0.to_q", Dotted, Down),
            ("a.to_q.lora_B.weight", "a.to_q", Dotted, Up),
            ("base_model.model.a.lora_A.weight", "a", Dotted, Down),
            ("base_model.model.a.lora_B.default.weight", "a", Dotted, Up),
            ("base_model.model.transformer.a.lora_B.bias", "a", Dotted, UpBias),
            ("diffusion_model.a.lora_down.weight", "a", Dotted, Down),
            ("model.diffusion_model.a.lora_up.weight", "a", Dotted, Up),
            ("transformer.a.lora.down.weight", "a", Dotted, Down),
            ("diffusion_model.a.diff", "a", Dotted, Weight),
            ("diffusion_model.a.diff_b", "a", Dotted, Bias),
            ("transformer.a.alpha", "a", Dotted, Alpha),
            ("lora_unet_a_0_q.lora_up.weight", "a_0_q", Underscored, Up),
            ("lora_unet_a_0_q.alpha", "a_0_q", Underscored, Alpha),
            ("transformer_blocks.0.a.lora_A.weight", "transformer_blocks.0.a", Dotted, Down),
        ];
        for (key, layer, spelling, part) in cases {
            assert_eq!(Key::parse(key), Ok(Key { layer, spelling, part }), "{key}");
        }
    }

    #[test]
    fn what_is_no_lora_of_a_transformer_is_refused() {
        let text = Err(Refusal::TextEncoder);
        assert_eq!(Key::parse("text_encoder.a.lora_A.weight"), text);
        assert_eq!(Key::parse("text_encoder_2.a.lora_A.weight"), text);
        assert_eq!(Key::parse("lora_te1_text_model_a.lora_down.weight"), text);
        assert_eq!(Key::parse("lora_unet_a.dora_scale"), Err(Refusal::Kind("a DoRA")));
        assert_eq!(Key::parse("lora_unet_a.lokr_w1"), Err(Refusal::Kind("a LoKr")));
        for key in
            ["a.weight", "a.lora_A", "a.lora_A.x.y.weight", "a.lora_A.bias", "a.lora_C.weight"]
        {
            assert_eq!(Key::parse(key), Err(Refusal::Unknown), "{key}");
        }
    }
}
