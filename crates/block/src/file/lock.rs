//! The lock on a device, and the name of its holder.
//!
//! # Where the name is stored
//!
//! The lock is a record lock of the open file (an *open file description lock*), so the kernel
//! releases it when its holder exits, for whatever reason: there is no stale lock. A name that is
//! stored anywhere else, in the image or in a file next to it, remains after a crash, and may name
//! the wrong process. So the name is made of locks too: record locks are at byte offsets, the
//! offsets beyond 2^62 are unused, and the *offset* of a lock carries information. The holder of
//! the lock also holds one-byte locks, each of which encodes four bytes of its name in its offset:
//!
//! ```text
//!  bit  62   56     40      32        0
//!        1    1   lane   index    value       four bytes of the name; index 0: length, checksum
//!        1    0      0       0        0       the lock itself
//!        1, bit 57, and a device number: the mount that the holder serves (`mounted.rs`)
//!        1, bit 58, and a device number: the block device by which the holder came to the file
//! ```
//!
//! An opening of a block device locks the files below it as well (`backing.rs`), each of which it
//! may share with openings of other parts. So the parts are locked at offsets of their own: the
//! bytes of a file from 2^61 on, or of the file below a loop device from 2^60 on.
//!
//! A process that finds the lock taken asks the kernel for the offsets of those locks. The kernel
//! releases all of them together with the lock, they are visible across containers, and network
//! file systems that support record locks support them too. The lane is a random number, so that
//! several readers don't overwrite each other.
//!
//! Neither publishing nor removing the name is atomic. Its checksum reveals an incomplete name;
//! then the process that requests the lock tries again, for a moment, both for the lock and for the
//! name.
//!
//! # Invariants
//!
//! * A writer holds the lock exclusively; read-only openers share it, and lock all bytes as a
//!   reader does. Who came by a block device above shares it, and locks its part of the bytes.
//! * The locks belong to the open file: a second opener in the same process is excluded like any
//!   other.
//! * A child that is forked while a device is open shares it, lock and name. So a process that
//!   moves to the background opens its devices after the fork.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use super::mounted;
use super::sys::{LockKind, ofd_lock, ofd_lock_of_others};
use crate::Holder;

/// Offset of the lock.
const LOCK: i64 = 1 << 62;
/// First offsets of the bytes that are locked: of this file, and of the one that a loop device
/// stands in for.
const BYTES: i64 = 1 << 61;
const STANDS_IN: i64 = 1 << 60;
const BYTES_MAX: u64 = 1 << 60;
/// First offset of the block devices by which holders came.
const WAYS: i64 = LOCK | 1 << 58;
const WAYS_BYTES: i64 = 1 << 32;
/// First offset of the names.
const NAMES: i64 = LOCK | 1 << 56;
const LANES: u32 = 1 << 16;
const LANE_BYTES: i64 = 1 << 40;
/// Number of offsets of a window: one for each value of four bytes.
const WINDOW_BYTES: i64 = 1 << 32;
/// Largest length of a program's or host's name that is published, in bytes.
const TEXT_BYTES_MAX: usize = 64;
/// Number of attempts to read a name, and the pause between them.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(5);
/// Time that a holder gets to close its volume when its mount is gone, and the kernel to close the
/// files of one that has ended.
const CLOSING: Duration = Duration::from_secs(5);

/// The state of a lock that another process holds, with the name of that process, and the number of
/// the block device by which it came to the file, if they could be read.
#[derive(Debug)]
pub(super) struct HeldBy {
    pub(super) holder: Option<Holder>,
    pub(super) way: Option<u64>,
}

impl HeldBy {
    fn of(file: &File, holder: Option<Holder>) -> Self {
        let number = ofd_lock_of_others(file, WAYS, WAYS_BYTES).ok().flatten();
        let way = number.map(|at| (at.max(WAYS) - WAYS) as u64);
        Self { holder, way }
    }
}

