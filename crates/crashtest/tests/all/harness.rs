//! Tests of the crash test itself, on a file system that writes its whole tree at each sync,
//! alternately to one of two slots, which is crash-safe. Each of the faults injected in it must be
//! detected.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vfscale::posix::{At, AtFlags, InodeFlags, SetTime, XattrFlags};
use vfscale::{Errno, FileType, Mode, Task, Timestamp, Vfs};
use vfscale_block::{Device, Operation};
use vfscale_crashtest::ace::{self, Table};
use vfscale_crashtest::faults::{Extent, Faults, WorstError};
use vfscale_crashtest::script::{self, Script};
use vfscale_crashtest::subject::{Disk, Opened, Subject};
use vfscale_crashtest::sweep::{Summary, Sweep, SweepPlan, Violation};
use vfscale_sync::random::Random;
use vfscale_testkit::calls::compound::Compound;

const DEVICE: u64 = 32 << 20;
const SLOT: u64 = 8 << 20;
const HEADER: usize = 512;

/// An injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    Nothing,
    /// No flush between the tree and the header that makes it valid.
    NoBarrier,
    /// `fsync` has no effect.
    FsyncLies,
    /// `sync` has no effect.
    SyncLies,
    /// Attributes are not stored.
    NoXattrs,
    /// Data of files of at least this length are not stored.
    NoLongData,
    /// All trees are written to one slot.
    OneSlot,
    /// Hard links become separate files.
    NoLinks,
    /// Times are not stored.
    NoTimes,
    /// `fsync` of a file stores no times.
    NoTimesOfFsync,
    /// A failed flush is treated as a successful one.
    FlushesAreWell,
}

struct Images(Planted);

struct Image {
    vfs: Vfs,
    device: Arc<dyn Device>,
    planted: Planted,
    next: AtomicU64,
}

impl Subject for Images {
    fn format(&self, disks: &[Disk]) -> Result<(), String> {
        let vfs = memory();
        let image = Image { vfs, device: disks[0].clone(), planted: self.0, next: 1.into() };
        image.store().map_err(|errno| errno.to_string())
    }

    fn open(&self, disks: &[Disk]) -> Result<Box<dyn Opened>, String> {
        let device = disks[0].clone();
        let newest = (0..2).filter_map(|slot| read_slot(&*device, slot)).max_by_key(|slot| slot.0);
        let (number, text) = newest.ok_or("no slot is valid")?;
        let vfs = memory();
        load(&vfs.task(), &text);
        Ok(Box::new(Image { vfs, device, planted: self.0, next: (number + 1).into() }))
    }

    fn keeps_all_times(&self) -> bool {
        false
    }

    fn check(&self, disks: &[Disk]) -> Result<(), String> {
        (0..2).find_map(|slot| read_slot(&*disks[0], slot)).map(drop).ok_or("no slot".into())
    }
}

impl Opened for Image {
    fn vfs(&self) -> &Vfs {
        &self.vfs
    }

    fn done(&self, op: &Compound) -> Result<(), Errno> {
        let timeless = self.planted == Planted::NoTimesOfFsync && !op.is_fsync_of_dir();
        match op.synced() {
            _ if op.syncs_all() && self.planted != Planted::SyncLies => self.store(),
            Some((_, false)) if timeless => self.store_with(false),
            Some(_) if self.planted != Planted::FsyncLies => self.store(),
            _ => Ok(()),
        }
    }

    fn close(self: Box<Self>) -> Result<(), String> {
        self.store().map_err(|errno| errno.to_string())
    }
}

fn memory() -> Vfs {
    vfscale::memory().size(64 << 20).build().unwrap()
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}

fn read_slot(device: &dyn Device, slot: u64) -> Option<(u64, Vec<u8>)> {
    let mut header = [0; HEADER];
    device.read_at(slot * SLOT, &mut header).ok()?;
    let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap());
    if word(0) == 0 || word(8) > SLOT - HEADER as u64 {
        return None;
    }
    let mut text = vec![0; word(8) as usize];
    device.read_at(slot * SLOT + HEADER as u64, &mut text).ok()?;
    (sum(&text) == word(16)).then_some((word(0), text))
}

impl Image {
    fn store(&self) -> Result<(), Errno> {
        self.store_with(self.planted != Planted::NoTimes)
    }

    fn store_with(&self, times: bool) -> Result<(), Errno> {
        let number = self.next.load(Ordering::Relaxed);
        let text = self.dump(times);
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(&number.to_le_bytes());
        header[8..16].copy_from_slice(&(text.len() as u64).to_le_bytes());
        header[16..24].copy_from_slice(&sum(&text).to_le_bytes());
        let mut whole = text;
        whole.resize(whole.len().next_multiple_of(HEADER), 0);
        assert!(whole.len() as u64 + HEADER as u64 <= SLOT);
        let slot = if self.planted == Planted::OneSlot { 0 } else { number % 2 * SLOT };
        let flush = || match self.device.flush() {
            Err(_) if self.planted == Planted::FlushesAreWell => Ok(()),
            flushed => flushed,
        };
        let write = || {
            self.device.write_at(slot + HEADER as u64, &whole)?;
            if self.planted != Planted::NoBarrier {
                flush()?;
            }
            self.device.write_at(slot, &header)?;
            if self.planted == Planted::NoBarrier { Ok(()) } else { flush() }
        };
        write().map_err(|_| Errno::IO)?;
        self.next.store(number + 1, Ordering::Relaxed);
        Ok(())
    }

