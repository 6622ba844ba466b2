//! Who acts, and what they may do to an inode.

use rustix::io::Errno;
use vfscale_sync::rcu::Guard;

use crate::base::types::{Access, Capabilities};
use crate::objects::inode::Inode;
use crate::security::acl::{self, Ownership};

/// The rights a task acts with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The user that files are checked against and created for (the file system user id).
    pub uid: u32,
    /// The group, likewise.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// Privileges.
    pub caps: Capabilities,
    /// The user that `access` checks for.
    pub real_uid: u32,
    /// The group that `access` checks for.
    pub real_gid: u32,
}

impl Credentials {
    /// User 0 with every privilege.
    pub fn root() -> Credentials {
        Credentials { caps: Capabilities::all(), ..Credentials::user(0, 0) }
    }

    /// A user without privileges.
    pub fn user(uid: u32, gid: u32) -> Credentials {
        Credentials {
            uid,
            gid,
            groups: Vec::new(),
            caps: Capabilities::empty(),
            real_uid: uid,
            real_gid: gid,
        }
    }

    /// The same with these further groups.
    pub fn with_groups(mut self, groups: impl Into<Vec<u32>>) -> Credentials {
        self.groups = groups.into();
        self
    }

    /// Whether `group` is the group or one of the further ones.
    #[inline]
    pub fn in_group(&self, group: u32) -> bool {
        self.gid == group || self.groups.contains(&group)
    }

    #[inline]
    pub(crate) fn has(&self, caps: Capabilities) -> bool {
        self.caps.contains(caps)
    }

    /// Whether it may act as the owner of `inode`.
    pub(crate) fn owns(&self, inode: &Inode) -> bool {
        self.has(Capabilities::FOWNER) || self.uid == inode.uid()
    }

    /// The rights that `access(2)` checks with: the real ids, and privileges only for user 0.
    pub(crate) fn real(&self) -> Credentials {
        let caps = if self.real_uid == 0 { Capabilities::all() } else { Capabilities::empty() };
        Credentials { uid: self.real_uid, gid: self.real_gid, caps, ..self.clone() }
    }
}

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
    // Nobody refuses root anything but executing what nobody may execute. Asked first, since it needs nothing
    // of the inode that is ever written.
    let executes = want.contains(Access::EXEC) && !inode.is_dir();
    if cred.has(Capabilities::DAC_OVERRIDE) && !executes {
        return Ok(());
    }
    let mode = inode.mode();
    let want_bits = u32::from(want.bits());
    // What everybody may, nobody needs to be known for; ACLs and classes can only take away, so that
    // shortcut holds when all three classes grant it and there is no ACL.
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
