//! Volumes that get a new log, and lose the changes in the former one.

use vfscale_block::CowDevice;
use vfscale_journal::{
    Error as LogError, Inspection, Known, Lsn, RecordHeader, RecordKind, Region, VolumeId,
};
use vfscale_testkit::{CrashPlan, CrashState, RecordingDevice};

use super::*;
use crate::Settings;
use crate::format::{BLOCK_BYTES, Identity, byte_of_block};
use crate::tools::check::{self, CheckError, Discarded, LogState, Options, Report};
use crate::volume::{Volume, copies};
use crate::{LogPlace, Superblock};

mod unwritable;

/// The number of blocks of the log: few, so it is filled more than once.
const LOG_BLOCKS: u64 = 256;
/// The number of files that are written back.
const HOME: usize = 40;
/// The size of the log in bytes, the smallest that is possible.
const LOG_BYTES: u64 = LOG_BLOCKS * BLOCK_BYTES as u64;

type Shared = Arc<dyn Device>;

/// A volume after a crash, and its log if that is on a separate device.
#[derive(Clone)]
struct Cut {
    volume: Shared,
    log: Option<Shared>,
}

fn name(at: usize) -> String {
    format!("/directory/{at}: a name which is so long that the directory soon needs a tree")
}

fn contents(at: usize) -> Vec<u8> {
    vec![at as u8; 100 + 3000 * (at % 5)]
}

/// Creates files that are written back, and makes more changes that stay in the log.
fn use_it(fs: &Arc<DiskFs>) {
    let vfs = Vfs::new(fs.clone()).unwrap();
    let task = vfs.task();
    task.create_dir("/directory").unwrap();
    for at in 0..HOME {
        task.write(name(at), contents(at)).unwrap();
    }
    fs.sync_fs().unwrap();
    fs.volume().journal().unwrap().quiesce().unwrap();
    for round in 0..4 {
        task.create_dir(format!("/more {round}")).unwrap();
        for at in 0..60 {
            let path = format!("/more {round}/{at}");
            task.write(&path, vec![1; 50 * at]).unwrap();
            let (value, how, at_flags) = (vec![2; 10 * at], XattrFlags::empty(), AtFlags::empty());
            task.posix().setxattrat(At::Cwd, &path, "user.much", &value, how, at_flags).unwrap();
            if at % 3 == 1 {
                task.remove_file(format!("/more {round}/{}", at - 1)).unwrap();
            }
            if at % 10 == 9 {
                fs.sync_fs().unwrap();
            }
        }
    }
}

impl Cut {
    /// Returns a volume whose log has changes to replay: the log's threads may write all of them
    /// back before they are stopped, so this tries until some are left.
    fn new(has_log_outside: bool) -> Self {
        loop {
            let cut = Self::used(has_log_outside);
            if !cut.live().is_empty() {
                break cut;
            }
        }
    }

    fn used(has_log_outside: bool) -> Self {
        let volume: Shared = Arc::new(MemoryDevice::new(32 * MIB).unwrap());
        let log = has_log_outside.then(|| -> Shared { empty(LOG_BYTES) });
        let (log_blocks, log_device) = (Some(LOG_BLOCKS), log.clone());
        let options = MkfsOptions { log_blocks, log_device, ..MkfsOptions::default() };
        mkfs::format(&*volume, &options).unwrap();
        let cut = Self { volume, log };
        let fs = cut.open().unwrap();
        use_it(&fs);
        fs.abandon();
        cut
    }

    fn open(&self) -> Result<Arc<DiskFs>, Fault> {
        let (sync_interval, log_device) = (None, self.log.clone());
        let options = Settings { sync_interval, log_device, ..Settings::default() };
        DiskFs::open(self.volume.clone(), options)
    }

    fn copied(&self) -> Self {
        let copy = |device: &Shared| -> Shared { Arc::new(CowDevice::new(device.clone())) };
        Self { volume: copy(&self.volume), log: self.log.as_ref().map(copy) }
    }

    /// Damages one block of the log.
    fn rot(&self, at: u64) {
        let mut block = vec![0; BLOCK_BYTES];
        self.volume.read_at(at, &mut block).unwrap();
        block[200] ^= 1;
        self.volume.write_at(at, &block).unwrap();
    }

    fn superblock(&self) -> Superblock {
        copies::read(&*self.volume).unwrap().superblock
    }

