//! Values of the metadata of a GGUF file.

use std::fmt;

use super::header::Reader;

/// Entries of a list that are kept.
const KEPT: u64 = 8;

/// No list lies within so many others.
const DEEPEST: usize = 4;

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub enum GgufValue {
    /// A whole number.
    Whole(i128),
    /// Another number.
    Real(f64),
    /// Yes or no.
    Flag(bool),
    /// A text.
    Text(String),
    /// The first entries of a list, and how many there are.
    List(Vec<GgufValue>, u64),
}

impl GgufValue {
    /// The text, if it is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            GgufValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The whole numbers of a list that is kept whole.
    pub(super) fn sizes(&self) -> Option<Vec<usize>> {
        let GgufValue::List(entries, length) = self else { return None };
        let size = |entry: &GgufValue| match entry {
            GgufValue::Whole(size) => usize::try_from(*size).ok(),
            _ => None,
        };
        let sizes: Option<Vec<usize>> = entries.iter().map(size).collect();
        sizes.filter(|sizes| sizes.len() as u64 == *length)
    }

    /// A value of a type.
    pub(super) fn read(
        reader: &mut Reader<'_>,
        kind: u32,
        depth: usize,
    ) -> Result<GgufValue, String> {
        Ok(match kind {
            0 => GgufValue::Whole(u8::from_le_bytes(reader.bytes()?).into()),
            1 => GgufValue::Whole(i8::from_le_bytes(reader.bytes()?).into()),
            2 => GgufValue::Whole(u16::from_le_bytes(reader.bytes()?).into()),
            3 => GgufValue::Whole(i16::from_le_bytes(reader.bytes()?).into()),
            4 => GgufValue::Whole(reader.number()?.into()),
            5 => GgufValue::Whole(i32::from_le_bytes(reader.bytes()?).into()),
            6 => GgufValue::Real(f32::from_le_bytes(reader.bytes()?).into()),
            7 => GgufValue::Flag(reader.bytes::<1>()?[0] != 0),
            8 => GgufValue::Text(reader.text()?),
            9 if depth < DEEPEST => {
                let (own, length) = (reader.number()?, reader.count()?);
                let mut kept = Vec::new();
                for at in 0..length {
                    let entry = GgufValue::read(reader, own, depth + 1)?;
                    if at < KEPT {
                        kept.push(entry);
                    }
                }
                GgufValue::List(kept, length)
            }
            10 => GgufValue::Whole(reader.long()?.into()),
            11 => GgufValue::Whole(i64::from_le_bytes(reader.bytes()?).into()),
            12 => GgufValue::Real(f64::from_le_bytes(reader.bytes()?)),
            _ => return Err(format!("its metadata hold a value of the unknown type {kind}")),
        })
    }
}

impl fmt::Display for GgufValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GgufValue::Whole(value) => write!(f, "{value}"),
            GgufValue::Real(value) => write!(f, "{value}"),
            GgufValue::Flag(value) => write!(f, "{value}"),
            GgufValue::Text(value) => f.write_str(value),
            GgufValue::List(entries, length) => {
                let shown: Vec<String> = entries.iter().map(ToString::to_string).collect();
                write!(f, "[{}", shown.join(", "))?;
                match *length > entries.len() as u64 {
                    true => write!(f, ", … {length} in all]"),
                    false => f.write_str("]"),
                }
            }
        }
    }
}
