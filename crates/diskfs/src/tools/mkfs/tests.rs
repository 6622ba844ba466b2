use std::time::Instant;

use vfscale_block::{FileDevice, MemoryDevice, Operation, OsError};
use vfscale_testkit::{CrashPlan, Fault, FaultyDevice, RecordingDevice};

use super::*;
use crate::alloc::Groups;
use crate::alloc::space::Space;
use crate::format::Damage;
use crate::format::inode::records;
use crate::volume::copies::OpenError;
use crate::volume::{Settings, Volume};

const MIB: u64 = 1 << 20;

fn memory(bytes: u64) -> MemoryDevice {
    MemoryDevice::new(bytes).unwrap()
}

fn options() -> MkfsOptions {
    MkfsOptions { uuid: Some(Uuid::from_bytes([7; 16])), ..MkfsOptions::default() }
}

/// Opens the volume read-only, and checks all that is known of its groups.
fn inspect(device: Arc<dyn Device>, superblock: &Superblock) {
    let options = Settings { read_only: true, ..Settings::default() };
    let volume = Volume::open(device, options).unwrap();
    assert_eq!(&volume.superblock(), superblock);
    let (geometry, log) = (superblock.geometry(), superblock.log());
    let groups = Groups::load(&volume.reader(), geometry, log, None).unwrap();
    let totals = groups.totals();
    assert_eq!((totals.inodes, totals.free_inodes, totals.orphans), (64, 63, 0));
    assert_eq!(totals.available, totals.blocks - 8);
    let figures = Space::new(&totals, true).figures();
    assert_eq!((figures.blocks, figures.free), (totals.blocks, totals.available));
    let mut free = 0;
    for number in 0..geometry.groups() {
        let layout = Layout::new(geometry, log, number).unwrap();
        let reader = volume.reader();
        let damage = |damage: Damage| panic!("{damage}");
        layout.free_tree().check(&reader, damage, |_| {}).unwrap();
        layout.chunk_tree().check(&reader, damage, |_| {}).unwrap();
        for record in layout.free_tree().range(&reader, ..).unwrap() {
            free += record.unwrap().value.get();
        }
        // This creates the index, which has checks of its own.
        if layout.usable_blocks() > 0 {
            let near = layout.blocks().start;
            let run = groups.claim(&reader, near, 1, 5).unwrap().unwrap();
            assert_eq!(geometry.group_of(run.start), Some(number));
            groups.unclaim(run);
        }
    }
    assert!(free >= totals.available && free < geometry.blocks());
}

fn root(device: &dyn Device, superblock: &Superblock) -> InodeCore {
    let mut block = Block::zeroed();
    device.read_at(byte_of_block(8), block.bytes_mut()).unwrap();
    let volume = superblock.volume();
    block.verify(&Identity { magic: INODE_MAGIC, address: 8, owner: 8, volume }).unwrap();
    InodeCore::decode(ROOT_INO, &records(&block)[0], |_, _| true).unwrap()
}

#[test]
fn a_volume_is_made_and_opened() {
    for mib in [16, 17, 100, 300, 1024] {
        let device = Arc::new(memory(mib * MIB));
        let superblock = format(&*device, &options()).unwrap();
        assert_eq!(superblock.geometry().blocks(), mib * 256);
        assert_eq!(superblock.volume(), Uuid::from_bytes([7; 16]));
        let root = root(&*device, &superblock);
        assert_eq!((root.mode, root.nlink, root.parent, root.size), (0o040_755, 2, ROOT_INO, 0));
        inspect(device, &superblock);
    }
}