    /// Returns the device of the log, and its region there.
    fn log(&self) -> (&Shared, Region) {
        match self.superblock().log() {
            LogPlace::Inside { start, blocks } => {
                let region = Region { offset: byte_of_block(start), length: byte_of_block(blocks) };
                (&self.volume, region)
            }
            LogPlace::Outside { blocks, .. } => {
                let region = Region { offset: 0, length: byte_of_block(blocks) };
                (self.log.as_ref().unwrap(), region)
            }
        }
    }

    /// Returns the offsets of the durable data records between tail and head, in bytes of the
    /// device.
    fn live(&self) -> Vec<u64> {
        let (device, region) = self.log();
        let id = VolumeId(self.superblock().volume().to_bytes());
        let inspection = Inspection::new(&**device, region, id).unwrap();
        let live = inspection.live().unwrap();
        let promised = live.iter().map(|record| record.sync_lsn).max().unwrap();
        let is_promised = |record: &&RecordHeader| record.lsn <= promised;
        let live = live.iter().filter(is_promised).filter(|record| record.kind == RecordKind::Data);
        live.map(|record| region.offset + byte_of_block(record.lsn.block().into())).collect()
    }

    fn check(&self, repair: bool, discard_log: bool) -> Result<Report, CheckError> {
        let log = self.log.clone();
        let options = Options { repair, discard_log, log, ..Options::default() };
        check::check(self.volume.clone(), &options, &mut ())
    }

    fn bytes(&self) -> Vec<Vec<u8>> {
        let devices = std::iter::once(&self.volume).chain(&self.log);
        let bytes = |device: &Shared| {
            let mut bytes = vec![0; device.size() as usize];
            // Unreadable blocks are neither changed nor compared.
            for piece in bytes.chunks_mut(4096).enumerate() {
                let _ = device.read_at(byte_of_block(piece.0 as u64), piece.1);
            }
            bytes
        };
        devices.map(bytes).collect()
    }

    /// Asserts that the volume is neither mounted nor repaired without an explicit request, and
    /// that the reports say what can be done.
    fn is_refused(&self, what: &str) {
        let before = self.bytes();
        let refused = self.open().map(drop).unwrap_err();
        assert!(matches!(refused, Fault::Journal(_)), "{what}: {refused}");
        let report = self.check(true, false).unwrap();
        assert_eq!(report.log, LogState::Unusable, "{what}");
        let first = report.findings.first().map(check::Finding::number);
        assert_eq!((first, report.left), (Some(1001), report.count), "{what}");
        let report = self.check(false, true).unwrap();
        assert!(report.discarded.unwrap().why.is_some(), "{what}");
        assert!(self.bytes() == before, "{what}: written");
    }

    /// Gives the volume a new log, and asserts that it is clean and usable then.
    fn discard(&self, what: &str) -> Discarded {
        let report = self.check(true, true).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(report.left, 0, "{what}: {:#?}", self.check(false, false).unwrap().findings);
        self.is_whole(what);
        report.discarded.unwrap()
    }

    /// Asserts that the volume has the files that were written back, and that it is usable.
    fn is_whole(&self, what: &str) {
        assert_eq!(self.check(false, false).unwrap().findings, [], "{what}");
        self.copied().is_used(what);
    }

    fn is_used(&self, what: &str) {
        let fs = self.open().unwrap_or_else(|fault| panic!("{what}: {fault}"));
        assert_eq!(fs.volume().recovered().items, 0, "{what}");
        let vfs = Vfs::new(fs.clone()).unwrap();
        let task = vfs.task();
        for at in 0..HOME {
            assert!(task.read(name(at)).unwrap() == contents(at), "{what}: {at}");
        }
        for at in 0..30 {
            task.write(format!("/new {at}"), vec![at; 5000]).unwrap();
        }
        fs.sync_fs().unwrap();
        fs.abandon();
        drop((task, vfs, fs));
        // After another crash, the synced changes are in the new log.
        let fs = self.open().unwrap_or_else(|fault| panic!("{what}: {fault}"));
        assert!(fs.volume().recovered().items > 0, "{what}");
        let task = Vfs::new(fs.clone()).unwrap().task();
        for at in 0..30 {
            assert!(task.read(format!("/new {at}")).unwrap() == vec![at; 5000], "{what}");
        }
        drop(task);
        fs.close().unwrap();
        drop(fs);
        assert_eq!(self.check(false, false).unwrap().findings, [], "{what}");
    }
}

