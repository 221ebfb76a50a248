//! The two connectors and the features before them.

use burn::tensor::{Int, Tensor, TensorData};
use kernels::{Activation, AttentionInputs, rms_norm};
use nn::{Bands, Error, Linear, Result, Rope, Tracks, Weights};

use super::{ConnectorConfig, ConnectorsConfig, Features};
use crate::dit::ltx2::{Ltx2Config, Mixer, MixerSizes};

/// Added to a mean square, a range and a count.
const EPSILON: f64 = 1e-6;

/// What the range of a hidden state is scaled to.
const RANGE: f64 = 8.0;

/// Both connectors; their parameters are wherever [`Weights`] gets them from.
#[derive(Clone, Debug)]
pub struct Connectors {
    /// Their numbers.
    pub config: ConnectorsConfig,
}

impl Connectors {
    /// Asks for every layer once.
    ///
    /// # Errors
    /// A parameter is missing or misshapen.
    pub fn declare(&self, weights: &Weights<'_>) -> Result<()> {
        self.projections(weights)?;
        for (name, own) in
            [("video_connector", &self.config.video), ("audio_connector", &self.config.audio)]
        {
            let weights = weights.at(name);
            weights.table::<2>("learnable_registers", [own.registers, own.width()])?;
            (0..own.depth).try_for_each(|index| self.block(&weights, own, index).map(drop))?;
        }
        Ok(())
    }

    /// What the video and the sound read of captions: the hidden states of their tokens, `[B, L, C]` each, and
    /// a mask `[B, L]`, 1 for text and 0 for padding. Nothing of the result, `[B, L, D]`, is padding.
    ///
    /// # Errors
    /// A parameter is missing or misshapen, or the states do not fit.
    pub fn apply(
        &self,
        weights: &Weights<'_>,
        states: &[Tensor<3>],
        mask: &Tensor<2>,
    ) -> Result<Tracks<Tensor<3>>> {
        self.check(states, mask)?;
        let features = self.features(weights, states, mask)?;
        self.connected(weights, features, mask)
    }

    /// The same of features, `[B, L, D]` of the video and of the sound, as other trainers keep them.
    ///
    /// # Errors
    /// A parameter is missing or misshapen, or the features do not fit.
    pub fn connected(
        &self,
        weights: &Weights<'_>,
        [video, audio]: [Tensor<3>; 2],
        mask: &Tensor<2>,
    ) -> Result<Tracks<Tensor<3>>> {
        let ConnectorsConfig { video: own, audio: other, .. } = &self.config;
        self.check_length(mask)?;
        let [batch, length] = mask.dims();
        for (features, own) in [(&video, own), (&audio, other)] {
            let want = [batch, length, own.width()];
            if features.dims() != want {
                return Err(Error::Shape {
                    what: "the shape of the features of a caption",
                    got: format!("{:?}", features.dims()),
                    want: format!("the connectors take {want:?}"),
                });
            }
        }
        let order = Order::new(mask);
        let connect = |name, own, x| self.connect(&weights.at(name), own, x, &order);
        Ok(Tracks {
            video: Some(connect("video_connector", &self.config.video, video)?),
            audio: Some(connect("audio_connector", &self.config.audio, audio)?),
        })
    }

    fn check(&self, states: &[Tensor<3>], mask: &Tensor<2>) -> Result<()> {
        let wrong = |what, got: String, want: String| Err(Error::Shape { what, got, want });
        if states.len() != self.config.states {
            let want = format!("text_proj_in_factor is {}", self.config.states);
            return wrong("the number of hidden states", states.len().to_string(), want);
        }
        let [batch, length] = mask.dims();
        let want = [batch, length, self.config.width];
        if let Some(state) = states.iter().find(|state| state.dims() != want) {
            let got = format!("{:?}", state.dims());
            return wrong(
                "the shape of a hidden state",
                got,
                format!("mask and config want {want:?}"),
            );
        }
        self.check_length(mask)
    }

