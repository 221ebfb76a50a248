//! Which clips there are: a folder of clips with a text file beside each, or a table.

use std::fs;
use std::path::{Path, PathBuf};

use csv_core::{ReadRecordResult, Reader};
use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// The endings of clips and pictures.
const MEDIA: [&str; 14] = [
    "mp4", "mov", "mkv", "webm", "avi", "m4v", "mpg", "mpeg", "gif", "png", "jpg", "jpeg", "webp",
    "bmp",
];
/// The names of the columns that we read, the preferred one first.
const PATH: [&str; 3] = ["path", "video", "media_path"];
const CAPTION: [&str; 2] = ["caption", "text"];
const REFERENCE: [&str; 3] = ["reference", "reference_video", "ref_media_path"];
/// It has one name only: elsewhere a `video_mask` is white where the clip is given.
const MASK: [&str; 1] = ["mask"];

/// A clip that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestEntry {
    /// Its name in the dataset: its path as it is listed.
    pub id: String,
    /// Where it is.
    pub path: PathBuf,
    /// What it shows; `None` if nobody says.
    pub caption: Option<String>,
    /// The clip it is to be made from, for video-to-video.
    pub reference: Option<PathBuf>,
    /// The clip or picture that is white where this one is to be generated, for inpainting.
    pub mask: Option<PathBuf>,
}

/// The clips of a folder (`x.mp4` with its caption in `x.txt`, in all folders below too), or of a
/// `.csv`, `.json` or `.jsonl` table with the columns `path`, `caption` and maybe `reference` and
/// `mask`, whose paths are relative to the table.
///
/// # Errors
/// It cannot be read, is none of these, or lacks a column.
pub fn find_sources(path: &Path) -> Result<Vec<ManifestEntry>> {
    if path.is_dir() {
        return walk(path);
    }
    let text = fs::read_to_string(path).map_err(|source| Error::file("read", path, source))?;
    let wrong = |reason: String| Error::Manifest { path: path.to_owned(), reason };
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or("");
    let rows = match ending.to_ascii_lowercase().as_str() {
        "csv" => read_csv(&text),
        "json" => read_json(&text),
        "jsonl" => read_jsonl(&text),
        _ => Err("give a folder, or a table that ends in .csv, .json or .jsonl".to_owned()),
    };
    let rows = rows.map_err(wrong)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    entries(folder, &rows).map_err(wrong)
}

/// One row of a table: its place, and its columns in order.
struct Row {
    place: String,
    columns: Vec<(String, String)>,
}

impl Row {
    fn get(&self, names: &[&str]) -> Option<&str> {
        let value = |name: &&str| self.columns.iter().find(|(column, _)| column == name);
        names.iter().find_map(value).map(|(_, value)| value.trim())
    }

    fn require(&self, names: &[&str]) -> Result<&str, String> {
        self.get(names).ok_or_else(|| {
            let columns: Vec<&str> =
                self.columns.iter().map(|(column, _)| column.as_str()).collect();
            let meant = nn::most_similar(names[0], columns.iter().copied())
                .map_or(String::new(), |meant| format!("; did you mean `{meant}`?"));
            format!("{} has no `{}`, but {}{meant}", self.place, names[0], columns.join(", "))
        })
    }
}

fn entries(folder: &Path, rows: &[Row]) -> Result<Vec<ManifestEntry>, String> {
    let entry = |row: &Row| {
        let path = row.require(&PATH)?;
        if path.is_empty() {
            return Err(format!("{} has an empty path", row.place));
        }
        let other = |names: &[&str]| {
            row.get(names).filter(|path| !path.is_empty()).map(|path| folder.join(path))
        };
        Ok(ManifestEntry {
            id: path.to_owned(),
            path: folder.join(path),
            caption: Some(row.require(&CAPTION)?.to_owned()),
            reference: other(&REFERENCE),
            mask: other(&MASK),
        })
    };
    rows.iter().map(entry).collect()
}

