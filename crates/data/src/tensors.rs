//! Writing safetensors as a stream: to a file that is made aside, never as a whole in memory.
//!
//! The crate `safetensors` writes to a path only, through a file of its own that belongs to its owner
//! alone. The bytes here are those that it writes.

use std::collections::BTreeMap;
use std::io::{Error, Result, Write};

use safetensors::{Dtype, View};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// One tensor, in the order of the format's keys.
#[derive(Serialize)]
struct Entry {
    dtype: Dtype,
    shape: Vec<usize>,
    data_offsets: (usize, usize),
}

/// What stands before the values.
struct Header<'a> {
    facts: Option<&'a BTreeMap<String, String>>,
    tensors: Vec<(&'a str, Entry)>,
}

impl Serialize for Header<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(facts) = self.facts {
            map.serialize_entry("__metadata__", facts)?;
        }
        for (name, entry) in &self.tensors {
            map.serialize_entry(name, entry)?;
        }
        map.end()
    }
}

/// Writes tensors and what is to be known about them. The widest types come first, so that all values
/// are aligned, and names in their order.
///
/// # Errors
/// The system's.
pub fn write_tensors<V: View>(
    out: &mut impl Write,
    tensors: Vec<(&str, V)>,
    facts: Option<&BTreeMap<String, String>>,
) -> Result<()> {
    let mut tensors = tensors;
    tensors.sort_by(|(name, left), (other, right)| {
        right.dtype().cmp(&left.dtype()).then(name.cmp(other))
    });
    let mut offset = 0;
    let entries = tensors.iter().map(|(name, tensor)| {
        let start = offset;
        offset += tensor.data_len();
        let data_offsets = (start, offset);
        (*name, Entry { dtype: tensor.dtype(), shape: tensor.shape().to_vec(), data_offsets })
    });
    let header = Header { facts, tensors: entries.collect() };
    let mut header = serde_json::to_vec(&header).map_err(Error::other)?;
    header.resize(header.len().next_multiple_of(8), b' ');
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(&header)?;
    for (_, tensor) in &tensors {
        out.write_all(&tensor.data())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use safetensors::Dtype;
    use safetensors::tensor::TensorView;

    use super::write_tensors;

    /// A file of ours is, to the byte, the file that the crate would have written.
    #[test]
    fn the_bytes_are_those_of_the_crate() {
        let bytes: Vec<u8> = (0..64).collect();
        let views = || {
            let view = |dtype, shape: &[usize], length| {
                TensorView::new(dtype, shape.to_vec(), &bytes[..length]).expect("a view")
            };
            vec![
                ("b.weight", view(Dtype::F32, &[2, 3], 24)),
                ("a \"quoted\"", view(Dtype::BF16, &[4], 8)),
                ("step", view(Dtype::U64, &[1], 8)),
                ("a.scalar", view(Dtype::F32, &[], 4)),
                ("none", view(Dtype::F32, &[0, 2], 0)),
            ]
        };
        let facts = BTreeMap::from([("one".to_owned(), "\u{e9} \"x\"".to_owned())]);
        for facts in [None, Some(&facts)] {
            let mut own = Vec::new();
            write_tensors(&mut own, views(), facts).expect("a vector takes all");
            let map = facts.map(|facts| facts.clone().into_iter().collect());
            assert_eq!(own, safetensors::serialize(views(), map).expect("tensors"));
        }
    }
}
