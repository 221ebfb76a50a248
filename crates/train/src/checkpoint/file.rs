//! The files of one checkpoint: `state.safetensors`, one more for each other rank that wrote a part of it, and, written
//! after them, `manifest.json`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use safetensors::{Dtype, View};
use serde::{Deserialize, Serialize};

use super::Recipe;
use crate::error::{Error, Result};
use crate::state::{StateDict, Value};

/// The version of the format, which a reader must know.
pub const VERSION: u32 = 2;

/// That of checkpoints of one part, which earlier programs can read.
const WHOLE: u32 = 1;

const STATE: &str = "state.safetensors";
const MANIFEST: &str = "manifest.json";

/// What is known of a file that was written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSum {
    /// Its length.
    pub bytes: u64,
    /// Its BLAKE3 hash.
    pub hash: String,
}

/// What a checkpoint says about itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The BLAKE3 hash of this text with zeros in its place. Earlier versions wrote none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) seal: String,
    /// The version of the format.
    pub version: u32,
    /// The step it was made after.
    pub step: u64,
    /// The recipe of the run.
    pub recipe: Recipe,
    /// What whoever uses the student must know: see `Method::metadata`.
    #[serde(default)]
    pub facts: BTreeMap<String, String>,
    /// The hash of all that the run was made from, by what it is: its data and the weights that its
    /// networks began with. Earlier versions recorded none.
    #[serde(default)]
    pub origins: BTreeMap<String, String>,
    /// The length of the state in bytes.
    pub bytes: u64,
    /// Its BLAKE3 hash.
    pub hash: String,
    /// The same of the parts that other ranks wrote, in their order: see [`files`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<FileSum>,
}

/// The name of a part of a state, by its number of all.
pub(super) fn name_of(part: usize, parts: usize) -> String {
    match part {
        0 => STATE.to_owned(),
        part => format!("state-{:05}-of-{parts:05}.safetensors", part + 1),
    }
}

/// The files that hold the state of the checkpoint at `place`.
pub fn files(place: &Path, manifest: &Manifest) -> Vec<PathBuf> {
    let parts = manifest.parts.len() + 1;
    (0..parts).map(|part| place.join(name_of(part, parts))).collect()
}

impl Manifest {
    pub(super) fn new(step: u64, recipe: Recipe, facts: BTreeMap<String, String>) -> Manifest {
        let (origins, hash, seal) = (BTreeMap::new(), String::new(), String::new());
        let parts = Vec::new();
        Manifest { seal, version: WHOLE, step, recipe, facts, origins, bytes: 0, hash, parts }
    }
}

/// Writes what a checkpoint says about itself beside its parts, all of which are there. Whoever commits it flushes.
pub(super) fn write_manifest(
    place: &Path,
    mut manifest: Manifest,
    first: FileSum,
    parts: Vec<FileSum>,
) -> Result<()> {
    manifest.version = if parts.is_empty() { WHOLE } else { VERSION };
    (manifest.bytes, manifest.hash, manifest.parts) = (first.bytes, first.hash, parts);
    let path = place.join(MANIFEST);
    manifest.seal = unsealed();
    let text = serde_json::to_string_pretty(&manifest).expect("a manifest is plain JSON");
    let seal = blake3::hash(text.as_bytes()).to_hex();
    let text = text.replacen(&unsealed(), &seal, 1);
    std::fs::write(&path, text).map_err(|err| Error::file("write", &path, err))
}

/// What stands for the seal while it is computed.
fn unsealed() -> String {
    "0".repeat(2 * blake3::OUT_LEN)
}

/// Whether a manifest is as it was written, as far as it can tell.
fn is_sealed(text: &str, seal: &str) -> bool {
    let plain = || text.replacen(seal, &unsealed(), 1);
    seal.is_empty() || blake3::hash(plain().as_bytes()).to_hex().as_str() == seal
}

/// Writes the values into a new file and says how many bytes they are, and their hash.
pub(super) fn write_state(path: &Path, state: &StateDict) -> io::Result<FileSum> {
    let values = state.iter().map(|(name, value)| (name, Bytes(value))).collect();
    let mut file = BufWriter::new(File::create_new(path)?);
    data::write_tensors(&mut file, values, None)?;
    file.flush()?;
    // What is hashed is what is read back, as it will be when the checkpoint is used.
    digest(path)
}

/// No manifest is longer: a recipe has at most 4 MB.
const LONGEST_MANIFEST: u64 = 64 << 20;

/// Reads what a checkpoint says about itself.
///
/// # Errors
/// It is damaged or not there.
pub fn read_manifest(place: &Path) -> Result<Manifest> {
    let damaged = |reason: String| Error::Damaged { path: place.to_owned(), reason };
    let text = kernels::read_file(&place.join(MANIFEST), LONGEST_MANIFEST)
        .map_err(|err| damaged(format!("{MANIFEST}: {err}")))?;
    let text = String::from_utf8(text).map_err(|err| damaged(format!("{MANIFEST}: {err}")))?;
    let manifest: Manifest =
        serde_json::from_str(&text).map_err(|err| damaged(format!("{MANIFEST}: {err}")))?;
    let known = if manifest.parts.is_empty() { WHOLE } else { VERSION };
    if manifest.version != known {
        return Err(damaged(format!(
            "it has version {} of the format, this program reads version {VERSION}",
            manifest.version
        )));
    }
    match is_sealed(&text, &manifest.seal) {
        true => Ok(manifest),
        false => Err(damaged(format!("{MANIFEST} is not what was written: its hash differs"))),
    }
}

/// The length of a file and the hash of its bytes.
fn digest(path: &Path) -> io::Result<FileSum> {
    let mut hasher = blake3::Hasher::new();
    let mut file = kernels::open_file(path)?;
    let bytes = io::copy(&mut file, &mut hasher)?;
    Ok(FileSum { bytes, hash: hasher.finalize().to_hex().to_string() })
}

/// A value as safetensors wants it. Its bytes are made when they are written: a state is not held
/// twice.
struct Bytes<'a>(&'a Value);

impl View for Bytes<'_> {
    fn dtype(&self) -> Dtype {
        match self.0 {
            Value::Tensor(_) => Dtype::F32,
            Value::Number(_) => Dtype::U64,
        }
    }

    fn shape(&self) -> &[usize] {
        match self.0 {
            Value::Tensor(parameter) => &parameter.shape,
            Value::Number(_) => &[1],
        }
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Owned(match self.0 {
            Value::Tensor(parameter) => {
                parameter.values.clone().into_data().convert::<f32>().bytes().to_vec()
            }
            Value::Number(number) => number.to_le_bytes().to_vec(),
        })
    }

    fn data_len(&self) -> usize {
        match self.0 {
            Value::Tensor(parameter) => parameter.values.dims()[0] * size_of::<f32>(),
            Value::Number(number) => size_of_val(number),
        }
    }
}
