//! The logs of volumes on copies of a device: each has its own.

use std::collections::BTreeSet;
use std::ops::Range;

use vfscale_block::CowDevice;
use vfscale_testkit::{CrashPlan, HookedDevice, RecordingDevice};

use super::*;
use crate::format::byte_of_block;
use crate::tools::check::{self, LogState};
use crate::volume::copies;
use crate::{LogPlace, Superblock, Uuid};

/// Returns a device that is a copy of another one, if it has an id.
fn named<D: Device>(inner: D, id: Option<[u8; 16]>) -> HookedDevice<D, ()> {
    let mut device = HookedDevice::new(inner, (), |inner, (), call| call.pass(inner));
    device.identity = id;
    device
}

const COPY: [u8; 16] = *b"the first copy..";
const OTHER: [u8; 16] = *b"the second copy.";

fn options() -> Settings {
    let branch_log_blocks = Some(300);
    let mut options = Settings { sync_interval: None, branch_log_blocks, ..Settings::default() };
    options.journal.scaling = Scaling::with_slots(1);
    options
}

fn open(device: &Arc<dyn Device>, id: Option<[u8; 16]>) -> (Arc<DiskFs>, Vfs) {
    let named = Arc::new(named(device.clone(), id));
    let fs = DiskFs::open(named, options()).unwrap();
    (fs.clone(), Vfs::new(fs).unwrap())
}

/// Ends as a crash does.
fn crash((fs, vfs): (Arc<DiskFs>, Vfs)) {
    drop(vfs);
    fs.abandon();
}

fn close((fs, vfs): (Arc<DiskFs>, Vfs)) {
    drop(vfs);
    fs.close().unwrap();
}

fn names(vfs: &Vfs) -> BTreeSet<String> {
    let task = vfs.task();
    let entries = task.read_dir("/").unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

fn superblock(device: &Arc<dyn Device>) -> Superblock {
    copies::read(device).unwrap().superblock
}

fn checked(device: &Arc<dyn Device>) -> LogState {
    let report = check::check(device.clone(), &check::Options::default(), &mut ()).unwrap();
    assert_eq!(report.findings, []);
    report.log
}

fn copy_of(device: &Arc<dyn Device>) -> Arc<dyn Device> {
    Arc::new(CowDevice::new(device.clone()))
}

/// A volume with directories of which the log alone knows, and others.
fn parent() -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 * MIB).unwrap());
    let log_blocks = Some(1000);
    mkfs::format(&device, &MkfsOptions { log_blocks, ..MkfsOptions::default() }).unwrap();
    let (fs, vfs) = open(&device, None);
    (0..40).for_each(|n| vfs.task().create_dir(format!("/home{n}")).unwrap());
    close((fs, vfs));
    let (fs, vfs) = open(&device, None);
    (0..40).for_each(|n| vfs.task().create_dir(format!("/log{n}")).unwrap());
    fs.sync_fs().unwrap();
    crash((fs, vfs));
    device
}

fn all() -> BTreeSet<String> {
    (0..40).flat_map(|n| [format!("home{n}"), format!("log{n}")]).collect()
}

