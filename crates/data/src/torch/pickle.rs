//! The machine that a pickle is a program for, without what would run anything.
//!
//! Python's own machine looks up any function by its name and calls it. This one knows three names, which make
//! tensors and empty dicts, and refuses every other. Whatever a pickle says, it makes at most so many
//! nodes as it has instructions, and nothing is read that it points to before the whole of it is checked.

use std::collections::BTreeMap;

use burn::tensor::DType;

/// No pickle has more bytes: values of tensors stand outside.
pub(super) const LONGEST: u64 = 1 << 20;

/// No tensor has more axes.
const MOST_AXES: usize = 16;

/// What a pickle makes. Others are named by their place among all.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    None,
    Truth(bool),
    Integer(i64),
    Number(f64),
    Text(String),
    List(Vec<usize>),
    Map(Vec<(usize, usize)>),
    Tensor(Strided),
    /// What only serves to make a tensor.
    Callable(Callable),
    Storage(Storage),
}

/// What may be called, or named to be called.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Callable {
    /// Makes a tensor of a storage.
    Tensor,
    /// Makes an empty dict.
    Map,
    /// Names the type of a storage.
    Values(Stored),
}

/// A type of values in a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stored {
    /// As a tensor has them; truths are bytes.
    pub(super) dtype: DType,
    /// Bytes of a value.
    pub(super) bytes: usize,
}

/// Values that stand in a file of their own.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Storage {
    /// Their type.
    pub(super) stored: Stored,
    /// The file's name.
    pub(super) key: String,
    /// How many.
    pub(super) count: usize,
}

/// A view of a storage.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Strided {
    pub(super) storage: Storage,
    /// The place of the first value.
    pub(super) offset: usize,
    pub(super) shape: Vec<usize>,
    /// How far the next value of each axis is.
    pub(super) strides: Vec<usize>,
}

/// Runs a pickle. Returns all nodes, and which of them is the whole.
///
/// # Errors
/// It is damaged, or asks for something that is not done.
pub(super) fn run(bytes: &[u8]) -> Result<(Vec<Node>, usize), String> {
    let mut machine = Machine { bytes, ..Machine::default() };
    loop {
        match machine.byte()? {
            b'.' => break,
            code => machine.step(code)?,
        }
    }
    let root = machine.pop()?;
    Ok((machine.nodes, root))
}

#[derive(Default)]
struct Machine<'a> {
    bytes: &'a [u8],
    nodes: Vec<Node>,
    stack: Vec<usize>,
    /// How high the stack was at each mark.
    marks: Vec<usize>,
    memo: BTreeMap<usize, usize>,
}

/// Instructions that make an object of any class, with the names that Python has for them.
const OBJECTS: [(u8, &str); 9] = [
    (b'b', "BUILD"),
    (b'i', "INST"),
    (b'o', "OBJ"),
    (0x81, "NEWOBJ"),
    (0x92, "NEWOBJ_EX"),
    (0x82, "EXT1"),
    (0x83, "EXT2"),
    (0x84, "EXT4"),
    (b'P', "PERSID"),
];

impl<'a> Machine<'a> {
    fn step(&mut self, code: u8) -> Result<(), String> {
        if let Some(node) = self.literal(code)? {
            return self.push(node);
        }
        match code {
            0x80 => match self.byte()? {
                2..=5 => Ok(()),
                version => Err(format!("it is a pickle of protocol {version}; 2 to 5 are read")),
            },
            0x95 => self.take(8).map(drop),
            b'(' => {
                self.marks.push(self.stack.len());
                Ok(())
            }
            b'0' => self.pop().map(drop),
            b't' | b'l' => {
                let items = self.above_mark()?;
                self.push(Node::List(items))
            }
            0x85..=0x87 => {
                let mut items = Vec::new();
                for _ in 0..code - 0x84 {
                    items.insert(0, self.pop()?);
                }
                self.push(Node::List(items))
            }
            b'd' => {
                let pairs = pairs(self.above_mark()?)?;
                self.push(Node::Map(pairs))
            }
            b'a' => {
                let item = self.pop()?;
                self.extend(vec![item])
            }
            b'e' => {
                let items = self.above_mark()?;
                self.extend(items)
            }
            b's' => {
                let value = self.pop()?;
                let key = self.pop()?;
                self.insert(vec![(key, value)])
            }
            b'u' => {
                let pairs = pairs(self.above_mark()?)?;
                self.insert(pairs)
            }
            b'q' | b'r' | 0x94 | b'h' | b'j' => self.remember(code),
            b'c' | 0x93 => self.name(code),
            b'Q' => self.storage(),
            b'R' => self.call(),
            _ => Err(match OBJECTS.iter().find(|(own, _)| *own == code) {
                Some((_, name)) => format!(
                    "its instruction {name} would make an object by running code, which is never done"
                ),
                None => format!("its instruction {code:#04x} is not one that torch.save writes"),
            }),
        }
    }

