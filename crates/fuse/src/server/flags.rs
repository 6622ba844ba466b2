//! Inode flags, as `lsattr(1)` reads them and `chattr(1)` sets them.
//!
//! The kernel turns both the calls of `ioctl_iflags(2)` and those on `struct fsxattr` into requests
//! of this kind. Since Linux 5.13 it checks who may set flags, but passes on the commands of 32-bit
//! programs unchecked if another program uses them. So the server checks as well.
//!
//! The kernel does not know the flags of a file, so the server applies their rules to each request.
//! In exclusive use, the kernel opens files without a message; then the rules for opening apply to
//! each change of the data instead. A file system in which some file was immutable or append-only
//! when it was mounted is different: there the kernel sends `OPEN`.

use std::borrow::Cow;
use std::ffi::c_long;

use rustix::ioctl::{Opcode, opcode};
use vfscale::posix::{InodeFlags, OFlags};
use vfscale::{Errno, File, Task};

use super::nodes::Level;
use super::{RequestCtx, Rights, Server};
use crate::wire::WriteFlags;
use crate::wire::request::Write;

const GETFLAGS: Opcode = opcode::read::<c_long>(b'f', 1);
const SETFLAGS: Opcode = opcode::write::<c_long>(b'f', 2);
/// The forms of 32-bit programs.
const GETFLAGS_32: Opcode = opcode::read::<u32>(b'f', 1);
const SETFLAGS_32: Opcode = opcode::write::<u32>(b'f', 2);
const FSGETXATTR: Opcode = opcode::read::<FsXattr>(b'X', 31);
const FSSETXATTR: Opcode = opcode::write::<FsXattr>(b'X', 32);

/// The words of a `struct fsxattr`: flags, extent size hint, number of extents, project, hint for
/// copies, and two that are not used.
type FsXattr = [u32; 7];

/// A request about flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A word with the flags.
    Word,
    /// A `struct fsxattr`.
    FsXattr,
}

/// Returns the form of a command that reads the flags.
fn reads(command: Opcode) -> Option<Form> {
    match command {
        GETFLAGS | GETFLAGS_32 => Some(Form::Word),
        FSGETXATTR => Some(Form::FsXattr),
        _ => None,
    }
}

/// Returns the form of a command that sets the flags.
fn sets(command: Opcode) -> Option<Form> {
    match command {
        SETFLAGS | SETFLAGS_32 => Some(Form::Word),
        FSSETXATTR => Some(Form::FsXattr),
        _ => None,
    }
}

/// Returns whether a command changes an inode.
pub(super) fn changes(command: u32) -> bool {
    sets(Opcode::from(command)).is_some()
}

fn to_fsx(flags: InodeFlags) -> u32 {
    let set = InodeFlags::FSX_BITS.into_iter().filter(|(flag, _)| flags.contains(*flag));
    set.fold(0, |all, (_, bit)| all | bit)
}

/// Returns the words of a request, of which a wide one has a second half without flags.
fn words(data: &[u8]) -> impl Iterator<Item = u32> {
    let (words, _) = data.as_chunks::<4>();
    words.iter().copied().map(u32::from_ne_bytes)
}

/// Returns the flags to set, of a file that has `before`.
fn requested(form: Form, data: &[u8], before: InodeFlags) -> Result<InodeFlags, Errno> {
    let mut words = words(data);
    let first = words.next().ok_or(Errno::INVAL)?;
    if form == Form::Word {
        return InodeFlags::from_bits(first).ok_or(Errno::OPNOTSUPP);
    }
    let known = to_fsx(InodeFlags::all());
    // The number of extents is only read.
    let others = words.enumerate().any(|(at, word)| at != 1 && at < 4 && word != 0);
    if first & !known != 0 || others {
        return Err(Errno::OPNOTSUPP);
    }
    // A flag that has no bit there stays as it is.
    let is_set = |(flag, bit)| if bit == 0 { before.contains(flag) } else { first & bit != 0 };
    let set = InodeFlags::FSX_BITS.into_iter().filter(|pair| is_set(*pair));
    Ok(set.map(|(flag, _)| flag).collect())
}

/// Checks that a file with these flags may be opened for writing: only at its end, if the writer
/// `appends`.
fn may_open(flags: InodeFlags, appends: bool) -> Result<(), Errno> {
    let is_refused =
        flags.contains(InodeFlags::IMMUTABLE) || (flags.contains(InodeFlags::APPEND) && !appends);
    if is_refused { Err(Errno::PERM) } else { Ok(()) }
}

/// Returns the data of a write to an append-only file without changes of what the file has. The
/// kernel gathers writes in pages, and may send a later page first; so what is zero in the file may
/// still be written.
///
/// # Errors
/// `EPERM` if nothing is left of it.
fn added(file: &File, write: Write<'_>) -> Result<Vec<u8>, Errno> {
    let mut data = write.data.to_vec();
    let known = file.pread(&mut data, write.offset)?;
    let mut adds = known < data.len();
    for (byte, new) in data.iter_mut().zip(write.data).take(known) {
        if *byte == 0 {
            adds |= *new != 0;
            *byte = *new;
        }
    }
    if adds || data == write.data { Ok(data) } else { Err(Errno::PERM) }
}

