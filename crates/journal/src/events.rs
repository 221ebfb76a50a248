//! TensorBoard's event files: protocol buffers in the frames of TFRecord.
//!
//! The few fields that a scalar needs are encoded here; their numbers are those of TensorFlow's
//! `event.proto` and `summary.proto`. Every start of a run has a file of its own, which begins by telling
//! TensorBoard to forget the steps that are about to be taken again.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};

/// How names of event files begin; TensorBoard reads them in order of their names.
const PREFIX: &str = "events.out.tfevents.";

/// The version after which a start of the session replaces steps, instead of a step out of order.
const VERSION: &[u8] = b"brain.Event:2";

/// The event file of one start.
#[derive(Debug)]
pub(crate) struct EventFile {
    path: PathBuf,
    file: File,
}

impl EventFile {
    /// A new file for a run that goes on after `step`.
    pub(crate) fn create(folder: &Path, step: u64) -> Result<EventFile> {
        let path = folder.join(free_name(folder)?);
        let file = File::options().create_new(true).append(true).open(&path);
        let file = file.map_err(|source| Error::file("write", &path, source))?;
        let mut events = EventFile { path, file };
        let first = if step == 0 { 0 } else { step + 1 };
        events.append(&version(now()))?;
        events.append(&start(now(), first))?;
        Ok(events)
    }

    /// Writes numbers of one step.
    pub(crate) fn write(
        &mut self,
        step: u64,
        scalars: impl IntoIterator<Item = (String, f64)>,
    ) -> Result<()> {
        self.append(&summary(now(), step, scalars))
    }

    /// Writes pictures of one step, moving or not, each with its name.
    pub(crate) fn write_pictures(
        &mut self,
        step: u64,
        pictures: &[(String, Vec<u8>)],
    ) -> Result<()> {
        pictures.iter().try_for_each(|(tag, bytes)| {
            let size = picture_size(bytes).unwrap_or_default();
            self.append(&picture(now(), step, tag, (size, bytes)))
        })
    }

    pub(crate) fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|source| Error::file("sync", &self.path, source))
    }

    fn append(&mut self, event: &Message) -> Result<()> {
        let written = self.file.write_all(&framed(&event.0));
        written.map_err(|source| Error::file("write", &self.path, source))
    }
}

/// A name that comes after all others of the folder, also if the clock was set back.
fn free_name(folder: &Path) -> Result<String> {
    let failure = |source| Error::file("read", folder, source);
    let mut seconds = now().max(0.0) as u64;
    for entry in fs::read_dir(folder).map_err(failure)? {
        let name = entry.map_err(failure)?.file_name();
        let digits = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('.').next());
        if let Some(taken) = digits.and_then(|digits| digits.parse::<u64>().ok()) {
            seconds = seconds.max(taken.saturating_add(1));
        }
    }
    Ok(format!("{PREFIX}{seconds:010}.moviola"))
}

/// Seconds since 1970.
fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map(|since| since.as_secs_f64()).unwrap_or_default()
}

/// The first event of every file.
fn version(time: f64) -> Message {
    event(time, 0).bytes(3, VERSION)
}

/// What was told of this step and later ones is void.
fn start(time: f64, step: u64) -> Message {
    let session = Message::default().varint(1, 1);
    event(time, step).bytes(7, &session.0)
}

/// Numbers of one step.
fn summary(time: f64, step: u64, scalars: impl IntoIterator<Item = (String, f64)>) -> Message {
    let value = |(tag, value): (String, f64)| {
        Message::default().bytes(1, tag.as_bytes()).float(2, value as f32)
    };
    let add = |all: Message, scalar| all.bytes(1, &value(scalar).0);
    let all = scalars.into_iter().fold(Message::default(), add);
    event(time, step).bytes(5, &all.0)
}

