//! Wan as a fold over blocks.

use burn::tensor::{Device, Tensor};
use nn::{
    Bag, Conditioning, Context, Dit, Entry, Error, Forward, Inputs, Modality, Packed, Positions,
    Prediction, Result, Rope, Sizes, Weights,
};

use super::WanConfig;
use super::blocks::{Block, Head};
use super::conditions::Conditions;

/// The transformer. It holds its config only; parameters come by `Weights`.
#[derive(Clone, Debug)]
pub struct Wan {
    /// Its numbers.
    pub config: WanConfig,
}

/// What every block sees.
#[derive(Clone, Debug)]
pub struct Shared {
    /// The noise level and the prompt.
    pub conditioning: Conditioning,
    /// The image encoder's tokens, `[B, P, D]`.
    pub picture: Option<Tensor<3>>,
    /// Where the tokens are.
    pub rope: Rope,
}

impl Bag for Shared {
    fn pack(self) -> Packed {
        Packed::of([("picture", Entry::optional(self.picture.map(Entry::tensor)))])
            .nest("conditioning", Some(self.conditioning.pack()))
            .nest("rope", Some(self.rope.pack()))
    }

    fn unpack(mut packed: Packed) -> Result<Shared> {
        let shared = Shared {
            conditioning: Conditioning::unpack(packed.nested("conditioning")?)?,
            picture: packed.optional("picture", Packed::tensor)?,
            rope: Rope::unpack(packed.nested("rope")?)?,
        };
        packed.finish().map(|()| shared)
    }
}

impl Wan {
    /// Modules whose matrices keep their stored type under `--dtype bf16`: what stands before and
    /// after the blocks. They hold under 2 % of the weights; rounding them costs more than rounding
    /// all blocks does. The reference keeps its timestep embedder too, and vectors and tables,
    /// which we never round.
    pub const KEPT: [&str; 3] = ["patch_embedding", "condition_embedder", "proj_out"];

    /// Where the tokens of a video of `[frames, rows, columns]` patches lie, `[batch, 3, T, 2]`, in
    /// patches.
    pub fn positions(&self, grid: [usize; 3], batch: usize, device: &Device) -> Positions {
        nn::grid_positions(grid, [1.0; 3], batch, device)
    }

    /// Parameters that some published files hold and no version of the model uses.
    pub fn ignored(&self) -> Vec<String> {
        let name = |block| format!("blocks.{block}.attn2.norm_added_q.weight");
        (0..self.config.depth).map(name).collect()
    }

    fn build(&self, index: usize, weights: &Weights<'_>) -> Result<Block> {
        Block::new(index, &weights.at(format!("blocks.{index}")), &self.config)
    }

    fn patch_projection(&self, weights: &Weights<'_>) -> Result<nn::Linear> {
        let [frames, rows, columns] = self.config.patch;
        let shape = [self.config.width(), self.config.in_channels, frames, rows, columns];
        weights.patch_projection("patch_embedding", &shape)
    }

    fn check(&self, video: &Modality) -> Result<()> {
        let [batch, tokens, width] = video.tokens.dims();
        let channels = self.config.in_channels * self.config.pixels();
        if width != channels {
            let want = format!("the transformer takes {channels} values per token");
            return wrong("the width of a token", width, want);
        }
        if video.positions.dims() != [batch, 3, tokens, 2] {
            let want = format!("{batch} samples of {tokens} tokens lie on three axes");
            return wrong("the shape of positions", format!("{:?}", video.positions.dims()), want);
        }
        let [samples, levels] = video.levels.distinct.dims();
        if samples != batch || video.levels.index.is_none() && levels != 1 {
            let got = format!("[{samples}, {levels}]");
            let want = format!("{batch} samples need a row each, and several levels an index");
            return wrong("the shape of the noise levels", got, want);
        }
        let [_, _, text] = video.context.tokens.dims();
        if text != self.config.text_width {
            let want = format!("text_dim is {}", self.config.text_width);
            return wrong("the width of the text embedding", text, want);
        }
        self.check_picture(video.context.image.as_ref())
    }

    fn check_picture(&self, picture: Option<&Tensor<3>>) -> Result<()> {
        let (config, picture) = match (&self.config.picture, picture) {
            (None, None) => return Ok(()),
            (Some(config), Some(picture)) => (config, picture),
            (None, Some(_)) => {
                let want = "this transformer looks at no image encoder (image_dim is null)";
                return wrong("the image embedding", "given", want);
            }
            (Some(_), None) => {
                let want = "this transformer looks at an image encoder (image_dim is set)";
                return wrong("the image embedding", "missing", want);
            }
        };
        let [_, tokens, width] = picture.dims();
        if width != config.width {
            let want = format!("image_dim is {}", config.width);
            return wrong("the width of the image embedding", width, want);
        }
        match config.tokens {
            Some(places) if places != tokens => {
                let want = format!("pos_embed_seq_len is {places}: a first and a last picture");
                wrong("the number of image tokens", tokens, want)
            }
            _ => Ok(()),
        }
    }
}

fn wrong<T>(what: &'static str, got: impl ToString, want: impl Into<String>) -> Result<T> {
    Err(Error::Shape { what, got: got.to_string(), want: want.into() })
}

impl Dit for Wan {
    type Shared = Shared;
    type Stream = Tensor<3>;

    fn sizes(&self) -> Sizes {
        Sizes { depth: self.config.depth, heads: self.config.heads }
    }

    fn declare(&self, weights: &Weights<'_>) -> Result<()> {
        Conditions::new(weights, &self.config)?;
        self.patch_projection(weights)?;
        (0..self.config.depth).try_for_each(|index| self.build(index, weights).map(drop))?;
        Head::new(weights, &self.config).map(drop)
    }

    fn shared(&self, weights: &Weights<'_>, inputs: &Inputs) -> Result<Shared> {
        let video = inputs.video_alone()?;
        self.check(video)?;
        let conditions = Conditions::new(weights, &self.config)?;
        let (embedded, modulation) = conditions.level.apply(&video.levels)?;
        let Context { tokens, image, .. } = &video.context;
        let [text] =
            weights.remembered("text", || Ok([conditions.text.apply(tokens.clone())?]))?;
        let picture = conditions.picture.zip(image.as_ref()).map(|(embedder, tokens)| {
            let [picture] =
                weights.remembered("picture", || Ok([embedder.apply(tokens.clone())?]))?;
            Ok(picture)
        });
        let conditioning = Conditioning {
            modulation,
            embedded,
            index: video.levels.index.clone(),
            text,
            text_mask: video.context.text_mask(),
        };
        Ok(Shared {
            conditioning,
            picture: picture.transpose()?,
            rope: video.positions.rope(&self.config.pairs(), 1.0),
        })
    }

    fn embed(&self, weights: &Weights<'_>, inputs: &Inputs, _: &Shared) -> Result<Tensor<3>> {
        self.patch_projection(weights)?.apply(inputs.video_alone()?.tokens.clone())
    }

    fn block(&self, index: usize, x: Tensor<3>, pass: Forward<'_, Shared>) -> Result<Tensor<3>> {
        self.build(index, pass.weights)?.apply(x, pass)
    }

    fn head(&self, weights: &Weights<'_>, x: Tensor<3>, shared: &Shared) -> Result<Prediction> {
        let head = Head::new(weights, &self.config)?;
        head.apply(x, &shared.conditioning).map(Prediction::video)
    }
}
