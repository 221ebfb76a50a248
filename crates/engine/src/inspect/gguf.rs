//! The header of a GGUF file: what it says of itself, and which tensors it holds. Their values are not read.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::Path;

use super::TensorReport;

/// No header is longer.
const LONGEST: u64 = 256 << 20;

/// No text of a header is longer.
const LONGEST_TEXT: u64 = 16 << 20;

/// No list in a header has more entries, and no file more tensors.
const MOST: u64 = 4 << 20;

/// Entries of a list that are shown.
const SHOWN: usize = 8;

/// What a header says.
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) tensors: Vec<TensorReport>,
}

/// Reads the header of a file.
///
/// # Errors
/// It cannot be read, or is no GGUF; in words.
pub(super) fn read(path: &Path) -> Result<Header, String> {
    let file = File::open(path).map_err(|err| err.to_string())?;
    let mut reader = BufReader::new(file.take(LONGEST));
    parse(&mut reader).map_err(|err| match err.kind() {
        ErrorKind::UnexpectedEof => "its header ends too early".to_owned(),
        _ => err.to_string(),
    })
}

fn wrong(reason: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, reason.into())
}

fn parse(source: &mut impl Read) -> io::Result<Header> {
    if &bytes::<4>(source)? != b"GGUF" {
        return Err(wrong("it does not begin as a GGUF file does"));
    }
    let version = u32::from_le_bytes(bytes(source)?);
    if !(2..=3).contains(&version) {
        return Err(wrong(format!("it is of version {version}; 2 and 3 are known")));
    }
    let (tensors, entries) = (count(source)?, count(source)?);
    let mut metadata = BTreeMap::new();
    for _ in 0..entries {
        let key = text(source)?;
        let kind = u32::from_le_bytes(bytes(source)?);
        metadata.insert(key, value(source, kind, 0)?);
    }
    let mut all = Vec::new();
    for _ in 0..tensors {
        all.push(tensor(source)?);
    }
    Ok(Header { version, metadata, tensors: all })
}

fn tensor(source: &mut impl Read) -> io::Result<TensorReport> {
    let name = text(source)?;
    let dims = u32::from_le_bytes(bytes(source)?);
    if dims > 8 {
        return Err(wrong(format!("a tensor has {dims} dimensions")));
    }
    let mut shape = Vec::new();
    for _ in 0..dims {
        let size = u64::from_le_bytes(bytes(source)?);
        shape.push(usize::try_from(size).map_err(|_| wrong("a tensor is too large"))?);
    }
    // It counts from the last dimension.
    shape.reverse();
    let kind = u32::from_le_bytes(bytes(source)?);
    let _offset = u64::from_le_bytes(bytes(source)?);
    Ok(TensorReport { name, dtype: type_name(kind), shape })
}

fn type_name(kind: u32) -> String {
    const NAMES: [(u32, &str); 22] = [
        (0, "f32"),
        (1, "f16"),
        (2, "q4_0"),
        (3, "q4_1"),
        (6, "q5_0"),
        (7, "q5_1"),
        (8, "q8_0"),
        (9, "q8_1"),
        (10, "q2_k"),
        (11, "q3_k"),
        (12, "q4_k"),
        (13, "q5_k"),
        (14, "q6_k"),
        (15, "q8_k"),
        (20, "iq4_nl"),
        (23, "iq4_xs"),
        (24, "i8"),
        (25, "i16"),
        (26, "i32"),
        (27, "i64"),
        (28, "f64"),
        (30, "bf16"),
    ];
    let known = NAMES.iter().find(|(own, _)| *own == kind);
    known.map_or_else(|| format!("type {kind}"), |(_, name)| (*name).to_owned())
}

