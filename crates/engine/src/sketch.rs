//! Which files these are, told without reading all of large weights.
//!
//! A file is hashed whole, but of weights beyond a mebibyte the length, the header (names, shapes, types
//! and metadata) and 65 blocks of 4 KiB that are spread evenly are hashed: another model or another
//! training of it differs in all of them, and reading them all would take minutes.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use data::store::hash_parts;
use folder::ModelFolder;

use crate::error::{Error, Result};

/// Files up to this length are hashed whole.
const WHOLE: u64 = 1 << 20;
/// Of longer ones, so many blocks of [`BLOCK`] bytes, spread evenly.
const BLOCKS: u64 = 64;
const BLOCK: u64 = 4096;
/// Hexadecimal digits of a hash that are shown and compared.
const DIGITS: usize = 32;
/// Endings of the files of a component that decide what it computes, beside its weights.
const CONFIGS: [&str; 3] = ["json", "txt", "model"];

/// The fingerprint of a model: its index, and of every component that the index lists the configs, the
/// vocabularies and the weights. Where the folder is does not matter.
///
/// # Errors
/// A file cannot be read.
pub fn model_fingerprint(model: &Path) -> Result<String> {
    let folder = ModelFolder::open(model)?;
    let mut files = vec![model.join("model_index.json")];
    for (component, _) in folder.components() {
        let path = model.join(component);
        if !path.is_dir() {
            continue;
        }
        let is_config = |file: &PathBuf| {
            let extension = file.extension().and_then(|own| own.to_str());
            extension.is_some_and(|own| CONFIGS.contains(&own))
        };
        files.extend(files_of(&path)?.into_iter().filter(is_config));
        match folder.weights(component) {
            Ok(weights) => files.extend(weights),
            Err(folder::Error::NoWeights(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    hash_files(&files)
}

/// The fingerprint of a file, or of all files of a folder.
///
/// # Errors
/// It cannot be read.
pub fn file_fingerprint(path: &Path) -> Result<String> {
    match path.is_dir() {
        true => hash_files(&files_of(path)?),
        false => hash_files(&[path.to_owned()]),
    }
}

/// The files of a folder in the order of their names.
fn files_of(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|source| Error::read(folder, source))?;
    let mut files: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    files.sort();
    Ok(files)
}

/// One hash of several files, in their order.
pub(crate) fn hash_files(files: &[PathBuf]) -> Result<String> {
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
        return Ok(hash_parts(&[&kernels::read_file(path, u64::MAX)?]));
    }
    let mut file = kernels::open_file(path)?;
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