/// Copies the current contents of a device to a new one.
fn copied(device: &dyn Device) -> Arc<MemoryDevice> {
    let (copy, mut bytes) = (empty(device.size()), vec![0; device.size() as usize]);
    device.read_at(0, &mut bytes).unwrap();
    copy.write_at(0, &bytes).unwrap();
    copy
}

fn empty(bytes: u64) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::new(bytes).unwrap())
}

/// Returns a copy of a device that can't read these bytes until they are written.
fn unreadable(device: &Shared, offset: u64, length: usize) -> Shared {
    let recording = RecordingDevice::new(CowDevice::new(device.clone()));
    recording.write_at(offset, &vec![0; length]).unwrap();
    let plan = CrashPlan::default().lost_in(std::iter::once(offset..offset + length as u64));
    recording.crash_states(plan).filter(CrashState::has_lost).last().unwrap().device()
}

#[test]
fn a_log_that_is_damaged_can_be_thrown_away() {
    let cut = Cut::new(false);
    let live = cut.live();
    assert!(!live.is_empty());
    let (_, region) = cut.log();
    let whole = cut.copied();
    whole.volume.write_at(region.offset, &vec![0; region.length as usize]).unwrap();
    whole.is_refused("no log");
    assert_eq!(whole.discard("no log").records, 0);
    for at in live.iter().step_by((live.len() / 4).max(1)) {
        let what = format!("record at {at}");
        let rotten = cut.copied();
        rotten.rot(*at);
        rotten.is_refused(&what);
        let discarded = rotten.discard(&what);
        assert!(discarded.records > 0 && discarded.checkpoints > 0, "{discarded:?}");
        let lost = Cut { volume: unreadable(&cut.volume, *at, BLOCK_BYTES), log: None };
        lost.is_refused(&what);
        lost.discard(&what);
    }
}

/// The log on a separate device is missing, or another one is in its place.
#[test]
fn a_log_that_is_lost_gets_another_device() {
    let cut = Cut::new(true);
    let former = copied(&**cut.log.as_ref().unwrap());
    // This makes the log later than `former`, the copy that an owner of both may still have.
    let fs = cut.open().unwrap();
    let task = Vfs::new(fs.clone()).unwrap().task();
    task.write("/later", [3; 100]).unwrap();
    drop(task);
    fs.close().unwrap();
    drop(fs);
    let another = empty(2 * LOG_BYTES);
    let before = copied(&*former);
    for (what, log) in [("of before", before), ("new", another)] {
        let lost = Cut { volume: cut.copied().volume, log: Some(log) };
        lost.is_refused(what);
        lost.discard(what);
        assert_eq!(lost.superblock().log().blocks(), LOG_BLOCKS);
        // A device that returns is not the log any more.
        let last = copied(&**cut.log.as_ref().unwrap());
        for log in [last, copied(&*former)] {
            let back = Cut { volume: lost.copied().volume, log: Some(log) };
            let refused = back.open().map(drop).unwrap_err();
            assert!(
                matches!(
                    refused,
                    Fault::Journal(LogError::Stale { .. } | LogError::OtherLog { .. })
                ),
                "{refused}"
            );
        }
    }
}

#[test]
fn a_device_with_something_else_is_no_place_for_a_new_log() {
    let cut = Cut::new(true);
    let other = Cut::new(true);
    let with = |log: Shared| Cut { volume: cut.copied().volume, log: Some(log) };
    let image: Shared = empty(32 * MIB);
    mkfs::format(&*image, &MkfsOptions::default()).unwrap();
    let small: Shared = empty(LOG_BYTES / 2);
    let places = [
        (other.log.unwrap(), "the log of another"),
        (image, "a vfscale volume"),
        (small, "too small"),
    ];
    for (log, why) in places {
        let taken = with(log);
        let before = taken.bytes();
        let error = taken.check(true, true).unwrap_err();
        assert!(matches!(error, CheckError::LogDevice { .. }), "{error}");
        assert!(error.to_string().contains(why), "{error}");
        assert!(taken.bytes() == before, "{error}");
    }
    let error = Cut { log: None, ..cut.copied() }.check(true, true).unwrap_err();
    assert!(error.to_string().contains("name that too"), "{error}");
}

