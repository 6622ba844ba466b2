//! Checks whether credentials suffice for an access to an inode: mode bits, access control lists,
//! privileges, and the sticky bit.

use rustix::io::Errno;
use vfscale_sync::rcu::Guard;

use crate::base::types::{Access, Capabilities};
use crate::objects::inode::Inode;
use crate::security::acl::{self, Ownership};
use crate::security::cred::Credentials;

/// Checks that `cred` has the access `want` to `inode`.
///
/// # Errors
/// Returns `EPERM` for write access to an immutable file, whatever the privileges, and `EACCES` if
/// the access is refused.
#[inline]
pub(crate) fn permission(
    inode: &Inode,
    cred: &Credentials,
    want: Access,
    guard: &Guard,
) -> Result<(), Errno> {
    if want.contains(Access::WRITE) && inode.is_immutable() {
        return Err(Errno::PERM);
    }
    // Root has every access except the execution of a file without execute bits. Checked before
    // the mode, because it reads no field of the inode that is often written.
    let executes = want.contains(Access::EXEC) && !inode.is_dir();
    if cred.has(Capabilities::DAC_OVERRIDE) && !executes {
        return Ok(());
    }
    let mode = inode.mode();
    let want_bits = u32::from(want.bits());
    // If all three classes grant the access and there is no ACL, neither the owner nor the groups
    // matter.
    if (mode & (mode >> 3) & (mode >> 6) & want_bits) == want_bits && inode.extra(guard).is_none() {
        return Ok(());
    }
    permission_slow(inode, mode, cred, want, guard)
}

/// Checks the access list and the privileges of `cred`.
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

/// Returns whether a privilege overrides the refusal.
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

/// Checks that the sticky bit permits `cred` to remove or rename `victim` in `dir`.
///
/// # Errors
/// Returns `EPERM` if it does not.
pub(crate) fn check_sticky(dir: &Inode, victim: &Inode, cred: &Credentials) -> Result<(), Errno> {
    let sticky = dir.special_bits() & 0o1000 != 0;
    if !sticky || cred.uid == victim.uid() || cred.uid == dir.uid() {
        return Ok(());
    }
    if cred.has(Capabilities::FOWNER) { Ok(()) } else { Err(Errno::PERM) }
}

impl Credentials {
    /// Returns whether the credentials may act as the owner of `inode`.
    pub(crate) fn owns(&self, inode: &Inode) -> bool {
        self.has(Capabilities::FOWNER) || self.uid == inode.uid()
    }
}
