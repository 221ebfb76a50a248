//! What processes send each other, as bytes: posts, and what threads of one process read off each other.

use std::sync::Arc;
use std::time::Duration;

use burn::tensor::{Bytes, DType, Device, Int, Tensor, TensorData};

use crate::call::{Call, Extent, Operation};
use crate::link::{Channel, Post, Slot};
use crate::parcel::{Parcel, Values};

/// One thing that a rank tells another.
pub(super) enum Message {
    /// A post, on its way.
    Post(Slot, Post),
    /// The sender enters long work.
    StartWork(Arc<str>, Duration),
    /// The sender leaves the work it announced last.
    FinishWork,
    /// The sender broke the world, and why.
    Failed(String),
    /// The sender makes no further calls.
    Ended,
    /// How far the sender is.
    Done(f64),
    /// What is done is not wanted any more.
    CalledOff,
    /// The sender's process runs.
    Alive,
    /// The sender knows that all have ended; nothing comes from it any more.
    Left,
}

/// Types that travel; their place is their code.
const TYPES: [DType; 8] = [
    DType::F32,
    DType::BF16,
    DType::F16,
    DType::F64,
    DType::I64,
    DType::I32,
    DType::U8,
    DType::Flex32,
];

/// Any size of a dim.
const ANY: u64 = u64::MAX;

impl Message {
    /// The bytes of a message about a world, by its number.
    pub(super) fn encode(self, world: u64) -> Vec<u8> {
        let mut out = Writer::default();
        out.number(world);
        match self {
            Message::Post(slot, post) => {
                out.number(0);
                out.slot(&slot);
                out.post(post);
            }
            Message::StartWork(what, limit) => {
                out.number(1);
                out.text(&what);
                out.number(limit.as_millis() as u64);
            }
            Message::FinishWork => out.number(2),
            Message::Failed(reason) => {
                out.number(3);
                out.text(&reason);
            }
            Message::Ended => out.number(4),
            Message::Done(done) => {
                out.number(5);
                out.number(done.to_bits());
            }
            Message::CalledOff => out.number(6),
            Message::Alive => out.number(7),
            Message::Left => out.number(8),
        }
        out.0
    }

    /// What was encoded, and the number of its world; none if these are other bytes.
    pub(super) fn decode(bytes: &[u8]) -> Option<(u64, Message)> {
        let mut reader = Reader(bytes);
        let world = reader.number()?;
        let message = match reader.number()? {
            0 => {
                let slot = reader.slot()?;
                Message::Post(slot, reader.post()?)
            }
            1 => Message::StartWork(reader.text()?, Duration::from_millis(reader.number()?)),
            2 => Message::FinishWork,
            3 => Message::Failed(reader.text()?.to_string()),
            4 => Message::Ended,
            5 => Message::Done(f64::from_bits(reader.number()?)),
            6 => Message::CalledOff,
            7 => Message::Alive,
            8 => Message::Left,
            _ => return None,
        };
        reader.0.is_empty().then_some((world, message))
    }
}

#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn slot(&mut self, slot: &Slot) {
        self.text(&slot.group);
        self.number(slot.channel as u64);
        self.number(slot.from as u64);
        self.number(slot.to as u64);
    }

    fn post(&mut self, Post { call, parcels }: Post) {
        self.call(&call);
        self.number(parcels.len() as u64);
        for Parcel { name, shape, values } in parcels {
            self.text(&name);
            self.number(shape.len() as u64);
            shape.iter().for_each(|size| self.number(*size as u64));
            let (kind, data) = match values {
                Values::Nothing => (0, None),
                Values::Floats(values) => (1, Some(values.into_data())),
                Values::Integers(values) => (2, Some(values.into_data())),
                Values::Bytes(bytes) => {
                    self.number(3);
                    self.bytes(&bytes);
                    continue;
                }
            };
            self.number(kind);
            if let Some(data) = data {
                self.number(code(data.dtype()));
                self.bytes(data.as_bytes());
            }
        }
    }

    fn call(&mut self, call: &Call) {
        let (operation, more) = match call.operation {
            Operation::AllToAll => (0, [0; 2]),
            Operation::AllGather => (1, [0; 2]),
            Operation::AllReduce => (2, [0; 2]),
            Operation::ReduceScatter => (3, [0; 2]),
            Operation::Broadcast { root } => (4, [root, 0]),
            Operation::Barrier => (5, [0; 2]),
            Operation::Message { from, to } => (6, [from, to]),
        };
        self.number(operation);
        more.iter().for_each(|number| self.number(*number as u64));
        self.number(call.sequence);
        self.text(&call.group);
        self.number(u64::from(call.label.is_some()));
        self.text(call.label.as_deref().unwrap_or_default());
        self.number(call.dtype.map_or(ANY, code));
        self.number(call.shape.len() as u64);
        for extent in &call.shape {
            self.number(match extent {
                Extent::Of(size) => *size as u64,
                Extent::Any => ANY,
            });
        }
    }
}

