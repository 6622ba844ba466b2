//! The creation of a volume.
//!
//! # The order
//!
//! 1. The device is probed for known contents; if it has any, the call fails unless forced. Storage
//!    for the log is reserved, so a sparse image can be changed when the file system below is full;
//!    a large log is reserved as it is written.
//! 2. The signatures are cleared: the superblocks of former volumes, and the first block in any
//!    case. Flush: now the device has no recognisable contents.
//! 3. The log, the groups and the root directory are written. Flush.
//! 4. The superblock and its copies are written.
//!
//! Therefore neither an incomplete volume nor the former contents are ever recognised.

mod signatures;

use std::sync::Arc;

use vfscale_block::Device;
use vfscale_journal::{Journal, Region};

pub use signatures::recognise;

use crate::alloc::Layout;
use crate::alloc::initial::write_group;
use crate::format::geometry::SizeError;
use crate::format::group::ROOT_CHUNK;
use crate::format::inode::{CHUNK_BLOCKS, INODE_MAGIC, ROOT_INO, records_mut};
use crate::format::superblock::{LOG_BLOCKS_MAX, LOG_BLOCKS_MIN};
use crate::format::{BLOCK_BYTES, Block, Identity, byte_of_block};
use crate::inode::core::{InodeCore, TYPE_DIRECTORY};
use crate::volume::{copies, log_id, seen};
use crate::{Geometry, Label, LogPlace, Superblock, Timestamp, Uuid};

/// The largest log for which storage is reserved, in bytes: that of a volume of 4 GiB.
const RESERVED_LOG_MAX: u64 = 64 << 20;

/// The parameters of a new volume. `Default`: the size of its device, no name, a log inside.
#[derive(Clone, Debug, Default)]
pub struct MkfsOptions {
    /// The size in bytes, which is rounded down to whole blocks; the device is extended if it must
    /// and can be. `None`: the whole device.
    pub size: Option<u64>,
    /// The name of the volume.
    pub label: Label,
    /// The id of the volume; `None`: a new one.
    pub uuid: Option<Uuid>,
    /// Whether the contents of the device may be lost.
    pub force: bool,
    /// Whether to write zeros to all of the volume first. Then the file system below has allocated
    /// every block of an image, and a sync need not wait for its allocations; the image is not
    /// sparse, so blocks that become free are not discarded unless that is asked for.
    pub preallocate: bool,
    /// The size of the log, in blocks; `None`: a 64th of the volume, from 4 MiB to 1 GiB.
    /// A log inside the volume lies in one group, and is at most as large as that permits. The
    /// memory of this machine does not matter: another machine may mount the volume, and there the
    /// changes that are not written back have a limit of their own
    /// ([`Settings`](crate::Settings)).
    pub log_blocks: Option<u64>,
    /// A separate device for the log; `None`: the log is inside the volume.
    pub log_device: Option<Arc<dyn Device>>,
    /// The root directory.
    pub root: RootDirectory,
}

/// Owner and permissions of the root directory of a new volume. `Default`: user 0, group 0, 0755.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootDirectory {
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The permission bits, including the set-id bits and the sticky bit; other bits are ignored.
    pub mode: u32,
}

impl Default for RootDirectory {
    fn default() -> Self {
        Self { uid: 0, gid: 0, mode: 0o755 }
    }
}