/// The bytes of a file that an opening of a block device above it has.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) range: Range<u64>,
    /// Exclusive, or shared with others that share it.
    pub(super) kind: LockKind,
    /// The bytes are those of the file below, which this loop device stands in for.
    pub(super) stands_in: bool,
}

impl Part {
    fn all(kind: LockKind) -> Self {
        Self { range: 0..u64::MAX, kind, stands_in: false }
    }

    fn take(&self, file: &File) -> io::Result<()> {
        let (start, end) = (self.range.start.min(BYTES_MAX - 1), self.range.end.min(BYTES_MAX));
        let length = end.saturating_sub(start).max(1) as i64;
        let first = if self.stands_in { STANDS_IN } else { BYTES } + start as i64;
        ofd_lock(file, self.kind, first, length)
    }
}

/// Takes the lock of a device, or returns its holder. The lock ends when the open file is closed,
/// or with [`unlock`].
///
/// Blocks for at most half a second if the holder's name can't be read, and for at most
/// five seconds if the holder's mount is gone, or the holder has ended.
pub(super) fn lock(file: &File, kind: LockKind) -> io::Result<Result<(), HeldBy>> {
    lock_by(file, || {
        ofd_lock(file, kind, LOCK, 1)?;
        // A writer has the lock alone.
        if kind == LockKind::Shared { shared(file, &Part::all(kind)) } else { Ok(()) }
    })
}

/// Takes the lock of a file for an opening of a block device above it, whose number it publishes;
/// else like [`lock`].
pub(super) fn lock_part(file: &File, part: &Part, way: u64) -> io::Result<Result<(), HeldBy>> {
    let locked = lock_by(file, || {
        if part.stands_in {
            return part.take(file);
        }
        ofd_lock(file, LockKind::Shared, LOCK, 1)?;
        shared(file, part)
    })?;
    if locked.is_ok() && way < WAYS_BYTES as u64 {
        // The lock is valid without it.
        let _ = ofd_lock(file, LockKind::Shared, WAYS + way as i64, 1);
    }
    Ok(locked)
}

/// Locks a part of a file of which this process shares the lock, which it gives back else.
fn shared(file: &File, part: &Part) -> io::Result<()> {
    part.take(file).inspect_err(|_| {
        let _ = ofd_lock(file, LockKind::None, LOCK, 1);
    })
}

fn lock_by(file: &File, attempt: impl Fn() -> io::Result<()>) -> io::Result<Result<(), HeldBy>> {
    let locked = until_free(file, || match attempt() {
        Err(error) if is_taken(&error) => Ok(false),
        locked => locked.map(|()| true),
    })?;
    if locked.is_ok() {
        // The lock is valid without its name as well: other processes still find it taken.
        let _ = publish(file, &Holder::this_process());
    }
    Ok(locked)
}

/// Asks `is_free` until that is so, or a holder is known that is not about to go.
fn until_free(
    file: &File,
    is_free: impl Fn() -> io::Result<bool>,
) -> io::Result<Result<(), HeldBy>> {
    let end = Instant::now() + CLOSING;
    let mut attempts = 0..TRIES;
    while attempts.next().is_some() {
        match is_free() {
            Ok(true) => return Ok(Ok(())),
            Ok(false) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        let holder = holder(file);
        let is_closing =
            || mounted::are_gone(file) || holder.as_ref().is_some_and(Holder::has_ended);
        if Instant::now() < end && is_closing() {
            attempts = 0..TRIES;
        } else if holder.is_some() {
            return Ok(Err(HeldBy::of(file, holder)));
        }
        thread::sleep(PAUSE);
    }
    Ok(Err(HeldBy::of(file, None)))
}

/// Returns the holder of the lock, if there is one, and takes nothing.
///
/// Blocks like [`lock`].
pub(super) fn look(file: &File) -> io::Result<Result<(), HeldBy>> {
    until_free(file, || Ok(ofd_lock_of_others(file, LOCK, 1)?.is_none()))
}

/// Releases the lock and the name. Closing the file would do that too, but later if another process
/// still has it open, such as a child that is just starting.
pub(super) fn unlock(file: &File) {
    // The name first, so that it is never found with the lock of another process. If this fails,
    // closing the file removes the name.
    let _ = ofd_lock(file, LockKind::None, NAMES, i64::MAX - NAMES);
    let _ = ofd_lock(file, LockKind::None, LOCK, 1);
    let _ = ofd_lock(file, LockKind::None, STANDS_IN, LOCK - STANDS_IN);
}

fn is_taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES))
}