/// The code of a type.
fn code(dtype: DType) -> u64 {
    let place = TYPES.iter().position(|known| *known == dtype);
    place.unwrap_or_else(|| unreachable!("no parcel is made of {dtype:?}")) as u64
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn size(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.size()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn text(&mut self) -> Option<Arc<str>> {
        std::str::from_utf8(self.bytes()?).ok().map(Arc::from)
    }

    fn slot(&mut self) -> Option<Slot> {
        let group = self.text()?;
        let channel = match self.number()? {
            0 => Channel::Collectives,
            1 => Channel::Messages,
            _ => return None,
        };
        Some(Slot { group, channel, from: self.size()?, to: self.size()? })
    }

    fn post(&mut self) -> Option<Post> {
        let call = self.call()?;
        let count = self.size()?;
        let mut parcels = Vec::new();
        for _ in 0..count {
            parcels.push(self.parcel()?);
        }
        Some(Post { call, parcels })
    }

    fn parcel(&mut self) -> Option<Parcel> {
        let (name, dims) = (self.text()?, self.size()?);
        let mut shape = Vec::new();
        for _ in 0..dims {
            shape.push(self.size()?);
        }
        let kind = self.number()?;
        if kind == 0 {
            return Some(Parcel { name, shape, values: Values::Nothing });
        }
        if kind == 3 {
            return Some(Parcel { name, shape, values: Values::Bytes(self.bytes()?.into()) });
        }
        let dtype = *TYPES.get(self.size()?)?;
        let bytes = self.bytes()?;
        let count = bytes.len() / dtype.size();
        let data = TensorData::from_bytes(Bytes::from_bytes_vec(bytes.to_vec()), [count], dtype);
        let device = Device::flex();
        let values = match kind {
            1 => Values::Floats(Tensor::from_data(data, (&device, dtype))),
            2 => Values::Integers(Tensor::<1, Int>::from_data(data, (&device, dtype))),
            _ => return None,
        };
        Some(Parcel { name, shape, values })
    }

    fn call(&mut self) -> Option<Call> {
        let (operation, first, second) = (self.number()?, self.size()?, self.size()?);
        let operation = match operation {
            0 => Operation::AllToAll,
            1 => Operation::AllGather,
            2 => Operation::AllReduce,
            3 => Operation::ReduceScatter,
            4 => Operation::Broadcast { root: first },
            5 => Operation::Barrier,
            6 => Operation::Message { from: first, to: second },
            _ => return None,
        };
        let (sequence, group) = (self.number()?, self.text()?);
        let labelled = self.number()? == 1;
        let label = Some(self.text()?).filter(|_| labelled);
        let dtype = match self.number()? {
            ANY => None,
            code => Some(*TYPES.get(usize::try_from(code).ok()?)?),
        };
        let dims = self.size()?;
        let mut shape = Vec::new();
        for _ in 0..dims {
            shape.push(match self.number()? {
                ANY => Extent::Any,
                size => Extent::Of(usize::try_from(size).ok()?),
            });
        }
        Some(Call { operation, sequence, group, label, dtype, shape })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kind of message comes out as it went in, and half of one is none.
    #[test]
    fn messages_survive_the_way() {
        let device = Device::flex();
        let floats = Tensor::<1>::from_floats([1.5, -2.0, 3.25], &device).cast(DType::BF16);
        let parcels = vec![
            Parcel { name: "x".into(), shape: vec![3, 1], values: Values::Floats(floats) },
            Parcel { name: "".into(), shape: vec![], values: Values::Nothing },
            Parcel {
                name: "index".into(),
                shape: vec![2],
                values: Values::Integers(Tensor::from_ints([7, -8], &device)),
            },
            Parcel::of_bytes("picture", *b"\0\xff!"),
        ];
        let call = Call {
            operation: Operation::Message { from: 3, to: 1 },
            sequence: 9,
            group: "ring".into(),
            label: Some("keys".into()),
            dtype: Some(DType::BF16),
            shape: vec![Extent::Of(3), Extent::Any],
        };
        let slot = Slot { group: "ring".into(), channel: Channel::Messages, from: 3, to: 1 };
        let post = Post { call: call.clone(), parcels: parcels.clone() };
        let bytes = Message::Post(slot.clone(), post).encode(7);
        let Some((7, Message::Post(way, Post { call: heard, parcels: got }))) =
            Message::decode(&bytes)
        else {
            panic!("a post comes out");
        };
        assert_eq!((way, heard), (slot, call));
        for (got, sent) in got.into_iter().zip(parcels) {
            assert_eq!(
                (&got.name, &got.shape, got.dtype()),
                (&sent.name, &sent.shape, sent.dtype())
            );
            match (got.values, sent.values) {
                (Values::Floats(got), Values::Floats(sent)) => {
                    assert_eq!(got.into_data(), sent.into_data());
                }
                (Values::Integers(got), Values::Integers(sent)) => {
                    assert_eq!(got.into_data(), sent.into_data());
                }
                (Values::Bytes(got), Values::Bytes(sent)) => assert_eq!(got, sent),
                (got, sent) => assert!(matches!((got, sent), (Values::Nothing, Values::Nothing))),
            }
        }
        assert!((0..bytes.len()).all(|end| Message::decode(&bytes[..end]).is_none()));
        let done = Message::decode(&Message::Done(0.375).encode(0));
        assert!(matches!(done, Some((0, Message::Done(done))) if done == 0.375));
        let failed = Message::decode(&Message::Failed("rank 2 fell".to_owned()).encode(1));
        assert!(matches!(failed, Some((1, Message::Failed(why))) if why == "rank 2 fell"));
        let off = Message::decode(&Message::CalledOff.encode(2));
        assert!(matches!(off, Some((2, Message::CalledOff))));
        let alive = Message::decode(&Message::Alive.encode(0));
        assert!(matches!(alive, Some((0, Message::Alive))));
        let left = Message::decode(&Message::Left.encode(0));
        assert!(matches!(left, Some((0, Message::Left))));
    }
}