#[test]
fn a_copy_gets_a_small_log_once() {
    let parent = parent();
    let before = superblock(&parent);
    let copy = copy_of(&parent);
    let opened = open(&copy, Some(COPY));
    assert!(opened.0.opened().log.items > 0);
    assert_eq!(names(&opened.1), all());
    let now = superblock(&copy);
    assert_eq!(now.log_id(), Some(Uuid::from_bytes(COPY)));
    assert_eq!((now.log_blocks(), now.log()), (300, before.log()));
    assert_eq!(now.generation(), before.generation() + 1);
    crash(opened);
    // Nothing was changed, so nothing was written, and there is nothing to replay.
    assert_eq!(superblock(&copy), now);
    assert_eq!(checked(&copy), LogState::Clean);
    // The log wraps around the end of the small log, and survives a crash.
    let opened = open(&copy, Some(COPY));
    assert_eq!(opened.0.opened().log.items, 0);
    for round in 0..60 {
        (0..60).for_each(|n| opened.1.task().write(format!("/{n}"), [round; 9000]).unwrap());
        (0..60).for_each(|n| opened.1.task().remove_file(format!("/{n}")).unwrap());
        opened.0.sync_fs().unwrap();
        opened.0.volume().journal().unwrap().quiesce().unwrap();
    }
    opened.1.task().create_dir("/mine").unwrap();
    opened.0.sync_fs().unwrap();
    crash(opened);
    assert!(matches!(checked(&copy), LogState::Replayed { .. }));
    // A copy of the copy gets another one. A device without an identity leaves the log alone.
    let second = copy_of(&copy);
    for id in [Some(OTHER), None] {
        let opened = open(&second, id);
        assert!(names(&opened.1).contains("mine"));
        close(opened);
        assert_eq!(superblock(&second).log_id(), Some(Uuid::from_bytes(OTHER)));
        assert_eq!(checked(&second), LogState::Clean);
    }
    // The parent is what it was.
    assert_eq!((superblock(&parent).log_id(), superblock(&parent)), (None, before));
    close(open(&parent, None));
    assert_eq!(checked(&parent), LogState::Clean);
}

#[test]
fn reading_a_copy_replays_the_log_of_the_other_one_in_memory() {
    let parent = parent();
    let before = superblock(&parent);
    let named = Arc::new(named(parent.clone(), Some(COPY)));
    let options = Settings { read_only: true, ..options() };
    let fs = DiskFs::open(named, options).unwrap();
    assert!(fs.opened().log.items > 0);
    assert_eq!(names(&Vfs::new(fs.clone()).unwrap()), all());
    fs.close().unwrap();
    assert_eq!(superblock(&parent), before);
}

#[test]
fn a_volume_made_on_a_copy_has_the_log_from_the_beginning() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 * MIB).unwrap());
    let named = named(device.clone(), Some(COPY));
    let made = mkfs::format(&named, &MkfsOptions::default()).unwrap();
    assert_eq!(made.log_id(), Some(Uuid::from_bytes(COPY)));
    assert_eq!(made.log_blocks(), made.log().blocks());
    close(open(&device, Some(COPY)));
    assert_eq!(superblock(&device), made);
    assert_eq!(checked(&device), LogState::Clean);
}

#[test]
fn a_copy_with_its_log_elsewhere_is_refused() {
    let volume: Arc<dyn Device> = Arc::new(MemoryDevice::new(32 * MIB).unwrap());
    let log: Arc<dyn Device> = Arc::new(MemoryDevice::new(4 * MIB).unwrap());
    let apart = MkfsOptions { log_device: Some(log.clone()), ..MkfsOptions::default() };
    mkfs::format(&*volume, &apart).unwrap();
    let named = Arc::new(named(volume, Some(COPY)));
    let options = Settings { log_device: Some(log), ..options() };
    assert!(matches!(DiskFs::open(named, options).err(), Some(Fault::LogDevice(_))));
}

/// A crash while the copy gets its log, and while the log is used first.
#[test]
fn the_change_of_logs_survives_every_crash() {
    let parent = parent();
    let recorded = Arc::new(RecordingDevice::new(copy_of(&parent)));
    let device: Arc<dyn Device> = recorded.clone();
    let opened = open(&device, Some(COPY));
    recorded.mark("opened");
    opened.1.task().create_dir("/mine").unwrap();
    opened.0.sync_fs().unwrap();
    recorded.mark("synced");
    close(opened);
    let (mut states, mut with_former) = (0, 0);
    for state in recorded.crash_states(CrashPlan::default().listed_max(6).samples(2)) {
        states += 1;
        let device: Arc<dyn Device> = state.device();
        let is_former = superblock(&device).log_id().is_none();
        with_former += usize::from(is_former);
        assert!(!is_former || state.marks() == 0, "{}", state.id());
        checked(&device);
        let again = Arc::new(RecordingDevice::new(device.clone()));
        let opened = open(&(again.clone() as Arc<dyn Device>), Some(COPY));
        let mut found = names(&opened.1);
        assert!(found.remove("mine") || state.marks() < 2, "{}", state.id());
        assert_eq!(found, all(), "{}", state.id());
        opened.1.task().create_dir("/again").unwrap();
        close(opened);
        checked(&(again as Arc<dyn Device>));
    }
    assert!(with_former > 10 && states > with_former + 10, "{with_former} of {states}");
}

