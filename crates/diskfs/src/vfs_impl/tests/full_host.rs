//! A volume whose device has no storage for blocks that were never written, as an image on a full
//! file system: all but the log and the superblock.

use vfscale_testkit::Fault as Planned;
use vfscale_vfs::OFlags;

use super::*;
use crate::LogPlace;
use crate::format::byte_of_block;

/// Makes the device full.
fn fill(volume: &FaultyVolume) {
    let LogPlace::Inside { start, blocks } = volume.fs.volume().superblock().log() else {
        panic!("the log is inside")
    };
    let (size, end) = (volume.device.size(), byte_of_block(start + blocks));
    for range in [4096..byte_of_block(start), end..size] {
        let write = Planned::on(Operation::Write).within(range);
        volume.device.arm(write.fail(OsError::NO_SPACE));
    }
}

/// Creates a volume that is being changed, on a device that is full from now on.
fn full() -> FaultyVolume {
    let volume = FaultyVolume::new(None);
    volume.task.write("/old", b"old").unwrap();
    volume.fs.sync_fs().unwrap();
    volume.fs.volume().journal().unwrap().quiesce().unwrap();
    fill(&volume);
    volume
}

/// Closes a volume that has room again, and opens it.
fn again(volume: FaultyVolume) -> Mounted {
    let FaultyVolume { device, fs, _vfs, task } = volume;
    drop((task, _vfs));
    fs.close().unwrap();
    drop(fs);
    check_clean(copy_of(&*device));
    opened(copy_of(&*device))
}

#[test]
fn data_without_storage_fail_their_fsync_and_not_the_volume() {
    let volume = full();
    let (task, options) = (&volume.task, OpenOptions::new().write(true).create(true));
    for name in ["/one", "/two"] {
        let file = task.open_with(name, &options).unwrap();
        file.write_all(&vec![1; MIB as usize]).unwrap();
        assert_eq!(file.sync_all().unwrap_err().errno(), Errno::NOSPC);
    }
    assert!(volume.fs.stopped().is_none());
    task.create_dir("/dir").unwrap();
    task.remove_file("/one").unwrap();
    assert_eq!(task.read("/old").unwrap(), b"old");
    // A sync of everything tells it as well, once.
    let root = task.posix().open("/", OFlags::RDONLY, Mode::empty()).unwrap();
    assert_eq!(root.sync_fs().unwrap_err().errno(), Errno::NOSPC);
    drop(root);
    volume.device.disarm();
    let file = task.open_with("/three", &options).unwrap();
    file.write_all(&vec![3; MIB as usize]).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let after = again(volume);
    assert_eq!(after.task.read("/three").unwrap(), vec![3; MIB as usize]);
    assert_eq!(after.task.read("/old").unwrap(), b"old");
    assert!(after.task.symlink_metadata("/dir").is_ok());
    assert!(after.task.symlink_metadata("/one").is_err());
}

#[test]
fn metadata_without_storage_stay_in_the_log() {
    let volume = full();
    for n in 0..300 {
        volume.task.create_dir(format!("/{n}")).unwrap();
    }
    volume.fs.sync_fs().unwrap();
    let journal = volume.fs.volume().journal().unwrap();
    for _ in 0..2 {
        let refused = journal.quiesce().unwrap_err();
        assert!(refused.is_no_space(), "{refused}");
    }
    assert!(volume.fs.stopped().is_none());
    // A crash loses nothing.
    assert!(volume.left().task.symlink_metadata("/299").is_ok());
    volume.device.disarm();
    journal.quiesce().unwrap();
    let after = again(volume);
    assert!((0..300).all(|n| after.task.symlink_metadata(format!("/{n}")).is_ok()));
}

/// Race: Write-back without storage against a transaction that waits for log space.
///
/// The AIL push leaves items for which there is no storage, refuses the transactions that wait, and
/// ends. One that begins to wait after that requests another AIL push. So nothing waits for ever,
/// the volume does not stop, and goes on as soon as there is room.
#[test]
fn a_log_that_is_full_as_well_refuses_changes() {
    let volume = full();
    let mut made = 0;
    let refused = loop {
        if let Err(error) = volume.task.create_dir(format!("/{made}")) {
            break error;
        }
        made += 1;
        if made % 50 == 0 {
            volume.fs.sync_fs().unwrap();
        }
    };
    assert_eq!(refused.errno(), Errno::NOSPC);
    assert!(made >= 100, "{made}");
    // A sync may free some of the log.
    for more in 0..3 {
        if let Err(error) = volume.task.create_dir(format!("/more-{more}")) {
            assert_eq!(error.errno(), Errno::NOSPC);
        }
        volume.fs.sync_fs().unwrap();
    }
    assert!(volume.fs.stopped().is_none());
    assert_eq!(volume.task.read("/old").unwrap(), b"old");
    assert!(volume.left().task.symlink_metadata(format!("/{}", made - 1)).is_ok());
    volume.device.disarm();
    volume.task.create_dir("/after").unwrap();
    let after = again(volume);
    assert!((0..made).all(|n| after.task.symlink_metadata(format!("/{n}")).is_ok()));
    assert!(after.task.symlink_metadata("/after").is_ok());
}