/// A log that can be replayed is replayed, whichever options are given.
#[test]
fn a_log_that_is_whole_loses_nothing() {
    for has_log_outside in [false, true] {
        let cut = Cut::new(has_log_outside);
        let preview = cut.check(false, true).unwrap().discarded.unwrap();
        assert_eq!(preview, Discarded { why: None, checkpoints: 0, records: 0 });
        let report = cut.check(true, true).unwrap();
        assert_eq!((report.count, report.left), (0, 0), "{:?}", report.findings);
        assert!(matches!(report.log, LogState::Replayed { .. }));
        assert_eq!(report.discarded, Some(preview));
        cut.is_whole("replayed");
        let fs = cut.open().unwrap();
        let task = Vfs::new(fs.clone()).unwrap().task();
        assert_eq!(task.read("/more 3/59").unwrap(), vec![1; 50 * 59]);
        drop(task);
        fs.close().unwrap();
    }
}

/// Returns the latest LSN in the headers of groups.
fn newest(cut: &Cut) -> Lsn {
    let places = crate::volume::Places::new(&cut.superblock());
    let headers = (0..).zip(places.headers());
    let place = |(group, address): (u64, u64)| {
        let block = copies::read_block(&*cut.volume, address).unwrap();
        let (magic, volume) = (block.header().magic, cut.superblock().volume());
        block.verify(&Identity { magic, address, owner: group, volume }).unwrap();
        Lsn::from_bits(block.header().lsn.get())
    };
    headers.map(place).max().unwrap()
}

/// Writes a block of metadata with another LSN.
fn set_place(cut: &Cut, address: u64, place: Lsn) {
    let mut block = copies::read_block(&*cut.volume, address).unwrap();
    let header = block.header();
    let (magic, owner, volume) = (header.magic, header.owner.get(), header.volume);
    block.seal(&Identity { magic, address, owner, volume }, place.to_bits());
    cut.volume.write_at(byte_of_block(address), block.bytes()).unwrap();
}

#[test]
fn a_new_log_begins_behind_all_that_is_home() {
    let cut = Cut::new(false);
    let (_, region) = cut.log();
    cut.volume.write_at(region.offset, &vec![0; region.length as usize]).unwrap();
    // The root directory was written back last, by a log of which nothing is known any more.
    let far = Lsn::new(700_000, 3);
    set_place(&cut, 8, far);
    cut.discard("far");
    let seen = cut.superblock().log_seen;
    assert!(Lsn::from_bits(seen.last) > far, "{seen:?}");
    assert!(seen.epoch > 1000);
    // A repair leaves the sums to the next close. It has one itself only if an inode was an orphan.
    let fs = cut.open().unwrap();
    Vfs::new(fs.clone()).unwrap().task().write("/later", b"bytes").unwrap();
    fs.close().unwrap();
    // This LSN is so late that no log can begin behind it.
    let late = Lsn::new(u32::MAX - 1, 7);
    set_place(&cut, 8, late);
    set_place(&cut, 1, late);
    // With the sums of a close, it is found when the group is used; without them, at once.
    let mut superblock = cut.superblock();
    assert!(superblock.sums.take().is_some());
    crate::volume::copies::write(&*cut.volume, &mut superblock).unwrap();
    cut.is_refused("late");
    cut.discard("late");
    assert!(newest(&cut).cycle() < Known::CYCLE_LATE, "{}", newest(&cut));
}