/// The reason why no volume was created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MkfsError {
    /// The device has contents, and the options do not permit their loss.
    #[error("{device} has {what} on it; it would be lost")]
    Recognised {
        /// The device's name.
        device: String,
        /// Name of the contents, with an article where needed.
        what: String,
    },
    /// No volume has this size.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// No log has this size.
    #[error(
        "a log of {blocks} blocks of 4 KiB: it has {LOG_BLOCKS_MIN} at least and {most} at most"
    )]
    LogSize {
        /// The requested size, in blocks.
        blocks: u64,
        /// The largest possible size, in blocks.
        most: u64,
    },
    /// A device failed, or can't have this size.
    #[error(transparent)]
    Device(#[from] vfscale_block::Error),
    /// The log could not be created.
    #[error(transparent)]
    Log(#[from] vfscale_journal::Error),
    /// The system has no random numbers for an id.
    #[error("no random numbers: {0}")]
    Random(#[from] std::io::Error),
}

/// Creates a volume. It is durable when the call returns. Blocks for I/O: writes the log, and a few
/// blocks of each group.
///
/// # Errors
/// [`MkfsError`]. [`Recognised`](MkfsError::Recognised), [`Size`](MkfsError::Size) and
/// [`LogSize`](MkfsError::LogSize) have changed nothing; after other errors the device may have no
/// volume, neither the former one nor a new one.
pub fn format(device: &dyn Device, options: &MkfsOptions) -> Result<Superblock, MkfsError> {
    let blocks = options.size.unwrap_or(device.size()) / BLOCK_BYTES as u64;
    let geometry = Geometry::for_blocks(blocks)?;
    let log = place_log(geometry, options)?;
    let volume = options.uuid.map_or_else(Uuid::random, Ok)?;
    if !options.force {
        let devices = std::iter::once(device).chain(options.log_device.as_deref());
        for device in devices {
            if let Some(what) = recognise(device)? {
                return Err(MkfsError::Recognised { device: device.name().into(), what });
            }
        }
    }
    if device.size() < geometry.bytes() {
        device.set_size(geometry.bytes())?;
    }
    let region = match log {
        LogPlace::Inside { start, blocks } => {
            Region { offset: byte_of_block(start), length: byte_of_block(blocks) }
        }
        LogPlace::Outside { blocks, .. } => Region { offset: 0, length: byte_of_block(blocks) },
    };
    let on_its_own = options.log_device.as_deref();
    if region.length <= RESERVED_LOG_MAX {
        Journal::reserve(on_its_own.unwrap_or(device), region)?;
    }
    signatures::clear(device)?;
    copies::clear(device)?;
    if options.preallocate {
        write_zeros(device, geometry.bytes())?;
    }
    if let Some(device) = on_its_own {
        signatures::clear(device)?;
    }
    let superblock = Superblock::new(volume, geometry);
    let mut superblock = superblock.with_log(log).ok_or(SizeError::TooSmall { blocks })?;
    if let (None, Some(id)) = (on_its_own, device.identity()) {
        let own = superblock.with_log_id(Uuid::from_bytes(id), log.blocks());
        superblock = own.ok_or(SizeError::TooSmall { blocks })?;
    }
    let id = log_id(&superblock);
    let known = Journal::format(on_its_own.unwrap_or(device), region, id)?;
    for group in 0..geometry.groups() {
        if let Some(layout) = Layout::new(geometry, log, group) {
            write_group(device, &layout, volume)?;
        }
    }
    write_root(device, volume, options.root)?;
    device.flush()?;
    superblock.label = options.label.clone();
    superblock.log_seen = seen(known);
    copies::write(device, &mut superblock)?;
    Ok(superblock)
}

/// Writes zeros to the first `bytes` bytes.
fn write_zeros(device: &dyn Device, bytes: u64) -> Result<(), vfscale_block::Error> {
    const PIECE: u64 = 1 << 20;
    let zeros = vec![0; PIECE as usize];
    (0..bytes).step_by(PIECE as usize).try_for_each(|at| {
        let len = PIECE.min(bytes - at) as usize;
        device.write_at(at, &zeros[..len])
    })
}

/// Chooses the location of the log.
fn place_log(geometry: Geometry, options: &MkfsOptions) -> Result<LogPlace, MkfsError> {
    let wanted = options.log_blocks;
    let most = match &options.log_device {
        None => LogPlace::inside(geometry, Some(LOG_BLOCKS_MAX)).blocks(),
        Some(device) => LOG_BLOCKS_MAX.min(device.size() / BLOCK_BYTES as u64),
    };
    let is_possible = |blocks: &u64| (LOG_BLOCKS_MIN..=most).contains(blocks);
    if let Some(blocks) = wanted.filter(|blocks| !is_possible(blocks)) {
        return Err(MkfsError::LogSize { blocks, most });
    }
    if options.log_device.is_none() {
        return Ok(LogPlace::inside(geometry, wanted));
    }
    let blocks = wanted.unwrap_or(LogPlace::wanted_blocks(geometry).min(most));
    if !is_possible(&blocks) {
        return Err(MkfsError::LogSize { blocks, most });
    }
    Ok(LogPlace::Outside { device: Uuid::random()?, blocks })
}

/// Writes the first chunk of inodes, with the root directory.
fn write_root(
    device: &dyn Device,
    volume: Uuid,
    root: RootDirectory,
) -> Result<(), vfscale_block::Error> {
    let now = Timestamp::now().in_nanoseconds();
    let root = InodeCore {
        nlink: 2,
        parent: ROOT_INO,
        uid: root.uid,
        gid: root.gid,
        ..InodeCore::new(TYPE_DIRECTORY | (root.mode & 0o7777), 1, now)
    };
    let first = ROOT_CHUNK;
    for address in first..first + CHUNK_BLOCKS {
        let mut block = Block::zeroed();
        if address == first {
            records_mut(&mut block)[0] = root.encode();
        }
        let identity = Identity { magic: INODE_MAGIC, address, owner: first, volume };
        block.seal(&identity, 0);
        device.write_at(byte_of_block(address), block.bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
