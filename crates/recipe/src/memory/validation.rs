//! What a look at the student takes beside the training.

use burn::tensor::Device;
use folder::ModelFolder;
use nn::{Precision, Store};

use super::activations::Width;
use super::{F32, bytes};
use crate::error::Result;
use crate::model::{Model, Origin};
use crate::schema::{LearnsConfig, Recipe, ValidationConfig};

/// Feature maps that a VAE's decoder has at once where they are largest: what goes into a block of it,
/// what it is normalised to, what comes out, and what is added.
const FEATURE_MAPS: u64 = 4;

/// What a look takes, in bytes.
pub(super) struct Look {
    /// What is computed: adapters merged into their layers, activations of the largest stage.
    pub(super) computed: u64,
    /// Files that are mapped in the largest stage.
    pub(super) mapped: u64,
}

impl Recipe {
    /// What making the clips of a validation takes: encoders, transformer and VAE come one after
    /// another (`Residency::OneAtATime`).
    pub(super) fn look(&self, config: &ValidationConfig, student: &Model) -> Result<Look> {
        let size = config.size.unwrap_or(student.description.defaults.size);
        let [frames, height, width] = size;
        let geometry = &student.description.geometry;
        let latents = geometry.latents(size)?;
        let tokens = latents.iter().product::<usize>() / geometry.patch.iter().product::<usize>();
        let together = engine::samples_together(tokens).min(config.prompts.len().max(1));
        let denoise =
            Width::of(&**student.network(), &student.store)?.forward((tokens * together) as u64);
        let (mut decode, mut mapped) = (0, 0);
        if let Origin::Folder(path) = &student.origin {
            let folder = ModelFolder::open(path)?;
            mapped = engine::encoder_bytes(&folder, 0)?;
            // Where latents are blocks of pixels there is none.
            if folder.has("vae") {
                let vae = Store::open(&folder.weights("vae")?, Precision::Stored, &Device::flex())?;
                let channels = vae.get("decoder.conv_out.weight").map_or(0, |own| own.shape[1]);
                let group = geometry.factors[0].min(frames);
                decode = (channels * group * height * width) as u64 * F32 * FEATURE_MAPS;
                mapped = mapped.max(bytes(&vae));
            }
        }
        // Two experts are both in place.
        let students = self.models.student.students().len() as u64;
        Ok(Look { computed: students * self.merged(student)? + denoise.max(decode), mapped })
    }

    /// The layers that adapters are merged into, in the type they are stored in.
    fn merged(&self, student: &Model) -> Result<u64> {
        let LearnsConfig::Lora(config) = &self.models.student.learns else { return Ok(0) };
        let adapters = train::Adapters::find(config.clone(), &**student.network(), &student.store)?;
        let weights = adapters.layers().filter_map(|(name, _)| {
            student.store.get(&format!("{name}.weight")).map(|own| own.bytes() as u64)
        });
        Ok(weights.sum())
    }
}
