//! Alphas that are not among the tensors of a file.

use std::path::Path;

use fancy_regex::Regex;
use safetensors::SafeTensors;
use serde_json::Value;

/// No `adapter_config.json` is longer.
const LONGEST: u64 = 16 << 20;

/// What PEFT's config says of how strongly layers change, wherever it was found.
#[derive(Debug, Default)]
pub(super) struct Alphas {
    usual: Option<f64>,
    /// Layers whose names end so have another.
    patterns: Vec<(Regex, f64)>,
    /// Whether it is divided by the root of the rank.
    by_root: bool,
}

impl Alphas {
    /// Reads the metadata of a LoRA file, or the `adapter_config.json` beside it.
    ///
    /// # Errors
    /// What is wrong with either, in words.
    pub(super) fn read(path: &Path) -> Result<Alphas, String> {
        let file = kernels::map_file(path).map_err(|err| err.to_string())?;
        let (_, header) = SafeTensors::read_metadata(&file).map_err(|err| err.to_string())?;
        let embedded = header.metadata().as_ref().and_then(|map| map.get("lora_adapter_metadata"));
        if let Some(text) = embedded {
            return Alphas::parse(text, "transformer.")
                .map_err(|reason| format!("`lora_adapter_metadata`: {reason}"));
        }
        let beside = path.with_file_name("adapter_config.json");
        // Such a file belongs to the one LoRA that PEFT saves under this name.
        let saved = path.file_name().is_some_and(|name| name == "adapter_model.safetensors");
        if !(saved && beside.exists()) {
            return Ok(Alphas::default());
        }
        let text = kernels::read_text(&beside, LONGEST).map_err(|err| err.to_string());
        text.and_then(|text| Alphas::parse(&text, ""))
            .map_err(|reason| format!("adapter_config.json beside it: {reason}"))
    }

    /// The one that most layers have, if it is said.
    pub(super) fn usual(&self) -> Option<f64> {
        self.usual
    }

    fn parse(text: &str, prefix: &str) -> Result<Alphas, String> {
        let text = text.trim_start_matches('\u{feff}');
        let config: Value = serde_json::from_str(text).map_err(|err| err.to_string())?;
        let get = |key: &str| config.get(format!("{prefix}{key}")).filter(|value| !value.is_null());
        let flag = |key: &str| get(key).and_then(Value::as_bool).unwrap_or(false);
        if flag("use_dora") {
            return Err("`use_dora` is set; DoRA is not supported, plain LoRA is".to_owned());
        }
        let number = |key: &str, value: &Value| {
            let number = value.as_f64().filter(|number| number.is_finite());
            number.ok_or_else(|| format!("`{key}` is {value}, which is not a number"))
        };
        let usual = get("lora_alpha").map(|value| number("lora_alpha", value)).transpose()?;
        let mut patterns = Vec::new();
        for (pattern, value) in
            get("alpha_pattern").and_then(Value::as_object).into_iter().flatten()
        {
            // As PEFT takes them: the end of a name, from one of its dots on.
            let regex = Regex::new(&format!(r"^(?:.*\.)?(?:{pattern})$"))
                .map_err(|err| format!("`alpha_pattern`: {err}"))?;
            patterns.push((regex, number("alpha_pattern", value)?));
        }
        Ok(Alphas { usual, patterns, by_root: flag("use_rslora") })
    }

    /// What the product of a layer's pair is multiplied with; `own` is the layer's `.alpha`.
    pub(super) fn factor(&self, layer: &str, rank: usize, own: Option<f64>) -> f64 {
        let rank = rank as f64;
        if let Some(own) = own {
            return own / rank;
        }
        let fits = |pattern: &Regex| pattern.is_match(layer).unwrap_or(false);
        let pattern = self.patterns.iter().find(|(pattern, _)| fits(pattern));
        match (pattern.map(|(_, alpha)| *alpha).or(self.usual), self.by_root) {
            (None, _) => 1.0,
            (Some(alpha), false) => alpha / rank,
            (Some(alpha), true) => alpha / rank.sqrt(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Alphas;

    #[test]
    fn patterns_go_before_the_usual_alpha() {
        let text = r#"{"transformer.r": 2, "transformer.lora_alpha": 6,
            "transformer.alpha_pattern": {"attn2.to_k": 1, "^proj_out": 8, "to_.*": 3}}"#;
        let alphas = Alphas::parse(text, "transformer.").expect("a config");
        let factor = |layer| alphas.factor(layer, 2, None);
        assert_eq!(factor("blocks.0.attn2.to_k"), 0.5);
        assert_eq!(factor("blocks.0.attn1.to_v"), 1.5);
        assert_eq!(factor("proj_out"), 4.0);
        assert_eq!(factor("blocks.0.proj_out"), 3.0);
        assert_eq!(factor("blocks.0.xattn2.ffn"), 3.0);
        assert_eq!(alphas.factor("proj_out", 4, Some(2.0)), 0.5);
    }

    #[test]
    fn without_an_alpha_the_product_stays_as_it_is() {
        assert_eq!(Alphas::default().factor("a", 7, None), 1.0);
        assert_eq!(Alphas::parse("{}", "").expect("a config").factor("a", 7, None), 1.0);
    }

    #[test]
    fn rank_stabilised_alphas_are_divided_by_the_root() {
        let alphas = Alphas::parse(r#"{"lora_alpha": 6, "use_rslora": true}"#, "");
        assert_eq!(alphas.expect("a config").factor("a", 4, None), 3.0);
    }

    #[test]
    fn faulty_configs_are_refused() {
        for (text, word) in [
            (r#"{"lora_alpha": "six"}"#, "lora_alpha"),
            (r#"{"alpha_pattern": {"a": null}}"#, "alpha_pattern"),
            (r#"{"alpha_pattern": {"(": 1}}"#, "alpha_pattern"),
            (r#"{"use_dora": true}"#, "DoRA"),
            ("{", "EOF"),
        ] {
            let error = Alphas::parse(text, "").expect_err(text);
            assert!(error.contains(word), "{error}");
        }
    }
}
