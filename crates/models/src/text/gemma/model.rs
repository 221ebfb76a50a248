//! The language model as a fold over its layers.

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use kernels::{Activation, AttentionInputs};
use nn::{Error, Linear, Pairing, Result, Rope, Weights};

use super::{GemmaConfig, Sight};

/// Gemma's language model; its parameters are wherever [`Weights`] gets them from.
#[derive(Clone, Debug)]
pub struct GemmaEncoder {
    /// Its numbers.
    pub config: GemmaConfig,
}

impl GemmaEncoder {
    /// The name here of a parameter of a file, of the whole model or of its language model; none of what
    /// sees pictures or says the next word.
    pub fn own_name(name: &str) -> Option<String> {
        let prefixes =
            ["model.language_model.", "language_model.model.", "language_model.", "model."];
        let own = prefixes.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
        let known = ["embed_tokens.", "layers.", "norm."];
        known.iter().any(|start| own.starts_with(start)).then(|| own.to_owned())
    }

    /// Asks for every layer once.
    ///
    /// # Errors
    /// A parameter is missing or misshapen.
    pub fn declare(&self, weights: &Weights<'_>) -> Result<()> {
        let config = &self.config;
        weights.embedding("embed_tokens", config.vocabulary, config.width)?;
        (0..config.layers.len())
            .try_for_each(|index| Layer::new(config, &weights.at("layers").at(index)).map(drop))?;
        Norm::new(weights, "norm", config.width, config.epsilon).map(drop)
    }

    /// Token ids `[B, L]` and their mask `[B, L]` (1 for text, 0 for padding, which may stand before or after
    /// the text) to the embeddings and what every layer makes of them, `[B, L, D]` each; the last is
    /// normalised. What padding becomes is not said.
    ///
    /// # Errors
    /// A parameter is missing or misshapen, or tokens and mask do not fit each other or the model.
    pub fn hidden_states(
        &self,
        weights: &Weights<'_>,
        tokens: Tensor<2, Int>,
        mask: &Tensor<2>,
    ) -> Result<Vec<Tensor<3>>> {
        self.check(&tokens, mask)?;
        let config = &self.config;
        let [_, length] = tokens.dims();
        let sights = [Sight::Window, Sight::All].map(|sight| self.sight(sight, length, mask));
        let table = weights.embedding("embed_tokens", config.vocabulary, config.width)?;
        let mut x = table.apply(tokens) * (config.width as f64).sqrt();
        let mut states = Vec::with_capacity(config.layers.len() + 1);
        for (index, sight) in config.layers.iter().enumerate() {
            states.push(x.clone());
            // A layer lives for one turn, so that a provider may load it now and free it after.
            let layer = Layer::new(config, &weights.at("layers").at(index))?;
            let [window, all] = &sights;
            x = layer.apply(x, if *sight == Sight::Window { window } else { all })?;
        }
        states.push(Norm::new(weights, "norm", config.width, config.epsilon)?.apply(x));
        Ok(states)
    }

    /// The rope and the mask of layers that see so far.
    fn sight(&self, sight: Sight, length: usize, mask: &Tensor<2>) -> Seen {
        let config = &self.config;
        let (theta, stretch, window) = match sight {
            Sight::Window => (config.local_theta, 1.0, config.window),
            Sight::All => (config.theta, config.stretch, length),
        };
        let shown: Vec<f32> = mask.clone().into_data().iter::<f32>().collect();
        // A caption's padding sees itself, so that no row of scores is empty.
        let visible = shown.chunks(length).flat_map(|shown| {
            (0..length).flat_map(move |query| {
                let near = move |key: usize| key <= query && query - key < window;
                (0..length).map(move |key| near(key) && (shown[key] > 0.5 || key == query))
            })
        });
        let shape = [shown.len() / length, 1, length, length];
        let visible = TensorData::new(visible.collect::<Vec<_>>(), shape);
        let visible = Tensor::<4, Bool>::from_data(visible, &mask.device());
        Seen {
            rope: rope(length, config.head_width, theta, stretch, &mask.device()),
            mask: kernels::additive_mask(visible),
        }
    }

    fn check(&self, tokens: &Tensor<2, Int>, mask: &Tensor<2>) -> Result<()> {
        let [batch, length] = tokens.dims();
        if batch == 0 || length == 0 {
            let (got, want) = (format!("{:?}", tokens.dims()), "must not be empty".to_owned());
            return Err(Error::Shape { what: "the shape of the token ids", got, want });
        }
        if mask.dims() != tokens.dims() {
            let (got, want) = (mask.dims(), tokens.dims());
            return Err(Error::Shape {
                what: "the shape of the text mask",
                got: format!("{got:?}"),
                want: format!("the token ids have {want:?}"),
            });
        }
        let vocabulary = self.config.vocabulary as i64;
        let ids = tokens.to_data();
        match ids.iter::<i64>().find(|id| !(0..vocabulary).contains(id)) {
            None => Ok(()),
            Some(id) => Err(Error::Shape {
                what: "a token id",
                got: id.to_string(),
                want: format!(
                    "the text encoder knows {vocabulary} ids; does the tokenizer belong to it?"
                ),
            }),
        }
    }
}

