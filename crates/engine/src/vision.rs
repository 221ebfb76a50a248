//! What an image encoder sees of the pictures of a request.

use burn::tensor::{Device, Tensor};
use folder::{Component, ModelFolder, Storage, Weight};
use models::vision::clip::{ClipVision, ClipVisionConfig};
use nn::Weights;

use crate::error::{Error, Field, Result};
use crate::finite;
use crate::given::GivenMedia;
use crate::source_image::{ClipPreprocessor, SourceImage};

/// The image encoder of a folder.
#[derive(Clone)]
pub(crate) struct Vision {
    network: ClipVision,
    component: Component,
    preprocessor: ClipPreprocessor,
}

impl Vision {
    /// Opens `image_encoder` and `image_processor`.
    ///
    /// # Errors
    /// One of them is missing, damaged or unsupported.
    pub(crate) fn open(folder: &ModelFolder) -> Result<Vision> {
        let config = ClipVisionConfig::from_json(&folder.text("image_encoder", "config.json")?)?;
        let network = ClipVision::new(config);
        let files = folder.weights("image_encoder")?;
        let component =
            Component::new(files, Storage::STORED, &[], |weights| network.declare(weights))?;
        const FILE: &str = "preprocessor_config.json";
        let text = folder.text("image_processor", FILE)?;
        let preprocessor = ClipPreprocessor::from_json(&text).map_err(|reason| {
            folder::Error::Json { path: folder.path().join("image_processor").join(FILE), reason }
        })?;
        Ok(Vision { network, component, preprocessor })
    }

    /// Refuses pictures that the encoder would have to look at in too large a size.
    ///
    /// # Errors
    /// It names the picture.
    pub(crate) fn check(&self, media: &GivenMedia) -> Result<()> {
        let given = [(&media.image, Field::Image), (&media.last_image, Field::LastImage)];
        for (picture, field) in given {
            let size = picture.as_ref().map(|picture| picture.first().size());
            let checked = size.map_or(Ok(()), |size| self.preprocessor.check(size));
            checked.map_err(|reason| Error::request(field, reason))?;
        }
        Ok(())
    }

    /// Opens the weights.
    ///
    /// # Errors
    /// Their files cannot be read any more.
    pub(crate) fn open_weights(&mut self, device: &Device) -> Result<()> {
        Ok(self.component.open(device).map(drop)?)
    }

    /// Values of one of its tokens.
    pub(crate) fn width(&self) -> usize {
        self.network.config.width
    }

    /// Tokens that it makes of a picture.
    pub(crate) fn tokens(&self) -> usize {
        self.network.config.tokens()
    }

    /// Its weights, as they are stored.
    pub(crate) fn weights(&self) -> &[Weight] {
        self.component.weights()
    }

    /// Lets go of the weights.
    pub(crate) fn close(&mut self) {
        self.component.close();
    }

    /// The tokens of all pictures one after the other, `[1, L, D]`.
    ///
    /// # Errors
    /// The weights cannot be read, or the tokens are not finite.
    pub(crate) fn encode(
        &mut self,
        pictures: &[&SourceImage],
        device: &Device,
    ) -> Result<Tensor<3>> {
        let store = self.component.open(device)?;
        let weights = Weights::new(store);
        let tokens = pictures
            .iter()
            .map(|picture| {
                let pixels = self.preprocessor.apply(picture, device);
                Ok(self.network.encode(&weights, pixels)?)
            })
            .collect::<Result<Vec<_>>>()?;
        let tokens = Tensor::cat(tokens, 1);
        finite::check(&tokens, "the image encoder", store)?;
        Ok(tokens)
    }
}
