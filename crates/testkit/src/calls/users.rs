//! The users that tasks run as.

/// Credentials of a task.
#[derive(Debug)]
pub struct User {
    /// Name in output.
    pub name: &'static str,
    /// User id for access to files.
    pub uid: u32,
    /// Group id for access to files.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: &'static [u32],
    /// Real user id, which `access` checks.
    pub real_uid: u32,
    /// Real group id.
    pub real_gid: u32,
    /// Effective capabilities.
    pub caps: Caps,
}

/// A set of effective capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caps {
    /// All capabilities.
    All,
    /// The capabilities of this bitmap of `CAP_*`.
    Only(u64),
}

const fn user(name: &'static str, uid: u32, gid: u32, groups: &'static [u32]) -> User {
    User { name, uid, gid, groups, real_uid: uid, real_gid: gid, caps: Caps::Only(0) }
}

const CHOWN: u64 = 1;
const DAC_OVERRIDE: u64 = 1 << 1;
const DAC_READ_SEARCH: u64 = 1 << 2;
const FOWNER: u64 = 1 << 3;
const FSETID: u64 = 1 << 4;

/// The users, the simplest first. Two ordinary ones share a group; the last ones are unusual
/// combinations of ids and capabilities.
pub static USERS: &[User] = &[
    User { caps: Caps::All, ..user("root", 0, 0, &[]) },
    user("alice", 1000, 1000, &[]),
    user("bob", 1001, 1001, &[1000, 100]),
    user("alice+groups", 1000, 100, &[1000, 1001]),
    User { caps: Caps::Only(FOWNER | FSETID), ..user("bob+fowner", 1001, 1001, &[1000]) },
    User { caps: Caps::Only(DAC_READ_SEARCH), ..user("alice+search", 1000, 1000, &[100]) },
    User { caps: Caps::Only(DAC_OVERRIDE | CHOWN), ..user("bob+chown", 1001, 1001, &[]) },
    User { caps: Caps::Only(0), ..user("root-caps", 0, 0, &[]) },
    User { real_uid: 1000, real_gid: 1000, caps: Caps::All, ..user("alice=>root", 0, 0, &[]) },
    User { real_uid: 1000, real_gid: 1000, ..user("alice=>bob", 1001, 1001, &[1000]) },
];
