//! The networks that embed captions: one encoder, or a language model whose hidden states connectors turn into
//! what each stream of a transformer reads.

use std::sync::Arc;

use burn::tensor::{Device, Int, Tensor, TensorData};
use folder::tokenizer::{TokenIds, Tokenizer};
use folder::{Component, ModelFolder, Rename, Storage, Weight, agree};
use models::text::connectors::{Connectors, ConnectorsConfig};
use models::text::gemma::{GemmaConfig, GemmaEncoder};
use models::text::t5::{T5Config, T5Encoder};
use nn::{Tracks, Weights};

use crate::error::Result;
use crate::finite;

/// The folder of what stands between a language model and the transformer.
const CONNECTORS: &str = "connectors";

/// How the token ids of a caption become an embedding.
#[derive(Clone)]
pub(super) enum TextNetwork {
    /// By an encoder.
    Encoder { network: T5Encoder, component: Box<Component> },
    /// By all hidden states of a language model, connected to each stream of the transformer.
    Connected(Box<Connected>),
}

/// A language model and its connectors.
#[derive(Clone)]
pub(super) struct Connected {
    network: GemmaEncoder,
    component: Component,
    connectors: Connectors,
    connecting: Component,
}

impl TextNetwork {
    /// Opens the network of an encoder; weights stay on disk.
    ///
    /// # Errors
    /// A part is missing, damaged or unsupported.
    pub(super) fn open(folder: &ModelFolder, encoder: &str) -> Result<TextNetwork> {
        if folder.has(CONNECTORS) {
            return Ok(TextNetwork::Connected(Box::new(Connected::open(folder, encoder)?)));
        }
        let config = T5Config::from_json(&folder.text(encoder, "config.json")?)?;
        let network = T5Encoder::new(config);
        let weights = folder.weights(encoder)?;
        let component = Component::new(weights, Storage::STORED, &T5Encoder::IGNORED, |weights| {
            network.declare(weights)
        })?;
        Ok(TextNetwork::Encoder { network, component: Box::new(component) })
    }

    /// Refuses a tokenizer that puts padding where the network would notice.
    ///
    /// # Errors
    /// It does.
    pub(super) fn check(&self, tokenizer: &Tokenizer) -> Result<()> {
        match self {
            TextNetwork::Encoder { .. } if tokenizer.pads_left() => {
                let reason = "the tokenizer has `padding_side` left, but the encoder is read from the left; \
                              supported: right";
                Err(folder::Error::Unfit(reason.to_owned()).into())
            }
            _ => Ok(()),
        }
    }

    /// The width of an embedding; one for two streams holds both, one after the other.
    pub(super) fn width(&self) -> usize {
        match self {
            TextNetwork::Encoder { network, .. } => network.config.width,
            TextNetwork::Connected(own) => {
                let ConnectorsConfig { video, audio, .. } = &own.connectors.config;
                video.width() + audio.width()
            }
        }
    }

    pub(super) fn open_weights(&mut self, device: &Device) -> Result<()> {
        match self {
            TextNetwork::Encoder { component, .. } => Ok(component.open(device).map(drop)?),
            TextNetwork::Connected(own) => {
                own.component.open(device)?;
                Ok(own.connecting.open(device).map(drop)?)
            }
        }
    }

    pub(super) fn weights(&self) -> Vec<Weight> {
        match self {
            TextNetwork::Encoder { component, .. } => component.weights().to_vec(),
            TextNetwork::Connected(own) => {
                [own.component.weights(), own.connecting.weights()].concat()
            }
        }
    }

    pub(super) fn close(&mut self) {
        match self {
            TextNetwork::Encoder { component, .. } => component.close(),
            TextNetwork::Connected(own) => {
                own.component.close();
                own.connecting.close();
            }
        }
    }

    /// What both streams read of the features of a caption, `[1, L, D]` each, of which those tokens count that a mask
    /// `[1, L]` says; none of an encoder that has no connectors.
    ///
    /// # Errors
    /// The features do not fit, or give values that are not finite.
    pub(super) fn connected(
        &mut self,
        features: [Tensor<3>; 2],
        mask: &Tensor<2>,
        device: &Device,
    ) -> Result<Option<Tensor<3>>> {
        let TextNetwork::Connected(own) = self else { return Ok(None) };
        let store = own.connecting.open(device)?;
        let streams = own.connectors.connected(&Weights::new(store), features, mask)?;
        own.both(streams, device).map(Some)
    }