    /// What stands in the pickle itself.
    fn literal(&mut self, code: u8) -> Result<Option<Node>, String> {
        Ok(Some(match code {
            b'N' => Node::None,
            0x88 => Node::Truth(true),
            0x89 => Node::Truth(false),
            b'K' => Node::Integer(i64::from(self.byte()?)),
            b'M' => Node::Integer(i64::from(u16::from_le_bytes(self.array()?))),
            b'J' => Node::Integer(i64::from(i32::from_le_bytes(self.array()?))),
            0x8a => Node::Integer(self.long()?),
            b'G' => Node::Number(f64::from_be_bytes(self.array()?)),
            b'X' => {
                let length = u32::from_le_bytes(self.array()?) as usize;
                Node::Text(self.text(length)?)
            }
            0x8c => {
                let length = usize::from(self.byte()?);
                Node::Text(self.text(length)?)
            }
            b']' | b')' => Node::List(Vec::new()),
            b'}' => Node::Map(Vec::new()),
            _ => return Ok(None),
        }))
    }

    /// Keeps what is on top of the stack under a number, or fetches what was kept.
    fn remember(&mut self, code: u8) -> Result<(), String> {
        let place = match code {
            b'q' | b'h' => usize::from(self.byte()?),
            0x94 => self.memo.len(),
            _ => u32::from_le_bytes(self.array()?) as usize,
        };
        match code {
            b'h' | b'j' => {
                let missing = || "it fetches what it has not kept".to_owned();
                let node = *self.memo.get(&place).ok_or_else(missing)?;
                self.stack.push(node);
            }
            _ => {
                let top = self.top()?;
                self.memo.insert(place, top);
            }
        }
        Ok(())
    }

    /// A name of Python's, which is one of those that are known or an error.
    fn name(&mut self, code: u8) -> Result<(), String> {
        let (module, name) = match code {
            b'c' => (self.line()?, self.line()?),
            _ => {
                let (name, module) = (self.pop()?, self.pop()?);
                match (&self.nodes[module], &self.nodes[name]) {
                    (Node::Text(module), Node::Text(name)) => (module.clone(), name.clone()),
                    _ => return Err("a name in it is no text".to_owned()),
                }
            }
        };
        let callable = callable(&module, &name).ok_or_else(|| {
            let name: String = format!("{module}.{name}").chars().take(100).collect();
            format!(
                "it would run Python's `{name}`, and nothing of a file is run; save plain tensors, numbers, texts, \
                 lists and dicts"
            )
        })?;
        self.push(Node::Callable(callable))
    }

    /// What torch keeps outside of the pickle: ("storage", type, file, device, count).
    fn storage(&mut self) -> Result<(), String> {
        let top = self.pop()?;
        let parts = self.items(top)?;
        let nodes: Vec<&Node> = parts.iter().map(|own| &self.nodes[*own]).collect();
        let storage = match nodes[..] {
            [
                Node::Text(kind),
                Node::Callable(Callable::Values(stored)),
                Node::Text(key),
                Node::Text(_),
                Node::Integer(count),
            ] if kind == "storage" => {
                let count = usize::try_from(*count).map_err(|_| "a storage has no length")?;
                Storage { stored: *stored, key: key.clone(), count }
            }
            _ => return Err("it points to something that is no storage of values".to_owned()),
        };
        self.push(Node::Storage(storage))
    }

    /// Calls what is known: with what, is on top.
    fn call(&mut self) -> Result<(), String> {
        let (arguments, callable) = (self.pop()?, self.pop()?);
        let arguments = self.items(arguments)?.to_vec();
        let made = match self.nodes[callable] {
            Node::Callable(Callable::Map) if arguments.is_empty() => Node::Map(Vec::new()),
            Node::Callable(Callable::Tensor) => Node::Tensor(self.strided(&arguments)?),
            _ => return Err("it calls something that is no tensor and no dict".to_owned()),
        };
        self.push(made)
    }

