//! Which encoders these are, so that a dataset is never read or continued with others.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use data::store::{Fingerprint, hash_parts};
use families::TextRules;
use folder::ModelFolder;

use crate::error::{Error, Result};
use crate::text::names;

/// Files up to this length are hashed whole.
const WHOLE: u64 = 1 << 20;
/// Of longer ones, so many blocks of [`BLOCK`] bytes, spread evenly.
const BLOCKS: u64 = 64;
const BLOCK: u64 = 4096;
/// The files of a tokenizer that decide about ids.
const TOKENIZER: [&str; 3] = ["tokenizer_config.json", "tokenizer.json", "spiece.model"];
/// Hexadecimal digits of a hash that are shown and compared.
const DIGITS: usize = 32;

/// The fingerprint of a folder's encoders. Where the folder is does not matter; what its configs,
/// tokenizer and weights say does, and so do the rules for captions.
///
/// Of large weight files the length, the header and some blocks are hashed: another model or another
/// training of it differs in all of them, and reading them all would take minutes.
///
/// # Errors
/// A file cannot be read.
pub(super) fn of(folder: &ModelFolder, rules: TextRules) -> Result<Fingerprint> {
    let [encoder, tokenizer] = names(0);
    let class = |component: &str| folder.class_of(component).unwrap_or("unknown").to_owned();

    let video = hash_files(&network(folder, "vae")?)?;
    let video = format!("{} {video}", class("vae"));

    let mut files = network(folder, &encoder)?;
    let tokenizer = folder.component(&tokenizer)?;
    files.extend(TOKENIZER.map(|file| tokenizer.join(file)).into_iter().filter(|it| it.is_file()));
    let TextRules { preparation, max_tokens, padding } = rules;
    let rules = format!("{preparation:?}, {padding:?}, {max_tokens} tokens").to_lowercase();
    let text = format!("{} {}, {rules}", class(&encoder), hash_files(&files)?);
    Ok(Fingerprint::new([("video", video), ("text", text)]))
}

/// The config and the weights of a component.
fn network(folder: &ModelFolder, component: &str) -> Result<Vec<PathBuf>> {
    let mut files = vec![folder.component(component)?.join("config.json")];
    files.extend(folder.weights(component)?);
    Ok(files)
}

/// One hash of several files.
fn hash_files(files: &[PathBuf]) -> Result<String> {
    let digest = |path: &PathBuf| digest(path).map_err(|source| Error::read(path, source));
    let digests = files.iter().map(digest).collect::<Result<Vec<_>>>()?;
    let parts: Vec<&[u8]> = digests.iter().map(String::as_bytes).collect();
    Ok(hash_parts(&parts)[..DIGITS].to_owned())
}

/// The hash of a file, or of its length, its header and some of its blocks.
fn digest(path: &Path) -> io::Result<String> {
    let length = fs::metadata(path)?.len();
    let is_weights = path.extension().is_some_and(|extension| extension == "safetensors");
    if length <= WHOLE || !is_weights {
        return Ok(hash_parts(&[&fs::read(path)?]));
    }
    let mut file = File::open(path)?;
    let mut sketch = read_at(&mut file, 0, 8)?;
    // A safetensors file begins with the length of its header.
    let header = sketch.iter().rev().fold(0, |sum: u64, byte| (sum << 8) | u64::from(*byte));
    sketch.extend(read_at(&mut file, 8, header.min(length - 8))?);
    for block in 0..BLOCKS {
        sketch.extend(read_at(&mut file, (length - BLOCK) / (BLOCKS - 1) * block, BLOCK)?);
    }
    sketch.extend(read_at(&mut file, length - BLOCK, BLOCK)?);
    Ok(hash_parts(&[&length.to_le_bytes(), &sketch]))
}

fn read_at(file: &mut File, start: u64, length: u64) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a large file, its length, its header, its ends and what lies between are seen.
    #[test]
    fn large_weights_are_sampled() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("model.safetensors");
        let length = 3 << 20;
        let mut bytes = vec![0; length];
        bytes[..8].copy_from_slice(&100_000_u64.to_le_bytes());
        let digest = |bytes: &[u8]| {
            fs::write(&path, bytes).expect("a file");
            super::digest(&path).expect("a digest")
        };
        let first = digest(&bytes);
        assert_eq!(first, digest(&bytes));
        assert_ne!(first, digest(&bytes[..length - 1]), "the length");
        for at in [0, 8, 90_000, length - 1] {
            bytes[at] ^= 1;
            assert_ne!(first, digest(&bytes), "byte {at}");
            bytes[at] ^= 1;
        }
        // Another training changes weights everywhere.
        for block in bytes[200_000..length - 10_000].chunks_mut(1000) {
            block[7] = 1;
        }
        assert_ne!(first, digest(&bytes));
    }
}
