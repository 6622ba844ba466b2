//! The files below a block device: other ways to the same bytes.
//!
//! The kernel's claim of a block device covers its partitions and what the device mapper makes of
//! it, but ends at a loop device: its file can be opened beside it, and be behind another loop
//! device. So an opening of a block device also locks the file of each loop device below it, the
//! part that the block device shows ([`Part`]). That file may be a block device itself.
//!
//! A file whose path leads nowhere, or to another file, was removed, or is elsewhere for this
//! process. Then its place is taken by the loop devices that stand on it. What can't be opened, or
//! is not in `/sys`, is not locked.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, major, minor};

use super::lock::Part;
use super::sys::{LockKind, LoopStatus, loop_status};

/// Bytes of a sector, in which `/sys` counts.
const SECTOR: u64 = 512;
/// Most levels of devices that are followed.
const LEVELS_MAX: usize = 16;

/// A file below a block device, and what is to be locked of it.
pub(super) struct Below {
    pub(super) file: File,
    pub(super) path: PathBuf,
    pub(super) part: Part,
}

/// Returns the files below the block device with a number. A writer needs them writable.
pub(super) fn below(number: u64, is_reader: bool) -> Vec<Below> {
    let mut search = Search { is_reader, found: Vec::new() };
    search.device(number, 0..u64::MAX, false, 0);
    search.found
}

struct Search {
    is_reader: bool,
    found: Vec<Below>,
}

impl Search {
    /// Adds what is below a range of a device, in bytes. Others may have the same range if it
    /// `is_shared`.
    fn device(&mut self, number: u64, range: Range<u64>, is_shared: bool, level: usize) {
        let dir = entry(number);
        if level == LEVELS_MAX {
            return;
        }
        let sectors = |dir: &Path, name| Some(read(&dir.join(name))?.parse::<u64>().ok()? * SECTOR);
        if dir.join("partition").exists() {
            let whole = number_in(&dir.join("../dev"));
            let place = (sectors(&dir, "start"), sectors(&dir, "size"));
            if let (Some(whole), (Some(start), Some(size))) = (whole, place) {
                self.device(whole, shifted(range, start, size), is_shared, level + 1);
            }
        } else if dir.join("loop").exists() {
            self.looped(number, range, is_shared, level);
        } else {
            // Which part of them the device shows is not known, and it is no one's else: the
            // device mapper and RAID claim it.
            for slave in entries(&dir.join("slaves")) {
                let size = sectors(&slave, "size").unwrap_or(u64::MAX);
                if let Some(number) = number_in(&slave.join("dev")) {
                    self.device(number, 0..size, true, level + 1);
                }
            }
        }
    }

    /// Adds what is below a range of a loop device.
    fn looped(&mut self, number: u64, range: Range<u64>, is_shared: bool, level: usize) {
        let dir = entry(number);
        let Some((_, status)) = loop_device(&dir) else { return };
        let limit = if status.size_limit == 0 { u64::MAX } else { status.size_limit };
        let range = shifted(range, status.offset, limit);
        let Ok(path) = fs::read(dir.join("loop/backing_file")) else { return };
        let path = OsStr::from_bytes(path.strip_suffix(b"\n").unwrap_or(&path)).into();
        let file = self.open(&path).filter(|file| {
            file.metadata().is_ok_and(|found| (found.dev(), found.ino()) == status.file)
        });
        let Some(file) = file else { return self.stand_ins(&status, range, is_shared) };
        let metadata = file.metadata();
        self.add(file, path, range.clone(), is_shared, false);
        if let Ok(metadata) = metadata
            && metadata.file_type().is_block_device()
        {
            self.device(metadata.rdev(), range, is_shared, level + 1);
        }
    }

    /// Adds the loop devices that stand on a file, in its place.
    fn stand_ins(&mut self, of: &LoopStatus, range: Range<u64>, is_shared: bool) {
        for dir in entries(Path::new("/sys/block")) {
            let found = loop_device(&dir);
            let Some((path, _)) = found.filter(|(_, status)| status.file == of.file) else {
                continue;
            };
            if let Some(file) = self.open(&path) {
                self.add(file, path, range.clone(), is_shared, true);
            }
        }
    }

    /// Opens a file for its lock. A lock of a writer needs a file that can be written.
    fn open(&self, path: &PathBuf) -> Option<File> {
        how().write(!self.is_reader).open(path).ok()
    }

    fn add(&mut self, file: File, path: PathBuf, range: Range<u64>, shared: bool, stands_in: bool) {
        let kind = if self.is_reader || shared { LockKind::Shared } else { LockKind::Exclusive };
        self.found.push(Below { file, path, part: Part { range, kind, stands_in } });
    }
}

/// Returns where a range is in what is below, given the bytes before it there and its size.
fn shifted(range: Range<u64>, by: u64, size: u64) -> Range<u64> {
    range.start.saturating_add(by)..range.end.min(size).saturating_add(by)
}

/// Returns the name and the state of a loop device that has a file, by its entry in `/sys`.
fn loop_device(dir: &Path) -> Option<(PathBuf, LoopStatus)> {
    dir.join("loop").exists().then_some(())?;
    let path = node(dir)?;
    let file = how().open(&path).ok()?;
    let status = loop_status(&file).ok()?;
    Some((path, status))
}

fn how() -> OpenOptions {
    let mut how = OpenOptions::new();
    how.read(true).custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32);
    how
}

/// Returns the entry of a device in `/sys`.
fn entry(number: u64) -> PathBuf {
    format!("/sys/dev/block/{}:{}", major(number), minor(number)).into()
}

/// Returns the name of a block device with a number.
pub(super) fn name_of(number: u64) -> String {
    let path = node(&entry(number));
    path.map_or_else(
        || format!("the device {}:{}", major(number), minor(number)),
        |path| path.display().to_string(),
    )
}

/// Returns the device file of an entry of a device.
fn node(dir: &Path) -> Option<PathBuf> {
    let event = read(&dir.join("uevent"))?;
    let name = event.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
    Some(Path::new("/dev").join(name))
}

fn number_in(path: &Path) -> Option<u64> {
    let text = read(path)?;
    let (major, minor) = text.split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

fn read(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim_end().into())
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}