    fn check_length(&self, mask: &Tensor<2>) -> Result<()> {
        let wrong = |what, got: String, want: String| Err(Error::Shape { what, got, want });
        let [_, length] = mask.dims();
        for own in [&self.config.video, &self.config.audio] {
            if !length.is_multiple_of(own.registers) {
                let want =
                    format!("there are {} registers, of which it is a multiple", own.registers);
                return wrong("the length of a caption", length.to_string(), want);
            }
        }
        Ok(())
    }

    /// The projections of the video's features and of the sound's, or one for both.
    fn projections(&self, weights: &Weights<'_>) -> Result<Vec<Linear>> {
        let config = &self.config;
        let inputs = config.width * config.states;
        let linear = |name, outputs| match config.bias {
            true => weights.linear(name, inputs, outputs),
            false => weights.linear_without_bias(name, inputs, outputs),
        };
        match config.features {
            Features::Shared => Ok(vec![linear("text_proj_in", config.width)?]),
            Features::PerStream => Ok(vec![
                linear("video_text_proj_in", config.video.width())?,
                linear("audio_text_proj_in", config.audio.width())?,
            ]),
        }
    }

    /// One vector per token for the video, and one for the sound.
    fn features(
        &self,
        weights: &Weights<'_>,
        states: &[Tensor<3>],
        mask: &Tensor<2>,
    ) -> Result<[Tensor<3>; 2]> {
        let [batch, length] = mask.dims();
        let shown: Tensor<3> = mask.clone().reshape([batch, length, 1]);
        let normed = states.iter().map(|state| {
            let normed = match self.config.features {
                Features::Shared => by_range(state.clone(), &shown),
                Features::PerStream => rms_norm(state.clone(), None, EPSILON as f32),
            };
            (normed * shown.clone()).unsqueeze_dim::<4>(3)
        });
        // The states of one value lie beside each other.
        let joined: Tensor<4> = Tensor::cat(normed.collect(), 3);
        let x: Tensor<3> = joined.reshape([batch, length, self.config.width * self.config.states]);
        let projections = self.projections(weights)?;
        match &projections[..] {
            [video, audio] => {
                let scale =
                    |own: &ConnectorConfig| (own.width() as f64 / self.config.width as f64).sqrt();
                let apply = |layer: &Linear, own| layer.apply(x.clone() * scale(own));
                Ok([apply(video, &self.config.video)?, apply(audio, &self.config.audio)?])
            }
            both => {
                let x = both[0].apply(x)?;
                Ok([x.clone(), x])
            }
        }
    }

    fn connect(
        &self,
        weights: &Weights<'_>,
        own: &ConnectorConfig,
        x: Tensor<3>,
        order: &Order,
    ) -> Result<Tensor<3>> {
        let registers = weights.table::<2>("learnable_registers", [own.registers, own.width()])?;
        let mut x = order.fill(x, registers);
        let [_, length, width] = x.dims();
        let extents = vec![self.config.length as f32];
        let bands = Bands { extents, pairs: width / 2, theta: self.config.theta };
        let rope = places(length, &x).bands(&bands);
        for index in 0..own.depth {
            x = self.block(weights, own, index)?.apply(x, &rope)?;
        }
        Ok(rms_norm(x, None, EPSILON as f32))
    }

    fn block(&self, weights: &Weights<'_>, own: &ConnectorConfig, index: usize) -> Result<Block> {
        let weights = weights.at("transformer_blocks").at(index);
        let width = own.width();
        let sizes = MixerSizes {
            queries: width,
            keys: width,
            heads: own.heads,
            head_width: own.head_width,
            gated: own.gated,
            pairing: self.config.pairing,
        };
        let feed = Ltx2Config::FEED * width;
        Ok(Block {
            mixer: Mixer::new(&weights.at("attn1"), sizes)?,
            up: weights.linear("ff.net.0.proj", width, feed)?,
            down: weights.linear("ff.net.2", feed, width)?,
        })
    }
}

