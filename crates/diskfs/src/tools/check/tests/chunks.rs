//! Blocks that look like chunks of inodes but are none: freed ones, and data that a user forged in
//! a file.

use super::damage::name;
use super::mending::{extents, filled, list, look_up};
use super::repairs::repair;
use super::sample::{CHUNK, FREE, ID, LIST, Sample};
use crate::Settings;
use crate::dir::{Directory, NameHash};
use crate::format::extent::Extent;
use crate::format::group::CHUNK_ROOT_AT;
use crate::format::inode::{CHUNK_BLOCKS, INODE_MAGIC, ROOT_INO, ino_at, records_mut, slot_of};
use crate::format::{Block, Identity, byte_of_block};
use crate::inode::core::{DataFork, FileKind, InodeCore};
use crate::tools::check::LogState;
use crate::vfs_impl::DiskFs;

/// Address of these blocks: in the free space of the first group.
const AT: u64 = 512;

fn core(mode: u32) -> InodeCore {
    InodeCore { nlink: 1, ..InodeCore::new(mode, 1, 5) }
}

/// Writes eight blocks that look like a chunk of inodes.
fn chunk_of_inodes(sample: &Sample, at: u64, inodes: &[InodeCore]) {
    for address in at..at + CHUNK_BLOCKS {
        let identity = Identity { magic: INODE_MAGIC, address, owner: at, volume: ID };
        let mut block = Block::zeroed();
        block.seal(&identity, 0);
        if address == at {
            for (slot, core) in inodes.iter().enumerate() {
                records_mut(&mut block)[slot] = core.encode();
            }
        }
        block.seal(&identity, 0);
        sample.device.write_at(byte_of_block(address), block.bytes()).unwrap();
    }
}

/// Returns a file that claims eight blocks of another owner: those of the real chunk.
fn thief() -> InodeCore {
    let extent = Extent { file_block: 0, start: CHUNK, blocks: 8, is_unwritten: false };
    let data = DataFork::Extents([extent].into());
    InodeCore { data, size: 8 * 4096, blocks: 8, ..core(0o100_644) }
}

/// Returns a directory with a name for an inode of the same chunk.
fn directory_of(sample: &Sample, ino: u64, to: u64) -> InodeCore {
    let mut dir = InodeCore { nlink: 2, parent: ROOT_INO, ..core(0o040_755) };
    let directory = Directory::new(ino, NameHash::of(ID));
    sample.trees(|overlay| {
        let to = (to, FileKind::Regular);
        let _ = directory.insert(overlay, &mut dir, b"thief", to).unwrap();
    });
    dir
}

/// Returns a sample where a file has `blocks` blocks from [`AT`] on.
fn with_blocks(blocks: u32, is_unwritten: bool) -> Sample {
    let copy = filled().copied();
    list(&copy, |list| {
        list.push(Extent { file_block: 20, start: AT, blocks, is_unwritten });
    });
    copy.inode(LIST, |core| {
        (core.size, core.blocks) = (40 * 4096, core.blocks + u64::from(blocks));
    });
    assert_eq!(repair(&copy).left, 0, "{:#?}", copy.check().findings);
    copy
}

/// Destroys the tree of chunks, repairs the volume, and checks that the new tree has no false
/// chunk.
fn mended(sample: &Sample) {
    let before = sample.copied();
    sample.device.write_at(byte_of_block(CHUNK_ROOT_AT), &[0xA5; 4096]).unwrap();
    let repaired = repair(sample);
    assert_eq!(repaired.left, 0, "{:#?}", sample.check().findings);
    let after = sample.check();
    assert_eq!((after.findings, after.log), (vec![], LogState::Clean));
    let file = |sample: &Sample| extents(sample, &sample.core(LIST), LIST);
    assert_eq!(file(sample), file(&before));
    DiskFs::open(sample.device.clone(), Settings::default()).unwrap().close().unwrap();
}

fn is_found(sample: &Sample) -> bool {
    look_up(sample, ROOT_INO, "lost+found").is_some()
}

/// A freed chunk whose blocks belong to a file that has not written them yet.
#[test]
fn a_chunk_that_was_given_up_stays_so_under_space_that_is_set_aside() {
    let copy = with_blocks(8, true);
    chunk_of_inodes(&copy, AT, &[core(0o100_644), thief()]);
    mended(&copy);
    assert!(!is_found(&copy));
}

/// A freed chunk whose blocks belong partly to files.
#[test]
fn a_chunk_that_was_given_up_stays_so_if_it_is_free_in_part() {
    for (is_unwritten, blocks) in [(true, 3), (false, 5)] {
        let copy = with_blocks(blocks, is_unwritten);
        chunk_of_inodes(&copy, AT, &[core(0o100_644)]);
        mended(&copy);
        assert!(!is_found(&copy));
    }
}

/// The writer of the file knows the id of the volume, and the location of the file.
#[test]
fn the_data_of_a_file_are_no_inodes() {
    let copy = with_blocks(8, false);
    let ino = ino_at(AT, 1);
    chunk_of_inodes(&copy, AT, &[thief(), directory_of(&copy, ino, ino - 1)]);
    let mut block = [0; 4096];
    copy.device.read_at(byte_of_block(AT), &mut block).unwrap();
    mended(&copy);
    assert!(!is_found(&copy));
    let mut after = [0; 4096];
    copy.device.read_at(byte_of_block(AT), &mut after).unwrap();
    assert!(block == after);
}

/// A chunk to which nothing refers is still a chunk, and its inodes get names.
#[test]
fn a_chunk_without_names_is_found() {
    let copy = with_blocks(8, true);
    // Its blocks are in use, and have no owner.
    list(&copy, |list| _ = list.pop());
    copy.inode(LIST, |core| core.blocks -= 8);
    chunk_of_inodes(&copy, AT, &[core(0o100_644)]);
    copy.device.write_at(byte_of_block(CHUNK_ROOT_AT), &[0xA5; 4096]).unwrap();
    assert_eq!(repair(&copy).left, 0, "{:#?}", copy.check().findings);
    let found = look_up(&copy, ROOT_INO, "lost+found").unwrap();
    let ino = ino_at(AT, 0);
    assert_eq!(look_up(&copy, found, &format!("#{ino}")), Some(ino));
}

/// A name refers to an inode in it, so it is a chunk, although a file has its blocks as well.
#[test]
fn a_chunk_with_a_name_is_one_whoever_has_its_blocks() {
    let copy = with_blocks(8, false);
    let ino = ino_at(AT, 0);
    chunk_of_inodes(&copy, AT, &[core(0o100_644)]);
    name(&copy, ROOT_INO, b"new", ino, FileKind::Regular);
    copy.device.write_at(byte_of_block(CHUNK_ROOT_AT), &[0xA5; 4096]).unwrap();
    assert_eq!(repair(&copy).left, 0, "{:#?}", copy.check().findings);
    assert_eq!(look_up(&copy, ROOT_INO, "new"), Some(ino));
    assert_eq!(copy.core(ino).nlink, 1);
    assert!(copy.core_of(FREE).is_none() && slot_of(ino) == 0);
}