#[test]
fn options_are_followed() {
    let device = memory(64 * MIB);
    let label: Label = "photos".parse().unwrap();
    let options =
        MkfsOptions { size: Some(20 * MIB + 5000), label, log_blocks: Some(300), ..options() };
    let superblock = format(&device, &options).unwrap();
    assert_eq!(superblock.geometry().blocks(), 20 * 256);
    assert_eq!((superblock.log().blocks(), superblock.label.as_str()), (300, "photos"));
    assert_ne!(format(&memory(16 * MIB), &MkfsOptions::default()).unwrap().volume(), Uuid::NIL);
    for blocks in [0, 255, 1017, u64::MAX] {
        let options = MkfsOptions { log_blocks: Some(blocks), ..MkfsOptions::default() };
        let error = format(&memory(16 * MIB), &options).unwrap_err();
        assert!(matches!(error, MkfsError::LogSize { most: 1016, .. }), "{error}");
    }
    for size in [0, 16 * MIB - 1, 17 << 40] {
        let options = MkfsOptions { size: Some(size), ..MkfsOptions::default() };
        assert!(matches!(format(&device, &options), Err(MkfsError::Size(_))), "{size}");
    }
    let root = RootDirectory { uid: 1000, gid: u32::MAX - 1, mode: 0o061_770 };
    let superblock = format(&device, &MkfsOptions { root, force: true, ..options }).unwrap();
    let root = self::root(&device, &superblock);
    assert_eq!((root.uid, root.gid, root.mode), (1000, u32::MAX - 1, 0o041_770));
    // A device that is too small is extended.
    let device = Arc::new(memory(MIB));
    let options = MkfsOptions { size: Some(16 * MIB), ..MkfsOptions::default() };
    let superblock = format(&*device, &options).unwrap();
    assert_eq!(device.size(), 16 * MIB);
    inspect(device, &superblock);
}

#[test]
fn a_log_has_a_device_of_its_own() {
    let (device, log) = (Arc::new(memory(16 * MIB)), Arc::new(memory(2 * MIB)));
    let options = MkfsOptions { log_device: Some(log.clone()), ..options() };
    let superblock = format(&*device, &options).unwrap();
    assert!(matches!(superblock.log(), LogPlace::Outside { blocks: 512, .. }));
    let opening = Settings { log_device: Some(log.clone()), ..Settings::default() };
    Volume::open(device.clone(), opening).unwrap().close().unwrap();
    // The log's contents are protected, too, and a device that is too small is refused.
    let others = MkfsOptions { log_device: Some(log), ..MkfsOptions::default() };
    let error = format(&memory(16 * MIB), &others).unwrap_err();
    assert!(error.to_string().contains("a log of a vfscale volume"), "{error}");
    let small: Arc<dyn Device> = Arc::new(memory(MIB - 4096));
    let others = MkfsOptions { log_device: Some(small), ..MkfsOptions::default() };
    let error = format(&memory(16 * MIB), &others).unwrap_err();
    assert!(matches!(error, MkfsError::LogSize { most: 255, .. }), "{error}");
}

#[test]
fn the_largest_volume_is_made_quickly() {
    let start = Instant::now();
    let device = Arc::new(memory(16 << 40));
    let superblock = format(&*device, &options()).unwrap();
    assert_eq!((superblock.geometry().blocks(), superblock.log().blocks()), (1 << 32, 1 << 18));
    assert!(device.bytes_used() < 2 * MIB, "{} bytes are used", device.bytes_used());
    inspect(device, &superblock);
    assert!(start.elapsed().as_secs() < 60);
}

#[test]
fn a_sparse_image_stays_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("large.vfs");
    let device = Arc::new(FileDevice::create(&path, 1 << 40).unwrap());
    let superblock = format(&*device, &options()).unwrap();
    inspect(device, &superblock);
    let used = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&path).unwrap()) * 512;
    assert!(used < 8 * MIB, "{used} bytes of the image are used");
}

