//! Captions alone, for methods that make their clips themselves.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::text::read_text;
use super::{Encode, Progress, Summary};
use crate::error::{Error, Result};
use crate::store::{Bucket, Origin, Sample, Writer, hash_parts};

/// No file of captions has more bytes.
const LONGEST: u64 = 1 << 28;

/// The captions of a file, one a line; empty lines and lines that begin with `#` are left out, and so is what
/// stands there twice.
///
/// # Errors
/// It cannot be read, or is no text.
pub fn read_captions(path: &Path) -> Result<Vec<String>> {
    let text = read_text(path, LONGEST)?
        .map_err(|reason| Error::Manifest { path: path.to_owned(), reason })?;
    let mut seen = BTreeSet::new();
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.filter(|line| seen.insert(line.to_owned())).map(str::to_owned).collect())
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
    for (done, caption) in captions.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            summary.interrupted = true;
            break;
        }
        progress(Progress { done, total: captions.len(), id: caption });
        let size = bucket.to_string();
        let source_hash = hash_parts(&[caption.as_bytes(), size.as_bytes(), &fps.to_le_bytes()]);
        let id = format!("text {}", source_hash.chars().take(16).collect::<String>());
        wanted.insert(id.clone());
        if writer.has(&id, &source_hash) {
            summary.kept += 1;
            continue;
        }
        let failed = |cause| Error::Encode { id: id.clone(), cause };
        let tensors = encode.text(caption).map_err(failed)?;
        let caption = caption.clone();
        let origin = Origin { id, source_hash, caption, fps, bucket, reference: None };
        writer.push(Sample { origin, tensors })?;
        summary.written += 1;
    }
    writer.flush()?;
    if !summary.interrupted {
        summary.removed = writer.retain(&wanted)?;
    }
    Ok(summary)
}
