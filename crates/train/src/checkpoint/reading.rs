//! Reading the state of a checkpoint as a stream: every byte is checked, and only what is wanted is ever held. A rank
//! that goes on holds its own tensors, not those of all.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use burn::tensor::{Device, Tensor, TensorData};
use nn::Parameter;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};

use super::file::{FileSum, Manifest, files, read_manifest};
use crate::error::{Error, Result};
use crate::state::{StateDict, Value};

/// Bytes that are read at once. It is whole numbers of every type that a state holds.
const CHUNK: usize = 1 << 20;

/// No header is longer: it has a line for each tensor.
const LONGEST_HEADER: u64 = 100_000_000;

/// Where what is read goes.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a> {
    /// Where tensors are to be.
    pub(crate) device: &'a Device,
    /// What of a state is wanted, by its key.
    pub(crate) wanted: &'a dyn Fn(&str) -> bool,
}

impl<'a> Reading<'a> {
    /// All of a state.
    pub(crate) fn whole(device: &'a Device) -> Reading<'a> {
        Reading { device, wanted: &|_| true }
    }
}

/// What was read so far.
#[derive(Default)]
struct Kept {
    /// What is wanted.
    state: StateDict,
    /// All keys, wanted or not.
    keys: BTreeSet<String>,
    /// The first tensor that is not wanted here and not finite.
    not_finite: Option<String>,
}

/// Reads what is wanted of a checkpoint, of which every byte must be as it was written.
pub(super) fn read(place: &Path, reading: Reading<'_>) -> Result<(Manifest, StateDict)> {
    let damaged = |reason: String| Error::Damaged { path: place.to_owned(), reason };
    let manifest = read_manifest(place)?;
    let first = FileSum { bytes: manifest.bytes, hash: manifest.hash.clone() };
    let mut kept = Kept::default();
    for (path, sum) in
        files(place, &manifest).iter().zip([&first].into_iter().chain(&manifest.parts))
    {
        kept = read_part(path, sum, kept, reading).map_err(damaged)?;
    }
    let elsewhere = kept.not_finite.map(|name| format!("`{name}` is not finite"));
    match kept.state.not_finite().or(elsewhere) {
        None => Ok((manifest, kept.state)),
        Some(what) => Err(damaged(format!("the run had diverged: {what}"))),
    }
}

/// Reads one file of a state, of which every byte must be as it was written. The error says what is wrong.
fn read_part(
    path: &Path,
    sum: &FileSum,
    kept: Kept,
    reading: Reading<'_>,
) -> std::result::Result<Kept, String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let fault = |err: io::Error| format!("{name}: {err}");
    let file = kernels::open_file(path).map_err(fault)?;
    let (got, want) = (file.metadata().map_err(fault)?.len(), sum.bytes);
    if got != want {
        return Err(format!("{name} has {got} bytes, but {want} were written"));
    }
    let mut file = Hashed::new(file);
    let read = walk(&mut file, want, kept, reading);
    // What the hash says is wrong is what is wrong, whatever was made of it.
    let hash = file.finish(want).map_err(fault)?;
    match hash == sum.hash {
        true => read.map_err(|reason| format!("{name}: {reason}")),
        false => Err(format!("{name} is not what was written: its hash differs")),
    }
}

/// A file that is hashed as it is read.
struct Hashed {
    file: File,
    hasher: blake3::Hasher,
    buffer: Vec<u8>,
}

impl Hashed {
    fn new(file: File) -> Hashed {
        Hashed { file, hasher: blake3::Hasher::new(), buffer: vec![0; CHUNK] }
    }

    /// The next bytes, at most as many as are read at once.
    fn next(&mut self, count: usize) -> io::Result<&[u8]> {
        let bytes = &mut self.buffer[..count.min(CHUNK)];
        self.file.read_exact(bytes)?;
        self.hasher.update(bytes);
        Ok(bytes)
    }

    /// So many bytes, a chunk at a time.
    fn each(&mut self, count: usize, mut take: impl FnMut(&[u8])) -> io::Result<()> {
        let mut left = count;
        while left > 0 {
            let bytes = self.next(left)?;
            left -= bytes.len();
            take(bytes);
        }
        Ok(())
    }

    /// The hash of all bytes of a file of this length; it may not have grown meanwhile.
    fn finish(mut self, length: u64) -> io::Result<String> {
        loop {
            let read = self.file.read(&mut self.buffer)?;
            let left = length - self.hasher.count().min(length);
            if read == 0 || left == 0 {
                return Ok(self.hasher.finalize().to_hex().to_string());
            }
            self.hasher.update(&self.buffer[..read.min(left as usize)]);
        }
    }
}

/// Goes through a file of so many bytes and keeps what is wanted.
fn walk(
    file: &mut Hashed,
    bytes: u64,
    mut kept: Kept,
    reading: Reading<'_>,
) -> std::result::Result<Kept, String> {
    let fault = |err: io::Error| err.to_string();
    let (mut length, mut header) = ([0; 8], Vec::new());
    file.each(length.len(), |own| length.copy_from_slice(own)).map_err(fault)?;
    let length = u64::from_le_bytes(length);
    if length > LONGEST_HEADER.min(bytes.saturating_sub(8)) {
        return Err(format!("its header of {length} bytes is longer than it"));
    }
    file.each(length as usize, |own| header.extend_from_slice(own)).map_err(fault)?;
    let header: Metadata = serde_json::from_slice(&header).map_err(|err| err.to_string())?;
    if 8 + length + header.data_len() as u64 != bytes {
        return Err("its header tells of other tensors than it holds".to_owned());
    }
    for name in header.offset_keys() {
        let Some(info) = header.info(&name) else { continue };
        if !kept.keys.insert(name.clone()) {
            return Err(format!("two of its files hold `{name}`"));
        }
        match (reading.wanted)(&name) {
            true => kept.state.insert(&name, value(file, &name, info, reading.device)?),
            false if !is_finite(file, info).map_err(fault)? => {
                kept.not_finite.get_or_insert(name);
            }
            false => {}
        }
    }
    Ok(kept)
}