#[test]
fn mkfs_refuses_a_device_with_a_recognised_file_system() {
    let cases: &[(u64, &[u8], &str)] = &[
        (1080, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
        (0, b"XFSB", "an XFS file system"),
        (65600, b"_BHRfS_M", "a Btrfs file system"),
        (82, b"FAT32   ", "a FAT file system"),
        (3, b"NTFS    ", "an NTFS file system"),
        (4086, b"SWAPSPACE2", "swap space"),
        (65526, b"SWAPSPACE2", "swap space"),
        (0, b"LUKS\xba\xbe", "an encrypted volume (LUKS)"),
        (0, b"\x1f\x8b\x08", "compressed data (gzip)"),
        (0, b"PK\x03\x04", "an archive (zip)"),
        (512, b"EFI PART", "a partition table (GPT)"),
        (16 * MIB - 512, b"EFI PART", "a partition table (GPT)"),
    ];
    for (offset, bytes, what) in cases {
        let device = memory(16 * MIB);
        let mut block = vec![0; 8192];
        let start = (offset / 4096 * 4096).min(16 * MIB - 8192);
        let at = (offset - start) as usize;
        block[at..at + bytes.len()].copy_from_slice(bytes);
        device.write_at(start, &block).unwrap();
        let error = format(&device, &options()).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
        let mut there = vec![0; bytes.len()];
        device.read_at(*offset, &mut there).unwrap();
        assert_eq!(&there, bytes, "{what} is as it was");
        let superblock = format(&device, &MkfsOptions { force: true, ..options() }).unwrap();
        device.read_at(*offset, &mut there).unwrap();
        assert_ne!(&there, bytes, "nobody takes it for {what}");
        inspect(Arc::new(device), &superblock);
    }
}

#[test]
fn partitions_are_recognised() {
    let device = memory(16 * MIB);
    let mut sector = [0; 512];
    sector[510..].copy_from_slice(&[0x55, 0xAA]);
    device.write_at(0, &sector).unwrap();
    assert_eq!(recognise(&device).unwrap(), None, "without any partition");
    sector[446 + 16 + 4] = 0x83;
    device.write_at(0, &sector).unwrap();
    assert_eq!(recognise(&device).unwrap().unwrap(), "a partition table (MBR)");
    sector[446] = 0x12;
    device.write_at(0, &sector).unwrap();
    assert_eq!(recognise(&device).unwrap(), None, "that is no partition");
}

#[test]
fn a_volume_is_recognised() {
    let device = memory(16 * MIB);
    let label: Label = "photos".parse().unwrap();
    format(&device, &MkfsOptions { label, ..options() }).unwrap();
    let error = format(&device, &MkfsOptions::default()).unwrap_err().to_string();
    assert!(error.contains("a vfscale volume (photos), 07070707-0707-"), "{error}");
    // A copy of its superblock is recognised as well.
    device.write_at(0, &[0; 4096]).unwrap();
    assert!(matches!(format(&device, &options()), Err(MkfsError::Recognised { .. })));
    let force = MkfsOptions { force: true, ..MkfsOptions::default() };
    let superblock = format(&device, &force).unwrap();
    let found = copies::read(&device).unwrap();
    assert!(found.is_whole() && found.superblock == superblock);
}

/// Returns whether the device has a whole volume; if not, it has none.
fn none_or_whole(device: Arc<dyn Device>) -> bool {
    match copies::read(&*device) {
        Err(OpenError::NoVolume { .. }) => false,
        // This is the former volume, before any write, or the new one.
        Ok(found) => {
            inspect(device, &found.superblock);
            true
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_failure_leaves_no_half_volume() {
    let (mut failed, mut whole) = (0, 0);
    for operation in [Operation::Write, Operation::Flush] {
        for number in 1.. {
            let device = Arc::new(memory(16 * MIB));
            format(&*device, &options()).unwrap();
            let faulty = FaultyDevice::new(device.clone());
            faulty.arm(Fault::on(operation).nth(number).fail(OsError::IO));
            let force = MkfsOptions { force: true, uuid: None, ..options() };
            if format(&faulty, &force).is_ok() {
                break;
            }
            failed += 1;
            whole += u32::from(none_or_whole(device));
        }
    }
    assert!(failed > 20 && whole < failed / 2, "{whole} of {failed}");
}

#[test]
fn a_crash_leaves_no_half_volume() {
    let base = memory(16 * MIB);
    format(&base, &options()).unwrap();
    let device = RecordingDevice::new(base);
    format(&device, &MkfsOptions { force: true, uuid: None, ..options() }).unwrap();
    let (mut none, mut whole) = (0, 0);
    for state in device.crash_states(CrashPlan::default().listed_max(60).samples(2)) {
        if none_or_whole(state.device()) { whole += 1 } else { none += 1 }
    }
    assert!(none > 20 && whole > 5, "{none} {whole}");
}
