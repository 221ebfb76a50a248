//! Which clips there are: a folder of clips with a text file beside each, or a table.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use csv_core::{ReadRecordResult, ReaderBuilder};
use serde_json::{Map, Value};

use super::text::read_caption;
use crate::error::{Error, Result};

/// The endings of clips and pictures.
const MEDIA: [&str; 14] = [
    "mp4", "mov", "mkv", "webm", "avi", "m4v", "mpg", "mpeg", "gif", "png", "jpg", "jpeg", "webp",
    "bmp",
];
/// The names of the columns that we read, the preferred one first.
const PATH: [&str; 5] = ["path", "video", "media_path", "file_name", "video_path"];
const CAPTION: [&str; 2] = ["caption", "text"];
const REFERENCE: [&str; 3] = ["reference", "reference_video", "ref_media_path"];
/// It has one name only: elsewhere a `video_mask` is white where the clip is given.
const MASK: [&str; 1] = ["mask"];
const SOUND: [&str; 2] = ["audio", "sound"];

/// The ending of a sound beside a clip.
const WAVE: &str = "wav";

/// The endings of captions beside clips, the preferred one first.
const CAPTIONS: [&str; 2] = ["txt", "caption"];
/// The signs between the columns of a table.
const SEPARATORS: [u8; 3] = [b',', b';', b'\t'];

/// A clip that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestEntry {
    /// Its name in the dataset: its path as it is listed.
    pub id: String,
    /// Where it is.
    pub path: PathBuf,
    /// What it shows; `None` if nobody says.
    pub caption: Option<String>,
    /// Why there is none, although there is a file for it.
    pub caption_fault: Option<String>,
    /// The clip it is to be made from, for video-to-video.
    pub reference: Option<PathBuf>,
    /// The clip or picture that is white where this one is to be generated, for inpainting.
    pub mask: Option<PathBuf>,
    /// A file with its sound, instead of what is in it.
    pub sound: Option<PathBuf>,
}

/// The clips of a folder (`x.mp4` with its caption in `x.txt` or `x.caption` and maybe its sound in `x.wav`, in all
/// folders below too), or of a `.csv`, `.tsv`, `.json` or `.jsonl` table with the columns `path`, `caption` and maybe
/// `reference`, `mask` and `audio`, whose paths are relative to the table.
///
/// # Errors
/// It cannot be read, is none of these, or lacks a column.
pub fn find_sources(path: &Path) -> Result<Vec<ManifestEntry>> {
    if path.is_dir() {
        return walk(path);
    }
    let wrong = |reason: String| Error::Manifest { path: path.to_owned(), reason };
    let folder = path.parent().unwrap_or(Path::new(""));
    let Some(table) = Table::of(path) else {
        let reason = "give a folder, or a table that ends in .csv, .tsv, .json or .jsonl";
        return Err(wrong(reason.to_owned()));
    };
    let text = read_caption(path, LONGEST_TABLE)?.map_err(wrong)?;
    let mut entries = Vec::new();
    let read = table.read(&text, &mut |row| {
        entries.push(row.entry(folder)?);
        Ok(())
    });
    read.map_err(wrong)?;
    Ok(entries)
}

/// How a table is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    /// Columns with a sign between them.
    Csv,
    /// A list of objects.
    Json,
    /// An object a line.
    Jsonl,
}

impl Table {
    /// What the name of a file promises; none if it is no table.
    pub(super) fn of(path: &Path) -> Option<Table> {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or("");
        match ending.to_ascii_lowercase().as_str() {
            "csv" | "tsv" => Some(Table::Csv),
            "json" => Some(Table::Json),
            "jsonl" => Some(Table::Jsonl),
            _ => None,
        }
    }

    /// Hands out the rows.
    ///
    /// # Errors
    /// The text is no such table, or a row is refused.
    pub(super) fn read(self, text: &str, each: EachRow<'_>) -> Result<(), String> {
        match self {
            Table::Csv => read_csv(text, each),
            Table::Json => read_json(text, each),
            Table::Jsonl => read_jsonl(text, each),
        }
    }
}