impl Server {
    /// Reads or sets flags, if the command does so. `room` is the length of the reply's data.
    ///
    /// # Errors
    /// `ENOTTY` for other commands, and for one that nobody has checked where only the kernel
    /// does; the errors of the call.
    pub(super) fn inode_flags(
        &self,
        ctx: &mut RequestCtx<'_>,
        command: Opcode,
        data: &[u8],
        room: u32,
    ) -> Result<(), Errno> {
        let (form, is_set) = match (reads(command), sets(command)) {
            (Some(form), _) => (form, false),
            (_, Some(form)) => (form, true),
            _ => return Err(Errno::NOTTY),
        };
        let file = self.at_level(ctx.node, Level::Read)?;
        let before = self.tree().base.posix().ioctl_getflags(&file)?;
        if is_set {
            let flags = requested(form, data, before)?;
            self.may_set(before, flags)?;
            self.set_flags(ctx, command, &file, flags)?;
            ctx.reply.ioctl_done();
            return Ok(());
        }
        let rest = (room as usize).checked_sub(size_of::<u32>()).ok_or(Errno::INVAL)?;
        let zeros = [0; size_of::<FsXattr>()];
        let rest = zeros.get(..rest).ok_or(Errno::INVAL)?;
        ctx.reply.ioctl_done();
        ctx.reply.u32(if form == Form::Word { before.bits() } else { to_fsx(before) });
        ctx.reply.put(rest);
        Ok(())
    }

    /// Sets flags with no more rights than the caller certainly has.
    fn set_flags(
        &self,
        ctx: &mut RequestCtx<'_>,
        command: Opcode,
        file: &File,
        flags: InodeFlags,
    ) -> Result<(), Errno> {
        let set = |task: &Task| task.posix().ioctl_setflags(file, flags);
        if ctx.caller.is_checked() {
            let is_passed_on = command == SETFLAGS_32;
            return if is_passed_on { Err(Errno::NOTTY) } else { self.act(ctx, Rights::Lazy, set) };
        }
        Ok(set(&self.tree().base.with_credentials(ctx.caller.certain_credentials()))?)
    }

    /// Refuses flags that this mount can't enforce: a kernel that gathers writes and opens files
    /// without a message reports success of writes that the server would refuse later.
    fn may_set(&self, before: InodeFlags, flags: InodeFlags) -> Result<(), Errno> {
        let is_new = (flags - before).intersects(InodeFlags::PRIVILEGED);
        let is_late = self.config.gathers() && !self.config.sends_open();
        if is_new && is_late { Err(Errno::OPNOTSUPP) } else { Ok(()) }
    }

    /// Checks that a file may be opened with `flags`, for a kernel that has checked everything but
    /// the inode flags.
    pub(super) fn may_open(&self, node: u64, flags: OFlags) -> Result<(), Errno> {
        if !flags.intersects(OFlags::WRONLY | OFlags::RDWR) {
            return Ok(());
        }
        let stat = self.node(node)?.file.stat()?;
        may_open(stat.flags, flags.contains(OFlags::APPEND))
    }

    /// Checks that the data of a file may be written, and returns what to write.
    ///
    /// A descriptor may have lost `O_APPEND` since the file was opened, and a mapping has no such
    /// flag. So what an append-only file has is protected here.
    pub(super) fn permitted<'a>(
        &self,
        file: &File,
        write: Write<'a>,
    ) -> Result<Cow<'a, [u8]>, Errno> {
        let flags = self.flags_of(file);
        let is_cached = write.flags.contains(WriteFlags::CACHE);
        let appends = write.open.contains(OFlags::APPEND);
        if !self.config.sends_open() {
            may_open(flags, appends || is_cached)?;
        }
        // A handle that appends writes at the end, wherever the kernel takes that to be.
        let is_sure = appends && !is_cached && file.flags().contains(OFlags::APPEND);
        if !flags.contains(InodeFlags::APPEND) || is_sure || write.offset >= file.stat()?.size {
            Ok(Cow::Borrowed(write.data))
        } else if is_cached && self.config.gathers() {
            added(file, write).map(Cow::Owned)
        } else {
            Err(Errno::PERM)
        }
    }

    /// Checks that bytes may be copied into a file at an offset.
    pub(super) fn may_copy_to(&self, file: &File, offset: u64) -> Result<(), Errno> {
        let flags = self.flags_of(file);
        if !self.config.sends_open() {
            may_open(flags, false)?;
        }
        let is_kept = flags.contains(InodeFlags::APPEND) && offset < file.stat()?.size;
        if is_kept { Err(Errno::PERM) } else { Ok(()) }
    }

    /// Checks that an open file may be truncated. In exclusive use, opening for reading with
    /// `O_TRUNC` does so, and its `OPEN` does not tell.
    pub(super) fn may_truncate(&self, file: &File) -> Result<(), Errno> {
        if self.config.is_exclusive() { may_open(self.flags_of(file), false) } else { Ok(()) }
    }

    /// Returns the flags of a file; none in a file system without them.
    fn flags_of(&self, file: &File) -> InodeFlags {
        self.tree().base.posix().ioctl_getflags(file).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
