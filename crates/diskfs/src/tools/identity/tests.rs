use vfscale_block::{MemoryDevice, Operation, OsError};
use vfscale_testkit::{Fault, FaultyDevice, RecordingDevice};
use vfscale_vfs::{Task, Vfs};

use super::*;
use crate::Settings;
use crate::base::fault::Fault as Refusal;
use crate::format::superblock::Features;
use crate::tools::check::{Options, check};
use crate::tools::mkfs::{MkfsOptions, format};
use crate::vfs_impl::DiskFs;

const ID: Uuid = Uuid::from_bytes(*b"a number as made");
const NEW: Uuid = Uuid::from_bytes(*b"one of their own");

fn memory(bytes: u64) -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new(bytes).unwrap())
}

/// Copies a device.
fn copied(device: &Arc<dyn Device>) -> Arc<dyn Device> {
    let copy = memory(device.size());
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    copy.write_at(0, &bytes).unwrap();
    copy
}

fn open(device: &Arc<dyn Device>, log: Option<&Arc<dyn Device>>) -> Result<Arc<DiskFs>, Refusal> {
    let options = Settings { log_device: log.cloned(), ..Settings::default() };
    DiskFs::open(device.clone(), options)
}

/// Opens a volume, calls `work`, and then closes the volume if `work` returns true, or else
/// abandons it.
fn with(device: &Arc<dyn Device>, log: Option<&Arc<dyn Device>>, work: impl FnOnce(&Task) -> bool) {
    let fs = open(device, log).unwrap();
    let vfs = Vfs::new(fs.clone()).unwrap();
    let is_closed = work(&vfs.task());
    drop(vfs);
    if is_closed { fs.close().unwrap() } else { fs.abandon() }
}

/// Creates a volume with files, closed or not, and its log if that is on a separate device.
fn made(has_log: bool, is_closed: bool) -> (Arc<dyn Device>, Option<Arc<dyn Device>>) {
    let (device, log) = (memory(32 << 20), has_log.then(|| memory(4 << 20)));
    let options = MkfsOptions { uuid: Some(ID), log_device: log.clone(), ..MkfsOptions::default() };
    format(&*device, &options).unwrap();
    with(&device, log.as_ref(), |task| {
        (0..40).for_each(|at| task.write(format!("/{at}"), [1; 5000]).unwrap());
        task.posix().sync();
        is_closed
    });
    (device, log)
}

fn superblock(device: &Arc<dyn Device>) -> Superblock {
    copies::read(&**device).unwrap().superblock
}

/// Asserts that the volume is whole, has its files and is usable.
fn assert_whole(device: &Arc<dyn Device>, log: Option<&Arc<dyn Device>>) {
    with(device, log, |task| {
        (0..40).for_each(|at| assert_eq!(task.read(format!("/{at}")).unwrap(), [1; 5000]));
        task.write("/after", "it").unwrap();
        true
    });
    let options = Options { log: log.cloned(), ..Options::default() };
    assert_eq!(check(device.clone(), &options, &mut ()).unwrap().findings, []);
}

#[test]
fn the_id_that_is_shown_is_another_and_back_again() {
    for is_closed in [true, false] {
        let (device, _) = made(false, is_closed);
        for id in [NEW, Uuid::random().unwrap()] {
            let written = set_id(&device, None, Some(id)).unwrap();
            assert_eq!(written, superblock(&device));
            assert_eq!((written.id(), written.volume()), (id, ID));
            assert_eq!(written.features.compat, Features::OWN_ID);
        }
        assert_whole(&device, None);
        assert_eq!(set_id(&device, None, None).unwrap().id(), ID);
        assert_eq!(superblock(&device).features, Features::default());
        assert_whole(&device, None);
    }
}

/// The power fails while the superblock and its copies are written.
#[test]
fn a_crash_leaves_the_one_id_or_the_other() {
    let (device, _) = made(false, false);
    let recording = Arc::new(RecordingDevice::new(device));
    let recorded: Arc<dyn Device> = recording.clone();
    set_id(&recorded, None, Some(NEW)).unwrap();
    let mut seen = [0; 2];
    for state in recording.crash_states(vfscale_testkit::CrashPlan::default()) {
        let device: Arc<dyn Device> = state.device();
        let superblock = superblock(&device);
        assert_eq!(superblock.volume(), ID);
        seen[usize::from(superblock.id() == NEW)] += 1;
        assert!([ID, NEW].contains(&superblock.id()));
        assert_whole(&device, None);
    }
    assert!(seen.iter().all(|states| *states > 0), "{seen:?}");
}

/// A volume and its log are copied: each volume accepts only its own log.
#[test]
fn a_copy_does_not_take_the_log_of_the_first() {
    let (device, log) = made(true, true);
    let (copy, log_of_copy) = (copied(&device), log.as_ref().map(copied));
    set_id(&copy, log_of_copy.as_ref(), Some(NEW)).unwrap();
    assert_ne!(superblock(&copy).log(), superblock(&device).log());
    for (device, log) in [(&device, &log), (&copy, &log_of_copy)] {
        assert_whole(device, log.as_ref());
        assert_whole(device, log.as_ref());
    }
    for (device, log) in [(&device, &log_of_copy), (&copy, &log)] {
        let refused = open(device, log.as_ref()).expect_err("it is the other's");
        let is_it = matches!(
            refused,
            Refusal::Journal(
                vfscale_journal::Error::OtherLog { .. } | vfscale_journal::Error::Stale { .. }
            )
        );
        assert!(is_it, "{refused}");
    }
    assert_whole(&device, log.as_ref());
}

/// From any write on, the device of the log, or the one of the volume, fails all writes.
#[test]
fn an_end_at_any_write_leaves_a_volume_with_its_log() {
    let (device, log) = made(true, true);
    let log = log.unwrap();
    let mut tried = [0; 2];
    for (of_log, tried) in [false, true].into_iter().zip(&mut tried) {
        for write in 1.. {
            let faulty = [&device, &log].map(|device| Arc::new(FaultyDevice::new(copied(device))));
            let fault = Fault::on(Operation::Write).from(write).fail(OsError::IO);
            faulty[usize::from(of_log)].arm(fault);
            let [device, log] =
                faulty.each_ref().map(|device| -> Arc<dyn Device> { device.clone() });
            let is_whole = set_id(&device, Some(&log), Some(NEW)).is_ok();
            faulty.iter().for_each(|device| device.disarm());
            assert!([ID, NEW].contains(&superblock(&device).id()));
            assert_whole(&device, Some(&log));
            if is_whole {
                break;
            }
            *tried += 1;
        }
    }
    assert!(tried.iter().all(|tried| *tried >= 3), "{tried:?}");
}

#[test]
fn set_id_refuses_impossible_changes() {
    let (device, log) = made(true, false);
    let refused = |device, log: Option<&_>, id| set_id(device, log, Some(id)).unwrap_err();
    assert!(matches!(refused(&device, None, NEW), IdError::LogDevice(_)));
    assert!(matches!(refused(&device, log.as_ref(), Uuid::NIL), IdError::Nil));
    assert!(matches!(refused(&device, log.as_ref(), NEW), IdError::NotClean));
    let (inside, _) = made(false, true);
    assert!(matches!(refused(&inside, log.as_ref(), NEW), IdError::LogDevice(_)));
    assert!(matches!(refused(&memory(32 << 20), None, NEW), IdError::Open(_)));
    assert_eq!([&device, &inside].map(|device| superblock(device).id()), [ID; 2]);
}
