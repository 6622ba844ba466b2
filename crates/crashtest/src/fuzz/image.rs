//! Volumes to damage, and their copies.

use std::sync::Arc;

use vfscale_block::{CowDevice, Device, MemoryDevice};
use vfscale_diskfs::{Superblock, mkfs, mkfs::MkfsOptions};
use vfscale_sync::random::Random;
use vfscale_testkit::calls::compound::Compound;

use crate::script;

/// Size of the smallest possible volume: little of it is free space, so damage seldom hits that.
const DEVICE_BYTES: u64 = 16 << 20;
/// Size of the smallest possible log.
const LOG_BLOCKS: u64 = 256;
/// A volume that no longer changes.
pub(super) struct Image {
    pub(super) device: Arc<dyn Device>,
    pub(super) superblock: Superblock,
}

impl Image {
    /// Reads the superblock of a device.
    pub(super) fn of(device: Arc<dyn Device>) -> Result<Self, String> {
        let found = vfscale_diskfs::copies::read(&*device).map_err(|e| e.to_string())?;
        Ok(Self { device, superblock: found.superblock })
    }

    /// Makes a copy-on-write copy.
    pub(super) fn copy(&self) -> Arc<dyn Device> {
        Arc::new(CowDevice::new(self.device.clone()))
    }

    /// Makes calls on a copy and returns it as a crash would leave it.
    pub(super) fn after(&self, random: &mut Random, length: usize) -> Result<Self, String> {
        let device = self.copy();
        run(&device, script::random(random, length).ops)?;
        Self::of(device)
    }
}

/// Makes calls on a volume and ignores their errors, syncs it, and stops it as a crash would: by
/// abandoning it, so its log must be replayed.
pub(super) fn run(device: &Arc<dyn Device>, ops: Vec<Compound>) -> Result<(), String> {
    let volume = open(device.clone())?;
    let task = volume.task();
    for op in ops.into_iter().chain([Compound::sync()]) {
        let _ = op.run(&task);
    }
    drop(task);
    volume.abandon();
    Ok(())
}

/// Opens a volume without background write-back, whose names are all delayed that may be.
pub(super) fn open(device: Arc<dyn Device>) -> Result<vfscale::Volume, String> {
    let builder = vfscale::volume_on(device).sync_interval(None).dir_heat(0);
    builder.open().map_err(|e| e.to_string())
}

/// Makes a volume with random files.
pub(super) fn new_volume(random: &mut Random) -> Result<Image, String> {
    let device = MemoryDevice::with_block_size(DEVICE_BYTES, 4096).map_err(|e| e.to_string())?;
    let device: Arc<dyn Device> = Arc::new(device);
    let options = MkfsOptions { log_blocks: Some(LOG_BLOCKS), ..MkfsOptions::default() };
    mkfs::format(&*device, &options).map_err(|e| e.to_string())?;
    run(&device, script::setup())?;
    Image::of(device)?.after(random, 20)
}

/// Makes a copy-on-write copy of a device.
pub(super) fn copy(device: &Arc<dyn Device>) -> Arc<dyn Device> {
    Arc::new(CowDevice::new(device.clone()))
}
