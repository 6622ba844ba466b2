//! The nodes of the tree, and their inode numbers.
//!
//! The root is 1, followed by the nodes in it. For the nodes of a task, the bits from
//! [`TASK_SHIFT`] on are the task's number. The lower bits identify its directory, the nodes in
//! that, or with [`FD_BIT`] a descriptor. The number of a descriptor's node includes the access
//! mode, since the permission bits of the link show it.

use vfscale_vfs::{FileType, OFlags};

/// The text files in the root.
pub(crate) const TEXTS: &[(&str, Text)] = &[
    ("mounts", Text::Mounts),
    ("dentry-state", Text::DentryState),
    ("inode-state", Text::InodeState),
    ("file-nr", Text::FileNr),
    ("lock_stat", Text::LockStat),
    ("scaling", Text::Scaling),
];

const TASKS: &str = "tasks";

/// Constructor of a node of a task, from the task's number.
type OfTask = fn(u64) -> Node;

/// The entries of a task's directory.
pub(crate) const TASK_ENTRIES: &[(&str, OfTask)] = &[("cwd", Node::Cwd), ("fd", Node::Fds)];

const ROOT_INO: u64 = 1;
const TEXT_INO: u64 = 2;
const TASKS_INO: u64 = 100;
const TASK_SHIFT: u32 = 24;
const TASK_DIR: u64 = 1;
const TASK_CWD: u64 = 2;
const TASK_FDS: u64 = 3;
const FD_BIT: u64 = 1 << 23;

/// A text file in the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Text {
    Mounts,
    DentryState,
    InodeState,
    FileNr,
    LockStat,
    Scaling,
}

/// The access mode of a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

impl Access {
    pub(crate) fn of(flags: OFlags) -> Access {
        if flags.contains(OFlags::PATH) {
            return Access::default();
        }
        let bits = flags.bits() & OFlags::ACCMODE.bits();
        Access { read: bits == 0 || bits == 2, write: bits == 1 || bits == 2 }
    }
}

/// A file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Root,
    Text(Text),
    Tasks,
    Task(u64),
    Cwd(u64),
    Fds(u64),
    Fd(u64, i32, Access),
    /// Not a number of this file system.
    Unknown,
}

impl Node {
    pub(crate) fn ino(self) -> u64 {
        let of_task = |id: u64, what: u64| id << TASK_SHIFT | what;
        match self {
            Node::Root => ROOT_INO,
            Node::Text(text) => {
                let index = TEXTS.iter().position(|(_, own)| *own == text).unwrap_or_default();
                TEXT_INO + index as u64
            }
            Node::Tasks => TASKS_INO,
            Node::Task(id) => of_task(id, TASK_DIR),
            Node::Cwd(id) => of_task(id, TASK_CWD),
            Node::Fds(id) => of_task(id, TASK_FDS),
            Node::Fd(id, fd, access) => {
                let access = u64::from(access.read) | u64::from(access.write) << 1;
                of_task(id, FD_BIT | (fd as u64) << 2 | access)
            }
            Node::Unknown => 0,
        }
    }

    pub(crate) fn of(ino: u64) -> Node {
        let (id, what) = (ino >> TASK_SHIFT, ino & ((1 << TASK_SHIFT) - 1));
        match (id, what) {
            (0, ROOT_INO) => Node::Root,
            (0, TASKS_INO) => Node::Tasks,
            (0, n) => {
                let index = n.checked_sub(TEXT_INO).and_then(|n| usize::try_from(n).ok());
                let text = index.and_then(|index| TEXTS.get(index));
                text.map_or(Node::Unknown, |(_, text)| Node::Text(*text))
            }
            (id, TASK_DIR) => Node::Task(id),
            (id, TASK_CWD) => Node::Cwd(id),
            (id, TASK_FDS) => Node::Fds(id),
            (id, n) if n & FD_BIT != 0 => {
                let access = Access { read: n & 1 != 0, write: n & 2 != 0 };
                Node::Fd(id, ((n & !FD_BIT) >> 2) as i32, access)
            }
            _ => Node::Unknown,
        }
    }

    /// Returns type and permission bits. They equal those of the kernel's files unless stated
    /// otherwise.
    pub(crate) fn mode(self) -> u32 {
        let (file_type, mode) = match self {
            Node::Root | Node::Tasks | Node::Task(_) => (FileType::Directory, 0o555),
            Node::Fds(_) => (FileType::Directory, 0o500),
            Node::Text(Text::LockStat) => (FileType::RegularFile, 0o600),
            Node::Text(_) | Node::Unknown => (FileType::RegularFile, 0o444),
            Node::Cwd(_) => (FileType::Symlink, 0o777),
            Node::Fd(_, _, access) => {
                let read = if access.read { 0o500 } else { 0 };
                let write = if access.write { 0o300 } else { 0 };
                (FileType::Symlink, read | write)
            }
        };
        file_type.as_raw_mode() | mode
    }

    pub(crate) fn is_dir(self) -> bool {
        matches!(self, Node::Root | Node::Tasks | Node::Task(_) | Node::Fds(_))
    }

    /// Returns whether the node is a text file.
    pub(crate) fn is_text(self) -> bool {
        matches!(self, Node::Text(_))
    }

    pub(crate) fn is_link(self) -> bool {
        matches!(self, Node::Cwd(_) | Node::Fd(..))
    }
}

/// Returns the entries of the root.
pub(crate) fn root_entries() -> impl Iterator<Item = (&'static str, Node)> {
    let texts = TEXTS.iter().map(|(name, text)| (*name, Node::Text(*text)));
    texts.chain([(TASKS, Node::Tasks)])
}

/// Returns the node of a name in the root.
pub(crate) fn find_in_root(name: &str) -> Option<Node> {
    root_entries().find(|(own, _)| *own == name).map(|(_, node)| node)
}

/// Parses a number in a name: decimal, without a sign or leading zeros.
pub(crate) fn parse(name: &str) -> Option<u64> {
    let number: u64 = name.parse().ok()?;
    (number.to_string() == name).then_some(number)
}
