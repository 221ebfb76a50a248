//! Which clips `preprocess` and `doctor` are about, and what they find of them.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::builder::RangedU64ValueParser;
use data::media;
use data::preprocess::{
    Buckets, Cause, DoctorReport, Extract, Frames, ManifestEntry, Media, Probe, Resampled, Rules,
    Sound, doctor, find_sources, read_captions, suggest,
};
use data::store::Bucket;
use engine::ClipSizes;

use crate::failure::{Failure, Outcome};
use crate::voice::{Meter, Voice};

/// Clips, and the sizes they are brought to.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Clips {
    /// A folder of clips and pictures with a text file beside each, or a table of them: .csv, .json
    /// or .jsonl with `path`, `caption` and maybe `reference` (a clip to make it from), `mask` (a
    /// clip or picture of its size: white is to be generated, black is given) and `audio` (a file with
    /// its sound, instead of what is in the clip; beside a clip of a folder, a .wav)
    #[arg(long, value_name = "FOLDER|TABLE")]
    pub(crate) data: PathBuf,
    /// A size that clips are cut and scaled to, like 832x480x81; repeat it for several, and each clip
    /// gets the one that suits it best. `auto` takes those that `doctor --suggest-buckets` proposes
    /// [default: the model's own]
    #[arg(long, value_name = "WxHxFRAMES|auto")]
    bucket: Vec<BucketArgument>,
    /// What is taken of clips that are longer than their bucket: the head, one chunk after the other, a
    /// piece every STRIDE frames, or so many pieces from beginning to end
    #[arg(long, value_name = "head|chunk|slide[:STRIDE]|uniform[:PIECES]", default_value_t)]
    extract: Extract,
    /// Bring clips to this rate by leaving frames out; those that are slower are skipped [default: each
    /// keeps its own]
    #[arg(long, value_name = "N")]
    fps: Option<f64>,
    /// A word that every caption begins with, unless it has it already, as a whole word and in these letters;
    /// clips without a caption get the word alone
    #[arg(long, value_name = "WORD")]
    trigger: Option<String>,
    /// How much a clip may be enlarged before it is skipped instead; 1 is not at all, and 64 the most
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    enlarge: f64,
    /// How many times smaller references are encoded than their clips, in height and width; a model
    /// that looks at small references has fewer tokens to look at
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    reference_scale: usize,
}

/// A bucket that a user asks for.
#[derive(Clone, Copy, Debug)]
enum BucketArgument {
    /// Those that suit the clips.
    Auto,
    /// This one.
    Size(Bucket),
}

impl FromStr for BucketArgument {
    type Err = data::Error;

    fn from_str(text: &str) -> Result<BucketArgument, data::Error> {
        match text {
            "auto" => Ok(BucketArgument::Auto),
            text => text.parse().map(BucketArgument::Size),
        }
    }
}

/// What there is to be looked at, and how.
pub(crate) struct Listed<'a> {
    entries: Vec<ManifestEntry>,
    media: &'a dyn Media,
    voice: Voice,
    /// A table in the folder that is not read, where clips have no captions.
    table: Option<PathBuf>,
}

