//! Extended attributes, including POSIX ACLs.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use vfscale::posix::{At, AtFlags, XattrFlags};
use vfscale::{Capabilities, Errno, Mode, Task};

use super::{RequestCtx, Rights, Server};

const ITSELF: AtFlags = AtFlags::EMPTY_PATH;
/// File capabilities: rights that a program has beyond those of the user who runs it.
const CAPABILITIES: &str = "security.capability";
/// Prefix of the names that only the administrator sees.
const TRUSTED: &[u8] = b"trusted.";
/// The ACL that includes the permission bits.
const ACCESS_LIST: &str = "system.posix_acl_access";

impl Server {
    pub(super) fn setxattr(
        &self,
        ctx: &mut RequestCtx<'_>,
        name: &OsStr,
        value: &[u8],
        flags: u32,
        kill_sgid: bool,
    ) -> Result<(), Errno> {
        let file = self.node(ctx.node)?.file;
        let flags = XattrFlags::from_bits(flags).ok_or(Errno::INVAL)?;
        // Setting an access ACL may clear a set-group-id bit, depending on the caller's groups. If
        // these may be mapped, only the kernel's flag tells.
        let rights = if ctx.caller.is_checked() { Rights::Lazy } else { Rights::Exact };
        self.act(ctx, rights, |task| {
            task.posix().setxattrat(At::File(&file), "", name, value, flags, ITSELF)
        })?;
        // The kernel sets the flag for default ACLs as well, which are not part of the mode.
        if kill_sgid && name == ACCESS_LIST {
            let mode = file.stat()?.permissions();
            if mode.contains(Mode::SGID) {
                self.tree().base.posix().fchmodat(
                    At::File(&file),
                    "",
                    mode - Mode::SGID,
                    ITSELF,
                )?;
            }
        }
        Ok(())
    }

    pub(super) fn getxattr(
        &self,
        ctx: &mut RequestCtx<'_>,
        name: &OsStr,
        size: u32,
    ) -> Result<(), Errno> {
        let file = self.node(ctx.node)?.file;
        let value = self.act(ctx, Rights::Lazy, |task| {
            task.posix().getxattrat(At::File(&file), "", name, ITSELF)
        })?;
        put_sized(ctx, &value, size)
    }

    pub(super) fn listxattr(&self, ctx: &mut RequestCtx<'_>, size: u32) -> Result<(), Errno> {
        let file = self.node(ctx.node)?.file;
        let names = self.tree().base.posix().listxattrat(At::File(&file), "", ITSELF)?;
        let is_trusted = |name: &OsStr| name.as_bytes().starts_with(TRUSTED);
        // Only the administrator sees these names. Checking for the capability is costly, so only
        // if there are any.
        let hides =
            names.iter().any(|name| is_trusted(name)) && !ctx.caller.has(Capabilities::SYS_ADMIN);
        let mut list = Vec::new();
        for name in names.iter().filter(|name| !(hides && is_trusted(name))) {
            list.extend_from_slice(name.as_bytes());
            list.push(0);
        }
        put_sized(ctx, &list, size)
    }

    pub(super) fn removexattr(&self, ctx: &mut RequestCtx<'_>, name: &OsStr) -> Result<(), Errno> {
        let file = self.node(ctx.node)?.file;
        let remove = |task: &Task| task.posix().removexattrat(At::File(&file), "", name, ITSELF);
        if name == CAPABILITIES {
            // The kernel has this attribute removed on behalf of every process that changes the
            // data. It has checked the permission of a process that asks for the removal itself.
            return Ok(remove(&self.tree().base)?);
        }
        // Like setting it, removing an access ACL may clear a set-group-id bit.
        let rights = if name == ACCESS_LIST { Rights::Exact } else { Rights::Lazy };
        self.act(ctx, rights, remove)
    }
}

/// Replies with a value if it fits, or with its size if `size` is 0.
fn put_sized(ctx: &mut RequestCtx<'_>, value: &[u8], size: u32) -> Result<(), Errno> {
    if size == 0 {
        ctx.reply.count(u32::try_from(value.len()).map_err(|_| Errno::TOOBIG)?);
        return Ok(());
    }
    if value.len() > size as usize {
        return Err(Errno::RANGE);
    }
    ctx.reply.put(value);
    Ok(())
}
