//! Waiting for events, of which files have some at any time.

use vfscale::Errno;
use vfscale::posix::Whence;

use super::descriptors::Entry;
use super::memory::Memory;
use super::{Done, Fault, Guest};
use crate::errors::number;

/// The size of a subscription.
const SUBSCRIPTION: u32 = 48;
/// The size of an event.
const EVENT: u32 = 32;
/// The kind of events of clocks; those of reading and writing follow.
const CLOCK: u8 = 0;
const READ: u8 = 1;

/// Writes the events of files and of descriptors that are not open. Returns whether there are any:
/// without one, the rest of WASI waits for clocks and standard streams.
pub(super) fn poll_files(
    guest: &Guest,
    memory: &mut Memory<'_>,
    from: u32,
    to: u32,
    count: u32,
    events: u32,
) -> Done<bool> {
    let mut ready = 0;
    for n in 0..count {
        let at = n.checked_mul(SUBSCRIPTION).and_then(|at| at.checked_add(from));
        let bytes: [u8; SUBSCRIPTION as usize] = memory.get(at.ok_or(Errno::FAULT)?)?;
        let kind = bytes[8];
        if kind == CLOCK {
            continue;
        }
        let fd = u32::from_le_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]);
        let (error, len) = match guest.descriptors.get(fd) {
            Ok(&Entry::Stdio(stream)) if stream == fd => continue,
            // The rest of WASI reads the number in the guest's memory, and knows another one.
            Ok(Entry::Stdio(_)) => return Err(Errno::NOTSUP.into()),
            Ok(Entry::Dir { .. }) => (0, 0),
            Ok(Entry::File { node, .. }) if kind == READ => {
                let position = node.file().seek(Whence::Current(0)).unwrap_or(0);
                (0, node.stat()?.size.saturating_sub(position))
            }
            Ok(Entry::File { .. }) => (0, 0),
            Err(Fault::Errno(errno)) => (number(errno), 0),
            Err(fault) => return Err(fault),
        };
        let mut event = [0; EVENT as usize];
        event[0..8].copy_from_slice(&bytes[0..8]);
        event[8..10].copy_from_slice(&(error as u16).to_le_bytes());
        event[10] = kind;
        event[16..24].copy_from_slice(&len.to_le_bytes());
        // There are at most as many events as subscriptions, which are longer.
        memory.put(to.checked_add(ready * EVENT).ok_or(Errno::FAULT)?, &event)?;
        ready += 1;
    }
    if ready > 0 {
        memory.put(events, &ready.to_le_bytes())?;
    }
    Ok(ready > 0)
}