/// Who is given one row after the other.
type EachRow<'a> = &'a mut dyn FnMut(Row<'_>) -> Result<(), String>;

/// No table has more bytes.
const LONGEST_TABLE: u64 = 1 << 30;

/// No caption has more bytes.
const LONGEST_CAPTION: u64 = 1 << 16;

/// One row of a table: its place, and its columns in order. What is no text is there as none.
pub(super) struct Row<'a> {
    place: String,
    columns: Vec<(&'a str, Option<&'a str>)>,
}

impl Row<'_> {
    /// The value of a column of one of these names.
    ///
    /// # Errors
    /// It is no text.
    fn get(&self, names: &[&str]) -> Result<Option<&str>, String> {
        let is = |column: &str, name: &str| column.trim().eq_ignore_ascii_case(name);
        let value = |name: &&str| self.columns.iter().find(|(column, _)| is(column, name));
        match names.iter().find_map(value) {
            None => Ok(None),
            Some((_, Some(value))) => Ok(Some(value.trim())),
            Some((name, None)) => {
                Err(format!("{}: its `{name}` is no text; put it in quotes", self.place))
            }
        }
    }

    fn require(&self, names: &[&str]) -> Result<&str, String> {
        self.get(names)?.ok_or_else(|| {
            let columns: Vec<&str> = self.columns.iter().map(|(column, _)| *column).collect();
            let meant = nn::most_similar(names[0], columns.iter().copied())
                .map_or(String::new(), |meant| format!("; did you mean `{meant}`?"));
            let others: Vec<String> = names[1..].iter().map(|name| format!("`{name}`")).collect();
            let others = match others.is_empty() {
                true => String::new(),
                false => format!(" (or {})", others.join(", ")),
            };
            let columns = columns.join(", ");
            format!("{} has no `{}`{others}, but {columns}{meant}", self.place, names[0])
        })
    }

    /// The caption, which may be empty.
    ///
    /// # Errors
    /// There is none, or it is no text.
    pub(super) fn caption(&self) -> Result<&str, String> {
        self.require(&CAPTION)
    }

    fn entry(&self, folder: &Path) -> Result<ManifestEntry, String> {
        let path = self.require(&PATH)?;
        if path.is_empty() {
            return Err(format!("{} has an empty path", self.place));
        }
        let other = |names: &[&str]| {
            let found = self.get(names)?.filter(|path| !path.is_empty());
            Ok::<_, String>(found.map(|path| folder.join(&*here(folder, path))))
        };
        let path = here(folder, path);
        Ok(ManifestEntry {
            path: folder.join(&*path),
            id: path.into_owned(),
            caption: Some(self.caption()?.to_owned()),
            caption_fault: None,
            reference: other(&REFERENCE)?,
            mask: other(&MASK)?,
            sound: other(&SOUND)?,
        })
    }
}

/// A path as it is written, or with the separators of this system where a table of Windows was moved here.
fn here<'a>(folder: &Path, path: &'a str) -> Cow<'a, str> {
    let moved = path.replace('\\', "/");
    match moved != path && !folder.join(path).exists() && folder.join(&moved).exists() {
        true => Cow::Owned(moved),
        false => Cow::Borrowed(path),
    }
}

