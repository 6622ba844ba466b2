//! Files whose extents begin and end in possible data blocks, and contain other blocks in between.

use super::*;
use crate::btree::{Entry, Tree};
use crate::format::extent::Extent;
use crate::inode::core::DataFork;
use crate::inode::extents::ExtentTree;
use crate::tools::check::tests::sample::{EXTENTS, GROUP, LIST, Sample};
use vfscale_vfs::OpenOptions;

/// The start and the number of blocks of extents that contain: the header and the roots of a group;
/// a copy of the superblock and a whole group; the log and the blocks before it.
const ACROSS: [(u64, u32); 3] =
    [(GROUP - 4, 16), (GROUP - 4, GROUP as u32 + 300), (2 * GROUP - 4, 300)];

fn extent((start, blocks): (u64, u32)) -> Extent {
    Extent { file_block: 0, start, blocks, is_unwritten: false }
}

/// Returns all bytes of a device.
fn bytes(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Asserts that a file that leads there is neither read nor written.
fn refused(sample: &Sample, path: &str) {
    let fs = DiskFs::open(sample.device.clone(), Settings::default()).unwrap();
    let vfs = Vfs::new(fs.clone()).unwrap();
    let task = vfs.task();
    fs.volume().journal().unwrap().quiesce().unwrap();
    let before = bytes(&*sample.device);
    let opened = task.open_with(path, &OpenOptions::new().read(true).write(true));
    let done = opened.and_then(|file| {
        let (mut read, written) = (vec![0; 32 * 4096], vec![0xEE; 32 * 4096]);
        let read = file.pread(&mut read, 0).map(drop);
        let written = file.pwrite(&written, 0).map(drop).and_then(|()| file.sync_all());
        assert_eq!(read.as_ref().err().map(|error| error.errno()), Some(Errno::UCLEAN), "{path}");
        read.and(written)
    });
    assert_eq!(done.unwrap_err().errno(), Errno::UCLEAN, "{path}");
    let after = bytes(&*sample.device);
    let is_written = |block: &usize| {
        let at = block * 4096;
        before[at..at + 4096] != after[at..at + 4096] && after[at..at + 16] == [0xEE; 16]
    };
    assert_eq!((0..after.len() / 4096).find(is_written), None, "{path}");
}

#[test]
fn extents_in_an_inode_are_checked_along_their_length() {
    let sample = Sample::new();
    for across in ACROSS {
        let copy = sample.copied();
        copy.inode(LIST, |core| core.data = DataFork::Extents([extent(across)][..].into()));
        assert!(copy.found().contains(&1017), "{:?}", copy.found());
        refused(&copy, "/list");
    }
}

#[test]
fn extents_in_a_tree_are_checked_along_their_length() {
    let sample = Sample::new();
    for across in ACROSS {
        let copy = sample.copied();
        let DataFork::Tree { root } = copy.core(EXTENTS).data else { panic!("a tree") };
        copy.trees(|draft| {
            draft.pool = vec![root];
            let record = Entry { key: 0.into(), value: extent(across).place() };
            Tree::<ExtentTree>::build(draft, EXTENTS, 0, &[record], 80).unwrap();
        });
        assert!(copy.found().contains(&1017), "{:?}", copy.found());
        refused(&copy, "/extents");
    }
}