impl Clips {
    /// The clips, which are read by `media`.
    ///
    /// # Errors
    /// There are none, the table cannot be read, an argument would do nothing, or the programs that read
    /// videos are missing.
    pub(crate) fn list<'a>(&self, media: &'a dyn Media, voice: Voice) -> Outcome<Listed<'a>> {
        let mut entries = find_sources(&self.data)?;
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
        if self.fps.is_some_and(|fps| !(fps.is_finite() && fps > 0.0 && fps <= 1000.0)) {
            return Err(Failure::refused("--fps: give a number above 0 and up to 1000, like 16"));
        }
        let lack = entries.iter().any(|own| own.caption.is_none() && own.caption_fault.is_none());
        let table = TABLES.iter().map(|name| self.data.join(name)).find(|path| path.is_file());
        let table = table.filter(|_| lack);
        if let Some(word) = self.trigger_word()? {
            // What cannot be read is told, not replaced.
            for entry in entries.iter_mut().filter(|entry| entry.caption_fault.is_none()) {
                entry.caption = Some(triggered(word, entry.caption.as_deref().unwrap_or_default()));
            }
        }
        readable(&entries)?;
        Ok(Listed { entries, media, voice, table })
    }

    /// The captions of a file, and the one size of clips that they are for.
    ///
    /// # Errors
    /// There are none, or arguments that only clips have.
    pub(crate) fn captions(&self, sizes: ClipSizes) -> Outcome<(Vec<String>, Bucket, f64)> {
        let bucket = match self.bucket[..] {
            [] => sizes.own,
            [BucketArgument::Size(bucket)] => bucket,
            _ => return Err(Failure::refused("--texts: give one --bucket, the size of the clips")),
        };
        let list = Buckets::new(vec![bucket], sizes.rules)?;
        if self.extract != Extract::Head || self.reference_scale != 1 {
            let reason = "--texts: there are no clips that --extract or --reference-scale is about";
            return Err(Failure::refused(reason));
        }
        if self.enlarge != 1.0 {
            return Err(Failure::refused(
                "--texts: there are no clips that --enlarge is about; leave it out",
            ));
        }
        let mut captions = read_captions(&self.data)?;
        if captions.is_empty() {
            return Err(Failure::Refused(format!(
                "--texts: {} holds no captions; write one a line, or in the column `caption` of a table",
                self.data.display()
            )));
        }
        if let Some(word) = self.trigger_word()? {
            captions.iter_mut().for_each(|own| *own = triggered(word, own));
        }
        Ok((captions, list.list()[0], self.fps.or(sizes.frame_rate).unwrap_or(1.0)))
    }

    /// The word that every caption begins with, if there is one.
    ///
    /// # Errors
    /// It is empty.
    fn trigger_word(&self) -> Outcome<Option<&str>> {
        match self.trigger.as_deref().map(str::trim) {
            Some("") => Err(Failure::refused("--trigger is empty; give a word, or leave it out")),
            word => Ok(word),
        }
    }

    /// The buckets asked for, those that suit the clips, or the model's own, under the rules of the model.
    ///
    /// # Errors
    /// There are none, or the model cannot encode one.
    pub(crate) fn buckets(
        &self,
        sizes: Option<ClipSizes>,
        listed: &Listed<'_>,
    ) -> Outcome<Buckets> {
        if !(self.enlarge > 0.0 && self.enlarge <= MOST_ENLARGED) {
            return Err(Failure::Refused(format!(
                "--enlarge is {:?}; give a number above 0 and up to {MOST_ENLARGED}, like 1.5",
                self.enlarge
            )));
        }
        let mut list: Vec<Bucket> = Vec::new();
        for own in &self.bucket {
            match own {
                BucketArgument::Size(bucket) => list.push(*bucket),
                BucketArgument::Auto => list.extend(self.suggested(sizes, listed)?),
            }
        }
        let list = match (list.is_empty(), sizes) {
            (false, _) => list,
            (true, Some(sizes)) if self.bucket.is_empty() => vec![sizes.own],
            (true, _) if !self.bucket.is_empty() => {
                let reason =
                    "--bucket auto: no clip can be read and is large enough for any bucket";
                return Err(Failure::refused(reason));
            }
            (true, _) => {
                let reason =
                    "there is no bucket; give --bucket, like 832x480x81 or auto, or --model";
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

    /// The buckets asked for, or where none is, those that suit the clips.
    ///
    /// # Errors
    /// There are none, or the model cannot encode one.
    pub(crate) fn or_suggested(
        &self,
        sizes: Option<ClipSizes>,
        listed: &Listed<'_>,
    ) -> Outcome<Buckets> {
        let mut own = self.clone();
        if own.bucket.is_empty() {
            own.bucket.push(BucketArgument::Auto);
        }
        own.buckets(sizes, listed)
    }

    /// The buckets that suit the clips, under the rules of the model.
    ///
    /// # Errors
    /// A number that cannot be.
    pub(crate) fn suggested(
        &self,
        sizes: Option<ClipSizes>,
        listed: &Listed<'_>,
    ) -> Outcome<Vec<Bucket>> {
        let (own, rules) =
            sizes.map_or((USUAL, Rules::default()), |sizes| (sizes.own, sizes.rules));
        let media = listed.watched();
        let probes = self.at_rate(&media, |media| {
            let found = listed.entries.iter().filter_map(|entry| media.probe(&entry.path).ok());
            found.collect::<Vec<_>>()
        });
        media.finish();
        Ok(suggest(&probes, &own, &rules))
    }

    /// Looks at every clip, and at its sound for a model that hears.
    pub(crate) fn examine(
        &self,
        listed: &Listed<'_>,
        buckets: &Buckets,
        hears: bool,
    ) -> DoctorReport {
        let media = listed.watched();
        let report = self.at_rate(&media, |media| doctor(&listed.entries, media, buckets));
        media.finish();
        let report = if hears { report.heard(listed.media) } else { report.unheard() };
        report.extracted(self.extract)
    }

    /// Does something with clips at the rate that was asked for.
    pub(crate) fn at_rate<T>(&self, media: &dyn Media, work: impl FnOnce(&dyn Media) -> T) -> T {
        match self.fps {
            Some(fps) => work(&Resampled { media, fps }),
            None => work(media),
        }
    }

    /// The rate that was asked for.
    pub(crate) fn fps(&self) -> Option<f64> {
        self.fps
    }
}

/// Tables that other programs leave in a folder of clips.
const TABLES: [&str; 2] = ["metadata.jsonl", "metadata.csv"];

/// A clip that is enlarged more shows a few of its pixels and nothing else.
const MOST_ENLARGED: f64 = 64.0;

/// What clips become where nobody names a model.
const USUAL: Bucket = Bucket { frames: 81, height: 480, width: 832 };

/// A caption with a word before it, unless it has it.
fn triggered(word: &str, caption: &str) -> String {
    match caption.trim() {
        "" => word.to_owned(),
        caption if has_word(caption, word) => caption.to_owned(),
        caption => format!("{word}, {caption}"),
    }
}

/// Whether a word, or several, stand in a text in these letters and not as a part of longer words.
fn has_word(text: &str, word: &str) -> bool {
    let joins =
        |letter: Option<char>| letter.is_some_and(|own| own.is_alphanumeric() || own == '_');
    let is_one = |left: Option<char>, right: Option<char>| joins(left) && joins(right);
    text.char_indices().any(|(at, _)| {
        let Some(rest) = text[at..].strip_prefix(word) else { return false };
        let before = text[..at].chars().next_back();
        !is_one(before, word.chars().next())
            && !is_one(word.chars().next_back(), rest.chars().next())
    })
}

/// Refuses videos where the programs that read them are missing, once for all of them.
fn readable(entries: &[ManifestEntry]) -> Outcome {
    let files = entries.iter().flat_map(|entry| {
        [Some(&entry.path), entry.reference.as_ref(), entry.mask.as_ref()].into_iter().flatten()
    });
    let videos = files.filter(|path| !media::is_picture(path) && path.is_file()).count();
    match media::missing_reader().filter(|_| videos > 0) {
        None => Ok(()),
        Some(program) => Err(Failure::Refused(format!(
            "--data: {videos} of the files are videos, which the program `{program}` reads, and it was \
             not found; install ffmpeg, which brings ffprobe"
        ))),
    }
}

impl<'a> Listed<'a> {
    /// Says where captions may be that were not found.
    pub(crate) fn tell(&self) {
        let Some(table) = &self.table else { return };
        let table = table.display();
        self.voice.warn(&format!(
            "--data is a folder, whose captions are text files beside its clips; those of {table} are read if that is \
             given: --data {table}"
        ));
    }

    fn watched(&self) -> Watched<'a> {
        let meter = self.voice.meter("look", self.entries.len() as u64);
        Watched { media: self.media, seen: RefCell::new((0, meter)) }
    }
}

/// Media whose use is seen.
struct Watched<'a> {
    media: &'a dyn Media,
    /// How many files were looked at, and who shows it.
    seen: RefCell<(u64, Meter)>,
}