/// The clips below a folder in the order of their names. What begins with a dot is left out. A folder that
/// is there under several names is looked at once: links may lead in circles.
fn walk(root: &Path) -> Result<Vec<ManifestEntry>> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    // Links come last, so that what has a place of its own is known by it.
    let (mut folders, mut links) = (vec![root.to_owned()], Vec::new());
    while let Some(folder) = folders.pop().or_else(|| links.pop()) {
        let unreadable = |source| Error::file("read", &folder, source);
        if !seen.insert(fs::canonicalize(&folder).map_err(unreadable)?) {
            continue;
        }
        let mut own_links = Vec::new();
        for file in fs::read_dir(&folder).map_err(unreadable)? {
            let path = file.map_err(unreadable)?.path();
            if path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b".")) {
                continue;
            }
            match (path.is_dir(), path.is_symlink()) {
                (true, true) => own_links.push(path),
                (true, false) => folders.push(path),
                (false, _) => found.push(path),
            }
        }
        links.extend(own_links);
        links.sort_unstable_by(|a, b| b.cmp(a));
    }
    let is_media = |path: &PathBuf| {
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
        ending.is_some_and(|ending| MEDIA.contains(&ending.as_str()))
    };
    let beside = Beside::of(&found);
    found.retain(is_media);
    found.sort();
    let entry = |path: PathBuf| {
        let parts = path.strip_prefix(root).unwrap_or(&path).components();
        let parts: Vec<_> = parts.map(|part| name_of(part.as_os_str())).collect();
        let own = CAPTIONS.iter().find_map(|ending| beside.find(&path, ending));
        let (caption, caption_fault) = match own
            .map(|file| (read_caption(&file, LONGEST_CAPTION), file))
        {
            None => (None, None),
            Some((Ok(Ok(text)), _)) => (Some(text.trim().to_owned()), None),
            Some((Ok(Err(reason)), file)) => (None, Some(format!("{}: {reason}", file.display()))),
            Some((Err(err), _)) => (None, Some(err.to_string())),
        };
        let sound = beside.find(&path, WAVE).filter(|file| file.is_file());
        ManifestEntry {
            id: parts.join("/"),
            path,
            caption,
            caption_fault,
            reference: None,
            mask: None,
            sound,
        }
    };
    Ok(found.into_iter().map(entry).collect())
}

/// Files by their names without endings, and by their endings in small letters.
struct Beside(BTreeMap<(PathBuf, String), PathBuf>);

impl Beside {
    fn of(files: &[PathBuf]) -> Beside {
        let key = |path: &PathBuf| {
            let ending = path.extension()?.to_str()?.to_ascii_lowercase();
            Some(((path.with_extension(""), ending), path.clone()))
        };
        Beside(files.iter().filter_map(key).collect())
    }

    /// The file of this ending beside another; where several are there, the one in small letters.
    fn find(&self, path: &Path, ending: &str) -> Option<PathBuf> {
        let usual = path.with_extension(ending);
        let other = || self.0.get(&(path.with_extension(""), ending.to_owned())).cloned();
        usual.symlink_metadata().is_ok().then_some(usual).or_else(other)
    }
}

/// A name as text. One that is no UTF-8 is written with its odd bytes as `\xNN` behind a second slash, which
/// no other name has: two files never have one id.
fn name_of(name: &OsStr) -> String {
    if let Some(name) = name.to_str() {
        return name.to_owned();
    }
    let mut text = "/".to_owned();
    for chunk in name.as_encoded_bytes().utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', r"\\"));
        text.extend(chunk.invalid().iter().map(|byte| format!(r"\x{byte:02x}")));
    }
    text
}

fn read_json(text: &str, each: EachRow<'_>) -> Result<(), String> {
    let rows: Vec<Map<String, Value>> =
        serde_json::from_str(text).map_err(|err| format!("it is not a list of objects: {err}"))?;
    let mut rows = rows.iter().enumerate();
    rows.try_for_each(|(at, row)| each(object(format!("entry {}", at + 1), row)))
}

fn read_jsonl(text: &str, each: EachRow<'_>) -> Result<(), String> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.try_for_each(|(at, line)| {
        let place = format!("line {}", at + 1);
        let row: Map<String, Value> = serde_json::from_str(line).map_err(|err| {
            // The parser counts from the line that it was given.
            let said = err.to_string();
            let said = said.split(" at line ").next().unwrap_or_default();
            format!("{place} is not an object: {said} at column {}", err.column())
        })?;
        each(object(place, &row))
    })
}

fn object<'a>(place: String, row: &'a Map<String, Value>) -> Row<'a> {
    let column = |(name, value): (&'a String, &'a Value)| {
        let text = match value {
            Value::String(text) => Some(text.as_str()),
            Value::Null => Some(""),
            _ => None,
        };
        (name.as_str(), text)
    };
    Row { place, columns: row.iter().map(column).collect() }
}

