//! Captions alone, for methods that make their clips themselves.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::manifest::Table;
use super::text::read_caption;
use super::together::Together;
use super::{Encode, Progress, Summary};
use crate::error::{Error, Result};
use crate::store::{Bucket, Origin, Sample, Writer, hash_parts};

/// No file of captions has more bytes.
const LONGEST: u64 = 1 << 28;

/// The captions of a file: of a `.csv`, `.tsv`, `.json` or `.jsonl` table those in the column `caption` (or
/// `text`), of any other file one a line, without the lines that begin with `#`. Empty ones are left out, and so is
/// what stands there twice.
///
/// # Errors
/// It cannot be read, is no text, or is a table without captions.
pub fn read_captions(path: &Path) -> Result<Vec<String>> {
    let wrong = |reason: String| Error::Manifest { path: path.to_owned(), reason };
    let text = read_caption(path, LONGEST)?.map_err(wrong)?;
    let mut captions: Vec<String> = Vec::new();
    match Table::of(path) {
        Some(table) => {
            let read = table.read(&text, &mut |row| {
                captions.push(row.caption()?.to_owned());
                Ok(())
            });
            read.map_err(wrong)?;
        }
        None => {
            let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
            captions.extend(lines.map(str::to_owned));
        }
    }
    let mut seen = BTreeSet::new();
    captions.retain(|own| !own.is_empty() && seen.insert(own.clone()));
    Ok(captions)
}

/// Encodes captions that the store does not have yet, for clips of one size and rate that nobody has seen.
///
/// # Errors
/// The encoder fails, or the store cannot be written.
pub fn preprocess_texts(
    captions: &[String],
    (bucket, fps): (Bucket, f64),
    encode: &mut dyn Encode,
    writer: &mut Writer,
    progress: &mut dyn FnMut(Progress<'_>),
    stop: &AtomicBool,
) -> Result<Summary> {
    let mut summary = Summary::default();
    let mut wanted = BTreeSet::new();
    let texts: Vec<Origin> = captions.iter().map(|own| origin(own, (bucket, fps))).collect();
    let mut together = Together::default();
    // How many of the next texts are asked for already.
    let mut ahead = 0;
    for (done, own) in texts.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            summary.interrupted = true;
            break;
        }
        progress(Progress { done, total: captions.len(), id: &own.caption });
        wanted.insert(own.id.clone());
        if writer.has(&own.id, &own.source_hash) {
            summary.kept += 1;
            continue;
        }
        let failed = |cause| Error::Encode { id: own.id.clone(), cause };
        let is_first = ahead == 0;
        if is_first {
            let missing = texts.iter().enumerate().skip(done);
            // Captions may become the same by what was put before them.
            let mut asked = BTreeSet::new();
            let missing = missing.filter(|(_, own)| {
                !writer.has(&own.id, &own.source_hash) && asked.insert(own.id.clone())
            });
            let places: Vec<usize> =
                missing.map(|(at, _)| at).take(Together::width(encode)).collect();
            ahead = places.len();
            together = Together::begin(encode, &places).map_err(failed)?;
        }
        ahead -= 1;
        let tensors = match together.next(encode, is_first).map_err(failed)? {
            Some(tensors) => tensors,
            None => encode.text(&own.caption).map_err(failed)?,
        };
        writer.push(Sample { origin: own.clone(), tensors })?;
        summary.written += 1;
    }
    writer.flush()?;
    if !summary.interrupted {
        summary.removed = writer.retain(&wanted)?;
    }
    Ok(summary)
}

/// What the sample of a caption alone is called.
pub fn text_id(caption: &str, place: (Bucket, f64)) -> String {
    origin(caption, place).id
}

/// Where a sample of a caption alone comes from.
fn origin(caption: &str, (bucket, fps): (Bucket, f64)) -> Origin {
    let size = bucket.to_string();
    let source_hash = hash_parts(&[caption.as_bytes(), size.as_bytes(), &fps.to_le_bytes()]);
    let id = format!("text {}", source_hash.chars().take(16).collect::<String>());
    Origin { id, source_hash, caption: caption.to_owned(), fps, bucket, reference: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captions_are_lines_or_a_column_of_a_table() {
        let folder = tempfile::tempdir().unwrap();
        let read = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            read_captions(&path)
        };
        for (name, text) in [
            ("a.txt", " a fox\n\n# not this\nan owl, old\na fox\n"),
            ("a.prompts", "a fox\nan owl, old"),
            ("a.csv", "caption,path\na fox,1.mp4\n\"an owl, old\",2.mp4\n,3.mp4\na fox,4.mp4\n"),
            ("a.tsv", "path\tText\n1.mp4\ta fox\n2.mp4\tan owl, old\n"),
            ("a.json", r#"[{"caption": "a fox"}, {"text": "an owl, old", "n": 3}]"#),
            ("a.jsonl", "{\"caption\": \"a fox\"}\n{\"caption\": \" an owl, old \"}\n"),
        ] {
            assert_eq!(read(name, text).unwrap(), ["a fox", "an owl, old"], "{name}");
        }
        assert_eq!(read("b.csv", "caption\n# a fox\n").unwrap(), ["# a fox"]);
        for (name, text, word) in [
            ("c.csv", "prompt\na fox\n", "row 1 has no `caption` (or `text`), but prompt"),
            ("c.jsonl", "a fox\n", "line 1 is not an object"),
            ("c.json", r#"[{"caption": 3}]"#, "its `caption` is no text"),
        ] {
            let message = read(name, text).unwrap_err().to_string();
            assert!(message.contains(word), "no `{word}` in: {message}");
        }
    }
}
