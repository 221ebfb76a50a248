//! GGUF files as they are written: version 3, values at multiples of 32 bytes.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::header::{ALIGNMENT, SHAPE};
use super::{GgufTensor, GgufType, GgufValue, MAGIC};

/// ggml knows no more dims.
const DIMS: usize = 4;

impl GgufTensor {
    /// A tensor that is to be written, with its shape from the outermost dim on.
    pub fn new(name: impl Into<String>, kind: GgufType, shape: Vec<usize>) -> GgufTensor {
        GgufTensor { name: name.into(), kind, shape, offset: 0 }
    }

    /// Its shape in four dims at most.
    fn merged(&self) -> Vec<usize> {
        let split = self.shape.len().saturating_sub(DIMS);
        let (leading, rest) = self.shape.split_at(if split > 0 { split + 1 } else { 0 });
        match leading.is_empty() {
            true => rest.to_vec(),
            false => {
                std::iter::once(leading.iter().product()).chain(rest.iter().copied()).collect()
            }
        }
    }
}

impl GgufType {
    /// Its number in a file.
    fn number(self) -> u32 {
        let name = self.name();
        let known = super::TYPES.iter().find(|(_, own)| *own == name);
        match (self, known) {
            (GgufType::Other(number), _) => number,
            (_, Some((number, _))) => *number,
            (_, None) => unreachable!("what is read is in the table"),
        }
    }
}

/// A file in the making: the header is written at once, then the values of every tensor in its order.
pub struct GgufWriter<W> {
    to: W,
    /// Bytes of each tensor that is still to come, the next one last.
    missing: Vec<usize>,
}

impl<W: Write> GgufWriter<W> {
    /// Writes the header of a file of such tensors. Those of more than four dims have their leading ones made one, and
    /// the metadata say what they were.
    ///
    /// # Errors
    /// It cannot be written, or a tensor's rows are no whole blocks.
    pub fn begin(
        mut to: W,
        mut metadata: BTreeMap<String, GgufValue>,
        tensors: &[GgufTensor],
    ) -> io::Result<GgufWriter<W>> {
        for own in tensors.iter().filter(|own| own.shape.len() > DIMS) {
            let sizes = own.shape.iter().map(|size| GgufValue::Whole(*size as i128)).collect();
            let count = own.shape.len() as u64;
            metadata.insert(format!("{SHAPE}{}", own.name), GgufValue::List(sizes, count));
        }
        let mut header = MAGIC.to_vec();
        header.extend(3_u32.to_le_bytes());
        header.extend((tensors.len() as u64).to_le_bytes());
        header.extend((metadata.len() as u64).to_le_bytes());
        for (key, value) in &metadata {
            put_text(&mut header, key);
            put_value(&mut header, value)?;
        }
        let (mut offset, mut missing) = (0_usize, Vec::new());
        for own in tensors {
            let bytes =
                own.bytes().map_err(|reason| io::Error::new(io::ErrorKind::InvalidData, reason))?;
            let shape = own.merged();
            put_text(&mut header, &own.name);
            header.extend((shape.len() as u32).to_le_bytes());
            shape.iter().rev().for_each(|size| header.extend((*size as u64).to_le_bytes()));
            header.extend(own.kind.number().to_le_bytes());
            header.extend((offset as u64).to_le_bytes());
            offset += bytes.next_multiple_of(ALIGNMENT);
            missing.push(bytes);
        }
        missing.reverse();
        header.resize(header.len().next_multiple_of(ALIGNMENT), 0);
        to.write_all(&header)?;
        Ok(GgufWriter { to, missing })
    }

    /// Writes the values of the next tensor.
    ///
    /// # Errors
    /// They cannot be written.
    ///
    /// # Panics
    /// Panics if they are not as many bytes as the header says.
    pub fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        assert_eq!(self.missing.pop(), Some(bytes.len()), "the header says how many bytes come");
        self.to.write_all(bytes)?;
        let padding = bytes.len().next_multiple_of(ALIGNMENT) - bytes.len();
        self.to.write_all(&[0; ALIGNMENT][..padding])
    }
}

fn put_text(to: &mut Vec<u8>, text: &str) {
    to.extend((text.len() as u64).to_le_bytes());
    to.extend(text.as_bytes());
}

/// A value with its type before it.
fn put_value(to: &mut Vec<u8>, value: &GgufValue) -> io::Result<()> {
    let too_large = |_| io::Error::new(io::ErrorKind::InvalidData, format!("{value} is too large"));
    match value {
        GgufValue::Whole(own) => {
            to.extend(4_u32.to_le_bytes());
            to.extend(u32::try_from(*own).map_err(too_large)?.to_le_bytes());
        }
        GgufValue::Real(own) => {
            to.extend(12_u32.to_le_bytes());
            to.extend(own.to_le_bytes());
        }
        GgufValue::Flag(own) => {
            to.extend(7_u32.to_le_bytes());
            to.push(u8::from(*own));
        }
        GgufValue::Text(own) => {
            to.extend(8_u32.to_le_bytes());
            put_text(to, own);
        }
        GgufValue::List(entries, _) => {
            // Of 32-bit numbers with a sign, as ComfyUI wants shapes.
            to.extend(9_u32.to_le_bytes());
            to.extend(5_u32.to_le_bytes());
            to.extend((entries.len() as u64).to_le_bytes());
            for entry in entries {
                let GgufValue::Whole(own) = entry else {
                    let reason = "only lists of whole numbers are written";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
                };
                to.extend(i32::try_from(*own).map_err(too_large)?.to_le_bytes());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::GgufHeader;
    use kernels::BlockType;

    #[test]
    fn what_is_written_is_read() {
        let tensors = [
            GgufTensor::new("a.weight", GgufType::Blocks(BlockType::Q8_0), vec![3, 64]),
            GgufTensor::new("b", GgufType::F32, vec![5]),
            GgufTensor::new("c.weight", GgufType::F16, vec![6, 4, 1, 2, 2]),
        ];
        let metadata: BTreeMap<String, GgufValue> = [
            ("general.architecture".to_owned(), GgufValue::Text("some".to_owned())),
            ("general.file_type".to_owned(), GgufValue::Whole(7)),
            ("yes".to_owned(), GgufValue::Flag(true)),
        ]
        .into();
        let mut file = Vec::new();
        let mut writer = GgufWriter::begin(&mut file, metadata.clone(), &tensors).unwrap();
        for (bytes, value) in [(3 * 2 * 34, 1), (20, 2), (192, 3)] {
            writer.put(&vec![value; bytes]).unwrap();
        }
        let header = GgufHeader::parse(&file).unwrap();
        assert!(metadata.iter().all(|(key, value)| header.metadata.get(key) == Some(value)));
        let places = header.places(file.len()).unwrap();
        for ((own, place), (expected, value)) in places.into_iter().zip(tensors.iter().zip(1_u8..))
        {
            assert_eq!(
                (&own.name, own.kind, &own.shape),
                (&expected.name, expected.kind, &expected.shape)
            );
            assert!(file[place].iter().all(|byte| *byte == value), "{}", own.name);
        }
        let half = GgufTensor::new("a.weight", GgufType::Blocks(BlockType::Q4K), vec![2, 128]);
        assert!(GgufWriter::begin(Vec::new(), BTreeMap::new(), &[half]).is_err());
    }
}
