use std::sync::Arc;

use vfscale_block::{Device, MemoryDevice, Operation, OsError};
use vfscale_testkit::{CrashPlan, FaultyDevice, RecordingDevice};

use super::*;
use crate::Settings;
use crate::tools::mkfs::{self, MkfsOptions};
use crate::volume::copies::{self, CopyState};

const MIB: u64 = 1 << 20;

fn made(bytes: u64) -> Arc<dyn Device> {
    let device = Arc::new(MemoryDevice::new(bytes).unwrap());
    mkfs::format(&*device, &MkfsOptions::default()).unwrap();
    device
}

fn open(device: &Arc<dyn Device>) -> Volume {
    Volume::open(device.clone(), Settings::default()).unwrap()
}

/// Claims all available blocks and returns them.
fn use_all(volume: &Volume) {
    assert_eq!(volume.groups().unfinished().count(), 0);
    let (totals, figures) = (volume.groups().totals(), volume.space().figures());
    assert_eq!((figures.blocks, figures.free), (totals.blocks, totals.available));
    assert_eq!(totals.available, totals.blocks - 8, "the root's chunk");
    let mut claims = Vec::new();
    while let Some(run) = volume.groups().claim(&volume.reader(), 0, 1, u32::MAX).unwrap() {
        assert!(run.range().all(|block| volume.is_for_files(block)));
        claims.push(run);
    }
    let claimed: u64 = claims.iter().map(|run| run.len()).sum();
    assert_eq!(claimed, totals.available);
    claims.into_iter().for_each(|run| volume.groups().unclaim(run));
}

#[test]
fn a_volume_grows_while_it_is_open() {
    let device = made(18 * MIB);
    let volume = open(&device);
    for mib in [18, 19, 20, 77] {
        let geometry = volume.grow(Some(mib * MIB)).unwrap();
        assert_eq!(geometry.blocks(), mib * 256);
        assert_eq!((volume.geometry(), volume.superblock().geometry()), (geometry, geometry));
        assert!(device.size() >= mib * MIB);
        use_all(&volume);
        assert!(copies::read(&*device).unwrap().is_whole());
    }
    // Grows to the size of the device.
    device.set_size(100 * MIB).unwrap();
    volume.grow(None).unwrap();
    use_all(&volume);
    let error = volume.grow(Some(99 * MIB)).unwrap_err();
    assert!(matches!(error, GrowError::Size(SizeError::Shrinks { .. })), "{error}");
    let error = volume.grow(Some(17 << 40)).unwrap_err();
    assert!(matches!(error, GrowError::Size(SizeError::TooLarge { .. })), "{error}");
    volume.close().unwrap();
    let volume = open(&device);
    assert_eq!(volume.geometry().blocks(), 100 * 256);
    use_all(&volume);
    volume.close().unwrap();
    let options = Settings { read_only: true, ..Settings::default() };
    let volume = Volume::open(device, options).unwrap();
    assert!(matches!(volume.grow(None), Err(GrowError::Fault(Fault::ReadOnly))));
}

#[test]
fn a_device_without_room_is_full() {
    let device: std::sync::Arc<str> = "/dev/sdx".into();
    let (operation, why) = (Operation::Resize, "the block device is smaller");
    let error = Error::Unsupported { device: device.clone(), operation, why };
    assert_eq!(GrowError::from(error).errno(), Errno::NOSPC);
    let io = |source| Error::Io { device: device.clone(), operation, offset: 0, length: 0, source };
    assert_eq!(GrowError::from(io(OsError::NO_SPACE)).errno(), Errno::NOSPC);
    assert_eq!(GrowError::from(io(OsError::IO)).errno(), Errno::IO);
}

/// A growth that is refused has written nothing: neither the volume nor its device is larger.
#[test]
fn a_volume_that_cannot_grow_any_more_keeps_its_size() {
    let device = made(16 * MIB);
    let volume = open(&device);
    let refused =
        (1..).find_map(|n| volume.grow(Some((16 + 4 * n) * MIB)).err().map(|error| (n, error)));
    let (n, error) = refused.unwrap();
    assert!(matches!(error, GrowError::TooOften), "{error}");
    let size = (12 + 4 * n) * MIB;
    assert_eq!((device.size(), volume.superblock().geometry().bytes()), (size, size));
    use_all(&volume);
    volume.close().unwrap();
    let volume = open(&device);
    use_all(&volume);
    volume.grow(Some(size + 4 * MIB)).unwrap();
    use_all(&volume);
    volume.close().unwrap();
}

/// A growth that fails while the superblock is written leaves the volume with its former size in
/// memory; what closes it says nothing of groups that it does not know.
#[test]
fn a_growth_that_fails_half_way_is_ended_by_the_next_opening() {
    let mut sizes = Vec::new();
    for n in 1.. {
        let inner = made(18 * MIB);
        inner.set_size(30 * MIB).unwrap();
        let faulty = Arc::new(FaultyDevice::new(inner.clone()));
        let device: Arc<dyn Device> = faulty.clone();
        let volume = open(&device);
        // A volume without a change is closed without a write.
        let log_blocks = volume.groups().log_blocks(1, 0);
        let reservation = TxReservation { log_blocks, space: 0, from_pool: true };
        drop(volume.begin(reservation).unwrap());
        faulty.arm(vfscale_testkit::Fault::on(Operation::Write).nth(n));
        let grown = volume.grow(None);
        let fired = faulty.fired();
        faulty.disarm();
        let closed = volume.close();
        drop(volume);
        let volume = open(&inner);
        use_all(&volume);
        sizes.push((grown.is_ok(), closed.is_ok(), volume.geometry().bytes() / MIB));
        volume.close().unwrap();
        if fired == 0 {
            break;
        }
    }
    assert!(sizes.contains(&(false, true, 18)) && sizes.contains(&(false, true, 30)), "{sizes:?}");
}

#[test]
fn a_crash_leaves_one_size_or_the_other() {
    let device = made(18 * MIB);
    device.set_size(30 * MIB).unwrap();
    let recording = Arc::new(RecordingDevice::new(device));
    let recorded: Arc<dyn Device> = recording.clone();
    let volume = open(&recorded);
    volume.grow(None).unwrap();
    volume.close().unwrap();
    let (mut small, mut large) = (0, 0);
    for state in recording.crash_states(CrashPlan::default().listed_max(20).samples(1)) {
        let device: Arc<dyn Device> = state.device();
        let volume = open(&device);
        use_all(&volume);
        match volume.geometry().blocks() / 256 {
            18 => small += 1,
            30 => large += 1,
            other => panic!("{other} MiB"),
        }
        volume.close().unwrap();
        let found = copies::read(&*device).unwrap();
        assert!(found.copies.iter().all(|copy| copy.state == CopyState::Current));
    }
    assert!(small > 5 && large > 5, "{small} {large}");
}
