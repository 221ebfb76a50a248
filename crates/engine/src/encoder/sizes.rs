//! What clips a model takes, read off the configs of its folder.

use std::path::Path;

use data::preprocess::Rules;
use data::store::Bucket;
use diffusion::Grouping;
use families::Description;
use folder::ModelFolder;

use crate::error::Result;

/// The sizes of clips for a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClipSizes {
    /// What its buckets must keep to. Nothing is enlarged.
    pub rules: Rules,
    /// The size it makes unless told otherwise.
    pub own: Bucket,
    /// Frames per second that it makes, unless it makes pictures.
    pub frame_rate: Option<f64>,
    /// Whether it is trained with the sound of clips.
    pub hears: bool,
}

impl ClipSizes {
    /// Reads the configs of a folder; its weights need not be there.
    ///
    /// # Errors
    /// The folder is of no family we have, or a config is missing, damaged or unsupported.
    pub fn of(model: &Path) -> Result<ClipSizes> {
        of(&families::describe(&ModelFolder::open(model)?)?)
    }
}

pub(super) fn of(model: &Description) -> Result<ClipSizes> {
    let geometry = &model.geometry;
    let [deep, high, wide] = geometry.patch;
    let [frames, rows, columns] = geometry.factors;
    if deep != 1 || high * rows != wide * columns {
        return Err(folder::Error::Unfit(format!(
            "the transformer's patch is {:?}; clips can be preprocessed for square patches of 1 \
             frame only",
            geometry.patch
        ))
        .into());
    }
    let frame_step = match geometry.grouping {
        Grouping::Picture => 0,
        Grouping::Causal => frames,
        Grouping::Even => {
            let reason =
                "the model's clips come from the shapes world; there is nothing to preprocess";
            return Err(folder::Error::Unfit(reason.to_owned()).into());
        }
    };
    let [frames, height, width] = model.defaults.size;
    let rules = Rules { size_step: high * rows, frame_step, ..Rules::default() };
    let frame_rate = (frame_step > 0).then_some(model.defaults.frame_rate);
    let hears = model.sound.is_some();
    Ok(ClipSizes { rules, own: Bucket { frames, height, width }, frame_rate, hears })
}
