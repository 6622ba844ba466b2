//! How files and block devices discard.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use crate::Discards;

/// The smallest hole of an image, in bytes: the block of common file systems, and a page of tmpfs.
const HOLE_BYTES: u32 = 4096;
/// The unit in which the system counts the space of a file, in bytes.
const SECTOR_BYTES: u64 = 512;

/// Returns how an image file discards; `None` if that can't be found out.
pub(super) fn of_image(file: &File) -> Option<Discards> {
    let metadata = file.metadata().ok()?;
    let is_thin = metadata.blocks().saturating_mul(SECTOR_BYTES) < metadata.len();
    Some(Discards { granularity: HOLE_BYTES, is_thin })
}

/// Returns how a block device discards; `None` if it can't. A partition has the limits of its disk.
pub(super) fn of_block_device(file: &File) -> Option<Discards> {
    let number = file.metadata().ok()?.rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let limit = |name: &str| -> Option<u64> {
        let device = format!("/sys/dev/block/{major}:{minor}");
        let paths = [format!("{device}/queue/{name}"), format!("{device}/../queue/{name}")];
        paths.iter().find_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok())
    };
    if limit("discard_max_bytes")? == 0 {
        return None;
    }
    let granularity = u32::try_from(limit("discard_granularity")?).ok()?;
    Some(Discards { granularity: granularity.max(HOLE_BYTES), is_thin: false })
}