/// Opens a copy whose log has the default size.
fn open_default(device: &Arc<dyn Device>) -> (Arc<DiskFs>, Vfs) {
    let named = Arc::new(named(device.clone(), Some(COPY)));
    let fs = DiskFs::open(named, Settings { branch_log_blocks: None, ..options() }).unwrap();
    (fs.clone(), Vfs::new(fs).unwrap())
}

/// Fills the log of a copy many times, and leaves a directory that was synced.
fn fill_the_log((fs, vfs): &(Arc<DiskFs>, Vfs), rounds: Range<u32>) {
    for round in rounds {
        (0..60).for_each(|n| vfs.task().write(format!("/{n}"), [7; 9000]).unwrap());
        (0..60).for_each(|n| vfs.task().remove_file(format!("/{n}")).unwrap());
        vfs.task().create_dir(format!("/busy{round}")).unwrap();
        fs.sync_fs().unwrap();
    }
}

/// A copy that was busy has a larger log when it is opened again, in which nothing of the former
/// one counts. A crash at any time of the close leaves the one or the other.
#[test]
fn a_busy_copy_gets_a_larger_log_when_it_is_closed() {
    const ROUNDS: u32 = 400;
    let parent = parent();
    let recorded = Arc::new(RecordingDevice::new(copy_of(&parent)));
    let device: Arc<dyn Device> = recorded.clone();
    close(open_default(&device));
    assert_eq!(superblock(&device).log_blocks(), 256);
    let opened = open_default(&device);
    fill_the_log(&opened, 0..1);
    close(opened);
    assert_eq!(superblock(&device).log_blocks(), 256);
    let opened = open_default(&device);
    fill_the_log(&opened, 1..ROUNDS);
    recorded.mark("synced");
    close(opened);
    let busy = |count: u32| (0..count).map(|n| format!("busy{n}")).chain(all()).collect();
    let before: BTreeSet<String> = busy(ROUNDS);
    let now = superblock(&device);
    assert_eq!((now.log_blocks(), now.log_id()), (1000, Some(Uuid::from_bytes(COPY))));
    assert_eq!(checked(&device), LogState::Clean);
    let (mut small, mut large) = (0, 0);
    for state in recorded.crash_states(CrashPlan::default().listed_max(3).samples(1)) {
        if state.marks() == 0 {
            continue;
        }
        let device: Arc<dyn Device> = state.device();
        *(if superblock(&device).log_blocks() == 256 { &mut small } else { &mut large }) += 1;
        let opened = open_default(&device);
        assert_eq!(names(&opened.1), before, "{}", state.id());
        crash(opened);
        checked(&device);
    }
    assert!(small > 5 && large > 5, "{small} small, {large} large");
    // The larger log begins, and survives a crash.
    let opened = open_default(&device);
    assert_eq!((opened.0.opened().log.items, names(&opened.1)), (0, before));
    fill_the_log(&opened, ROUNDS..2 * ROUNDS);
    crash(opened);
    assert!(matches!(checked(&device), LogState::Replayed { .. }));
    let opened = open_default(&device);
    assert_eq!(names(&opened.1), busy(2 * ROUNDS));
    close(opened);
    assert_eq!(superblock(&device).log_blocks(), 1000);
}

/// Overwrites a block with zeros, as if it had rotted.
fn rot(device: &Arc<dyn Device>, block: u64) {
    device.write_at(byte_of_block(block), &[0; 4096]).unwrap();
}

