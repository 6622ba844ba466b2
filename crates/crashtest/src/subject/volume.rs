//! Volumes as subject.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use vfscale::{Vfs, Volume, VolumeBuilder};
use vfscale_diskfs::{
    BLOCK_BYTES, GROUP_BLOCKS_KEPT, LogPlace, check, copies, mkfs, mkfs::MkfsOptions,
};
use vfscale_journal::{Inspection, Region, VolumeId};

use crate::subject::{Disk, LostRange, Opened, Subject};

/// Volumes with given options.
#[derive(Clone, Debug, Default)]
pub struct Volumes {
    /// Interval of the background write-back; `None` disables it, which makes runs repeatable.
    pub sync_interval: Option<Duration>,
    /// Size of the log in blocks of 4 KiB; a small one wraps.
    pub log_blocks: Option<u64>,
    /// Size in bytes of a separate log device, if there is one.
    pub log_device: Option<u64>,
    /// Size of the cache in bytes.
    pub cache_bytes: Option<u64>,
    /// The heat of a directory at which its names are delayed, if not the default.
    pub dir_heat: Option<u32>,
    /// Highest cycle of the log that any volume has reached; the first is 1.
    pub cycle_max: Arc<AtomicU32>,
}

impl Volumes {
    fn builder(&self, disks: &[Disk]) -> VolumeBuilder {
        let mut builder = vfscale::volume_on(disks[0].clone()).sync_interval(self.sync_interval);
        if let Some(log) = disks.get(1) {
            builder = builder.log_device(log.clone());
        }
        if let Some(heat) = self.dir_heat {
            builder = builder.dir_heat(heat);
        }
        match self.cache_bytes {
            Some(bytes) => builder.cache_size(bytes),
            None => builder,
        }
    }
}

struct Open {
    volume: Volume,
    cycle_max: Arc<AtomicU32>,
}

impl Opened for Open {
    fn vfs(&self) -> &Vfs {
        self.volume.vfs()
    }

    fn close(self: Box<Self>) -> Result<(), String> {
        if let Some(journal) = self.volume.driver().volume().journal() {
            self.cycle_max.fetch_max(journal.stats().head.cycle(), Ordering::Relaxed);
        }
        self.volume.close().map_err(|error| error.to_string())
    }
}

impl Subject for Volumes {
    fn others(&self) -> Vec<u64> {
        self.log_device.into_iter().collect()
    }

    fn format(&self, disks: &[Disk]) -> Result<(), String> {
        let (log_blocks, log_device) = (self.log_blocks, disks.get(1).cloned());
        let options = MkfsOptions { log_blocks, log_device, ..MkfsOptions::default() };
        mkfs::format(&*disks[0], &options).map(drop).map_err(|error| error.to_string())
    }

    fn open(&self, disks: &[Disk]) -> Result<Box<dyn Opened>, String> {
        let volume = self.builder(disks).open().map_err(|error| error.to_string())?;
        Ok(Box::new(Open { volume, cycle_max: self.cycle_max.clone() }))
    }

    /// Includes the superblock and its copies, the group descriptors, and the log.
    fn may_be_lost(&self, disks: &[Disk]) -> Vec<LostRange> {
        let Ok(found) = copies::read(&*disks[0]) else { return Vec::new() };
        let (geometry, log) = (found.superblock.geometry(), found.superblock.log());
        let blocks = |run: Range<u64>| run.start * BLOCK_BYTES as u64..run.end * BLOCK_BYTES as u64;
        let groups = (0..geometry.groups()).filter_map(|group| geometry.blocks_of(group));
        let kept = groups.map(|group| (0, blocks(group.start..group.start + GROUP_BLOCKS_KEPT)));
        let log = match log {
            LogPlace::Inside { start, blocks: length } => (0, blocks(start..start + length)),
            LogPlace::Outside { blocks: length, .. } => (1, blocks(0..length)),
        };
        kept.chain([log]).collect()
    }

    /// Includes the records of the log that no later record names as durable.
    fn may_look_torn(&self, disks: &[Disk]) -> Vec<LostRange> {
        let Ok(found) = copies::read(&*disks[0]) else { return Vec::new() };
        let superblock = &found.superblock;
        let (number, start) = match superblock.log() {
            LogPlace::Inside { start, .. } => (0, start * BLOCK_BYTES as u64),
            LogPlace::Outside { .. } => (1, 0),
        };
        let length = superblock.log_blocks() * BLOCK_BYTES as u64;
        let id = superblock.log_id().unwrap_or(superblock.volume());
        let (region, id) = (Region { offset: start, length }, VolumeId(id.to_bytes()));
        let inspection = Inspection::new(&*disks[number], region, id);
        let live = inspection.and_then(|it| it.live().map(<[_]>::to_vec)).unwrap_or_default();
        let durable = live.iter().map(|record| record.sync_lsn).max();
        let last = live.iter().filter(|record| Some(record.lsn) > durable);
        let blocks = last.flat_map(|record| (0..record.blocks).map(|i| record.lsn.block() + i));
        let blocks = blocks.map(|block| u64::from(block) * BLOCK_BYTES as u64 % length);
        let ranges = blocks.map(|at| (number, start + at..start + at + BLOCK_BYTES as u64));
        ranges.collect()
    }

    fn repair(&self, disks: &[Disk]) -> Result<(), String> {
        let log = disks.get(1).cloned();
        let options = check::Options { repair: true, log, ..check::Options::default() };
        let report =
            check::check(disks[0].clone(), &options, &mut ()).map_err(|error| error.to_string())?;
        if report.left == 0 { Ok(()) } else { Err(format!("{:?}", report.findings)) }
    }

    fn check(&self, disks: &[Disk]) -> Result<(), String> {
        let options = check::Options { log: disks.get(1).cloned(), ..check::Options::default() };
        let report =
            check::check(disks[0].clone(), &options, &mut ()).map_err(|error| error.to_string())?;
        if report.count == 0 {
            return Ok(());
        }
        let findings = report.findings.iter().take(5).map(|finding| format!("{finding:?}"));
        let findings: Vec<String> = findings.collect();
        Err(format!("{} findings: {}", report.count, findings.join("; ")))
    }
}