/// A picture of one step; TensorBoard asks for height, width and the number of channels.
fn picture(
    time: f64,
    step: u64,
    tag: &str,
    ([width, height], bytes): ([u64; 2], &[u8]),
) -> Message {
    let image = Message::default().varint(1, height).varint(2, width).varint(3, 3).bytes(4, bytes);
    let value = Message::default().bytes(1, tag.as_bytes()).bytes(4, &image.0);
    event(time, step).bytes(5, &Message::default().bytes(1, &value.0).0)
}

/// Width and height of a GIF or a PNG, as its file states them.
pub(crate) fn picture_size(bytes: &[u8]) -> Option<[u64; 2]> {
    let little =
        |at: usize| Some(u64::from(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?)));
    let big =
        |at: usize| Some(u64::from(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?)));
    match bytes {
        [b'G', b'I', b'F', b'8', ..] => Some([little(6)?, little(8)?]),
        [0x89, b'P', b'N', b'G', ..] => Some([big(16)?, big(20)?]),
        _ => None,
    }
}

/// What every event begins with; zero is left out, as protocol buffers do.
fn event(time: f64, step: u64) -> Message {
    let begun = Message::default().double(1, time);
    if step == 0 { begun } else { begun.varint(2, step) }
}

/// A protocol buffer, field by field.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(self, field: u8, value: u64) -> Message {
        self.key(field, 0).number(value)
    }

    fn double(self, field: u8, value: f64) -> Message {
        self.key(field, 1).raw(&value.to_le_bytes())
    }

    fn bytes(self, field: u8, value: &[u8]) -> Message {
        self.key(field, 2).number(value.len() as u64).raw(value)
    }

    fn float(self, field: u8, value: f32) -> Message {
        self.key(field, 5).raw(&value.to_le_bytes())
    }

    /// Our fields are below 16, so that a key is one byte.
    fn key(self, field: u8, kind: u8) -> Message {
        self.raw(&[field << 3 | kind])
    }

    /// Seven bits at a time, the lowest first.
    fn number(mut self, mut value: u64) -> Message {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Message {
        self.0.extend_from_slice(bytes);
        self
    }
}

/// A record as TFRecord frames it: length, checksum of the length, bytes, checksum of the bytes.
fn framed(record: &[u8]) -> Vec<u8> {
    let length = (record.len() as u64).to_le_bytes();
    let (before, after) = (masked_checksum(&length), masked_checksum(record));
    [&length[..], &before.to_le_bytes(), record, &after.to_le_bytes()].concat()
}

/// The checksum of a record that may hold checksums itself.
fn masked_checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(event: &Message, hex: &str) {
        let written: String = framed(&event.0).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(written, hex);
    }

    /// The bytes are those of TensorBoard 2.21.0: its own messages through its own RecordWriter.
    #[test]
    fn events_are_those_of_tensorboard_to_the_byte() {
        let scalars = [("loss/video".to_owned(), 0.25), ("é".to_owned(), -1e-3)];
        check(
            &summary(1.5, 300, scalars),
            "2c00000000000000f4aecc4509000000000000f83f10ac022a1e0a110a0a6c6f73732f766964656f15\
             0000803e0a090a02c3a9156f1283ba42013c7a",
        );
        check(&start(1.5, 401), "100000000000000095fbfe1809000000000000f83f1091033a020801a5bbac9f");
        check(
            &version(1.5),
            "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c",
        );
        let plain = Message(b"123456789".to_vec());
        check(&plain, "090000000000000037f97139313233343536373839e5b08ac7");
    }

    #[test]
    fn a_length_of_several_bytes_is_framed_as_tensorboard_does() {
        let framed = framed(&summary(1.5, 7, [("a".repeat(150), 2.0)]).0);
        assert_eq!(framed.len(), 191);
        assert_eq!(framed[..12], [0xaf, 0, 0, 0, 0, 0, 0, 0, 0x6e, 0x05, 0xd5, 0x23]);
        assert_eq!(framed[187..], [0xc5, 0x67, 0x74, 0x22]);
    }
}