/// The next tensor or number of a file.
fn value(
    file: &mut Hashed,
    name: &str,
    info: &TensorInfo,
    device: &Device,
) -> std::result::Result<Value, String> {
    let fault = |err: io::Error| err.to_string();
    let bytes = info.data_offsets.1 - info.data_offsets.0;
    match info.dtype {
        Dtype::F32 => {
            let mut values = Vec::with_capacity(bytes / size_of::<f32>());
            file.each(bytes, |own| values.extend(floats(own))).map_err(fault)?;
            let length = values.len();
            let values = Tensor::from_data(TensorData::new(values, [length]), device);
            Ok(Value::Tensor(Parameter { values, shape: info.shape.clone() }))
        }
        Dtype::U64 if bytes == 8 => {
            let mut number = [0; 8];
            file.each(bytes, |own| number.copy_from_slice(own)).map_err(fault)?;
            Ok(Value::Number(u64::from_le_bytes(number)))
        }
        other => Err(format!("`{name}` is stored as {other:?}")),
    }
}

/// Whether the next tensor of a file is finite; nothing of it is kept.
fn is_finite(file: &mut Hashed, info: &TensorInfo) -> io::Result<bool> {
    let mut is_finite = true;
    let is_float = info.dtype == Dtype::F32;
    let bytes = info.data_offsets.1 - info.data_offsets.0;
    file.each(bytes, |own| is_finite &= !is_float || floats(own).all(f32::is_finite))?;
    Ok(is_finite)
}

/// The numbers of whole fours of bytes.
fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().expect("four bytes")))
}

#[cfg(test)]
mod tests {
    use super::super::Recipe;
    use super::super::file::{name_of, write_manifest, write_state};
    use super::*;

    /// A checkpoint in two files of two tensors and a number, one tensor longer than what is read at once.
    fn saved(place: &Path, last: f32) {
        std::fs::create_dir_all(place).expect("a folder");
        let tensor = |count: usize, last: f32| {
            let mut values: Vec<f32> = (0..count).map(|at| at as f32).collect();
            values[count - 1] = last;
            let values = Tensor::from_data(TensorData::new(values, [count]), &Device::flex());
            Parameter { values, shape: vec![count] }
        };
        let mut parts = [StateDict::new(), StateDict::new()];
        parts[0].tensor("own", tensor(CHUNK / 2 + 3, 7.0));
        parts[0].number("step", 1 << 40);
        parts[1].tensor("another's", tensor(CHUNK / 2 + 5, last));
        let sums: Vec<FileSum> = parts
            .iter()
            .enumerate()
            .map(|(at, part)| write_state(&place.join(name_of(at, 2)), part).expect("a file"))
            .collect();
        let manifest = Manifest::new(3, Recipe(serde_json::Value::Null), Default::default());
        write_manifest(place, manifest, sums[0].clone(), vec![sums[1].clone()]).expect("a file");
    }

    /// What is not wanted is not there, and is checked all the same.
    #[test]
    fn only_what_is_wanted_is_kept_and_all_is_checked() {
        let temporary = tempfile::tempdir().expect("a folder");
        let place = temporary.path().join("whole");
        saved(&place, 1.0);
        let device = Device::flex();
        let wanted = |key: &str| key != "another's";
        let reading = Reading { device: &device, wanted: &wanted };
        let (manifest, mut state) = read(&place, reading).expect("it is whole");
        assert_eq!((manifest.step, state.iter().count()), (3, 2));
        assert_eq!(state.take_number("step").ok(), Some(1 << 40));
        let own = state.take_tensor("own", &[CHUNK / 2 + 3]).expect("it is wanted");
        let values: Vec<f32> = own.values.into_data().iter::<f32>().collect();
        let first = (0..CHUNK / 2 + 2).map(|at| at as f32);
        assert!(values.iter().copied().eq(first.chain([7.0])), "the values are others");
        let (_, whole) = read(&place, Reading::whole(&device)).expect("it is whole");
        assert!(whole.iter().any(|(key, _)| key == "another's"));

        let told = |place: &Path| read(place, reading).map(drop).expect_err("damaged").to_string();
        let file = place.join(name_of(1, 2));
        let bytes = std::fs::read(&file).expect("a file");
        for at in [3, 40, bytes.len() / 2, bytes.len() - 1] {
            let mut other = bytes.clone();
            other[at] ^= 1;
            std::fs::write(&file, other).expect("a file");
            assert!(told(&place).contains("its hash differs"), "byte {at}: {}", told(&place));
        }
        let nan = temporary.path().join("diverged");
        saved(&nan, f32::NAN);
        let told = told(&nan);
        assert!(told.contains("had diverged: `another's` is not finite"), "{told}");
    }
}