/// The clips below a folder in the order of their names. What begins with a dot is left out.
fn walk(root: &Path) -> Result<Vec<ManifestEntry>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let unreadable = |source| Error::file("read", &folder, source);
        for file in fs::read_dir(&folder).map_err(unreadable)? {
            let path = file.map_err(unreadable)?.path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            if name.is_none_or(|name| name.starts_with('.')) {
                continue;
            }
            match path.is_dir() {
                true => folders.push(path),
                false => found.push(path),
            }
        }
    }
    let is_media = |path: &PathBuf| {
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
        ending.is_some_and(|ending| MEDIA.contains(&ending.as_str()))
    };
    found.retain(is_media);
    found.sort();
    let entry = |path: PathBuf| {
        let parts = path.strip_prefix(root).unwrap_or(&path).components();
        let parts: Vec<_> = parts.map(|part| part.as_os_str().to_string_lossy()).collect();
        let caption = fs::read_to_string(path.with_extension("txt")).ok();
        let caption = caption.map(|caption| caption.trim().to_owned());
        ManifestEntry { id: parts.join("/"), path, caption, reference: None, mask: None }
    };
    Ok(found.into_iter().map(entry).collect())
}

fn read_json(text: &str) -> Result<Vec<Row>, String> {
    let rows: Vec<Map<String, Value>> =
        serde_json::from_str(text).map_err(|err| format!("it is not a list of objects: {err}"))?;
    Ok(rows
        .into_iter()
        .enumerate()
        .map(|(at, row)| object(format!("entry {}", at + 1), row))
        .collect())
}

fn read_jsonl(text: &str) -> Result<Vec<Row>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(at, line)| {
            let place = format!("line {}", at + 1);
            let row = serde_json::from_str(line)
                .map_err(|err| format!("{place} is not an object: {err}"))?;
            Ok(object(place, row))
        })
        .collect()
}

fn object(place: String, row: Map<String, Value>) -> Row {
    let text = |value: Value| match value {
        Value::String(text) => text,
        Value::Null => String::new(),
        other => other.to_string(),
    };
    Row { place, columns: row.into_iter().map(|(name, value)| (name, text(value))).collect() }
}

fn read_csv(text: &str) -> Result<Vec<Row>, String> {
    // Spreadsheets mark UTF-8 by a sign that is not part of the first column's name.
    let mut records = csv_records(text.trim_start_matches('\u{feff}')).into_iter();
    let names = records.next().ok_or("it is empty; its first line names the columns")?;
    let names: Vec<String> = names.iter().map(|name| name.trim().to_owned()).collect();
    let rows = records.enumerate().map(|(at, record)| {
        let place = format!("row {}", at + 1);
        if record.len() != names.len() {
            let (found, wanted) = (record.len(), names.len());
            return Err(format!("{place} has {found} columns, but the first line names {wanted}"));
        }
        Ok(Row { place, columns: names.iter().cloned().zip(record).collect() })
    });
    rows.collect()
}

/// The records of a CSV text: quotes, line breaks within quotes and any line ends are handled.
fn csv_records(text: &str) -> Vec<Vec<String>> {
    let mut reader = Reader::new();
    // Unquoting never makes a text longer, and a record has fewer fields than bytes.
    let mut bytes = vec![0; text.len() + 1];
    let mut ends = vec![0; text.len() + 1];
    let mut input = text.as_bytes();
    let mut records = Vec::new();
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
                    String::from_utf8_lossy(&bytes[start..*end]).into_owned()
                };
                records.push(starts.zip(&ends[..fields]).map(field).collect());
                (written, fields) = (0, 0);
            }
            ReadRecordResult::InputEmpty => {}
            // The buffers are as long as the text, so they are never full.
            ReadRecordResult::End
            | ReadRecordResult::OutputFull
            | ReadRecordResult::OutputEndsFull => {
                return records;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_csv_has_quotes_breaks_and_any_line_end() {
        let text =
            "\u{feff}path,caption\r\na.mp4,\"red, \"\"very\"\" red\nand round\"\r\n\r\nb.mp4,blue";
        let records = csv_records(text.trim_start_matches('\u{feff}'));
        let expected =
            [["path", "caption"], ["a.mp4", "red, \"very\" red\nand round"], ["b.mp4", "blue"]];
        assert_eq!(records, expected);
        let rows = read_csv(text).unwrap();
        assert_eq!(rows[1].get(&PATH), Some("b.mp4"));
        assert!(read_csv("path,caption\na.mp4").err().unwrap().contains("row 1 has 1 columns"));
    }
}