fn read_csv(text: &str, each: EachRow<'_>) -> Result<(), String> {
    let mut names: Option<Vec<String>> = None;
    let mut count = 0;
    csv_records(text, &mut |record| {
        let Some(names) = &names else {
            names = Some(record.iter().map(|name| name.trim().to_owned()).collect());
            return Ok(());
        };
        count += 1;
        let place = format!("row {count}");
        if record.len() != names.len() {
            let (found, wanted) = (record.len(), names.len());
            return Err(format!("{place} has {found} columns, but the first line names {wanted}"));
        }
        let columns = names.iter().zip(record).map(|(name, own)| (name.as_str(), Some(*own)));
        each(Row { place, columns: columns.collect() })
    })?;
    match names {
        Some(_) => Ok(()),
        None => Err("it is empty; its first line names the columns".to_owned()),
    }
}

/// The sign that parts the columns: the most frequent one of the first line, where it is not quoted.
///
/// Excel may say it in a line before all others, `sep=;`, which is no part of the table.
fn separator(text: &str) -> (u8, &str) {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let first = first.trim_end_matches('\r').trim_matches('"');
    let said = first.get(..4).filter(|own| own.eq_ignore_ascii_case("sep="));
    if let (Some(_), [sign]) = (said, first.as_bytes().get(4..).unwrap_or_default()) {
        return (*sign, rest);
    }
    let first = text.lines().next().unwrap_or_default();
    let bare: String = first.split('"').step_by(2).collect();
    let count = |sign: &u8| bare.bytes().filter(|byte| byte == sign).count();
    // Of equals the last wins here, so that a single column has commas.
    (SEPARATORS.into_iter().rev().max_by_key(count).unwrap_or(b','), text)
}

/// Hands out the records of a CSV text: quotes, line breaks within quotes and any line ends are handled.
fn csv_records(
    text: &str,
    each: &mut dyn FnMut(&[&str]) -> Result<(), String>,
) -> Result<(), String> {
    let (sign, text) = separator(text);
    let mut reader = ReaderBuilder::new().delimiter(sign).build();
    let (mut bytes, mut ends) = (vec![0; 4096], vec![0; 64]);
    let mut input = text.as_bytes();
    let (mut written, mut fields) = (0, 0);
    loop {
        let (result, read, wrote, ended) =
            reader.read_record(input, &mut bytes[written..], &mut ends[fields..]);
        input = &input[read..];
        (written, fields) = (written + wrote, fields + ended);
        match result {
            ReadRecordResult::Record => {
                let starts = std::iter::once(0).chain(ends[..fields].iter().copied());
                let field = |(start, end): (usize, &usize)| {
                    std::str::from_utf8(&bytes[start..*end]).map_err(|err| err.to_string())
                };
                let record = starts.zip(&ends[..fields]).map(field);
                each(&record.collect::<Result<Vec<_>, _>>()?)?;
                (written, fields) = (0, 0);
            }
            ReadRecordResult::InputEmpty => {}
            ReadRecordResult::OutputFull => bytes.resize(2 * bytes.len(), 0),
            ReadRecordResult::OutputEndsFull => ends.resize(2 * ends.len(), 0),
            ReadRecordResult::End => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_csv_has_quotes_breaks_and_any_line_end() {
        let text = "path,caption\r\na.mp4,\"red, \"\"very\"\" red\nand round\"\r\n\r\nb.mp4,blue";
        let mut records: Vec<Vec<String>> = Vec::new();
        csv_records(text, &mut |record| {
            records.push(record.iter().map(|field| (*field).to_owned()).collect());
            Ok(())
        })
        .unwrap();
        let expected =
            [["path", "caption"], ["a.mp4", "red, \"very\" red\nand round"], ["b.mp4", "blue"]];
        assert_eq!(records, expected);
        let mut ids = Vec::new();
        let mut each = |row: Row<'_>| {
            ids.push(row.entry(Path::new(""))?.id);
            Ok::<(), String>(())
        };
        read_csv(text, &mut each).unwrap();
        let short = read_csv("path,caption\na.mp4", &mut each);
        assert!(short.err().unwrap().contains("row 1 has 1 columns"));
        assert_eq!(ids, ["a.mp4", "b.mp4"]);
    }
}