    /// Encodes the tree as parts with their lengths.
    fn dump(&self, times: bool) -> Vec<u8> {
        let task = self.vfs.task();
        let mut text = Vec::new();
        let mut seen = std::collections::BTreeMap::new();
        for entry in task.walk_dir("/") {
            let entry = entry.unwrap();
            let stat = &entry.metadata;
            let path = entry.path.as_os_str().as_bytes();
            let known = seen.insert(stat.ino, path.to_vec());
            let is_dir = stat.file_type() == FileType::Directory;
            if let Some(first) = known.filter(|_| !is_dir && self.planted != Planted::NoLinks) {
                part(&mut text, b"link");
                part(&mut text, path);
                part(&mut text, &first);
                continue;
            }
            part(&mut text, b"node");
            part(&mut text, path);
            part(&mut text, &stat.mode.to_le_bytes());
            part(&mut text, &stat.uid.to_le_bytes());
            part(&mut text, &(stat.rdev as u32).to_le_bytes());
            part(&mut text, &stat.flags.bits().to_le_bytes());
            part(&mut text, &if times { stat.mtime.0 } else { 0 }.to_le_bytes());
            let body = match stat.file_type() {
                FileType::RegularFile => {
                    let mut data = task.read(&entry.path).unwrap();
                    if self.planted == Planted::NoLongData && data.len() > 300_000 {
                        data.fill(0);
                    }
                    data
                }
                FileType::Symlink => {
                    let target = task.read_link(&entry.path).unwrap();
                    target.into_os_string().as_bytes().to_vec()
                }
                _ => Vec::new(),
            };
            part(&mut text, &body);
            self.dump_xattrs(&task, &entry.path, &mut text);
        }
        text
    }

    fn dump_xattrs(&self, task: &Task, path: &Path, text: &mut Vec<u8>) {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let mut names = task.posix().listxattrat(At::Cwd, path, flags).unwrap();
        if self.planted == Planted::NoXattrs {
            names.clear();
        }
        part(text, &names.len().to_le_bytes());
        for name in names {
            part(text, name.as_bytes());
            part(text, &task.posix().getxattrat(At::Cwd, path, &name, flags).unwrap());
        }
    }
}

fn part(text: &mut Vec<u8>, bytes: &[u8]) {
    text.extend((bytes.len() as u64).to_le_bytes());
    text.extend(bytes);
}

struct Parts<'a>(&'a [u8]);

impl<'a> Parts<'a> {
    fn next(&mut self) -> &'a [u8] {
        let (length, rest) = self.0.split_first_chunk().unwrap();
        let (bytes, rest) = rest.split_at(u64::from_le_bytes(*length) as usize);
        self.0 = rest;
        bytes
    }

    fn number(&mut self) -> u32 {
        u32::from_le_bytes(self.next()[..4].try_into().unwrap())
    }
}

