//! Entries come back as they were written.

use vfscale_sync::random::{Random, seed};

use super::pax::{parse_time, push, records, time};
use super::reader::Reader;
use super::writer::{END, Writer};
use super::{Entry, Kind};

fn entry(random: &mut Random) -> Entry {
    let mut text = |lengths: &[usize]| {
        let length = random.one(lengths);
        let letter = random.one(b"a\xff");
        vec![letter; length]
    };
    let (path, target, value) = (text(&[1, 99, 100, 101, 300]), text(&[1, 101]), text(&[0, 600]));
    let kind = random.one(&[Kind::File, Kind::Directory, Kind::Symlink, Kind::BlockDevice]);
    let size = random.one(&[0_u64, 1, 512, 9000]);
    let data = match random.below(3) {
        _ if size == 0 => Vec::new(),
        0 => std::iter::once(0..size).collect(),
        1 if size > 600 => vec![0..1, 3..600],
        _ => vec![],
    };
    let is_file = kind == Kind::File;
    Entry {
        path,
        kind,
        mode: random.below(0o10000) as u32,
        uid: random.one(&[0, 0o777_7777, u32::MAX]),
        gid: random.below(1000) as u32,
        size: if is_file { size } else { 0 },
        data: if is_file { data } else { Vec::new() },
        mtime: random.one(&[0, -1, 1_500_000_000, i64::MAX, i64::MIN + 1, 1 << 60]),
        target: if kind == Kind::Symlink { target } else { Vec::new() },
        device: if kind == Kind::BlockDevice { (8, 300) } else { (0, 0) },
        xattrs: if random.below(2) == 0 { vec![(b"user.a".to_vec(), value)] } else { Vec::new() },
        flags: random.one(&["", "nodump,sync"]).into(),
    }
}

#[test]
fn entries_come_back_as_they_were_written() {
    let mut random = Random::new(seed());
    let entries: Vec<Entry> = (0..500).map(|_| entry(&mut random)).collect();
    let mut bytes = Vec::new();
    let mut each = |part: &[u8]| {
        bytes.extend_from_slice(part);
        true
    };
    let mut writer = Writer::new(&mut each);
    for entry in &entries {
        writer.entry(entry);
        let length: u64 = entry.data.iter().map(|range| range.end - range.start).sum();
        writer.data(&vec![9; length as usize]);
        writer.end();
    }
    bytes.extend_from_slice(&END);
    let (mut input, mut found) = (&bytes[..], Vec::new());
    let mut reader = Reader::new(&mut input);
    while let Some(mut entry) = reader.next().unwrap() {
        if entry.kind == Kind::Directory {
            assert_eq!(entry.path.pop(), Some(b'/'));
        }
        found.push(entry);
    }
    assert_eq!(found, entries);
}

#[test]
fn times_and_records_are_read_as_they_were_written() {
    for nanos in [0, 1, -1, 1_000_000_000, -1_500_000_000, i64::MAX, i64::MIN + 1] {
        assert_eq!(parse_time(&time(nanos)), Some(nanos));
    }
    assert_eq!(
        ["1.5", "-0.000000001", "1.0000000019"].map(|it| parse_time(it).unwrap()),
        [1_500_000_000, -1, 1_000_000_001,]
    );
    assert_eq!(["", "x", "1.x", "99999999999999999999", "--1"].map(parse_time), [None; 5]);
    for length in [1, 5, 93, 94, 95, 96, 992, 993, 994, 995] {
        let (mut bytes, value) = (Vec::new(), vec![b'v'; length]);
        push(&mut bytes, b"k", &value);
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(text.split(' ').next().unwrap().parse(), Ok(bytes.len()));
        assert_eq!(records(&bytes), Some(vec![(&b"k"[..], &value[..])]));
        assert_eq!(records(&bytes[1..]), None);
    }
}