impl Watched<'_> {
    fn finish(self) {
        self.seen.into_inner().1.finish();
    }
}

impl Media for Watched<'_> {
    fn probe(&self, path: &Path) -> Result<Probe, Cause> {
        let probe = self.media.probe(path);
        let (count, meter) = &mut *self.seen.borrow_mut();
        *count += 1;
        meter.reach(*count, &path.display().to_string());
        probe
    }

    fn frames(&self, path: &Path) -> Result<Frames<'_>, Cause> {
        self.media.frames(path)
    }

    fn sounds(&self, path: &Path) -> Result<bool, Cause> {
        self.media.sounds(path)
    }

    fn sound(&self, path: &Path) -> Result<Option<Sound<'_>>, Cause> {
        self.media.sound(path)
    }
}

/// Clips without a sound, counted and named, if there are any; of many only the first.
pub(crate) fn silent(report: &DoctorReport) -> Option<String> {
    const NAMED: usize = 3;
    let (silent, all) = (report.silent(), report.clips());
    let more = if silent.len() > NAMED { ", …" } else { "" };
    let named = silent.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    (!silent.is_empty()).then(|| {
        let count = silent.len();
        format!(
            "{count} of {all} clips have no sound, and become samples without it: {named}{more}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::triggered;

    /// A part of a word is not the word.
    #[test]
    fn a_trigger_is_there_as_whole_words_only() {
        let caption = "a clip number 0";
        for word in ["lip", "A", "numb", "clip num"] {
            assert_eq!(triggered(word, caption), format!("{word}, {caption}"));
        }
        for word in ["a", "clip", "number 0", "a clip number 0"] {
            assert_eq!(triggered(word, caption), caption, "{word}");
        }
        assert_eq!(triggered("lip", "clip, lip."), "clip, lip.");
        assert_eq!(triggered("<x>", "a<x>b"), "a<x>b");
        assert_eq!(triggered("sks", "sks_dog"), "sks, sks_dog");
        assert_eq!(triggered("sks", "  "), "sks");
    }
}
