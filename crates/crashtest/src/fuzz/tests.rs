//! Tests that rounds reach all cases: volumes that are sound despite the damage, volumes with
//! findings, volumes that do not open, errors of calls, repairs.

use std::collections::BTreeSet;

use vfscale::posix::{At, AtFlags, OFlags, XattrFlags};
use vfscale::{Mode, Task};
use vfscale_diskfs::{
    BLOCK_BYTES, check, check::LogState, copies, on_disk::Block, on_disk::byte_of_block,
};

use super::image::{Image, new_volume, open};
use super::{FuzzTally, Fuzzer, Interrupted, RepairFault};
use vfscale_sync::random::Random;

#[test]
fn damage_shows() {
    let mut total = FuzzTally::default();
    for seed in 1..4 {
        let mut fuzzer = Fuzzer::new(seed).unwrap();
        for round in 0..40 {
            match fuzzer.round(round) {
                Ok(tally) => total += tally,
                Err(why) => panic!("seed {seed}, round {round}, {:?}: {why}", fuzzer.did()),
            }
        }
    }
    println!("{total}");
    assert!(total.sound > 10 && total.unsound > 10, "{total}");
    assert!(total.opened > 10 && total.opened < 110, "{total}");
    // A damaged directory fails many calls or few, by what its names were when they were written.
    assert!(total.errors > 3 && total.repaired > 0, "{total}");
}

/// An undamaged volume is sound, and each log has items to replay.
#[test]
fn nothing_shows_without_damage() {
    let fuzzer = Fuzzer::new(5).unwrap();
    for image in [&fuzzer.image, &fuzzer.older, &fuzzer.other] {
        let tally = super::look(&image.copy()).unwrap();
        assert_eq!((tally.sound, tally.opened, tally.errors), (1, 1, 0));
        let report = check::check(image.copy(), &check::Options::default(), &mut ()).unwrap();
        assert!(matches!(report.log, LogState::Replayed { items: 1.., .. }), "{:?}", report.log);
    }
}

/// A bit of a feature that this version does not know, and that forbids changes.
#[test]
fn a_volume_that_may_only_be_read_is_sound_if_it_can_be_read() {
    let image = new_volume(&mut Random::new(7)).unwrap();
    let mut found = copies::read(&*image.device).unwrap().superblock;
    found.features.ro_compat |= 1 << 40;
    copies::write(&*image.device, &mut found).unwrap();
    let tally = super::look(&image.copy()).unwrap();
    assert_eq!((tally.sound, tally.opened, tally.errors), (1, 1, 0));
    assert_eq!(super::repair(&image.copy()), Ok(0));
}

const FILES: usize = 250;

/// Makes an image that, unlike the others, has directories, files and attributes that need trees.
fn with_trees() -> Image {
    let image = new_volume(&mut Random::new(11)).unwrap();
    let volume = open(image.device.clone()).unwrap();
    let task = volume.task();
    task.create_dir("/crowd").unwrap();
    for n in 0..FILES {
        task.write(format!("/crowd/a file with a number: {n}"), n.to_le_bytes()).unwrap();
    }
    // Every other page, so no two extents can merge.
    let flags = OFlags::CREATE | OFlags::RDWR;
    let file = task.posix().open("/pieces", flags, Mode::from(0o644)).unwrap();
    for page in 0..300 {
        assert_eq!(file.pwrite(&[7; 4096], page * 8192).unwrap(), 4096);
    }
    drop(file);
    for n in 0..4 {
        let (name, value) = (format!("user.{n}"), vec![b'v'; 3000]);
        let flags = (XattrFlags::empty(), AtFlags::empty());
        task.posix().setxattrat(At::Cwd, "/pieces", &name, &value, flags.0, flags.1).unwrap();
    }
    drop(task);
    volume.close().unwrap();
    Image::of(image.device).unwrap()
}

/// Returns the blocks that claim to belong to a tree of an inode. Some of them are freed.
fn tree_blocks(image: &Image) -> Vec<u64> {
    let is_of_tree = |at: &u64| {
        let mut block = Block::zeroed();
        image.device.read_at(byte_of_block(*at), block.bytes_mut()).unwrap();
        [b"vfsD", b"vfsE", b"vfsA"].contains(&&block.header().magic.0)
    };
    (0..image.device.size() / BLOCK_BYTES as u64).filter(is_of_tree).collect()
}

/// Returns the files of `/crowd`, identified by content, that exist there or in `/lost+found`.
fn files(task: &Task) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    for directory in ["/crowd", "/lost+found"] {
        for entry in task.read_dir(directory).into_iter().flatten().flatten() {
            // `/lost+found` may contain directories and pipes, too.
            let path = format!("{directory}/{}", entry.file_name().display());
            if !task.symlink_metadata(&path).is_ok_and(|found| found.is_file()) {
                continue;
            }
            let Ok(bytes) = task.read(path) else { continue };
            if let Ok(number) = bytes.try_into() {
                found.insert(usize::from_le_bytes(number));
            }
        }
    }
    found
}

/// For every lost block of a tree, a repair leaves no findings, and the volume works and has every
/// file with its content, with a hole at most.
#[test]
fn a_lost_block_of_a_tree_takes_no_file_with_it() {
    let image = with_trees();
    let blocks = tree_blocks(&image);
    assert!(blocks.len() > 12, "{blocks:?}");
    let mut damaged = 0;
    for at in blocks {
        let device = image.copy();
        let mut block = Block::zeroed();
        device.read_at(byte_of_block(at), block.bytes_mut()).unwrap();
        block.bytes_mut()[512..1536].fill(0xA5);
        device.write_at(byte_of_block(at), block.bytes()).unwrap();
        damaged += u64::from(super::usable::findings(&device).is_err());
        // Checks, repairs, and uses the volume.
        assert_eq!(super::usable::repair(&device), Ok(1), "block {at}");
        let options = check::Options { repair: true, ..check::Options::default() };
        check::check(device.clone(), &options, &mut ()).unwrap();
        let volume = open(device).unwrap();
        let task = volume.task();
        assert_eq!(files(&task).len(), FILES, "block {at}");
        let bytes = task.read("/pieces").unwrap();
        assert_eq!(bytes.len(), 299 * 8192 + 4096, "block {at}");
        for (page, bytes) in bytes.chunks(4096).enumerate() {
            let is_hole = bytes.iter().all(|byte| *byte == 0);
            assert!(is_hole || page % 2 == 0 && bytes.iter().all(|byte| *byte == 7), "block {at}");
        }
        drop(task);
        volume.close().unwrap();
    }
    assert!(damaged > 10, "{damaged}");
}

/// After power cuts during a repair, an incompletely repaired volume is not mounted.
#[test]
fn repairs_that_are_cut_off() {
    let mut total = Interrupted::default();
    for seed in 1..=12 {
        let tally = Interrupted::run(RepairFault::Nothing, 10, seed);
        total += tally.unwrap_or_else(|why| panic!("{why}"));
    }
    println!("{total}");
    assert!(total.refused > 0 && total.as_before > 0 && total.repaired > 0, "{total}");
}

/// Without the mark, or the flush after it, partially repaired volumes are mounted.
#[test]
fn repairs_without_a_mark_are_found() {
    for planted in [RepairFault::NoMark, RepairFault::NoFlush] {
        let found = (1..=40).find_map(|seed| Interrupted::run(planted, 30, seed).err());
        println!("{planted:?}: {found:?}");
        assert!(found.is_some(), "{planted:?} was not detected");
    }
}