/// No superblock tells that the first epoch of the own log has begun, but what was synced in it
/// depends on no block that may rot.
#[test]
fn a_new_own_log_is_not_lost_with_superblocks() {
    let copy = copy_of(&parent());
    let opened = open(&copy, Some(COPY));
    let generation = superblock(&copy).generation();
    opened.1.task().create_dir("/mine").unwrap();
    opened.0.sync_fs().unwrap();
    crash(opened);
    let now = superblock(&copy);
    assert!(now.log_seen.is_closed && now.generation() == generation);
    let LogPlace::Inside { start, .. } = now.log() else { unreachable!() };
    let copies: Vec<u64> = now.geometry().copies().collect();
    for left in &copies {
        let device = copy_of(&copy);
        copies.iter().filter(|block| *block != left).for_each(|block| rot(&device, *block));
        let opened = open(&device, Some(COPY));
        assert!(names(&opened.1).contains("mine"), "{left}");
        crash(opened);
        // Without the opening record, which is the first one, the loss is told.
        let device = copy_of(&copy);
        copies.iter().filter(|block| *block != left).for_each(|block| rot(&device, *block));
        rot(&device, start + 1);
        let named = Arc::new(named(device, Some(COPY)));
        let error = DiskFs::open(named, options()).unwrap_err();
        assert!(matches!(error, Fault::Journal(_)), "{error}");
    }
}

/// Everything of a new log may be at home when a crash comes, with the state of the groups that
/// its superblock tells long gone.
#[test]
fn sums_of_a_superblock_end_with_the_first_record_of_a_new_log() {
    let parent = parent();
    close(open(&parent, None));
    let copy = copy_of(&parent);
    let opened = open(&copy, Some(COPY));
    let before = opened.1.task().posix().statfs(At::Cwd, "/").unwrap();
    (0..50).for_each(|n| opened.1.task().write(format!("/{n}"), [1; 40_000]).unwrap());
    opened.0.sync_fs().unwrap();
    drop(opened.0.volume().freeze().unwrap());
    let used = opened.1.task().posix().statfs(At::Cwd, "/").unwrap();
    assert!(used.blocks_free < before.blocks_free);
    crash(opened);
    assert!(superblock(&copy).sums.is_some());
    assert_eq!(checked(&copy), LogState::Clean);
    let opened = open(&copy, Some(COPY));
    assert_eq!(opened.0.opened().log.items, 0);
    let again = opened.1.task().posix().statfs(At::Cwd, "/").unwrap();
    assert_eq!((again.blocks_free, again.files_free), (used.blocks_free, used.files_free));
    crash(opened);
}

/// Runs two copies with equal histories, and lets one of them find in the place of its last record
/// the record of the other one, as storage does that was the other one's before. Returns the names
/// that it then has.
fn with_a_record_of_the_other(ids: [Option<[u8; 16]>; 2]) -> BTreeSet<String> {
    let parent = parent();
    let copies = ids.map(|id| {
        let copy = copy_of(&parent);
        let opened = open(&copy, id);
        // The epoch begins.
        drop(opened.0.volume().begin(opened.0.needs.record).unwrap());
        (copy, opened)
    });
    let [(own, opened), (other, others)] = copies;
    let crashed: Arc<dyn Device> = Arc::new(MemoryDevice::new(own.size()).unwrap());
    let mut bytes = vec![0; own.size() as usize];
    own.read_at(0, &mut bytes).unwrap();
    crashed.write_at(0, &bytes).unwrap();
    opened.1.task().create_dir("/mine").unwrap();
    others.1.task().create_dir("/your").unwrap();
    opened.0.sync_fs().unwrap();
    others.0.sync_fs().unwrap();
    let LogPlace::Inside { start, blocks } = superblock(&own).log() else { unreachable!() };
    let read = |device: &Arc<dyn Device>, block: u64| {
        let mut bytes = [0; 4096];
        device.read_at(byte_of_block(block), &mut bytes).unwrap();
        bytes
    };
    for block in start..start + blocks {
        if read(&crashed, block) != read(&own, block) {
            crashed.write_at(byte_of_block(block), &read(&other, block)).unwrap();
        }
    }
    crash(opened);
    crash(others);
    let opened = open(&crashed, ids[0]);
    let names = names(&opened.1);
    crash(opened);
    names
}

#[test]
fn a_record_of_another_copy_is_none_of_ones_own() {
    assert_eq!(with_a_record_of_the_other([Some(COPY), Some(OTHER)]), all());
    // Two logs with one id: the test does find what the ids prevent.
    let mixed = with_a_record_of_the_other([None, None]);
    assert!(mixed.contains("your"));
}