    /// (storage, offset, shape, strides, …): whether it had a gradient does not matter here.
    fn strided(&self, arguments: &[usize]) -> Result<Strided, String> {
        let wrong = || "a tensor in it is not made as torch makes one".to_owned();
        let [storage, offset, shape, strides, ..] = *arguments else { return Err(wrong()) };
        let (Node::Storage(storage), Node::Integer(offset)) =
            (&self.nodes[storage], &self.nodes[offset])
        else {
            return Err(wrong());
        };
        let numbers = |node: usize| -> Result<Vec<usize>, String> {
            let number = |own: &usize| match self.nodes[*own] {
                Node::Integer(value) => usize::try_from(value).map_err(|_| wrong()),
                _ => Err(wrong()),
            };
            self.items(node)?.iter().map(number).collect()
        };
        let (shape, strides) = (numbers(shape)?, numbers(strides)?);
        if shape.len() != strides.len() || shape.len() > MOST_AXES {
            return Err(wrong());
        }
        let offset = usize::try_from(*offset).map_err(|_| wrong())?;
        Ok(Strided { storage: storage.clone(), offset, shape, strides })
    }

    fn items(&self, node: usize) -> Result<&[usize], String> {
        match &self.nodes[node] {
            Node::List(items) => Ok(items),
            _ => Err("something in it is no tuple".to_owned()),
        }
    }

    fn extend(&mut self, items: Vec<usize>) -> Result<(), String> {
        let top = self.top()?;
        match &mut self.nodes[top] {
            Node::List(own) => own.extend(items),
            _ => return Err("it appends to something that is no list".to_owned()),
        }
        Ok(())
    }

    fn insert(&mut self, pairs: Vec<(usize, usize)>) -> Result<(), String> {
        let top = self.top()?;
        match &mut self.nodes[top] {
            Node::Map(own) => own.extend(pairs),
            _ => return Err("it sets a key of something that is no dict".to_owned()),
        }
        Ok(())
    }

    fn push(&mut self, node: Node) -> Result<(), String> {
        self.stack.push(self.nodes.len());
        self.nodes.push(node);
        Ok(())
    }

    fn top(&self) -> Result<usize, String> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let top = self.stack.last().filter(|_| self.stack.len() > floor);
        top.copied().ok_or_else(|| "it takes what it has not made".to_owned())
    }

    fn pop(&mut self) -> Result<usize, String> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn above_mark(&mut self) -> Result<Vec<usize>, String> {
        let mark = self.marks.pop().ok_or("it ends what it has not begun")?;
        Ok(self.stack.split_off(mark))
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or("its pickle is cut off")?;
        self.bytes = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, String> {
        Ok(self.take(1)?[0])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| "its pickle is cut off".to_owned())
    }

    fn text(&mut self, length: usize) -> Result<String, String> {
        let text = std::str::from_utf8(self.take(length)?);
        text.map(str::to_owned).map_err(|_| "a text in it is no UTF-8".to_owned())
    }

    fn line(&mut self) -> Result<String, String> {
        let length = self.bytes.iter().position(|own| *own == b'\n');
        let line = self.text(length.ok_or("its pickle is cut off")?)?;
        self.take(1)?;
        Ok(line)
    }

    /// A whole number of some bytes, the last of which has the sign.
    fn long(&mut self) -> Result<i64, String> {
        let length = usize::from(self.byte()?);
        let taken = self.take(length)?;
        if length > 8 {
            return Err(format!("a number in it has {length} bytes; 8 are read"));
        }
        let sign = if taken.last().is_some_and(|last| *last >= 0x80) { 0xff } else { 0 };
        let mut bytes = [sign; 8];
        bytes[..length].copy_from_slice(taken);
        Ok(i64::from_le_bytes(bytes))
    }
}

fn pairs(items: Vec<usize>) -> Result<Vec<(usize, usize)>, String> {
    match items.len().is_multiple_of(2) {
        true => Ok(items.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()),
        false => Err("a key in it has no value".to_owned()),
    }
}

/// All that may be named.
fn callable(module: &str, name: &str) -> Option<Callable> {
    let stored = |dtype, bytes| Some(Callable::Values(Stored { dtype, bytes }));
    match (module, name) {
        ("torch._utils", "_rebuild_tensor_v2") => Some(Callable::Tensor),
        ("collections", "OrderedDict") => Some(Callable::Map),
        ("torch", "DoubleStorage") => stored(DType::F64, 8),
        ("torch", "FloatStorage") => stored(DType::F32, 4),
        ("torch", "HalfStorage") => stored(DType::F16, 2),
        ("torch", "BFloat16Storage") => stored(DType::BF16, 2),
        ("torch", "LongStorage") => stored(DType::I64, 8),
        ("torch", "IntStorage") => stored(DType::I32, 4),
        ("torch", "ShortStorage") => stored(DType::I16, 2),
        ("torch", "CharStorage") => stored(DType::I8, 1),
        ("torch", "ByteStorage" | "BoolStorage") => stored(DType::U8, 1),
        _ => None,
    }
}
