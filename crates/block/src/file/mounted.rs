//! The mounts that the holders of a device serve, and whether they still exist.
//!
//! `umount` returns before the server of a mount has closed its volume. So a holder publishes the
//! device number of its mount, as the offset of one more lock (see [`lock`](super::lock)), and the
//! table of mounts says whether that exists. A holder whose mount is gone is about to close.

use std::fs::File;
use std::io;

use super::sys::{LockKind, ofd_lock, ofd_lock_of_others};

/// First offset of the mounts: one for each device number of 32 bits, as the kernel has them.
const MOUNTS: i64 = 1 << 62 | 1 << 57;
const MOUNTS_BYTES: i64 = 1 << 32;
/// Bits of the minor number in the kernel's device numbers.
const MINOR_BITS: u32 = 20;
/// The most holders that are asked for: readers share a device.
const HOLDERS_MAX: usize = 64;

/// Publishes that this process serves the mount with a device number. [`unlock`](super::lock) ends
/// that.
pub(super) fn publish(file: &File, (major, minor): (u32, u32)) -> io::Result<()> {
    let number = i64::from(major) << MINOR_BITS | i64::from(minor);
    if number >= MOUNTS_BYTES || minor >> MINOR_BITS != 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    ofd_lock(file, LockKind::Shared, MOUNTS + number, 1)
}

/// Returns whether the holders of the device have published mounts, none of which is left in the
/// table of mounts. Mounts of other containers are not in the table.
pub(super) fn are_gone(file: &File) -> bool {
    let numbers = published(file);
    if numbers.is_empty() {
        return false;
    }
    let Ok(table) = std::fs::read("/proc/self/mountinfo") else { return false };
    !numbers.iter().any(|number| lists(&table, *number))
}

/// Returns the device numbers that other holders have published, in no order: the kernel names any
/// lock of a range, so the ranges on both sides of it are searched as well.
fn published(file: &File) -> Vec<(u32, u32)> {
    let mut numbers = Vec::new();
    let mut ranges = vec![(0, MOUNTS_BYTES)];
    while let Some((start, end)) = ranges.pop()
        && numbers.len() < HOLDERS_MAX
    {
        if start == end {
            continue;
        }
        let found = ofd_lock_of_others(file, MOUNTS + start, end - start);
        let Ok(Some(found)) = found else { continue };
        // A lock may begin before the range that it reaches into.
        let number = found.max(MOUNTS + start) - MOUNTS;
        numbers.push(((number >> MINOR_BITS) as u32, (number & ((1 << MINOR_BITS) - 1)) as u32));
        ranges.extend([(start, number), (number + 1, end)]);
    }
    numbers
}

/// Returns whether a table of mounts has a mount with this device number.
fn lists(table: &[u8], (major, minor): (u32, u32)) -> bool {
    let device = format!("{major}:{minor}");
    let third = |line: &[u8]| line.split(|byte| *byte == b' ').nth(2) == Some(device.as_bytes());
    table.split(|byte| *byte == b'\n').any(third)
}

#[cfg(test)]
mod tests;
