use vfscale_block::{MemoryDevice, Operation};
use vfscale_testkit::{Fault as Planned, FaultyDevice};
use vfscale_vfs::Vfs;

use super::*;
use crate::Settings;
use crate::format::byte_of_block;
use crate::format::inode::ROOT_INO;
use crate::tools::mkfs::{self, MkfsOptions};
use crate::vfs_impl::DiskFs;

const BLOCK: usize = crate::format::BLOCK_BYTES;

/// Creates a volume with one file of 20 blocks, each with different bytes.
fn made() -> FaultyDevice<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(16 << 20).unwrap());
    mkfs::format(&*device, &MkfsOptions::default()).unwrap();
    let fs = DiskFs::open(device.clone(), Settings::default()).unwrap();
    let vfs = Vfs::new(fs.clone()).unwrap();
    vfs.task().write("/file", contents()).unwrap();
    drop(vfs);
    fs.close().unwrap();
    let mut image = vec![0; 16 << 20];
    device.read_at(0, &mut image).unwrap();
    let copy = MemoryDevice::new(16 << 20).unwrap();
    copy.write_at(0, &image).unwrap();
    FaultyDevice::new(copy)
}

fn contents() -> Vec<u8> {
    (0..20).flat_map(|block| vec![block + 1; BLOCK]).collect()
}

fn file(rescue: &Rescue) -> (u64, InodeCore) {
    let (root, _) = rescue.inode(ROOT_INO).unwrap().unwrap();
    let (names, losses) = rescue.names(ROOT_INO, &root);
    assert!(losses.is_empty());
    let [Name { name, ino }] = &names[..] else { panic!("{names:?}") };
    assert_eq!(&**name, b"file");
    let (core, loss) = rescue.inode(*ino).unwrap().unwrap();
    assert!(loss.is_none());
    (*ino, core)
}

/// Missing bytes are reported; all the rest is copied, up to the last block.
#[test]
fn blocks_that_can_not_be_read_are_left_out_and_told() {
    let device = Arc::new(made());
    let rescue = Rescue::open(device.clone(), None).unwrap();
    assert!(matches!(rescue.log(), LogRead::Replayed { items: 0 }));
    let (ino, core) = file(&rescue);
    let DataFork::Extents(list) = &core.data else { panic!("{:?}", core.data) };
    let [extent] = &list[..] else { panic!("{list:?}") };
    for bad in [3, 4, 17] {
        let at = byte_of_block(extent.start + bad);
        device.arm(Planned::on(Operation::Read).within(at..at + 1).from(0));
    }
    let mut read = vec![0; contents().len()];
    let losses = rescue.data::<()>(ino, &core, &mut |offset, bytes| {
        read[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    });
    let losses = losses.unwrap();
    let ranges: Vec<_> = losses
        .iter()
        .map(|loss| match loss {
            Loss::Data { bytes, .. } => bytes.clone(),
            loss => panic!("{loss}"),
        })
        .collect();
    let block = BLOCK as u64;
    assert_eq!(ranges, [3 * block..5 * block, 17 * block..18 * block]);
    let mut expected = contents();
    for bad in [3, 4, 17] {
        expected[bad * BLOCK..][..BLOCK].fill(0);
    }
    assert!(read == expected);
}

/// An error of the receiver ends the reading of a file.
#[test]
fn an_error_of_who_writes_is_given_back() {
    let rescue = Rescue::open(Arc::new(made()), None).unwrap();
    let (ino, core) = file(&rescue);
    assert!(matches!(rescue.data(ino, &core, &mut |_, _| Err("full")), Err("full")));
}

/// These numbers are not the numbers of existing inodes, or can't be any.
#[test]
fn rescue_has_no_inode_of_an_impossible_number() {
    let rescue = Rescue::open(Arc::new(made()), None).unwrap();
    let (ino, _) = file(&rescue);
    for number in [0, 1, ino + 1, u64::MAX] {
        assert!(rescue.inode(number).is_ok_and(|inode| inode.is_none()), "{number}");
    }
    let mut all = Vec::new();
    assert!(rescue.each_inode(&mut |ino, _| all.push(ino)).is_empty());
    assert_eq!(all, [ROOT_INO, ino]);
}

/// Each block has one use, whatever it contained before.
#[test]
fn blocks_are_told_apart_by_their_use() {
    let rescue = Rescue::open(Arc::new(made()), None).unwrap();
    let (ino, core) = file(&rescue);
    let DataFork::Extents(list) = &core.data else { panic!("{:?}", core.data) };
    let (data, end) = (list[0].start, list[0].place_end());
    assert_eq!(rescue.use_of(data).unwrap(), (BlockUse::Other, data + 1));
    assert_eq!(rescue.use_of(2).unwrap(), (BlockUse::Volume, 3));
    let (free, free_end) = rescue.use_of(end).unwrap();
    assert!(free == BlockUse::Volume && free_end > end + 1, "{free:?} {free_end}");
    let chunks = |blocks| -> Vec<u64> {
        let found: Vec<Range<u64>> = rescue.chunks_in(blocks).unwrap();
        found.into_iter().flatten().collect()
    };
    let all: Vec<u64> = (8..16).collect();
    assert_eq!((chunks(0..rescue.blocks()), chunks(15..16)), (all.clone(), all));
    assert_eq!(chunks(16..4000), [0; 0]);
    let end_of = |block| rescue.end_of_chunk(block).unwrap();
    assert_eq!((end_of(9), end_of(16)), (Some(16), None));
    assert_eq!([true, false].map(|behind| rescue.next_chunk(8, behind).unwrap()), [None; 2]);
    let directories = rescue.directories_in(8).unwrap();
    assert_eq!(directories.iter().map(|(ino, _)| *ino).collect::<Vec<_>>(), [ROOT_INO]);
    let exists = |ino| rescue.existing(ino).unwrap().is_some();
    assert!(exists(ino) && exists(ROOT_INO) && !exists(127) && !exists(ino_at(data, 0)));
    assert_eq!(rescue.differing_inodes(&rescue, 8).unwrap(), [0; 0]);
}
