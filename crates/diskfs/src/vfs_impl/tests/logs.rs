//! Logs that are not the one used last, and logs that need not be read.

use std::sync::atomic::{AtomicU64, Ordering};

use vfscale_journal::{Error as LogError, Inspection, Lsn, Region};
use vfscale_testkit::{Call, Fault as BlockFault, HookedDevice};

use super::*;
use crate::LogPlace;
use crate::format::Damage;
use crate::volume::copies;

fn bytes(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// A volume with its log on a separate device.
struct Apart {
    volume: Arc<MemoryDevice>,
    log: Arc<MemoryDevice>,
}

impl Apart {
    fn new() -> Self {
        let volume = Arc::new(MemoryDevice::new(32 * MIB).unwrap());
        let log = Arc::new(MemoryDevice::new(4 * MIB).unwrap());
        let options = MkfsOptions { log_device: Some(log.clone()), ..MkfsOptions::default() };
        mkfs::format(&*volume, &options).unwrap();
        Self { volume, log }
    }

    fn open(&self, log: &Arc<MemoryDevice>, read_only: bool) -> Result<Arc<DiskFs>, Fault> {
        let log_device: Arc<dyn Device> = log.clone();
        let options = Settings { log_device: Some(log_device), read_only, ..Settings::default() };
        DiskFs::open(self.volume.clone(), options)
    }

    /// Creates files, and makes them durable.
    fn use_it(&self, name: &str) -> (Arc<DiskFs>, Vfs) {
        let fs = self.open(&self.log, false).unwrap();
        let vfs = Vfs::new(fs.clone()).unwrap();
        let task = vfs.task();
        for at in 0..20 {
            task.write(format!("/{name} {at}"), [7; 5000]).unwrap();
        }
        fs.sync_fs().unwrap();
        drop(task);
        (fs, vfs)
    }

    /// Asserts that the volume does not open with an older log, and that nothing is written.
    fn refuses(&self, old: &Arc<MemoryDevice>, is_it: impl Fn(&Fault) -> bool) {
        let before = (bytes(&*self.volume), bytes(&**old));
        for read_only in [false, true] {
            let refused = self.open(old, read_only).expect_err("an old log is taken");
            assert!(is_it(&refused), "{refused}");
        }
        assert!((bytes(&*self.volume), bytes(&**old)) == before);
        let options = crate::tools::check::Options {
            log: Some(old.clone()),
            ..crate::tools::check::Options::default()
        };
        let report = crate::tools::check::check(self.volume.clone(), &options, &mut ()).unwrap();
        assert!(report.findings.iter().any(|finding| finding.number() == 1001));
        assert!((bytes(&*self.volume), bytes(&**old)) == before);
        self.open(&self.log, false).unwrap().close().unwrap();
    }
}

fn is_stale(fault: &Fault) -> bool {
    matches!(fault, Fault::Journal(LogError::Stale { .. }))
}

#[test]
fn a_log_that_is_older_than_its_volume_is_refused() {
    let apart = Apart::new();
    let (fs, vfs) = apart.use_it("first");
    let old = copy_of(&*apart.log);
    vfs.task().write("/later", b"later").unwrap();
    drop(vfs);
    fs.close().unwrap();
    drop(fs);
    apart.refuses(&old, is_stale);
    // The old log is a half of a mirror that was detached while the volume was used and then
    // crashed.
    let old = copy_of(&*apart.log);
    drop(apart.use_it("second"));
    apart.refuses(&old, is_stale);
}

/// The superblock knows only of the opening; the blocks written back tell more.
#[test]
fn a_log_that_is_older_than_what_is_home_is_refused() {
    let apart = Apart::new();
    let (fs, vfs) = apart.use_it("first");
    let old = copy_of(&*apart.log);
    vfs.task().write("/later", vec![1; 100_000]).unwrap();
    fs.sync_fs().unwrap();
    fs.volume().journal().unwrap().quiesce().unwrap();
    fs.abandon();
    drop((vfs, fs));
    apart.refuses(&old, |fault| match fault {
        Fault::Journal(LogError::Client(error)) => {
            let fault = error.downcast_ref::<Fault>();
            matches!(fault, Some(Fault::Damage(Damage::Newer { .. })))
        }
        Fault::Damage(Damage::Newer { .. }) => true,
        _ => false,
    });
}

/// Two volumes have the same id, as after copying a whole volume, and each has its own log.
#[test]
fn the_log_of_another_volume_with_the_same_id_is_refused() {
    let (one, other) = (Apart::new(), Apart::new());
    let uuid = crate::Uuid::from_bytes(*b"two with one id.");
    for apart in [&one, &other] {
        let log_device: Arc<dyn Device> = apart.log.clone();
        let options = MkfsOptions {
            log_device: Some(log_device),
            uuid: Some(uuid),
            force: true,
            ..MkfsOptions::default()
        };
        mkfs::format(&*apart.volume, &options).unwrap();
        let (fs, vfs) = apart.use_it("file");
        drop(vfs);
        fs.close().unwrap();
    }
    let is_other = |fault: &Fault| matches!(fault, Fault::Journal(LogError::OtherLog { .. }));
    one.refuses(&other.log, |fault| is_other(fault) || is_stale(fault));
    let refused = |volume: &Apart, log| volume.open(log, false).err().is_some_and(|f| is_other(&f));
    assert!(refused(&one, &other.log) || refused(&other, &one.log));
}

/// The end of the log can't be read when the volume is opened: an error that passes costs nothing,
/// an opening to read goes on without what it can't read, and a repair ends the log there if the
/// error stays.
#[test]
fn a_log_whose_end_cannot_be_read() {
    let mounted = made(16 * MIB);
    mounted.write("/early", b"early");
    mounted.fs.sync_fs().unwrap();
    let (early, _) = end_of_log(&mounted.copy());
    mounted.write("/synced", b"synced");
    mounted.fs.sync_fs().unwrap();
    let crashed = mounted.copy();
    let (last, at) = end_of_log(&crashed);
    assert!(last > early);
    for (is_lost, discard_log) in [(false, false), (true, false), (true, true)] {
        let device = Arc::new(FaultyDevice::new(copy_of(&*crashed)));
        let before = bytes(&**device.inner());
        device.arm(BlockFault::on(Operation::Read).within(at..at + 512));
        let open = |read_only| {
            let options = Settings { read_only, ..Settings::default() };
            DiskFs::open(device.clone(), options)
        };
        let refused = open(false).expect_err("changes are given up");
        assert!(matches!(refused, Fault::Journal(LogError::EndUnread { lsn, .. }) if lsn == last));
        assert_eq!(refused.errno(), Errno::IO);
        let fs = open(true).unwrap();
        assert_eq!(fs.opened().log.cut, Some(last));
        let task = Vfs::new(fs).unwrap().task();
        assert_eq!(task.read("/early").unwrap(), b"early");
        assert!(task.read("/synced").is_err());
        let check = |repair| {
            let discard_log = discard_log && repair;
            let options =
                crate::tools::check::Options { repair, discard_log, ..Default::default() };
            let report = crate::tools::check::check(device.clone(), &options, &mut ()).unwrap();
            let numbers: Vec<u32> = report.findings.iter().map(|found| found.number()).collect();
            (numbers, report.left)
        };
        assert_eq!(check(false).0, [1003]);
        device.disarm();
        assert!(bytes(&**device.inner()) == before);
        if is_lost {
            // Until it is written.
            let (inner, heals) = (device.clone(), at..at + 4096);
            device.arm(BlockFault::on(Operation::Read).within(at..at + 512));
            device.arm(BlockFault::on(Operation::Write).within(heals).run(move || inner.disarm()));
            let told = if discard_log { 1001 } else { 1003 };
            assert_eq!(check(true), (vec![told], 0));
            assert_eq!(check(true), (vec![], 0));
        }
        let task = Vfs::new(open(false).unwrap()).unwrap().task();
        assert_eq!(task.read("/early").unwrap(), b"early");
        assert_eq!(task.read("/synced").is_ok(), !is_lost);
    }
}

/// Returns the LSN of the last record of a log, and its place on the device.
fn end_of_log(device: &Arc<MemoryDevice>) -> (Lsn, u64) {
    let superblock = copies::read(&**device).unwrap().superblock;
    let LogPlace::Inside { start, blocks } = superblock.log() else { panic!() };
    let region = Region { offset: start * 4096, length: blocks * 4096 };
    let id = crate::volume::log_id(&superblock);
    let inspection = Inspection::new(&**device, region, id).unwrap();
    let last = inspection.live().unwrap().last().unwrap().lsn;
    (last, region.offset + u64::from(last.block()) * 4096)
}

#[test]
fn opening_a_large_volume_that_was_made_or_closed_reads_little() {
    const MOST: u64 = 16 * MIB;
    let inner = MemoryDevice::new(1 << 40).unwrap();
    let device = Arc::new(HookedDevice::new(inner, AtomicU64::new(0), |inner, read, call| {
        if let Call::Read(_, buf) = &call {
            read.fetch_add(buf.len() as u64, Ordering::Relaxed);
        }
        call.pass(inner)
    }));
    let taken = || device.state.swap(0, Ordering::Relaxed);
    mkfs::format(&*device, &MkfsOptions::default()).unwrap();
    let open = |read_only| {
        DiskFs::open(device.clone(), Settings { read_only, ..Settings::default() }).unwrap()
    };
    taken();
    open(true).close().unwrap();
    let fs = open(false);
    let read = taken();
    assert!(read < MOST, "{read} bytes of a new volume");
    let task = Vfs::new(fs.clone()).unwrap().task();
    (0..100).for_each(|at| task.write(format!("/{at}"), [1; 9000]).unwrap());
    drop(task);
    fs.close().unwrap();
    drop(fs);
    for read_only in [true, false, true] {
        taken();
        let fs = open(read_only);
        let read = taken();
        assert!(read < MOST, "{read} bytes, read only: {read_only}");
        fs.close().unwrap();
    }
    let options = crate::tools::check::Options::default();
    let report = crate::tools::check::check(device.clone(), &options, &mut ()).unwrap();
    assert_eq!((report.findings, report.log), (vec![], crate::tools::check::LogState::Clean));
    let read = taken();
    assert!(read < MOST, "{read} bytes for a check");
    // After a crash the log is read, unless nothing was changed before.
    let fs = open(false);
    fs.abandon();
    drop(fs);
    taken();
    let fs = open(false);
    assert!(taken() < MOST);
    drop(fs.volume().begin(fs.needs.record).unwrap());
    fs.abandon();
    drop(fs);
    taken();
    open(false).close().unwrap();
    assert!(taken() >= 1 << 30);
}
