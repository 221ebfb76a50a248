//! What clips a model takes, read off the configs of its folder.

use std::path::Path;

use data::preprocess::Rules;
use data::store::Bucket;
use models::vae::kl::KlConfig;
use models::vae::wan::WanVaeConfig;

use super::Family;
use crate::error::{Error, Result};
use crate::folder::ModelFolder;
use crate::wan;

/// The sizes of clips for a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClipSizes {
    /// What its buckets must keep to. Nothing is enlarged.
    pub rules: Rules,
    /// The size it makes unless told otherwise.
    pub own: Bucket,
}

impl ClipSizes {
    /// Reads the configs of a folder; its weights need not be there.
    ///
    /// # Errors
    /// The folder is of no family we have, or a config is missing, damaged or unsupported.
    pub fn of(model: &Path) -> Result<ClipSizes> {
        let folder = ModelFolder::open(model)?;
        of(&folder, &Family::of(&folder)?)
    }
}

pub(super) fn of(folder: &ModelFolder, family: &Family) -> Result<ClipSizes> {
    let vae = folder.text("vae", "config.json")?;
    let rules = |size_step, frame_step| Rules { size_step, frame_step, ..Rules::default() };
    match family {
        Family::Pixart(config) => {
            let factor = KlConfig::from_json(&vae)?.factor();
            let side = config.sample_size * factor;
            let own = Bucket { frames: 1, height: side, width: side };
            Ok(ClipSizes { rules: rules(factor * config.patch, 0), own })
        }
        Family::Wan(config) => {
            let vae = WanVaeConfig::from_json(&vae)?;
            let [frames, rows, columns] = config.patch;
            if frames != 1 || rows != columns {
                return Err(Error::Request(format!(
                    "patch_size of transformer is {:?}; clips can be preprocessed for square \
                     patches of 1 frame only",
                    config.patch
                )));
            }
            let [height, width] = wan::SIZE;
            let own = Bucket { frames: wan::FRAMES, height, width };
            let rules = rules(vae.spatial_factor() * rows, vae.temporal_factor());
            Ok(ClipSizes { rules, own })
        }
    }
}
