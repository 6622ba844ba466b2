//! A reader reads what a writer has written, and tells damage.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::File;
use std::os::unix::fs::FileExt;

use proptest::prelude::*;

use super::*;

/// Blocks of the device.
const DEVICE: u64 = 1 << 20;
const DIRECTORY: u16 = 0o040_755;
const REGULAR: u16 = 0o100_644;

fn attributes(mode: u16) -> Attributes {
    Attributes { mode, links: 1, mtime: -3_000_000_001, ..Attributes::default() }
}

/// Writes a root with files, and returns their numbers.
fn written(files: &[(Attributes, Content<'_>)]) -> Result<(File, Vec<u64>), Error> {
    let file = tempfile::tempfile().unwrap();
    let mut writer = Writer::new(&file, DEVICE, [1; 16])?;
    let name = |number| Box::from(format!("{number}").into_bytes());
    let names: Vec<Box<[u8]>> = (0..files.len()).map(name).collect();
    let mut root = writer.begin(&attributes(DIRECTORY), None, names)?;
    let mut nids = Vec::new();
    for (number, (attributes, content)) in files.iter().enumerate() {
        let nid = writer.inode(attributes, content)?;
        root.set(&name(number), nid, attributes.mode)?;
        nids.push(nid);
    }
    writer.end(&root)?;
    writer.finish(&root)?;
    Ok((file, nids))
}

/// Where each block of a file should be; `None` for a hole.
fn places(size: u64, runs: &[Run]) -> Vec<Option<u64>> {
    let mut blocks = vec![None; size.div_ceil(4096) as usize];
    for Run { at, blocks: count, place } in runs {
        for step in 0..*count {
            if let Some(block) = blocks.get_mut((at + step) as usize) {
                *block = Some((place + step) * 4096);
            }
        }
    }
    blocks
}

fn check_places(file: &File, nid: u64, size: u64, runs: &[Run]) {
    let reader = Reader::open(file).unwrap();
    reader.check().unwrap();
    let inode = reader.inode(nid).unwrap();
    assert_eq!(inode.size, size);
    for (block, place) in (0..).zip(places(size, runs)) {
        let part = reader.part(&inode, block * 4096).unwrap().0;
        assert_eq!(part, place.map_or(Part::Hole, Part::Device), "block {block} of {runs:?}");
    }
}

proptest! {
    #[test]
    fn every_block_is_where_it_was_put(
        parts in prop::collection::vec((0..3_u64, 1..40_u64, 0..5_u32), 0..12),
        size in 1..700_000_u64,
        shift in 0..4_u32,
    ) {
        let (mut runs, mut at, mut place) = (Vec::new(), 0, 5);
        for (hole, blocks, jump) in parts {
            (at, place) = (at + (hole << shift), place + u64::from(jump / 3));
            let blocks = blocks << shift;
            runs.push(Run { at, blocks, place });
            (at, place) = (at + blocks, place + blocks);
        }
        let content = Content::Data { size, bytes: &[], runs: &runs };
        let (file, nids) = written(&[(attributes(REGULAR), content)]).unwrap();
        check_places(&file, nids[0], size, &runs);
    }

    #[test]
    fn bytes_in_an_inode_come_back(
        length in 1..9000_usize,
        more in prop::sample::select(vec![0, 1, 5000, 1 << 20, 1 << 40]),
        value in 0..4000_usize,
    ) {
        let bytes: Vec<u8> = (0..length).map(|at| at as u8 | 1).collect();
        let size = bytes.len() as u64 + more;
        let value = (b"user.v".as_slice().into(), vec![1; value].into());
        let attributes = Attributes { xattrs: vec![value], ..attributes(REGULAR) };
        let content = Content::Data { size, bytes: &bytes, runs: &[] };
        let (file, nids) = written(&[(attributes.clone(), content)]).unwrap();
        let reader = Reader::open(&file).unwrap();
        reader.check().unwrap();
        let inode = reader.inode(nids[0]).unwrap();
        assert_eq!(inode.attributes, attributes);
        let (mut at, mut found) = (0, Vec::new());
        while at < size.min(2 << 20) {
            let (part, part_length) = reader.part(&inode, at).unwrap();
            let from = found.len();
            found.resize(from + part_length.min(2 << 20) as usize, 0);
            if let Part::Here(place) = part {
                file.read_exact_at(&mut found[from..], place).unwrap();
            }
            at += part_length;
        }
        assert!(found[..length] == bytes[..] && found[length..].iter().all(|byte| *byte == 0));
    }

    /// For any bytes, the check ends.
    #[test]
    fn damage_is_told(at in 1024..9000_u64, byte in any::<u8>(), sealed in any::<bool>()) {
        let runs = [Run { at: 3, blocks: 2, place: 9 }];
        let data = Content::Data { size: 40_000, bytes: &[], runs: &runs };
        let link = (attributes(0o120_777), Content::Target(b"target"));
        let (file, _) = written(&[(attributes(REGULAR), data), link]).unwrap();
        file.write_all_at(&[byte], at).unwrap();
        if sealed {
            let mut block = [0; 3072];
            file.read_exact_at(&mut block, 1024).unwrap();
            block[4..8].fill(0);
            let sum = format::checksum(&block).to_le_bytes();
            file.write_all_at(&sum, 1028).unwrap();
        }
        if let Ok(reader) = Reader::open(&file) {
            _ = reader.check();
        }
    }
}

#[test]
fn names_are_sorted_in_blocks_and_both_kinds_of_directory_are_read() {
    for count in [0, 1, 3, 100, 400, 5000] {
        let file = tempfile::tempfile().unwrap();
        let mut writer = Writer::new(&file, DEVICE, [1; 16]).unwrap();
        // Some come before those of the directory itself and of its parent.
        let name = |n: u64| -> Box<[u8]> {
            format!("{}{}", ["!", "x"][n as usize % 2], n * 7919 % 100_003).into_bytes().into()
        };
        let names = (0..count).map(name).collect();
        let mut root =
            writer.begin(&attributes(DIRECTORY), None, vec![(*b"below").into()]).unwrap();
        let mut below = writer.begin(&attributes(DIRECTORY), Some(root.nid()), names).unwrap();
        let links = count as u32;
        let kid = Attributes { links, ..attributes(0o010_600) };
        if count > 0 {
            let nid = writer.inode(&kid, &Content::None).unwrap();
            (0..count).for_each(|n| below.set(&name(n), nid, kid.mode).unwrap());
        }
        writer.end(&below).unwrap();
        root.set(b"below", below.nid(), DIRECTORY).unwrap();
        writer.end(&root).unwrap();
        writer.finish(&root).unwrap();
        let totals = Reader::open(&file).unwrap().check().unwrap();
        assert_eq!((totals.inodes, totals.names), (2 + count.min(1), count + 1));
    }
}

#[test]
fn attributes_that_repeat_are_stored_once() {
    let value = vec![7; 400];
    let xattrs = vec![
        (b"security.x".as_slice().into(), value.into()),
        (b"system.posix_acl_access".as_slice().into(), vec![2; 44].into()),
    ];
    let file = Attributes { xattrs, ..attributes(REGULAR) };
    let content = Content::Data { size: 0, bytes: &[], runs: &[] };
    let (view, nids) = written(&vec![(file.clone(), content); 1000]).unwrap();
    let reader = Reader::open(&view).unwrap();
    assert!(nids.iter().all(|nid| reader.inode(*nid).unwrap().attributes == file));
    assert!(reader.check().unwrap().bytes < 200_000, "{:?}", reader.check());
}

#[test]
fn what_has_no_room_is_refused() {
    fn refused(attributes: Attributes, content: Content<'_>) -> Error {
        written(&[(attributes, content)]).unwrap_err()
    }
    fn data(size: u64, runs: &[Run]) -> Content<'_> {
        Content::Data { size, bytes: &[], runs }
    }
    let run = |at, blocks, place| Run { at, blocks, place };
    for runs in [
        vec![run(0, 1, DEVICE)],
        vec![run(0, 2, DEVICE - 1)],
        vec![run(0, 1, u64::MAX)],
        vec![run(u64::MAX, 1, 3)],
        vec![run(0, 0, 3)],
        vec![run(0, 2, 3), run(1, 1, 9)],
        vec![run(5, 1, 3), run(1, 1, 9)],
    ] {
        let error = refused(attributes(REGULAR), data(9000, &runs));
        assert!(matches!(error, Error::Place), "{error} for {runs:?}");
    }
    let error = refused(attributes(REGULAR), data(1 << 60, &[run(1, 1, 3)]));
    assert!(matches!(error, Error::TooSparse(_)), "{error}");
    let error = refused(attributes(REGULAR), Content::None);
    assert!(matches!(error, Error::Mode(_)), "{error}");
    let error = refused(attributes(0o020_600), Content::Device { major: 4096, minor: 0 });
    assert!(matches!(error, Error::Device(4096, 0)), "{error}");
    for (name, bytes) in [("user.v", 1 << 16), ("system.other", 1), ("user.", 1)] {
        let xattrs = vec![(name.as_bytes().into(), vec![0; bytes].into())];
        let error = refused(Attributes { xattrs, ..attributes(REGULAR) }, data(0, &[]));
        assert!(matches!(error, Error::Attribute(_)), "{error}");
    }
    let file = tempfile::tempfile().unwrap();
    assert!(matches!(Writer::new(&file, 1 << 32, [0; 16]), Err(Error::TooLarge)));
    for names in [vec![b"a".as_slice(), b"a"], vec![b"."], vec![b"a/b"], vec![b""], vec![&[1; 256]]]
    {
        let mut writer = Writer::new(&file, 5, [0; 16]).unwrap();
        let names = names.into_iter().map(Box::from).collect();
        let error = writer.begin(&attributes(DIRECTORY), None, names).unwrap_err();
        assert!(matches!(error, Error::Name), "{error}");
    }
}