    /// The embedding `[1, L, D]` of a caption, and which of its tokens count, `[1, L]`.
    ///
    /// # Errors
    /// The network's, or values that are not finite.
    pub(super) fn embed(
        &mut self,
        tokens: &TokenIds,
        device: &Device,
    ) -> Result<(Tensor<3>, Tensor<2>)> {
        let mask: Vec<f32> = tokens.mask.iter().map(|keep| f32::from(*keep)).collect();
        let length = mask.len();
        let mask: Tensor<2> = Tensor::from_data(TensorData::new(mask, [1, length]), device);
        match self {
            TextNetwork::Encoder { network, component } => {
                let store = component.open(device)?;
                let ids = ids(&tokens.ids, device);
                let embedded = network.encode(&Weights::new(store), ids, mask.clone())?;
                finite::check(&embedded, "the text encoder", store)?;
                Ok((embedded, mask))
            }
            TextNetwork::Connected(own) => {
                let embedded = own.embed(tokens, &mask, device)?;
                Ok((embedded, mask.ones_like()))
            }
        }
    }
}

fn ids(ids: &[u32], device: &Device) -> Tensor<2, Int> {
    let values: Vec<i64> = ids.iter().map(|id| i64::from(*id)).collect();
    Tensor::from_data(TensorData::new(values, [1, ids.len()]), device)
}

impl Connected {
    fn open(folder: &ModelFolder, encoder: &str) -> Result<Connected> {
        let config = GemmaConfig::from_json(&folder.text(encoder, "config.json")?)?;
        let network = GemmaEncoder { config };
        // The file also holds what sees pictures.
        let rename: Rename = Arc::new(GemmaEncoder::own_name);
        let component = Component::renaming(
            folder.weights(encoder)?,
            Storage::STORED,
            &[],
            Some(rename),
            |weights| network.declare(weights),
        )?;
        let config = ConnectorsConfig::from_json(&folder.text(CONNECTORS, "config.json")?)?;
        agree(
            ("caption_channels of connectors", config.width),
            ("hidden_size of text_encoder", network.config.width),
        )?;
        agree(
            ("text_proj_in_factor of connectors", config.states),
            ("hidden states of text_encoder", network.config.layers.len() + 1),
        )?;
        let connectors = Connectors { config };
        let connecting =
            Component::new(folder.weights(CONNECTORS)?, Storage::STORED, &[], |weights| {
                connectors.declare(weights)
            })?;
        Ok(Connected { network, component, connectors, connecting })
    }

    /// What both streams read, `[1, L, D]`, the video's values first.
    ///
    /// The language model looks back only, so it reads the text and not the padding, which comes after and
    /// which the connectors hide.
    fn embed(&mut self, tokens: &TokenIds, mask: &Tensor<2>, device: &Device) -> Result<Tensor<3>> {
        let length = tokens.ids.len();
        let text = tokens.mask.iter().filter(|keep| **keep > 0).count().max(1);
        let store = self.component.open(device)?;
        let ids = ids(&tokens.ids[..text], device);
        let shown = mask.clone().slice_dim(1, 0..text);
        let states = self.network.hidden_states(&Weights::new(store), ids, &shown)?;
        let padded = states.into_iter().map(|state| {
            let [_, _, width] = state.dims();
            let rest = Tensor::zeros([1, length - text, width], device);
            if length > text { Tensor::cat(vec![state, rest], 1) } else { state }
        });
        let padded: Vec<Tensor<3>> = padded.collect();
        let store = self.connecting.open(device)?;
        let streams = self.connectors.apply(&Weights::new(store), &padded, mask)?;
        self.both(streams, device)
    }

    /// What two streams read as one, the video's values first.
    fn both(&mut self, streams: Tracks<Tensor<3>>, device: &Device) -> Result<Tensor<3>> {
        let both = Tensor::cat(streams.into_iter().collect(), 2);
        finite::check(&both, "the connectors of the text encoder", self.connecting.open(device)?)?;
        Ok(both)
    }
}