/// A value of the metadata in words.
fn value(source: &mut impl Read, kind: u32, depth: usize) -> io::Result<String> {
    Ok(match kind {
        0 => bytes::<1>(source)?[0].to_string(),
        1 => i8::from_le_bytes(bytes(source)?).to_string(),
        2 => u16::from_le_bytes(bytes(source)?).to_string(),
        3 => i16::from_le_bytes(bytes(source)?).to_string(),
        4 => u32::from_le_bytes(bytes(source)?).to_string(),
        5 => i32::from_le_bytes(bytes(source)?).to_string(),
        6 => f32::from_le_bytes(bytes(source)?).to_string(),
        7 => (bytes::<1>(source)?[0] != 0).to_string(),
        8 => text(source)?,
        9 if depth < 4 => {
            let (own, length) = (u32::from_le_bytes(bytes(source)?), count(source)?);
            let mut shown = Vec::new();
            for at in 0..length {
                let entry = value(source, own, depth + 1)?;
                if at < SHOWN as u64 {
                    shown.push(entry);
                }
            }
            let more = if length > SHOWN as u64 {
                format!(", … {length} in all")
            } else {
                String::new()
            };
            format!("[{}{more}]", shown.join(", "))
        }
        10 => u64::from_le_bytes(bytes(source)?).to_string(),
        11 => i64::from_le_bytes(bytes(source)?).to_string(),
        12 => f64::from_le_bytes(bytes(source)?).to_string(),
        _ => return Err(wrong(format!("its metadata hold a value of the unknown type {kind}"))),
    })
}

fn count(source: &mut impl Read) -> io::Result<u64> {
    match u64::from_le_bytes(bytes(source)?) {
        count if count <= MOST => Ok(count),
        count => Err(wrong(format!("it says that it has {count} entries, which no file has"))),
    }
}

fn text(source: &mut impl Read) -> io::Result<String> {
    let length = u64::from_le_bytes(bytes(source)?);
    if length > LONGEST_TEXT {
        return Err(wrong(format!("it has a text of {length} bytes, which no file has")));
    }
    // What is not there is not allocated.
    let mut text = Vec::new();
    source.take(length).read_to_end(&mut text)?;
    match text.len() as u64 == length {
        true => Ok(String::from_utf8_lossy(&text).into_owned()),
        false => Err(ErrorKind::UnexpectedEof.into()),
    }
}

fn bytes<const N: usize>(source: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    source.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn example() -> Vec<u8> {
        let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
        let mut file = b"GGUF".to_vec();
        file.extend(3u32.to_le_bytes());
        file.extend([1u64, 3].map(u64::to_le_bytes).concat());
        file.extend(
            [text("general.architecture"), 8u32.to_le_bytes().to_vec(), text("some")].concat(),
        );
        file.extend(
            [text("answer"), 4u32.to_le_bytes().to_vec(), 42u32.to_le_bytes().to_vec()].concat(),
        );
        file.extend(
            [text("list"), 9u32.to_le_bytes().to_vec(), 2u32.to_le_bytes().to_vec()].concat(),
        );
        file.extend(10u64.to_le_bytes());
        (0..10u16).for_each(|at| file.extend(at.to_le_bytes()));
        file.extend(text("blocks.0.ffn.weight"));
        file.extend(2u32.to_le_bytes());
        file.extend([64u64, 32].map(u64::to_le_bytes).concat());
        file.extend(12u32.to_le_bytes());
        file.extend(0u64.to_le_bytes());
        file
    }

    #[test]
    fn a_header_is_read_and_a_torn_one_refused() {
        let whole = example();
        let header = parse(&mut &whole[..]).unwrap();
        assert_eq!(header.metadata["general.architecture"], "some");
        assert_eq!(header.metadata["answer"], "42");
        assert!(header.metadata["list"].ends_with("7, … 10 in all]"));
        let tensor = &header.tensors[0];
        assert_eq!((tensor.dtype.as_str(), &tensor.shape[..]), ("q4_k", &[32, 64][..]));
        for length in 0..whole.len() {
            assert!(parse(&mut &whole[..length]).is_err(), "{length} bytes");
        }
        let mut huge = whole.clone();
        huge[8..16].fill(0xff);
        assert!(parse(&mut &huge[..]).is_err());
    }
}
