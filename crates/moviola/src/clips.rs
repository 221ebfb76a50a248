//! Which clips `preprocess` and `doctor` are about, and what they find of them.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::builder::RangedU64ValueParser;
use data::preprocess::{
    Buckets, Cause, DoctorReport, Media, Probe, RgbFrame, Rules, doctor, find_sources,
};
use data::store::Bucket;
use engine::ClipSizes;
use indicatif::ProgressBar;

use crate::bars;
use crate::failure::{Failure, Outcome};

/// Clips, and the sizes they are brought to.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Clips {
    /// A folder of clips and pictures with a text file beside each, or a table of them: .csv, .json
    /// or .jsonl with `path`, `caption` and maybe `reference` (a clip to make it from) and `mask` (a
    /// clip or picture of its size: white is to be generated, black is given)
    #[arg(long, value_name = "FOLDER|TABLE")]
    pub(crate) data: PathBuf,
    /// A size that clips are cut and scaled to, like 832x480x81; repeat it for several, and each clip
    /// gets the one that suits it best [default: the model's own]
    #[arg(long, value_name = "WxHxFRAMES")]
    bucket: Vec<Bucket>,
    /// How much a clip may be enlarged before it is skipped instead; 1 is not at all
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    enlarge: f64,
    /// How many times smaller references are encoded than their clips, in height and width; a model
    /// that looks at small references has fewer tokens to look at
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    reference_scale: usize,
}

impl Clips {
    /// The buckets asked for, or the model's own, under the rules of the model.
    ///
    /// # Errors
    /// There are none, or the model cannot encode one.
    pub(crate) fn buckets(&self, sizes: Option<ClipSizes>) -> Outcome<Buckets> {
        if !(self.enlarge.is_finite() && self.enlarge > 0.0) {
            let reason = format!("--enlarge is {}; give a number above 0, like 1.5", self.enlarge);
            return Err(Failure::Refused(reason));
        }
        let list = match (self.bucket.is_empty(), sizes) {
            (false, _) => self.bucket.clone(),
            (true, Some(sizes)) => vec![sizes.own],
            (true, None) => {
                let reason = "there is no bucket; give --bucket, like 832x480x81, or --model";
                return Err(Failure::refused(reason));
            }
        };
        let rules = sizes.map_or_else(Rules::default, |sizes| sizes.rules);
        let buckets = Buckets::new(list, Rules { most_enlarged: self.enlarge, ..rules })?;
        match self.reference_scale {
            1 => Ok(buckets),
            scale => Ok(buckets.with_reference_scale(scale)?),
        }
    }

    /// Looks at every clip.
    ///
    /// # Errors
    /// There are none, or the table cannot be read.
    pub(crate) fn examine(&self, media: &dyn Media, buckets: &Buckets) -> Outcome<DoctorReport> {
        let entries = find_sources(&self.data)?;
        if entries.is_empty() {
            return Err(Failure::Refused(format!(
                "there are no clips in {}; give a folder with videos or pictures, or a table that \
                 lists some",
                self.data.display()
            )));
        }
        if self.reference_scale != 1 && entries.iter().all(|entry| entry.reference.is_none()) {
            return Err(Failure::Refused(format!(
                "--reference-scale is {}, but no clip of {} has a reference; give a table with the \
                 column `reference`, or leave the scale out",
                self.reference_scale,
                self.data.display()
            )));
        }
        let bar = bars::over_clips("look", entries.len());
        let report = doctor(&entries, &Watched { media, bar: &bar }, buckets);
        bar.finish_and_clear();
        Ok(report)
    }
}

/// Media whose use is seen.
struct Watched<'a> {
    media: &'a dyn Media,
    bar: &'a ProgressBar,
}

impl Media for Watched<'_> {
    fn probe(&self, path: &Path) -> Result<Probe, Cause> {
        self.bar.set_message(path.display().to_string());
        let probe = self.media.probe(path);
        self.bar.inc(1);
        probe
    }

    fn read(
        &self,
        path: &Path,
        each: &mut dyn FnMut(RgbFrame) -> ControlFlow<()>,
    ) -> Result<(), Cause> {
        self.media.read(path, each)
    }
}