/// Where tokens are that begin and end at their index.
fn places(length: usize, x: &Tensor<3>) -> nn::Positions {
    let places: Vec<f32> = (0..length).flat_map(|index| [index as f32; 2]).collect();
    let places = TensorData::new(places, [1, 1, length, 2]);
    Tensor::<4>::from_data(places, &x.device()).into()
}

/// A hidden state `[B, L, C]` less its mean over a caption's text, over its range there. `shown` is `[B, L, 1]`.
fn by_range(state: Tensor<3>, shown: &Tensor<3>) -> Tensor<3> {
    let [batch, length, width] = state.dims();
    let flat = |x: Tensor<3>| -> Tensor<2> { x.reshape([batch, length * width]) };
    let alone = |x: Tensor<2>| -> Tensor<3> { x.reshape([batch, 1, 1]) };
    let count = shown.clone().sum_dim(1) * width as f64 + EPSILON;
    let mean = alone(flat(state.clone() * shown.clone()).sum_dim(1)) / count;
    // What is hidden is as small, or as large, as no value is.
    let hidden = (shown.clone() - 1.0) * 1e30;
    let most = alone(flat(state.clone() * shown.clone() + hidden.clone()).max_dim(1));
    let least = alone(flat(state.clone() * shown.clone() - hidden).min_dim(1));
    (state - mean) / (most - least + EPSILON) * RANGE
}

/// How the tokens of captions are moved: text first, in its order.
struct Order {
    /// Which token comes where, `[B L]` of all captions in one row.
    from: Tensor<1, Int>,
    /// `[B, L, 1]`, 1 where there is text then.
    text: Tensor<3>,
}

impl Order {
    fn new(mask: &Tensor<2>) -> Order {
        let [batch, length] = mask.dims();
        let shown: Vec<f32> = mask.clone().into_data().iter::<f32>().collect();
        let (mut from, mut text) = (Vec::new(), Vec::new());
        for (caption, shown) in shown.chunks(length).enumerate() {
            let of = |wanted: bool| (0..length).filter(move |at| (shown[*at] > 0.5) == wanted);
            from.extend(of(true).chain(of(false)).map(|at| (caption * length + at) as i64));
            text.extend((0..length).map(|at| f32::from(u8::from(at < of(true).count()))));
        }
        let device = mask.device();
        Order {
            from: Tensor::from_data(TensorData::new(from, [batch * length]), &device),
            text: Tensor::from_data(TensorData::new(text, [batch, length, 1]), &device),
        }
    }

    /// `x` `[B, L, D]` with its text first and then registers `[R, D]`, each where its index says.
    fn fill(&self, x: Tensor<3>, registers: Tensor<2>) -> Tensor<3> {
        let [batch, length, width] = x.dims();
        let moved = x.reshape([batch * length, width]).select(0, self.from.clone());
        let moved: Tensor<3> = moved.reshape([batch, length, width]);
        let times = length / registers.dims()[0];
        let registers: Tensor<3> = registers.repeat_dim(0, times).unsqueeze_dim(0);
        let text = self.text.clone().expand([batch, length, width]).greater_elem(0.5);
        registers.expand([batch, length, width]).mask_where(text, moved)
    }
}

/// One block of a connector.
struct Block {
    mixer: Mixer,
    up: Linear,
    down: Linear,
}

impl Block {
    /// `[B, L, D]` to the same.
    fn apply(&self, x: Tensor<3>, rope: &Rope) -> Result<Tensor<3>> {
        let normed = rms_norm(x.clone(), None, EPSILON as f32);
        let qkv = self.mixer.project(normed.clone(), normed.clone(), Some([rope; 2]))?;
        let scale = (qkv.q.dims()[3] as f32).sqrt().recip();
        let inputs = AttentionInputs { q: qkv.q, k: qkv.k, v: qkv.v, mask: None, scale };
        let x = x + self.mixer.join(normed, kernels::attention(inputs))?;
        let normed = rms_norm(x.clone(), None, EPSILON as f32);
        Ok(x + self.down.apply(self.up.apply_with(normed, Activation::GeluTanh)?)?)
    }
}
