//! Files that `torch.save` wrote: tensors, numbers, texts, lists and dicts.
//!
//! Such a file is a ZIP archive of a pickle and of the values that it points to. Pickles are programs; of this one
//! nothing is run (`pickle`), and what would have to be is refused by its name. Sizes are bounded before anything is read.

mod pickle;
mod strided;
mod zip;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use burn::tensor::TensorData;

use self::pickle::Node;
use self::zip::Zip;
use crate::error::{Error, Result};

/// No more bytes are read of a file, and no more are made of them: views repeat what they show.
const MOST_BYTES: u64 = 2 << 30;

/// Nothing lies deeper in lists and dicts.
const DEEPEST: usize = 16;

/// No file holds more objects: a list may be named many times and hold others that are.
const MOST_OBJECTS: usize = 1 << 16;

/// What a file holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// Python's `None`.
    None,
    /// True or false.
    Truth(bool),
    /// A whole number.
    Integer(i64),
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
    /// A list or a tuple.
    List(Vec<Object>),
    /// A dict, whose keys are texts.
    Map(BTreeMap<String, Object>),
    /// A tensor.
    Tensor(TensorData),
}

impl Object {
    /// Reads a file.
    ///
    /// # Errors
    /// It is no such file, is damaged, or holds something else; the reason names it.
    pub fn read(path: &Path) -> Result<Object> {
        let file = kernels::open_file(path).map_err(|source| Error::file("read", path, source))?;
        let refused = |reason: String| Error::Torch { path: path.to_owned(), reason };
        let mut archive = Archive::open(file).map_err(refused)?;
        let (nodes, root) = archive.pickle().map_err(refused)?;
        let mut objects =
            Objects { nodes: &nodes, archive: &mut archive, made: 0, left: MOST_BYTES };
        objects.object(root, 0).map_err(refused)
    }

    /// The dict.
    pub fn map(self) -> Option<BTreeMap<String, Object>> {
        match self {
            Object::Map(own) => Some(own),
            _ => None,
        }
    }
}

/// A file of `torch.save`.
struct Archive {
    zip: Zip,
    /// The folder that everything is in.
    folder: String,
}

impl Archive {
    fn open(file: File) -> Result<Archive, String> {
        let zip = Zip::open(file).map_err(|reason| {
            format!(
                "it is no ZIP archive, which torch.save has written since PyTorch 1.6 ({reason})"
            )
        })?;
        let folder = zip.names().find_map(|own| own.strip_suffix("/data.pkl"));
        let folder = folder.filter(|own| !own.contains('/')).map(str::to_owned);
        let folder = folder.ok_or("it holds no data.pkl: torch.save has not written it")?;
        let mut archive = Archive { zip, folder };
        let order = match archive.zip.has(&format!("{}/byteorder", archive.folder)) {
            true => archive.bytes("byteorder", 64)?,
            false => b"little".to_vec(),
        };
        match order.trim_ascii() {
            b"little" => Ok(archive),
            _ => Err("its values are not in the order of bytes that PCs have".to_owned()),
        }
    }

    /// A file of the archive, of at most so many bytes.
    fn bytes(&mut self, name: &str, most: u64) -> Result<Vec<u8>, String> {
        let path = format!("{}/{name}", self.folder);
        let read = self.zip.read(&path, most);
        read.map_err(|reason| format!("its `{}`: {reason}", short(name)))
    }

    fn pickle(&mut self) -> Result<(Vec<Node>, usize), String> {
        pickle::run(&self.bytes("data.pkl", pickle::LONGEST)?)
    }
}

/// A name of a file as it can be told.
fn short(name: &str) -> String {
    name.chars().filter(|own| !own.is_control()).take(60).collect()
}

/// Makes objects of nodes.
struct Objects<'a> {
    nodes: &'a [Node],
    archive: &'a mut Archive,
    made: usize,
    /// Bytes that may still be read or made.
    left: u64,
}

impl Objects<'_> {
    fn object(&mut self, node: usize, depth: usize) -> Result<Object, String> {
        self.made += 1;
        if depth > DEEPEST || self.made > MOST_OBJECTS {
            return Err(format!(
                "it holds more than {MOST_OBJECTS} objects, or some within themselves"
            ));
        }
        let nodes = self.nodes;
        Ok(match &nodes[node] {
            Node::None => Object::None,
            Node::Truth(own) => Object::Truth(*own),
            Node::Integer(own) => Object::Integer(*own),
            Node::Number(own) => Object::Number(*own),
            Node::Text(own) => Object::Text(own.clone()),
            Node::List(items) => {
                let each = items.iter().map(|own| self.object(*own, depth + 1));
                Object::List(each.collect::<Result<_, _>>()?)
            }
            Node::Map(pairs) => {
                let mut map = BTreeMap::new();
                for (key, value) in pairs {
                    let Node::Text(key) = &nodes[*key] else {
                        return Err("a key of a dict in it is no text".to_owned());
                    };
                    map.insert(key.clone(), self.object(*value, depth + 1)?);
                }
                Object::Map(map)
            }
            Node::Tensor(own) => {
                let key = &own.storage.key;
                let bytes = self.archive.bytes(&format!("data/{key}"), self.left)?;
                self.left -= bytes.len() as u64;
                own.check(bytes.len(), self.left)?;
                let tensor = own.gather(&bytes);
                self.left -= tensor.bytes().len() as u64;
                Object::Tensor(tensor)
            }
            Node::Callable(_) | Node::Storage(_) => {
                return Err("it holds a type or a storage, which is no value".to_owned());
            }
        })
    }
}
