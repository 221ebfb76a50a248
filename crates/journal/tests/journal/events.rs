//! Event files, taken apart by other code than that which wrote them.

use std::fs;
use std::path::Path;

use journal::Journal;
use train::{Callback, Event};

use crate::run::{Idle, report, tell};

/// One event: step, first bytes of its content's kind, scalars.
#[derive(Debug, Default, PartialEq)]
struct Found {
    step: u64,
    version: Option<String>,
    session: Option<u64>,
    scalars: Vec<(String, f32)>,
}

/// Castagnoli's checksum by its definition, bit by bit.
fn checksum(bytes: &[u8]) -> u32 {
    let mut remainder = u32::MAX;
    for byte in bytes {
        remainder ^= u32::from(*byte);
        for _ in 0..8 {
            let carry = remainder & 1;
            remainder = (remainder >> 1) ^ (carry * 0x82f6_3b78);
        }
    }
    !remainder
}

fn masked(bytes: &[u8]) -> u32 {
    let sum = checksum(bytes);
    sum.rotate_left(17).wrapping_add(0xa282_ead8)
}

fn records(mut file: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while !file.is_empty() {
        let (length, rest) = file.split_at(8);
        let (sum, rest) = rest.split_at(4);
        assert_eq!(u32::from_le_bytes(sum.try_into().unwrap()), masked(length));
        let (record, rest) = rest.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
        let (sum, rest) = rest.split_at(4);
        assert_eq!(u32::from_le_bytes(sum.try_into().unwrap()), masked(record));
        found.push(record.to_vec());
        file = rest;
    }
    found
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let length = bytes.iter().take_while(|byte| **byte >= 128).count() + 1;
    let (own, rest) = bytes.split_at(length);
    *bytes = rest;
    own.iter().rev().fold(0, |sum, byte| sum * 128 + u64::from(byte % 128))
}

/// The fields of a protocol buffer; numbers as their bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let length = match key % 8 {
            0 => {
                found.push((key / 8, varint(&mut bytes).to_le_bytes().to_vec()));
                continue;
            }
            1 => 8,
            2 => varint(&mut bytes) as usize,
            5 => 4,
            other => panic!("wire type {other}"),
        };
        let (own, rest) = bytes.split_at(length);
        found.push((key / 8, own.to_vec()));
        bytes = rest;
    }
    found
}

fn whole(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

fn event(record: &[u8]) -> Found {
    let mut found = Found::default();
    for (field, bytes) in fields(record) {
        match field {
            1 => assert!(f64::from_bits(whole(&bytes)) > 1.7e9),
            2 => found.step = whole(&bytes),
            3 => found.version = Some(String::from_utf8(bytes).unwrap()),
            5 => found.scalars.extend(fields(&bytes).iter().map(|(field, value)| {
                assert_eq!(*field, 1);
                let [(1, tag), (2, value)] = &fields(value)[..] else { panic!("{value:?}") };
                let value = f32::from_le_bytes(value[..].try_into().unwrap());
                (String::from_utf8(tag.clone()).unwrap(), value)
            })),
            7 => found.session = Some(whole(&fields(&bytes)[0].1)),
            other => panic!("field {other}"),
        }
    }
    found
}

/// The events of every file, in the order in which TensorBoard reads them.
fn events(folder: &Path) -> Vec<Vec<Found>> {
    let entries = fs::read_dir(folder.join("tensorboard")).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.iter().all(|path| path.to_str().unwrap().contains("tfevents")));
    let read =
        |path| records(&fs::read(path).unwrap()).iter().map(|record| event(record)).collect();
    paths.iter().map(read).collect()
}

#[test]
fn the_checksum_of_the_test_is_the_published_one() {
    assert_eq!(checksum(b"123456789"), 0xe306_9283);
}

#[test]
fn a_file_holds_the_version_the_start_and_every_scalar() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::new(folder.path());
    tell(&mut journal, &[report(1), report(300)]);
    journal.record(300, &[("validation/score", 0.5)]).unwrap();

    let files = events(folder.path());
    assert_eq!(files.len(), 1);
    let [version, start, first, second, recorded] = &files[0][..] else { panic!("{files:?}") };
    assert_eq!(version.version.as_deref(), Some("brain.Event:2"));
    assert_eq!((start.step, start.session), (0, Some(1)));
    let scalars = [
        ("loss/audio", 0.75),
        ("loss/video", 0.25),
        ("loss_by_level/video/0.00-0.25", 0.125),
        ("loss_by_level/video/0.75-1.00", 0.375),
        ("rate/student", 1e-3),
        ("gradient_norm/student", 1.5),
        ("rate/critic", 2e-3),
        ("gradient_norm/critic", 1.5),
        ("speed/samples_per_second", 12.0),
        ("speed/tokens_per_second", 1200.0),
    ];
    let scalars = scalars.map(|(name, value)| (name.to_owned(), value));
    assert_eq!((first.step, &first.scalars[..]), (1, &scalars[..]));
    assert_eq!((second.step, &second.scalars[..]), (300, &scalars[..]));
    let score = ("validation/score".to_owned(), 0.5);
    assert_eq!((recorded.step, &recorded.scalars[..]), (300, &[score][..]));
}

#[test]
fn every_start_has_its_file_and_voids_what_comes_after() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::new(folder.path());
    tell(&mut journal, &[report(1), report(2), report(3)]);
    // Within the same second, and with a clock that was an hour ahead before.
    let ahead = folder.path().join("tensorboard").join("events.out.tfevents.9999999990.moviola");
    fs::write(ahead, b"").unwrap();
    for step in [2, 0] {
        journal.on(&Event::Started { step }, &Idle).unwrap();
        journal.on(&Event::Stepped { report: &report(step + 1) }, &Idle).unwrap();
    }
    let files = events(folder.path());
    let starts: Vec<_> =
        files.iter().map(|file| Some((file.get(1)?.step, file.get(2)?.step))).collect();
    assert_eq!(starts, [Some((0, 1)), None, Some((3, 3)), Some((0, 1))]);
}