/// What a kind of layer sees.
struct Seen {
    rope: Rope,
    /// Added to the scores, `[B, 1, L, L]`.
    mask: Tensor<4>,
}

/// Angles of `length` places for heads of `width`; frequencies are f32, as in the reference.
fn rope(length: usize, width: usize, theta: f64, stretch: f64, device: &Device) -> Rope {
    let frequency =
        |pair: usize| (1.0 / theta.powf(2.0 * pair as f64 / width as f64) / stretch) as f32;
    let angles: Vec<f64> = (0..length)
        .flat_map(|place| (0..width / 2).map(move |pair| f64::from(place as f32 * frequency(pair))))
        .collect();
    let table = |values: Vec<f32>| {
        Tensor::from_data(TensorData::new(values, [1, length, width / 2]), device)
    };
    Rope {
        cosine: table(angles.iter().map(|angle| angle.cos() as f32).collect()),
        sine: table(angles.iter().map(|angle| angle.sin() as f32).collect()),
    }
}

/// RMS norm that scales by one more than its weight.
struct Norm {
    weight: Tensor<1>,
    epsilon: f32,
}

impl Norm {
    fn new(weights: &Weights<'_>, name: &str, width: usize, epsilon: f32) -> Result<Norm> {
        let weight = weights.table::<1>(&format!("{name}.weight"), [width])? + 1.0;
        Ok(Norm { weight, epsilon })
    }

    fn apply<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        kernels::rms_norm(x, Some(self.weight.clone()), self.epsilon)
    }
}

struct Layer {
    norms: [Norm; 4],
    q: Linear,
    k: Linear,
    v: Linear,
    out: Linear,
    head_norms: [Norm; 2],
    gate: Linear,
    up: Linear,
    down: Linear,
    head_width: usize,
    group: usize,
    scale: f32,
}

impl Layer {
    fn new(config: &GemmaConfig, weights: &Weights<'_>) -> Result<Layer> {
        let (width, head_width, feed) = (config.width, config.head_width, config.feed_width);
        let norm = |name| Norm::new(weights, name, width, config.epsilon);
        let attention = weights.at("self_attn");
        let heads = |name| Norm::new(&attention, name, head_width, config.epsilon);
        let [inner, keys] = [config.heads, config.key_heads].map(|heads| heads * head_width);
        Ok(Layer {
            norms: [
                norm("input_layernorm")?,
                norm("post_attention_layernorm")?,
                norm("pre_feedforward_layernorm")?,
                norm("post_feedforward_layernorm")?,
            ],
            q: attention.linear_without_bias("q_proj", width, inner)?,
            k: attention.linear_without_bias("k_proj", width, keys)?,
            v: attention.linear_without_bias("v_proj", width, keys)?,
            out: attention.linear_without_bias("o_proj", inner, width)?,
            head_norms: [heads("q_norm")?, heads("k_norm")?],
            gate: weights.linear_without_bias("mlp.gate_proj", width, feed)?,
            up: weights.linear_without_bias("mlp.up_proj", width, feed)?,
            down: weights.linear_without_bias("mlp.down_proj", feed, width)?,
            head_width,
            group: config.heads / config.key_heads,
            scale: config.score_scale.sqrt().recip() as f32,
        })
    }

    /// `[B, L, D]` to the same.
    fn apply(&self, x: Tensor<3>, seen: &Seen) -> Result<Tensor<3>> {
        let [before, after, before_feed, after_feed] = &self.norms;
        let x = x.clone() + after.apply(self.mix(before.apply(x), seen)?);
        let normed = before_feed.apply(x.clone());
        let gate = self.gate.apply_with(normed.clone(), Activation::GeluTanh)?;
        let fed = self.down.apply(gate * self.up.apply(normed)?)?;
        Ok(x + after_feed.apply(fed))
    }

    fn mix(&self, x: Tensor<3>, seen: &Seen) -> Result<Tensor<3>> {
        let heads = |layer: &Linear| Ok(nn::split_heads(layer.apply(x.clone())?, self.head_width));
        let (q, k, v) = (heads(&self.q)?, heads(&self.k)?, heads(&self.v)?);
        let [q, k] = [(q, &self.head_norms[0]), (k, &self.head_norms[1])]
            .map(|(x, norm)| seen.rope.rotate_pairs(norm.apply(x), Pairing::Split));
        let [k, v] = [k, v].map(|x| repeated(x, self.group));
        let mask = Some(seen.mask.clone());
        let mixed = kernels::attention(AttentionInputs { q, k, v, mask, scale: self.scale });
        self.out.apply(nn::join_heads(mixed))
    }
}

/// Every head `[B, L, G, H]` as often as queries share it, `[B, L, N, H]`.
fn repeated(x: Tensor<4>, group: usize) -> Tensor<4> {
    let [batch, length, heads, width] = x.dims();
    let x: Tensor<5> = x.reshape([batch, length, heads, 1, width]);
    x.repeat_dim(3, group).reshape([batch, length, heads * group, width])
}
