//! PixArt-alpha as a fold over blocks.

use burn::tensor::{Device, Tensor};
use nn::{
    Conditioning, Dit, Error, Forward, Inputs, Modality, Positions, Prediction, Result, Sizes,
    Weights,
};

use super::PixartConfig;
use super::blocks::{Block, CaptionProjection, Conditions, Head};

/// The transformer. It holds its config only; parameters come by `Weights`.
#[derive(Clone, Debug)]
pub struct Pixart {
    /// Its numbers.
    pub config: PixartConfig,
}

impl Pixart {
    /// Modules whose matrices keep their stored type under `--dtype bf16`: what stands before and
    /// after the blocks. They hold under 3 % of the weights; rounding them costs more than rounding
    /// all blocks does.
    pub const KEPT: [&str; 4] = ["pos_embed", "adaln_single", "caption_projection", "proj_out"];

    /// Where the tokens of a picture of `[rows, columns]` patches lie, `[batch, 2, T, 2]`.
    ///
    /// Any picture spans the extent the model was trained on.
    pub fn positions(&self, grid: [usize; 2], batch: usize, device: &Device) -> Positions {
        let base = (self.config.sample_size / self.config.patch) as f64;
        let scale = grid.map(|size| base / size as f64 / self.config.interpolation_scale);
        nn::grid_positions(grid, scale, batch, device)
    }

    fn check(&self, video: &Modality) -> Result<()> {
        let wrong = |what, got: String, want: String| Err(Error::Shape { what, got, want });
        let [_, _, width] = video.tokens.dims();
        let channels = self.config.in_channels * self.config.patch * self.config.patch;
        if width != channels {
            let want = format!("the transformer takes {channels} values per token");
            return wrong("the width of a token", width.to_string(), want);
        }
        let [_, _, caption] = video.context.tokens.dims();
        if caption != self.config.caption_width {
            let want = format!("caption_channels is {}", self.config.caption_width);
            return wrong("the width of the text embedding", caption.to_string(), want);
        }
        if self.config.takes_size && video.size.is_none() {
            let want = "this transformer is conditioned on the picture's size".to_owned();
            return wrong("the size condition", "missing".to_owned(), want);
        }
        Ok(())
    }
}

impl Dit for Pixart {
    type Shared = Conditioning;
    type Stream = Tensor<3>;

    fn sizes(&self) -> Sizes {
        Sizes { depth: self.config.depth, heads: self.config.heads }
    }

    fn declare(&self, weights: &Weights<'_>) -> Result<()> {
        Conditions::new(&weights.at("adaln_single"), &self.config)?;
        CaptionProjection::new(&weights.at("caption_projection"), &self.config)?;
        self.patch_projection(weights)?;
        (0..self.config.depth).try_for_each(|index| self.build(index, weights).map(drop))?;
        Head::new(weights, &self.config).map(drop)
    }

    fn shared(&self, weights: &Weights<'_>, inputs: &Inputs) -> Result<Conditioning> {
        let video = inputs.video_alone()?;
        self.check(video)?;
        let conditions = Conditions::new(&weights.at("adaln_single"), &self.config)?;
        let (embedded, modulation) = conditions.apply(&video.levels, video.size.as_ref())?;
        let projection = CaptionProjection::new(&weights.at("caption_projection"), &self.config)?;
        let tokens = &video.context.tokens;
        let [text] = weights.remembered("text", || Ok([projection.apply(tokens.clone())?]))?;
        let text_mask = video.context.mask.as_ref().map(|mask| {
            let [batch, length] = mask.dims();
            ((mask.clone() - 1.0) * 10_000.0).reshape([batch, 1, 1, length])
        });
        Ok(Conditioning {
            modulation,
            embedded,
            index: video.levels.index.clone(),
            text,
            text_mask,
        })
    }

    fn embed(&self, weights: &Weights<'_>, inputs: &Inputs, _: &Conditioning) -> Result<Tensor<3>> {
        let video = inputs.video_alone()?;
        let tokens = self.patch_projection(weights)?.apply(video.tokens.clone())?;
        // Columns come first, as in the reference.
        let width = self.config.width();
        let mut positions = video.positions.embedding(&[1, 0], width, 1.0);
        if tokens.device().is_autodiff() {
            positions = Tensor::from_inner(positions);
        }
        Ok(tokens + positions)
    }

    fn block(
        &self,
        index: usize,
        x: Tensor<3>,
        pass: Forward<'_, Conditioning>,
    ) -> Result<Tensor<3>> {
        self.build(index, pass.weights)?.apply(x, pass)
    }

    fn head(&self, weights: &Weights<'_>, x: Tensor<3>, own: &Conditioning) -> Result<Prediction> {
        Head::new(weights, &self.config)?.apply(x, own).map(Prediction::video)
    }
}

impl Pixart {
    fn build(&self, index: usize, weights: &Weights<'_>) -> Result<Block> {
        Block::new(index, &weights.at(format!("transformer_blocks.{index}")), &self.config)
    }

    fn patch_projection(&self, weights: &Weights<'_>) -> Result<nn::Linear> {
        let PixartConfig { in_channels, patch, .. } = self.config;
        weights
            .patch_projection("pos_embed.proj", &[self.config.width(), in_channels, patch, patch])
    }
}