fn load(task: &Task, text: &[u8]) {
    let mut parts = Parts(text);
    let mut times = Vec::new();
    while !parts.0.is_empty() {
        let is_link = parts.next() == b"link";
        let path = Path::new(OsStr::from_bytes(parts.next()));
        if is_link {
            let first = Path::new(OsStr::from_bytes(parts.next()));
            task.hard_link(first, path).unwrap();
            continue;
        }
        let (mode, owner) = (parts.number(), parts.number());
        let (rdev, inode_flags) = (parts.number().into(), parts.number());
        times.push((path, i64::from_le_bytes(parts.next().try_into().unwrap())));
        let body = parts.next();
        let permissions = Mode::from_bits_retain(mode & 0o7777);
        let file_type = FileType::from_raw_mode(mode);
        match file_type {
            FileType::Directory if path == Path::new("/") => {}
            FileType::Directory => task.posix().mkdirat(At::Cwd, path, permissions).unwrap(),
            FileType::RegularFile => task.write(path, body).unwrap(),
            FileType::Symlink => task.symlink(OsStr::from_bytes(body), path).unwrap(),
            other => task.posix().mknodat(At::Cwd, path, other, permissions, rdev).unwrap(),
        }
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        task.posix().fchownat(At::Cwd, path, Some(owner), Some(owner), flags).unwrap();
        if file_type != FileType::Symlink {
            task.set_permissions(path, permissions).unwrap();
        }
        if inode_flags != 0 {
            let file = task.open(path).unwrap();
            task.posix().ioctl_setflags(&file, InodeFlags::from_bits_retain(inode_flags)).unwrap();
        }
        for _ in 0..parts.number() {
            let (name, value) = (OsStr::from_bytes(parts.next()), parts.next());
            task.posix()
                .setxattrat(At::Cwd, path, name, value, XattrFlags::empty(), flags)
                .unwrap();
        }
    }
    for (path, time) in times {
        let times = [SetTime::Omit, SetTime::At(Timestamp(time))];
        task.posix().utimensat(At::Cwd, path, times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

fn sweep(planted: Planted) -> Summary {
    let plan = SweepPlan { device_bytes: DEVICE, states_of_script: 12, seed: 1 };
    let subject = Images(planted);
    let mut sweep = match Sweep::new(&subject, plan) {
        Ok(sweep) => sweep,
        // Some faults show immediately: the image is wrong.
        Err(why) => panic!("{planted:?}: {why}"),
    };
    let first = ["Create ", "AppendMuch ", "Link ", "SetLongXattr ", "Rename "];
    let second = [" Fsync", " FsyncDir", " Sync"];
    for script in script::pairs() {
        let name = &script.name;
        if first.iter().any(|n| name.starts_with(n)) && second.iter().any(|n| name.ends_with(n)) {
            sweep.run(&script);
        }
    }
    let mut random = Random::new(5);
    for _ in 0..5 {
        sweep.run(&script::random(&mut random, 6));
    }
    sweep.finish()
}

#[test]
fn a_correct_file_system_passes_every_sweep() {
    let summary = sweep(Planted::Nothing);
    println!("{summary}");
    assert!(summary.violations.is_empty(), "{summary}");
    assert!(summary.states > 150 && summary.again > 10, "{summary}");
}

#[test]
fn planted_faults_are_found() {
    use Planted::*;
    let all = [NoBarrier, FsyncLies, SyncLies, NoXattrs, NoLongData, OneSlot, NoLinks];
    for planted in all.into_iter().chain([NoTimes, NoTimesOfFsync]) {
        let summary = sweep(planted);
        let count = summary.violations.len();
        println!("{planted:?}: {count}, such as {}", summary.violations.first().unwrap());
        assert!(count > 0, "{planted:?} was not detected");
    }
}

#[test]
fn planted_faults_are_found_by_small_workloads() {
    use Planted::*;
    let sweep = |planted| {
        let workloads = ace::workloads(Table::All, 1);
        ace::sweep(&Images(planted), DEVICE, workloads).unwrap().violations.len()
    };
    assert_eq!(sweep(Nothing), 0);
    for planted in [NoBarrier, FsyncLies, SyncLies, NoXattrs, OneSlot, NoLinks, NoTimes] {
        assert!(sweep(planted) > 0, "{planted:?} was not detected");
    }
}

/// Cuts the power after each failed flush, and after each of the first `writes` writes that failed.
fn cuts(faults: &Faults<'_>, script: &Script, writes: u64) -> Result<(), Violation> {
    let flushes = faults.calls(script, Operation::Flush).unwrap();
    let mut random = Random::new(5);
    for extent in [Extent::One, Extent::Rest] {
        let flushes = (1..=flushes).map(|n| WorstError::Flush(n, extent));
        for worst in flushes.chain((1..=writes).map(|n| WorstError::Write(n, extent))) {
            let looked = faults.run_and_cut(script, &worst, 4, &mut random)?;
            assert!(looked > 0, "{worst:?}");
        }
    }
    Ok(())
}

/// Each write and flush fails once, and no acknowledged change is lost, unless syncs have no
/// effect.
#[test]
fn failing_devices() {
    let script = &script::random(&mut Random::new(3), 8);
    let subject = Images(Planted::Nothing);
    let faults = Faults::new(&subject, DEVICE).unwrap();
    for operation in [Operation::Read, Operation::Write, Operation::Flush] {
        let calls = faults.calls(script, operation).unwrap();
        assert!(calls > 2, "{calls} calls: {operation}");
        for extent in [Extent::One, Extent::Rest] {
            for n in 1..=calls {
                let met = faults.run(script, (operation, n, extent));
                assert!(met.unwrap_or_else(|violation| panic!("{violation}")), "{operation} {n}");
            }
        }
    }
    let writes = faults.calls(script, Operation::Write).unwrap();
    cuts(&faults, script, writes).unwrap_or_else(|violation| panic!("{violation}"));
    let careless = Images(Planted::FlushesAreWell);
    let careless = Faults::new(&careless, DEVICE).unwrap();
    let lost = cuts(&careless, script, 0).unwrap_err();
    println!("{lost}");
    let subject = Images(Planted::SyncLies);
    let lying = Faults::new(&subject, DEVICE).unwrap();
    let calls = lying.calls(script, Operation::Write).unwrap();
    let lost = (1..=calls).any(|n| lying.run(script, (Operation::Write, n, Extent::Rest)).is_err());
    assert!(lost, "a sync that lies was not found");
}