/// Returns the longest start of a text that may be published.
fn truncated(text: &str) -> &str {
    let end = (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

fn encode(holder: &Holder) -> Vec<u8> {
    let since = holder.since.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let (program, host) = (truncated(&holder.program), truncated(&holder.host));
    let mut name = Vec::with_capacity(16 + program.len() + host.len());
    name.extend(holder.pid.to_le_bytes());
    name.extend(since.to_le_bytes());
    name.push(program.len() as u8);
    name.extend(program.bytes());
    name.extend(host.bytes());
    name
}

fn decode(name: &[u8]) -> Option<Holder> {
    let (pid, rest) = name.split_first_chunk()?;
    let (since, rest) = rest.split_first_chunk()?;
    let (length, rest) = rest.split_first()?;
    let (program, host) = rest.split_at_checked(usize::from(*length))?;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    Some(Holder {
        pid: u32::from_le_bytes(*pid),
        program: text(program)?,
        host: text(host)?,
        since: UNIX_EPOCH.checked_add(Duration::from_secs(u64::from_le_bytes(*since)))?,
    })
}

/// Returns the value of the first window: the length, and three bytes of checksum, which a
/// half-read name does not match (FNV-1a, folded).
fn seal(name: &[u8]) -> u32 {
    let hash = name
        .iter()
        .fold(0x811C_9DC5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    (name.len() as u32) << 24 | (hash ^ hash >> 24) & 0x00FF_FFFF
}

fn window(lane: u32, index: usize) -> i64 {
    NAMES + i64::from(lane) * LANE_BYTES + index as i64 * WINDOW_BYTES
}

/// Publishes a name; its seal is written last.
fn publish(file: &File, holder: &Holder) -> io::Result<()> {
    let (name, lane) = (encode(holder), RandomState::new().build_hasher().finish());
    let lane = (lane % u64::from(LANES)) as u32;
    for (index, part) in (1..).zip(name.chunks(4)) {
        let mut value = [0; 4];
        value[..part.len()].copy_from_slice(part);
        let offset = window(lane, index) + i64::from(u32::from_le_bytes(value));
        ofd_lock(file, LockKind::Shared, offset, 1)?;
    }
    ofd_lock(file, LockKind::Shared, window(lane, 0) + i64::from(seal(&name)), 1)
}

/// Returns the name that another process has published, if it is complete.
fn holder(file: &File) -> Option<Holder> {
    let first = ofd_lock_of_others(file, NAMES, LANE_BYTES * i64::from(LANES)).ok()??;
    let lane = u32::try_from((first - NAMES) / LANE_BYTES).ok()?;
    let value = |index| {
        let start = window(lane, index);
        let found = ofd_lock_of_others(file, start, WINDOW_BYTES).ok()??;
        // The kernel merges adjacent locks of one owner, and the merged lock begins in the window
        // before.
        u32::try_from(found.max(start) - start).ok()
    };
    let seal_found = value(0)?;
    let length = (seal_found >> 24) as usize;
    let mut name = Vec::with_capacity(length + 4);
    for index in 1..=length.div_ceil(4) {
        name.extend(value(index)?.to_le_bytes());
    }
    name.truncate(length);
    if seal(&name) == seal_found { decode(&name) } else { None }
}

#[cfg(test)]
mod tests;
