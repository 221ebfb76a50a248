//! GGUF files, in which ggml's programs (stable-diffusion.cpp, ComfyUI-GGUF) keep quantized models: what one says of
//! itself, which tensors it holds, and where.

mod header;
mod load;
mod value;
mod write;

use std::ops::Range;

pub use self::header::GgufHeader;
pub(crate) use self::load::merges;
pub use self::value::GgufValue;
pub use self::write::GgufWriter;

use kernels::BlockType;

/// What a GGUF file begins with.
const MAGIC: &[u8; 4] = b"GGUF";

/// How the values of a tensor are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GgufType {
    /// f32.
    F32,
    /// f16.
    F16,
    /// bf16.
    Bf16,
    /// Blocks.
    Blocks(BlockType),
    /// What is not computed with here, by its number.
    Other(u32),
}

/// Numbers and names of the types that are known; blocks are found by their names.
const TYPES: [(u32, &str); 31] = [
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
    (16, "iq2_xxs"),
    (17, "iq2_xs"),
    (18, "iq3_xxs"),
    (19, "iq1_s"),
    (20, "iq4_nl"),
    (21, "iq3_s"),
    (22, "iq2_s"),
    (23, "iq4_xs"),
    (24, "i8"),
    (25, "i16"),
    (26, "i32"),
    (27, "i64"),
    (28, "f64"),
    (29, "iq1_m"),
    (30, "bf16"),
    (34, "tq1_0"),
    (35, "tq2_0"),
];

impl GgufType {
    /// By its number in a file.
    pub fn of(number: u32) -> GgufType {
        let name = TYPES.iter().find(|(own, _)| *own == number).map(|(_, name)| *name);
        match name {
            Some("f32") => GgufType::F32,
            Some("f16") => GgufType::F16,
            Some("bf16") => GgufType::Bf16,
            _ => {
                let found = BlockType::ALL.into_iter().find(|kind| Some(kind.name()) == name);
                found.map_or(GgufType::Other(number), GgufType::Blocks)
            }
        }
    }

    /// What it is called.
    pub fn name(self) -> String {
        match self {
            GgufType::F32 => "f32".to_owned(),
            GgufType::F16 => "f16".to_owned(),
            GgufType::Bf16 => "bf16".to_owned(),
            GgufType::Blocks(kind) => kind.name().to_owned(),
            GgufType::Other(number) => {
                let known = TYPES.iter().find(|(own, _)| *own == number);
                known.map_or_else(|| format!("type {number}"), |(_, name)| (*name).to_owned())
            }
        }
    }

    /// Values of one piece of it, and the bytes of that; none of a type that is not read.
    fn piece(self) -> Option<(usize, usize)> {
        match self {
            GgufType::F32 => Some((1, 4)),
            GgufType::F16 | GgufType::Bf16 => Some((1, 2)),
            GgufType::Blocks(kind) => Some((kind.length(), kind.bytes())),
            GgufType::Other(_) => None,
        }
    }
}

/// One tensor as the header of a file has it.
#[derive(Clone, Debug, PartialEq)]
pub struct GgufTensor {
    /// Its name.
    pub name: String,
    /// How its values are written.
    pub kind: GgufType,
    /// Its shape, the outermost dim first; a file counts from the innermost.
    pub shape: Vec<usize>,
    /// Where its values begin, from the end of the header on.
    offset: u64,
}

/// A tensor and where its bytes lie in the file.
pub(crate) type Place<'a> = (&'a GgufTensor, Range<usize>);

impl GgufHeader {
    /// Whether all of it can be loaded from a file of so many bytes.
    ///
    /// # Errors
    /// It cannot; in words.
    pub fn check(&self, length: usize) -> Result<(), String> {
        self.places(length).map(drop)
    }

    /// Where the values of every tensor lie in a file of so many bytes, in the order of the header.
    ///
    /// # Errors
    /// A tensor is of a type that is not read, has rows that are no whole number of blocks, is misaligned, does not fit
    /// the file or lies where another does; in words.
    pub(crate) fn places(&self, length: usize) -> Result<Vec<Place<'_>>, String> {
        let alignment = self.alignment()?;
        let begin = self.end.checked_next_multiple_of(alignment);
        let begin = begin.ok_or("its header is too long")?;
        let place = |own: &'_ GgufTensor| -> Result<Range<usize>, String> {
            let name = &own.name;
            let bytes = own.bytes()?;
            if !own.offset.is_multiple_of(alignment as u64) {
                let offset = own.offset;
                return Err(format!(
                    "tensor `{name}` begins at {offset}, which is no multiple of {alignment}"
                ));
            }
            let start = usize::try_from(own.offset).ok().and_then(|own| begin.checked_add(own));
            let end = start.and_then(|start| start.checked_add(bytes));
            match start.zip(end).filter(|(_, end)| *end <= length) {
                Some((start, end)) => Ok(start..end),
                None => Err(format!(
                    "tensor `{name}` of {bytes} bytes does not fit the {length} bytes of the file; it was cut off"
                )),
            }
        };
        let places = self.tensors.iter().map(|own| Ok((own, place(own)?)));
        let places = places.collect::<Result<Vec<Place<'_>>, String>>()?;
        let mut sorted: Vec<&Place<'_>> =
            places.iter().filter(|(_, own)| !own.is_empty()).collect();
        sorted.sort_by_key(|(_, own)| own.start);
        let over = sorted.windows(2).find(|pair| pair[1].1.start < pair[0].1.end);
        match over {
            None => Ok(places),
            Some(pair) => {
                let [first, second] = [pair[0], pair[1]].map(|(own, _)| &own.name);
                Err(format!("tensors `{first}` and `{second}` lie in the same place"))
            }
        }
    }
}

impl GgufTensor {
    /// The bytes of its values.
    fn bytes(&self) -> Result<usize, String> {
        let GgufTensor { name, kind, shape, .. } = self;
        let Some((values, bytes)) = kind.piece() else {
            let known = BlockType::ALL.map(BlockType::name).join(", ");
            return Err(format!(
                "tensor `{name}` is written as {}; f32, f16, bf16, {known} are read",
                kind.name()
            ));
        };
        let width = shape.last().copied().unwrap_or(1);
        if !width.is_multiple_of(values) {
            return Err(format!(
                "tensor `{name}` has rows of {width} values, which are no whole blocks of {values} of {}",
                kind.name()
            ));
        }
        let all = shape.iter().try_fold(1_usize, |product, dim| product.checked_mul(*dim));
        let all = all.and_then(|all| (all / values).checked_mul(bytes));
        all.ok_or_else(|| {
            format!("tensor `{name}` of shape {shape:?} has more bytes than can be counted")
        })
    }
}
