//! The users that tasks run as.

/// What a task may be.
#[derive(Debug)]
pub struct User {
    /// How it is printed.
    pub name: &'static str,
    /// The user id that decides about files.
    pub uid: u32,
    /// The group id that decides about files.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: &'static [u32],
    /// The real user id, which `access` asks about.
    pub real_uid: u32,
    /// The real group id.
    pub real_gid: u32,
    /// Privileges in effect: a mask of `CAP_*` bits, or all.
    pub caps: Caps,
}

/// Which privileges are in effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caps {
    /// All of them.
    All,
    /// These bits.
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

/// The users, the simplest first. Two ordinary ones share a group; the last are unusual mixes
/// of ids and privileges.
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
