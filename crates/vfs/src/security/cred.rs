//! Credentials: the identity of a task, and its privileges.

use crate::base::types::Capabilities;

/// The identity and the privileges with which a task acts. Counterpart of `struct cred` in Linux.
///
/// ```
/// # use vfscale_vfs::{Credentials, Task};
/// # fn example(root: &Task) {
/// let user: Task = root.with_credentials(Credentials::user(1000, 100));
/// assert_eq!(user.credentials().uid, 1000);
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The user that files are checked against and created for (the file system user id).
    pub uid: u32,
    /// The group that files are checked against and created for.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Privileges.
    pub caps: Capabilities,
    /// The user that `access` checks for.
    pub real_uid: u32,
    /// The group that `access` checks for.
    pub real_gid: u32,
}

impl Credentials {
    /// Returns the credentials of user 0 with every privilege.
    pub fn root() -> Credentials {
        Credentials { caps: Capabilities::all(), ..Credentials::user(0, 0) }
    }

    /// Returns the credentials of a user without privileges.
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

    /// Replaces the supplementary groups.
    pub fn with_groups(mut self, groups: impl Into<Vec<u32>>) -> Credentials {
        self.groups = groups.into();
        self
    }

    /// Returns whether `group` is the group or one of the supplementary groups.
    #[inline]
    pub fn in_group(&self, group: u32) -> bool {
        self.gid == group || self.groups.contains(&group)
    }

    #[inline]
    pub(crate) fn has(&self, caps: Capabilities) -> bool {
        self.caps.contains(caps)
    }

    /// Returns the credentials that `access(2)` checks: the real ids, and privileges only for user
    /// 0.
    pub(crate) fn real(&self) -> Credentials {
        let caps = if self.real_uid == 0 { Capabilities::all() } else { Capabilities::empty() };
        Credentials { uid: self.real_uid, gid: self.real_gid, caps, ..self.clone() }
    }
}
