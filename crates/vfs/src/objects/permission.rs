//! Whether credentials suffice for an access to an inode: mode bits, access control lists,
//! privileges, and the sticky bit.

use rustix::io::Errno;
use vfscale_sync::rcu::Guard;

use crate::base::types::{Access, Capabilities};
use crate::objects::inode::Inode;
use crate::security::acl::{self, Ownership};
use crate::security::cred::Credentials;

/// Checks that `cred` may access `inode` in the way `want` says.
///
/// # Errors
/// `EACCES`.
#[inline]
pub(crate) fn permission(
    inode: &Inode,
    cred: &Credentials,
    want: Access,
    guard: &Guard,
) -> Result<(), Errno> {
    // Nobody refuses root anything but executing what nobody may execute. Asked first, since it
    // needs nothing of the inode that is ever written.
    let executes = want.contains(Access::EXEC) && !inode.is_dir();
    if cred.has(Capabilities::DAC_OVERRIDE) && !executes {
        return Ok(());
    }
    let mode = inode.mode();
    let want_bits = u32::from(want.bits());
    // What everybody may, nobody needs to be known for; ACLs and classes can only take away, so
    // that shortcut holds when all three classes grant it and there is no ACL.
    if (mode & (mode >> 3) & (mode >> 6) & want_bits) == want_bits && inode.extra(guard).is_none() {
        return Ok(());
    }
    permission_slow(inode, mode, cred, want, guard)
}

fn permission_slow(
    inode: &Inode,
    mode: u32,
    cred: &Credentials,
    want: Access,
    guard: &Guard,
) -> Result<(), Errno> {
    let owned = Ownership { mode, uid: inode.uid(), gid: inode.gid() };
    let acl = inode.extra(guard).and_then(|extra| extra.acl_access.read(guard));
    let in_group = |group| cred.in_group(group);
    acl::permission(owned, acl, cred.uid, cred.gid, in_group, want.bits())
        .or_else(|errno| if capable(inode, mode, cred, want) { Ok(()) } else { Err(errno) })
}

/// Whether a privilege overrides the refusal.
fn capable(inode: &Inode, mode: u32, cred: &Credentials, want: Access) -> bool {
    if inode.is_dir() {
        return cred.has(Capabilities::DAC_OVERRIDE)
            || (!want.contains(Access::WRITE) && cred.has(Capabilities::DAC_READ_SEARCH));
    }
    if want == Access::READ && cred.has(Capabilities::DAC_READ_SEARCH) {
        return true;
    }
    (!want.contains(Access::EXEC) || mode & 0o111 != 0) && cred.has(Capabilities::DAC_OVERRIDE)
}

/// Checks that `cred` may remove or rename `victim` in `dir`, as far as the sticky bit goes.
///
/// # Errors
/// `EPERM`.
pub(crate) fn check_sticky(dir: &Inode, victim: &Inode, cred: &Credentials) -> Result<(), Errno> {
    let sticky = dir.special_bits() & 0o1000 != 0;
    if !sticky || cred.uid == victim.uid() || cred.uid == dir.uid() {
        return Ok(());
    }
    if cred.has(Capabilities::FOWNER) { Ok(()) } else { Err(Errno::PERM) }
}

impl Credentials {
    /// Whether it may act as the owner of `inode`.
    pub(crate) fn owns(&self, inode: &Inode) -> bool {
        self.has(Capabilities::FOWNER) || self.uid == inode.uid()
    }
}
