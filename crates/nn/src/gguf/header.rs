//! The header of a GGUF file. It is read in one pass over bytes that may be anything: what is not there is not
//! allocated, and what cannot be is refused.

use std::collections::{BTreeMap, BTreeSet};

use super::value::GgufValue;
use super::{GgufTensor, GgufType, MAGIC};

/// No header is longer.
const LONGEST: usize = 256 << 20;

/// No text of a header is longer.
const LONGEST_TEXT: u64 = 16 << 20;

/// No list in a header has more entries, and no file more tensors.
const MOST: u64 = 4 << 20;

/// No tensor has more dims.
const DIMS: u32 = 8;

/// The alignment of values that a file does not say.
pub(super) const ALIGNMENT: usize = 32;

/// A file that was reshaped for programs that know four dims says here what shape it had.
pub(super) const SHAPE: &str = "comfy.gguf.orig_shape.";

/// What the header of a file says.
#[derive(Clone, Debug, PartialEq)]
pub struct GgufHeader {
    /// Of the format.
    pub version: u32,
    /// What the file says of itself.
    pub metadata: BTreeMap<String, GgufValue>,
    /// Its tensors.
    pub tensors: Vec<GgufTensor>,
    /// Bytes of the header.
    pub(super) end: usize,
}

impl GgufHeader {
    /// Whether a file begins as a GGUF does.
    pub fn is_of(file: &[u8]) -> bool {
        file.starts_with(MAGIC)
    }

    /// Reads what a file begins with.
    ///
    /// # Errors
    /// It is no GGUF, or its header ends too early or holds what cannot be; in words.
    pub fn parse(file: &[u8]) -> Result<GgufHeader, String> {
        let mut reader = Reader { rest: &file[..file.len().min(LONGEST)] };
        let whole = reader.rest.len();
        if &reader.bytes::<4>()? != MAGIC {
            return Err("it does not begin as a GGUF file does".to_owned());
        }
        let version = reader.number()?;
        if !(2..=3).contains(&version) {
            return Err(format!("it is of version {version}; 2 and 3 are known"));
        }
        let (count, entries) = (reader.count()?, reader.count()?);
        let mut metadata = BTreeMap::new();
        for _ in 0..entries {
            let (key, kind) = (reader.text()?, reader.number()?);
            let value = GgufValue::read(&mut reader, kind, 0)?;
            if metadata.insert(key.clone(), value).is_some() {
                return Err(format!("its metadata say `{key}` twice"));
            }
        }
        let (mut tensors, mut names) = (Vec::new(), BTreeSet::new());
        for _ in 0..count {
            let tensor = tensor(&mut reader, &metadata)?;
            if !names.insert(tensor.name.clone()) {
                return Err(format!("it holds tensor `{}` twice", tensor.name));
            }
            tensors.push(tensor);
        }
        Ok(GgufHeader { version, metadata, tensors, end: whole - reader.rest.len() })
    }

    /// Values begin at multiples of this.
    pub(super) fn alignment(&self) -> Result<usize, String> {
        let said = match self.metadata.get("general.alignment") {
            None => return Ok(ALIGNMENT),
            Some(GgufValue::Whole(said)) => usize::try_from(*said).ok(),
            Some(_) => None,
        };
        let said = said.filter(|said| said.is_power_of_two() && *said <= 1 << 20);
        said.ok_or_else(|| "its `general.alignment` is no power of two".to_owned())
    }
}

fn tensor(
    reader: &mut Reader<'_>,
    metadata: &BTreeMap<String, GgufValue>,
) -> Result<GgufTensor, String> {
    let name = reader.text()?;
    let dims = reader.number()?;
    if dims > DIMS {
        return Err(format!("tensor `{name}` has {dims} dimensions"));
    }
    let mut shape = Vec::new();
    for _ in 0..dims {
        let size = usize::try_from(reader.long()?);
        shape.push(size.map_err(|_| format!("tensor `{name}` is too large"))?);
    }
    // It counts from the last dimension.
    shape.reverse();
    if shape.contains(&0) {
        return Err(format!("tensor `{name}` of shape {shape:?} has no values"));
    }
    let (kind, offset) = (GgufType::of(reader.number()?), reader.long()?);
    if let Some(said) = metadata.get(&format!("{SHAPE}{name}")) {
        let count =
            |shape: &[usize]| shape.iter().try_fold(1_usize, |all, own| all.checked_mul(*own));
        let same = said.sizes().filter(|said| count(said) == count(&shape));
        // Blocks lie along rows, which must stay.
        let same = same.filter(|said| said.last() == shape.last());
        shape = same.ok_or_else(|| {
            format!("its metadata say that tensor `{name}` of shape {shape:?} was {said}, which cannot be")
        })?;
    }
    Ok(GgufTensor { name, kind, shape, offset })
}

/// What is left of the bytes of a header.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let taken = self.rest.split_at_checked(count);
        let (taken, rest) = taken.ok_or("its header ends too early")?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn bytes<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    pub(super) fn number(&mut self) -> Result<u32, String> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }

    pub(super) fn long(&mut self) -> Result<u64, String> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    pub(super) fn count(&mut self) -> Result<u64, String> {
        match self.long()? {
            count if count <= MOST => Ok(count),
            count => Err(format!("it says that it has {count} entries, which no file has")),
        }
    }

    pub(super) fn text(&mut self) -> Result<String, String> {
        let length = self.long()?;
        if length > LONGEST_TEXT {
            return Err(format!("it has a text of {length} bytes, which no file has"));
        }
        Ok(String::from_utf8_lossy(self.take(length as usize)?).into_owned())
    }
}