/// A log reaches the end of its cycles: nothing is damaged, and nothing is lost.
#[test]
fn a_log_that_is_worn_out_is_replaced() {
    let cut = Cut::new(false);
    let fs = cut.open().unwrap();
    fs.close().unwrap();
    drop(fs);
    let (device, region) = cut.log();
    let id = VolumeId(cut.superblock().volume().to_bytes());
    let last = Lsn::new(u32::MAX - 1, 0);
    let known = Known { epoch: 1000, last, is_closed: true, ..Known::default() };
    vfscale_journal::Journal::renew(&**device, region, id, &known).unwrap();
    let fs = cut.open().unwrap();
    let task = Vfs::new(fs.clone()).unwrap().task();
    let worn_out = (0..).find_map(|at| {
        let written = task.write(format!("/worn {at}"), vec![at as u8; 300]);
        written
            .and_then(|()| {
                task.posix().open("/", vfscale_vfs::OFlags::RDONLY, Mode::empty())?.sync_fs()
            })
            .err()
    });
    assert_eq!(worn_out.unwrap().errno(), Errno::IO);
    assert!(fs.volume().failure().unwrap().to_string().contains("worn out"));
    drop(task);
    fs.abandon();
    drop(fs);
    // The log may have room for some openings.
    let refused = (0..LOG_BLOCKS).find_map(|_| cut.open().map(|fs| fs.abandon()).err());
    assert!(refused.unwrap().to_string().contains("worn out"));
    let report = cut.check(true, true).unwrap();
    assert_eq!((report.count, report.left), (0, 0), "{:?}", report.findings);
    assert_eq!(report.discarded.unwrap().why, None);
    cut.is_whole("worn out");
    let fs = cut.open().unwrap();
    assert_eq!(Vfs::new(fs.clone()).unwrap().task().read("/worn 1").unwrap(), vec![1; 300]);
    fs.close().unwrap();
    assert!(newest(&cut).cycle() < Known::CYCLE_LATE);
}

/// A discard may be interrupted at any point: the volume is unchanged, or mounts refuse it; and the
/// next discard succeeds.
#[test]
fn throwing_a_log_away_may_be_interrupted() {
    let cut = Cut::new(false);
    let live = cut.live();
    cut.rot(live[0]);
    let device = Arc::new(RecordingDevice::new(cut.volume.clone()));
    let recorded = Cut { volume: device.clone(), log: None };
    assert_eq!(recorded.check(true, true).unwrap().left, 0);
    let (mut before, mut between, mut after) = (0, 0, 0);
    let states: Vec<_> = device.crash_states(CrashPlan::default()).collect();
    let step = (states.len() / 150).max(1);
    // The log is thrown away first. How much is written then depends on what was written back
    // before the cut.
    let chosen = states.iter().enumerate().filter(|(n, _)| *n < 30 || n % step == 0);
    for (_, state) in chosen {
        let crashed = Cut { volume: state.device(), log: None };
        match crashed.copied().open().map(drop) {
            Err(Fault::NeedsRepair) => {
                between += 1;
                // An opening without discard proceeds if the new log exists, and otherwise refuses.
                let other = crashed.copied();
                let unchanged = other.bytes();
                let report = other.check(true, false).unwrap();
                match report.log {
                    LogState::Unusable => assert!(other.bytes() == unchanged, "{state}"),
                    _ => assert_eq!(report.left, 0, "{state}"),
                }
            }
            Err(Fault::Journal(LogError::Device(_) | LogError::Damaged { .. })) => before += 1,
            Ok(()) => after += 1,
            Err(fault) => panic!("{state}: {fault}"),
        }
        crashed.discard(&state.to_string());
    }
    assert!(before > 0 && between > 3 && after > 0, "{before}, {between}, {after}");
}

/// Any state that a crash has left is clean after a repair, even if the log is lost as well.
#[test]
fn repair_mends_a_crash_without_the_log() {
    let base = MemoryDevice::with_block_size(32 * MIB, 512).unwrap();
    let log_blocks = Some(LOG_BLOCKS);
    mkfs::format(&base, &MkfsOptions { log_blocks, ..MkfsOptions::default() }).unwrap();
    let device = Arc::new(RecordingDevice::new(base));
    let recorded = Cut { volume: device.clone(), log: None };
    let fs = recorded.open().unwrap();
    use_it(&fs);
    fs.close().unwrap();
    drop(fs);
    let (_, region) = recorded.log();
    let zeros = vec![0; region.length as usize];
    let states: Vec<_> = device.crash_states(CrashPlan::default()).collect();
    let mut repaired = 0;
    for state in states.iter().step_by((states.len() / 150).max(1)) {
        let crashed = Cut { volume: state.device(), log: None };
        crashed.volume.write_at(region.offset, &zeros).unwrap();
        let report = crashed.check(true, true).unwrap();
        let left = crashed.check(false, false).unwrap().findings;
        assert!(left.is_empty(), "{state}: {left:#?} of {:#?}", report.findings);
        repaired += usize::from(report.count > 1);
        let options = Settings::default();
        drop(
            Volume::open(crashed.volume, options)
                .unwrap_or_else(|fault| panic!("{state}: {fault}")),
        );
    }
    assert!(repaired > 10, "{repaired} of {}", states.len());
}
