//! Each block of metadata, damaged in each way: a repair leaves nothing to repair, and everything
//! that a mount could read before can be read after.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use vfscale_block::{Device, Operation};
use vfscale_testkit::{Fault, FaultyDevice};
use vfscale_vfs::{Task, Vfs};

use super::mending::filled;
use super::sample::{CHUNK, Sample};
use crate::Settings;
use crate::format::byte_of_block;
use crate::tools::check::{self, Options, Report};
use crate::vfs_impl::DiskFs;

/// A way to damage a block.
type Way = (&'static str, fn(&mut [u8]));

const WAYS: [Way; 7] = [
    ("a bit of the body", |block| block[60] ^= 0x40),
    ("a bit of the first part", |block| block[200] ^= 0x10),
    ("a bit of the second part", |block| block[1000] ^= 1),
    ("a bit of the last part", |block| block[4000] ^= 1),
    ("zeros", |block| block.fill(0)),
    ("half of another block", |block| block[2048..].fill(0x33)),
    ("another magic", |block| block[1] ^= 0x20),
];

/// All that a path leads to, as far as it can be read.
#[derive(Debug, PartialEq)]
struct Seen {
    ino: u64,
    mode: u32,
    size: u64,
    target: Option<String>,
    attribute: Option<Vec<u8>>,
    /// The data of a file by block.
    data: Vec<Option<Vec<u8>>>,
}

impl Seen {
    fn at(task: &Task, path: &str) -> Option<Self> {
        let metadata = task.symlink_metadata(path).ok()?;
        let (mode, size) = (metadata.mode, metadata.size);
        let (is_link, is_file) = (metadata.is_symlink(), metadata.is_file());
        let target = is_link.then(|| task.read_link(path).ok()).flatten();
        let attribute = is_file.then(|| task.xattr(path, "user.two").ok().flatten()).flatten();
        let mut data = Vec::new();
        if is_file {
            let file = task.open(path).ok();
            for block in 0..size.div_ceil(4096) {
                let mut bytes = vec![0; 4096];
                let read = file.as_ref().map(|file| file.pread(&mut bytes, block * 4096));
                data.push(read.is_some_and(|read| read.is_ok()).then_some(bytes));
            }
        }
        let target = target.map(|target| target.to_string_lossy().into_owned());
        let size = if metadata.is_dir() { 0 } else { size };
        Some(Self { ino: metadata.ino, mode, size, target, attribute, data })
    }

    /// Returns whether everything that was read `before` can be read now.
    fn covers(&self, before: &Self) -> bool {
        let has = |now: &Option<Vec<u8>>, then: &Option<Vec<u8>>| then.is_none() || now == then;
        self.ino == before.ino
            && (self.mode, self.size) == (before.mode, before.size)
            && (before.target.is_none() || self.target == before.target)
            && has(&self.attribute, &before.attribute)
            && self.data.len() == before.data.len()
            && self.data.iter().zip(&before.data).all(|(now, then)| has(now, then))
    }
}

/// Collects all paths below a directory. Returns false if some can't be read.
fn paths(task: &Task, path: &str, found: &mut BTreeSet<String>) -> bool {
    let Ok(entries) = task.read_dir(path) else { return false };
    let mut is_whole = true;
    for entry in entries {
        let Ok(entry) = entry else { return false };
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == "." || name == ".." {
            continue;
        }
        let below = format!("{}/{name}", path.trim_end_matches('/'));
        found.insert(below.clone());
        match task.symlink_metadata(&below) {
            Ok(metadata) if metadata.is_dir() => is_whole &= paths(task, &below, found),
            looked => is_whole &= looked.is_ok(),
        }
    }
    is_whole
}

/// Returns what a mount finds at each of these paths and of those that it lists, and whether all
/// could be listed; nothing if there is no mount.
fn mounted(
    device: &Arc<dyn Device>,
    known: &BTreeSet<String>,
) -> Option<(BTreeMap<String, Seen>, bool)> {
    let options = Settings { sync_interval: None, ..Settings::default() };
    let fs = DiskFs::open(device.clone(), options).ok()?;
    let vfs = Vfs::new(fs.clone());
    let mut found = (BTreeMap::new(), false);
    if let Ok(vfs) = &vfs {
        let task = vfs.task();
        let mut all = known.clone();
        all.insert("/".into());
        found.1 = paths(&task, "/", &mut all);
        let seen = all.into_iter().filter_map(|path| Some((Seen::at(&task, &path)?, path)));
        found.0 = seen.map(|(seen, path)| (path, seen)).collect();
    }
    drop(vfs);
    let _ = fs.close();
    (!found.0.is_empty()).then_some(found)
}

/// Returns a copy with a block that the device can't read, until it is written.
fn unreadable(sample: &Sample, address: u64) -> Sample {
    let device = Arc::new(FaultyDevice::new(sample.copied().device));
    let block = byte_of_block(address)..byte_of_block(address + 1);
    device.arm(Fault::on(Operation::Read).within(block.clone()));
    let armed = Arc::downgrade(&device);
    let heal = move || armed.upgrade().into_iter().for_each(|device| device.disarm());
    device.arm(Fault::on(Operation::Write).within(block).run(heal));
    Sample { device, superblock: sample.superblock.clone() }
}

fn damaged(sample: &Sample, address: u64, change: fn(&mut [u8])) -> Sample {
    let copy = sample.copied();
    let mut block = copy.media().raw(address).unwrap();
    change(block.bytes_mut());
    copy.device.write_at(byte_of_block(address), block.bytes()).unwrap();
    copy
}

fn repair(sample: &Sample, give_up_unreadable: bool) -> Report {
    let options = Options { repair: true, give_up_unreadable, ..Options::default() };
    check::check(sample.device.clone(), &options, &mut ()).unwrap()
}

/// Returns the addresses of all blocks of metadata.
fn metadata(sample: &Sample) -> Vec<u64> {
    let (blocks, id) = (sample.superblock.geometry().blocks(), sample.superblock.volume());
    let is_metadata = |address: &u64| {
        let block = sample.media().raw(*address).unwrap();
        let header = block.header();
        header.magic.0.starts_with(b"vfs") && header.address == *address && header.volume == id
    };
    (0..blocks).filter(is_metadata).collect()
}

/// Repairs a damaged volume, of which `before` is a copy, and compares the two.
fn mended(case: &str, before: &Sample, copy: &Sample, give_up: bool, known: &BTreeSet<String>) {
    let before = mounted(&before.device, known);
    let report = repair(copy, give_up);
    assert_eq!(report.left, 0, "{case}: {:#?}", copy.check().findings);
    let again = repair(copy, false);
    assert_eq!((again.count, again.left), (0, 0), "{case}: {:#?}", again.findings);
    let (after, is_whole) = mounted(&copy.device, known).unwrap();
    assert!(is_whole, "{case}");
    let Some((before, _)) = before else { return };
    for (path, seen) in &before {
        let is_there = after.get(path).is_some_and(|now| now.covers(seen))
            || after.values().any(|now| now.covers(seen));
        assert!(is_there, "{case}: {path}: {seen:?}");
    }
    assert_eq!(copy.check().findings, [], "{case}: after it was used");
}

#[test]
fn a_repair_keeps_every_readable_file() {
    let sample = filled();
    let (whole, is_whole) = mounted(&sample.copied().device, &BTreeSet::new()).unwrap();
    let known: BTreeSet<_> = whole.into_keys().collect();
    assert!(is_whole && known.len() > 150, "{known:?}");
    let blocks = metadata(&sample);
    assert!(blocks.len() > 20, "{blocks:?}");
    // Six of the blocks of inodes are the same.
    for address in blocks.into_iter().filter(|at| !(CHUNK + 3..CHUNK + 8).contains(at)) {
        for (name, change) in WAYS {
            let of = || damaged(&sample, address, change);
            let case = format!("block {address}, {name}");
            // Another block in the place of inodes is given up only if that is wanted.
            let is_lost = (CHUNK..CHUNK + 8).contains(&address);
            mended(&case, &of(), &of(), is_lost, &known);
        }
        let of = || unreadable(&sample, address);
        mended(&format!("block {address}, unreadable"), &of(), &of(), true, &known);
    }
}
